//! `punctual migrate`: shows the schema of a shared database and migrates it to this version. The embedded
//! store migrates itself. Also turns a restored copy into an independent store.

use clap::Subcommand;
use punctual_config::data_dir::DataDirArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, details};
use punctual_node::store::{self, StoreArgs, StorePlace};
use punctual_store::MigrationStatus;
use serde::Serialize;

#[derive(Subcommand)]
pub enum MigrateCommand {
    /// Show the schema version and pending migrations; exit code 1 if any are pending
    Status(MigrateArgs),
    /// Migrate the schema to this version; does nothing if it is up to date
    Up(MigrateArgs),
    /// Compare the schema with the one this version expects; exit code 1 if anything differs
    Verify(MigrateArgs),
    /// Turn a restored copy into an independent store: all its queues are paused, so that nothing in it runs a second time
    #[command(after_help = AFTER_FORK_HELP)]
    Fork(ForkArgs),
}

const AFTER_FORK_HELP: &str = "Use this on a restored backup that exists alongside the original, such as for a test, before the \
                               first server starts on it. Sessions of the original's workers are removed, and the copy gets a new \
                               id. Nothing else changes: resume a queue with `punctual queue resume`. Rejected while the store is \
                               in use.";

#[derive(clap::Args)]
pub struct MigrateArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct ForkArgs {
    /// Confirm that the store is a copy: in the original, this command would stop all work
    #[arg(long, required = true)]
    this_is_a_copy: bool,
    #[command(flatten)]
    of: MigrateArgs,
}

/// The result of a fork.
#[derive(Serialize)]
struct ToldFork {
    store: String,
    /// All its queues.
    paused: Vec<String>,
}

/// The state of the schema.
#[derive(Serialize)]
struct SchemaReport {
    store: String,
    #[serde(flatten)]
    migration: Option<MigrationStatus>,
    /// Differences from what this version expects.
    #[serde(skip_serializing_if = "Option::is_none")]
    problems: Option<Vec<String>>,
    /// Additional information.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

/// The message for the embedded store.
const EMBEDDED: &str = "the embedded store needs no command: the server migrates it when it starts; take a `punctual backup` \
                        before an upgrade, because migrations cannot be undone";

impl MigrateArgs {
    fn place(&self) -> anyhow::Result<StorePlace> {
        let around = self.data_dir.surroundings()?;
        Ok(self.store.place(&around, self.data_dir.within(&around)?.path())?)
    }
}

pub async fn run(command: MigrateCommand) -> anyhow::Result<Exit> {
    let args = match &command {
        MigrateCommand::Status(args) | MigrateCommand::Up(args) | MigrateCommand::Verify(args) => args,
        MigrateCommand::Fork(args) => return fork(args).await,
    };
    let place = args.place()?;
    let mut told = SchemaReport { store: place.to_string(), migration: None, problems: None, note: None };
    let exit = match (&place, &command) {
        (StorePlace::Sqlite(_), _) => {
            told.note = Some(EMBEDDED);
            Exit::Done
        }
        (StorePlace::Server(server), MigrateCommand::Status(_)) => {
            let migration = store::migration_status(server).await?;
            let exit = if migration.is_done() { Exit::Done } else { Exit::Failed };
            told.migration = Some(migration);
            exit
        }
        (StorePlace::Server(server), MigrateCommand::Up(_)) => {
            told.migration = Some(store::migrate_up(server).await?);
            Exit::Done
        }
        (StorePlace::Server(server), _) => {
            let problems = store::verify_tables(server).await?;
            let exit = if problems.is_empty() { Exit::Done } else { Exit::Failed };
            told.problems = Some(problems);
            exit
        }
    };
    args.output.print(&told, describe)?;
    Ok(exit)
}

async fn fork(args: &ForkArgs) -> anyhow::Result<Exit> {
    let place = args.of.place()?;
    let paused = store::fork(&place).await?;
    args.of.output.print(&ToldFork { store: place.to_string(), paused }, describe_fork)?;
    Ok(Exit::Done)
}

fn describe_fork(told: &ToldFork) -> String {
    let queues = match told.paused.as_slice() {
        [] => "it has no queues yet".to_owned(),
        queues => format!("its queues are paused: {}", queues.join(", ")),
    };
    format!("{} is an independent store now; {queues}", told.store)
}

fn describe(told: &SchemaReport) -> String {
    if let Some(note) = told.note {
        return format!("{}: {note}", told.store);
    }
    let pending = told.migration.as_ref().map(|migration| match migration.pending.as_slice() {
        [] => "nothing".to_owned(),
        steps => steps.join(", "),
    });
    let problems = told.problems.as_ref().map(|problems| match problems.as_slice() {
        [] => "as expected by this version".to_owned(),
        problems => problems.join("\n"),
    });
    let version = |version: usize| match version {
        0 => "none yet".to_owned(),
        version => version.to_string(),
    };
    details([
        ("Store", Some(told.store.clone())),
        ("Version", told.migration.as_ref().map(|migration| version(migration.version))),
        ("This program", told.migration.as_ref().map(|migration| version(migration.version_known))),
        ("Left to do", pending),
        ("Tables", problems),
    ])
}
