//! What the end of a command means for its execution.

use super::protocol::{CommandEnd, CommandLimits, Enclosure, How};
use punctual_core::job::ResultOverflow;
use punctual_core::limits::RESULT_BYTES_MAX;
use punctual_core::ports::Outcome;
use punctual_core::retry::ChosenTime;
use punctual_core::time::Timestamp;
use serde::Deserialize;
use serde_json::json;
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

/// What follows from the end of a command.
#[derive(Debug, PartialEq)]
pub(crate) enum CommandOutcome {
    Final(Outcome),
    /// It has succeeded, and its result is to be stored as a blob.
    LargeResult,
}

pub(crate) fn outcome(ended: CommandEnd, limits: CommandLimits) -> CommandOutcome {
    let is_large = ended.overflow.is_some() && ended.how == How::Exited { code: 0 };
    match limits.result_overflow {
        ResultOverflow::Blob if is_large => CommandOutcome::LargeResult,
        _ => CommandOutcome::Final(final_outcome(ended, limits)),
    }
}

fn final_outcome(ended: CommandEnd, limits: CommandLimits) -> Outcome {
    let error = match &ended.how {
        How::Exited { code: 0 } => {
            return match LastLine::read(ended.result.as_deref()) {
                None => succeeded(ended, limits),
                Some(Ok(LastLine { snooze: Some(until), .. })) => Outcome::Snoozed { until },
                Some(Ok(_)) => Outcome::failed(
                    "the last line of stdout asks for a retry, but the command exited with code 0: exit with \
                     another code, such as 75"
                        .to_owned(),
                ),
                Some(Err(problem)) => Outcome::failed(problem),
            };
        }
        How::CannotStart { problem, is_permanent } => {
            return Outcome::Failed { error: problem.clone(), retryable: !is_permanent, retry_at: None };
        }
        How::Exited { code } => {
            let error = with_tail(exited(*code, &ended, limits), &ended.stderr_tail);
            return match LastLine::read(ended.result.as_deref()) {
                None => Outcome::failed(error),
                Some(Ok(LastLine { snooze: Some(until), .. })) => Outcome::Snoozed { until },
                Some(Ok(LastLine { retry_at, retryable, .. })) => {
                    Outcome::Failed { error, retryable, retry_at }
                }
                Some(Err(problem)) => Outcome::failed(format!("{error}\n{problem}")),
            };
        }
        How::Signaled { signal } => killed(*signal, &ended, limits),
    };
    Outcome::failed(with_tail(error, &ended.stderr_tail))
}

/// What the last line of stdout says about the next attempt: `{"punctual": {"retry_after": "10m"}}`, with
/// `retry_at`, `snooze` or `"retryable": false` instead.
struct LastLine {
    retry_at: Option<ChosenTime>,
    snooze: Option<ChosenTime>,
    retryable: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenChoice {
    retry_after: Option<String>,
    retry_at: Option<Timestamp>,
    snooze: Option<String>,
    #[serde(default = "yes")]
    retryable: bool,
}

const fn yes() -> bool {
    true
}

impl LastLine {
    /// `None` if the line is an ordinary result: only an object whose one field is `punctual` is meant for us.
    fn read(line: Option<&str>) -> Option<Result<Self, String>> {
        let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line?).ok()?;
        let choice = fields.remove("punctual").filter(|_| fields.is_empty())?;
        let read = match choice.is_object() {
            true => serde_json::from_value(choice).map_err(|error| error.to_string()),
            false => Err("`punctual` must be an object such as {\"retry_after\": \"10m\"}".to_owned()),
        };
        let told = read.and_then(LastLine::check);
        Some(told.map_err(|problem| format!("the last line of stdout was not understood: {problem}")))
    }

    fn check(written: WrittenChoice) -> Result<Self, String> {
        let after = |field: &str, text: Option<String>| match text.as_deref().map(ChosenTime::after) {
            Some(None) => Err(format!("{field} must be a duration such as 30s, 10m, 1h30m or PT3H")),
            chosen => Ok(chosen.flatten()),
        };
        let retry_after = after("retry_after", written.retry_after)?;
        let snooze = after("snooze", written.snooze)?;
        let retry_at = written.retry_at.map(ChosenTime::At);
        if [retry_after, snooze, retry_at].iter().flatten().count() > 1 {
            return Err("retry_after, retry_at and snooze exclude each other: name one of them".to_owned());
        }
        Ok(LastLine { retry_at: retry_after.or(retry_at), snooze, retryable: written.retryable })
    }
}

/// The outcome of a command that succeeded. A result that is too large is never dropped silently.
fn succeeded(ended: CommandEnd, limits: CommandLimits) -> Outcome {
    match (ended.overflow, limits.result_overflow) {
        (None, _) => Outcome::Succeeded { result: ended.result },
        // One that is stored as a blob does not come here.
        (Some(beginning), ResultOverflow::Truncate | ResultOverflow::Blob) => {
            let result = json!({"truncated": true, "bytes_max": RESULT_BYTES_MAX, "beginning": beginning});
            Outcome::Succeeded { result: Some(result.to_string()) }
        }
        (Some(_), ResultOverflow::Fail) => Outcome::failed_for_good(format!(
            "the result, which is the last line of stdout, has more than {RESULT_BYTES_MAX} bytes (result_overflow: fail)"
        )),
    }
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

    fn outcome(ended: CommandEnd, limits: CommandLimits) -> Outcome {
        match super::outcome(ended, limits) {
            CommandOutcome::Final(outcome) => outcome,
            CommandOutcome::LargeResult => panic!("a large result"),
        }
    }

    fn error(ended: CommandEnd, limits: CommandLimits) -> (String, bool) {
        match outcome(ended, limits) {
            Outcome::Failed { error, retryable, .. } => (error, retryable),
            other => panic!("{other:?}"),
        }
    }

    fn ended(how: How) -> CommandEnd {
        CommandEnd {
            how,
            result: None,
            overflow: None,
            stderr_tail: vec![],
            out_of_memory: false,
            was_stopped: false,
        }
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
    fn the_last_line_chooses_the_next_attempt() {
        let said = |code, line: &str| {
            outcome(CommandEnd { result: Some(line.to_owned()), ..ended(How::Exited { code }) }, limits())
        };
        let minutes = ChosenTime::After(std::time::Duration::from_secs(600));
        let error = "exited with code 75".to_owned();
        let later = Outcome::Failed { error: error.clone(), retryable: true, retry_at: Some(minutes) };
        assert_eq!(said(75, r#"{"punctual": {"retry_after": "10m"}}"#), later);
        let final_one = Outcome::failed_for_good(error.clone());
        assert_eq!(said(75, r#"{"punctual": {"retryable": false}}"#), final_one);
        for code in [0, 75] {
            let snoozed = said(code, r#"{"punctual": {"snooze": "10m"}}"#);
            assert_eq!(snoozed, Outcome::Snoozed { until: minutes });
        }
        for ordinary in [r#"{"punctual": {"snooze": "10m"}, "rows": 3}"#, "[1]", r#"[{"snooze": "10m"}]"#] {
            assert_eq!(said(0, ordinary), Outcome::Succeeded { result: Some(ordinary.to_owned()) });
        }
        assert_eq!(said(75, "3"), Outcome::failed(error));

        let problem = |code, line| match said(code, line) {
            Outcome::Failed { error, retryable: true, retry_at: None } => error,
            other => panic!("{other:?}"),
        };
        assert!(problem(0, r#"{"punctual": {"snooze": "soon"}}"#).contains("snooze must be a duration"));
        assert!(problem(0, r#"{"punctual": {"retry_after": "10m"}}"#).contains("exit with another code"));
        assert!(problem(75, r#"{"punctual": 7}"#).contains("must be an object"));
        assert!(problem(75, r#"{"punctual": {"snoze": "10m"}}"#).contains("unknown field `snoze`"));
        let both = r#"{"punctual": {"snooze": "10m", "retry_after": "1m"}}"#;
        assert!(problem(75, both).contains("exclude each other"));
    }

    #[test]
    fn a_result_that_is_too_large_is_cut_or_fails() {
        let large = || CommandEnd { overflow: Some("[1, 2".to_owned()), ..ended(How::Exited { code: 0 }) };
        let cut = r#"{"beginning":"[1, 2","bytes_max":65536,"truncated":true}"#.to_owned();
        assert_eq!(outcome(large(), limits()), Outcome::Succeeded { result: Some(cut) });
        let (error, retryable) =
            error(large(), CommandLimits { result_overflow: ResultOverflow::Fail, ..limits() });
        assert!(error.contains("has more than 65536 bytes (result_overflow: fail)"), "{error}");
        assert!(!retryable);
        let blob = CommandLimits { result_overflow: ResultOverflow::Blob, ..limits() };
        assert_eq!(super::outcome(large(), blob), CommandOutcome::LargeResult);
        let failed = CommandEnd { how: How::Exited { code: 1 }, ..large() };
        let failed = outcome(failed, blob);
        assert!(matches!(&failed, Outcome::Failed { error, .. } if error.starts_with("exited with code 1")));
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
