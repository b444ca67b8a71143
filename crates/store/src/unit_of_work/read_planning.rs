//! The rows that each verb certainly needs, and how read sets are merged.

use super::memory::Remembered;
use super::read_set::{ReadSet, RequestedClaims};
use crate::verbs::keys_of;
use punctual_core::control::Verb;
use punctual_core::ids::{JobId, SessionId};
use punctual_core::lifecycle::Ending;
use punctual_core::limiter::{LimiterId, WaitList};
use punctual_core::limits;
use punctual_core::ports::{Claim, Control, FireRequest, LookRequest, NewJob, Pausing, Report, Write};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

/// The kinds of rows that are locked, in the order in which every transaction locks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum LockStage {
    #[default]
    Nothing,
    Sessions,
    Jobs,
    Schedules,
    Open,
    /// Queues whose limits the transaction uses.
    Queues,
}

impl ReadSet {
    /// The rows that these writes will need, as far as that is known before anything is read.
    pub fn of<'w>(writes: impl IntoIterator<Item = &'w Write>, remembered: &Remembered) -> Self {
        let mut read_set = ReadSet::default();
        for write in writes {
            read_set.add_write(write, remembered);
        }
        read_set
    }

    fn add_write(&mut self, write: &Write, remembered: &Remembered) {
        match write {
            Write::Submit { jobs, .. } => jobs.iter().for_each(|new| self.add_submit(new, remembered)),
            Write::Fire { fires, .. } => fires.iter().for_each(|fire| self.add_fire(fire)),
            Write::Look { looks, .. } => looks.iter().for_each(|look| self.add_look(look, remembered)),
            Write::Claim { now, claims } => {
                claims.iter().for_each(|claim| self.add_claim(claim, *now, remembered));
            }
            Write::Report { reports, .. } => {
                reports.iter().for_each(|report| self.add_report(report, remembered));
            }
            Write::Note { notes, .. } => {
                for note in notes {
                    let id = note.lease.execution.occurrence;
                    self.live.insert(id);
                    self.last_notes.insert(id);
                }
            }
            Write::GiveBack { leases, .. } => {
                for lease in leases {
                    let id = lease.execution.occurrence;
                    self.terms.insert(id.job);
                    self.live.insert(id);
                }
            }
            Write::Resync { resync, .. } => self.add_all_held(resync.session),
            Write::CloseSession { session, .. } => self.add_all_held(*session),
            Write::OpenSession { opening, .. } => {
                self.workers.insert(opening.worker.clone());
                self.new_sessions += 1;
            }
            Write::Beat { beats, .. } => self.sessions.extend(beats.iter().map(|beat| beat.session)),
            Write::LoseSessions { silent, .. } => {
                self.sessions.extend(silent.iter().map(|pulse| pulse.session));
            }
            Write::LoseEmbeddedSessions { .. } => self.embedded_sessions = true,
            Write::Recover { .. } => self.lost_sessions = true,
            Write::OrderSession { session, .. } => {
                self.sessions.insert(*session);
            }
            Write::Resolve { .. } => self.resolutions = true,
            Write::Control { controls, .. } => controls.iter().for_each(|control| self.add_control(control)),
            Write::Cancel { executions, .. } => {
                for execution in executions {
                    self.add_job_as_a_whole(execution.occurrence.job);
                    self.live.insert(execution.occurrence);
                }
            }
            Write::Redrive { dead, .. } => {
                self.queues = true;
                for id in dead {
                    self.add_standing(id.job);
                    self.dead_letters.insert(*id);
                }
            }
            Write::Discard { dead } => {
                for id in dead {
                    self.terms.insert(id.job);
                    self.dead_letters.insert(*id);
                }
            }
            Write::PauseQueue { queue, pausing, .. } => {
                self.queues = true;
                if *pausing == Pausing::Resume {
                    self.queued_lanes_of.insert(queue.clone());
                }
                // Re-admission writes the same row.
                self.limited_queues.insert(queue.clone());
            }
            Write::SetQueue { queue, .. } => {
                self.queues = true;
                self.add_limiter(&WaitList::of_queue(queue));
            }
            Write::Admit { lines, .. } => {
                self.queues = true;
                lines.iter().for_each(|line| self.add_limiter(line));
            }
            Write::BeginRequest { request, .. } => {
                self.requests.insert(request.request.clone());
            }
            Write::AnswerRequest { .. } => {}
            Write::Audited { write, .. } => self.add_write(write, remembered),
        }
    }

    fn add_submit(&mut self, NewJob { job, reservation }: &NewJob, remembered: &Remembered) {
        let spec = &job.spec;
        self.lanes.insert((spec.queue.clone(), spec.job_type.clone()));
        self.sessions.extend(reservation.map(|reservation| reservation.session));
        self.terms.insert(job.id);
        self.queues = true;
        self.keys.extend(keys_of(job));
        for parent in &spec.settings.depends_on {
            self.add_job_as_a_whole(*parent);
        }
        if let Some(limits) = remembered.queues.get(&spec.queue).map(|row| &row.settings.limits) {
            let key = spec.settings.concurrency_key.as_deref().filter(|_| !limits.of_key().is_none());
            let key = key.map(|key| LimiterId::of_key(&spec.queue, key));
            if !limits.of_queue().is_none() {
                self.add_limiter(&WaitList::of_queue(&spec.queue));
            }
            if key.is_some() {
                self.add_limiter(&WaitList { queue: spec.queue.clone(), key });
            }
        }
        let is_bounded = |row: &punctual_core::ports::QueueRow| row.settings.max_depth.is_some();
        if remembered.queues.get(&spec.queue).is_some_and(is_bounded) {
            self.unstarted.insert(spec.queue.clone());
        }
    }

    /// The open occurrences of the job follow in a second round, if the schedule still has this version. A
    /// fire that came too late must not lock what the other one has just queued, or a claim would skip it.
    fn add_fire(&mut self, fire: &FireRequest) {
        self.terms.insert(fire.job);
        self.schedules.insert(fire.job);
        self.queues = true;
        if let Some(reservation) = fire.reservation {
            self.sessions.insert(reservation.session);
            self.facts.insert(fire.job);
        }
    }

    fn add_look(&mut self, look: &LookRequest, remembered: &Remembered) {
        self.live.insert(look.occurrence);
        self.queues = true;
        // If keys are limited, its key must be known; its queue is not known yet.
        if remembered.queues.values().any(|row| !row.settings.limits.of_key().is_none()) {
            self.terms.insert(look.occurrence.job);
        }
        if let Some((reservation, _)) = &look.reservation {
            self.sessions.insert(reservation.session);
            self.facts.insert(look.occurrence.job);
        }
    }

    /// The use of a limiter, under the lock of its queue.
    pub fn add_limiter(&mut self, line: &WaitList) {
        self.limited_queues.insert(line.queue.clone());
        self.limiters.insert(line.id());
    }

    fn add_claim(&mut self, claim: &Claim, now: Timestamp, remembered: &Remembered) {
        self.sessions.insert(claim.session);
        self.queues = true;
        self.lanes_to_ask |= remembered.asked.is_outdated(now);
        let is_open = |number: &i64| {
            let lane = remembered.lane(*number);
            let row = lane.and_then(|lane| remembered.queues.get(lane.queue()));
            row.is_none_or(|row| row.paused_at.is_none())
        };
        let lanes = remembered.asked.matching(&claim.queues, &claim.job_types);
        let lanes: Vec<i64> = lanes.into_iter().filter(is_open).collect();
        let count = claim.limit.min(limits::POLL_CAPACITY_MAX);
        // Two claims over the same lanes take different executions.
        self.add_claims(&lanes, count, count);
    }

    /// Requests this many executions of these lanes in addition to those already requested, or `first` if
    /// none are.
    pub fn add_claims(&mut self, lanes: &[i64], more: usize, first: usize) {
        if more == 0 || lanes.is_empty() {
            return;
        }
        match self.claims.iter_mut().find(|wanted| wanted.lanes == lanes) {
            Some(wanted) => wanted.count = wanted.count.saturating_add(more),
            None => self.claims.push(RequestedClaims { lanes: lanes.to_vec(), count: first }),
        }
    }

    fn add_report(&mut self, report: &Report, remembered: &Remembered) {
        let id = report.lease.execution.occurrence;
        self.live.insert(id);
        if report.end.ending != Ending::Succeeded {
            self.add_job_as_a_whole(id.job);
        }
        if !remembered.workers.contains_key(&report.session) {
            self.sessions.insert(report.session);
        }
    }

    fn add_control(&mut self, Control { job, verb }: &Control) {
        self.add_standing(*job);
        self.queues = true;
        match verb {
            Verb::Update(update) => {
                self.lanes.insert((update.spec.queue.clone(), update.spec.job_type.clone()));
            }
            Verb::Retry => {
                self.latest_dead_letters.insert(*job);
            }
            Verb::Delete => {
                self.dead_of_jobs.insert(*job);
            }
            Verb::Pause
            | Verb::Resume
            | Verb::Trigger { .. }
            | Verb::SkipNext(_)
            | Verb::RunNextAt { .. }
            | Verb::Backfill(_)
            | Verb::TriggerAfter(_)
            | Verb::Cancel
            | Verb::Retime
            | Verb::Reseal(_) => {}
        }
    }

    fn add_all_held(&mut self, session: SessionId) {
        self.sessions.insert(session);
        self.held_by.insert(session, usize::MAX);
    }

    /// The wide row of a job, and all its open and future occurrences.
    fn add_standing(&mut self, job: JobId) {
        self.jobs.insert(job);
        self.schedules.insert(job);
        self.open_of_jobs.insert(job);
    }

    /// All open and future occurrences of a job, under the lock of its row.
    pub fn add_job_as_a_whole(&mut self, job: JobId) {
        self.terms.insert(job);
        self.schedules.insert(job);
        self.open_of_jobs.insert(job);
    }

    /// Merges another read set. Of two limits the higher one counts.
    pub fn merge(&mut self, other: ReadSet) {
        self.lanes.extend(other.lanes);
        self.lane_numbers.extend(other.lane_numbers);
        self.lanes_to_ask |= other.lanes_to_ask;
        self.held_lanes.extend(other.held_lanes);
        self.workers.extend(other.workers);
        self.new_sessions = self.new_sessions.max(other.new_sessions);
        self.sessions.extend(other.sessions);
        self.lost_sessions |= other.lost_sessions;
        self.embedded_sessions |= other.embedded_sessions;
        self.jobs.extend(other.jobs);
        self.terms.extend(other.terms);
        self.schedules.extend(other.schedules);
        self.live.extend(other.live);
        self.open_of_jobs.extend(other.open_of_jobs);
        merge_counts(&mut self.held_by, other.held_by);
        for claims in other.claims {
            match self.claims.iter_mut().find(|wanted| wanted.lanes == claims.lanes) {
                Some(wanted) => wanted.count = wanted.count.max(claims.count),
                None => self.claims.push(claims),
            }
        }
        self.facts.extend(other.facts);
        self.cancels_of.extend(other.cancels_of);
        self.queues |= other.queues;
        self.limited_queues.extend(other.limited_queues);
        self.limiters.extend(other.limiters);
        merge_counts(&mut self.lines, other.lines);
        merge_counts(&mut self.last_queued, other.last_queued);
        self.queued_lanes_of.extend(other.queued_lanes_of);
        self.unstarted.extend(other.unstarted);
        self.ended.extend(other.ended);
        self.skipped.extend(other.skipped);
        self.dead_letters.extend(other.dead_letters);
        self.latest_dead_letters.extend(other.latest_dead_letters);
        self.dead_of_jobs.extend(other.dead_of_jobs);
        self.keys.extend(other.keys);
        self.parents_of.extend(other.parents_of);
        merge_counts(&mut self.children_of, other.children_of);
        self.resolutions |= other.resolutions;
        self.last_notes.extend(other.last_notes);
        self.checkpoints.extend(other.checkpoints);
        self.requests.extend(other.requests);
    }

    /// Whether names are requested, which are created before the transaction.
    pub(super) fn has_names(&self) -> bool {
        !self.lanes.is_empty()
            || !self.lane_numbers.is_empty()
            || self.lanes_to_ask
            || !self.workers.is_empty()
            || self.new_sessions > 0
    }

    /// The same read set without the names.
    pub(super) fn without_names(&self) -> ReadSet {
        ReadSet {
            lanes: Default::default(),
            lane_numbers: Default::default(),
            lanes_to_ask: false,
            workers: Default::default(),
            new_sessions: 0,
            ..self.clone()
        }
    }

    fn stages(&self) -> impl Iterator<Item = LockStage> {
        let sessions = !self.sessions.is_empty() || self.lost_sessions || self.embedded_sessions;
        let jobs = !self.jobs.is_empty() || !self.terms.is_empty();
        let open = !self.live.is_empty()
            || !self.open_of_jobs.is_empty()
            || !self.held_by.is_empty()
            || !self.claims.is_empty();
        let stages = [
            (LockStage::Sessions, sessions),
            (LockStage::Jobs, jobs),
            (LockStage::Schedules, !self.schedules.is_empty()),
            (LockStage::Open, open),
            (LockStage::Queues, !self.limited_queues.is_empty()),
        ];
        stages.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(stage, _)| stage)
    }

    /// The first kind of rows that this read set locks.
    pub(super) fn first_stage(&self) -> Option<LockStage> {
        self.stages().next()
    }

    pub(super) fn last_stage(&self) -> Option<LockStage> {
        self.stages().last()
    }

    pub(super) fn locks_jobs(&self) -> bool {
        self.stages().any(|stage| stage == LockStage::Jobs)
    }
}

fn merge_counts<K: Ord>(counts: &mut BTreeMap<K, usize>, others: BTreeMap<K, usize>) {
    for (key, other) in others {
        let count = counts.entry(key).or_default();
        *count = other.max(*count);
    }
}
