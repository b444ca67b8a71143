//! `punctual __exec`: the stage between the shim and the command. It applies the command's limits and its
//! sandbox to itself and then becomes the command: another process would apply them too late, or to the shim.

use super::{CannotStart, tree};
use crate::handed;
use crate::sandbox;
use punctual_worker::process::protocol::{Account, How, Landlock};
use rustix::fs::{FileType, Gid, Mode, Uid, fstat};
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, getuid, set_parent_process_death_signal, setrlimit, umask,
};
use rustix::thread::{set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, fchown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

pub const SUBCOMMAND: &str = "__exec";
/// The variable with the nonce that marks the reports of this stage on the command's stderr. Everyone can read the
/// arguments of a process, but only its own user its environment.
pub const NONCE_VARIABLE: &str = "PUNCTUAL_SHIM_NONCE";
/// Begins the names of the command's variables until it is executed. Under their own names, some would have an effect
/// on this stage and the one before it, which have the rights of the worker: `LD_PRELOAD` names code to run.
const CARRIED_PREFIX: &str = "PUNCTUAL_SHIM_CARRIED_";

/// The usual limit of open files. The server raises its own, and a high limit is bad for programs that
/// iterate over all possible descriptors or use `select`.
const OPEN_FILES: u64 = 1_024;
/// The first descriptor after standard input, output and error.
const FIRST_PRIVATE_FD: i32 = 3;
/// After SIGXCPU a command may clean up for this long; then the kernel kills it.
const CPU_SECS_TO_TIDY_UP: u64 = 1;
/// Counted for a worker whose threads `/proc` hides. Too many loosen a limit, too few would keep commands from running.
const HIDDEN_WORKER_THREADS: u64 = 256;

/// The setup for the command.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The files to write to in order to enter cgroups.
    pub cgroups: Vec<PathBuf>,
    pub memory_bytes: Option<u64>,
    pub cpu_secs: Option<u64>,
    /// Of the user, with those that exist.
    pub processes: Option<u64>,
    pub cwd: WorkingDir,
    pub account: Option<Account>,
    pub landlock: Landlock,
    /// The command's own directory.
    pub scratch: PathBuf,
}

/// The directory in which the command starts.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkingDir {
    pub path: PathBuf,
    /// Whether the job names it.
    pub is_given: bool,
}

/// Becomes the command in the arguments, or reports why not.
pub fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(setup) = handed::read::<Setup>(args.next()) else {
        eprintln!("error: {SUBCOMMAND} is for Punctual's own use");
        return ExitCode::FAILURE;
    };
    let Some(program) = args.next() else { return ExitCode::FAILURE };
    let problem = match set_up(&setup) {
        Ok(()) => {
            let error = Command::new(&program).args(args).env_clear().envs(carried_variables()).exec();
            cannot_start(&program.to_string_lossy(), &error)
        }
        Err(problem) => problem,
    };
    report(How::CannotStart { problem: problem.text, is_permanent: problem.is_permanent });
    ExitCode::FAILURE
}

/// The name of one of the command's variables until the command is executed.
pub fn carried_name(name: &str) -> String {
    format!("{CARRIED_PREFIX}{name}")
}

/// The variables of the command.
fn carried_variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.as_bytes().strip_prefix(CARRIED_PREFIX.as_bytes())?;
        Some((OsStr::from_bytes(name).to_owned(), value))
    })
}

/// Reports to the shim, on the stderr of a command that was not started.
pub fn report(how: How) {
    let nonce = std::env::var(NONCE_VARIABLE).unwrap_or_default();
    let how = serde_json::to_string(&how).unwrap_or_default();
    let _ = writeln!(io::stderr(), "\0{nonce} {how}");
}

/// The report in a line of stderr, if it is one. This stage cannot know how a command ended.
pub fn read_report(line: &[u8], nonce: &str) -> Option<How> {
    let report = line.strip_prefix(b"\0")?.strip_prefix(nonce.as_bytes())?;
    let how: How = serde_json::from_slice(report).ok()?;
    matches!(how, How::CannotStart { .. }).then_some(how)
}

/// What an error at the start of a program means, and whether another attempt could succeed.
pub fn cannot_start(program: &str, error: &io::Error) -> CannotStart {
    use io::ErrorKind;
    let text = match error.kind() {
        ErrorKind::NotFound if program.contains('/') => {
            format!("command[0]: there is no program {program}, or the interpreter that it names is missing")
        }
        ErrorKind::NotFound => format!("command[0]: there is no program {program} in PATH"),
        ErrorKind::PermissionDenied => format!("command[0]: {program} cannot be executed: {error}"),
        ErrorKind::ArgumentListTooLong => {
            format!("command: the arguments and the environment of {program} are too long for this machine")
        }
        _ => format!("command[0]: {program} cannot be started: {error}"),
    };
    let is_transient = matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::OutOfMemory
            | ErrorKind::ExecutableFileBusy
            | ErrorKind::Interrupted
    );
    CannotStart { text, is_permanent: !is_transient }
}

fn set_up(setup: &Setup) -> Result<(), CannotStart> {
    let later = |what: &str, error: io::Error| CannotStart {
        text: format!("the {what} cannot be set: {error}"),
        is_permanent: false,
    };
    set_limits(setup).map_err(|error| later("limits of the command", error))?;
    restrict(setup).map_err(|error| later("sandbox of the command", error))?;
    if let Some(account) = &setup.account {
        become_user(account).map_err(|error| later(&format!("user {account} of the command"), error))?;
    }
    enter(&setup.cwd, setup.account.as_ref())?;
    // If the shim itself is killed, no process would be left to end the command. A change of user resets it.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| later("death signal", error.into()))?;
    // The worker may have inherited descriptors that are not its own.
    close_fds::set_fds_cloexec(FIRST_PRIVATE_FD, &[]);
    Ok(())
}

fn set_limits(setup: &Setup) -> io::Result<()> {
    for cgroup in &setup.cgroups {
        let entered = std::fs::write(cgroup, "0");
        entered.map_err(|error| io::Error::other(format!("{}: {error}", cgroup.display())))?;
    }
    let open_files = getrlimit(Resource::Nofile).maximum;
    let soft = open_files.map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum: open_files })?;
    if let Some(bytes) = setup.memory_bytes {
        limit(Resource::Data, bytes, bytes)?;
    }
    if let Some(processes) = setup.processes {
        limit(Resource::Nproc, processes, processes)?;
    }
    if let Some(seconds) = setup.cpu_secs {
        limit(Resource::Cpu, seconds, seconds.saturating_add(CPU_SECS_TO_TIDY_UP))?;
    }
    Ok(())
}

/// With another user or with Landlock, setuid programs such as `sudo` give no rights.
fn restrict(setup: &Setup) -> io::Result<()> {
    if setup.account.is_some() || setup.landlock != Landlock::Off {
        set_no_new_privs(true)?;
    }
    match &setup.landlock {
        Landlock::Off => Ok(()),
        Landlock::Denies(paths) => sandbox::landlock::restrict(paths, &setup.scratch),
    }
}

/// This process has one thread, so that the thread's user is the process's.
fn become_user(account: &Account) -> io::Result<()> {
    // Otherwise the command could not open /dev/stdout.
    give_pipe(io::stdin(), account)?;
    give_pipe(io::stdout(), account)?;
    give_pipe(io::stderr(), account)?;
    set_thread_groups(&[])?;
    set_thread_gid(Gid::from_raw(account.gid))?;
    set_thread_uid(Uid::from_raw(account.uid))?;
    umask(Mode::WGRP | Mode::WOTH);
    Ok(())
}

/// Other files, such as `/dev/null`, are not the command's.
fn give_pipe(stream: impl AsFd, account: &Account) -> io::Result<()> {
    let is_pipe = FileType::from_raw_mode(fstat(&stream)?.st_mode) == FileType::Fifo;
    if is_pipe { fchown(stream, Some(account.uid), Some(account.gid)) } else { Ok(()) }
}

fn enter(cwd: &WorkingDir, account: Option<&Account>) -> Result<(), CannotStart> {
    let Err(error) = std::env::set_current_dir(&cwd.path) else { return Ok(()) };
    let path = cwd.path.display();
    let text = match (cwd.is_given, account) {
        (true, Some(account)) if error.kind() == io::ErrorKind::PermissionDenied => {
            format!(
                "payload.cwd: the user {account} cannot enter {path}: give it access, or choose another directory"
            )
        }
        (true, _) => format!("payload.cwd: {path} is not a directory that can be entered"),
        (false, _) => format!("the working directory {path} cannot be entered: {error}; set payload.cwd"),
    };
    Err(CannotStart { text, is_permanent: true })
}

/// Sets a limit, but never above the existing one.
fn limit(resource: Resource, soft: u64, hard: u64) -> io::Result<()> {
    let maximum = getrlimit(resource).maximum.map_or(hard, |there| there.min(hard));
    Ok(setrlimit(resource, Rlimit { current: Some(soft.min(maximum)), maximum: Some(maximum) })?)
}

/// The current processes and threads of a user, this one if none is given: the kernel counts all of them
/// against the limit.
pub fn processes_of(account: Option<&Account>) -> u64 {
    let user = account.map_or(getuid().as_raw(), |account| account.uid);
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let own = entries.flatten().filter(|entry| {
        let is_process = entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
        is_process && entry.metadata().is_ok_and(|metadata| metadata.uid() == user)
    });
    let counted: u64 = own
        .map(|entry| std::fs::read_dir(entry.path().join("task")).map_or(0, |tasks| tasks.count() as u64))
        .sum();
    match account {
        Some(_) => counted,
        None => counted + hidden_threads(tree::own_parent()),
    }
}

/// The threads of the worker that cannot be counted: its memory is closed to its own user, and then `/proc` with
/// `hidepid` (`ProtectProc` of systemd) does not show it.
fn hidden_threads(worker: Option<u32>) -> u64 {
    let is_hidden = worker.is_some_and(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).is_err());
    if is_hidden { HIDDEN_WORKER_THREADS } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reports_with_the_nonce_about_a_start_are_believed() {
        let how = How::CannotStart { problem: "no".to_owned(), is_permanent: true };
        let report = format!("\0abc {}", serde_json::to_string(&how).unwrap());
        assert_eq!(read_report(report.as_bytes(), "abc"), Some(how));
        assert_eq!(read_report(report.as_bytes(), "abd"), None);
        assert_eq!(read_report(b"plain", "abc"), None);
        assert_eq!(read_report(b"\0abc {\"exited\":{\"code\":0}}", "abc"), None);
    }

    #[test]
    fn a_hidden_worker_is_counted() {
        assert_eq!(hidden_threads(Some(std::process::id())), 0);
        assert_eq!(hidden_threads(None), 0);
        assert_eq!(hidden_threads(Some(u32::MAX)), HIDDEN_WORKER_THREADS);
    }

    #[test]
    fn a_missing_program_is_a_permanent_error() {
        let missing = cannot_start("nowhere", &io::ErrorKind::NotFound.into());
        assert_eq!(missing.text, "command[0]: there is no program nowhere in PATH");
        assert!(missing.is_permanent);
        assert!(!cannot_start("busy", &io::ErrorKind::ExecutableFileBusy.into()).is_permanent);
    }
}
