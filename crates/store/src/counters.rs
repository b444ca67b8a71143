//! Counters stored next to the rows they count: live rows by lane, jobs by status, dead letters. `layout.rs`
//! describes them and the rows. A write records its changes here. The transaction sums them up and writes
//! each changed counter once, before it commits. So an overview reads only a few rows, and a transaction of
//! a thousand jobs writes as many counters as one of a single job. Each adapter knows how to write them.
//!
//! These counters decide only whether a queue with a `max_depth` is full and whether a limit has room. The
//! status of a job follows from its rows.

use crate::codes::state_code;
pub(crate) use crate::layout::{JobTally, LaneCounts, LimiterCounts, StoredCounts};
use punctual_core::defects::{Defect, planted};
use punctual_core::job::{JobStatus, StoredStatus};
use punctual_core::limiter::LimiterId;
use punctual_core::mix::mix;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::ports::{Depth, JobCounts, Lane};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

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
    pub jobs: JobTally,
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
            *self.current.jobs.of(from) -= 1;
        }
        if let Some(to) = to {
            *self.current.jobs.of(to) += 1;
        }
    }

    /// The number of dead letters changed by this much.
    pub fn dead_letters(&mut self, change: i64) {
        self.current.jobs.dead_letters += change;
    }

    /// By how much this transaction changes the number of executions in this lane that have not started.
    pub fn unstarted(&self, lane: i64) -> i64 {
        self.changes_of(lane).map(LaneCounts::unstarted).sum()
    }

    /// By how much this transaction changes the number of executions in this lane that are queued or
    /// running.
    pub fn started(&self, lane: i64) -> i64 {
        self.changes_of(lane).map(LaneCounts::started).sum()
    }

    /// By how much this transaction changes the number of queued executions in this lane.
    pub fn queued(&self, lane: i64) -> i64 {
        self.changes_of(lane).map(|counts| counts.queued).sum()
    }

    fn changes_of(&self, lane: i64) -> impl Iterator<Item = LaneCounts> {
        [&self.kept, &self.current].map(|counts| counts.lanes.get(&lane).copied()).into_iter().flatten()
    }

    /// The lanes whose counters this transaction has changed; some may occur twice.
    pub fn lanes(&self) -> impl Iterator<Item = i64> {
        self.kept.lanes.keys().chain(self.current.lanes.keys()).copied()
    }

    /// The counters of a limiter as this transaction sees them.
    pub fn of_limiter(&self, limiter: LimiterId, mut counts: LimiterCounts) -> LimiterCounts {
        let noted = [&self.kept, &self.current].map(|changes| changes.limiters.get(&limiter));
        noted.into_iter().flatten().for_each(|changes| counts.add(*changes));
        counts
    }

    /// The time for which the last start was counted, as this transaction sees it.
    pub fn last_start(&self, limiter: LimiterId, before: Option<Timestamp>) -> Option<Timestamp> {
        let noted = [&self.current, &self.kept].map(|counts| counts.last_starts.get(&limiter).copied());
        noted.into_iter().flatten().next().or(before)
    }

    /// The current write is complete.
    pub fn keep(&mut self) {
        let current = std::mem::take(&mut self.current);
        self.kept.add_all(&current);
        self.kept.last_starts.extend(current.last_starts);
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
    pub fn add(&mut self, lane: i64, state: LiveState, count: i64) {
        *self.lanes.entry(lane).or_default().of(state) += count;
    }

    /// Executions without limits cost nothing here.
    pub fn add_to_limiters(&mut self, live: &Live, count: i64) {
        let [line, limiter] = places(live);
        if let Some(line) = line {
            self.limiters.entry(line).or_default().waiting += count;
        }
        if let Some(limiter) = limiter {
            self.limiters.entry(limiter).or_default().in_use += count;
        }
    }

    /// Adds other changes, besides their last starts.
    pub fn add_all(&mut self, others: &CounterChanges) {
        for (lane, changes) in &others.lanes {
            self.lanes.entry(*lane).or_default().add(*changes);
        }
        for (limiter, changes) in &others.limiters {
            self.limiters.entry(*limiter).or_default().add(*changes);
        }
        self.jobs.add(others.jobs);
    }

    /// The lanes whose counters have changed.
    pub fn changed_lanes(&self) -> impl Iterator<Item = (i64, LaneCounts)> {
        let changed = self.lanes.iter().filter(|(_, change)| !change.is_zero());
        changed.map(|(lane, change)| (*lane, *change))
    }

    /// The limiters whose counters have changed.
    pub fn changed_limiters(&self) -> impl Iterator<Item = (i64, LimiterCounts)> {
        let changed = self.limiters.iter().filter(|(_, change)| !change.is_zero());
        changed.map(|(limiter, change)| (limiter.number(), *change))
    }

    /// The limiters with a counter that went down, so that it may be zero now.
    pub fn lessened_limiters(&self) -> Vec<i64> {
        let lessened = self.changed_limiters().filter(|(_, change)| change.each().any(|count| count < 0));
        lessened.map(|(limiter, _)| limiter).collect()
    }
}

impl LaneCounts {
    fn of(&mut self, state: LiveState) -> &mut i64 {
        match state {
            LiveState::Waiting(_) => &mut self.waiting,
            LiveState::Queued => &mut self.queued,
            LiveState::Running(_) => &mut self.running,
        }
    }

    pub fn unstarted(self) -> i64 {
        self.waiting.saturating_add(self.queued)
    }

    pub fn started(self) -> i64 {
        self.queued.saturating_add(self.running)
    }

    /// The form that users see.
    pub fn depth(self, lane: Lane, oldest_queued: Option<Timestamp>) -> Depth {
        let LaneCounts { waiting, queued, running } = self;
        Depth { lane, waiting: shown(waiting), queued: shown(queued), running: shown(running), oldest_queued }
    }
}

impl JobTally {
    pub fn of(&mut self, status: JobStatus) -> &mut i64 {
        match status {
            JobStatus::Active => &mut self.active,
            JobStatus::Paused => &mut self.paused,
            JobStatus::Completed => &mut self.completed,
            JobStatus::Failed => &mut self.failed,
            JobStatus::Cancelled => &mut self.cancelled,
        }
    }

    /// The form that users see.
    pub fn shown(mut self) -> JobCounts {
        let mut counts = JobCounts { dead_letters: shown(self.dead_letters), ..JobCounts::default() };
        for status in JobStatus::ALL {
            *counts.of(status) = shown(*self.of(status));
        }
        counts
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
