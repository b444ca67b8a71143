//! An open occurrence and its current execution: one live row from fire to final outcome. Each change of a
//! live row is a function here, which asks [`lifecycle::step`](crate::lifecycle::step) for the state and
//! updates the fields that belong to the transition. The store reads a row, calls one of these functions, and
//! writes back the result.

use crate::defects::{Defect, planted};
use crate::documents::result_problem;
use crate::gates::{Gate, Gates};
use crate::ids::{Epoch, ExecutionId, OccurrenceId, SessionId};
use crate::job::{Priority, Settings, StoredStatus};
use crate::lifecycle::{Ending, Event, Refused, State, Status, step};
use crate::limiter::LimiterId;
use crate::limits;
use crate::rank::rank;
use crate::retry::ChosenTime;
use crate::schedule::SkipReason;
use crate::time::Timestamp;
use crate::trace_context::TraceContext;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// What caused an occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Schedule,
    Trigger,
    Backfill,
}

/// What an occurrence has of its own, because a user has asked for it. Most have nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunInput {
    /// Replaces the payload of the job for all attempts of this occurrence. JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// It was asked to run at another time than its nominal one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
    /// The number of the occurrence of the same job that it repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u32>,
    /// How often its handlers have snoozed it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub snoozes: u32,
    /// The handler of the attempt before this one has chosen the start of this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chosen: bool,
    /// The trace of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl RunInput {
    /// The input of the next attempt.
    fn next(input: Option<&Arc<RunInput>>, snoozes: u32, chosen: bool) -> Option<Arc<RunInput>> {
        match input {
            Some(input) if (input.snoozes, input.chosen) == (snoozes, chosen) => Some(input.clone()),
            input => {
                let input = input.map(|input| (**input).clone()).unwrap_or_default();
                Some(RunInput { snoozes, chosen, ..input })
                    .filter(|input| *input != RunInput::default())
                    .map(Arc::new)
            }
        }
    }

    /// The input of a redriven occurrence: its handlers may snooze it as often as those of a new one.
    pub fn redriven(input: Option<&Arc<RunInput>>) -> Option<Arc<RunInput>> {
        RunInput::next(input, 0, false)
    }
}

/// An open occurrence.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    pub id: OccurrenceId,
    /// The number of the current run, or of the next one; from 1.
    pub attempt: u32,
    /// Finished attempts that count against `max_retries`.
    pub charged: u32,
    pub epoch: Epoch,
    pub state: LiveState,
    pub rank: i64,
    pub priority: Priority,
    /// The earliest start of the current attempt.
    pub available_at: Timestamp,
    pub scheduled_time: Timestamp,
    pub origin: Origin,
    /// The job version that the current attempt runs with, or was fired with.
    pub job_version: u32,
    /// When it expires if it has not started.
    pub expires_at: Option<Timestamp>,
    pub flags: OccurrenceFlags,
    /// The limiter of its key, if its queue had limits for keys when it became ready.
    pub limiter: Option<LimiterId>,
    /// The limiter on whose wait list it is, behind the concurrency gate.
    pub line: Option<LimiterId>,
    /// Shared, because rows are copied often.
    pub input: Option<Arc<RunInput>>,
}

/// Flags for the relations of this occurrence. They are stored in its row, so that the end of an occurrence
/// without dependents or followers needs no lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OccurrenceFlags {
    /// Occurrences of the same job may wait for it, or a replay of the job may wait for its end.
    pub followed: bool,
    /// Other jobs may depend on its outcome.
    pub awaited: bool,
    /// Triggered while its job was paused: the pause does not apply to it.
    pub exempt: bool,
    /// Its handlers have stored progress or a checkpoint. Both are kept next to the row only for its next
    /// attempt, or with its dead letter.
    pub noted: bool,
    /// A replay of missed occurrences opened it: rules for regular occurrences ignore it.
    pub replayed: bool,
}

impl OccurrenceFlags {
    pub const fn bits(self) -> u8 {
        self.followed as u8
            | (self.awaited as u8) << 1
            | (self.exempt as u8) << 2
            | (self.noted as u8) << 3
            | (self.replayed as u8) << 4
    }

    /// The flags with these bits; `None` if a bit is not defined.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits > 0b1_1111 {
            return None;
        }
        Some(OccurrenceFlags {
            followed: bits & 1 != 0,
            awaited: bits & 2 != 0,
            exempt: bits & 4 != 0,
            noted: bits & 8 != 0,
            replayed: bits & 16 != 0,
        })
    }
}

/// What the rules need to know about a job when one of its attempts ends.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    pub settings: &'a Settings,
    pub mark: StoredStatus,
}

/// The live states, each with its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveState {
    Waiting(Gates),
    Queued,
    Running(Lease),
}

/// The session that holds a running execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub session: SessionId,
    pub claimed_at: Timestamp,
    pub cancel_requested: bool,
}

impl Live {
    /// A freshly fired occurrence without closed gates.
    pub fn fired(
        id: OccurrenceId,
        scheduled_time: Timestamp,
        origin: Origin,
        job_version: u32,
        priority: Priority,
        now: Timestamp,
        share_lag: Duration,
    ) -> Self {
        Live {
            id,
            attempt: 1,
            charged: 0,
            epoch: Epoch(0),
            state: LiveState::Queued,
            rank: rank(now, priority, share_lag),
            priority,
            available_at: now,
            scheduled_time,
            origin,
            job_version,
            expires_at: None,
            flags: OccurrenceFlags::default(),
            limiter: None,
            line: None,
            input: None,
        }
    }

    pub fn execution(&self) -> ExecutionId {
        self.id.attempt(self.attempt)
    }

    pub fn state(&self) -> State {
        match self.state {
            LiveState::Waiting(gates) => State::Waiting(gates),
            LiveState::Queued => State::Queued,
            LiveState::Running(lease) => State::Running { cancel_requested: lease.cancel_requested },
        }
    }

    /// The lease, if this session holds it with this epoch.
    pub fn held_by(&self, session: SessionId, execution: ExecutionId, epoch: Epoch) -> Option<Lease> {
        let LiveState::Running(lease) = self.state else { return None };
        if planted(Defect::DropEpoch) {
            return Some(lease);
        }
        (lease.session == session && self.execution() == execution && self.epoch == epoch).then_some(lease)
    }

    pub fn is_closed_by(&self, gate: Gate) -> bool {
        matches!(self.state, LiveState::Waiting(gates) if gates.contains(gate))
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, LiveState::Running(_))
    }

    /// When the passing of time next changes it: its time gate opens, or it expires.
    pub fn look_at(&self) -> Option<Timestamp> {
        let opens_at = self.is_closed_by(Gate::Time).then_some(self.available_at);
        let expires_at = self.expires_at.filter(|_| !self.is_running());
        opens_at.into_iter().chain(expires_at).min()
    }

    /// Whether it expired before it could start.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        !self.is_running() && self.expires_at.is_some_and(|at| at <= now)
    }

    /// The row after a claim by a session, with this job version. A delayed claim may carry a time before
    /// another node made the execution ready, so the claim time is never before `available_at`.
    pub fn claimed(&self, session: SessionId, job_version: u32, now: Timestamp) -> Result<Live, Refused> {
        step(self.state(), Event::Claim)?;
        let claimed_at = now.max(self.available_at);
        let lease = Lease { session, claimed_at, cancel_requested: false };
        let state = LiveState::Running(lease);
        Ok(Live { state, epoch: self.epoch.next(), job_version, ..self.clone() })
    }

    /// The row after it was returned unstarted: not charged, with the same attempt number and its old rank.
    pub fn given_back(&self, terms: Option<Terms<'_>>, now: Timestamp) -> Result<GivenBack, Refused> {
        Ok(match step(self.state(), Event::GiveBack)? {
            State::Finished(status) => {
                let finished = self.finished(status, None, now);
                GivenBack::Closed(Settled {
                    finished,
                    next: Next::closed_with(StoredStatus::Cancelled, terms),
                })
            }
            _ => GivenBack::Queued(Live { state: self.ready_under(terms), ..self.clone() }),
        })
    }

    /// The state of an execution that only a pause can keep from being claimed.
    fn ready_under(&self, terms: Option<Terms<'_>>) -> LiveState {
        match self.gates_under(terms, Gates::NONE) {
            Gates::NONE => LiveState::Queued,
            gates => LiveState::Waiting(gates),
        }
    }

    /// These gates, plus the pause gate if the job is paused.
    fn gates_under(&self, terms: Option<Terms<'_>>, gates: Gates) -> Gates {
        let is_held = terms.is_some_and(|terms| terms.mark == StoredStatus::Paused) && !self.flags.exempt;
        if is_held && !planted(Defect::ForgetPause) { gates.with(Gate::Paused) } else { gates }
    }

    /// Applies the passing of time: the execution expires, or its time gate opens.
    pub fn looked_at(&self, terms: Option<Terms<'_>>, now: Timestamp) -> Result<Looked, Refused> {
        if self.is_expired(now) {
            return self.expired(terms, now).map(Looked::Expired);
        }
        if self.look_at().is_some_and(|at| at > now) {
            return Ok(Looked::TooEarly);
        }
        self.gate_opened(Gate::Time, now).map(Looked::Opened)
    }

    /// Ends it because it expired before it started.
    pub fn expired(&self, terms: Option<Terms<'_>>, now: Timestamp) -> Result<Settled, Refused> {
        let mut settled = self.never_started(Event::Expire, terms, now)?;
        settled.finished.error = Some("it had not started when it expired".to_owned());
        Ok(settled)
    }

    /// Ends it without a run, for a reason that `why` details.
    pub fn skipped(
        &self,
        reason: SkipReason,
        why: String,
        terms: Option<Terms<'_>>,
        now: Timestamp,
    ) -> Result<Settled, Refused> {
        let mut settled = self.never_started(Event::Skip, terms, now)?;
        settled.finished.reason = Some(reason);
        settled.finished.error = Some(why);
        Ok(settled)
    }

    fn never_started(
        &self,
        event: Event,
        terms: Option<Terms<'_>>,
        now: Timestamp,
    ) -> Result<Settled, Refused> {
        let State::Finished(status) = step(self.state(), event)? else {
            unreachable!("{event:?} ends what has not started");
        };
        let Next::Closed { job_mark, .. } = Next::closed_with(StoredStatus::Failed, terms) else {
            unreachable!("closed");
        };
        // An execution that never ran has nothing to redrive; one that failed before it expired has.
        let next = Next::Closed { dead_letter: self.charged > 0, job_mark };
        Ok(Settled { finished: self.finished(status, None, now), next })
    }

    /// Closes a gate of an execution that has not started.
    pub fn gate_closed(&self, gate: Gate) -> Result<Live, Refused> {
        let State::Waiting(gates) = step(self.state(), Event::CloseGate(gate))? else {
            unreachable!("behind a closed gate one waits");
        };
        Ok(Live { state: LiveState::Waiting(gates), ..self.clone() })
    }

    /// Opens a gate. When the last one opens, the execution is ready and gets its rank.
    pub fn gate_opened(&self, gate: Gate, now: Timestamp) -> Result<Live, Refused> {
        let state = match step(self.state(), Event::OpenGate(gate)) {
            Err(_) if planted(Defect::OpenGateTwice) => State::Queued,
            result => result?,
        };
        let line = self.line.filter(|_| gate != Gate::Concurrency);
        Ok(match state {
            State::Waiting(gates) => Live { state: LiveState::Waiting(gates), line, ..self.clone() },
            // An execution from a wait list keeps the rank that brought it to the front.
            _ if gate == Gate::Concurrency => Live { state: LiveState::Queued, line, ..self.clone() },
            _ => Live {
                state: LiveState::Queued,
                rank: rank(self.available_at.min(now), self.priority, Duration::ZERO),
                ..self.clone()
            },
        })
    }

    /// Moves a ready execution to a wait list.
    pub fn in_line(&self, line: LimiterId) -> Result<Live, Refused> {
        Ok(Live { line: Some(line), ..self.gate_closed(Gate::Concurrency)? })
    }

    /// Whether it counts against the limit of its key: it is queued, running, or past the wait list of the
    /// key.
    pub fn counts_for_key(&self) -> bool {
        let has_passed = self.line.is_some_and(|line| Some(line) != self.limiter);
        self.limiter.is_some() && (self.counts_for_queue() || has_passed)
    }

    /// Whether it counts against the limit of its queue.
    pub fn counts_for_queue(&self) -> bool {
        !matches!(self.state, LiveState::Waiting(_))
    }

    /// Cancels it: an execution that has not started ends, a running one is asked to stop.
    pub fn cancelled(&self, terms: Option<Terms<'_>>, now: Timestamp) -> Result<Cancelled, Refused> {
        Ok(match (step(self.state(), Event::Cancel)?, self.state) {
            (State::Finished(status), _) => {
                let finished = self.finished(status, None, now);
                Cancelled::Closed(Settled {
                    finished,
                    next: Next::closed_with(StoredStatus::Cancelled, terms),
                })
            }
            (_, LiveState::Running(lease)) => Cancelled::Requested(Live {
                state: LiveState::Running(Lease { cancel_requested: true, ..lease }),
                ..self.clone()
            }),
            (state, _) => unreachable!("a cancel leads from {:?} to {state:?}", self.state),
        })
    }

    /// Ends the run: returns the history row, and whether the occurrence continues.
    ///
    /// `terms` are those of the job. They may be missing when the run succeeded or the job no longer exists;
    /// then nothing is retried.
    pub fn settled(
        &self,
        end: ReportedEnd,
        terms: Option<Terms<'_>>,
        now: Timestamp,
    ) -> Result<Settled, Refused> {
        let end = if end.ending == Ending::Snoozed { self.within_snoozes(end) } else { end };
        let State::Finished(status) = step(self.state(), Event::End(end.ending))? else {
            unreachable!("an ended run is finished");
        };
        let chosen = end.next_at.map(|chosen| chosen.from(now));
        let mut finished = self.finished(status, end.started_at, end.completed_at);
        finished.error = end.error;
        finished.result = end.result;
        let next = match status {
            Status::Succeeded => Next::Closed { dead_letter: false, job_mark: None },
            Status::Cancelled => Next::closed_with(StoredStatus::Cancelled, terms),
            Status::Snoozed => self.snoozed(chosen.unwrap_or(now), terms),
            _ if end.retryable => self.retried(&finished, chosen, terms, now),
            _ => Next::closed_with(StoredStatus::Failed, terms),
        };
        let is_dead = matches!(next, Next::Closed { dead_letter: true, .. });
        if is_dead && self.charged > 0 && finished.error.as_deref() == Some(WORKER_SILENT) {
            finished.error = Some(self.lost_for_good());
        }
        Ok(Settled { finished, next })
    }

    /// The error of a dead letter points to the job itself as a possible cause.
    fn lost_for_good(&self) -> String {
        format!(
            "{WORKER_SILENT} in attempt {}, the last: a job that repeatedly loses its workers may be \
             crashing them",
            self.attempt
        )
    }

    fn snoozes(&self) -> u32 {
        self.input.as_ref().map_or(0, |input| input.snoozes)
    }

    /// One snooze too many is a failure, so that no occurrence stays open forever.
    fn within_snoozes(&self, end: ReportedEnd) -> ReportedEnd {
        if self.snoozes() < limits::SNOOZES_MAX {
            return end;
        }
        let error = format!("the handler asked for more than {} snoozes", limits::SNOOZES_MAX);
        ReportedEnd { ending: Ending::Failed, error: Some(error), next_at: None, ..end }
    }

    /// The same occurrence later, not charged. It expires meanwhile if its expiry comes first.
    fn snoozed(&self, until: Timestamp, terms: Option<Terms<'_>>) -> Next {
        let Some(terms) = terms else { return Next::Closed { dead_letter: false, job_mark: None } };
        Next::Retry(Live {
            attempt: self.attempt + 1,
            state: LiveState::Waiting(self.gates_under(Some(terms), Gates::only(Gate::Time))),
            available_at: until,
            input: RunInput::next(self.input.as_ref(), self.snoozes() + 1, true),
            ..self.clone()
        })
    }

    fn retried(
        &self,
        finished: &Finished,
        chosen: Option<Timestamp>,
        terms: Option<Terms<'_>>,
        now: Timestamp,
    ) -> Next {
        let charged = self.charged + 1;
        let (status, error) = (finished.status, finished.error.as_deref());
        let may_retry = |terms: &Terms<'_>| {
            charged <= terms.settings.max_retries && !terms.settings.fails_for_good(status, error)
        };
        let Some(terms) = terms.filter(may_retry) else {
            return Next::closed_with(StoredStatus::Failed, terms);
        };
        if planted(Defect::LoseRetry) {
            return Next::Closed { dead_letter: false, job_mark: None };
        }
        let input = RunInput::next(self.input.as_ref(), self.snoozes(), chosen.is_some());
        let next = Live { attempt: self.attempt + 1, charged, input, ..self.clone() };
        let next = match status {
            // The worker failed, not necessarily the job: retry at once, with the old rank.
            Status::Lost => Live { state: self.ready_under(Some(terms)), available_at: now, ..next },
            _ => Live {
                state: LiveState::Waiting(self.gates_under(Some(terms), Gates::only(Gate::Time))),
                available_at: chosen.unwrap_or_else(|| {
                    now.plus(terms.settings.retry.delay(charged, self.id)).min(Timestamp::MAX)
                }),
                ..next
            },
        };
        if next.expires_at.is_some_and(|at| at <= next.available_at) {
            return Next::closed_with(StoredStatus::Failed, Some(terms));
        }
        Next::Retry(next)
    }

    /// The history row of this attempt. The clock of the worker, and that of the node that ends the attempt,
    /// may be behind that of the node that claimed it. The times are therefore adjusted: no attempt starts
    /// before it was claimed or ends before it started.
    fn finished(&self, status: Status, started_at: Option<Timestamp>, ended_at: Timestamp) -> Finished {
        let lease = match self.state {
            LiveState::Running(lease) => Some(lease),
            _ => None,
        };
        let started_at = started_at.max(lease.map(|lease| lease.claimed_at));
        Finished {
            id: self.execution(),
            epoch: self.epoch,
            status,
            scheduled_time: self.scheduled_time,
            origin: self.origin,
            job_version: self.job_version,
            available_at: self.available_at,
            started_at,
            completed_at: started_at.map_or(ended_at, |started_at| ended_at.max(started_at)),
            session: lease.map(|lease| lease.session),
            worker: None,
            reason: None,
            error: None,
            result: None,
            input: self.input.clone(),
        }
    }
}

/// The result of checking a waiting or queued execution for the passing of time.
#[derive(Debug, Clone, PartialEq)]
pub enum Looked {
    Opened(Live),
    Expired(Settled),
    TooEarly,
}

/// The reported end of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportedEnd {
    pub ending: Ending,
    /// Whether another attempt may succeed.
    pub retryable: bool,
    /// When the handler wants to run again, after a failure or a snooze.
    pub next_at: Option<ChosenTime>,
    pub started_at: Option<Timestamp>,
    pub completed_at: Timestamp,
    pub error: Option<String>,
    /// JSON text.
    pub result: Option<String>,
}

/// The error of a run whose session stopped sending heartbeats.
const WORKER_SILENT: &str = "the worker stopped responding";

impl ReportedEnd {
    /// Checks the result: one that is too large or nested too deep fails the run without retry, as
    /// [`Outcome::within_limits`](crate::ports::Outcome::within_limits) does at the worker. The check is
    /// repeated before an end is stored, because not every worker makes it.
    pub fn within_limits(self) -> Self {
        match self.result.as_deref().and_then(result_problem) {
            None => self,
            Some(problem) => {
                let ending = if self.ending == Ending::Succeeded { Ending::Failed } else { self.ending };
                ReportedEnd { ending, retryable: false, error: Some(problem), result: None, ..self }
            }
        }
    }

    /// The end of a run whose session stopped sending heartbeats. How far the run came is unknown.
    pub fn lost(claimed_at: Timestamp, now: Timestamp) -> Self {
        ReportedEnd {
            ending: Ending::Lost,
            retryable: true,
            next_at: None,
            started_at: Some(claimed_at),
            completed_at: now,
            error: Some(WORKER_SILENT.to_owned()),
            result: None,
        }
    }
}

/// The result of returning an execution unstarted.
#[derive(Debug, Clone, PartialEq)]
pub enum GivenBack {
    /// Claimable again, or held by a pause.
    Queued(Live),
    /// A cancel had been requested: the occurrence ends.
    Closed(Settled),
}

/// The result of a cancel.
#[derive(Debug, Clone, PartialEq)]
pub enum Cancelled {
    Closed(Settled),
    Requested(Live),
}

/// A finished attempt and what follows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    pub finished: Finished,
    pub next: Next,
}

/// Whether the occurrence continues.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// It continues with another attempt.
    Retry(Live),
    /// It ends: the live row is removed. A dead letter is stored if it failed finally, and a one-shot job
    /// with nothing left gets a stored status.
    Closed { dead_letter: bool, job_mark: Option<StoredStatus> },
}

impl Next {
    /// Ended without success. Sets the stored status of a one-shot job, unless a cancel or delete has set it
    /// before.
    fn closed_with(mark: StoredStatus, terms: Option<Terms<'_>>) -> Self {
        let is_marked = terms.is_some_and(|terms| {
            terms.settings.schedule.is_one_shot()
                && !matches!(terms.mark, StoredStatus::Cancelled | StoredStatus::Deleted)
        });
        Next::Closed { dead_letter: mark == StoredStatus::Failed, job_mark: is_marked.then_some(mark) }
    }
}

/// A finished execution: a row of history.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    pub id: ExecutionId,
    pub epoch: Epoch,
    pub status: Status,
    pub scheduled_time: Timestamp,
    pub origin: Origin,
    pub job_version: u32,
    pub available_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Timestamp,
    pub session: Option<SessionId>,
    /// The name of the worker, filled in on read.
    pub worker: Option<String>,
    /// Why it was skipped, if so.
    pub reason: Option<SkipReason>,
    pub error: Option<String>,
    /// JSON text.
    pub result: Option<String>,
    pub input: Option<Arc<RunInput>>,
}

#[cfg(test)]
mod tests;
