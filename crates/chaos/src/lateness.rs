//! How late handlers began, according to the external record, and how long after a fault the last late start
//! happened.

use crate::nemesis::InjectedFault;
use crate::observed::Observed;
use crate::plan::FaultKind;
use punctual_core::time::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Starts later than this are late.
pub const LATE: Duration = Duration::from_secs(1);
/// A late start is attributed to faults that ended at most this long before it was due.
const AFTERMATH: Duration = Duration::from_secs(5);

/// The first attempt of an occurrence: when it was due, and its lateness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FirstStart {
    pub due: Timestamp,
    pub late: Duration,
}

/// The first run of each occurrence, by due time.
pub fn starts(observed: &Observed) -> Vec<FirstStart> {
    let mut first: BTreeMap<_, FirstStart> = BTreeMap::new();
    for run in &observed.runs {
        let start = FirstStart { due: run.scheduled_time, late: run.began.since(run.scheduled_time) };
        let entry = first.entry(run.execution.occurrence).or_insert(start);
        entry.late = entry.late.min(start.late);
    }
    let mut starts: Vec<FirstStart> = first.into_values().collect();
    starts.sort();
    starts
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StartLateness {
    pub count: usize,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// Starts more than a second after they were due.
    pub late: usize,
}

impl StartLateness {
    pub fn of(lateness: impl IntoIterator<Item = Duration>) -> Self {
        let mut all: Vec<Duration> = lateness.into_iter().collect();
        all.sort();
        let ms = |late: Duration| (late.as_secs_f64() * 10_000.0).round() / 10.0;
        let percentile = |percent: usize| {
            let index = (all.len() * percent).div_ceil(100).saturating_sub(1);
            all.get(index).copied().map_or(0.0, ms)
        };
        StartLateness {
            count: all.len(),
            p50_ms: percentile(50),
            p90_ms: percentile(90),
            p99_ms: percentile(99),
            max_ms: percentile(100),
            late: all.iter().filter(|late| **late > LATE).count(),
        }
    }
}

/// For one kind of fault: how long after the start of a fault the last late start happened, among those due
/// during the fault or soon after. Faults overlap, so one fault may be blamed for the effect of another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recovery {
    pub kind: FaultKind,
    pub count: usize,
    /// Faults after which nothing was late.
    pub unnoticed: usize,
    pub median_secs: f64,
    pub longest_secs: f64,
}

pub fn recoveries(faults: &[InjectedFault], starts: &[FirstStart]) -> Vec<Recovery> {
    let mut by_kind: BTreeMap<FaultKind, Vec<Option<Duration>>> = BTreeMap::new();
    for fault in faults {
        let blamed = starts.iter().filter(|start| {
            start.late > LATE && fault.from <= start.due && start.due <= fault.until.plus(AFTERMATH)
        });
        let last = blamed.map(|start| start.due.plus(start.late).since(fault.from)).max();
        by_kind.entry(fault.kind).or_default().push(last);
    }
    by_kind
        .into_iter()
        .map(|(kind, lasts)| {
            let mut noticed: Vec<Duration> = lasts.iter().copied().flatten().collect();
            noticed.sort();
            let secs =
                |at: Option<&Duration>| at.map_or(0.0, |last| (last.as_secs_f64() * 10.0).round() / 10.0);
            Recovery {
                kind,
                count: lasts.len(),
                unnoticed: lasts.len() - noticed.len(),
                median_secs: secs(noticed.get(noticed.len() / 2)),
                longest_secs: secs(noticed.last()),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_from_sorted_values() {
        let lateness = StartLateness::of((1..=200).rev().map(|number| Duration::from_millis(number * 10)));
        assert_eq!((lateness.p50_ms, lateness.p90_ms), (1_000.0, 1_800.0));
        assert_eq!((lateness.p99_ms, lateness.max_ms, lateness.late), (1_980.0, 2_000.0, 100));
        assert_eq!(StartLateness::of([]), StartLateness::default());
    }

    #[test]
    fn a_fault_is_blamed_for_late_starts_during_it_and_soon_after() {
        let at = |secs: i64| Timestamp::from_micros(secs * 1_000_000);
        let fault = |from, until| InjectedFault {
            kind: FaultKind::Kill,
            target: "worker-1".into(),
            amount: 0,
            from: at(from),
            until: at(until),
        };
        let late = |due, secs| FirstStart { due: at(due), late: Duration::from_secs(secs) };
        let starts = [late(5, 0), late(11, 4), late(40, 3), late(112, 0)];
        let recovered = recoveries(&[fault(10, 12), fault(100, 110)], &starts);
        assert_eq!(
            recovered,
            [Recovery { kind: FaultKind::Kill, count: 2, unnoticed: 1, median_secs: 5.0, longest_secs: 5.0 }]
        );
    }
}
