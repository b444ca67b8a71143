//! The reads of the `Store` port over an in-memory database, as far as a simulated cluster uses them.

use super::MemoryDatabase;
use super::database::lease;
use crate::codes::{WaitedIn, held_queues, lines_to_look_at, read_line};
use crate::counters::{LaneCounts, LimiterCounts, shown};
use crate::rows::{JobKey, JobRow, KeyKind, LiveRow};
use crate::unit_of_work::EndedRow;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
use punctual_core::job::StoredStatus;
use punctual_core::limiter::{LimiterId, LimiterUse, WaitList};
use punctual_core::notes::{Checkpoint, Noted};
use punctual_core::occurrence::{Finished, LiveState};
use punctual_core::ports::{
    DeadLetter, DeadLetterQuery, Depth, Due, DueKind, ExecutionView, FinishedEvent, FinishedPage,
    HistorySpan, JobCounts, JobOwner, JobQuery, JobView, Lane, OPEN_IN_VIEW_MAX, OpenExecution, Page,
    PausedQueue, QueueRow, SessionRow, StoreError,
};
use punctual_core::schedule::SkipRange;
use punctual_core::session::Pulse;
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

/// Finished executions that are searched for the last to end.
const LATEST_LOOKED_AT: usize = 8;

impl MemoryDatabase {
    pub fn due(
        &mut self,
        segments: SegmentSet,
        until: Timestamp,
        count: usize,
    ) -> Result<Vec<Due>, StoreError> {
        let mut all = Vec::new();
        for segment in segments.iter() {
            let schedules = self.schedules.values().filter(|row| row.state.job.segment() == segment);
            let schedules = schedules.filter_map(|row| {
                let what = DueKind::Schedule { job: row.state.job, version: row.state.version };
                Some(Due { at: row.state.due_at?, lane: self.lane_of(row.lane), what })
            });
            let live = self.live.values().filter(|row| row.live.id.job.segment() == segment);
            let live = live.filter_map(|row| {
                let what = DueKind::Live { occurrence: row.live.id, attempt: row.live.attempt };
                Some(Due { at: row.live.look_at()?, lane: self.lane_of(row.lane), what })
            });
            for mut due in [schedules.collect::<Vec<_>>(), live.collect()] {
                due.retain(|due| due.at <= until);
                due.sort_by_key(|due| (due.at, due.what));
                due.truncate(count);
                all.extend(due);
            }
        }
        all.sort_by_key(|due| (due.at, due.what));
        Ok(all)
    }

    pub fn sessions(&mut self) -> Result<Vec<SessionRow>, StoreError> {
        let open = self.sessions.values().filter(|session| !session.lost);
        let row = |session: &crate::unit_of_work::LoadedSession| {
            let new = &self.openings[&session.id];
            let opening = new.opening.clone();
            SessionRow {
                pulse: Pulse { session: session.id, beat: session.place.beat, lease: opening.lease },
                worker: opening.worker,
                embedded: opening.embedded,
                job_types: opening.job_types,
                slots: opening.slots,
                about: opening.about,
                token: opening.token,
                condition: None,
                mode: session.place.mode,
                opened_at: new.opened_at,
                beaten_at: session.beaten_at,
            }
        };
        Ok(open.map(row).collect())
    }

    pub fn token_of_session(&mut self, session: SessionId) -> Result<Option<String>, StoreError> {
        let opening = self.sessions.get(&session).map(|session| &self.openings[&session.id].opening);
        Ok(opening.and_then(|opening| opening.token.clone()))
    }

    pub fn holdings(&mut self) -> Result<Vec<(SessionId, u64)>, StoreError> {
        let mut held: BTreeMap<SessionId, u64> = BTreeMap::new();
        for (session, _) in self.live.values().filter_map(lease) {
            *held.entry(session).or_default() += 1;
        }
        Ok(held.into_iter().collect())
    }

    pub fn job(&mut self, id: JobId) -> Result<Option<JobView>, StoreError> {
        let Some(row) = self.jobs.get(&id).filter(|row| row.job.mark != StoredStatus::Deleted) else {
            return Ok(None);
        };
        let open = self.live.range(id.occurrence(0)..=id.occurrence(u32::MAX)).rev();
        Ok(Some(JobView {
            job: row.job.clone(),
            schedule: self.schedules.get(&id).map(|row| row.state.clone()),
            open: open.take(OPEN_IN_VIEW_MAX).map(|(_, row)| row.live.clone()).collect(),
            last_finished: self
                .finished_of(id)
                .into_iter()
                .take(LATEST_LOOKED_AT)
                .max_by_key(|finished| (finished.completed_at, finished.id)),
        }))
    }

    /// The latest jobs; filters are not supported.
    pub fn jobs(&mut self, query: &JobQuery) -> Result<Page<JobView, JobId>, StoreError> {
        let is_before = |id: &JobId| query.before.is_none_or(|before| *id < before);
        let ids: Vec<JobId> = self.jobs.keys().rev().copied().filter(is_before).collect();
        let mut items = Vec::new();
        for id in ids {
            if items.len() == query.limit {
                let last = items.last().map(|view: &JobView| view.job.id);
                return Ok(Page { items, next: last });
            }
            items.extend(self.job(id)?);
        }
        Ok(Page { items, next: None })
    }

    pub fn named_job(&mut self, owner: &str, name: &str) -> Result<Option<JobId>, StoreError> {
        let key = JobKey { owner: owner.to_owned(), kind: KeyKind::Name, key: name.to_owned() };
        Ok(self.keys.get(&key).copied())
    }

    pub fn job_owners(&mut self, jobs: &[JobId]) -> Result<Vec<JobOwner>, StoreError> {
        let rows = jobs.iter().filter_map(|job| self.jobs.get(job));
        let owner = |row: &JobRow| {
            let (job, owner, lane) = (row.job.id, row.job.spec.owner.clone(), self.lane_of(row.lane));
            JobOwner { job, owner, lane }
        };
        Ok(rows.map(owner).collect())
    }

    pub fn history(
        &mut self,
        job: JobId,
        before: Option<ExecutionId>,
        count: usize,
    ) -> Result<Page<Finished, ExecutionId>, StoreError> {
        let mut items = self.finished_of(job);
        items.retain(|finished| before.is_none_or(|before| finished.id < before));
        let is_cut = items.len() > count;
        items.truncate(count);
        let next = items.last().filter(|_| is_cut).map(|finished| finished.id);
        Ok(Page { items, next })
    }

    pub fn execution(&mut self, id: ExecutionId) -> Result<Option<ExecutionView>, StoreError> {
        let job = self.jobs.get(&id.occurrence.job);
        if job.is_none_or(|row| row.job.mark == StoredStatus::Deleted) {
            return Ok(None);
        }
        if let Some(row) = self.live.get(&id.occurrence).filter(|row| row.live.attempt == id.attempt) {
            return Ok(Some(ExecutionView::Live { live: row.live.clone(), worker: self.worker_of(row) }));
        }
        let finished = self.finished_of(id.occurrence.job).into_iter().find(|finished| finished.id == id);
        Ok(finished.map(ExecutionView::Finished))
    }

    pub fn notes(&mut self, job: JobId, up_to: u32, count: usize) -> Result<Vec<Noted>, StoreError> {
        let notes = self.notes.range(job.occurrence(0)..=job.occurrence(up_to)).rev().take(count);
        let noted = |(id, note): (&OccurrenceId, &crate::unit_of_work::NoteChange)| Noted {
            occurrence: *id,
            attempt: note.attempt,
            progress: note.progress.clone().unwrap_or_default(),
            noted_at: note.noted_at,
            checkpoint_bytes: self.checkpoints.get(id).map(|checkpoint| checkpoint.as_json().len() as u64),
        };
        Ok(notes.map(noted).collect())
    }

    pub fn checkpoint(&mut self, occurrence: OccurrenceId) -> Result<Option<Checkpoint>, StoreError> {
        Ok(self.checkpoints.get(&occurrence).cloned())
    }

    pub fn skipped(&mut self, job: JobId, count: usize) -> Result<Vec<SkipRange>, StoreError> {
        let of_job = self.skipped.values().filter(|(of, _)| *of == job);
        let mut ranges: Vec<SkipRange> = of_job.map(|(_, range)| *range).collect();
        ranges.sort_by_key(|range| std::cmp::Reverse(range.last));
        ranges.truncate(count);
        Ok(ranges)
    }

    /// The latest dead letters; filters are not supported.
    pub fn dead_letters(&mut self, query: &DeadLetterQuery) -> Result<Page<DeadLetter, u64>, StoreError> {
        let mut items: Vec<DeadLetter> = self.dead.values().map(|letter| self.named_now(letter)).collect();
        items.retain(|letter| query.before.is_none_or(|before| letter.number < before));
        items.sort_by_key(|letter| std::cmp::Reverse(letter.number));
        let is_cut = items.len() > query.limit;
        items.truncate(query.limit);
        let next = items.last().filter(|_| is_cut).map(|letter| letter.number);
        Ok(Page { items, next })
    }

    pub fn queues(&mut self) -> Result<Vec<QueueRow>, StoreError> {
        Ok(self.queues.values().cloned().collect())
    }

    pub fn paused_queues(&mut self) -> Result<Vec<PausedQueue>, StoreError> {
        Ok(held_queues(self.queues()?))
    }

    pub fn waiting_lines(
        &mut self,
        after: Option<LimiterId>,
        count: usize,
    ) -> Result<Page<WaitList, LimiterId>, StoreError> {
        let mut waited: BTreeMap<LimiterId, i64> = BTreeMap::new();
        for row in self.live.values() {
            if let Some(line) = row.live.line.filter(|line| after.is_none_or(|after| *line > after)) {
                waited.entry(line).or_insert(row.lane);
            }
        }
        let mut lines = Vec::new();
        for (limiter, lane) in waited.iter().take(count) {
            lines.push(read_line(limiter.number(), &self.lane_of(*lane))?);
        }
        let last = waited.keys().take(count).next_back().filter(|_| waited.len() >= count);
        let waited_in = WaitedIn { lines, last: last.map(|limiter| limiter.number()) };
        Ok(lines_to_look_at(after, &self.queues()?, waited_in))
    }

    pub fn limiters(&mut self, lines: &[WaitList]) -> Result<Vec<LimiterUse>, StoreError> {
        let used = |line: &WaitList| {
            let LimiterCounts { waiting, in_use } =
                self.counts.limiters.get(&line.id()).copied().unwrap_or_default();
            let in_use = if line.key.is_none() { self.started(&line.queue) } else { in_use };
            let last_at = self.last_starts.get(&line.id()).copied();
            LimiterUse { waiting: shown(waiting), in_use: shown(in_use), last_at }
        };
        Ok(lines.iter().map(used).collect())
    }

    pub fn finished_after(&mut self, after: u64, count: usize) -> Result<FinishedPage, StoreError> {
        let mut page = FinishedPage { items: vec![], looked_to: after, more: false };
        for (place, row) in self.history.range(after + 1..).take(count) {
            page.looked_to = *place;
            let job = self.jobs.get(&row.finished.id.occurrence.job);
            page.items.extend(job.map(|job| FinishedEvent {
                place: *place,
                queue: job.job.spec.queue.clone(),
                finished: self.finished(row),
            }));
        }
        page.more = self.history.range(after + 1..).nth(count.saturating_sub(1)).is_some();
        Ok(page)
    }

    pub fn history_span(&mut self) -> Result<HistorySpan, StoreError> {
        Ok(HistorySpan { begins_after: self.history_retained, ends_at: self.history_given })
    }

    pub fn open_executions(&mut self, ids: &[OccurrenceId]) -> Result<Vec<OpenExecution>, StoreError> {
        let rows = ids.iter().filter_map(|id| self.live.get(id));
        let open = rows.map(|row| {
            let lane = self.lane_of(row.lane);
            OpenExecution {
                live: row.live.clone(),
                worker: self.worker_of(row),
                queue: lane.queue().to_owned(),
                job_type: lane.job_type().to_owned(),
            }
        });
        Ok(open.collect())
    }

    pub fn depths(&mut self) -> Result<Vec<Depth>, StoreError> {
        let depth = |(lane, counts): (&i64, &LaneCounts)| {
            let queued =
                self.live.values().filter(|row| row.lane == *lane && row.live.state == LiveState::Queued);
            counts.depth(self.lane_of(*lane), queued.map(|row| row.live.available_at).min())
        };
        Ok(self.counts.lanes.iter().map(depth).collect())
    }

    pub fn job_counts(&mut self) -> Result<JobCounts, StoreError> {
        Ok(self.counts.jobs.shown())
    }

    fn lane_of(&self, number: i64) -> Lane {
        self.lanes[number as usize - 1].clone()
    }

    fn worker_of(&self, row: &LiveRow) -> Option<String> {
        let (session, _) = lease(row)?;
        Some(self.openings.get(&session)?.opening.worker.clone())
    }

    fn finished(&self, row: &EndedRow) -> Finished {
        let worker = row.worker.map(|worker| self.workers[worker as usize - 1].clone());
        Finished { worker, ..row.finished.clone() }
    }

    /// The finished executions of a job, latest occurrence and attempt first.
    fn finished_of(&self, job: JobId) -> Vec<Finished> {
        let of_job = self.history.values().filter(|row| row.finished.id.occurrence.job == job);
        let mut finished: Vec<Finished> = of_job.map(|row| self.finished(row)).collect();
        finished.sort_by_key(|finished| std::cmp::Reverse(finished.id));
        finished
    }

    /// A dead letter shows the current names of its job.
    fn named_now(&self, letter: &DeadLetter) -> DeadLetter {
        let spec = &self.jobs[&letter.occurrence.job].job.spec;
        let (job_name, job_type, queue) = (spec.name.clone(), spec.job_type.clone(), spec.queue.clone());
        DeadLetter { job_name, job_type, queue, ..letter.clone() }
    }
}
