//! Maintenance of an in-memory database, and a check of its counters. Rows that a transaction has locked are
//! left for later.

use super::MemoryDatabase;
use crate::counters::{self, CounterChanges};
use crate::rows::KeyKind;
use crate::sqlite::Purged;
use punctual_core::ids::JobId;
use punctual_core::job::StoredStatus;
use punctual_core::ports::{Horizon, Retained, Retired, Retirement};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

impl MemoryDatabase {
    pub(super) fn retain(&mut self, horizon: Horizon, limit: usize) -> Retained {
        let oldest = self.history.iter().take(limit);
        let old: Vec<u64> = oldest
            .filter(|(_, row)| row.finished.completed_at < horizon.history)
            .map(|(place, _)| *place)
            .collect();
        old.iter().for_each(|place| drop(self.history.remove(place)));
        self.history_retained = old.last().copied().unwrap_or(0).max(self.history_retained);
        let (skips, requests) = (self.skipped.len(), self.requests.len());
        self.skipped.retain(|_, (_, range)| range.last >= horizon.history);
        self.requests.retain(|_, row| row.begun_at >= horizon.requests);
        self.last_starts.retain(|_, last_at| *last_at >= horizon.requests);
        Retained {
            history: old.len() as u64,
            logs: 0,
            skipped: (skips - self.skipped.len()) as u64,
            requests: (requests - self.requests.len()) as u64,
            more: limit > 0 && old.len() == limit,
        }
    }

    /// Deletes the names of lanes without jobs.
    pub(super) fn delete_unused(&mut self, is_free: impl Fn(i64) -> bool) {
        let used: BTreeSet<i64> =
            self.jobs.values().map(|row| row.lane).chain(self.counts.lanes.keys().copied()).collect();
        let unused = (1..=self.lanes.len() as i64).filter(|lane| !used.contains(lane) && is_free(*lane));
        self.lanes_gone.extend(unused);
    }

    /// Marks finished jobs as deleted. `None` if a transaction has locked one of them.
    pub(super) fn retire(
        &mut self,
        now: Timestamp,
        step: Retirement,
        is_free: impl Fn(JobId) -> bool,
    ) -> Option<Retired> {
        let after = self.jobs.keys().filter(|id| step.after.is_none_or(|after| **id > after));
        let looked_at: Vec<JobId> = after.take(step.limit).copied().collect();
        let over: Vec<JobId> =
            looked_at.iter().filter(|id| self.is_over(**id, step.finished_before)).copied().collect();
        if !over.iter().all(|id| is_free(*id)) {
            return None;
        }
        for id in &over {
            let job = &mut self.jobs.get_mut(id)?.job;
            if let Some(status) = counters::status(job.mark, false) {
                *self.counts.jobs.of(status) -= 1;
            }
            (job.mark, job.updated_at) = (StoredStatus::Deleted, now);
            self.keys.retain(|_, holder| holder != id);
            self.dependencies.retain(|tie| tie.child != *id);
            self.notes.retain(|occurrence, _| occurrence.job != *id);
            self.checkpoints.retain(|occurrence, _| occurrence.job != *id);
        }
        let next = looked_at.last().copied().filter(|_| looked_at.len() == step.limit);
        Some(Retired { jobs: over.len() as u64, next })
    }

    fn is_over(&self, id: JobId, before: Timestamp) -> bool {
        let job = &self.jobs[&id].job;
        let ends = self.history.values().map(|row| &row.finished).filter(|end| end.id.occurrence.job == id);
        let last = ends.max_by_key(|end| end.id).map(|end| end.completed_at);
        job.mark != StoredStatus::Deleted
            && job.updated_at < before
            && !self.is_unfinished(id)
            && last.is_none_or(|last| last < before)
            && !self.dead.keys().any(|dead| dead.job == id)
            && !self.keys.iter().any(|(key, holder)| *holder == id && key.kind == KeyKind::Name)
    }

    fn is_unfinished(&self, job: JobId) -> bool {
        let mut open = self.live.range(job.occurrence(0)..=job.occurrence(u32::MAX));
        self.schedules.contains_key(&job) || open.next().is_some()
    }

    pub(super) fn purge(
        &mut self,
        before: Timestamp,
        limit: usize,
        is_free: impl Fn(JobId) -> bool,
    ) -> Purged {
        let is_recent = |id: JobId| {
            let mut ends = self.history.values().map(|row| &row.finished);
            ends.any(|end| end.id.occurrence.job == id && end.completed_at >= before)
        };
        let old = self.jobs.values().map(|row| &row.job);
        let old =
            old.filter(|job| job.mark == StoredStatus::Deleted && job.updated_at < before).map(|job| job.id);
        let old = old.filter(|id| !self.is_unfinished(*id) && !is_recent(*id) && is_free(*id));
        let jobs: Vec<JobId> = old.take(limit).collect();
        self.history.retain(|_, row| !jobs.contains(&row.finished.id.occurrence.job));
        self.skipped.retain(|_, (job, _)| !jobs.contains(job));
        self.tags.retain(|(job, _)| !jobs.contains(job));
        self.jobs.retain(|id, _| !jobs.contains(id));
        Purged { more: jobs.len() == limit, jobs }
    }

    /// Compares the counters with the rows; returns the differences.
    pub fn counter_check(&self) -> Vec<String> {
        let mut counted = CounterChanges::default();
        for row in self.live.values() {
            counted.add(row.lane, row.live.state, 1);
            counted.add_to_limiters(&row.live, 1);
        }
        for row in self.jobs.values() {
            let status = counters::status(row.job.mark, self.is_unfinished(row.job.id));
            if let Some(status) = status {
                *counted.jobs.of(status) += 1;
            }
        }
        counted.jobs.dead_letters = self.dead.len() as i64;
        let is_right = counted == CounterChanges { last_starts: Default::default(), ..self.counts.clone() };
        if is_right { vec![] } else { vec![format!("the rows give {counted:?}, kept are {:?}", self.counts)] }
    }

    /// Returns problems: rows that belong to nothing.
    pub fn integrity_check(&self) -> Vec<String> {
        let jobs_of_rows = self.live.keys().chain(self.dead.keys()).map(|id| id.job);
        let jobs_of_rows = jobs_of_rows.chain(self.schedules.keys().copied());
        let jobs_of_rows = jobs_of_rows.chain(self.keys.values().copied());
        let orphans = jobs_of_rows.filter(|job| !self.jobs.contains_key(job));
        let mut problems: Vec<String> = orphans.map(|job| format!("job {job} is missing")).collect();
        let is_noted = |id: &&punctual_core::ids::OccurrenceId| {
            !self.live.contains_key(id) && !self.dead.contains_key(id)
        };
        problems.extend(self.notes.keys().filter(is_noted).map(|id| format!("{id} has notes and is closed")));
        let is_gone = |lane: &i64| self.lanes_gone.contains(lane);
        let lanes = self.live.values().map(|row| row.lane).chain(self.jobs.values().map(|row| row.lane));
        problems.extend(lanes.filter(is_gone).map(|lane| format!("lane {lane} is used and was deleted")));
        problems.extend(self.counter_check());
        problems
    }
}
