//! Matches each expected fire to exactly one start.

use crate::percentiles::{Bin, Percentiles, histogram};
use crate::pipe::RecordedStart;
use punctual_core::ids::JobId;
use punctual_core::time::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Default)]
pub struct StartLedger {
    /// Number of starts of each due time.
    due: BTreeMap<(JobId, Timestamp), u64>,
    /// Due times with at least one start.
    met: u64,
    started: u64,
    extra: u64,
    early: u64,
    late: Vec<Duration>,
}

/// How many due times were started, missing or extra.
#[derive(Debug, Clone, Serialize)]
pub struct Fires {
    pub expected: u64,
    pub started: u64,
    pub missing: u64,
    /// Starts beyond the first, or at a time that was never due.
    pub extra: u64,
    pub early: u64,
    /// Every due time was started exactly once, and none before its time.
    pub exact: bool,
    pub late_us: Percentiles,
    pub late_histogram: Vec<Bin>,
}

impl StartLedger {
    pub fn expect(&mut self, job: JobId, at: Timestamp) {
        self.due.insert((job, at), 0);
    }

    pub fn record(&mut self, start: RecordedStart) {
        self.started += 1;
        self.early += u64::from(start.is_early());
        self.late.push(start.late());
        match self.due.get_mut(&(start.job, start.nominal())) {
            Some(count) => {
                *count += 1;
                if *count == 1 {
                    self.met += 1;
                } else {
                    self.extra += 1;
                }
            }
            None => self.extra += 1,
        }
    }

    pub fn expected(&self) -> u64 {
        self.due.len() as u64
    }

    pub fn is_complete(&self) -> bool {
        self.met == self.expected()
    }

    /// The latest due time.
    pub fn last_due(&self) -> Option<Timestamp> {
        self.due.keys().map(|(_, at)| *at).max()
    }

    pub fn fires(&self) -> Fires {
        let missing = self.expected() - self.met;
        Fires {
            expected: self.expected(),
            started: self.started,
            missing,
            extra: self.extra,
            early: self.early,
            exact: missing == 0 && self.extra == 0 && self.early == 0,
            late_us: Percentiles::of(&self.late),
            late_histogram: histogram(&self.late),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::MachineMoment;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_micros(ms * 1_000)
    }

    fn start(number: u64, nominal_ms: i64, started_ms: i64) -> RecordedStart {
        RecordedStart {
            job: JobId::new(Timestamp::EPOCH, number),
            nominal_us: nominal_ms * 1_000,
            started_us: started_ms * 1_000,
            at: MachineMoment::from_millis(0),
        }
    }

    fn ledger() -> StartLedger {
        let mut ledger = StartLedger::default();
        for (number, ms) in [(1, 10), (1, 20), (2, 10)] {
            ledger.expect(JobId::new(Timestamp::EPOCH, number), at(ms));
        }
        ledger
    }

    #[test]
    fn a_run_is_exact_if_every_due_time_started_once_and_none_early() {
        let mut ledger = ledger();
        for start in [start(1, 10, 11), start(2, 10, 12), start(1, 20, 20)] {
            assert!(!ledger.is_complete());
            ledger.record(start);
        }
        let fires = ledger.fires();
        assert!(fires.exact && ledger.is_complete(), "{fires:?}");
        assert_eq!((fires.late_us.p50, fires.late_us.max), (1_000, 2_000));
        assert_eq!(ledger.last_due(), Some(at(20)));
    }

    #[test]
    fn missing_extra_unknown_and_early_starts_are_counted() {
        let mut ledger = ledger();
        for start in [start(1, 10, 11), start(1, 10, 12), start(3, 10, 10), start(2, 10, 9)] {
            ledger.record(start);
        }
        let fires = ledger.fires();
        assert_eq!((fires.expected, fires.started, fires.missing, fires.extra, fires.early), (3, 4, 1, 2, 1));
        assert!(!fires.exact);
    }
}
