//! `punctual backup`: copies the embedded database, with its server running or stopped.

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use punctual_config::data_dir::DataDirArgs;
use punctual_config::exit::Exit;
use punctual_config::output::OutputArgs;
use punctual_node::blobs;
use punctual_node::store::{StoreArgs, must_hold_database};
use punctual_store::sqlite;
use serde::Serialize;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct BackupArgs {
    /// The directory to copy to; a server can use it as its data directory
    to: PathBuf,
    #[command(flatten)]
    data_dir: DataDirArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What was copied, and where to.
#[derive(Serialize)]
struct Copied {
    from: PathBuf,
    to: PathBuf,
    /// How many blobs.
    blobs: u64,
}

pub async fn run(args: BackupArgs) -> anyhow::Result<Exit> {
    let around = args.data_dir.surroundings()?;
    let place = args.store.place(&around, args.data_dir.within(&around)?.path())?;
    let directory = place.directory("back it up with tools of the database, such as pg_dump or mysqldump")?;
    must_hold_database(directory)?;
    let (from, to) = (directory.to_owned(), args.to.clone());
    let malformed = tokio::task::spawn_blocking(move || {
        let bar = ProgressBar::new(0).with_style(style());
        sqlite::backup(&from, &to, |progress| {
            bar.set_message(progress.file);
            bar.set_length(progress.pages_total);
            bar.set_position(progress.pages_done);
        })
    })
    .await
    .context("the backup was interrupted")??;
    if let Some(first) = malformed.first() {
        eprintln!(
            "warning: malformed values in the copy: {}, the first: {first}; `punctual check` lists them when the server is \
             stopped",
            malformed.len()
        );
    }
    let (from, to) = (directory.join(blobs::DIRECTORY), args.to.join(blobs::DIRECTORY));
    // After the database: every blob that its copy refers to was complete before.
    let blobs = tokio::task::spawn_blocking(move || blobs::copy(&from, &to))
        .await
        .context("the backup was interrupted")?;
    let blobs = blobs.with_context(|| {
        format!("the blobs cannot be copied: delete {} and make another backup", args.to.display())
    })?;
    let copied = Copied { blobs, from: directory.to_owned(), to: args.to };
    args.output.print(&copied, |copied| {
        format!("copied {} to {}{}", copied.from.display(), copied.to.display(), with_blobs(copied.blobs))
    })?;
    Ok(Exit::Done)
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} [{bar:40}] {percent}%")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn with_blobs(count: u64) -> String {
    match count {
        0 => String::new(),
        1 => ", with 1 blob".to_owned(),
        _ => format!(", with {count} blobs"),
    }
}
