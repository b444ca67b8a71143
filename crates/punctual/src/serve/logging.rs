//! The server's log, on stderr.

use crate::exit::CliError;
use std::io::{self, IsTerminal, Write};
use tracing_subscriber::EnvFilter;

#[derive(clap::Args)]
pub struct LogArgs {
    /// Lines for people, or one JSON object per line
    #[arg(long, env = "PUNCTUAL_LOG_FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
    /// error, warn, info, debug or trace; also by module, such as info,punctual_engine=debug
    #[arg(long, env = "PUNCTUAL_LOG_LEVEL", default_value = "info", value_name = "LEVEL", value_parser = parse_level)]
    log_level: String,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum LogFormat {
    #[default]
    Text,
    Json,
}

/// A level, or levels by module. A lone word that is no level would be taken for a module, and silence the rest.
fn parse_level(text: &str) -> Result<String, String> {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let is_known =
        |part: &str| part.contains('=') || levels.iter().any(|level| part.eq_ignore_ascii_case(level));
    if text.split(',').map(str::trim).all(is_known) && EnvFilter::try_new(text).is_ok() {
        return Ok(text.to_owned());
    }
    let levels = levels.join(", ");
    Err(format!("must be one of {levels}, also by module, such as info,punctual_engine=debug"))
}

pub fn start(args: &LogArgs) -> Result<(), CliError> {
    let filter = EnvFilter::try_new(&args.log_level)
        .map_err(|error| CliError::cannot_start(format!("--log-level cannot be understood: {error}")))?;
    // A log that cannot be written is reported to nobody: the attempt would go the same way, and fail loudly.
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Unfailing(std::io::stderr()))
        .log_internal_errors(false);
    let started = match args.log_format {
        LogFormat::Json => log.json().flatten_event(true).try_init(),
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    started.map_err(|error| CliError::cannot_start(format!("the log cannot be started: {error}")))
}

/// Standard error, which may be a full disk or a pipe that nobody reads any more: the server goes on without it.
struct Unfailing(io::Stderr);

impl Write for Unfailing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words_of_a_fixed_set() {
        for good in ["info", "WARN", "off", "info,punctual_engine=debug", "punctual_store=trace"] {
            assert_eq!(parse_level(good), Ok(good.to_owned()));
        }
        for bad in ["loud", "", "info,loud", "punctual_engine=loud"] {
            assert!(parse_level(bad).is_err(), "{bad}");
        }
    }
}
