//! What the measuring process and the server that it measures say to each other, a line of JSON each, over the
//! server's stdin and stdout. The end of stdin ends the server: it never outlives the measuring process.

use punctual_core::ids::JobId;
use punctual_core::time::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the measuring process asks. Everything else goes over HTTP, as from any client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PipeQuestion {
    Counts,
    Transactions,
}

/// What the server tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tell {
    /// With where it takes requests, if it does.
    Ready {
        door: Option<Door>,
    },
    Started(RecordedStart),
    Counted(ServerCounts),
    Transactions(TransactionTimes),
}

/// Where a server takes requests, and what it lets in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Door {
    pub address: String,
    pub token: String,
}

/// One start of the recording handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedStart {
    pub job: JobId,
    pub nominal_us: i64,
    /// By the calendar of the machine.
    pub started_us: i64,
    /// By the clock that both processes share.
    pub at: MachineMoment,
}

impl RecordedStart {
    pub fn nominal(self) -> Timestamp {
        Timestamp::from_micros(self.nominal_us)
    }

    pub fn is_early(self) -> bool {
        self.started_us < self.nominal_us
    }

    /// How long after its nominal time; zero if it was early.
    pub fn late(self) -> Duration {
        Timestamp::from_micros(self.started_us).since(self.nominal())
    }
}

/// What the server has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCounts {
    pub at: MachineMoment,
    pub succeeded: u64,
    /// Attempts that ended otherwise: failed, timed out, cancelled, expired or lost.
    pub otherwise: u64,
    /// How many of these were lost, because the worker's session was silent for too long.
    pub lost: u64,
    /// Occurrences fired by schedules, and fires that came too late because another one had fired them.
    pub fired: u64,
    pub fire_conflicts: u64,
    /// Segments that it looks after now, as a member of its cluster; none before it is one.
    pub segments: Option<u64>,
}

/// How long the writing transactions of the server have taken so far, as its own figures know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionTimes {
    pub bounds_us: Vec<u64>,
    /// One more than there are bounds: the last is for all that lies above.
    pub counts: Vec<u64>,
}

impl TransactionTimes {
    /// Those that came after.
    pub fn since(&self, before: &TransactionTimes) -> Self {
        let pairs = self.counts.iter().zip(&before.counts);
        let counts = pairs.map(|(now, then)| now.saturating_sub(*then)).collect();
        TransactionTimes { bounds_us: self.bounds_us.clone(), counts }
    }

    /// The bound that this share of them did not exceed; none if there were none, or it lies above all bounds.
    pub fn percentile_us(&self, percent: f64) -> Option<u64> {
        let all: u64 = self.counts.iter().sum();
        let wanted = ((all as f64 * percent / 100.0).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        bucket.and_then(|bucket| self.bounds_us.get(bucket)).copied()
    }
}

/// A moment on the monotonic clock of the machine, which is the same in all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MachineMoment {
    ns: u64,
}

impl MachineMoment {
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        MachineMoment { ns: seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) }
    }

    pub fn since(self, earlier: MachineMoment) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }

    /// The moment at which something is due by the calendar.
    pub fn of_due(at: Timestamp, wall_now: Timestamp) -> Self {
        let ahead = u64::try_from(at.since(wall_now).as_nanos()).unwrap_or(u64::MAX);
        MachineMoment { ns: MachineMoment::now().ns.saturating_add(ahead) }
    }

    #[cfg(test)]
    pub fn from_millis(millis: u64) -> Self {
        MachineMoment { ns: millis * 1_000_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_of_a_stretch_are_told_by_the_bounds_of_their_buckets() {
        let times = |counts: [u64; 3]| TransactionTimes { bounds_us: vec![100, 500], counts: counts.into() };
        let stretch = times([60, 45, 5]).since(&times([10, 5, 4]));
        assert_eq!(stretch, times([50, 40, 1]));
        assert_eq!(
            [50.0, 90.0, 100.0].map(|percent| stretch.percentile_us(percent)),
            [Some(100), Some(500), None]
        );
        assert_eq!(times([0; 3]).percentile_us(50.0), None);
    }
}
