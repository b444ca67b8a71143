//! Counters of this node since it started, for metrics and tests.

use punctual_core::lifecycle::Status;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        #[derive(Default)]
        pub(crate) struct EngineCounters {
            $(pub(crate) $name: Counter,)*
        }

        /// The counters at one moment.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct CounterSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl CounterSnapshot {
            /// All counters, by name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// The sum with the counters of another process, by name.
            pub fn plus(self, named: &BTreeMap<String, u64>) -> Self {
                let of = |name: &str| named.get(name).copied().unwrap_or_default();
                CounterSnapshot { $($name: self.$name + of(stringify!($name)),)* }
            }
        }

        impl EngineCounters {
            pub(crate) fn snapshot(&self) -> CounterSnapshot {
                CounterSnapshot { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }
    };
}

/// The counter of executions that ended with a status.
macro_rules! counter_of {
    ($counters:expr, $status:expr) => {
        match $status {
            Status::Succeeded => &$counters.succeeded,
            Status::Failed => &$counters.failed,
            Status::TimedOut => &$counters.timed_out,
            Status::Cancelled => &$counters.cancelled,
            Status::Lost => &$counters.lost,
            Status::Skipped => &$counters.skipped,
            Status::Expired => &$counters.expired,
            Status::Snoozed => &$counters.snoozed,
        }
    };
}

impl EngineCounters {
    /// Counts an execution that has ended with this status in history.
    pub(crate) fn ended(&self, status: Status) {
        counter_of!(self, status).add(1);
    }
}

impl CounterSnapshot {
    /// How many executions have ended with this status.
    pub fn of(&self, status: Status) -> u64 {
        *counter_of!(self, status)
    }
}

counters! {
    /// Jobs submitted.
    submitted,
    /// Occurrences fired by schedules.
    fired,
    /// Occurrences skipped by schedules.
    skipped,
    /// Fires that found the schedule already fired or changed.
    fire_conflicts,
    /// Executions leased to workers.
    claimed,
    succeeded,
    failed,
    timed_out,
    cancelled,
    /// Executions that expired before they could start.
    expired,
    /// Executions that ended LOST.
    lost,
    /// Attempts whose handlers asked to run again later.
    snoozed,
    /// Attempts that follow a failed one.
    retried,
    given_back,
    /// Reports rejected because their lease was no longer held.
    stale_reports,
    /// Notes of handlers that were stored.
    noted,
    /// Notes rejected because their lease was no longer held.
    stale_notes,
    /// Heartbeats rejected because their session was lost.
    stale_beats,
    /// Leases that could not be given back because they were no longer held.
    stale_give_backs,
    /// Log lines that were stored.
    log_lines,
    /// Sessions declared lost.
    sessions_lost,
    /// Calls to the store that failed.
    store_errors,
    /// Calls to coordination that failed.
    coordination_errors,
    /// Hints of queued work sent to other processes.
    hints_published,
    /// Hints received from other processes; several that arrive together count once.
    hints_received,
    /// Hints that could not be sent, and failed attempts to receive them.
    hint_errors,
    /// Events that a broker has confirmed.
    events_published,
    /// Batches of events that a broker has not confirmed.
    event_errors,
    /// Messages of a broker whose jobs were stored, or had been before.
    intake_accepted,
    /// Messages of a broker that were moved to the rejected ones.
    intake_rejected,
    /// Failed attempts to receive messages with jobs, to store their jobs or to acknowledge them.
    intake_errors,
    /// How often the segments that this node owns have changed.
    rebalances,
    /// Schedules fired later than [`punctual_core::limits::FIRE_LATE`].
    late_fires,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_another_process_is_added_to_our_own() {
        let ours = CounterSnapshot { fired: 10, ..CounterSnapshot::default() };
        let theirs = ours.named().enumerate().map(|(place, (name, _))| (name.to_owned(), place as u64 + 1));
        for (place, (name, sum)) in ours.plus(&theirs.collect()).named().enumerate() {
            let own = if name == "fired" { 10 } else { 0 };
            assert_eq!(sum, place as u64 + 1 + own, "{name}");
        }
    }
}
