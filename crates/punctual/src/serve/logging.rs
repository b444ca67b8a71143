//! The server's log, on stderr.

use super::repeats::Limited;
use crate::config::LogSettings;
use crate::config::value::{Raw, Value, choice};
use crate::exit::CliError;
use std::io::{self, IsTerminal, Write};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{self, JsonFields};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

choice!(LogFormat);

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A level, or levels by module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level(String);

impl Value for Level {
    fn kind() -> String {
        format!("one of {}, also by module, such as info,punctual_engine=debug", LEVELS.join(", "))
    }

    fn placeholder() -> String {
        "LEVEL".to_owned()
    }

    /// A single word that is not a level would be taken for a module, and silence the rest.
    fn read(raw: &Raw) -> Result<Self, String> {
        let is_known =
            |part: &str| part.contains('=') || LEVELS.iter().any(|level| part.eq_ignore_ascii_case(level));
        match raw.text() {
            Some(text)
                if text.split(',').map(str::trim).all(is_known) && EnvFilter::try_new(text).is_ok() =>
            {
                Ok(Level(text.to_owned()))
            }
            _ => Err(format!("must be {}", Level::kind())),
        }
    }

    fn written(&self) -> serde_json::Value {
        self.0.as_str().into()
    }
}

pub fn start(settings: &LogSettings) -> Result<(), CliError> {
    let filter = EnvFilter::try_new(&settings.level.0)
        .map_err(|error| CliError::cannot_start(format!("log.level is invalid: {error}")))?;
    // A failure to write the log is not reported: the report would go the same way, and panic.
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Unfailing(std::io::stderr()))
        .log_internal_errors(false);
    let started = match settings.format {
        LogFormat::Json => {
            let lines = Limited::new(format::format().json().flatten_event(true), LogFormat::Json);
            log.fmt_fields(JsonFields::new()).event_format(lines).try_init()
        }
        LogFormat::Text => {
            let lines = Limited::new(format::format(), LogFormat::Text);
            log.with_ansi(std::io::stderr().is_terminal()).event_format(lines).try_init()
        }
    };
    started.map_err(|error| CliError::cannot_start(format!("cannot start the log: {error}")))
}

/// Standard error, which may be on a full disk or a closed pipe: the server continues without it.
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
            assert_eq!(Level::read(&Raw::word(good)), Ok(Level(good.to_owned())));
        }
        for bad in ["loud", "", "info,loud", "punctual_engine=loud"] {
            assert!(Level::read(&Raw::word(bad)).is_err(), "{bad}");
        }
    }
}
