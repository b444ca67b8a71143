//! Counts that are kept beside the rows they count: what is live in each lane, jobs by status, dead letters. A write notes
//! here what it changes; the transaction adds it all up and writes each count that moved once, before it commits.
//! So a glance at the whole house costs a few rows, and a thousand jobs in one transaction cost as many writes of
//! counts as one job does. How counts are written is for each adapter to know.
//!
//! The one thing decided by these counts is whether a queue with a `max_depth` is full; what a job's status is, its
//! rows say.

use crate::codes::state_code;
use punctual_core::defects::{Defect, planted};
use punctual_core::job::{JobMark, JobStatus};
use punctual_core::occurrence::LiveState;
use std::collections::BTreeMap;

/// How much is waiting, queued and running.
pub(crate) type LaneCounts = [i64; 3];

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
    /// In the order of [`JobStatus`].
    pub jobs: [i64; 5],
    pub dead_letters: i64,
}

impl Tally {
    /// An occurrence has come to be open in this lane.
    pub fn opened(&mut self, lane: i64, state: LiveState) {
        self.current.add(lane, state, 1);
    }

    /// One that was open in this lane has ended.
    pub fn closed(&mut self, lane: i64, state: LiveState) {
        self.current.add(lane, state, -1);
    }

    /// One that was open in a lane is now in another, or in another state.
    pub fn moved(&mut self, (from_lane, from): (i64, LiveState), (to_lane, to): (i64, LiveState)) {
        if from_lane != to_lane || state_code(from) != state_code(to) {
            let from_lane = if planted(Defect::DriftTally) { to_lane } else { from_lane };
            self.current.add(from_lane, from, -1);
            self.current.add(to_lane, to, 1);
        }
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

    /// How many executions of this lane have not started, as the transaction under way sees it, if so many were
    /// counted before it.
    pub fn unstarted(&self, lane: i64, before: i64) -> u64 {
        let noted = [&self.kept, &self.current].map(|counts| counts.lanes.get(&lane).copied());
        let changes = noted.into_iter().flatten().map(|[waiting, queued, _]| waiting + queued);
        shown(before + changes.sum::<i64>())
    }

    /// The write that was under way is done.
    pub fn keep(&mut self) {
        for (lane, counts) in std::mem::take(&mut self.current.lanes) {
            let kept = self.kept.lanes.entry(lane).or_default();
            kept.iter_mut().zip(counts).for_each(|(kept, count)| *kept += count);
        }
        let Counts { jobs, dead_letters, .. } = std::mem::take(&mut self.current);
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
