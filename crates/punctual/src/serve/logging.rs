//! The server's log, on stderr.

use crate::exit::CliError;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

#[derive(clap::Args)]
pub struct LogArgs {
    /// Lines for people, or one JSON object per line
    #[arg(long, env = "PUNCTUAL_LOG_FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
    /// error, warn, info, debug or trace; also by module, such as info,punctual_engine=debug
    #[arg(long, env = "PUNCTUAL_LOG_LEVEL", default_value = "info", value_name = "LEVEL")]
    log_level: String,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum LogFormat {
    #[default]
    Text,
    Json,
}

pub fn start(args: &LogArgs) -> Result<(), CliError> {
    let filter = EnvFilter::try_new(&args.log_level)
        .map_err(|error| CliError::cannot_start(format!("--log-level cannot be understood: {error}")))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match args.log_format {
        LogFormat::Json => log.json().flatten_event(true).try_init(),
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    started.map_err(|error| CliError::cannot_start(format!("the log cannot be started: {error}")))
}
