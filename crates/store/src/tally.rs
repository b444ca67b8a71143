//! Counts that are kept beside the rows they count: what is live in each lane, jobs by status, dead letters. A write notes
//! here what it changes; the transaction adds it all up and writes each count that moved once, before it commits.
//! So a glance at the whole house costs a few rows, and a thousand jobs in one transaction cost as many writes of
//! counts as one job does. How counts are written is for each adapter to know.
//!
//! What is decided by these counts is whether a queue with a `max_depth` is full and whether a limit has room; what a
//! job's status is, its rows say.

use crate::codes::state_code;
use punctual_core::defects::{Defect, planted};
use punctual_core::job::{JobMark, JobStatus};
use punctual_core::limiter::LimiterId;
use punctual_core::mix::mix;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

/// How much is waiting, queued and running.
pub(crate) type LaneCounts = [i64; 3];

/// How much waits in the line of a limiter, and how much counts against it.
pub(crate) type LimiterCounts = [i64; 2];

/// Where to begin to look for paces that are old. Numbers of limiters are hashes, so from wherever one begins, one is as likely
/// to come up as another.
pub(crate) fn paces_from(before: Timestamp) -> i64 {
    (mix(before.as_micros().cast_unsigned()) | 1 << 63).cast_signed()
}

/// What a transaction has changed so far and not written yet.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// By the writes of the transaction that are done.
    kept: Counts,
    /// By the write that is under way.
    current: Counts,
}

/// By how much counts have changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Lanes that came out even are among them.
    pub lanes: BTreeMap<i64, LaneCounts>,
    /// Limiters that came out even are among them.
    pub limiters: BTreeMap<LimiterId, LimiterCounts>,
    /// The times that the last starts were counted for, where starts are paced.
    pub last_starts: BTreeMap<LimiterId, Timestamp>,
    /// In the order of [`JobStatus`].
    pub jobs: [i64; 5],
    pub dead_letters: i64,
}

impl Tally {
    /// An occurrence has come to be open in this lane.
    pub fn opened(&mut self, lane: i64, live: &Live) {
        self.current.add(lane, live.state, 1);
        self.current.add_to_limiters(live, 1);
    }

    /// One that was open in this lane has ended.
    pub fn closed(&mut self, lane: i64, live: &Live) {
        self.current.add(lane, live.state, -1);
        if !planted(Defect::KeepPlaceOfEnded) {
            self.current.add_to_limiters(live, -1);
        }
    }

    /// One that was open in a lane is now in another, or in another state.
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

    /// A job has another status. `None` stands for one that is not there, or no longer.
    pub fn job(&mut self, from: Option<JobStatus>, to: Option<JobStatus>) {
        if let Some(from) = from {
            self.current.jobs[from as usize] -= 1;
        }
        if let Some(to) = to {
            self.current.jobs[to as usize] += 1;
        }
    }

    /// So many dead letters have come, or gone if there are fewer.
    pub fn dead_letters(&mut self, change: i64) {
        self.current.dead_letters += change;
    }

    /// By how many executions of this lane that have not started the transaction under way has more than there were.
    pub fn unstarted(&self, lane: i64) -> i64 {
        self.changes_of(lane).map(|[waiting, queued, _]| waiting + queued).sum()
    }

    /// By how many executions of this lane that are queued or run the transaction under way has more than there were.
    pub fn started(&self, lane: i64) -> i64 {
        self.changes_of(lane).map(|[_, queued, running]| queued + running).sum()
    }

    /// By how many queued executions of this lane the transaction under way has more than there were.
    pub fn queued(&self, lane: i64) -> i64 {
        self.changes_of(lane).map(|[_, queued, _]| queued).sum()
    }

    fn changes_of(&self, lane: i64) -> impl Iterator<Item = LaneCounts> {
        [&self.kept, &self.current].map(|counts| counts.lanes.get(&lane).copied()).into_iter().flatten()
    }

    /// The lanes whose counts the transaction under way has changed, some of them perhaps twice.
    pub fn lanes(&self) -> impl Iterator<Item = i64> {
        self.kept.lanes.keys().chain(self.current.lanes.keys()).copied()
    }

    /// The counts of a limiter, as the transaction under way sees them.
    pub fn of_limiter(&self, limiter: LimiterId, before: LimiterCounts) -> LimiterCounts {
        let noted = [&self.kept, &self.current].map(|counts| counts.limiters.get(&limiter).copied());
        let noted = noted.into_iter().flatten();
        noted.fold(before, |[waiting, in_use], [w, u]| [waiting.saturating_add(w), in_use.saturating_add(u)])
    }

    /// The time that the last start was counted for, as the transaction under way sees it.
    pub fn last_start(&self, limiter: LimiterId, before: Option<Timestamp>) -> Option<Timestamp> {
        let noted = [&self.current, &self.kept].map(|counts| counts.last_starts.get(&limiter).copied());
        noted.into_iter().flatten().next().or(before)
    }

    /// The write that was under way is done.
    pub fn keep(&mut self) {
        for (lane, counts) in std::mem::take(&mut self.current.lanes) {
            let kept = self.kept.lanes.entry(lane).or_default();
            kept.iter_mut().zip(counts).for_each(|(kept, count)| *kept += count);
        }
        for (limiter, counts) in std::mem::take(&mut self.current.limiters) {
            let kept = self.kept.limiters.entry(limiter).or_default();
            kept.iter_mut().zip(counts).for_each(|(kept, count)| *kept += count);
        }
        let Counts { jobs, dead_letters, last_starts, .. } = std::mem::take(&mut self.current);
        self.kept.last_starts.extend(last_starts);
        self.kept.jobs.iter_mut().zip(jobs).for_each(|(kept, count)| *kept += count);
        self.kept.dead_letters += dead_letters;
    }

    /// The write that was under way was undone.
    pub fn undo(&mut self) {
        self.current = Counts::default();
    }

    /// The whole transaction was undone.
    pub fn forget(&mut self) {
        *self = Tally::default();
    }

    /// What the transaction has changed, to be written.
    pub fn take(&mut self) -> Counts {
        std::mem::take(&mut self.kept)
    }
}

impl Counts {
    fn add(&mut self, lane: i64, state: LiveState, count: i64) {
        self.lanes.entry(lane).or_default()[state_code(state) as usize] += count;
    }

    /// What has nothing to do with limits pays nothing here.
    fn add_to_limiters(&mut self, live: &Live, count: i64) {
        let [line, limiter] = places(live);
        if let Some(line) = line {
            self.limiters.entry(line).or_default()[0] += count;
        }
        if let Some(limiter) = limiter {
            self.limiters.entry(limiter).or_default()[1] += count;
        }
    }

    /// The limiters whose counts have changed.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub fn changed_limiters(&self) -> impl Iterator<Item = (i64, LimiterCounts)> {
        let changed = self.limiters.iter().filter(|(_, change)| **change != [0; 2]);
        changed.map(|(limiter, change)| (limiter.number(), *change))
    }

    /// Those of them of which something has gone, so that nothing may be left.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub fn lessened_limiters(&self) -> Vec<i64> {
        let lessened = self.changed_limiters().filter(|(_, change)| change.iter().any(|count| *count < 0));
        lessened.map(|(limiter, _)| limiter).collect()
    }
}

/// The limiter in whose line an occurrence waits, and that of its key if it counts there.
fn places(live: &Live) -> [Option<LimiterId>; 2] {
    [live.line, live.limiter.filter(|_| live.counts_for_key())]
}

/// The status of a job with this mark, of which something is open or to come or not; `None` if it is deleted.
pub(crate) fn status(mark: JobMark, is_unfinished: bool) -> Option<JobStatus> {
    (mark != JobMark::Deleted).then(|| mark.status(is_unfinished, is_unfinished))
}

/// A count as people see it. One below zero would be a defect that a check of the database reports; a glance at
/// it must not fail for that.
pub(crate) fn shown(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
