//! `punctual backup`: a copy of the embedded database, while its server runs or stands still.

use crate::data_dir::DataDir;
use crate::exit::Exit;
use crate::output;
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use punctual_store::sqlite;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct BackupArgs {
    /// The directory to copy to; it can then be served as a data directory
    to: PathBuf,
    #[command(flatten)]
    data_dir: DataDir,
}

pub async fn run(args: BackupArgs) -> anyhow::Result<Exit> {
    args.data_dir.must_hold_database()?;
    let (from, to) = (args.data_dir.path().to_owned(), args.to.clone());
    tokio::task::spawn_blocking(move || {
        let bar = ProgressBar::new(0).with_style(style());
        sqlite::backup(&from, &to, |progress| {
            bar.set_message(progress.file);
            bar.set_length(progress.pages_total);
            bar.set_position(progress.pages_done);
        })
    })
    .await
    .context("the backup broke off")??;
    output::print_text(&format!("copied {} to {}", args.data_dir.path().display(), args.to.display()))?;
    Ok(Exit::Done)
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} [{bar:40}] {percent}%")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
