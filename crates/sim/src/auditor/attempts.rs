//! Leases and outcomes: one lease at a time, rising epochs, one accepted outcome per attempt, every retry
//! that is owed, and no more retries than requested.

use super::attempt_rules::{backoff_ms, chosen_time, is_final, retry_time_in, serves, status_of, timeout_ns};
use super::firing::answers_each;
use super::runs::RunEnd;
use super::shares::goes_before;
use super::{AuditResult, AuditViolation, Auditor, FinishedAttempt, OccurrenceState, SessionState, rule};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::{Epoch, ExecutionId, OccurrenceId, SessionId};
use punctual_core::job::StoredStatus;
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::ReportedEnd;
use punctual_core::ports::{
    Assignment, Claim, ClaimOutcome, CommitEffects, LeaseRef, Recovered, Report, ReportAnswer, ReportOutcome,
};
use punctual_core::schedule::SkipReason;
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;

/// How often a claim repeats its scan because executions that it found had expired.
const EXPIRED_ROUNDS_MAX: usize = 8;

/// How an attempt ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttemptEnd {
    pub status: Status,
    pub session: Option<SessionId>,
    pub reason: Option<SkipReason>,
    pub completed_at: Timestamp,
    /// Whether a dead letter is left.
    pub dead: bool,
}

impl AttemptEnd {
    pub fn unstarted(status: Status, at: Timestamp) -> Self {
        AttemptEnd { status, session: None, reason: None, completed_at: at, dead: false }
    }
}

impl Auditor {
    pub fn claimed(&mut self, now: Timestamp, claims: &[Claim], outcomes: &[ClaimOutcome]) -> AuditResult {
        self.not_ahead(now)?;
        answers_each("claim", claims.len(), outcomes.len())?;
        for (claim, outcome) in claims.iter().zip(outcomes) {
            let session = self.session_mut(claim.session)?;
            let (live, turn) = (session.state == SessionState::Live, session.turn);
            let gets_work = session.mode == SessionMode::Open;
            match outcome {
                ClaimOutcome::Claimed { assignments, effects } => {
                    rule!(live, "only a live session is given work", "session {}", claim.session);
                    if !gets_work {
                        self.claimed_nothing(claim, outcome)?;
                        continue;
                    }
                    self.claimed_one(claim, assignments, effects)?;
                }
                ClaimOutcome::StaleTurn => {
                    rule!(
                        live && claim.turn <= turn,
                        "a poll sequence number is stale only after it was used",
                        "session {} polled with sequence number {} after {turn}",
                        claim.session,
                        claim.turn
                    );
                    self.count("duplicate polls refused");
                }
                ClaimOutcome::SessionLost => {
                    rule!(!live, "a live session is not called lost", "session {}", claim.session);
                }
            }
        }
        Ok(())
    }

    fn claimed_one(
        &mut self,
        claim: &Claim,
        assignments: &[Assignment],
        effects: &CommitEffects,
    ) -> AuditResult {
        let expired = self.expired_at_claim(claim, effects)?;
        rule!(
            assignments.len() <= claim.limit,
            "a claim keeps to its limit",
            "{} for a limit of {}",
            assignments.len(),
            claim.limit
        );
        for assignment in assignments {
            rule!(
                serves(claim, &self.lane(assignment.execution.occurrence.job)?),
                "a worker gets only work that it serves",
                "{} to session {}",
                assignment.execution,
                claim.session
            );
            self.granted(claim.session, claim.turn, assignment)?;
        }
        if self.is_overlapping {
            // It skips rows that others have locked, and does not know lanes that are new.
            return Ok(());
        }
        if expired == 0 {
            self.goes_by_rank(claim, assignments)?;
        }
        if assignments.len() < claim.limit && expired < EXPIRED_ROUNDS_MAX {
            for id in &self.queued {
                let lane = self.lane(id.job)?;
                rule!(
                    !serves(claim, &lane) || self.is_paused(&lane),
                    "a claim returns all claimable work that it has room for",
                    "{id} is queued, but session {} with room for {} got only {}",
                    claim.session,
                    claim.limit,
                    assignments.len()
                );
            }
        }
        Ok(())
    }

    /// Ends the executions that a claim found expired; returns how many.
    fn expired_at_claim(&mut self, claim: &Claim, effects: &CommitEffects) -> Result<usize, AuditViolation> {
        for (execution, status) in &effects.ended {
            let id = execution.occurrence;
            // Other executions may have been skipped because of these.
            if *status != Status::Expired {
                continue;
            }
            let lane = self.lane(id.job)?;
            let occurrence = self.occurrence(id)?;
            rule!(
                occurrence.state == OccurrenceState::Queued
                    && occurrence.is_expired(self.at)
                    && serves(claim, &lane),
                "a claim expires only executions that it could have claimed",
                "{execution} of {lane:?} was {:?} and expires at {:?}",
                occurrence.state,
                occurrence.expires_at
            );
            self.expire(id)?;
            self.count("expiries found by a claim");
        }
        self.announced(effects)?;
        Ok(effects.ended.len())
    }

    /// Work is claimed by rank: each execution before the next, and all before those that remain.
    fn goes_by_rank(&self, claim: &Claim, assignments: &[Assignment]) -> AuditResult {
        let place = |id: OccurrenceId| self.occurrence(id).map(|one| (id.attempt(one.attempt), one.place));
        let mut handed_out = vec![];
        for assignment in assignments {
            handed_out.push(place(assignment.execution.occurrence)?);
        }
        for (earlier, later) in handed_out.iter().zip(handed_out.iter().skip(1)) {
            goes_before(*earlier, *later)?;
        }
        for id in &self.queued {
            let lane = self.lane(id.job)?;
            if serves(claim, &lane) && !self.is_paused(&lane) {
                let stays = place(*id)?;
                handed_out.iter().try_for_each(|goes| goes_before(*goes, stays))?;
            }
        }
        Ok(())
    }

    /// One execution is leased to one session.
    pub(super) fn granted(
        &mut self,
        session_id: SessionId,
        turn: u64,
        assignment: &Assignment,
    ) -> AuditResult {
        let (call, true_now) = (self.call, self.now);
        let session = self.session_mut(session_id)?;
        rule!(
            session.state == SessionState::Live,
            "only a live session is given work",
            "session {session_id} is {:?} and was given {}",
            session.state,
            assignment.execution
        );
        rule!(
            session.mode == SessionMode::Open,
            "a session that is paused or drains is given nothing",
            "session {session_id} is {:?} and was given {}",
            session.mode,
            assignment.execution
        );
        let same_call = session.turn == turn && session.turn_call == call;
        rule!(
            turn > session.turn || same_call,
            "a poll sequence number is granted once, in order",
            "session {session_id} was given {} for sequence number {turn}, but has used {}",
            assignment.execution,
            session.turn
        );
        (session.turn, session.turn_call) = (turn, call);
        self.granted_for_poll(session_id, turn, assignment)?;
        self.may_be_taken_over(session_id, assignment.lease());

        let (execution, id) = (assignment.execution, assignment.execution.occurrence);
        self.may_start(execution, session_id)?;
        self.comes_with_checkpoint(assignment)?;
        let at = self.at;
        let version = self.job(id.job)?.version();
        let (occurrence, spec) = self.occurrence_mut(id)?;
        rule!(
            assignment.epoch == Epoch(occurrence.epoch.0 + 1),
            "every lease raises the epoch by one",
            "{execution} went from {:?} to {:?}",
            occurrence.epoch,
            assignment.epoch
        );
        rule!(
            assignment.scheduled_time == occurrence.scheduled_time
                && assignment.available_at == occurrence.available_at
                && occurrence.place.is_at(assignment.rank)
                && assignment.payload == spec.payload
                && assignment.timeout.as_nanos() == timeout_ns(&spec.settings, occurrence.charged)
                && assignment.job_type == spec.job_type
                && assignment.queue == spec.queue
                && assignment.name == spec.name
                && assignment.job_version == version,
            "an assignment matches its job",
            "{assignment:?} for {spec:?} in version {version}, {occurrence:?}"
        );
        rule!(assignment.available_at <= true_now, "nothing is leased before it may start", "{assignment:?}");
        occurrence.epoch = assignment.epoch;
        occurrence.job_version = version;
        let claimed_at = at.max(occurrence.available_at);
        occurrence.state =
            OccurrenceState::Running { session: session_id, claimed_at, is_asked_to_stop: false };
        self.queued.remove(&id);
        self.running.insert(id);
        self.grants.insert((execution, assignment.epoch), session_id);
        self.count("leases granted");
        Ok(())
    }

    /// No gate or pause prevents the execution from starting.
    fn may_start(&self, execution: ExecutionId, session: SessionId) -> AuditResult {
        let id = execution.occurrence;
        let (job, occurrence) = (self.job(id.job)?, self.occurrence(id)?);
        rule!(
            job.mark != StoredStatus::Paused || occurrence.is_exempt,
            "nothing of a paused job starts except executions that were triggered meanwhile",
            "{execution} was leased to session {session}: {occurrence:?}"
        );
        rule!(
            !matches!(job.mark, StoredStatus::Cancelled | StoredStatus::Deleted),
            "nothing of a cancelled job starts",
            "{execution} was leased to session {session}, its job is {:?}",
            job.mark
        );
        self.parents_have_succeeded(id.job, occurrence.origin)?;
        rule!(
            occurrence.wait_list.is_none(),
            "nothing starts while it is on a wait list",
            "{execution} was leased to session {session} while it waits for {:?}",
            occurrence.wait_list
        );
        rule!(
            occurrence.state == OccurrenceState::Queued,
            "only a queued execution is leased, so never two leases live",
            "{execution} was leased to session {session} while it was {:?}",
            occurrence.state
        );
        rule!(
            !occurrence.is_expired(self.at),
            "nothing starts after its expiry",
            "{execution} expired at {:?} and was leased at {}",
            occurrence.expires_at,
            self.at
        );
        let lane = self.lane(id.job)?;
        rule!(
            !self.is_paused(&lane) || self.may_miss_pause(&lane),
            "nothing of a paused queue is claimed",
            "{execution} was leased to session {session}"
        );
        rule!(
            occurrence.attempt == execution.attempt,
            "attempts are numbered 1, 2, 3",
            "{execution} was leased when attempt {} is due",
            occurrence.attempt
        );
        self.runs_alone(id)
    }

    pub fn reported(
        &mut self,
        now: Timestamp,
        reports: &[Report],
        outcomes: &[ReportOutcome],
    ) -> AuditResult {
        self.not_ahead(now)?;
        answers_each("report", reports.len(), outcomes.len())?;
        for (report, outcome) in reports.iter().zip(outcomes) {
            let LeaseRef { execution, epoch } = report.lease;
            let holds = self.holds(report.session, report.lease)?;
            let (occurrence, _) = self.occurrence_mut(execution.occurrence)?;
            let settled = occurrence.finished.get(execution.attempt as usize - 1).is_some_and(|finished| {
                !finished.is_forgotten
                    && finished.epoch == epoch
                    && finished.session == Some(report.session)
                    && finished.status != Status::Lost
            });
            let settled = settled && !self.job(execution.occurrence.job)?.is_purged;
            let occurrence = self.occurrence(execution.occurrence)?;
            let expected = match (holds, settled) {
                (true, _) => ReportAnswer::Accepted,
                (false, true) => ReportAnswer::AlreadyAccepted,
                (false, false) => ReportAnswer::Stale,
            };
            rule!(
                outcome.answer == expected,
                "a report counts once, and only from the holder of the lease",
                "session {} reported {execution} {epoch:?} as {:?}: expected {expected:?}, got {:?}; \
                 the occurrence is {:?} in attempt {} {:?}",
                report.session,
                report.end.ending,
                outcome.answer,
                occurrence.state,
                occurrence.attempt,
                occurrence.epoch
            );
            match expected {
                ReportAnswer::Accepted => self.accepted(report, outcome)?,
                ReportAnswer::AlreadyAccepted => self.count("repeated reports recognised"),
                ReportAnswer::Stale => self.count("stale reports refused"),
            }
        }
        Ok(())
    }

    fn accepted(&mut self, report: &Report, outcome: &ReportOutcome) -> AuditResult {
        let LeaseRef { execution, epoch } = report.lease;
        let run = self.runs.get(&(execution, epoch));
        let run_end = run.and_then(|run| run.end);
        let is_drained_by_order =
            self.sessions.get(&report.session).is_some_and(|one| one.mode == SessionMode::Draining);
        let cut_short = is_drained_by_order || run.is_some_and(|run| self.is_draining(run.node));
        let id = execution.occurrence;
        let state = self.occurrence(id)?.state;
        let is_asked_to_stop = matches!(state, OccurrenceState::Running { is_asked_to_stop: true, .. });
        let truthful = match report.end.ending {
            Ending::Succeeded => run_end == Some(RunEnd::Succeeded),
            Ending::Failed => run_end == Some(RunEnd::Failed),
            Ending::Snoozed => run_end == Some(RunEnd::Snoozed),
            Ending::TimedOut => run_end == Some(RunEnd::Dropped),
            // A draining worker stops handlers that take too long.
            Ending::Lost => run_end == Some(RunEnd::Dropped) && cut_short,
            // It was stopped, or had not been started.
            Ending::Cancelled => is_asked_to_stop && (run.is_none() || run_end == Some(RunEnd::Dropped)),
        };
        rule!(
            truthful,
            "an accepted outcome is that of a physical run",
            "{execution} {epoch:?} was reported as {:?}, its run ended as {run_end:?}",
            report.end.ending
        );
        let recorded = if is_asked_to_stop { Status::Cancelled } else { status_of(report.end.ending) };
        rule!(
            outcome.recorded == Some(recorded),
            "the answer says which status was recorded",
            "{execution} was answered as {:?}, recorded is {recorded:?}",
            outcome.recorded
        );
        let is_retried = self.settle(id, &report.end, &outcome.effects)?;
        rule!(
            outcome.is_retried == is_retried,
            "a retry that is owed happens, and no other",
            "{execution} was reported as {:?}, answered {outcome:?}, but is_retried is {is_retried}",
            report.end
        );
        if is_retried && report.end.ending == Ending::Lost {
            self.count("runs cut short by a drain");
        }
        self.announced(&outcome.effects)
    }

    pub fn given_back(
        &mut self,
        now: Timestamp,
        session: SessionId,
        leases: &[LeaseRef],
        outcomes: &[Option<CommitEffects>],
    ) -> AuditResult {
        self.not_ahead(now)?;
        answers_each("give_back", leases.len(), outcomes.len())?;
        for (lease, outcome) in leases.iter().zip(outcomes) {
            let is_held = self.holds(session, *lease)?;
            rule!(
                outcome.is_some() == is_held,
                "a lease is returned once, by its holder",
                "session {session} returned {lease:?}, held is {is_held}, answered was {outcome:?}"
            );
            if let Some(effects) = outcome {
                self.unstart(lease.execution.occurrence)?;
                self.announced(effects)?;
            }
        }
        Ok(())
    }

    /// Returns a leased execution to its queue, or ends it if a stop was requested; it must not have run
    /// under this lease.
    pub(super) fn unstart(&mut self, id: OccurrenceId) -> AuditResult {
        let at = self.at;
        let is_paused = self.job(id.job)?.mark == StoredStatus::Paused;
        let (occurrence, _) = self.occurrence_mut(id)?;
        let lease = (id.attempt(occurrence.attempt), occurrence.epoch);
        let state = occurrence.state;
        rule!(
            !self.runs.contains_key(&lease),
            "only an unstarted execution is returned",
            "{} {:?} had started: {:?}",
            lease.0,
            lease.1,
            self.runs.get(&lease)
        );
        self.count("executions returned");
        if let OccurrenceState::Running { session, claimed_at, is_asked_to_stop: true } = state {
            let ended_at = at.max(claimed_at);
            let ended =
                AttemptEnd { session: Some(session), ..AttemptEnd::unstarted(Status::Cancelled, ended_at) };
            self.close(id, ended, Some(StoredStatus::Cancelled))?;
            self.ended_unstarted(lease.0, Status::Cancelled);
            self.follow(id.job, false)?;
            return self.wake_replay(id.job);
        }
        let (occurrence, _) = self.occurrence_mut(id)?;
        let is_held = is_paused && !occurrence.is_exempt;
        occurrence.state = if is_held {
            OccurrenceState::Waiting(Gates::only(Gate::Paused))
        } else {
            OccurrenceState::Queued
        };
        self.placed(id);
        if is_held {
            self.count("executions returned during a pause");
            return Ok(());
        }
        self.keeps_place(id)
    }

    pub fn recovered(&mut self, now: Timestamp, recovered: &Recovered) -> AuditResult {
        self.not_ahead(now)?;
        for (execution, status) in &recovered.ended {
            let id = execution.occurrence;
            let (occurrence, _) = self.occurrence_mut(id)?;
            let (state, attempt) = (occurrence.state, occurrence.attempt);
            let OccurrenceState::Running { session, claimed_at, is_asked_to_stop } = state else {
                rule!(false, "only a leased execution is lost", "{execution} was lost while {state:?}");
                continue;
            };
            let recorded = if is_asked_to_stop { Status::Cancelled } else { Status::Lost };
            rule!(
                *status == recorded,
                "the answer says which status was recorded",
                "{execution} was answered as {status:?}, recorded is {recorded:?}"
            );
            rule!(
                attempt == execution.attempt && self.session_mut(session)?.state == SessionState::Lost,
                "only executions that a lost session holds are lost",
                "{execution} was lost; attempt {attempt} is held by session {session}"
            );
            self.count("executions lost");
            let end = ReportedEnd {
                ending: Ending::Lost,
                retryable: true,
                next_at: None,
                started_at: Some(claimed_at),
                completed_at: now,
                error: None,
                result: None,
            };
            self.settle(id, &end, &recovered.effects)?;
        }
        self.announced(&recovered.effects)?;
        let left = self.running.iter().find(|id| self.is_held_by_lost(**id));
        rule!(
            // A session that another transaction has lost meanwhile is left to the next recovery.
            recovered.more || left.is_none() || self.is_overlapping,
            "every execution that a lost session held is recovered",
            "{left:?} is still leased to a lost session"
        );
        Ok(())
    }

    fn is_held_by_lost(&self, id: OccurrenceId) -> bool {
        let state = self.occurrence(id).map(|occurrence| occurrence.state);
        let Ok(OccurrenceState::Running { session, .. }) = state else { return false };
        self.sessions.get(&session).is_some_and(|session| session.state == SessionState::Lost)
    }

    /// Whether this session holds exactly this lease.
    pub(super) fn holds(&self, session: SessionId, lease: LeaseRef) -> Result<bool, AuditViolation> {
        let occurrence = self.occurrence(lease.execution.occurrence)?;
        let is_holder =
            matches!(occurrence.state, OccurrenceState::Running { session: holder, .. } if holder == session);
        Ok(is_holder && occurrence.attempt == lease.execution.attempt && occurrence.epoch == lease.epoch)
    }

    /// Ends the current run; returns whether another attempt follows. The start of a retry is taken from the
    /// commit effects and must be within the bounds of the policy.
    fn settle(
        &mut self,
        id: OccurrenceId,
        end: &ReportedEnd,
        effects: &CommitEffects,
    ) -> Result<bool, AuditViolation> {
        let at = self.at;
        let is_paused = self.job(id.job)?.mark == StoredStatus::Paused;
        let (occurrence, spec) = self.occurrence_mut(id)?;
        let spec = spec.clone();
        let OccurrenceState::Running { session, claimed_at, is_asked_to_stop } = occurrence.state else {
            rule!(false, "only a running execution ends", "{id} is {:?}", occurrence.state);
            return Ok(false);
        };
        let status = if is_asked_to_stop { Status::Cancelled } else { status_of(end.ending) };
        let started_at = end.started_at.max(Some(claimed_at));
        let ended = AttemptEnd {
            status,
            session: Some(session),
            reason: None,
            completed_at: end.completed_at.max(started_at.unwrap_or(end.completed_at)),
            dead: !matches!(status, Status::Succeeded | Status::Cancelled | Status::Snoozed),
        };
        let is_snoozed = status == Status::Snoozed;
        let may_retry = is_snoozed
            || (ended.dead
                && end.retryable
                && occurrence.charged < spec.settings.max_retries
                && !is_final(&spec, status, end.error.as_deref()));
        let next = id.attempt(occurrence.attempt + 1);
        let retry_at = match status {
            Status::Lost => Some(at),
            // The next due time may be its expiry.
            Status::Snoozed => retry_time_in(effects, next).map(|_| chosen_time(end, at)),
            _ => retry_time_in(effects, next),
        };
        let base_us = backoff_ms(&spec.settings.retry, occurrence.charged + 1) as i64 * 1_000;
        let (earliest, latest) = match (status, end.next_at) {
            (Status::Lost, _) => (at, at),
            (_, Some(_)) => (chosen_time(end, at), chosen_time(end, at)),
            (_, None) => (at.shifted(base_us), at.shifted(base_us + base_us / 10)),
        };
        let expires_by = |time: Timestamp| occurrence.expires_at.is_some_and(|expiry| expiry <= time);
        // The jitter of the backoff decides whether the retry would be too late.
        let is_retried = may_retry
            && (is_snoozed || !expires_by(earliest))
            && (is_snoozed || !expires_by(latest) || (status != Status::Lost && retry_at.is_some()));
        if !is_retried {
            if may_retry {
                self.count("retries that would be after the expiry");
            }
            let mark = match status {
                Status::Succeeded => None,
                Status::Cancelled => Some(StoredStatus::Cancelled),
                _ => Some(StoredStatus::Failed),
            };
            self.close(id, ended, mark)?;
            self.follow(id.job, status == Status::Succeeded)?;
            self.wake_replay(id.job)?;
            return Ok(false);
        }
        rule!(
            retry_at.is_some_and(|time| (earliest..=latest).contains(&time)),
            "a retry comes after its backoff plus at most a tenth",
            "{next}: between {earliest} and {latest}, but {retry_at:?} follows"
        );
        let execution = id.attempt(occurrence.attempt);
        occurrence.finish(ended);
        occurrence.charged += u32::from(!is_snoozed);
        occurrence.attempt += 1;
        occurrence.available_at = retry_at.unwrap_or(at);
        let gates = if status == Status::Lost { Gates::NONE } else { Gates::only(Gate::Time) };
        let is_held = is_paused && !occurrence.is_exempt;
        occurrence.state =
            super::firing::state_behind(if is_held { gates.with(Gate::Paused) } else { gates });
        if is_held {
            self.count("retries during a pause");
        }
        self.history_grew(execution);
        self.placed(id);
        self.count(if is_snoozed { "snoozes" } else { "retries" });
        Ok(true)
    }

    /// Closes an open occurrence. If nothing is left of a one-time job, the job gets this stored status. `follow`
    /// notifies the jobs that wait for the end.
    pub(super) fn close(
        &mut self,
        id: OccurrenceId,
        ended: AttemptEnd,
        mark: Option<StoredStatus>,
    ) -> AuditResult {
        self.queued.remove(&id);
        self.running.remove(&id);
        let (occurrence, _) = self.occurrence_mut(id)?;
        let execution = id.attempt(occurrence.attempt);
        occurrence.finish(ended);
        occurrence.state = OccurrenceState::Closed { dead: ended.dead };
        (occurrence.limiter, occurrence.wait_list) = (None, None);
        self.history_grew(execution);
        if !ended.dead {
            self.forget_notes(id);
        }
        let job = self.job_mut(id.job)?;
        job.open.remove(&id.number);
        if let Some(mark) = mark
            && job.is_one_shot()
            && job.is_finished()
            && !matches!(job.mark, StoredStatus::Cancelled | StoredStatus::Deleted)
        {
            job.mark = mark;
        }
        self.count(match ended.status {
            Status::Succeeded => "occurrences succeeded",
            Status::Cancelled => "occurrences cancelled",
            _ if ended.dead => "occurrences dead",
            _ => "occurrences that never ran",
        });
        Ok(())
    }
}

impl super::Occurrence {
    fn finish(&mut self, ended: AttemptEnd) {
        let AttemptEnd { status, session, reason, completed_at, .. } = ended;
        let (epoch, job_version) = (self.epoch, self.job_version);
        let is_forgotten = false;
        self.finished.push(FinishedAttempt {
            epoch,
            session,
            status,
            reason,
            job_version,
            completed_at,
            is_forgotten,
        });
    }
}
