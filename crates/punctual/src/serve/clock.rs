//! Which clock the server goes by: the machine's, or one that is driven over the API.

use super::manual_clock::ManualClock;
use crate::args;
use crate::exit::{CliError, Exit};
use punctual_client::host;
use punctual_core::ports::{DrivenClock, Host};
use punctual_core::time::Timestamp;
use std::sync::Arc;

#[derive(clap::Args)]
pub struct ClockArgs {
    /// What schedules go by: this machine's clock, or one that stands still until `punctual clock` moves it
    #[arg(long, env = "PUNCTUAL_CLOCK", value_enum, default_value_t)]
    clock: ClockKind,
    /// Where a manual clock starts; now if left out
    #[arg(long, env = "PUNCTUAL_CLOCK_START", value_name = "TIME", value_parser = args::time)]
    clock_start: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum ClockKind {
    #[default]
    System,
    Manual,
}

impl ClockArgs {
    /// The host with the calendar that was chosen, and the clock to drive if there is one.
    pub fn choose(&self, host: Host) -> Result<(Host, Option<Arc<dyn DrivenClock>>), CliError> {
        match (self.clock, self.clock_start) {
            (ClockKind::System, None) => Ok((host, None)),
            (ClockKind::System, Some(_)) => {
                let message = "--clock-start is only for a manual clock: add --clock manual".to_owned();
                Err(CliError { exit: Exit::Misunderstood, message })
            }
            (ClockKind::Manual, Some(start)) if start > Timestamp::MAX => {
                let message = "--clock-start must be before 9999-12-30".to_owned();
                Err(CliError { exit: Exit::Misunderstood, message })
            }
            (ClockKind::Manual, start) => {
                let clock = Arc::new(ManualClock::starting_at(start.unwrap_or_else(host::wall_time)));
                Ok((Host { calendar: clock.clone(), ..host }, Some(clock)))
            }
        }
    }
}
