//! Work is handed out and comes back: one lease at a time, epochs that rise, one accepted outcome per attempt,
//! retries that are owed, and no more of them than were asked for.

use super::firing::answers_each;
use super::runs::RunEnd;
use super::{Auditor, FinishedAttempt, OccurrenceState, Place, SessionState, Verdict, rule};
use punctual_core::ids::{Epoch, ExecutionId, OccurrenceId, SessionId};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::ports::{
    Assignment, Begun, Claim, ClaimOutcome, Due, DueKind, Lane, LeaseRef, Recovered, Report, ReportAnswer,
    ReportOutcome,
};
use punctual_core::retry::RetryPolicy;
use punctual_core::time::Timestamp;

impl Auditor {
    pub fn claimed(&mut self, now: Timestamp, claims: &[Claim], outcomes: &[ClaimOutcome]) -> Verdict {
        self.not_ahead(now)?;
        answers_each("claim", claims.len(), outcomes.len())?;
        for (claim, outcome) in claims.iter().zip(outcomes) {
            let session = self.session_mut(claim.session)?;
            let (live, turn) = (session.state == SessionState::Live, session.turn);
            match outcome {
                ClaimOutcome::Claimed(assignments) => {
                    rule!(live, "only a live session is given work", "session {}", claim.session);
                    self.claimed_one(claim, assignments)?;
                }
                ClaimOutcome::StaleTurn => {
                    rule!(
                        live && claim.turn <= turn,
                        "a turn is stale only when it was used",
                        "session {} asked for turn {} after {turn}",
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

    fn claimed_one(&mut self, claim: &Claim, assignments: &[Assignment]) -> Verdict {
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
                "a worker is given only what it serves",
                "{} to session {}",
                assignment.execution,
                claim.session
            );
            self.granted(claim.session, claim.turn, assignment)?;
        }
        self.goes_by_rank(claim, assignments)?;
        if assignments.len() < claim.limit {
            for id in &self.queued {
                rule!(
                    !serves(claim, &self.lane(id.job)?),
                    "what may run is handed out",
                    "{id} is queued, but session {} with room for {} got only {}",
                    claim.session,
                    claim.limit,
                    assignments.len()
                );
            }
        }
        Ok(())
    }

    /// Work is handed out in the order of its rank: each before the next, and all before what stays behind.
    fn goes_by_rank(&self, claim: &Claim, assignments: &[Assignment]) -> Verdict {
        let mut latest: Option<(i64, ExecutionId)> = None;
        for assignment in assignments {
            let execution = assignment.execution;
            let place = self.place(execution.occurrence)?;
            if let Some((before_us, before)) = latest {
                rule!(
                    before_us <= place.latest_us,
                    "what ranks first is handed out first",
                    "{before} at {before_us} went before {execution} at {place:?}"
                );
            }
            latest = latest.max(Some((place.earliest_us, execution)));
        }
        let Some((last_us, last)) = latest else { return Ok(()) };
        for id in &self.queued {
            let place = self.place(*id)?;
            rule!(
                last_us <= place.latest_us || !serves(claim, &self.lane(id.job)?),
                "what ranks first is handed out first",
                "{last} at {last_us} went to session {} before {id} at {place:?}",
                claim.session
            );
        }
        Ok(())
    }

    fn place(&self, id: OccurrenceId) -> Result<Place, super::Violation> {
        let occurrence = self.job(id.job)?.occurrences.get(&id.number);
        Ok(occurrence.map_or(Place { earliest_us: 0, latest_us: 0 }, |occurrence| occurrence.place))
    }

    /// One execution is leased to one session.
    pub(super) fn granted(&mut self, session_id: SessionId, turn: u64, assignment: &Assignment) -> Verdict {
        let (call, true_now) = (self.call, self.now);
        let session = self.session_mut(session_id)?;
        rule!(
            session.state == SessionState::Live,
            "only a live session is given work",
            "session {session_id} is {:?} and was given {}",
            session.state,
            assignment.execution
        );
        let same_call = session.turn == turn && session.turn_call == call;
        rule!(
            turn > session.turn || same_call,
            "a turn is granted once, in order",
            "session {session_id} was given {} in turn {turn}, but has used turn {}",
            assignment.execution,
            session.turn
        );
        (session.turn, session.turn_call) = (turn, call);
        self.granted_for_poll(session_id, turn, assignment)?;

        let (execution, id) = (assignment.execution, assignment.execution.occurrence);
        let (occurrence, spec) = self.occurrence_mut(id)?;
        rule!(
            occurrence.state == OccurrenceState::Queued,
            "only a queued execution is leased, so never two leases live",
            "{execution} was leased to session {session_id} while it was {:?}",
            occurrence.state
        );
        rule!(
            occurrence.attempt == execution.attempt,
            "attempts are numbered 1, 2, 3",
            "{execution} was leased when attempt {} is due",
            occurrence.attempt
        );
        rule!(
            assignment.epoch == Epoch(occurrence.epoch.0 + 1),
            "every lease raises the epoch by one",
            "{execution} went from {:?} to {:?}",
            occurrence.epoch,
            assignment.epoch
        );
        rule!(
            assignment.scheduled_time == occurrence.scheduled_time
                && assignment.payload == spec.payload
                && assignment.timeout.as_millis() == u128::from(spec.settings.timeout_ms)
                && assignment.job_type == spec.job_type
                && assignment.queue == spec.queue
                && assignment.name == spec.name,
            "an assignment says what was asked for",
            "{assignment:?} for {spec:?}"
        );
        rule!(assignment.available_at <= true_now, "nothing is leased before it may start", "{assignment:?}");
        occurrence.epoch = assignment.epoch;
        occurrence.state = OccurrenceState::Running { session: session_id };
        self.queued.remove(&id);
        self.running.insert(id);
        self.grants.insert((execution, assignment.epoch), session_id);
        self.count("leases granted");
        Ok(())
    }

    pub fn reported(&mut self, now: Timestamp, reports: &[Report], outcomes: &[ReportOutcome]) -> Verdict {
        self.not_ahead(now)?;
        answers_each("report", reports.len(), outcomes.len())?;
        for (report, outcome) in reports.iter().zip(outcomes) {
            let LeaseRef { execution, epoch } = report.lease;
            let holds = self.holds(report.session, report.lease)?;
            let (occurrence, _) = self.occurrence_mut(execution.occurrence)?;
            let settled = occurrence.finished.get(execution.attempt as usize - 1).is_some_and(|finished| {
                finished.epoch == epoch
                    && finished.session == report.session
                    && finished.status != Status::Lost
            });
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
                ReportAnswer::Accepted => self.accepted(now, report, &outcome.retry)?,
                ReportAnswer::AlreadyAccepted => self.count("repeated reports recognised"),
                ReportAnswer::Stale => self.count("stale reports refused"),
            }
        }
        Ok(())
    }

    fn accepted(&mut self, now: Timestamp, report: &Report, retry: &Begun) -> Verdict {
        let LeaseRef { execution, epoch } = report.lease;
        let run = self.runs.get(&(execution, epoch));
        let run_end = run.and_then(|run| run.end);
        let cut_short = run.is_some_and(|run| self.is_draining(run.node));
        let truthful = match report.end.ending {
            Ending::Succeeded => run_end == Some(RunEnd::Succeeded),
            Ending::Failed => run_end == Some(RunEnd::Failed),
            Ending::TimedOut => run_end == Some(RunEnd::Dropped),
            // A worker that is drained stops what takes too long.
            Ending::Lost => run_end == Some(RunEnd::Dropped) && cut_short,
            Ending::Cancelled => false,
        };
        rule!(
            truthful,
            "an accepted outcome is that of a physical run",
            "{execution} {epoch:?} was reported as {:?}, its run ended as {run_end:?}",
            report.end.ending
        );
        let id = execution.occurrence;
        match self.settle(id, report.session, report.end.ending, report.end.retryable)? {
            Settled::Closed => rule!(
                *retry == Begun::default(),
                "nothing follows a closed occurrence",
                "{execution} is closed, but {retry:?} follows"
            ),
            Settled::Retried { .. } if report.end.ending == Ending::Lost => {
                self.occurrence_mut(id)?.0.state = OccurrenceState::Queued;
                self.queued.insert(id);
                let lane = self.lane(id.job)?;
                rule!(
                    retry.queued.as_ref() == Some(&lane) && retry.due.is_none(),
                    "what its worker had to stop is queued again at once",
                    "{execution} was cut short, but {retry:?} follows"
                );
                self.count("runs cut short by a drain");
            }
            Settled::Retried { attempt, delay_ms } => {
                let Some(due) = &retry.due else {
                    return self.retry_is_owed(execution, retry);
                };
                let expected = DueKind::TimeGate { occurrence: id, attempt };
                let wait_us = due.at.as_micros() - now.as_micros();
                let base_us = delay_ms as i64 * 1_000;
                rule!(
                    due.what == expected && wait_us >= base_us && wait_us <= base_us + base_us / 10,
                    "a retry comes after its backoff plus at most a tenth",
                    "{execution}: expected {expected:?} after {base_us} us, got {due:?} after {wait_us} us"
                );
                let until = due.at;
                self.occurrence_mut(id)?.0.state = OccurrenceState::Waiting { until };
                self.due_lane_is(due, id)?;
                self.count("retries");
            }
        }
        Ok(())
    }

    fn retry_is_owed(&self, execution: ExecutionId, retry: &Begun) -> Verdict {
        rule!(false, "a retry that is owed happens", "{execution} has retries left, but {retry:?} follows");
        Ok(())
    }

    fn due_lane_is(&self, due: &Due, id: OccurrenceId) -> Verdict {
        let lane = self.lane(id.job)?;
        rule!(due.lane == lane, "what is due names its lane", "{due:?} is of {lane:?}");
        Ok(())
    }

    pub fn given_back(
        &mut self,
        now: Timestamp,
        session: SessionId,
        leases: &[LeaseRef],
        outcomes: &[Option<Lane>],
    ) -> Verdict {
        self.not_ahead(now)?;
        answers_each("give_back", leases.len(), outcomes.len())?;
        for (lease, outcome) in leases.iter().zip(outcomes) {
            let id = lease.execution.occurrence;
            let expected = if self.holds(session, *lease)? { Some(self.lane(id.job)?) } else { None };
            rule!(
                *outcome == expected,
                "a lease is given back once, by its holder",
                "session {session} gave back {lease:?}: expected {expected:?}, got {outcome:?}"
            );
            if expected.is_some() {
                self.unstart(id)?;
            }
        }
        Ok(())
    }

    /// A leased execution goes back to its queue; it must not have run under this lease.
    pub(super) fn unstart(&mut self, id: OccurrenceId) -> Verdict {
        let (occurrence, _) = self.occurrence_mut(id)?;
        let lease = (id.attempt(occurrence.attempt), occurrence.epoch);
        occurrence.state = OccurrenceState::Queued;
        rule!(
            !self.runs.contains_key(&lease),
            "only an unstarted execution is given back",
            "{} {:?} had started: {:?}",
            lease.0,
            lease.1,
            self.runs.get(&lease)
        );
        self.running.remove(&id);
        self.queued.insert(id);
        self.count("executions given back");
        Ok(())
    }

    pub fn recovered(&mut self, now: Timestamp, recovered: &Recovered) -> Verdict {
        self.not_ahead(now)?;
        for execution in &recovered.lost {
            let id = execution.occurrence;
            let (occurrence, _) = self.occurrence_mut(id)?;
            let (state, attempt) = (occurrence.state, occurrence.attempt);
            let OccurrenceState::Running { session } = state else {
                rule!(false, "only a leased execution is lost", "{execution} was lost while {state:?}");
                continue;
            };
            rule!(
                attempt == execution.attempt && self.session_mut(session)?.state == SessionState::Lost,
                "only what a lost session holds is lost",
                "{execution} was lost; attempt {attempt} is held by session {session}"
            );
            self.count("executions lost");
            if let Settled::Retried { .. } = self.settle(id, session, Ending::Lost, true)? {
                self.occurrence_mut(id)?.0.state = OccurrenceState::Queued;
                self.queued.insert(id);
                let lane = self.lane(id.job)?;
                rule!(
                    recovered.queued.contains(&lane),
                    "work that is queued is announced",
                    "{id} is queued again in {lane:?}, announced are {:?}",
                    recovered.queued
                );
            }
        }
        let left = self.running.iter().find(|id| self.is_held_by_lost(**id));
        rule!(
            recovered.more || left.is_none(),
            "all that a lost session held is recovered",
            "{left:?} is still leased to a lost session"
        );
        Ok(())
    }

    fn is_held_by_lost(&self, id: OccurrenceId) -> bool {
        let state = self.jobs.get(&id.job).and_then(|job| job.occurrences.get(&id.number)).map(|o| o.state);
        let Some(OccurrenceState::Running { session }) = state else { return false };
        self.sessions.get(&session).is_some_and(|session| session.state == SessionState::Lost)
    }

    /// Whether this session holds exactly this lease.
    pub(super) fn holds(&mut self, session: SessionId, lease: LeaseRef) -> Result<bool, super::Violation> {
        let (occurrence, _) = self.occurrence_mut(lease.execution.occurrence)?;
        Ok(occurrence.state == OccurrenceState::Running { session }
            && occurrence.attempt == lease.execution.attempt
            && occurrence.epoch == lease.epoch)
    }

    /// Ends the current attempt. A retried occurrence is left for the caller to place.
    fn settle(
        &mut self,
        id: OccurrenceId,
        session: SessionId,
        ending: Ending,
        retryable: bool,
    ) -> Result<Settled, super::Violation> {
        self.running.remove(&id);
        let (occurrence, spec) = self.occurrence_mut(id)?;
        let status = match ending {
            Ending::Succeeded => Status::Succeeded,
            Ending::Failed => Status::Failed,
            Ending::TimedOut => Status::TimedOut,
            Ending::Cancelled => Status::Cancelled,
            Ending::Lost => Status::Lost,
        };
        occurrence.finished.push(FinishedAttempt { epoch: occurrence.epoch, session, status });
        if status != Status::Succeeded {
            occurrence.charged += 1;
        }
        let retry =
            status != Status::Succeeded && retryable && occurrence.charged <= spec.settings.max_retries;
        if retry {
            occurrence.attempt += 1;
            let delay_ms = backoff_ms(&spec.settings.retry, occurrence.charged);
            return Ok(Settled::Retried { attempt: occurrence.attempt, delay_ms });
        }
        let dead = status != Status::Succeeded;
        occurrence.state = OccurrenceState::Closed { dead };
        if let Some(job) = self.jobs.get_mut(&id.job) {
            job.open -= 1;
            job.failed |= dead && job.is_one_shot();
        }
        self.count(if dead { "occurrences dead" } else { "occurrences succeeded" });
        Ok(Settled::Closed)
    }
}

enum Settled {
    Closed,
    Retried { attempt: u32, delay_ms: u64 },
}

fn serves(claim: &Claim, lane: &Lane) -> bool {
    (claim.queues.is_empty() || claim.queues.iter().any(|queue| queue == lane.queue()))
        && claim.job_types.iter().any(|job_type| job_type == lane.job_type())
}

/// The wait before the n-th retry without its jitter.
fn backoff_ms(policy: &RetryPolicy, retry: u32) -> u64 {
    match policy {
        RetryPolicy::Fixed { delay_ms } => *delay_ms,
        RetryPolicy::Exponential { delay_ms, max_delay_ms } => {
            let mut wait = *delay_ms;
            for _ in 1..retry {
                wait = (wait * 2).min(*max_delay_ms);
            }
            wait.min(*max_delay_ms)
        }
        RetryPolicy::Ladder { steps_ms } => {
            let last = steps_ms.last().copied().unwrap_or(0);
            steps_ms.get(retry as usize - 1).copied().unwrap_or(last)
        }
    }
}
