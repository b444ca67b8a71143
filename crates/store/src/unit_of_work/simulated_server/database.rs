//! The rows of an in-memory database. It applies write sets, answers read sets, and checks what every
//! database checks: unique keys, and that updated rows exist. It knows no transactions.

use crate::counters::{CounterChanges, StoredCounts};
use crate::fault::Fault;
use crate::rows::{
    AssignedJob, EndedAttempt, JobKey, JobRow, JobTerms, LiveRow, RequestRow, ScheduleRow, SessionPlace,
};
use crate::unit_of_work::{
    DependencyRow, EndedRow, LanesToAsk, LoadedLimiter, LoadedRows, LoadedSession, LoadedSkip, NewSession,
    NoteChange, ReadSet, RequestedClaims, WriteSet,
};
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use punctual_core::limiter::LimiterId;
use punctual_core::limits;
use punctual_core::notes::Checkpoint;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{AuditEntry, AuditId, DeadLetter, Lane, LeaseRef, QueueRow, RequestKey};
use punctual_core::readmission::QueuePosition;
use punctual_core::schedule::SkipRange;
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// All tables.
#[derive(Debug, Default)]
pub struct MemoryDatabase {
    pub(crate) lanes: Vec<Lane>,
    /// Lanes that another process has deleted.
    pub(crate) lanes_gone: BTreeSet<i64>,
    pub(crate) workers: Vec<String>,
    pub(super) sessions_given: i64,
    pub(crate) sessions: BTreeMap<SessionId, LoadedSession>,
    /// How the sessions were opened.
    pub(super) openings: BTreeMap<SessionId, NewSession>,
    pub(crate) jobs: BTreeMap<JobId, JobRow>,
    pub(crate) tags: BTreeSet<(JobId, String)>,
    pub(crate) keys: BTreeMap<JobKey, JobId>,
    pub(crate) schedules: BTreeMap<JobId, ScheduleRow>,
    pub(crate) live: BTreeMap<OccurrenceId, LiveRow>,
    /// By position.
    pub(crate) history: BTreeMap<u64, EndedRow>,
    pub(super) history_given: u64,
    /// The last position that retention has deleted.
    pub(super) history_retained: u64,
    pub(crate) skipped: BTreeMap<i64, (JobId, SkipRange)>,
    skips_given: i64,
    pub(crate) dead: BTreeMap<OccurrenceId, DeadLetter>,
    letters_given: u64,
    pub(crate) dependencies: BTreeSet<DependencyRow>,
    pub(crate) resolutions: BTreeMap<JobId, bool>,
    pub(crate) notes: BTreeMap<OccurrenceId, NoteChange>,
    pub(crate) checkpoints: BTreeMap<OccurrenceId, Checkpoint>,
    pub(crate) queues: BTreeMap<String, QueueRow>,
    pub(crate) last_starts: BTreeMap<LimiterId, Timestamp>,
    pub(crate) requests: BTreeMap<RequestKey, RequestRow>,
    pub(crate) audit: BTreeMap<AuditId, AuditEntry>,
    pub(crate) counts: CounterChanges,
}

impl MemoryDatabase {
    /// Creates the names of a read set, and returns all there are.
    pub(crate) fn intern(&mut self, read_set: &ReadSet) -> LoadedRows {
        for (queue, job_type) in &read_set.lanes {
            let lane = Lane::new(queue.clone(), job_type.clone());
            if !self.numbered_lanes().iter().any(|(_, there)| *there == lane) {
                self.lanes.push(lane);
            }
        }
        for worker in &read_set.workers {
            if !self.workers.contains(worker) {
                self.workers.push(worker.clone());
            }
        }
        let given = self.sessions_given;
        self.sessions_given += read_set.new_sessions as i64;
        LoadedRows {
            lanes: self.numbered_lanes(),
            lanes_to_ask: read_set
                .lanes_to_ask
                .then(|| LanesToAsk { lanes: self.numbered_lanes(), are_all: true }),
            workers: self.workers.iter().cloned().zip(1..).collect(),
            new_sessions: (given + 1..=self.sessions_given).map(SessionId).collect(),
            ..LoadedRows::default()
        }
    }

    /// Everything that a read set requests, if no other transaction has locked any of it.
    #[cfg(test)]
    pub(crate) fn find_all(&self, read_set: &ReadSet) -> LoadedRows {
        let mut picked = Picked {
            sessions: self.wanted_sessions(read_set),
            jobs: self.jobs.keys().copied().collect(),
            schedules: self.schedules.keys().copied().collect(),
            claims: read_set.claims.iter().map(|wanted| self.claimable(wanted, |_| true)).collect(),
            live: self.wanted_live(read_set),
            resolutions: self.resolutions.keys().copied().collect(),
        };
        picked.live.extend(picked.claims.iter().flatten());
        for (line, count) in &read_set.lines {
            picked.live.extend(self.heads(*line, *count, |_| true));
        }
        self.find(read_set, picked)
    }

    /// The requested rows, and of the rows that were to be locked the picked ones.
    pub(crate) fn find(&self, read_set: &ReadSet, picked: Picked) -> LoadedRows {
        let dead_of = |job: &JobId| {
            self.dead.values().filter(|letter| letter.occurrence.job == *job).cloned().collect::<Vec<_>>()
        };
        LoadedRows {
            sessions: picked.sessions.iter().filter_map(|id| self.sessions.get(id)).cloned().collect(),
            jobs: picked
                .jobs
                .intersection(&read_set.jobs)
                .filter_map(|job| self.jobs.get(job))
                .cloned()
                .collect(),
            terms: picked
                .jobs
                .intersection(&read_set.terms)
                .filter_map(|job| Some((*job, terms(self.jobs.get(job)?))))
                .collect(),
            schedules: picked
                .schedules
                .intersection(&read_set.schedules)
                .filter_map(|job| self.schedules.get(job))
                .cloned()
                .collect(),
            live: picked.live.iter().filter_map(|id| self.live.get(id)).cloned().collect(),
            claims: picked.claims,
            facts: read_set
                .facts
                .iter()
                .filter_map(|job| Some((*job, AssignedJob::from(&self.jobs.get(job)?.job))))
                .collect(),
            cancels: self
                .live
                .values()
                .filter_map(cancel)
                .filter(|(session, _)| read_set.cancels_of.contains(session))
                .collect(),
            queues: if read_set.queues { self.queues.values().cloned().collect() } else { vec![] },
            started: read_set
                .limited_queues
                .iter()
                .map(|queue| (queue.clone(), self.started(queue)))
                .collect(),
            limiters: read_set.limiters.iter().map(|id| self.limiter(*id)).collect(),
            last_queued: read_set
                .last_queued
                .iter()
                .map(|((queue, before), count)| self.last_queued(queue, *before, *count))
                .collect(),
            held_lanes: read_set
                .held_lanes
                .iter()
                .filter(|lane| !self.lanes_gone.contains(lane))
                .copied()
                .collect(),
            queued_lanes: read_set
                .queued_lanes_of
                .iter()
                .flat_map(|queue| self.queued_lanes(queue))
                .collect(),
            unstarted: read_set
                .unstarted
                .iter()
                .map(|queue| (queue.clone(), self.unstarted(queue)))
                .collect(),
            ended: self
                .history
                .values()
                .filter(|row| read_set.ended.contains(&row.finished.id))
                .map(|row| {
                    let finished = &row.finished;
                    (
                        finished.id,
                        EndedAttempt {
                            epoch: finished.epoch,
                            session: finished.session,
                            status: finished.status,
                        },
                    )
                })
                .collect(),
            skipped: self
                .skipped
                .iter()
                .filter(|(_, (job, range))| read_set.skipped.contains(&(*job, range.last, range.reason)))
                .map(|(number, (job, range))| LoadedSkip {
                    number: *number,
                    job: *job,
                    last: range.last,
                    reason: range.reason,
                })
                .collect(),
            dead_letters: read_set.dead_letters.iter().filter_map(|id| self.dead.get(id)).cloned().collect(),
            latest_dead_letters: read_set
                .latest_dead_letters
                .iter()
                .filter_map(|job| dead_of(job).pop())
                .collect(),
            dead_of_jobs: read_set
                .dead_of_jobs
                .iter()
                .flat_map(dead_of)
                .map(|letter| letter.occurrence)
                .collect(),
            keys: read_set.keys.iter().filter_map(|key| Some((key.clone(), *self.keys.get(key)?))).collect(),
            parents: self
                .dependencies
                .iter()
                .filter(|tie| read_set.parents_of.contains(&tie.child))
                .map(|tie| (tie.child, tie.parent))
                .collect(),
            children: read_set
                .children_of
                .iter()
                .flat_map(|(parent, count)| {
                    self.dependencies
                        .iter()
                        .filter(|tie| tie.parent == *parent)
                        .take(*count)
                        .map(|tie| (tie.parent, tie.child))
                })
                .collect(),
            resolutions: if read_set.resolutions {
                let row = |parent: &JobId| Some((*parent, *self.resolutions.get(parent)?));
                picked.resolutions.iter().filter_map(row).collect()
            } else {
                vec![]
            },
            last_notes: read_set
                .last_notes
                .iter()
                .filter_map(|id| Some((*id, self.notes.get(id)?.last)))
                .collect(),
            checkpoints: read_set
                .checkpoints
                .iter()
                .filter_map(|id| Some((*id, self.checkpoints.get(id)?.clone())))
                .collect(),
            requests: read_set
                .requests
                .iter()
                .filter_map(|key| Some((key.clone(), self.requests.get(key)?.clone())))
                .collect(),
            ..LoadedRows::default()
        }
    }

    /// The sessions that a read set requests.
    pub(super) fn wanted_sessions(&self, read_set: &ReadSet) -> BTreeSet<SessionId> {
        let is_wanted = |session: &&LoadedSession| {
            read_set.sessions.contains(&session.id)
                || (read_set.lost_sessions && session.lost)
                || (read_set.embedded_sessions && session.embedded)
        };
        self.sessions.values().filter(is_wanted).map(|session| session.id).collect()
    }

    /// The open occurrences that a read set requests and waits for, if others have locked them.
    pub(super) fn wanted_live(&self, read_set: &ReadSet) -> BTreeSet<OccurrenceId> {
        let mut ids = read_set.live.clone();
        for job in &read_set.open_of_jobs {
            let open = self.live.range(job.occurrence(0)..=job.occurrence(u32::MAX));
            ids.extend(open.rev().take(limits::OPEN_OF_JOB_MAX).map(|(id, _)| id));
        }
        for (session, count) in &read_set.held_by {
            let held =
                self.live.values().filter(|row| lease(row).is_some_and(|(holder, _)| holder == *session));
            ids.extend(held.take(*count).map(|row| row.live.id));
        }
        ids.retain(|id| self.live.contains_key(id));
        ids
    }

    /// The first queued executions of these lanes, without those that are not free.
    pub(super) fn claimable(
        &self,
        wanted: &RequestedClaims,
        is_free: impl Fn(OccurrenceId) -> bool,
    ) -> Vec<OccurrenceId> {
        let is_queued =
            |row: &&LiveRow| row.live.state == LiveState::Queued && wanted.lanes.contains(&row.lane);
        first_by_rank(self.live.values().filter(is_queued), wanted.count, is_free)
    }

    /// The first executions of a wait list, without those that are not free.
    pub(super) fn heads(
        &self,
        line: LimiterId,
        count: usize,
        is_free: impl Fn(OccurrenceId) -> bool,
    ) -> Vec<OccurrenceId> {
        first_by_rank(self.live.values().filter(|row| row.live.line == Some(line)), count, is_free)
    }

    pub(super) fn started(&self, queue: &str) -> i64 {
        let is_in = |row: &&LiveRow| self.lanes[row.lane as usize - 1].queue() == queue;
        self.live.values().filter(is_in).filter(|row| row.live.counts_for_queue()).count() as i64
    }

    fn last_queued(&self, queue: &str, before: QueuePosition, count: usize) -> Vec<QueuePosition> {
        let is_in = |row: &&LiveRow| self.lanes[row.lane as usize - 1].queue() == queue;
        let queued = self.live.values().filter(is_in).filter(|row| row.live.state == LiveState::Queued);
        let mut places: Vec<QueuePosition> =
            queued.map(|row| QueuePosition { rank: row.live.rank, occurrence: row.live.id }).collect();
        places.retain(|place| *place < before);
        places.sort_unstable();
        places.into_iter().rev().take(count).collect()
    }

    fn limiter(&self, id: LimiterId) -> LoadedLimiter {
        let counts = self.counts.limiters.get(&id).copied().unwrap_or_default();
        LoadedLimiter { id, counts, last_at: self.last_starts.get(&id).copied() }
    }

    fn unstarted(&self, queue: &str) -> u64 {
        let is_in = |row: &&LiveRow| self.lanes[row.lane as usize - 1].queue() == queue;
        self.live.values().filter(is_in).filter(|row| lease(row).is_none()).count() as u64
    }

    fn queued_lanes(&self, queue: &str) -> Vec<(i64, Lane, i64)> {
        let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
        for row in self.live.values().filter(|row| row.live.state == LiveState::Queued) {
            *counts.entry(row.lane).or_default() += 1;
        }
        let named =
            counts.into_iter().map(|(lane, count)| (lane, self.lanes[lane as usize - 1].clone(), count));
        named.filter(|(_, lane, _)| lane.queue() == queue).collect()
    }

    pub(super) fn numbered_lanes(&self) -> Vec<(i64, Lane)> {
        let numbered = (1..).zip(self.lanes.iter().cloned());
        numbered.filter(|(number, _)| !self.lanes_gone.contains(number)).collect()
    }

    pub(crate) fn write(&mut self, write_set: &WriteSet) -> Result<(), Fault> {
        self.refuse_duplicates(write_set)?;
        self.write_sessions(write_set);
        self.write_jobs(write_set);
        self.write_live(write_set);
        self.write_ends(write_set);
        self.write_notes(write_set);
        self.write_rest(write_set);
        self.counts.add_all(&write_set.counts);
        self.counts.lanes.retain(|_, counts| !counts.is_zero());
        self.counts.limiters.retain(|_, counts| !counts.is_zero());
        self.last_starts.extend(&write_set.counts.last_starts);
        Ok(())
    }

    /// Like a unique index, before anything is written.
    fn refuse_duplicates(&self, write_set: &WriteSet) -> Result<(), Fault> {
        let is_freed = |key: &JobKey| self.keys.get(key).is_none_or(|job| write_set.keys_freed.contains(job));
        let is_fine = write_set.jobs_inserted.iter().all(|row| !self.jobs.contains_key(&row.job.id))
            && write_set.keys_held.iter().all(|(key, _)| is_freed(key))
            && write_set.schedules_inserted.iter().all(|row| !self.schedules.contains_key(&row.state.job))
            && write_set.live_inserted.iter().all(|row| !self.live.contains_key(&row.live.id))
            && write_set
                .new_dead_letters
                .iter()
                .all(|letter| !self.dead.contains_key(&letter.finished.id.occurrence))
            && write_set.dependencies_inserted.iter().all(|tie| !self.dependencies.contains(tie))
            && write_set
                .resolutions_inserted
                .iter()
                .all(|(parent, _)| !self.resolutions.contains_key(parent))
            && write_set.requests_inserted.iter().all(|(new, _)| !self.requests.contains_key(&new.request));
        if is_fine { Ok(()) } else { Err(Fault::Conflict("a row already exists".to_owned())) }
    }

    fn write_sessions(&mut self, write_set: &WriteSet) {
        for new in &write_set.sessions_inserted {
            let place = SessionPlace { turn: 0, mode: Default::default(), beat: 0, attention: false };
            let (id, worker, embedded) = (new.id, new.worker, new.opening.embedded);
            let session =
                LoadedSession { id, worker, place, beaten_at: new.opened_at, lost: false, embedded };
            assert_eq!(self.sessions.insert(id, session), None);
            self.openings.insert(id, new.clone());
        }
        for change in &write_set.sessions_updated {
            let session = self.sessions.get_mut(&change.id).expect("the session was fetched");
            let (turn, mode, beat, attention) = (change.turn, change.mode, change.beat, change.attention);
            session.place = SessionPlace { turn, mode, beat, attention };
            (session.beaten_at, session.lost) = (change.beaten_at, change.lost);
        }
        for id in &write_set.attention {
            if let Some(session) = self.sessions.get_mut(id) {
                session.place.attention = true;
            }
        }
        for id in &write_set.sessions_deleted {
            assert!(self.sessions.remove(id).is_some());
            self.openings.remove(id);
        }
    }

    fn write_jobs(&mut self, write_set: &WriteSet) {
        for row in &write_set.jobs_inserted {
            self.jobs.insert(row.job.id, row.clone());
        }
        for row in &write_set.jobs_updated {
            assert!(self.jobs.insert(row.job.id, row.clone()).is_some());
        }
        for (job, mark) in &write_set.marks {
            self.jobs.get_mut(job).expect("the job was fetched").job.mark = *mark;
        }
        for numbered in &write_set.numbered {
            let job = &mut self.jobs.get_mut(&numbered.job).expect("the job exists").job;
            job.numbered = Some(numbered.numbered);
            if let Some(spent) = numbered.spent {
                job.fired = spent.fired;
                job.updated_at = job.updated_at.max(spent.at);
            }
        }
        self.tags.retain(|(job, _)| !write_set.tags_forgotten.contains(job));
        self.tags.extend(write_set.tags_put.iter().cloned());
        self.keys.retain(|_, job| !write_set.keys_freed.contains(job));
        for (key, job) in &write_set.keys_held {
            assert_eq!(self.keys.insert(key.clone(), *job), None);
        }
        for (key, job) in &write_set.keys_taken {
            assert!(self.keys.insert(key.clone(), *job).is_some());
        }
        for row in &write_set.schedules_inserted {
            self.schedules.insert(row.state.job, row.clone());
        }
        for row in &write_set.schedules_updated {
            assert!(self.schedules.insert(row.state.job, row.clone()).is_some());
        }
        for job in &write_set.schedules_deleted {
            assert!(self.schedules.remove(job).is_some());
        }
    }

    fn write_live(&mut self, write_set: &WriteSet) {
        for row in &write_set.live_inserted {
            self.live.insert(row.live.id, row.clone());
        }
        for leased in &write_set.leased {
            let row = self.live.get_mut(&leased.id).unwrap();
            *row = leased.onto(row.clone());
        }
        for row in &write_set.live_updated {
            assert!(self.live.insert(row.live.id, row.clone()).is_some_and(|before| before != *row));
        }
        for id in &write_set.live_deleted {
            assert!(self.live.remove(id).is_some());
        }
    }

    fn write_ends(&mut self, write_set: &WriteSet) {
        for row in &write_set.history {
            self.history_given += 1;
            self.history.insert(self.history_given, row.clone());
        }
        for (number, by) in &write_set.skips_lengthened {
            // Retention may have deleted it.
            if let Some((_, range)) = self.skipped.get_mut(number) {
                (range.last, range.count) = (by.last, range.count + by.count);
            }
        }
        for skip in &write_set.skips_inserted {
            self.skips_given += 1;
            self.skipped.insert(self.skips_given, *skip);
        }
        for new in &write_set.new_dead_letters {
            let finished = &new.finished;
            let job = &self.jobs[&finished.id.occurrence.job].job;
            self.letters_given += 1;
            let letter = DeadLetter {
                number: self.letters_given,
                occurrence: finished.id.occurrence,
                job_name: job.spec.name.clone(),
                job_type: job.spec.job_type.clone(),
                queue: job.spec.queue.clone(),
                attempts: finished.id.attempt,
                epoch: finished.epoch,
                scheduled_time: finished.scheduled_time,
                origin: finished.origin,
                died_at: new.died_at,
                error: finished.error.clone(),
                noted: new.noted,
                input: finished.input.clone(),
            };
            self.dead.insert(letter.occurrence, letter);
        }
        for id in &write_set.deleted_dead_letters {
            assert!(self.dead.remove(id).is_some());
        }
        self.dead.retain(|id, _| !write_set.dead_forgotten.contains(&id.job));
        self.dependencies.extend(&write_set.dependencies_inserted);
        for tie in &write_set.dependencies_deleted {
            assert!(self.dependencies.remove(tie));
        }
        self.dependencies.retain(|tie| !write_set.parents_forgotten.contains(&tie.child));
        self.resolutions.extend(write_set.resolutions_inserted.iter().copied());
        for parent in &write_set.resolutions_deleted {
            assert!(self.resolutions.remove(parent).is_some());
        }
    }

    fn write_notes(&mut self, write_set: &WriteSet) {
        for change in &write_set.notes {
            let note = self.notes.entry(change.id).or_insert_with(|| change.clone());
            (note.last, note.noted_at) = (change.last, change.noted_at);
            if change.progress.is_some() {
                (note.attempt, note.progress) = (change.attempt, change.progress.clone());
            }
        }
        self.checkpoints.extend(write_set.checkpoints_put.iter().cloned());
        for id in &write_set.checkpoints_deleted {
            self.checkpoints.remove(id);
        }
        let (live, of_jobs) = (&self.live, &write_set.notes_of_jobs_forgotten);
        let is_kept = |id: &OccurrenceId| {
            !write_set.notes_forgotten.contains(id) && (!of_jobs.contains(&id.job) || live.contains_key(id))
        };
        self.notes.retain(|id, _| is_kept(id));
        self.checkpoints.retain(|id, _| is_kept(id));
    }

    fn write_rest(&mut self, write_set: &WriteSet) {
        for row in &write_set.queues_put {
            self.queues.insert(row.queue.clone(), row.clone());
        }
        for queue in &write_set.queues_deleted {
            self.queues.remove(queue);
        }
        for (new, begun_at) in &write_set.requests_inserted {
            let (fingerprint, seed) = (new.fingerprint, new.seed);
            let row = RequestRow { fingerprint, begun_at: *begun_at, seed, answer: None };
            self.requests.insert(new.request.clone(), row);
        }
        for (key, answer) in &write_set.requests_answered {
            if let Some(row) = self.requests.get_mut(key) {
                row.answer = Some(answer.clone());
            }
        }
        for entry in &write_set.audit {
            self.audit.entry(entry.id).or_insert_with(|| entry.clone());
        }
    }
}

/// The rows that a transaction has locked one by one.
#[derive(Debug, Default)]
pub(crate) struct Picked {
    pub sessions: BTreeSet<SessionId>,
    pub jobs: BTreeSet<JobId>,
    pub schedules: BTreeSet<JobId>,
    pub claims: Vec<Vec<OccurrenceId>>,
    pub live: BTreeSet<OccurrenceId>,
    pub resolutions: Vec<JobId>,
}

fn first_by_rank<'r>(
    rows: impl Iterator<Item = &'r LiveRow>,
    count: usize,
    is_free: impl Fn(OccurrenceId) -> bool,
) -> Vec<OccurrenceId> {
    let mut places: Vec<_> = rows.map(|row| (row.live.rank, row.live.id)).collect();
    places.sort_unstable();
    places.into_iter().map(|(_, id)| id).filter(|id| is_free(*id)).take(count).collect()
}

fn terms(row: &JobRow) -> JobTerms {
    JobTerms { settings: row.job.spec.settings.clone(), mark: row.job.mark }
}

pub(super) fn lease(row: &LiveRow) -> Option<(SessionId, bool)> {
    match row.live.state {
        LiveState::Running(lease) => Some((lease.session, lease.cancel_requested)),
        _ => None,
    }
}

fn cancel(row: &LiveRow) -> Option<(SessionId, LeaseRef)> {
    let (session, _) = lease(row).filter(|(_, is_requested)| *is_requested)?;
    Some((session, LeaseRef { execution: row.live.execution(), epoch: row.live.epoch }))
}
