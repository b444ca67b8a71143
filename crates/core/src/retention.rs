//! Whether the store's clock may be trusted for deleting by age.
//!
//! A clock that is months ahead makes everything look old, and deletions by retention are final. Retention
//! therefore compares the store's clock with two references that cannot be set: the monotonic clock of the
//! process, and a record in the store of the time at which retention last found the clock steady. After a
//! jump it deletes nothing until the clock has run evenly for a while.

use crate::defects::{Defect, planted};
use crate::limits;
use crate::time::{Monotonic, Timestamp};
use std::fmt;
use std::time::Duration;

/// One reading of the store's clock, taken at some moment between the request and the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    pub time: Timestamp,
    pub asked_at: Monotonic,
    pub answered_at: Monotonic,
}

/// Why the clock is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockDoubt {
    /// The store has no record: it is new, or an older version wrote it last.
    NoNote,
    /// The clock is this far from the record of an earlier process. Either no process was running meanwhile,
    /// or the clock is wrong.
    FarFromNote { noted: Timestamp, now: Timestamp },
    /// The clock moved by this many microseconds more or less than the monotonic clock.
    Jumped { by_us: i64 },
}

impl ClockDoubt {
    /// Whether an operator should check the clock. A new store gives no reason to.
    pub fn is_suspicious(self) -> bool {
        self != ClockDoubt::NoNote
    }
}

impl fmt::Display for ClockDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClockDoubt::NoNote => f.write_str("the store's clock has not been checked before"),
            ClockDoubt::FarFromNote { noted, now } => {
                write!(f, "the store's clock shows {now}, but retention last ran at {noted}")
            }
            ClockDoubt::Jumped { by_us } => {
                let direction = if *by_us < 0 { "back" } else { "ahead" };
                let by = Duration::from_secs(by_us.unsigned_abs() / 1_000_000);
                write!(f, "the store's clock jumped {direction} by {} s", by.as_secs())
            }
        }
    }
}

/// The conclusion from a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockVerdict {
    /// Retention may delete by this time.
    Steady,
    /// Retention deletes nothing for this much longer.
    Doubtful { doubt: ClockDoubt, left: Duration },
}

/// One process's memory of the store's clock.
#[derive(Debug)]
pub struct ClockWatch {
    /// How long the clock must run evenly after a doubt.
    hold: Duration,
    last: Option<ClockReading>,
    doubt: Option<(ClockDoubt, Monotonic)>,
}

impl ClockWatch {
    pub fn new(hold: Duration) -> Self {
        ClockWatch { hold, last: None, doubt: None }
    }

    /// Evaluates one reading. `noted` is the store's record of an earlier steady reading by any process. It
    /// matters only for the first reading of a process, which has nothing else to compare with.
    pub fn read(&mut self, reading: ClockReading, noted: Option<Timestamp>) -> ClockVerdict {
        let new = match self.last.replace(reading) {
            None => doubt_of_first(reading.time, noted),
            Some(last) => jump(last, reading).map(|by_us| ClockDoubt::Jumped { by_us }),
        };
        if let Some(doubt) = new {
            self.doubt = Some((doubt, reading.answered_at));
        }
        let Some((doubt, since)) = self.doubt else { return ClockVerdict::Steady };
        let left = self.hold.saturating_sub(reading.answered_at.since(since));
        if left.is_zero() || planted(Defect::RetainThroughClockJump) {
            self.doubt = None;
            return ClockVerdict::Steady;
        }
        ClockVerdict::Doubtful { doubt, left }
    }
}

fn doubt_of_first(now: Timestamp, noted: Option<Timestamp>) -> Option<ClockDoubt> {
    let Some(noted) = noted else { return Some(ClockDoubt::NoNote) };
    let apart = now.since(noted).max(noted.since(now));
    (apart > limits::RETENTION_NOTE_AGE_MAX).then_some(ClockDoubt::FarFromNote { noted, now })
}

/// How much more or less the clock moved than time passed, if that is a jump. The duration of the requests
/// explains a part of the difference.
fn jump(last: ClockReading, next: ClockReading) -> Option<i64> {
    let earliest = last.time.plus(next.asked_at.since(last.answered_at));
    let latest = last.time.plus(next.answered_at.since(last.asked_at));
    let (ahead, behind) = (next.time.since(latest), earliest.since(next.time));
    if ahead.max(behind) <= limits::RETENTION_CLOCK_STEP_MAX {
        return None;
    }
    let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    Some(if ahead > behind { micros(ahead) } else { -micros(behind) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3_600;
    const HOLD: Duration = Duration::from_secs(600);

    fn second(seconds: u64) -> Timestamp {
        Timestamp::from_micros(1_763_195_400_000_000).plus(Duration::from_secs(seconds))
    }

    /// A reading at this second of the process, of a clock that is off by this many seconds.
    fn reading(at: u64, off: i64) -> ClockReading {
        let at_mono = Monotonic::from_micros(at * 1_000_000);
        ClockReading { time: second(at).shifted(off * 1_000_000), asked_at: at_mono, answered_at: at_mono }
    }

    fn is_steady(verdict: ClockVerdict) -> bool {
        verdict == ClockVerdict::Steady
    }

    /// A process that found a recent record.
    fn running() -> ClockWatch {
        let mut watch = ClockWatch::new(HOLD);
        assert!(is_steady(watch.read(reading(0, 0), Some(second(0).minus(Duration::from_secs(90))))));
        watch
    }

    #[test]
    fn a_clock_that_runs_evenly_is_trusted() {
        let mut watch = running();
        for at in (60..7_200).step_by(60) {
            // A slow drift, and a slow answer.
            let mut reading = reading(at, (at / 600) as i64);
            reading.answered_at = reading.answered_at.plus(Duration::from_secs(120));
            assert!(is_steady(watch.read(reading, None)), "at {at} s");
        }
    }

    #[test]
    fn after_a_jump_nothing_goes_for_as_long_as_the_hold_and_again_after_the_way_back() {
        let ahead = (200 * DAY) as i64;
        let mut watch = running();
        let ClockVerdict::Doubtful { doubt: ClockDoubt::Jumped { by_us }, left } =
            watch.read(reading(60, ahead), None)
        else {
            panic!("the jump is not noticed")
        };
        assert_eq!((by_us, left), (ahead * 1_000_000, HOLD));
        assert!(!is_steady(watch.read(reading(120, ahead), None)));
        // The clock is right again after 100 s. That is a jump as well, and the wait restarts.
        assert!(!is_steady(watch.read(reading(180, 0), None)));
        assert!(!is_steady(watch.read(reading(720, 0), None)), "nine minutes after the way back");
        assert!(is_steady(watch.read(reading(780, 0), None)));
        assert!(is_steady(watch.read(reading(840, 0), None)));
    }

    #[test]
    fn a_clock_that_stays_where_it_jumped_is_trusted_after_the_hold() {
        let mut watch = running();
        for at in (60..660).step_by(60) {
            assert!(!is_steady(watch.read(reading(at, 5 * DAY as i64), None)), "at {at} s");
        }
        assert!(is_steady(watch.read(reading(660, 5 * DAY as i64), None)));
    }

    #[test]
    fn a_process_that_starts_goes_by_the_note_of_an_earlier_one() {
        let first = |noted: Option<Timestamp>| ClockWatch::new(HOLD).read(reading(0, 0), noted);
        let (day, minute) = (Duration::from_secs(DAY), Duration::from_secs(60));
        assert!(is_steady(first(Some(second(0).minus(minute)))));
        for (noted, suspicious) in
            [(None, false), (Some(second(0).minus(day)), true), (Some(second(0).plus(day)), true)]
        {
            let ClockVerdict::Doubtful { doubt, left } = first(noted) else { panic!("{noted:?} is trusted") };
            assert_eq!((doubt.is_suspicious(), left), (suspicious, HOLD), "{doubt}");
        }
        // Later readings use the process's own clock, whatever the record says.
        assert!(is_steady(running().read(reading(60, 0), Some(second(0).minus(day)))));
    }
}
