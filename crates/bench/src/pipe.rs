//! The messages between the measuring process and the measured server, one line of JSON each, over the server's stdin
//! and stdout. The server exits when stdin is closed, so it never outlives the measuring process.

use punctual_core::ids::JobId;
use punctual_core::time::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Requests of the measuring process. Everything else goes over HTTP, as from any client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeRequest {
    Counts,
    Transactions,
}

/// Messages of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeMessage {
    /// Carries the address for requests, if the server accepts any.
    Ready {
        access: Option<ServerAccess>,
    },
    Started(RecordedStart),
    Counted(ServerCounts),
    Transactions(TransactionTimes),
}

/// The address at which a server accepts requests, and the token for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAccess {
    pub address: String,
    pub token: String,
}

/// One start of the recording handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedStart {
    pub job: JobId,
    pub nominal_us: i64,
    /// Wall-clock time of the machine.
    pub started_us: i64,
    /// Time on the monotonic clock that both processes share.
    pub at: MachineMoment,
}

impl RecordedStart {
    pub fn nominal(self) -> Timestamp {
        Timestamp::from_micros(self.nominal_us)
    }

    pub fn is_early(self) -> bool {
        self.started_us < self.nominal_us
    }

    /// How late the start was; zero if it was early.
    pub fn late(self) -> Duration {
        Timestamp::from_micros(self.started_us).since(self.nominal())
    }
}

/// Counters of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCounts {
    pub at: MachineMoment,
    pub succeeded: u64,
    /// Attempts that did not succeed: failed, timed out, cancelled, expired or lost.
    pub otherwise: u64,
    /// How many of these failed.
    pub failed: u64,
    /// How many of these were lost because the worker's session expired.
    pub lost: u64,
    /// Occurrences fired by schedules, and fires rejected because another scheduler had already fired them.
    pub fired: u64,
    pub fire_conflicts: u64,
    /// Segments that the server owns as a member of its cluster. `None` until it has joined.
    pub segments: Option<u64>,
    /// Events in messages that were sent.
    pub notified_events: u64,
}

/// Durations of the server's write transactions so far, from its own metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionTimes {
    pub bounds_us: Vec<u64>,
    /// One more entry than there are bounds: the last one counts everything above them.
    pub counts: Vec<u64>,
}

impl TransactionTimes {
    /// The transactions since an earlier reading.
    pub fn since(&self, before: &TransactionTimes) -> Self {
        let pairs = self.counts.iter().zip(&before.counts);
        let counts = pairs.map(|(now, then)| now.saturating_sub(*then)).collect();
        TransactionTimes { bounds_us: self.bounds_us.clone(), counts }
    }

    /// The bound that this share of the transactions did not exceed. `None` if there were none, or if it is above all
    /// bounds.
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

/// An instant on the machine's monotonic clock, which is the same in all processes.
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

    /// The instant at which a wall-clock due time is reached.
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
    fn percentiles_of_transactions_are_bucket_bounds() {
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
