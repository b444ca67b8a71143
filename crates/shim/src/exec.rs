//! `punctual __exec`: the stage between the shim and the command. It applies the command's limits to itself
//! and then becomes the command: another process would apply them too late, or to the shim.

use super::CannotStart;
use punctual_worker::process::protocol::How;
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, getuid, set_parent_process_death_signal, setrlimit,
};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

pub const SUBCOMMAND: &str = "__exec";

/// The usual limit of open files. The server raises its own, and a high limit is bad for programs that
/// iterate over all possible descriptors or use `select`.
const OPEN_FILES: u64 = 1_024;
/// After SIGXCPU a command may clean up for this long; then the kernel kills it.
const CPU_SECS_TO_TIDY_UP: u64 = 1;

/// The setup for the command.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Marks the reports of this stage on the command's stderr.
    pub nonce: String,
    /// The files to write to in order to enter cgroups.
    pub cgroups: Vec<PathBuf>,
    pub memory_bytes: Option<u64>,
    pub cpu_secs: Option<u64>,
    pub processes: Option<u64>,
}

/// Becomes the command in the arguments, or reports why not.
pub fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let setup = args.next().and_then(|setup| setup.into_string().ok());
    let Some(setup) = setup.and_then(|setup| serde_json::from_str::<Setup>(&setup).ok()) else {
        eprintln!("error: {SUBCOMMAND} is for Punctual's own use");
        return ExitCode::FAILURE;
    };
    let Some(program) = args.next() else { return ExitCode::FAILURE };
    let problem = match set_up(&setup) {
        Ok(()) => {
            let error = Command::new(&program).args(args).exec();
            cannot_start(&program.to_string_lossy(), &error)
        }
        Err(error) => CannotStart { text: format!("the limits cannot be set: {error}"), is_permanent: false },
    };
    report(&setup.nonce, How::CannotStart { problem: problem.text, is_permanent: problem.is_permanent });
    ExitCode::FAILURE
}

/// Reports to the shim, on the stderr of a command that was not started.
pub fn report(nonce: &str, how: How) {
    let how = serde_json::to_string(&how).unwrap_or_default();
    let _ = writeln!(io::stderr(), "\0{nonce} {how}");
}

/// The report in a line of stderr, if it is one.
pub fn read_report(line: &[u8], nonce: &str) -> Option<How> {
    let report = line.strip_prefix(b"\0")?.strip_prefix(nonce.as_bytes())?;
    serde_json::from_slice(report).ok()
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

fn set_up(setup: &Setup) -> io::Result<()> {
    // If the shim itself is killed, no process would be left to end the command.
    set_parent_process_death_signal(Some(Signal::KILL))?;
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
        let most = processes_of_user() + processes;
        limit(Resource::Nproc, most, most)?;
    }
    if let Some(seconds) = setup.cpu_secs {
        limit(Resource::Cpu, seconds, seconds.saturating_add(CPU_SECS_TO_TIDY_UP))?;
    }
    Ok(())
}

/// Sets a limit, but never above the existing one.
fn limit(resource: Resource, soft: u64, hard: u64) -> io::Result<()> {
    let maximum = getrlimit(resource).maximum.map_or(hard, |there| there.min(hard));
    Ok(setrlimit(resource, Rlimit { current: Some(soft.min(maximum)), maximum: Some(maximum) })?)
}

/// The current processes and threads of this user: the kernel counts all of them against the limit.
fn processes_of_user() -> u64 {
    let user = getuid().as_raw();
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let own = entries.flatten().filter(|entry| {
        let is_process = entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
        is_process && entry.metadata().is_ok_and(|metadata| metadata.uid() == user)
    });
    own.map(|entry| std::fs::read_dir(entry.path().join("task")).map_or(0, |tasks| tasks.count() as u64))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reports_with_the_nonce_are_believed() {
        let how = How::CannotStart { problem: "no".to_owned(), is_permanent: true };
        let report = format!("\0abc {}", serde_json::to_string(&how).unwrap());
        assert_eq!(read_report(report.as_bytes(), "abc"), Some(how));
        assert_eq!(read_report(report.as_bytes(), "abd"), None);
        assert_eq!(read_report(b"plain", "abc"), None);
    }

    #[test]
    fn a_program_that_is_not_there_never_will_start() {
        let missing = cannot_start("nowhere", &io::ErrorKind::NotFound.into());
        assert_eq!(missing.text, "command[0]: there is no program nowhere in PATH");
        assert!(missing.is_permanent);
        assert!(!cannot_start("busy", &io::ErrorKind::ExecutableFileBusy.into()).is_permanent);
    }
}
