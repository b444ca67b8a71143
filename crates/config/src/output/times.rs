//! Times for people: in UTC, or in the zone of this machine, always with the offset. Programs get UTC.

use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use punctual_core::time::Timestamp;
use std::path::Path;
use std::sync::OnceLock;

/// The variable that chooses the zone of times where no flag does.
pub(crate) const TIMES_VARIABLE: &str = "PUNCTUAL_TIMES";

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct TimeChoice {
    /// Show times of tables in the time zone of this machine (TZ, or /etc/localtime); also PUNCTUAL_TIMES=local
    #[arg(long, conflicts_with = "utc")]
    pub local: bool,
    /// Show times of tables in UTC: the default, unless PUNCTUAL_TIMES=local is set
    #[arg(long)]
    pub utc: bool,
}

/// The zone of all times that this process shows. A command has one output, so the first choice counts.
static SHOWN_IN: OnceLock<TimeZone> = OnceLock::new();

pub fn choose_times(choice: TimeChoice) {
    let by_default = || std::env::var(TIMES_VARIABLE).is_ok_and(|times| times.eq_ignore_ascii_case("local"));
    let is_local = choice.local || (!choice.utc && by_default());
    SHOWN_IN.get_or_init(|| if is_local { local_zone() } else { TimeZone::UTC });
}

pub(super) fn shown(time: Timestamp, digits: u8) -> String {
    shown_in(SHOWN_IN.get().unwrap_or(&TimeZone::UTC), time, digits)
}

fn shown_in(zone: &TimeZone, time: Timestamp, digits: u8) -> String {
    let unit = 10_i64.pow(6 - u32::from(digits.min(6)));
    let micros = time.as_micros() - time.as_micros().rem_euclid(unit);
    let Ok(instant) = jiff::Timestamp::from_microsecond(micros) else { return time.to_string() };
    let printer = DateTimePrinter::new().precision(Some(digits));
    let mut text = String::new();
    let written = if *zone == TimeZone::UTC {
        printer.print_timestamp(&instant, &mut text)
    } else {
        printer.print_timestamp_with_offset(&instant, zone.to_offset(instant), &mut text)
    };
    if written.is_err() { time.to_string() } else { text }
}

/// The zone that `TZ` names, or that of the machine; UTC if neither is understood.
fn local_zone() -> TimeZone {
    let named = |name: &str| TimeZoneDatabase::bundled().get(name).ok();
    if let Ok(name) = std::env::var("TZ") {
        let name = name.trim_start_matches(':');
        let file = || read(Path::new(name)).filter(|_| name.starts_with('/'));
        return named(name).or_else(file).or_else(|| TimeZone::posix(name).ok()).unwrap_or(TimeZone::UTC);
    }
    let link = std::fs::read_link("/etc/localtime").ok();
    let name = link.as_ref().and_then(|path| path.to_str()?.split_once("zoneinfo/").map(|(_, name)| name));
    name.and_then(named).or_else(|| read(Path::new("/etc/localtime"))).unwrap_or(TimeZone::UTC)
}

fn read(path: &Path) -> Option<TimeZone> {
    TimeZone::tzif("localtime", &std::fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_their_offset() {
        let time: Timestamp = "2026-11-15T08:30:00.0129Z".parse().unwrap();
        let berlin = TimeZoneDatabase::bundled().get("Europe/Berlin").unwrap();
        assert_eq!(shown_in(&TimeZone::UTC, time, 0), "2026-11-15T08:30:00Z");
        assert_eq!(shown_in(&TimeZone::UTC, time, 3), "2026-11-15T08:30:00.012Z");
        assert_eq!(shown_in(&berlin, time, 0), "2026-11-15T09:30:00+01:00");
        assert_eq!(shown_in(&berlin, time, 3), "2026-11-15T09:30:00.012+01:00");
    }
}
