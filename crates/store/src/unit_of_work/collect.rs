//! Builds the write set of a unit of work.

use super::table::RowChange;
use super::{Leased, SessionChange, UnitOfWork, WriteSet};
use crate::rows::JobKey;
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::JobId;

impl UnitOfWork {
    /// Everything that differs from the loaded rows.
    pub fn write_set(&mut self) -> WriteSet {
        let mut write_set = WriteSet { counts: self.counters.take(), ..WriteSet::default() };
        self.collect_sessions(&mut write_set);
        self.collect_jobs(&mut write_set);
        self.collect_keys(&mut write_set);
        self.collect_schedules(&mut write_set);
        self.collect_open(&mut write_set);
        self.collect_ends(&mut write_set);
        self.dependencies.collect(|job| self.is_new(job), &mut write_set);
        self.collect_notes(&mut write_set);
        self.collect_queues(&mut write_set);
        write_set.requests_inserted = self.requests_inserted.values().cloned().collect();
        write_set.requests_answered =
            self.requests_answered.iter().map(|(key, answer)| (key.clone(), answer.clone())).collect();
        write_set.audit = self.audit.values().cloned().collect();
        write_set
    }

    fn collect_sessions(&self, write_set: &mut WriteSet) {
        for (id, change) in self.sessions.changes() {
            let found = match change {
                RowChange::Deleted => {
                    write_set.sessions_deleted.push(*id);
                    continue;
                }
                RowChange::Inserted(found) => {
                    write_set.sessions_inserted.extend(self.opened.get(id).cloned());
                    // Its poll may have been granted, or it may be lost, before it was ever written.
                    let is_as_opened = found.place.turn == 0 && found.place.beat == 0 && !found.lost;
                    if is_as_opened && found.place.mode == Default::default() && !found.place.attention {
                        continue;
                    }
                    found
                }
                RowChange::Updated(found) => found,
            };
            write_set.sessions_updated.push(SessionChange {
                id: *id,
                turn: found.place.turn,
                beat: found.place.beat,
                beaten_at: found.beaten_at,
                mode: found.place.mode,
                attention: found.place.attention,
                lost: found.lost,
            });
        }
        write_set.attention = self.attention.iter().copied().collect();
    }

    fn collect_jobs(&self, write_set: &mut WriteSet) {
        for (_, change) in self.jobs.changes() {
            match change {
                RowChange::Inserted(row) => write_set.jobs_inserted.push(row.clone()),
                RowChange::Updated(row) => write_set.jobs_updated.push(row.clone()),
                RowChange::Deleted => {}
            }
        }
        let is_whole = |job: &JobId| self.jobs.is_known(job);
        for (job, change) in self.terms.changes() {
            if let RowChange::Updated(terms) = change
                && !is_whole(job)
            {
                write_set.marks.push((*job, terms.mark));
            }
        }
        write_set.numbered = self.numbered.values().copied().collect();
        write_set.tags_forgotten = self.tags_forgotten.iter().copied().collect();
        for (job, tags) in &self.tags_put {
            let mut tags = tags.clone();
            tags.sort_unstable();
            tags.dedup();
            write_set.tags_put.extend(tags.into_iter().map(|tag| (*job, tag)));
        }
    }

    fn collect_keys(&self, write_set: &mut WriteSet) {
        write_set.keys_freed = self.keys_freed.iter().copied().collect();
        for (key, holder) in self.keys.rows() {
            let held = |list: &mut Vec<(JobKey, JobId)>| list.push((key.clone(), *holder));
            match self.keys.before(key) {
                // Freed with that job's other keys, and so no longer in the database.
                Some(before) if self.keys_freed.contains(before) => held(&mut write_set.keys_held),
                Some(before) if before == holder => {}
                Some(_) => held(&mut write_set.keys_taken),
                None => held(&mut write_set.keys_held),
            }
        }
    }

    fn collect_schedules(&self, write_set: &mut WriteSet) {
        for (job, change) in self.schedules.changes() {
            match change {
                RowChange::Inserted(row) => write_set.schedules_inserted.push(row.clone()),
                RowChange::Updated(row) => write_set.schedules_updated.push(row.clone()),
                RowChange::Deleted => write_set.schedules_deleted.push(*job),
            }
        }
    }

    fn collect_open(&self, write_set: &mut WriteSet) {
        for (id, change) in self.open.rows.changes() {
            match change {
                RowChange::Inserted(row) => write_set.live_inserted.push(row.clone()),
                RowChange::Updated(row) => {
                    match self.open.rows.before(id).and_then(|before| Leased::of(before, row)) {
                        Some(leased) => write_set.leased.push(leased),
                        None => write_set.live_updated.push(row.clone()),
                    }
                }
                RowChange::Deleted => write_set.live_deleted.push(*id),
            }
        }
        if planted(Defect::DropRowOfBatch) && write_set.leased.len() > 1 {
            write_set.leased.pop();
        }
    }

    fn collect_ends(&mut self, write_set: &mut WriteSet) {
        write_set.history = std::mem::take(&mut self.history);
        write_set.skips_lengthened = self.skips.lengthened();
        write_set.skips_inserted = self.skips.inserted();
        write_set.new_dead_letters = self.new_dead_letters.values().cloned().collect();
        for (id, change) in self.dead.changes() {
            if matches!(change, RowChange::Deleted) && !self.dead_forgotten.contains(&id.job) {
                write_set.deleted_dead_letters.push(*id);
            }
        }
        write_set.dead_forgotten = self.dead_forgotten.iter().copied().collect();
    }

    fn collect_notes(&self, write_set: &mut WriteSet) {
        write_set.notes = self.note_changes.values().cloned().collect();
        write_set.notes_forgotten = self.notes_forgotten.iter().copied().collect();
        write_set.notes_of_jobs_forgotten = self.notes_of_jobs_forgotten.iter().copied().collect();
        for (id, checkpoint) in self.checkpoints.written() {
            match checkpoint {
                Some(checkpoint) => write_set.checkpoints_put.push((*id, checkpoint.clone())),
                // It may exist although it was not loaded.
                None if !self.notes_forgotten.contains(id) => write_set.checkpoints_deleted.push(*id),
                None => {}
            }
        }
    }

    fn collect_queues(&self, write_set: &mut WriteSet) {
        for (queue, change) in self.queues.changes() {
            match change {
                RowChange::Inserted(row) | RowChange::Updated(row) => write_set.queues_put.push(row.clone()),
                RowChange::Deleted => write_set.queues_deleted.push(queue.clone()),
            }
        }
    }
}
