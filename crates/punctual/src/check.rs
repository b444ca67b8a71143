//! `punctual check`: checks whether the database is intact and its counters match its rows.

use anyhow::Context;
use punctual_client::host;
use punctual_config::data_dir::{DataDirArgs, must_be_own};
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::OutputArgs;
use punctual_node::store::{self, ServerPlace, StoreArgs, StorePlace, cannot_open, must_hold_database};
use punctual_store::counter_mismatch::CounterMismatch;
use punctual_store::sqlite::{self, FileCheck, SqliteOptions, SqliteStore};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct CheckArgs {
    /// Correct counters that do not match their rows, and report which. Opens the SQLite files like a server, which migrates them to this version; without this flag they are only read
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    data_dir: DataDirArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The result of checking a database.
#[derive(Serialize)]
struct Checked {
    /// For the embedded store.
    #[serde(skip_serializing_if = "Option::is_none")]
    data_dir: Option<PathBuf>,
    store: String,
    whole: bool,
    /// Problems that were repaired.
    repaired: Vec<String>,
    problems: Vec<String>,
    /// Information that is not a problem.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

pub async fn run(args: CheckArgs) -> anyhow::Result<Exit> {
    let around = args.data_dir.surroundings()?;
    let place = args.store.place(&around, args.data_dir.within(&around)?.path())?;
    let CheckResult { repaired, problems, notes } = match &place {
        StorePlace::Sqlite(directory) => check_files(directory, &args).await?,
        StorePlace::Server(server) => check_database(server, &args).await?,
    };
    let data_dir = match &place {
        StorePlace::Sqlite(directory) => Some(directory.clone()),
        StorePlace::Server(_) => None,
    };
    let whole = problems.is_empty();
    let checked = Checked { data_dir, store: place.to_string(), whole, repaired, problems, notes };
    args.output.print(&checked, told)?;
    Ok(if whole { Exit::Done } else { Exit::Failed })
}

#[derive(Default)]
struct CheckResult {
    repaired: Vec<String>,
    problems: Vec<String>,
    notes: Vec<String>,
}

/// Reads all of the files and changes nothing, not even a file left behind by a crash. Only with `--repair`
/// does it first open the store as a server would.
async fn check_files(directory: &Path, args: &CheckArgs) -> anyhow::Result<CheckResult> {
    must_hold_database(directory)?;
    let repaired = if args.repair { repair(directory).await? } else { vec![] };
    let files = directory.to_owned();
    let checked = tokio::task::spawn_blocking(move || sqlite::check_files(&files)).await;
    let FileCheck { problems, notes } =
        checked.context("the check was interrupted")?.map_err(|error| cannot_open(directory, error))?;
    Ok(CheckResult { repaired, problems, notes })
}

async fn repair(directory: &Path) -> anyhow::Result<Vec<String>> {
    must_be_own(directory)?;
    let host = host::this_machine().context("cannot read randomness")?;
    let store = SqliteStore::open(&SqliteOptions::new(directory), host.calendar.clone())
        .map_err(|error| cannot_open(directory, error))?;
    let repaired = store.repair_counters().await.context("cannot correct the counters")?;
    store.close();
    Ok(in_words(&repaired))
}

/// Compares the tables with what this version expects, and the counters with their rows; exact even while
/// servers are running.
async fn check_database(place: &ServerPlace, args: &CheckArgs) -> Result<CheckResult, CliError> {
    let mut problems = store::verify_tables(place).await?;
    // Without the expected tables, nothing can be counted.
    if !problems.is_empty() {
        return Ok(CheckResult { problems, ..CheckResult::default() });
    }
    let repaired = if args.repair { store::repair_counters(place).await? } else { vec![] };
    problems.extend(store::find_malformed(place).await?);
    problems.extend(in_words(&store::find_counter_mismatches(place).await?));
    Ok(CheckResult { repaired: in_words(&repaired), problems, notes: vec![] })
}

fn in_words(mismatches: &[CounterMismatch]) -> Vec<String> {
    mismatches.iter().map(CounterMismatch::to_string).collect()
}

fn told(checked: &Checked) -> String {
    let store = checked.data_dir.as_ref().map_or(checked.store.clone(), |dir| dir.display().to_string());
    let state = match checked.problems.as_slice() {
        [] => format!("{store} is intact"),
        problems => format!("{store} is damaged:\n  {}", problems.join("\n  ")),
    };
    let state = match checked.notes.as_slice() {
        [] => state,
        notes => format!("{state}\n  {}", notes.join("\n  ")),
    };
    match checked.repaired.as_slice() {
        [] => state,
        repaired => format!("corrected in {store}:\n  {}\n{state}", repaired.join("\n  ")),
    }
}
