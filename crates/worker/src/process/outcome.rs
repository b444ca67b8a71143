//! What the end of a command means for its execution.

use super::protocol::{CommandEnd, CommandLimits, Enclosure, How};
use punctual_core::ports::Outcome;
use std::io;

const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;
/// A shell adds this to the number of the signal that ended its last command.
const SHELL_SIGNAL_BASE: i32 = 128;
/// The names of signals, by their number on Linux.
const SIGNALS: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

pub(crate) fn outcome(ended: CommandEnd, limits: CommandLimits) -> Outcome {
    let error = match &ended.how {
        How::Exited { code: 0 } => return Outcome::Succeeded { result: ended.result },
        How::CannotStart { problem, is_permanent } => {
            return Outcome::Failed { error: problem.clone(), retryable: !is_permanent };
        }
        How::Exited { code } => exited(*code, &ended, limits),
        How::Signaled { signal } => killed(*signal, &ended, limits),
    };
    Outcome::Failed { error: with_tail(error, &ended.stderr_tail), retryable: true }
}

/// The error of a command whose shim ended before it reported.
pub(crate) fn without_shim(status: &str, error: &io::Error, enclosure: &Enclosure) -> String {
    // A killed shim merely closes its pipe.
    let cause = match error.kind() {
        io::ErrorKind::UnexpectedEof => String::new(),
        _ => format!(": {error}"),
    };
    let left = match enclosure.contains_all() {
        true => "all processes of the command were killed",
        false => {
            "the command was killed, but daemons that it started may still run, because nothing else contains it \
             (worker.containment)"
        }
    };
    format!("the shim of the command ended before the command ({status}){cause}; {left}")
}

fn exited(code: i32, ended: &CommandEnd, limits: CommandLimits) -> String {
    let mut error = format!("exited with code {code}");
    if ended.out_of_memory {
        error += &format!("; {}", out_of_memory(limits));
    } else if let Some(name) = signal_name(code - SHELL_SIGNAL_BASE) {
        error += &format!(", as a shell does when a command was killed by {name}");
    }
    error
}

fn killed(signal: i32, ended: &CommandEnd, limits: CommandLimits) -> String {
    let mut error = format!("killed by signal {signal}");
    if let Some(name) = signal_name(signal) {
        error += &format!(" ({name})");
    }
    match (signal, limits.cpu_secs) {
        _ if ended.out_of_memory => error += &format!(": {}", out_of_memory(limits)),
        (SIGXCPU, Some(limit)) => {
            error += &format!(": it used more than {limit} s of CPU time (limits.cpu_secs)");
        }
        (SIGKILL, Some(limit)) if !ended.was_stopped => {
            error += &format!(
                ", which Punctual did not send: perhaps the machine ran out of memory, or it used more than \
                 {limit} s of CPU time (limits.cpu_secs)"
            );
        }
        (SIGKILL, None) if !ended.was_stopped => {
            error += ", which Punctual did not send: perhaps the machine ran out of memory";
        }
        _ => {}
    }
    error
}

fn out_of_memory(limits: CommandLimits) -> String {
    match limits.memory_bytes {
        Some(limit) => format!("out of memory: the limit is {limit} bytes (limits.memory)"),
        None => "out of memory".to_owned(),
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    SIGNALS.get(usize::try_from(signal).ok()?.checked_sub(1)?).copied()
}

fn with_tail(error: String, stderr_tail: &[String]) -> String {
    if stderr_tail.is_empty() { error } else { format!("{error}: {}", stderr_tail.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(ended: CommandEnd, limits: CommandLimits) -> (String, bool) {
        match outcome(ended, limits) {
            Outcome::Failed { error, retryable } => (error, retryable),
            other => panic!("{other:?}"),
        }
    }

    fn ended(how: How) -> CommandEnd {
        CommandEnd { how, result: None, stderr_tail: vec![], out_of_memory: false, was_stopped: false }
    }

    fn limits() -> CommandLimits {
        CommandLimits { memory_bytes: Some(1_000), cpu_secs: Some(2), ..CommandLimits::default() }
    }

    #[test]
    fn only_exit_code_zero_succeeds() {
        let result = Some("1".to_owned());
        let done = CommandEnd { result: result.clone(), ..ended(How::Exited { code: 0 }) };
        assert_eq!(outcome(done, limits()), Outcome::Succeeded { result });
        let tail = vec!["no".to_owned(), "space".to_owned()];
        let failed = CommandEnd { stderr_tail: tail, ..ended(How::Exited { code: 3 }) };
        assert_eq!(error(failed, limits()), ("exited with code 3: no\nspace".to_owned(), true));
    }

    #[test]
    fn ways_to_be_killed_are_told_apart() {
        let said = |how| error(ended(how), limits()).0;
        assert_eq!(said(How::Signaled { signal: 11 }), "killed by signal 11 (SIGSEGV)");
        assert_eq!(said(How::Signaled { signal: 40 }), "killed by signal 40");
        assert_eq!(
            said(How::Signaled { signal: 24 }),
            "killed by signal 24 (SIGXCPU): it used more than 2 s of CPU time (limits.cpu_secs)"
        );
        assert_eq!(
            said(How::Exited { code: 139 }),
            "exited with code 139, as a shell does when a command was killed by SIGSEGV"
        );
        assert!(said(How::Signaled { signal: 9 }).contains("which Punctual did not send"));
        let oom = CommandEnd { out_of_memory: true, ..ended(How::Signaled { signal: 9 }) };
        assert_eq!(
            error(oom, limits()).0,
            "killed by signal 9 (SIGKILL): out of memory: the limit is 1000 bytes (limits.memory)"
        );
        let stopped = CommandEnd { was_stopped: true, ..ended(How::Signaled { signal: 9 }) };
        assert_eq!(error(stopped, limits()).0, "killed by signal 9 (SIGKILL)");
    }

    #[test]
    fn what_cannot_start_fails_for_good_if_it_never_could() {
        let how = |is_permanent| How::CannotStart { problem: "no".to_owned(), is_permanent };
        assert_eq!(error(ended(how(true)), limits()), ("no".to_owned(), false));
        assert_eq!(error(ended(how(false)), limits()), ("no".to_owned(), true));
    }
}
