//! Counters stored next to the rows they count: live rows by lane, jobs by status, dead letters. A write
//! records its changes here. The transaction sums them up and writes each changed counter once, before it
//! commits. So an overview reads only a few rows, and a transaction of a thousand jobs writes as many
//! counters as one of a single job. Each adapter knows how to write them.
//!
//! These counters decide only whether a queue with a `max_depth` is full and whether a limit has room. The
//! status of a job follows from its rows.

use crate::codes::state_code;
use punctual_core::defects::{Defect, planted};
use punctual_core::job::{JobStatus, StoredStatus};
use punctual_core::limiter::LimiterId;
use punctual_core::mix::mix;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

/// Waiting, queued and running executions.
pub(crate) type LaneCounts = [i64; 3];

/// Executions on the wait list of a limiter, and executions that count against it.
pub(crate) type LimiterCounts = [i64; 2];

/// Where to start the search for expired rate-limit entries. Limiter numbers are hashes, so from any start
/// all are equally likely to be found.
pub(crate) fn paces_from(before: Timestamp) -> i64 {
    (mix(before.as_micros().cast_unsigned()) | 1 << 63).cast_signed()
}

/// The changes of a transaction that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Changes of the transaction's completed writes.
    kept: CounterChanges,
    /// Changes of the current write.
    current: CounterChanges,
}

/// Differences to add to the counters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CounterChanges {
    /// Includes lanes whose changes cancel out.
    pub lanes: BTreeMap<i64, LaneCounts>,
    /// Includes limiters whose changes cancel out.
    pub limiters: BTreeMap<LimiterId, LimiterCounts>,
    /// The times for which the last starts were counted, if there is a rate limit.
    pub last_starts: BTreeMap<LimiterId, Timestamp>,
    /// In the order of [`JobStatus`].
    pub jobs: [i64; 5],
    pub dead_letters: i64,
}

impl Counters {
    /// An occurrence opened in this lane.
    pub fn opened(&mut self, lane: i64, live: &Live) {
        self.current.add(lane, live.state, 1);
        self.current.add_to_limiters(live, 1);
    }

    /// An open occurrence in this lane ended.
    pub fn closed(&mut self, lane: i64, live: &Live) {
        self.current.add(lane, live.state, -1);
        if !planted(Defect::KeepPlaceOfEnded) {
            self.current.add_to_limiters(live, -1);
        }
    }

    /// An open occurrence moved to another lane or state.
    pub fn moved(&mut self, (from_lane, from): (i64, &Live), (to_lane, to): (i64, &Live)) {
        if from_lane != to_lane || state_code(from.state) != state_code(to.state) {
            let from_lane = if planted(Defect::DriftTally) { to_lane } else { from_lane };
            self.current.add(from_lane, from.state, -1);
            self.current.add(to_lane, to.state, 1);
        }
        if places(from) != places(to) {
            self.current.add_to_limiters(from, -1);
            self.current.add_to_limiters(to, 1);
        }
    }

    /// A start through this limiter was counted for this time.
    pub fn paced(&mut self, limiter: LimiterId, at: Timestamp) {
        self.current.last_starts.insert(limiter, at);
    }

    /// A job's status changed. `None` means that the job does not exist, or no longer does.
    pub fn job(&mut self, from: Option<JobStatus>, to: Option<JobStatus>) {
        if let Some(from) = from {
            self.current.jobs[from as usize] -= 1;
        }
        if let Some(to) = to {
            self.current.jobs[to as usize] += 1;
        }
    }

    /// The number of dead letters changed by this much.
    pub fn dead_letters(&mut self, change: i64) {
        self.current.dead_letters += change;
    }

    /// By how much this transaction changes the number of executions in this lane that have not started.
    pub fn unstarted(&self, lane: i64) -> i64 {
        self.changes_of(lane).map(|[waiting, queued, _]| waiting + queued).sum()
    }

    /// By how much this transaction changes the number of executions in this lane that are queued or
    /// running.
    pub fn started(&self, lane: i64) -> i64 {
        self.changes_of(lane).map(|[_, queued, running]| queued + running).sum()
    }

    /// By how much this transaction changes the number of queued executions in this lane.
    pub fn queued(&self, lane: i64) -> i64 {
        self.changes_of(lane).map(|[_, queued, _]| queued).sum()
    }

    fn changes_of(&self, lane: i64) -> impl Iterator<Item = LaneCounts> {
        [&self.kept, &self.current].map(|counts| counts.lanes.get(&lane).copied()).into_iter().flatten()
    }

    /// The lanes whose counters this transaction has changed; some may occur twice.
    pub fn lanes(&self) -> impl Iterator<Item = i64> {
        self.kept.lanes.keys().chain(self.current.lanes.keys()).copied()
    }

    /// The counters of a limiter as this transaction sees them.
    pub fn of_limiter(&self, limiter: LimiterId, before: LimiterCounts) -> LimiterCounts {
        let noted = [&self.kept, &self.current].map(|counts| counts.limiters.get(&limiter).copied());
        let noted = noted.into_iter().flatten();
        noted.fold(before, |[waiting, in_use], [w, u]| [waiting.saturating_add(w), in_use.saturating_add(u)])
    }

    /// The time for which the last start was counted, as this transaction sees it.
    pub fn last_start(&self, limiter: LimiterId, before: Option<Timestamp>) -> Option<Timestamp> {
        let noted = [&self.current, &self.kept].map(|counts| counts.last_starts.get(&limiter).copied());
        noted.into_iter().flatten().next().or(before)
    }

    /// The current write is complete.
    pub fn keep(&mut self) {
        for (lane, counts) in std::mem::take(&mut self.current.lanes) {
            let kept = self.kept.lanes.entry(lane).or_default();
            kept.iter_mut().zip(counts).for_each(|(kept, count)| *kept += count);
        }
        for (limiter, counts) in std::mem::take(&mut self.current.limiters) {
            let kept = self.kept.limiters.entry(limiter).or_default();
            kept.iter_mut().zip(counts).for_each(|(kept, count)| *kept += count);
        }
        let CounterChanges { jobs, dead_letters, last_starts, .. } = std::mem::take(&mut self.current);
        self.kept.last_starts.extend(last_starts);
        self.kept.jobs.iter_mut().zip(jobs).for_each(|(kept, count)| *kept += count);
        self.kept.dead_letters += dead_letters;
    }

    /// The current write was rolled back.
    pub fn undo(&mut self) {
        self.current = CounterChanges::default();
    }

    /// The whole transaction was rolled back.
    pub fn forget(&mut self) {
        *self = Counters::default();
    }

    /// The changes of the transaction, to be written.
    pub fn take(&mut self) -> CounterChanges {
        std::mem::take(&mut self.kept)
    }
}

impl CounterChanges {
    fn add(&mut self, lane: i64, state: LiveState, count: i64) {
        self.lanes.entry(lane).or_default()[state_code(state) as usize] += count;
    }

    /// Executions without limits cost nothing here.
    fn add_to_limiters(&mut self, live: &Live, count: i64) {
        let [line, limiter] = places(live);
        if let Some(line) = line {
            self.limiters.entry(line).or_default()[0] += count;
        }
        if let Some(limiter) = limiter {
            self.limiters.entry(limiter).or_default()[1] += count;
        }
    }

    /// The limiters whose counters have changed.
    pub fn changed_limiters(&self) -> impl Iterator<Item = (i64, LimiterCounts)> {
        let changed = self.limiters.iter().filter(|(_, change)| **change != [0; 2]);
        changed.map(|(limiter, change)| (limiter.number(), *change))
    }

    /// The limiters with a counter that went down, so that it may be zero now.
    pub fn lessened_limiters(&self) -> Vec<i64> {
        let lessened = self.changed_limiters().filter(|(_, change)| change.iter().any(|count| *count < 0));
        lessened.map(|(limiter, _)| limiter).collect()
    }
}

/// The limiter on whose wait list an occurrence is, and the limiter of its key if it counts there.
fn places(live: &Live) -> [Option<LimiterId>; 2] {
    [live.line, live.limiter.filter(|_| live.counts_for_key())]
}

/// The status of a job from its stored status and whether it has open or future occurrences; `None` if it
/// is deleted.
pub(crate) fn status(mark: StoredStatus, is_unfinished: bool) -> Option<JobStatus> {
    (mark != StoredStatus::Deleted).then(|| mark.status(is_unfinished, is_unfinished))
}

/// A counter as users see it. A negative counter would be a bug that `punctual check` reports; an overview
/// must not fail because of it.
pub(crate) fn shown(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
