//! `punctual check`: is the embedded database whole?

use crate::data_dir::DataDirArgs;
use crate::exit::Exit;
use crate::output::OutputArgs;
use crate::serve;
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
    let data_dir = args.data_dir.resolve()?;
    data_dir.must_hold_database()?;
    let host = host::this_machine().context("cannot read randomness")?;
    let store = SqliteStore::open(&SqliteOptions::new(data_dir.path()), host.calendar.clone())
        .map_err(|error| serve::cannot_open(&data_dir, error))?;
    let problems = store.integrity_check().await.context("the database cannot be verified")?;
    let whole = problems.is_empty();
    let checked = Checked { data_dir: data_dir.path().to_owned(), whole, problems };
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
