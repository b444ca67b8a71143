//! `punctual check`: is the embedded database whole?

use crate::data_dir::DataDir;
use crate::exit::Exit;
use crate::{output, serve};
use anyhow::Context;
use punctual_client::host;
use punctual_store::sqlite::{SqliteOptions, SqliteStore};

#[derive(clap::Args)]
pub struct CheckArgs {
    #[command(flatten)]
    data_dir: DataDir,
}

/// Opens the store as a server would, recovering what a crash left behind, and verifies it.
pub async fn run(args: CheckArgs) -> anyhow::Result<Exit> {
    args.data_dir.must_hold_database()?;
    let host = host::this_machine().context("cannot read randomness")?;
    let store = SqliteStore::open(&SqliteOptions::new(args.data_dir.path()), host.calendar.clone())
        .map_err(|error| serve::cannot_open(&args.data_dir, error))?;
    let problems = store.integrity_check().await.context("the database cannot be verified")?;
    let dir = args.data_dir.path().display();
    if problems.is_empty() {
        output::print_text(&format!("{dir} is whole"))?;
        return Ok(Exit::Done);
    }
    output::print_text(&format!("{dir} is damaged:\n  {}", problems.join("\n  ")))?;
    Ok(Exit::Failed)
}
