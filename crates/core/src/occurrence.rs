//! An open occurrence and its current execution: one live row from fire to final outcome. Each change of it is
//! a function here that asks [`lifecycle::step`] for the state and carries along what belongs to the move. The
//! store reads a row, calls one of these, and writes back what it returned.

use crate::defects::{Defect, planted};
use crate::gates::{Gate, Gates};
use crate::ids::{Epoch, ExecutionId, OccurrenceId, SessionId};
use crate::job::{JobMark, Priority, Settings};
use crate::lifecycle::{Ending, Event, Refused, State, Status, step};
use crate::rank::rank;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What caused an occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Schedule,
    Trigger,
    Backfill,
}

/// An open occurrence.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    pub id: OccurrenceId,
    /// The number of the current physical run, or of the next one; from 1.
    pub attempt: u32,
    /// Finished attempts that count against `max_retries`.
    pub charged: u32,
    pub epoch: Epoch,
    pub state: LiveState,
    pub rank: i64,
    pub priority: Priority,
    /// When the current attempt may start at the earliest.
    pub available_at: Timestamp,
    pub scheduled_time: Timestamp,
    pub origin: Origin,
    pub job_version: u32,
}

/// The live states, with what each needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveState {
    Waiting(Gates),
    Queued,
    Running(Lease),
}

/// Who holds a running execution.
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

    /// The lease, if this session holds it in this epoch.
    pub fn held_by(&self, session: SessionId, execution: ExecutionId, epoch: Epoch) -> Option<Lease> {
        let LiveState::Running(lease) = self.state else { return None };
        if planted(Defect::DropEpoch) {
            return Some(lease);
        }
        (lease.session == session && self.execution() == execution && self.epoch == epoch).then_some(lease)
    }

    /// Claimed by a session.
    pub fn claimed(&self, session: SessionId, now: Timestamp) -> Result<Live, Refused> {
        step(self.state(), Event::Claim)?;
        let lease = Lease { session, claimed_at: now, cancel_requested: false };
        Ok(Live { state: LiveState::Running(lease), epoch: self.epoch.next(), ..self.clone() })
    }

    /// Returned unstarted: neither charged nor numbered, and back at its old place in the queue.
    pub fn given_back(&self, now: Timestamp) -> Result<GivenBack, Refused> {
        Ok(match step(self.state(), Event::GiveBack)? {
            State::Finished(status) => GivenBack::Cancelled(self.finished(status, now)),
            _ => GivenBack::Queued(Live { state: LiveState::Queued, ..self.clone() }),
        })
    }

    /// One gate opens; behind the last one the execution is ready and gets its rank.
    pub fn gate_opened(&self, gate: Gate, now: Timestamp) -> Result<Live, Refused> {
        let state = match step(self.state(), Event::OpenGate(gate)) {
            Err(_) if planted(Defect::OpenGateTwice) => State::Queued,
            result => result?,
        };
        Ok(match state {
            State::Waiting(gates) => Live { state: LiveState::Waiting(gates), ..self.clone() },
            _ => Live {
                state: LiveState::Queued,
                rank: rank(self.available_at.min(now), self.priority, Duration::ZERO),
                ..self.clone()
            },
        })
    }

    /// A cancel is asked for: what has not started ends here, what runs is asked to stop.
    pub fn cancelled(&self, now: Timestamp) -> Result<Cancelled, Refused> {
        Ok(match (step(self.state(), Event::Cancel)?, self.state) {
            (State::Finished(status), _) => Cancelled::Finished(self.finished(status, now)),
            (_, LiveState::Running(lease)) => Cancelled::Requested(Live {
                state: LiveState::Running(Lease { cancel_requested: true, ..lease }),
                ..self.clone()
            }),
            (state, _) => unreachable!("a cancel leads from {:?} to {state:?}", self.state),
        })
    }

    /// The run has ended: what goes into history, and whether the occurrence goes on.
    ///
    /// `settings` are those of the job; they may be missing when the run succeeded or the job is gone, and
    /// then nothing is retried.
    pub fn settled(&self, end: End, settings: Option<&Settings>, now: Timestamp) -> Result<Settled, Refused> {
        let State::Finished(status) = step(self.state(), Event::End(end.ending))? else {
            unreachable!("an ended run is finished");
        };
        let mut finished = self.finished(status, end.completed_at);
        finished.started_at = end.started_at;
        finished.error = end.error;
        finished.result = end.result;
        let next = match status {
            Status::Succeeded => Next::Closed { dead_letter: false, job_mark: None },
            Status::Cancelled => Next::closed_with(JobMark::Cancelled, settings),
            _ => self.retried(end.ending, end.retryable, settings, now),
        };
        Ok(Settled { finished, next })
    }

    fn retried(&self, ending: Ending, retryable: bool, settings: Option<&Settings>, now: Timestamp) -> Next {
        let charged = self.charged + 1;
        let Some(settings) = settings.filter(|settings| retryable && charged <= settings.max_retries) else {
            return Next::closed_with(JobMark::Failed, settings);
        };
        if planted(Defect::LoseRetry) {
            return Next::Closed { dead_letter: false, job_mark: None };
        }
        let next = Live { attempt: self.attempt + 1, charged, ..self.clone() };
        Next::Retry(match ending {
            // Nothing is known to be wrong with the job, only with its worker: at once, at its old place.
            Ending::Lost => Live { state: LiveState::Queued, available_at: now, ..next },
            _ => Live {
                state: LiveState::Waiting(Gates::only(Gate::Time)),
                available_at: now.plus(settings.retry.delay(charged, self.id)),
                ..next
            },
        })
    }

    fn finished(&self, status: Status, completed_at: Timestamp) -> Finished {
        let lease = match self.state {
            LiveState::Running(lease) => Some(lease),
            _ => None,
        };
        Finished {
            id: self.execution(),
            epoch: self.epoch,
            status,
            scheduled_time: self.scheduled_time,
            origin: self.origin,
            job_version: self.job_version,
            available_at: self.available_at,
            started_at: lease.map(|lease| lease.claimed_at),
            completed_at,
            session: lease.map(|lease| lease.session),
            worker: None,
            error: None,
            result: None,
        }
    }
}

/// The end of a run as told.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    pub ending: Ending,
    /// Whether another attempt may mend it.
    pub retryable: bool,
    pub started_at: Option<Timestamp>,
    pub completed_at: Timestamp,
    pub error: Option<String>,
    /// JSON text.
    pub result: Option<String>,
}

impl End {
    /// The end of a run whose session fell silent: nobody knows how far it came.
    pub fn lost(claimed_at: Timestamp, now: Timestamp) -> Self {
        End {
            ending: Ending::Lost,
            retryable: true,
            started_at: Some(claimed_at),
            completed_at: now,
            error: Some("the worker stopped responding".to_owned()),
            result: None,
        }
    }
}

/// What a give-back leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum GivenBack {
    Queued(Live),
    /// A cancel had been requested: the occurrence ends here.
    Cancelled(Finished),
}

/// What a cancel leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum Cancelled {
    Finished(Finished),
    Requested(Live),
}

/// A finished attempt and what follows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    pub finished: Finished,
    pub next: Next,
}

/// Whether the occurrence goes on.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// With another attempt.
    Retry(Live),
    /// No: the live row goes; a dead letter is kept if it failed for good, and a one-shot job is marked.
    Closed { dead_letter: bool, job_mark: Option<JobMark> },
}

impl Next {
    fn closed_with(mark: JobMark, settings: Option<&Settings>) -> Self {
        let one_shot = settings.is_some_and(|settings| settings.schedule.is_one_shot());
        Next::Closed { dead_letter: mark == JobMark::Failed, job_mark: one_shot.then_some(mark) }
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
    /// The name of the worker, filled in when read.
    pub worker: Option<String>,
    pub error: Option<String>,
    /// JSON text.
    pub result: Option<String>,
}
