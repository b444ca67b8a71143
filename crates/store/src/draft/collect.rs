//! Builds the write set of a unit of work.

use super::table::RowChange;
use super::{Changes, Draft, Leased, SessionChange};
use crate::rows::JobKey;
use punctual_core::ids::JobId;

impl Draft {
    /// Everything that differs from the loaded rows.
    pub fn changes(&mut self) -> Changes {
        let mut changes = Changes { counts: self.tally.take(), ..Changes::default() };
        self.collect_sessions(&mut changes);
        self.collect_jobs(&mut changes);
        self.collect_keys(&mut changes);
        self.collect_schedules(&mut changes);
        self.collect_open(&mut changes);
        self.collect_ends(&mut changes);
        self.dependencies.collect(|job| self.is_new(job), &mut changes);
        self.collect_notes(&mut changes);
        self.collect_queues(&mut changes);
        changes.requests_inserted = self.requests_inserted.values().cloned().collect();
        changes.requests_answered =
            self.requests_answered.iter().map(|(key, answer)| (key.clone(), answer.clone())).collect();
        changes
    }

    fn collect_sessions(&self, changes: &mut Changes) {
        for (id, change) in self.sessions.changes() {
            let found = match change {
                RowChange::Deleted => {
                    changes.sessions_deleted.push(*id);
                    continue;
                }
                RowChange::Inserted(found) => {
                    changes.sessions_inserted.extend(self.opened.get(id).cloned());
                    // Its poll may have been granted, or it may be lost, before it was ever written.
                    let is_as_opened = found.place.turn == 0 && found.place.beat == 0 && !found.lost;
                    if is_as_opened && found.place.mode == Default::default() && !found.place.attention {
                        continue;
                    }
                    found
                }
                RowChange::Updated(found) => found,
            };
            changes.sessions_updated.push(SessionChange {
                id: *id,
                turn: found.place.turn,
                beat: found.place.beat,
                beaten_at: found.beaten_at,
                mode: found.place.mode,
                attention: found.place.attention,
                lost: found.lost,
            });
        }
        changes.attention = self.attention.iter().copied().collect();
    }

    fn collect_jobs(&self, changes: &mut Changes) {
        for (_, change) in self.jobs.changes() {
            match change {
                RowChange::Inserted(row) => changes.jobs_inserted.push(row.clone()),
                RowChange::Updated(row) => changes.jobs_updated.push(row.clone()),
                RowChange::Deleted => {}
            }
        }
        let is_whole = |job: &JobId| self.jobs.is_known(job);
        for (job, change) in self.terms.changes() {
            if let RowChange::Updated(terms) = change
                && !is_whole(job)
            {
                changes.marks.push((*job, terms.mark));
            }
        }
        changes.numbered = self.numbered.values().copied().collect();
        changes.tags_forgotten = self.tags_forgotten.iter().copied().collect();
        for (job, tags) in &self.tags_put {
            let mut tags = tags.clone();
            tags.sort_unstable();
            tags.dedup();
            changes.tags_put.extend(tags.into_iter().map(|tag| (*job, tag)));
        }
    }

    fn collect_keys(&self, changes: &mut Changes) {
        changes.keys_freed = self.keys_freed.iter().copied().collect();
        for (key, holder) in self.keys.rows() {
            let held = |list: &mut Vec<(JobKey, JobId)>| list.push((key.clone(), *holder));
            match self.keys.before(key) {
                // Freed with that job's other keys, and so no longer in the database.
                Some(before) if self.keys_freed.contains(before) => held(&mut changes.keys_held),
                Some(before) if before == holder => {}
                Some(_) => held(&mut changes.keys_taken),
                None => held(&mut changes.keys_held),
            }
        }
    }

    fn collect_schedules(&self, changes: &mut Changes) {
        for (job, change) in self.schedules.changes() {
            match change {
                RowChange::Inserted(row) => changes.schedules_inserted.push(row.clone()),
                RowChange::Updated(row) => changes.schedules_updated.push(row.clone()),
                RowChange::Deleted => changes.schedules_deleted.push(*job),
            }
        }
    }

    fn collect_open(&self, changes: &mut Changes) {
        for (id, change) in self.open.rows.changes() {
            match change {
                RowChange::Inserted(row) => changes.live_inserted.push(row.clone()),
                RowChange::Updated(row) => {
                    match self.open.rows.before(id).and_then(|before| Leased::of(before, row)) {
                        Some(leased) => changes.leased.push(leased),
                        None => changes.live_updated.push(row.clone()),
                    }
                }
                RowChange::Deleted => changes.live_deleted.push(*id),
            }
        }
    }

    fn collect_ends(&mut self, changes: &mut Changes) {
        changes.history = std::mem::take(&mut self.history);
        changes.skips_lengthened = self.skips.lengthened();
        changes.skips_inserted = self.skips.inserted();
        changes.buried = self.buried.values().cloned().collect();
        for (id, change) in self.dead.changes() {
            if matches!(change, RowChange::Deleted) && !self.dead_forgotten.contains(&id.job) {
                changes.unburied.push(*id);
            }
        }
        changes.dead_forgotten = self.dead_forgotten.iter().copied().collect();
    }

    fn collect_notes(&self, changes: &mut Changes) {
        changes.notes = self.note_changes.values().cloned().collect();
        changes.notes_forgotten = self.notes_forgotten.iter().copied().collect();
        changes.notes_of_jobs_forgotten = self.notes_of_jobs_forgotten.iter().copied().collect();
        for (id, checkpoint) in self.checkpoints.written() {
            match checkpoint {
                Some(checkpoint) => changes.checkpoints_put.push((*id, checkpoint.clone())),
                // It may exist although it was not loaded.
                None if !self.notes_forgotten.contains(id) => changes.checkpoints_deleted.push(*id),
                None => {}
            }
        }
    }

    fn collect_queues(&self, changes: &mut Changes) {
        for (queue, change) in self.queues.changes() {
            match change {
                RowChange::Inserted(row) | RowChange::Updated(row) => changes.queues_put.push(row.clone()),
                RowChange::Deleted => changes.queues_deleted.push(queue.clone()),
            }
        }
    }
}
