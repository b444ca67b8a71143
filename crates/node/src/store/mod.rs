//! The store of a process, and opening it: the only place that names the adapters.

mod server;
mod trouble;

pub use server::{
    bare, create_database, drop_database, find_counter_mismatches, find_malformed, migrate_up,
    migration_status, repair_counters, verify_tables,
};
pub use trouble::denied;

use punctual_client::host;
use punctual_config::data_dir::{DATABASE_FILE, must_be_own, must_not_be_foreign};
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{quoted, tell};
use punctual_config::store_url::{Dialect, Password, ServerUrl, StoreUrl};
use punctual_config::{Flags, SizeMax, StoreSettings, Surroundings, exposure};
use punctual_core::ports::{Host, MembershipTable, ReadyQueue, Store};
use punctual_store::data_migration::{DataMigrationError, StoreAddress};
use punctual_store::mysql::MySqlOptions;
use punctual_store::postgres::PostgresOptions;
use punctual_store::sqlite::{self, OpenError, SqliteOptions, SqliteStore};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The flag of the store and those beside it, for commands that are about a database.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct StoreArgs {
    #[command(flatten)]
    settings: Flags<StoreSettings>,
    #[command(flatten)]
    password: PasswordArg,
}

impl StoreArgs {
    pub fn place(&self, around: &Surroundings, data_dir: &Path) -> Result<StorePlace, CliError> {
        let settings = around.read(&self.settings)?;
        let place = StorePlace::of(&settings, &self.password, data_dir)?;
        for warning in place.warnings(&around.origin(&self.settings, "store.url")) {
            tell(&format!("warning: {warning}"));
        }
        Ok(place)
    }
}

/// The password in a variable: a flag could be seen by everybody on the machine.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PasswordArg {
    /// The password of the database
    #[arg(
        long,
        env = "PUNCTUAL_STORE_PASSWORD",
        hide_env_values = true,
        hide = true,
        value_name = "PASSWORD"
    )]
    store_password: Option<Password>,
}

/// Where jobs are stored, with everything needed to connect.
#[derive(Debug, Clone)]
pub enum StorePlace {
    /// The embedded store in this directory.
    Sqlite(PathBuf),
    Server(Box<ServerPlace>),
}

/// A database server, and how this process uses it.
#[derive(Debug, Clone)]
pub struct ServerPlace {
    pub url: ServerUrl,
    pub password: Option<Password>,
    /// A warning if others can read the password's file.
    pub exposed: Option<String>,
    pub pool: usize,
    pub writers: usize,
    pub statement_timeout: Duration,
    pub replica: Option<ServerUrl>,
}

impl StorePlace {
    /// The store in the settings; by default the embedded store in the data directory.
    pub fn of(settings: &StoreSettings, password: &PasswordArg, data_dir: &Path) -> Result<Self, CliError> {
        let url = match &settings.url {
            None | Some(StoreUrl::Sqlite { directory: None }) => {
                return Ok(StorePlace::Sqlite(data_dir.to_owned()));
            }
            Some(StoreUrl::Sqlite { directory: Some(directory) }) => {
                return Ok(StorePlace::Sqlite(directory.clone()));
            }
            Some(StoreUrl::Server(url)) => url.clone(),
        };
        let (password, exposed) = read_password(settings, password)?;
        Ok(StorePlace::Server(Box::new(ServerPlace {
            replica: replica(settings, &url)?,
            password,
            exposed,
            pool: settings.pool.as_usize(),
            writers: settings.writers.as_usize(),
            statement_timeout: settings.statement_timeout.get(),
            url,
        })))
    }

    /// Warnings if other users of this machine can see the password. `origin` is where the URL was found.
    pub fn warnings(&self, origin: &str) -> Vec<String> {
        let StorePlace::Server(place) = self else { return Vec::new() };
        let seen = place.url.seen_password(origin, "store.password_file or PUNCTUAL_STORE_PASSWORD");
        seen.into_iter().chain(place.exposed.clone()).collect()
    }

    /// Whether the store belongs to one process alone.
    pub const fn is_embedded(&self) -> bool {
        matches!(self, StorePlace::Sqlite(_))
    }

    /// The directory of the embedded store, for commands about its files; for other stores, the error says
    /// what to use instead.
    pub fn directory(&self, instead: &str) -> Result<&Path, CliError> {
        match self {
            StorePlace::Sqlite(directory) => Ok(directory),
            StorePlace::Server(place) => Err(misunderstood(format!(
                "this is for the embedded SQLite store, but store.url is {}: {instead}",
                place.url
            ))),
        }
    }

    /// Rejects the embedded store for a process that shares its store.
    pub fn must_be_shared(&self, role: &str) -> Result<(), CliError> {
        match self {
            StorePlace::Server(_) => Ok(()),
            StorePlace::Sqlite(_) => Err(misunderstood(format!(
                "`punctual {role}` shares its store with other processes, but the embedded SQLite store is used by a single \
                 one: run `punctual serve`, which combines all roles in one process, or choose a PostgreSQL or MySQL \
                 database with --store"
            ))),
        }
    }
}

/// Without a password.
impl std::fmt::Display for StorePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StorePlace::Sqlite(directory) => write!(f, "sqlite:{}", directory.display()),
            StorePlace::Server(place) => place.url.fmt(f),
        }
    }
}

fn misunderstood(message: String) -> CliError {
    CliError { exit: Exit::Misunderstood, message }
}

fn replica(settings: &StoreSettings, url: &ServerUrl) -> Result<Option<ServerUrl>, CliError> {
    match &settings.replica {
        None => Ok(None),
        Some(StoreUrl::Server(replica)) if replica.dialect == url.dialect => Ok(Some(replica.clone())),
        Some(other) => Err(misunderstood(format!(
            "store.replica must be a copy of store.url and of the same kind, but is {other}, with store.url {url}"
        ))),
    }
}

/// The variable takes precedence over the file, and the file over a password in the URL. Also returns a
/// warning if others can read the file.
fn read_password(
    settings: &StoreSettings,
    variable: &PasswordArg,
) -> Result<(Option<Password>, Option<String>), CliError> {
    // An empty variable counts as unset.
    if let Some(password) = variable.store_password.as_ref().filter(|password| !password.is_empty()) {
        return Ok((Some(password.clone()), None));
    }
    let Some(file) = &settings.password_file else { return Ok((None, None)) };
    let wrong =
        |why: String| CliError::cannot_start(format!("store.password_file {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    // Without a trailing line break.
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(wrong("the file is empty".to_owned())),
        line if line.contains('\n') => Err(wrong("it has more than one line".to_owned())),
        line => Ok((Some(Password::new(line)), exposure(file).ok().flatten())),
    }
}

/// The coordination data of a shared store.
#[derive(Clone)]
pub struct SharedSide {
    /// The membership table.
    pub membership_table: Arc<dyn MembershipTable>,
    /// The id of the database.
    pub cluster: String,
}

/// An open store and its properties.
#[derive(Clone)]
pub struct OpenStore {
    pub store: Arc<dyn Store>,
    /// For coordination with the processes that share it; `None` if only this process uses it.
    pub shared: Option<SharedSide>,
    /// The hints between the processes that share it: the broker's, or the store's where it has them.
    pub ready_queue: Option<Arc<dyn ReadyQueue>>,
    /// `sqlite`, `postgres` or `mysql`.
    pub kind: &'static str,
    pub schema_version: usize,
    /// Whether it belongs to this process alone.
    pub is_embedded: bool,
}

/// A store as the source or target of a data migration. Its directory must be this user's own.
pub fn address(url: &StoreUrl, password: Option<&Password>) -> Result<StoreAddress, CliError> {
    let server = match url {
        StoreUrl::Sqlite { directory: Some(directory) } => {
            must_be_own(directory)?;
            return Ok(StoreAddress::Sqlite(directory.clone()));
        }
        StoreUrl::Sqlite { directory: None } => {
            return Err(misunderstood(
                "pass the directory of the embedded store: sqlite:DIRECTORY".to_owned(),
            ));
        }
        StoreUrl::Server(server) => server,
    };
    match server.dialect {
        Dialect::Postgres => Ok(StoreAddress::Postgres(PostgresOptions::new(server.with_password(password)))),
        Dialect::Mysql => Ok(StoreAddress::MySql(MySqlOptions::new(server.with_password(password)))),
    }
}

/// Turns a restored copy into an independent store; returns the queues that are paused in it.
pub async fn fork(place: &StorePlace) -> Result<Vec<String>, CliError> {
    let address = match place {
        StorePlace::Sqlite(directory) => {
            must_be_own(directory)?;
            StoreAddress::Sqlite(directory.clone())
        }
        StorePlace::Server(server) => match server.url.dialect {
            Dialect::Postgres => StoreAddress::Postgres(server::options(server)),
            Dialect::Mysql => StoreAddress::MySql(server::options(server)),
        },
    };
    let forked =
        punctual_store::data_migration::fork(&address, host::wall_time()).await.map_err(|error| {
            if let (StorePlace::Server(server), Some((_, denial, said))) = (place, error.denied()) {
                let mut told = trouble::denied_place(server, denial, said);
                told.message = format!("nothing was changed: {}", told.message);
                return told;
            }
            let exit = match error {
                DataMigrationError::NoStore(_) | DataMigrationError::NoTables { .. } => Exit::NotFound,
                DataMigrationError::Store { .. } => Exit::ServerFailed,
                _ => Exit::CannotStart,
            };
            CliError { exit, message: format!("nothing was changed in {place}: {error}") }
        })?;
    Ok(forked.queues)
}

/// Opens the store of a server, with this log quota.
pub async fn open(place: &StorePlace, logs: SizeMax, host: &Host) -> Result<OpenStore, CliError> {
    open_checking(place, logs, host, Duration::ZERO).await
}

/// The same, with a periodic check of an embedded store's files; no check if the interval is zero.
pub async fn open_checking(
    place: &StorePlace,
    logs: SizeMax,
    host: &Host,
    check_interval: Duration,
) -> Result<OpenStore, CliError> {
    match place {
        StorePlace::Sqlite(directory) => open_sqlite(directory, logs, host, check_interval),
        StorePlace::Server(place) => server::open(place, logs).await,
    }
}

fn open_sqlite(
    directory: &Path,
    logs: SizeMax,
    host: &Host,
    check_interval: Duration,
) -> Result<OpenStore, CliError> {
    let options = SqliteOptions {
        check_interval: Some(check_interval).filter(|interval| !interval.is_zero()),
        log_bytes_max: logs.0,
        ..SqliteOptions::new(directory)
    };
    let store = SqliteStore::open(&options, host.calendar.clone());
    Ok(OpenStore {
        store: Arc::new(store.map_err(|error| cannot_open(directory, error))?),
        shared: None,
        ready_queue: None,
        kind: "sqlite",
        schema_version: SqliteStore::schema_version(),
        is_embedded: true,
    })
}

/// Whether a directory contains a database, or an error if this user cannot tell.
pub fn holds_database(directory: &Path) -> Result<bool, CliError> {
    let file = directory.join(DATABASE_FILE);
    match std::fs::metadata(&file) {
        Ok(found) => Ok(found.is_file()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => {
            let file = file.display();
            Err(CliError::cannot_start(format!(
                "cannot read {file}: {error}; run this command as the user that runs the server"
            )))
        }
    }
}

/// Rejects a directory without a database: commands that only read must not create one. Also rejects one
/// of another user.
pub fn must_hold_database(directory: &Path) -> Result<(), CliError> {
    must_not_be_foreign(directory)?;
    sqlite::refuse_incomplete(directory).map_err(|error| CliError::cannot_start(error.to_string()))?;
    if holds_database(directory)? {
        return Ok(());
    }
    let dir = directory.display();
    Err(CliError::not_found(format!(
        "there is no database in {dir}; pass its data directory with --data-dir"
    )))
}

/// An error about the files of the embedded store, with what to do.
pub fn cannot_open(directory: &Path, error: OpenError) -> CliError {
    let dir = directory.display();
    match error {
        OpenError::InUse { .. } => CliError::cannot_start(format!(
            "another process has the data directory {dir} open: stop it first, or choose another directory \
             with --data-dir"
        )),
        error @ OpenError::Damaged { .. } => CliError::cannot_start(format!(
            "{error}; restore a backup (see \"Damaged files\" in docs/guides/operating-a-single-node.md); `punctual check \
             --data-dir {}` lists all damage",
            quoted(&dir.to_string())
        )),
        error @ (OpenError::Incomplete { .. } | OpenError::NoDatabase { .. }) => {
            CliError::cannot_start(error.to_string())
        }
        error => CliError::cannot_start(format!(
            "cannot open the store in {dir}: {:#}",
            anyhow::Error::from(error)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_directory_that_cannot_be_read_is_not_called_empty() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, looped) = (dir.path().join("empty"), dir.path().join("looped"));
        fs::create_dir(&empty).unwrap();
        assert!(!holds_database(&empty).unwrap());
        assert!(!holds_database(&dir.path().join("missing")).unwrap());
        fs::write(empty.join(DATABASE_FILE), "").unwrap();
        assert!(holds_database(&empty).unwrap());
        assert!(!holds_database(&empty.join(DATABASE_FILE)).unwrap(), "a file is no directory");

        symlink(&looped, &looped).unwrap();
        let refused = must_hold_database(&looped).unwrap_err();
        assert_eq!(refused.exit, Exit::CannotStart);
        assert!(refused.message.contains("run this command as the user that runs the server"), "{refused:?}");
    }
}
