//! The unit of work as the verbs see it. Every answer reflects the transaction so far, with its inserts,
//! updates and deletes. If rows for an answer are missing, they are added to the read set and the verb
//! stops.

use super::loaded::LoadedSession;
use super::lookups::{cancel_of, cloned, counted, dead_letter_of, is_behind, is_held_by, tied};
use super::{EndedRow, NewDeadLetter, UnitOfWork};
use crate::counters::Counters;
use crate::fault::Fault;
use crate::rows::{
    AssignedJob, EndedAttempt, JobKey, JobRow, JobTerms, LiveRow, OpenCount, RequestRow, Rows, ScheduleRow,
    SessionPlace, Spent,
};
use punctual_core::gates::Gate;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::job::{Job, StoredStatus};
use punctual_core::limiter::{LimiterId, LimiterUse, WaitList};
use punctual_core::limits;
use punctual_core::notes::{Checkpoint, LastNote, Note};
use punctual_core::occurrence::{Finished, Live, OccurrenceFlags};
use punctual_core::ports::{
    AuditEntry, DeadLetter, Lane, LeaseRef, NewRequest, QueueRow, RequestKey, SessionOpening, StoredAnswer,
};
use punctual_core::rank::Shares;
use punctual_core::readmission::QueuePosition;
use punctual_core::schedule::{ScheduleState, SkipRange};
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;

impl Rows for UnitOfWork {
    fn shares(&mut self) -> &mut Shares {
        // A copy: what is counted here counts once, no matter how often the verbs run.
        self.shares.get_or_insert_with(|| (*self.remembered.shares).clone())
    }

    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    fn intern_lane(&mut self, queue: &str, job_type: &str) -> Result<(i64, Lane), Fault> {
        self.held_lane(queue, job_type)
    }

    fn lane(&mut self, number: i64) -> Result<Lane, Fault> {
        if let Some(lane) = self.name_of_lane(number) {
            return Ok(lane.clone());
        }
        self.read_set.lane_numbers.insert(number);
        self.unloaded()
    }

    fn lanes_matching(&mut self, queues: &[String], job_types: &[String]) -> Result<Vec<i64>, Fault> {
        Ok(self.remembered.asked.matching(queues, job_types))
    }

    fn queued_lanes_of(&mut self, queue: &str) -> Result<Vec<Lane>, Fault> {
        self.need_queued_lanes(queue)
    }

    fn worker_of(&mut self, session: SessionId) -> Result<Option<i64>, Fault> {
        if !self.sessions.is_known(&session)
            && let Some(worker) = self.remembered.workers.get(&session)
        {
            return Ok(Some(*worker));
        }
        Ok(self.need_session(session)?.map(|found| found.worker))
    }

    fn queue(&mut self, queue: &str) -> Result<Option<QueueRow>, Fault> {
        self.need_queues()?;
        Ok(self.queues.present(&queue.to_owned()).cloned())
    }

    fn put_queue(&mut self, row: &QueueRow) -> Result<(), Fault> {
        self.need_queues()?;
        self.queues.put(row.queue.clone(), row.clone());
        Ok(())
    }

    fn delete_queue(&mut self, queue: &str) -> Result<(), Fault> {
        self.need_queues()?;
        self.queues.remove(queue.to_owned());
        Ok(())
    }

    fn unstarted_of(&mut self, queue: &str) -> Result<u64, Fault> {
        self.need_unstarted(queue)
    }

    fn queue_as_seen(&mut self, queue: &str) -> Result<Option<QueueRow>, Fault> {
        Ok(self.queues.present(&queue.to_owned()).or_else(|| self.remembered.queues.get(queue)).cloned())
    }

    fn limiter(&mut self, line: &WaitList) -> Result<LimiterUse, Fault> {
        self.use_of_limiter(line)
    }

    fn set_last_start(&mut self, limiter: LimiterId, at: Timestamp) -> Result<(), Fault> {
        self.counters.paced(limiter, at);
        Ok(())
    }

    fn first_on_wait_list(&mut self, line: &WaitList, count: usize) -> Result<Vec<LiveRow>, Fault> {
        self.heads_of_line(line.id(), count)
    }

    fn last_queued(
        &mut self,
        queue: &str,
        before: QueuePosition,
        count: usize,
    ) -> Result<Vec<QueuePosition>, Fault> {
        self.last_of_queue(queue, before, count)
    }

    fn is_job_there(&mut self, job: JobId) -> Result<bool, Fault> {
        if !self.has_lock(job) {
            self.read_set.terms.insert(job);
            return self.unloaded();
        }
        Ok(self.jobs.present(&job).is_some() || self.terms.present(&job).is_some())
    }

    fn job(&mut self, job: JobId) -> Result<Option<JobRow>, Fault> {
        if let Some(known) = self.jobs.get(&job) {
            return Ok(known.cloned());
        }
        if self.is_new(job) {
            return Ok(None);
        }
        self.read_set.add_job_as_a_whole(job);
        self.read_set.jobs.insert(job);
        self.unloaded()
    }

    fn terms_of(&mut self, job: JobId) -> Result<Option<JobTerms>, Fault> {
        if let Some(known) = self.jobs.get(&job) {
            return Ok(
                known.map(|row| JobTerms { settings: row.job.spec.settings.clone(), mark: row.job.mark })
            );
        }
        self.lock(job)?;
        Ok(self.terms.present(&job).cloned())
    }

    fn facts_of(&mut self, job: JobId, _lane: &Lane) -> Result<Option<AssignedJob>, Fault> {
        if let Some(known) = self.jobs.get(&job) {
            return Ok(known.map(|row| AssignedJob::from(&row.job)));
        }
        if let Some(known) = self.facts.get(&job) {
            return Ok(known.cloned());
        }
        self.read_set.facts.insert(job);
        self.unloaded()
    }

    fn insert_job(&mut self, job: &Job, lane: i64) -> Result<bool, Fault> {
        let is_new = !self.is_job_there(job.id)?;
        if is_new {
            self.jobs.put(job.id, JobRow { job: job.clone(), lane });
        }
        Ok(is_new)
    }

    fn update_job(&mut self, job: &Job, lane: i64) -> Result<(), Fault> {
        if self.job(job.id)?.is_some() {
            self.jobs.put(job.id, JobRow { job: job.clone(), lane });
        }
        Ok(())
    }

    fn set_mark(&mut self, job: JobId, mark: StoredStatus) -> Result<(), Fault> {
        self.lock(job)?;
        if let Some(mut row) = self.jobs.present(&job).cloned() {
            row.job.mark = mark;
            self.jobs.put(job, row);
        }
        if let Some(mut terms) = self.terms.present(&job).cloned() {
            terms.mark = mark;
            self.terms.put(job, terms);
        }
        Ok(())
    }

    fn set_numbered(&mut self, job: JobId, numbered: u32) -> Result<(), Fault> {
        self.number(job, numbered, None);
        Ok(())
    }

    fn keep_spent(&mut self, job: JobId, spent: Spent) -> Result<(), Fault> {
        self.number(job, spent.numbered, Some(spent));
        Ok(())
    }

    fn is_unfinished(&mut self, job: JobId) -> Result<bool, Fault> {
        self.lock(job)?;
        if self.schedules.present(&job).is_some() || !self.open.of_job(job).is_empty() {
            return Ok(true);
        }
        let has_schedule = self.need_schedule(job)?.is_some();
        self.need_open(job)?;
        Ok(has_schedule)
    }

    fn put_tags(&mut self, job: JobId, tags: &[String]) -> Result<(), Fault> {
        self.tags_put.entry(job).or_default().extend_from_slice(tags);
        Ok(())
    }

    fn forget_tags(&mut self, job: JobId) -> Result<(), Fault> {
        self.tags_put.remove(&job);
        self.tags_forgotten.insert(job);
        Ok(())
    }

    fn key_holder(&mut self, key: &JobKey) -> Result<Option<JobId>, Fault> {
        if let Some(known) = self.keys.get(key) {
            return Ok(known.copied());
        }
        self.read_set.keys.insert(key.clone());
        self.unloaded()
    }

    fn hold_key(&mut self, key: &JobKey, job: JobId) -> Result<(), Fault> {
        // The current holder decides whether the key is inserted or taken over.
        self.key_holder(key)?;
        self.keys.put(key.clone(), job);
        Ok(())
    }

    fn free_keys(&mut self, job: JobId) -> Result<(), Fault> {
        let held: Vec<JobKey> =
            self.keys.rows().filter(|(_, holder)| **holder == job).map(|(key, _)| key.clone()).collect();
        for key in held {
            self.keys.remove(key);
        }
        self.keys_freed.insert(job);
        Ok(())
    }

    fn schedule(&mut self, job: JobId) -> Result<Option<ScheduleRow>, Fault> {
        Ok(self.need_schedule(job)?.cloned())
    }

    fn put_schedule(&mut self, state: &ScheduleState, lane: i64) -> Result<(), Fault> {
        self.need_schedule(state.job)?;
        self.schedules.put(state.job, ScheduleRow { state: state.clone(), lane });
        Ok(())
    }

    fn advance_schedule(&mut self, next: &ScheduleState) -> Result<(), Fault> {
        self.advance(next)
    }

    fn delete_schedule(&mut self, job: JobId) -> Result<(), Fault> {
        self.need_schedule(job)?;
        self.schedules.remove(job);
        Ok(())
    }

    fn set_schedule_awaited(&mut self, job: JobId) -> Result<(), Fault> {
        let Some(mut row) = self.need_schedule(job)?.cloned() else { return Ok(()) };
        row.state.awaited = true;
        self.schedules.put(job, row);
        Ok(())
    }

    fn live(&mut self, id: OccurrenceId) -> Result<Option<LiveRow>, Fault> {
        Ok(self.need_live(id)?.cloned())
    }

    fn open_of_job(&mut self, job: JobId) -> Result<Vec<LiveRow>, Fault> {
        self.need_open(job)?;
        let open = self.open.of_job(job);
        let too_many = open.len().saturating_sub(limits::OPEN_OF_JOB_MAX);
        Ok(open.into_iter().skip(too_many).cloned().collect())
    }

    fn count_open(&mut self, job: JobId) -> Result<OpenCount, Fault> {
        self.need_open(job)?;
        Ok(counted(&self.open.of_job(job)))
    }

    fn first_behind(&mut self, job: JobId, gate: Gate) -> Result<Option<LiveRow>, Fault> {
        self.need_open(job)?;
        let waiting = self.open.of_job(job).into_iter().filter(|row| is_behind(row, gate));
        Ok(waiting.min_by_key(|row| (row.live.flags.replayed, row.live.id.number)).cloned())
    }

    fn has_open_not_waiting(&mut self, job: JobId) -> Result<bool, Fault> {
        self.need_open(job)?;
        Ok(self.open.of_job(job).into_iter().any(|row| !is_behind(row, Gate::Overlap)))
    }

    fn insert_live(&mut self, row: &LiveRow) -> Result<(), Fault> {
        self.open.put(row.clone());
        self.counters.opened(row.lane, &row.live);
        Ok(())
    }

    fn update_live(&mut self, was: &LiveRow, live: &Live) -> Result<(), Fault> {
        self.update_live_in_state(live)?;
        self.counters.moved((was.lane, &was.live), (was.lane, live));
        Ok(())
    }

    fn update_live_in_state(&mut self, live: &Live) -> Result<(), Fault> {
        let Some(row) = self.need_live(live.id)?.cloned() else { return Ok(()) };
        let before = row.live;
        let live = Live {
            priority: before.priority,
            scheduled_time: before.scheduled_time,
            origin: before.origin,
            expires_at: before.expires_at,
            flags: before.flags,
            ..live.clone()
        };
        self.open.put(LiveRow { live, ..row });
        Ok(())
    }

    fn replace_live(&mut self, was: &Live, row: &LiveRow) -> Result<(), Fault> {
        self.need_live(row.live.id)?;
        self.open.put(row.clone());
        self.counters.moved((row.lane, was), (row.lane, &row.live));
        Ok(())
    }

    fn delete_live(&mut self, row: &LiveRow) -> Result<(), Fault> {
        if self.need_live(row.live.id)?.is_some() {
            self.open.remove(row.live.id);
            self.counters.closed(row.lane, &row.live);
        }
        Ok(())
    }

    fn add_live_flags(&mut self, id: OccurrenceId, flags: OccurrenceFlags) -> Result<(), Fault> {
        if let Some(row) = self.need_live(id)?.cloned() {
            self.open.put(tied(row, flags));
        }
        Ok(())
    }

    fn add_flags_to_open(&mut self, job: JobId, flags: OccurrenceFlags) -> Result<(), Fault> {
        self.need_open(job)?;
        for row in cloned(self.open.of_job(job)) {
            self.open.put(tied(row, flags));
        }
        Ok(())
    }

    fn forget_sole(&mut self, job: JobId) -> Result<(), Fault> {
        self.need_open(job)?;
        for row in cloned(self.open.of_job(job)) {
            self.open.put(LiveRow { is_sole: false, ..row });
        }
        Ok(())
    }

    fn move_open_of_job(&mut self, job: JobId, lane: i64) -> Result<bool, Fault> {
        self.need_open(job)?;
        let open = cloned(self.open.of_job(job));
        let is_any = !open.is_empty();
        for row in open {
            self.counters.moved((row.lane, &row.live), (lane, &row.live));
            self.open.put(LiveRow { lane, ..row });
        }
        Ok(is_any)
    }

    fn lowest(&mut self, lanes: &[i64], count: usize) -> Result<Vec<OccurrenceId>, Fault> {
        match self.open.lowest(lanes, count) {
            Ok(lowest) => Ok(lowest),
            Err(short) => {
                self.read_set.add_claims(lanes, short.count, short.taken.saturating_add(short.count));
                self.unloaded()
            }
        }
    }

    fn claimable(&mut self, id: OccurrenceId) -> Result<Option<(LiveRow, AssignedJob)>, Fault> {
        let Some(row) = self.need_live(id)?.cloned() else { return Ok(None) };
        let lane = self.lane(row.lane)?;
        if !self.jobs.is_known(&id.job)
            && !self.facts.is_known(&id.job)
            && !self.read_set.facts.contains(&id.job)
        {
            // The claims after this one will need their own rows, but cannot name them before this one is
            // done.
            let (jobs, facts) = (&self.jobs, &self.facts);
            let is_unknown = |job: &JobId| !jobs.is_known(job) && !facts.is_known(job);
            self.read_set.facts.extend(self.open.claimable_jobs().filter(is_unknown));
        }
        Ok(self.facts_of(id.job, &lane)?.map(|facts| (row, facts)))
    }

    fn held_by(&mut self, session: SessionId, count: usize) -> Result<Vec<LiveRow>, Fault> {
        if self.opened.contains_key(&session) {
            let held = self.open.rows.rows().map(|(_, row)| row).filter(|row| is_held_by(row, session));
            return Ok(held.take(count).cloned().collect());
        }
        match self.open.held_by(session, count) {
            Ok(held) => Ok(held),
            Err(wanted) => {
                self.read_set.held_by.insert(session, wanted);
                self.unloaded()
            }
        }
    }

    fn cancels_of(&mut self, session: SessionId) -> Result<Vec<LeaseRef>, Fault> {
        let Some(fetched) = self.cancels.get(&session) else {
            self.read_set.cancels_of.insert(session);
            return self.unloaded();
        };
        let rows = self.open.rows.rows();
        let asked = rows.filter_map(|(_, row)| cancel_of(row, session));
        let unseen = fetched.iter().filter(|lease| !self.open.rows.is_known(&lease.execution.occurrence));
        let mut cancels: Vec<LeaseRef> = asked.chain(unseen.copied()).collect();
        cancels.sort_unstable();
        Ok(cancels)
    }

    fn append_history(&mut self, finished: &Finished, worker: Option<i64>) -> Result<(), Fault> {
        let Finished { id, epoch, session, status, .. } = finished;
        self.ended.put(*id, EndedAttempt { epoch: *epoch, session: *session, status: *status });
        self.history.push(EndedRow { finished: finished.clone(), worker });
        Ok(())
    }

    fn ended(&mut self, execution: ExecutionId) -> Result<Option<EndedAttempt>, Fault> {
        if let Some(known) = self.ended.get(&execution) {
            return Ok(known.copied());
        }
        self.read_set.ended.insert(execution);
        self.unloaded()
    }

    fn lengthen_skipped(&mut self, job: JobId, last: Timestamp, by: &SkipRange) -> Result<bool, Fault> {
        match self.skips.lengthen(job, last, by) {
            Some(is_lengthened) => Ok(is_lengthened),
            None => {
                self.read_set.skipped.insert((job, last, by.reason));
                self.unloaded()
            }
        }
    }

    fn insert_skipped(&mut self, job: JobId, range: &SkipRange) -> Result<(), Fault> {
        self.skips.insert(job, range);
        Ok(())
    }

    fn dead_letter(&mut self, id: OccurrenceId) -> Result<Option<DeadLetter>, Fault> {
        if let Some(known) = self.dead.get(&id).filter(|_| self.has_lock(id.job)) {
            return Ok(known.cloned());
        }
        self.read_set.dead_letters.insert(id);
        self.lock(id.job)?;
        self.unloaded()
    }

    fn latest_dead_letter(&mut self, job: JobId) -> Result<Option<DeadLetter>, Fault> {
        self.latest_of(job)
    }

    fn insert_dead_letter(&mut self, finished: &Finished, noted: bool, now: Timestamp) -> Result<(), Fault> {
        let id = finished.id.occurrence;
        // A dead letter that this transaction removed still exists in the database, and bulk deletes are
        // written last.
        self.is_tangled |= self.dead.before(&id).is_some() || self.dead_forgotten.contains(&id.job);
        self.dead.put(id, dead_letter_of(finished, noted, now));
        self.new_dead_letters.insert(id, NewDeadLetter { finished: finished.clone(), noted, died_at: now });
        self.counters.dead_letters(1);
        Ok(())
    }

    fn delete_dead_letter(&mut self, id: OccurrenceId) -> Result<bool, Fault> {
        let was_there = self.dead_letter(id)?.is_some();
        if was_there {
            self.new_dead_letters.remove(&id);
            self.dead.remove(id);
            self.counters.dead_letters(-1);
        }
        Ok(was_there)
    }

    fn forget_dead_letters(&mut self, job: JobId) -> Result<(), Fault> {
        let dead = self.dead_left(job)?;
        self.counters.dead_letters(-i64::try_from(dead.len()).unwrap_or(i64::MAX));
        for id in dead {
            self.new_dead_letters.remove(&id);
            self.dead.remove(id);
        }
        self.dead_forgotten.insert(job);
        Ok(())
    }

    fn insert_dependency(&mut self, parent: JobId, child: JobId) -> Result<(), Fault> {
        self.dependencies.insert(parent, child);
        Ok(())
    }

    fn delete_dependency(&mut self, parent: JobId, child: JobId) -> Result<(), Fault> {
        self.need_parents(child)?;
        if self.dependencies.parents(child).any(|known| known == parent) {
            self.dependencies.remove(parent, child);
        }
        Ok(())
    }

    fn has_parent(&mut self, child: JobId) -> Result<bool, Fault> {
        self.need_parents(child)?;
        Ok(self.dependencies.parents(child).next().is_some())
    }

    fn forget_parents(&mut self, child: JobId) -> Result<(), Fault> {
        self.dependencies.forget_parents(child);
        Ok(())
    }

    fn children(&mut self, parent: JobId, count: usize) -> Result<Vec<JobId>, Fault> {
        let known: Vec<JobId> = self.dependencies.children(parent).take(count).collect();
        if known.len() == count || self.dependencies.knows_children_of(parent) || self.is_new(parent) {
            return Ok(known);
        }
        self.read_set
            .children_of
            .insert(parent, count.saturating_add(self.dependencies.resolved_since(parent)));
        self.unloaded()
    }

    fn next_resolution(&mut self) -> Result<Option<(JobId, bool)>, Fault> {
        self.need_resolutions()?;
        // Each generation of children takes a round. If there were many, another transaction handles the
        // rest.
        let may_go_on = |parent: &JobId| !self.is_late || self.dependencies.knows_children_of(*parent);
        let next = self.dependencies.resolutions.rows().find(|(parent, _)| may_go_on(parent));
        Ok(next.map(|(parent, succeeded)| (*parent, *succeeded)))
    }

    fn insert_resolution(&mut self, parent: JobId, succeeded: bool) -> Result<(), Fault> {
        self.need_resolutions()?;
        if self.dependencies.resolutions.present(&parent).is_none() {
            self.dependencies.resolutions.put(parent, succeeded);
        }
        Ok(())
    }

    fn delete_resolution(&mut self, parent: JobId) -> Result<(), Fault> {
        self.dependencies.resolutions.remove(parent);
        Ok(())
    }

    fn last_note(&mut self, id: OccurrenceId) -> Result<Option<LastNote>, Fault> {
        if let Some(known) = self.notes.get(&id) {
            return Ok(known.copied());
        }
        self.read_set.last_notes.insert(id);
        self.unloaded()
    }

    fn checkpoint(&mut self, id: OccurrenceId) -> Result<Option<Checkpoint>, Fault> {
        if let Some(known) = self.checkpoints.get(&id) {
            return Ok(known.cloned());
        }
        self.read_set.checkpoints.insert(id);
        self.unloaded()
    }

    fn keep_note(&mut self, note: &Note, last: LastNote, now: Timestamp) -> Result<(), Fault> {
        self.note(note, last, now);
        Ok(())
    }

    fn forget_notes(&mut self, id: OccurrenceId) -> Result<(), Fault> {
        self.notes.remove(id);
        self.note_changes.remove(&id);
        self.checkpoints.remove(id);
        self.notes_forgotten.insert(id);
        Ok(())
    }

    fn forget_notes_of_job(&mut self, job: JobId) -> Result<(), Fault> {
        self.need_open(job)?;
        let noted: Vec<OccurrenceId> = self.note_changes.keys().copied().filter(|id| id.job == job).collect();
        for id in noted {
            if self.open.rows.present(&id).is_none() {
                self.forget_notes(id)?;
            }
        }
        self.notes_of_jobs_forgotten.insert(job);
        Ok(())
    }

    fn session(&mut self, session: SessionId) -> Result<Option<SessionPlace>, Fault> {
        Ok(self.need_session(session)?.filter(|found| !found.lost).map(|found| found.place))
    }

    fn insert_session(&mut self, opening: &SessionOpening, now: Timestamp) -> Result<SessionId, Fault> {
        self.open_session(opening, now)
    }

    fn set_turn(&mut self, session: SessionId, turn: u64) -> Result<(), Fault> {
        self.change_session(session, |found| found.place.turn = turn)
    }

    fn set_beat(&mut self, session: SessionId, beat: u64, now: Timestamp) -> Result<(), Fault> {
        self.change_session(session, |found| {
            found.place.beat = beat;
            found.beaten_at = now;
        })
    }

    fn set_mode(&mut self, session: SessionId, mode: SessionMode) -> Result<(), Fault> {
        self.change_session(session, |found| found.place.mode = mode)
    }

    fn set_attention(&mut self, session: SessionId, attention: bool) -> Result<(), Fault> {
        if attention && !self.sessions.is_known(&session) {
            // Its row is not worth a restart of the transaction, because nothing here reads it.
            self.attention.insert(session);
            return Ok(());
        }
        self.change_session(session, |found| found.place.attention = attention)
    }

    fn lose_session(&mut self, session: SessionId, beat: u64) -> Result<bool, Fault> {
        let Some(found) = self.need_session(session)?.cloned() else { return Ok(false) };
        if !found.lost && found.place.beat == beat {
            self.sessions.put(session, LoadedSession { lost: true, ..found });
            return Ok(true);
        }
        Ok(found.lost)
    }

    fn lose_embedded_sessions(&mut self) -> Result<usize, Fault> {
        if !self.has_embedded_sessions {
            self.read_set.embedded_sessions = true;
            return self.unloaded();
        }
        let rows = self.sessions.rows().map(|(_, found)| found);
        let losing: Vec<_> = rows.filter(|found| found.embedded && !found.lost).cloned().collect();
        let count = losing.len();
        for found in losing {
            self.sessions.put(found.id, LoadedSession { lost: true, ..found });
        }
        Ok(count)
    }

    fn lost_sessions(&mut self) -> Result<Vec<SessionId>, Fault> {
        if !self.has_lost_sessions {
            self.read_set.lost_sessions = true;
            return self.unloaded();
        }
        Ok(self.sessions.rows().filter(|(_, found)| found.lost).map(|(id, _)| *id).collect())
    }

    fn delete_session(&mut self, session: SessionId) -> Result<(), Fault> {
        self.need_session(session)?;
        self.sessions.remove(session);
        Ok(())
    }

    fn request(&mut self, key: &RequestKey) -> Result<Option<RequestRow>, Fault> {
        if let Some(known) = self.requests.get(key) {
            return Ok(known.cloned());
        }
        self.read_set.requests.insert(key.clone());
        self.unloaded()
    }

    fn insert_request(&mut self, request: &NewRequest, now: Timestamp) -> Result<(), Fault> {
        let NewRequest { request: key, fingerprint, seed } = request.clone();
        self.requests.put(key.clone(), RequestRow { fingerprint, begun_at: now, seed, answer: None });
        self.requests_inserted.insert(key, (request.clone(), now));
        Ok(())
    }

    fn answer_request(&mut self, key: &RequestKey, answer: &StoredAnswer) -> Result<(), Fault> {
        if let Some(row) = self.requests.present(key).cloned() {
            self.requests.put(key.clone(), RequestRow { answer: Some(answer.clone()), ..row });
        }
        self.requests_answered.insert(key.clone(), answer.clone());
        Ok(())
    }

    fn put_audit(&mut self, entry: &AuditEntry) -> Result<(), Fault> {
        self.audit.entry(entry.id).or_insert_with(|| entry.clone());
        Ok(())
    }
}
