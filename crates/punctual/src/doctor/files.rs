//! Checks the data directory: its owner, its contents, and its disk. Changes nothing; the only file that is
//! written, to time the disk, has no name and disappears with this process.

use super::finding::Finding;
use punctual_config::data_dir::DataDir;
use punctual_config::exposure;
use punctual_config::output;
use punctual_node::store::holds_database;
use punctual_store::sqlite::{Inspection, StoreState, inspect, refuse_incomplete};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Writes that are timed.
const SYNC_ROUNDS: usize = 16;
/// A page of the database.
const SYNC_BYTES: usize = 4_096;
/// A commit waits for at least one of these: a slower disk is noticeable.
const SYNC_SLOW: Duration = Duration::from_millis(20);
/// Free space of the disk, in bytes and inodes, below which it is reported.
const FREE_BYTES_FEW: u64 = 1 << 30;
const FREE_BYTES_NONE: u64 = 100 << 20;
const FREE_INODES_FEW: u64 = 1_000;
/// Mode bits that give the group and others access, and those that let them write.
const OPEN_TO_OTHERS: u32 = 0o077;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// What the directory shows about the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerPresence {
    /// No server has run here.
    Nothing,
    Stopped,
    Running,
}

pub fn check(data_dir: &DataDir) -> (Vec<Finding>, ServerPresence) {
    let path = data_dir.path();
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => {
            let found = format!("{} is not a directory", path.display());
            let finding = Finding::failed("data directory", found, "choose another with --data-dir");
            return (vec![finding], ServerPresence::Nothing);
        }
        Err(error) => return (vec![missing(path, &error)], ServerPresence::Nothing),
    };
    let mut findings = vec![not_writable(path, &metadata).unwrap_or_else(|| directory(path, &metadata))];
    findings.push(token(data_dir));
    let (store, here) = store(data_dir);
    findings.push(store);
    findings.extend(disk(path));
    findings.push(sync(path));
    (findings, here)
}

/// The same where jobs are in a database server: only the token for commands on this machine is checked.
pub fn check_beside_database(data_dir: &DataDir) -> (Vec<Finding>, ServerPresence) {
    match std::fs::metadata(data_dir.path()) {
        Ok(metadata) if metadata.is_dir() => {
            (vec![directory(data_dir.path(), &metadata), token(data_dir)], ServerPresence::Nothing)
        }
        _ => {
            let found = format!("there is no {}; only API servers need one", data_dir.path().display());
            (vec![Finding::skipped("data directory", found)], ServerPresence::Nothing)
        }
    }
}

fn missing(path: &Path, error: &io::Error) -> Finding {
    let path = path.display();
    if error.kind() == io::ErrorKind::NotFound {
        let fix = "`punctual serve` creates it; if a server uses another directory, pass it with --data-dir";
        return Finding::warning("data directory", format!("there is no {path} yet"), fix);
    }
    Finding::failed(
        "data directory",
        format!("{path}: {error}"),
        "run this command as the user of the server",
    )
}

/// A finding if the directory cannot be written. A full disk does not count: it can be written once there is
/// room.
fn not_writable(path: &Path, metadata: &std::fs::Metadata) -> Option<Finding> {
    let error = tempfile::tempfile_in(path).err()?;
    let shown = path.display();
    let owner = metadata.uid();
    let fix = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "mount the file system read-write, or choose another directory with --data-dir".to_owned()
        }
        io::ErrorKind::PermissionDenied if owner != rustix::process::geteuid().as_raw() => {
            format!(
                "run the server and this command as its owner, user {owner}, or choose another with --data-dir"
            )
        }
        io::ErrorKind::PermissionDenied => format!("chmod 700 {shown}"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => return None,
        _ => "choose another directory with --data-dir".to_owned(),
    };
    Some(Finding::failed("data directory", format!("{shown} cannot be written: {error}"), fix))
}

fn directory(path: &Path, metadata: &std::fs::Metadata) -> Finding {
    let (shown, mode) = (path.display(), metadata.mode() & 0o7777);
    let user = rustix::process::geteuid().as_raw();
    if mode & WRITABLE_BY_OTHERS != 0 {
        let found = format!(
            "other users can write to {shown} (mode {mode:04o}): no server starts there, and no command trusts one"
        );
        let fix = format!("if you trust its files, chmod 700 {shown}");
        return Finding::failed("data directory", found, fix);
    }
    if metadata.uid() != user {
        let found =
            format!("{shown} belongs to user {}, but this command runs as user {user}", metadata.uid());
        return Finding::warning("data directory", found, "run the server and this command as its owner");
    }
    if mode & OPEN_TO_OTHERS != 0 {
        let found =
            format!("other users can read {shown} (mode {mode:04o}), and jobs may contain private data");
        return Finding::warning("data directory", found, format!("chmod 700 {shown}"));
    }
    Finding::good("data directory", format!("only its owner can access {shown}"))
}

fn token(data_dir: &DataDir) -> Finding {
    let file = data_dir.token_file();
    match exposure(&file) {
        Ok(Some(exposed)) => {
            let fix = format!("chmod 600 {}, then restart the server with --new-admin-token", file.display());
            Finding::failed("admin token", exposed, fix)
        }
        Ok(None) => Finding::good("admin token", format!("only its owner can read {}", file.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let fix = "the server creates a new one at its next start; the old one then no longer works";
            Finding::warning("admin token", format!("there is no {}", file.display()), fix)
        }
        Err(error) => Finding::failed(
            "admin token",
            format!("{}: {error}", file.display()),
            "give its owner read permission",
        ),
    }
}

fn store(data_dir: &DataDir) -> (Finding, ServerPresence) {
    if let Err(lost) = data_dir.must_not_have_lost_database() {
        let fix = "restore a backup; the server does not start until then";
        return (Finding::failed("store", lost.message, fix), ServerPresence::Nothing);
    }
    if let Err(incomplete) = refuse_incomplete(data_dir.path()) {
        let fix = "delete the directory, and take the backup again";
        return (Finding::failed("store", incomplete.to_string(), fix), ServerPresence::Nothing);
    }
    match holds_database(data_dir.path()) {
        Ok(true) => {}
        Ok(false) => {
            let found = "there is no database yet; `punctual serve` creates it";
            return (Finding::skipped("store", found), ServerPresence::Nothing);
        }
        Err(unreadable) => {
            let fix = "run doctor as the user that runs the server";
            return (Finding::failed("store", unreadable.message, fix), ServerPresence::Nothing);
        }
    }
    match inspect(data_dir.path()) {
        Ok(StoreState::InUse) => {
            (Finding::good("store", "in use by a running server"), ServerPresence::Running)
        }
        Ok(StoreState::NotClosed { log_bytes }) => {
            let found = format!("the last server did not close it; {} to be recovered", bytes(log_bytes));
            (
                Finding::warning("store", found, "start the server, or verify it with `punctual check`"),
                ServerPresence::Stopped,
            )
        }
        Ok(StoreState::Closed(inspection)) => (closed(&inspection), ServerPresence::Stopped),
        Err(error) => {
            let found = format!("{:#}", anyhow::Error::from(error));
            (
                Finding::failed(
                    "store",
                    found,
                    "restore a backup, or run this command as the user of the server",
                ),
                ServerPresence::Stopped,
            )
        }
    }
}

fn closed(found: &Inspection) -> Finding {
    let Inspection { version, version_known, problems } = found;
    if let [first, rest @ ..] = problems.as_slice() {
        let text = format!("damaged: {first} (and {} more)", rest.len());
        return Finding::failed("store", text, "restore a backup; `punctual check` shows details");
    }
    if version > version_known {
        let text = format!("schema version {version}, but this binary supports only up to {version_known}");
        return Finding::failed("store", text, "use the newer binary that wrote it");
    }
    if version < version_known {
        let text =
            format!("schema version {version}; the next start of this binary migrates it to {version_known}");
        return Finding::warning(
            "store",
            text,
            "take a `punctual backup` first: the migration cannot be undone",
        );
    }
    Finding::good("store", format!("intact and closed, schema version {version}"))
}

fn disk(path: &Path) -> Vec<Finding> {
    let stat = match rustix::fs::statvfs(path) {
        Ok(stat) => stat,
        Err(error) => return vec![Finding::skipped("disk", format!("cannot read the free space: {error}"))],
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let found = format!("{} free", bytes(free));
    let fix = "free some space, or keep less with keep_history and keep_finished_jobs; submits fail when the disk is full";
    let space = match free {
        ..FREE_BYTES_NONE => Finding::failed("disk", found, fix),
        FREE_BYTES_NONE..FREE_BYTES_FEW => Finding::warning("disk", found, fix),
        _ => Finding::good("disk", found),
    };
    // Some file systems do not count inodes.
    let inodes = match (stat.f_files, stat.f_favail) {
        (0, _) => Finding::skipped("inodes", "this file system does not report them"),
        (_, free @ ..FREE_INODES_FEW) => {
            Finding::warning("inodes", format!("{free} free"), "delete unneeded files")
        }
        (_, free) => Finding::good("inodes", format!("{free} free")),
    };
    vec![space, inodes]
}

fn sync(path: &Path) -> Finding {
    let median = match median_sync(path) {
        Ok(median) => median,
        Err(error) => return Finding::skipped("sync", format!("cannot measure the disk: {error}")),
    };
    let micros = median.as_micros();
    let shown = if micros < 1_000 { format!("{micros}us") } else { output::span(median) };
    let found = format!("median fdatasync {shown}; every commit waits for it");
    if median < SYNC_SLOW {
        return Finding::good("sync", found);
    }
    Finding::warning("sync", found, "use a faster or less busy disk; `punctual bench latency` shows details")
}

fn median_sync(dir: &Path) -> io::Result<Duration> {
    let mut file = tempfile::tempfile_in(dir)?;
    let mut times = Vec::with_capacity(SYNC_ROUNDS);
    for _ in 0..SYNC_ROUNDS {
        let start = Instant::now();
        file.write_all(&[0; SYNC_BYTES])?;
        rustix::fs::fdatasync(&file)?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[SYNC_ROUNDS / 2])
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut rest = count;
    while rest >= 10 * 1_024 && unit + 1 < UNITS.len() {
        rest /= 1_024;
        unit += 1;
    }
    format!("{rest} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_judged_by_what_others_can_do_there() {
        use crate::doctor::finding::Severity;
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let found = |mode| {
            std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            directory(place.path(), &place.path().metadata().unwrap()).level
        };
        assert_eq!([0o700, 0o755].map(found), [Severity::Good, Severity::Warning]);
        assert_eq!([0o770, 0o757].map(found), [Severity::Failed, Severity::Failed]);
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(
            [0, 10_239, 10_240, 5 << 30, 20 << 30].map(bytes),
            ["0 bytes", "10239 bytes", "10 KiB", "5120 MiB", "20 GiB"]
        );
    }

    #[test]
    fn versions_of_the_schema_are_judged() {
        let found = |version| closed(&Inspection { version, version_known: 2, problems: vec![] }).level;
        use crate::doctor::finding::Severity;
        assert_eq!([found(1), found(2), found(3)], [Severity::Warning, Severity::Good, Severity::Failed]);
    }
}
