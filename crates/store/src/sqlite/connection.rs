//! Opens and configures connections. Only this module knows the pragmas.

use crate::fault::Fault;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prepared statements that one connection caches. More than there are, so that none is prepared twice.
const STATEMENTS_MAX: usize = 128;
/// Pages in the write-ahead log after which the writer itself runs a checkpoint.
pub(crate) const WRITER_CHECKPOINT_PAGES: i64 = 16_000;
/// Size in bytes to which the write-ahead log is truncated after it has grown beyond its usual size.
const WAL_BYTES_KEPT: i64 = 64 * 1024 * 1024;
/// Page cache of the writer's connection. It must hold the growing ends of every table and index, and the claim index
/// of a large backlog.
const WRITER_CACHE_KIB: u32 = 12 * 1024;
/// Page cache of any other connection. Other pages come from the operating system's page cache, which all connections
/// share.
const SIDE_CACHE_KIB: u32 = 4 * 1024;
/// Page cache of a connection that reads a whole file once and compares tables with their indexes.
const WHOLE_CACHE_KIB: u32 = 64 * 1024;
/// Page cache of the check at the start, which reads every page once.
pub(crate) const CHECK_CACHE_KIB: u32 = 256;
/// How long to wait for a lock that SQLite itself takes briefly, as during recovery or a checkpoint.
const BUSY: Duration = Duration::from_secs(5);

/// The failures that an acknowledged commit survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// A power loss: every commit is synced.
    PowerLoss,
    /// A crash of the process. After a power loss the last lines may be missing, but nothing is damaged.
    ProcessDeath,
}

impl Durability {
    pub const fn cache_kib(self) -> u32 {
        match self {
            Durability::PowerLoss => WRITER_CACHE_KIB,
            Durability::ProcessDeath => SIDE_CACHE_KIB,
        }
    }
}

/// The connection that writes.
pub(crate) fn open_for_writing(path: &Path, durability: Durability) -> Result<Connection, Fault> {
    create_private(path)?;
    let conn = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    prepare_for_use(&conn, durability.cache_kib())?;
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Fault::damaged("journal_mode", mode));
    }
    let synchronous = match durability {
        Durability::PowerLoss => "FULL",
        Durability::ProcessDeath => "NORMAL",
    };
    conn.pragma_update(None, "synchronous", synchronous)?;
    conn.pragma_update(None, "wal_autocheckpoint", WRITER_CHECKPOINT_PAGES)?;
    conn.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)?;
    Ok(conn)
}

/// Makes sure that the file exists and, if it is new, that only its owner can read it. SQLite gives its other files
/// the same permissions.
pub(crate) fn create_private(path: &Path) -> Result<(), Fault> {
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    opened.map(drop).map_err(Fault::File)
}

/// A second connection that only runs checkpoints.
pub(crate) fn open_for_checkpoints(path: &Path) -> Result<Connection, Fault> {
    let conn = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    // It must not wait for the writer's own checkpoint: the next attempt is soon enough.
    conn.busy_timeout(Duration::ZERO)?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    Ok(conn)
}

/// A read-only connection next to the writer's.
pub(crate) fn open_for_reading(path: &Path) -> Result<Connection, Fault> {
    let conn = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    prepare_for_use(&conn, SIDE_CACHE_KIB)?;
    Ok(conn)
}

/// A connection to a file that no process writes to, which the caller has ensured with a
/// [`super::lock::DirectoryLock`]. It takes no locks and neither creates nor changes files, so it works in a
/// read-only directory. It reads the contents of the write-ahead log as part of the file.
pub(crate) fn open_unchanged(path: &Path) -> Result<Connection, Fault> {
    let has_log = std::fs::metadata(beside(path, "-wal")).is_ok_and(|metadata| metadata.len() > 0);
    // The VFS without locks is the only one in which SQLite reads a log without creating or locking files. Its index
    // of the log is then in memory.
    let how = if has_log { "vfs=unix-none" } else { "immutable=1" };
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(format!("file:{}?{how}", escaped(path)), flags)?;
    // Otherwise closing the last connection would run a checkpoint and delete the log.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    if has_log {
        conn.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
    }
    prepare_for_use(&conn, WHOLE_CACHE_KIB)?;
    Ok(conn)
}

/// The path of one of SQLite's own files next to a database.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The path as part of a URI.
fn escaped(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let bytes = path.as_os_str().as_bytes().iter();
    bytes
        .map(|&byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

pub(crate) fn set_cache(conn: &Connection, kib: u32) -> Result<(), Fault> {
    // Negative numbers are KiB for SQLite.
    Ok(conn.pragma_update(None, "cache_size", -i64::from(kib))?)
}

/// Settings of every connection.
pub(crate) fn prepare_for_use(conn: &Connection, cache_kib: u32) -> Result<(), Fault> {
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Without it SQLite plans every statement again whenever a LIMIT is bound.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.busy_timeout(BUSY)?;
    set_cache(conn, cache_kib)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(())
}
