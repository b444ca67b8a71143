//! The server's log, on stderr.

use super::repeats::Limited;
use punctual_config::exit::CliError;
use punctual_config::{LogFormat, LogSettings};
use punctual_engine::EngineConfig;
use std::io::{self, IsTerminal, Write};
use tracing_subscriber::fmt::format::{self, JsonFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

pub fn start(settings: &LogSettings) -> Result<(), CliError> {
    // A failure to write the log is not reported: the report would go the same way, and panic.
    let log = fmt::layer().with_writer(|| Unfailing(std::io::stderr())).log_internal_errors(false);
    let filter = settings.level.targets().clone();
    let started = match settings.format {
        LogFormat::Json => {
            let lines = Limited::new(format::format().json().flatten_event(true), LogFormat::Json);
            registry().with(log.fmt_fields(JsonFields::new()).event_format(lines)).with(filter).try_init()
        }
        LogFormat::Text => {
            let lines = Limited::new(format::format(), LogFormat::Text);
            let log = log.with_ansi(std::io::stderr().is_terminal()).event_format(lines);
            registry().with(log).with(filter).try_init()
        }
    };
    started.map_err(|error| CliError::cannot_start(format!("cannot start the log: {error}")))
}

/// What the engine writes into the log besides its own events. People who read text use the command line for that.
pub fn configure(settings: &LogSettings, config: &mut EngineConfig) {
    let is_json = settings.format == LogFormat::Json;
    config.log_executions = is_json && settings.executions.0;
    config.log_output = is_json && settings.output.0;
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
