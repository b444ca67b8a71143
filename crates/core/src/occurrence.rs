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

    /// Returned unstarted: neither charged nor numbered, and back at its old place in the queue. The job's
    /// settings matter only if a cancel was requested.
    pub fn given_back(&self, settings: Option<&Settings>, now: Timestamp) -> Result<GivenBack, Refused> {
        Ok(match step(self.state(), Event::GiveBack)? {
            State::Finished(status) => GivenBack::Closed(self.closed_by_cancel(status, settings, now)),
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
    pub fn cancelled(&self, settings: Option<&Settings>, now: Timestamp) -> Result<Cancelled, Refused> {
        Ok(match (step(self.state(), Event::Cancel)?, self.state) {
            (State::Finished(status), _) => Cancelled::Closed(self.closed_by_cancel(status, settings, now)),
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
        // The worker's idea of the time may lie a little behind: nothing starts before it was claimed.
        finished.started_at = end.started_at.max(finished.started_at);
        finished.completed_at = end.completed_at.max(finished.started_at.unwrap_or(end.completed_at));
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

    fn closed_by_cancel(&self, status: Status, settings: Option<&Settings>, now: Timestamp) -> Settled {
        let next = Next::closed_with(JobMark::Cancelled, settings);
        Settled { finished: self.finished(status, now), next }
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
    Closed(Settled),
}

/// What a cancel leads to.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;
    use crate::recurrence::RecurrenceSpec;
    use crate::retry::RetryPolicy;
    use crate::schedule::{OverlapPolicy, Recurring};

    const HOLDER: SessionId = SessionId(1);
    const OTHER: SessionId = SessionId(2);
    const RETRY_DELAY: Duration = Duration::from_secs(5);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(1_763_195_400_000_000 + seconds * 1_000_000)
    }

    fn fired() -> Live {
        let id = JobId::new(at(0), 1).occurrence(1);
        Live::fired(id, at(0), Origin::Schedule, 1, Priority::DEFAULT, at(0), Duration::ZERO)
    }

    fn running() -> Live {
        fired().claimed(HOLDER, at(1)).unwrap()
    }

    fn cancel_requested() -> Live {
        match running().cancelled(None, at(2)).unwrap() {
            Cancelled::Requested(live) => live,
            Cancelled::Closed(settled) => panic!("a running execution ended by a request: {settled:?}"),
        }
    }

    fn one_shot(max_retries: u32) -> Settings {
        let retry = RetryPolicy::Ladder { steps_ms: vec![RETRY_DELAY.as_millis() as u64] };
        Settings { max_retries, retry, ..Settings::default() }
    }

    fn recurring(max_retries: u32) -> Settings {
        let schedule = Recurring::new(RecurrenceSpec::interval("60s", at(0))).unwrap().into();
        Settings { schedule, overlap: OverlapPolicy::Allow, ..one_shot(max_retries) }
    }

    fn end(ending: Ending) -> End {
        let error = (ending == Ending::Failed).then(|| "out of paper".to_owned());
        End { ending, retryable: true, started_at: Some(at(1)), completed_at: at(9), error, result: None }
    }

    fn next(settled: Settled) -> Live {
        match settled.next {
            Next::Retry(live) => live,
            closed => panic!("no further attempt: {closed:?}"),
        }
    }

    #[test]
    fn a_claim_leases_to_the_session_and_raises_the_epoch() {
        let live = running();
        let lease = Lease { session: HOLDER, claimed_at: at(1), cancel_requested: false };
        assert_eq!(live, Live { state: LiveState::Running(lease), epoch: Epoch(1), ..fired() });
        assert!(live.claimed(OTHER, at(2)).is_err());
    }

    #[test]
    fn a_lease_is_held_only_by_its_session_in_its_epoch_and_attempt() {
        let live = running();
        let execution = live.execution();
        assert!(live.held_by(HOLDER, execution, Epoch(1)).is_some());
        assert_eq!(live.held_by(OTHER, execution, Epoch(1)), None);
        assert_eq!(live.held_by(HOLDER, execution, Epoch(0)), None);
        assert_eq!(live.held_by(HOLDER, execution, Epoch(2)), None);
        assert_eq!(live.held_by(HOLDER, live.id.attempt(2), Epoch(1)), None);
        assert_eq!(fired().held_by(HOLDER, execution, Epoch(0)), None);
    }

    #[test]
    fn given_back_is_neither_charged_nor_numbered_and_keeps_its_place_and_epoch() {
        let given_back = running().given_back(None, at(5)).unwrap();
        assert_eq!(given_back, GivenBack::Queued(Live { epoch: Epoch(1), ..fired() }));
        assert!(fired().given_back(None, at(5)).is_err());
    }

    #[test]
    fn given_back_after_a_cancel_request_ends_cancelled() {
        let given_back = cancel_requested().given_back(Some(&one_shot(3)), at(5)).unwrap();
        let GivenBack::Closed(Settled { finished, next }) = given_back else {
            panic!("queued again although a cancel was requested");
        };
        assert_eq!(next, Next::Closed { dead_letter: false, job_mark: Some(JobMark::Cancelled) });
        assert_eq!((finished.status, finished.completed_at), (Status::Cancelled, at(5)));
        assert_eq!(finished.session, Some(HOLDER));
    }

    #[test]
    fn only_the_last_gate_makes_ready_and_ranks_by_when_it_could_have_started() {
        let gates = Gates::only(Gate::Time).with(Gate::Paused);
        let waiting = Live { state: LiveState::Waiting(gates), available_at: at(10), rank: 0, ..fired() };
        let half_open = waiting.gate_opened(Gate::Time, at(11)).unwrap();
        assert_eq!(half_open, Live { state: LiveState::Waiting(Gates::only(Gate::Paused)), ..waiting });
        let ready = half_open.gate_opened(Gate::Paused, at(500)).unwrap();
        assert_eq!(ready.state, LiveState::Queued);
        assert_eq!(ready.rank, rank(at(10), Priority::DEFAULT, Duration::ZERO));
        assert!(ready.gate_opened(Gate::Paused, at(501)).is_err());
    }

    #[test]
    fn no_gate_opens_under_a_running_execution() {
        for gate in Gate::ALL {
            assert!(running().gate_opened(gate, at(2)).is_err());
        }
    }

    #[test]
    fn a_success_closes_the_occurrence_and_keeps_what_was_told() {
        let told = End { result: Some("42".to_owned()), ..end(Ending::Succeeded) };
        let settled = running().settled(told, None, at(10)).unwrap();
        assert_eq!(settled.next, Next::Closed { dead_letter: false, job_mark: None });
        let finished = settled.finished;
        assert_eq!((finished.id, finished.epoch), (fired().execution(), Epoch(1)));
        assert_eq!((finished.status, finished.session), (Status::Succeeded, Some(HOLDER)));
        assert_eq!((finished.started_at, finished.completed_at), (Some(at(1)), at(9)));
        assert_eq!((finished.result.as_deref(), finished.error), (Some("42"), None));
    }

    #[test]
    fn what_does_not_run_cannot_end() {
        let waiting = Live { state: LiveState::Waiting(Gates::only(Gate::Time)), ..fired() };
        for live in [fired(), waiting] {
            for ending in Ending::ALL {
                assert!(live.settled(end(ending), Some(&one_shot(3)), at(10)).is_err());
            }
        }
    }

    #[test]
    fn a_failure_waits_out_its_backoff_behind_the_time_gate() {
        for ending in [Ending::Failed, Ending::TimedOut] {
            let retry = next(running().settled(end(ending), Some(&one_shot(3)), at(10)).unwrap());
            assert_eq!(retry.state, LiveState::Waiting(Gates::only(Gate::Time)));
            assert_eq!((retry.attempt, retry.charged, retry.epoch), (2, 1, Epoch(1)));
            assert_eq!(retry.available_at, at(10).plus(RETRY_DELAY));
        }
    }

    #[test]
    fn a_loss_is_charged_and_requeued_at_once_at_its_old_rank() {
        let live = Live { rank: -7, ..running() };
        let settled = live.settled(End::lost(at(1), at(10)), Some(&one_shot(3)), at(10)).unwrap();
        assert_eq!(settled.finished.status, Status::Lost);
        let retry = next(settled);
        assert_eq!((retry.state, retry.rank, retry.available_at), (LiveState::Queued, -7, at(10)));
        assert_eq!((retry.attempt, retry.charged), (2, 1));
    }

    /// The statuses of all attempts of an occurrence whose every run ends this way, and how it was closed.
    fn run_until_closed(ending: Ending, settings: &Settings) -> (Vec<Status>, Next) {
        let (mut live, mut statuses) = (fired(), vec![]);
        loop {
            if live.state != LiveState::Queued {
                live = live.gate_opened(Gate::Time, at(1_000)).unwrap();
            }
            let running = live.claimed(HOLDER, at(1)).unwrap();
            let settled = running.settled(end(ending), Some(settings), at(10)).unwrap();
            assert_eq!(settled.finished.id.attempt as usize, statuses.len() + 1);
            statuses.push(settled.finished.status);
            match settled.next {
                Next::Retry(next) => live = next,
                closed => return (statuses, closed),
            }
        }
    }

    #[test]
    fn three_retries_mean_four_attempts_and_then_a_dead_letter() {
        for (ending, status) in [
            (Ending::Failed, Status::Failed),
            (Ending::TimedOut, Status::TimedOut),
            (Ending::Lost, Status::Lost),
        ] {
            let (statuses, closed) = run_until_closed(ending, &one_shot(3));
            assert_eq!(statuses, [status; 4]);
            assert_eq!(closed, Next::Closed { dead_letter: true, job_mark: Some(JobMark::Failed) });
        }
    }

    #[test]
    fn no_retries_mean_at_most_once_even_when_lost() {
        for ending in [Ending::Failed, Ending::TimedOut, Ending::Lost] {
            assert_eq!(run_until_closed(ending, &one_shot(0)).0.len(), 1);
        }
    }

    #[test]
    fn give_backs_use_up_no_attempt() {
        let mut live = fired();
        for _ in 0..10 {
            let GivenBack::Queued(queued) =
                live.claimed(HOLDER, at(1)).unwrap().given_back(None, at(2)).unwrap()
            else {
                panic!("cancelled without a request");
            };
            live = queued;
        }
        let failed =
            live.claimed(HOLDER, at(3)).unwrap().settled(end(Ending::Failed), Some(&one_shot(1)), at(4));
        let retry = next(failed.unwrap());
        assert_eq!((retry.attempt, retry.charged, retry.epoch), (2, 1, Epoch(11)));
    }

    #[test]
    fn a_failure_that_no_retry_can_mend_goes_to_the_dead_letters_at_once() {
        let told = End { retryable: false, ..end(Ending::Failed) };
        let settled = running().settled(told, Some(&one_shot(3)), at(10)).unwrap();
        assert_eq!(settled.next, Next::Closed { dead_letter: true, job_mark: Some(JobMark::Failed) });
        assert_eq!(settled.finished.error.as_deref(), Some("out of paper"));
    }

    #[test]
    fn a_recurring_job_is_not_marked_by_one_occurrence() {
        let failed = running().settled(end(Ending::Failed), Some(&recurring(0)), at(10)).unwrap();
        assert_eq!(failed.next, Next::Closed { dead_letter: true, job_mark: None });
        let cancelled =
            cancel_requested().settled(end(Ending::Cancelled), Some(&recurring(3)), at(10)).unwrap();
        assert_eq!(cancelled.next, Next::Closed { dead_letter: false, job_mark: None });
    }

    #[test]
    fn nothing_is_retried_for_a_job_that_is_gone() {
        let settled = running().settled(end(Ending::Failed), None, at(10)).unwrap();
        assert_eq!(settled.next, Next::Closed { dead_letter: true, job_mark: None });
    }

    #[test]
    fn cancelling_what_has_not_started_ends_it_without_a_holder() {
        let waiting = Live { state: LiveState::Waiting(Gates::only(Gate::Overlap)), ..fired() };
        for live in [fired(), waiting] {
            let cancelled = live.cancelled(Some(&recurring(3)), at(2)).unwrap();
            let Cancelled::Closed(Settled { finished, next }) = cancelled else {
                panic!("it has not started, so nobody can be asked to stop");
            };
            assert_eq!(next, Next::Closed { dead_letter: false, job_mark: None });
            assert_eq!((finished.status, finished.completed_at), (Status::Cancelled, at(2)));
            assert_eq!((finished.session, finished.started_at), (None, None));
        }
    }

    #[test]
    fn cancelling_a_run_leaves_its_lease_and_is_asked_for_once() {
        let requested = cancel_requested();
        let lease = requested.held_by(HOLDER, requested.execution(), Epoch(1)).unwrap();
        assert!(lease.cancel_requested);
        assert!(requested.cancelled(None, at(3)).is_err());
    }

    #[test]
    fn after_a_requested_cancel_every_ending_is_cancelled_and_none_is_retried() {
        for ending in Ending::ALL {
            let settled = cancel_requested().settled(end(ending), Some(&one_shot(3)), at(10)).unwrap();
            assert_eq!(settled.finished.status, Status::Cancelled, "{ending:?}");
            assert_eq!(
                settled.next,
                Next::Closed { dead_letter: false, job_mark: Some(JobMark::Cancelled) },
                "{ending:?}"
            );
        }
    }
}
