//! `punctual migrate-data`: copies everything from one store to another, empty one.

use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, table, tell};
use punctual_config::store_url::{Password, StoreUrl};
use serde::Serialize;

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct MigrateDataArgs {
    /// The store to copy from, with all its servers stopped: sqlite:DIRECTORY, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE
    #[arg(long, value_name = "URL")]
    from: String,
    /// The store to copy to: empty, or an unfinished copy of the same source
    #[arg(long, value_name = "URL")]
    to: String,
    /// The password of the database to copy from
    #[arg(
        long,
        env = FROM_PASSWORD,
        hide_env_values = true,
        hide = true,
        value_name = "PASSWORD"
    )]
    from_password: Option<Password>,
    /// The password of the database to copy to
    #[arg(long, env = TO_PASSWORD, hide_env_values = true, hide = true, value_name = "PASSWORD")]
    to_password: Option<Password>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Environment variables of the passwords.
const FROM_PASSWORD: &str = "PUNCTUAL_FROM_PASSWORD";
const TO_PASSWORD: &str = "PUNCTUAL_TO_PASSWORD";

const AFTER_HELP: &str = "Stop all servers of both stores first. The source is only read. To continue an interrupted copy, \
                          repeat the command; no server opens the target until the copy is complete. Passwords: \
                          PUNCTUAL_FROM_PASSWORD and PUNCTUAL_TO_PASSWORD.";

/// The result of the copy.
#[derive(Serialize)]
struct CopyReport {
    from: String,
    to: String,
    /// `new`, `resumed` or `restarted`.
    beginning: &'static str,
    rows: u64,
    tables: Vec<CopiedTable>,
}

#[derive(Serialize)]
struct CopiedTable {
    name: &'static str,
    rows: u64,
    /// The same for both stores.
    checksum: String,
}

pub async fn run(args: MigrateDataArgs) -> anyhow::Result<Exit> {
    let (from, to) = (parse("--from", &args.from)?, parse("--to", &args.to)?);
    if matches!((&from, &to), (StoreUrl::Sqlite { .. }, StoreUrl::Sqlite { .. })) {
        return Err(misunderstood("both are embedded stores: `punctual backup` copies one").into());
    }
    for (option, variable, url) in [("--from", FROM_PASSWORD, &from), ("--to", TO_PASSWORD, &to)] {
        if let StoreUrl::Server(server) = url
            && let Some(seen) = server.seen_password(option, variable)
        {
            tell(&format!("warning: {seen}"));
        }
    }
    let told = data_migration::run(&args, &from, &to).await?;
    args.output.print(&told, describe)?;
    Ok(Exit::Done)
}

/// The error does not repeat the text, which may contain a password.
fn parse(option: &str, text: &str) -> Result<StoreUrl, CliError> {
    StoreUrl::parse(text).map_err(|problem| misunderstood(&format!("{option} {problem}")))
}

fn misunderstood(message: &str) -> CliError {
    CliError { exit: Exit::Misunderstood, message: message.to_owned() }
}

fn describe(told: &CopyReport) -> String {
    let filled = told.tables.iter().filter(|each| each.rows > 0);
    let rows =
        filled.map(|each| vec![each.name.to_owned(), each.rows.to_string(), each.checksum[..16].to_owned()]);
    format!(
        "{}\n\ncopied everything from {} to {}: {} rows, identical in both stores\n\
         start servers on the new store only; worker sessions have ended, and executions that were running are assigned again",
        table(&["TABLE", "ROWS", "CHECKSUM"], rows),
        told.from,
        told.to,
        told.rows
    )
}

mod data_migration {
    use super::{CopiedTable, CopyReport, FROM_PASSWORD, MigrateDataArgs, TO_PASSWORD};
    use indicatif::{ProgressBar, ProgressStyle};
    use punctual_config::exit::{CliError, Exit};
    use punctual_config::store_url::{Password, StoreUrl};
    use punctual_node::store;
    use punctual_store::data_migration::{
        CopyProgress, CopyStage, CopyStart, DataMigrationError, StoreRole, migrate_data,
    };

    pub async fn run(args: &MigrateDataArgs, from: &StoreUrl, to: &StoreUrl) -> Result<CopyReport, CliError> {
        let given = |password: &'_ Option<Password>| password.clone().filter(|password| !password.is_empty());
        let source = store::address(from, given(&args.from_password).as_ref())?;
        let target = store::address(to, given(&args.to_password).as_ref())?;
        let mut bars = Bars::default();
        let moved = migrate_data(&source, &target, &mut |progress| bars.show(progress)).await;
        bars.end();
        let moved = moved.map_err(|error| told(&error, from, to))?;
        Ok(CopyReport {
            from: from.to_string(),
            to: to.to_string(),
            beginning: match moved.beginning {
                CopyStart::New => "new",
                CopyStart::Resumed => "resumed",
                CopyStart::Restarted => "restarted",
            },
            rows: moved.tables.iter().map(|table| table.rows).sum(),
            tables: moved
                .tables
                .into_iter()
                .map(|table| CopiedTable { name: table.name, rows: table.rows, checksum: table.checksum })
                .collect(),
        })
    }

    fn told(error: &DataMigrationError, from: &StoreUrl, to: &StoreUrl) -> CliError {
        let exit = match error {
            DataMigrationError::NoStore(_) | DataMigrationError::NoTables { .. } => Exit::NotFound,
            error if error.is_refusal() => Exit::CannotStart,
            DataMigrationError::Store { .. } => Exit::ServerFailed,
            DataMigrationError::Differ(_) => Exit::Failed,
            _ => Exit::CannotStart,
        };
        let reason = denied(error, from, to).unwrap_or_else(|| error.to_string());
        CliError { exit, message: format!("the copy is incomplete, but nothing is lost: {reason}") }
    }

    /// What one of the databases denied, and what to do about it.
    fn denied(error: &DataMigrationError, from: &StoreUrl, to: &StoreUrl) -> Option<String> {
        let (end, denial, said) = error.denied()?;
        let (url, password) = match end {
            StoreRole::Target => (to, TO_PASSWORD),
            StoreRole::Source | StoreRole::Copy => (from, FROM_PASSWORD),
        };
        let StoreUrl::Server(server) = url else { return None };
        Some(format!("{end} {server} {}", store::denied(server, denial, said, password)))
    }

    /// A bar for each table that is copied and for each that is verified; none without a terminal.
    #[derive(Default)]
    struct Bars {
        current: Option<(CopyStage, &'static str, ProgressBar)>,
    }

    impl Bars {
        fn show(&mut self, progress: CopyProgress) {
            let CopyProgress { stage, table, rows_done, rows_total } = progress;
            let is_same = self.current.as_ref().is_some_and(|(at, of, _)| (*at, *of) == (stage, table));
            if !is_same {
                self.end();
                let words = match stage {
                    CopyStage::Copying => "copying",
                    CopyStage::Verifying => "verifying",
                };
                let bar = ProgressBar::new(rows_total).with_style(style());
                self.current = Some((stage, table, bar.with_message(format!("{words} {table}"))));
            }
            if let Some((_, _, bar)) = &self.current
                && rows_total > 0
            {
                bar.set_position(rows_done);
            }
        }

        /// Bars of copied tables stay; a bar of a verified table is replaced by the next one.
        fn end(&mut self) {
            match self.current.take() {
                Some((CopyStage::Copying, _, bar)) if bar.length() > Some(0) => bar.abandon(),
                Some((_, _, bar)) => bar.finish_and_clear(),
                None => {}
            }
        }
    }

    fn style() -> ProgressStyle {
        ProgressStyle::with_template("{msg:24} [{bar:40}] {human_pos}/{human_len}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
    }
}
