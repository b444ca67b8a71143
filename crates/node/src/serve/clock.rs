//! The server's scheduling clock: the system clock, or one that is driven over the API.

use super::manual_clock::ManualClock;
use punctual_client::host;
use punctual_config::{ClockKind, ClockSettings};
use punctual_core::ports::{DrivenClock, Host};
use std::sync::Arc;

/// The host with the selected calendar, and the clock to drive if there is one.
pub fn choose(settings: &ClockSettings, host: Host) -> (Host, Option<Arc<dyn DrivenClock>>) {
    match settings.clock {
        ClockKind::System => (host, None),
        ClockKind::Manual => {
            let start = settings.clock_start.unwrap_or_else(host::wall_time);
            let clock = Arc::new(ManualClock::starting_at(start));
            (Host { calendar: clock.clone(), ..host }, Some(clock))
        }
    }
}
