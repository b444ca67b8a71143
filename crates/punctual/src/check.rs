//! `punctual check`: is the embedded database whole?

use crate::data_dir::{DataDirArgs, must_hold_database};
use crate::exit::Exit;
use crate::output::OutputArgs;
use crate::store::{StoreArgs, cannot_open};
use anyhow::Context;
use punctual_client::host;
use punctual_store::sqlite::{SqliteOptions, SqliteStore};
use serde::Serialize;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct CheckArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What was found out about a database.
#[derive(Serialize)]
struct Checked {
    data_dir: PathBuf,
    whole: bool,
    problems: Vec<String>,
}

/// Opens the store as a server would, recovering what a crash left behind, and verifies it.
pub async fn run(args: CheckArgs) -> anyhow::Result<Exit> {
    let around = args.data_dir.surroundings()?;
    let place = args.store.place(&around, args.data_dir.within(&around)?.path())?;
    let directory = place.directory("verify its tables with `punctual migrate verify`")?;
    must_hold_database(directory)?;
    let host = host::this_machine().context("cannot read randomness")?;
    let store = SqliteStore::open(&SqliteOptions::new(directory), host.calendar.clone())
        .map_err(|error| cannot_open(directory, error))?;
    let problems = store.integrity_check().await.context("the database cannot be verified")?;
    let whole = problems.is_empty();
    let checked = Checked { data_dir: directory.to_owned(), whole, problems };
    args.output.print(&checked, told)?;
    Ok(if whole { Exit::Done } else { Exit::Failed })
}

fn told(checked: &Checked) -> String {
    let dir = checked.data_dir.display();
    if checked.whole {
        return format!("{dir} is whole");
    }
    format!("{dir} is damaged:\n  {}", checked.problems.join("\n  "))
}
