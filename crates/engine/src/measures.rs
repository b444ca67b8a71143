//! Durations and batch sizes of this node, for metrics. Only values that can be counted without a lock: these
//! are the hottest paths.

use punctual_core::histogram::{Histogram, HistogramSnapshot, ITEMS, LONG_US, SHORT_US};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::ReportedEnd;
use punctual_core::ports::Assignment;
use punctual_core::time::Timestamp;

pub(crate) struct Measures {
    /// From a submit to the answer that its jobs are stored.
    pub submit: Histogram,
    /// From the due time of a schedule to its fire.
    pub fire_lateness: Histogram,
    /// From the scheduled time of an occurrence to the first lease.
    start_lateness: Histogram,
    /// From the time at which an attempt could start to its lease.
    queue_wait: Histogram,
    succeeded: Histogram,
    failed: Histogram,
    timed_out: Histogram,
    cancelled: Histogram,
    pub batches: BatchSizes,
}

/// Items in one call of the store.
pub(crate) struct BatchSizes {
    pub submit: Histogram,
    pub fire: Histogram,
    pub claim: Histogram,
    pub report: Histogram,
}

impl Default for Measures {
    fn default() -> Self {
        let short = || Histogram::new(SHORT_US);
        let long = || Histogram::new(LONG_US);
        let items = || Histogram::new(ITEMS);
        Measures {
            submit: short(),
            fire_lateness: short(),
            start_lateness: long(),
            queue_wait: long(),
            succeeded: long(),
            failed: long(),
            timed_out: long(),
            cancelled: long(),
            batches: BatchSizes { submit: items(), fire: items(), claim: items(), report: items() },
        }
    }
}

impl Measures {
    /// Records executions that were leased at this time.
    pub fn leased<'a>(&self, now: Timestamp, assignments: impl IntoIterator<Item = &'a Assignment>) {
        for assignment in assignments {
            self.queue_wait.observe_duration(now.since(assignment.available_at));
            if assignment.execution.attempt == 1 {
                self.start_lateness.observe_duration(now.since(assignment.scheduled_time));
            }
        }
    }

    /// Records the end of a run, with this status in history.
    pub fn ended(&self, run: MeasuredRun, recorded: Status) {
        let time = match recorded {
            Status::Succeeded => &self.succeeded,
            Status::Failed => &self.failed,
            Status::TimedOut => &self.timed_out,
            Status::Cancelled => &self.cancelled,
            // Its duration is unknown or says nothing, or it did not run.
            Status::Snoozed | Status::Lost | Status::Skipped | Status::Expired => return,
        };
        if let Some(started_at) = run.started_at {
            time.observe_duration(run.completed_at.since(started_at));
        }
    }

    pub fn snapshot(&self) -> MeasureSnapshot {
        MeasureSnapshot {
            submit: self.submit.snapshot(),
            fire_lateness: self.fire_lateness.snapshot(),
            start_lateness: self.start_lateness.snapshot(),
            queue_wait: self.queue_wait.snapshot(),
            execution: [
                ("succeeded", self.succeeded.snapshot()),
                ("failed", self.failed.snapshot()),
                ("timed_out", self.timed_out.snapshot()),
                ("cancelled", self.cancelled.snapshot()),
            ],
            batches: [
                ("submit", self.batches.submit.snapshot()),
                ("fire", self.batches.fire.snapshot()),
                ("claim", self.batches.claim.snapshot()),
                ("report", self.batches.report.snapshot()),
            ],
        }
    }
}

/// The parts of a report that are measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeasuredRun {
    /// As reported.
    pub ending: Ending,
    started_at: Option<Timestamp>,
    completed_at: Timestamp,
}

impl From<&ReportedEnd> for MeasuredRun {
    fn from(end: &ReportedEnd) -> Self {
        MeasuredRun { ending: end.ending, started_at: end.started_at, completed_at: end.completed_at }
    }
}

/// The measures at one moment: durations in microseconds, batches in items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasureSnapshot {
    pub submit: HistogramSnapshot,
    pub fire_lateness: HistogramSnapshot,
    pub start_lateness: HistogramSnapshot,
    pub queue_wait: HistogramSnapshot,
    /// Durations of runs, by outcome.
    pub execution: [(&'static str, HistogramSnapshot); 4],
    /// Items per call of the store, by verb.
    pub batches: [(&'static str, HistogramSnapshot); 4],
}
