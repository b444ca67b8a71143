//! All exit codes, and how errors are printed.

use crate::hints;
use crate::output::tell;
use punctual_client::{ClientError, Distrust, Problem};
use punctual_core::causes::innermost;
use std::process::ExitCode;

/// The result of a command, for scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    /// The awaited job did not succeed, a check found damage, or anything not listed below.
    Failed = 1,
    /// Clap's own code, for an invalid command line.
    Misunderstood = 2,
    Unreachable = 3,
    /// The server rejected the request, or a part of it: invalid input, no permission, or a conflict with the
    /// current state. Or a file of jobs is invalid, so that there is nothing to send.
    Refused = 4,
    NotFound = 5,
    /// The server could not do it now; a retry may help.
    ServerFailed = 6,
    /// A server or an offline command could not start: port in use, data directory or database not usable.
    CannotStart = 7,
    /// The wait timed out.
    TimedOut = 8,
    /// A plan contains changes.
    Pending = 10,
}

/// The meaning of each code, for help, manual and reference.
pub const MEANINGS: [(Exit, &str); 10] = [
    (Exit::Done, "done"),
    (Exit::Failed, "the awaited job did not succeed, or the command failed"),
    (Exit::Misunderstood, "invalid command line or configuration"),
    (Exit::Unreachable, "the server cannot be reached, or is not a Punctual server"),
    (Exit::Refused, "the request was rejected: invalid input or token, or a conflict with the current state"),
    (Exit::NotFound, "not found"),
    (Exit::ServerFailed, "the server cannot handle the request now; try again later"),
    (Exit::CannotStart, "cannot start: port in use, or data directory or database not usable"),
    (Exit::TimedOut, "timed out while waiting"),
    (Exit::Pending, "`plan` found changes to apply"),
];

/// The codes and their meanings, for the end of the help.
pub fn help() -> String {
    let lines = MEANINGS.iter().map(|(exit, meaning)| format!("\n  {:<2} {meaning}", *exit as u8));
    format!("Exit codes:{}", lines.collect::<String>())
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// An error with its exit code, for errors that do not come from the server.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CliError {
    pub exit: Exit,
    pub message: String,
}

impl CliError {
    pub fn cannot_start(message: impl Into<String>) -> Self {
        CliError { exit: Exit::CannotStart, message: message.into() }
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        CliError { exit: Exit::NotFound, message: message.into() }
    }

    pub fn refused(message: impl Into<String>) -> Self {
        CliError { exit: Exit::Refused, message: message.into() }
    }
}

/// Prints the error on stderr and returns its exit code.
pub fn report(error: &anyhow::Error) -> Exit {
    if let Some(error) = error.downcast_ref::<ClientError>() {
        return report_client_error(error);
    }
    tell(&format!("error: {error:#}"));
    error.downcast_ref::<CliError>().map_or(Exit::Failed, |error| error.exit)
}

fn report_client_error(error: &ClientError) -> Exit {
    match error {
        ClientError::Unreachable { server, .. } => {
            tell(&format!("error: cannot reach the server at {server}: {}", innermost(error)));
            eprintln!("  {}", reach_it(error.distrust()));
            Exit::Unreachable
        }
        ClientError::Refused(problem) => {
            tell(&format!("error: {problem}{}", hints::lines(&problem.advice)));
            if problem.status == 401 {
                eprintln!(
                    "  pass the token with --token-file, PUNCTUAL_TOKEN or --data-dir, or store one with `punctual login`"
                );
            }
            of_problem(problem)
        }
        ClientError::NotPunctual { .. } => {
            tell(&format!("error: {error}"));
            eprintln!("  choose the server with --server or --data-dir");
            Exit::Unreachable
        }
        ClientError::BadAddress { .. } => {
            tell(&format!("error: {error}"));
            eprintln!("  pass a host and a port, such as --server 127.0.0.1:7070");
            Exit::Misunderstood
        }
        ClientError::Untrusted(_) => {
            tell(&format!("error: {error}"));
            Exit::Misunderstood
        }
        ClientError::Unexpected(_) => {
            tell(&format!("error: {error}"));
            Exit::ServerFailed
        }
    }
}

/// What to do about a server that was not reached.
pub const fn reach_it(distrust: Option<Distrust>) -> &'static str {
    match distrust {
        None => {
            "start one with `punctual serve`, or choose a running one with --server, --context or --data-dir"
        }
        Some(Distrust::NoTls) => {
            "the server uses plain HTTP: use an address that begins with http://, and no --tls-ca"
        }
        Some(Distrust::ByTime) => "renew the server's certificate, or correct the clock of this machine",
        Some(Distrust::OfServer) => {
            "pass the certificate authority of the server with --tls-ca, and a name in its certificate with --server"
        }
        Some(Distrust::OfClient) => {
            "if the server demands client certificates, pass one that it accepts with --tls-client-cert and --tls-client-key"
        }
    }
}

/// The exit code for a problem reported by the server.
pub const fn of_problem(problem: &Problem) -> Exit {
    match problem.status {
        404 => Exit::NotFound,
        429 | 500.. => Exit::ServerFailed,
        _ => Exit::Refused,
    }
}
