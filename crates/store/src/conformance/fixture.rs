//! Shared by all cases: times, jobs, and the verbs with their expected replies.

use punctual_core::control::{Refusal, Verb};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
use punctual_core::job::{Job, JobSpec, JobStatus, StoredStatus};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::{Finished, LiveState, ReportedEnd};
use punctual_core::ports::{
    Assignment, Beat, BeatOutcome, CancelOutcome, Claim, ClaimOutcome, CommitEffects, Control,
    ControlOutcome, Controlled, DeadLetter, DeadLetterQuery, Due, DueKind, FireOutcome, FireRequest, JobView,
    Lane, LeaseRef, LookOutcome, LookRequest, NewJob, Recovered, Report, ReportAnswer, ReportOutcome,
    SessionOpening, SlotReservation, Store, SubmitOutcome,
};
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::schedule::{Recurring, Schedule};
use punctual_core::session::Pulse;
use punctual_core::time::Timestamp;
use punctual_core::trace_context::TraceContext;
use std::sync::Arc;
use std::time::Duration;

pub(super) const SECOND_US: i64 = 1_000_000;
pub(super) const LEASE: Duration = Duration::from_secs(6);

/// A time within a case.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_763_195_400_000_000 + seconds * SECOND_US)
}

/// The n-th job of a case; ids are ordered by number.
pub(super) fn job_with(number: u32, change: impl FnOnce(&mut JobSpec)) -> Job {
    let mut spec = JobSpec::named("report");
    change(&mut spec);
    let created_at = at(0).shifted(i64::from(number) * 1_000);
    Job {
        id: JobId::new(created_at, u64::from(number)),
        version: 1,
        mark: StoredStatus::Active,
        numbered: None,
        fired: 0,
        created_at,
        updated_at: created_at,
        spec,
    }
}

pub(super) fn job(number: u32) -> Job {
    job_with(number, |_| {})
}

pub(super) fn every(seconds: i64) -> Schedule {
    recurring_every(seconds).into()
}

pub(super) fn recurring_every(seconds: i64) -> Recurring {
    Recurring::new(RecurrenceSpec::interval(&format!("{seconds}s"), at(seconds))).expect("it is valid")
}

pub(super) fn once(seconds: i64) -> Schedule {
    Schedule::OneTime { at: at(seconds) }
}

pub(super) fn succeeded(seconds: i64) -> ReportedEnd {
    ReportedEnd {
        ending: Ending::Succeeded,
        retryable: false,
        next_at: None,
        started_at: Some(at(seconds)),
        completed_at: at(seconds),
        error: None,
        result: Some("42".to_owned()),
    }
}

pub(super) fn failed(seconds: i64) -> ReportedEnd {
    ReportedEnd {
        ending: Ending::Failed,
        retryable: true,
        next_at: None,
        started_at: Some(at(seconds)),
        completed_at: at(seconds),
        error: Some("it broke".to_owned()),
        result: None,
    }
}

/// A failure that is not retried.
pub(super) fn died(seconds: i64) -> ReportedEnd {
    ReportedEnd { retryable: false, ..failed(seconds) }
}

pub(super) fn opening(worker: &str) -> SessionOpening {
    SessionOpening {
        worker: worker.to_owned(),
        lease: LEASE,
        embedded: false,
        job_types: vec!["report".to_owned()],
        slots: 4,
        about: Default::default(),
        token: None,
    }
}

/// The harness: a store with shortcuts for the verbs; an unexpected reply fails the case.
#[derive(Clone)]
pub(super) struct Harness {
    pub store: Arc<dyn Store>,
}

impl Harness {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Harness { store }
    }

    /// Submits one job without a slot reservation.
    pub async fn submit(&self, now: Timestamp, job: Job) -> CommitEffects {
        self.submit_to(now, job, None).await
    }

    pub async fn submit_to(
        &self,
        now: Timestamp,
        job: Job,
        reservation: Option<SlotReservation>,
    ) -> CommitEffects {
        let mut outcomes = self.store.submit(now, vec![NewJob { job, reservation }]).await.unwrap();
        match outcomes.pop() {
            Some(SubmitOutcome::Created(effects)) => effects,
            other => panic!("submitted: {other:?}"),
        }
    }

    pub async fn open_session(&self, worker: &str) -> SessionId {
        self.store.open_session(at(0), opening(worker)).await.unwrap()
    }

    /// Claims executions of the job type `report` from all queues.
    pub async fn claim(
        &self,
        now: Timestamp,
        session: SessionId,
        turn: u64,
        limit: usize,
    ) -> Vec<Assignment> {
        match self.try_claim(now, session, turn, limit).await {
            ClaimOutcome::Claimed { assignments, .. } => assignments,
            other => panic!("claimed: {other:?}"),
        }
    }

    pub async fn try_claim(
        &self,
        now: Timestamp,
        session: SessionId,
        turn: u64,
        limit: usize,
    ) -> ClaimOutcome {
        let job_types = vec!["report".to_owned()];
        self.claim_from(now, Claim { session, turn, limit, queues: vec![], job_types }).await
    }

    pub async fn claim_from(&self, now: Timestamp, claim: Claim) -> ClaimOutcome {
        self.store.claim(now, vec![claim]).await.unwrap().pop().unwrap()
    }

    /// Claims exactly one execution.
    pub async fn claim_one(&self, now: Timestamp, session: SessionId, turn: u64) -> Assignment {
        let mut assignments = self.claim(now, session, turn, 1).await;
        assignments.pop().expect("there is something to claim")
    }

    pub async fn report(
        &self,
        now: Timestamp,
        session: SessionId,
        of: &Assignment,
        end: ReportedEnd,
    ) -> ReportOutcome {
        let report = Report { session, lease: of.lease(), end };
        self.store.report(now, vec![report]).await.unwrap().pop().unwrap()
    }

    /// Reports an end that must be accepted. Returns the commit effects.
    pub async fn accept(
        &self,
        now: Timestamp,
        session: SessionId,
        of: &Assignment,
        end: ReportedEnd,
    ) -> CommitEffects {
        let outcome = self.report(now, session, of, end).await;
        assert_eq!(outcome.answer, ReportAnswer::Accepted);
        outcome.effects
    }

    pub async fn fire(&self, now: Timestamp, job: JobId, version: u32) -> FireOutcome {
        self.store
            .fire(now, vec![FireRequest { job, version, reservation: None }])
            .await
            .unwrap()
            .pop()
            .unwrap()
    }

    /// Fires a schedule that must be due. Returns how many occurrences fired, how many were skipped, and
    /// when it fires next.
    pub async fn fired(&self, now: Timestamp, job: JobId, version: u32) -> (usize, u64, Option<Due>) {
        match self.fire(now, job, version).await {
            FireOutcome::Fired { effects, occurrences, skipped } => {
                let is_schedule = |due: &Due| matches!(due.what, DueKind::Schedule { .. });
                (occurrences.len(), skipped, effects.due.into_iter().find(is_schedule))
            }
            other => panic!("fired: {other:?}"),
        }
    }

    pub async fn look(
        &self,
        now: Timestamp,
        of: ExecutionId,
        reservation: Option<SlotReservation>,
    ) -> LookOutcome {
        let reservation = reservation.map(|reservation| (reservation, lane()));
        let look = LookRequest { occurrence: of.occurrence, attempt: of.attempt, reservation };
        self.store.look(now, vec![look]).await.unwrap().pop().unwrap()
    }

    /// Loses a session without heartbeats and recovers everything it held.
    pub async fn lose_and_recover(&self, now: Timestamp, session: SessionId) -> Recovered {
        assert_eq!(self.lose(now, session, 0).await, [true]);
        self.store.recover(now, 1_000).await.unwrap()
    }

    pub async fn lose(&self, now: Timestamp, session: SessionId, beat: u64) -> Vec<bool> {
        self.store.lose_sessions(now, vec![Pulse { session, beat, lease: LEASE }]).await.unwrap()
    }

    pub async fn view(&self, id: JobId) -> JobView {
        self.store.job(id).await.unwrap().expect("the job exists")
    }

    pub async fn status(&self, id: JobId) -> JobStatus {
        self.view(id).await.status()
    }

    /// The open occurrences of a job: numbers and states, ordered by number.
    pub async fn open(&self, id: JobId) -> Vec<(u32, LiveState)> {
        let open = self.view(id).await.open;
        open.iter().rev().map(|live| (live.id.number, live.state)).collect()
    }

    /// The ended attempts of a job: occurrence numbers, attempts and statuses, oldest first.
    pub async fn ended(&self, id: JobId) -> Vec<(u32, u32, Status)> {
        let history = self.store.history(id, None, 1_000).await.unwrap().items;
        let facts =
            |finished: &Finished| (finished.id.occurrence.number, finished.id.attempt, finished.status);
        history.iter().rev().map(facts).collect()
    }

    /// The times of everything that becomes due up to a time.
    pub async fn due(&self, until: Timestamp) -> Vec<Timestamp> {
        let due = self.store.due(SegmentSet::ALL, until, 1_000).await.unwrap();
        due.iter().map(|due| due.at).collect()
    }

    pub async fn try_submit(&self, now: Timestamp, job: Job) -> SubmitOutcome {
        self.store.submit(now, vec![NewJob { job, reservation: None }]).await.unwrap().remove(0)
    }

    pub async fn control(&self, now: Timestamp, job: JobId, verb: Verb) -> ControlOutcome {
        self.store.control(now, vec![Control { job, verb }]).await.unwrap().remove(0)
    }

    /// Applies a verb that must succeed.
    pub async fn done(&self, now: Timestamp, job: JobId, verb: Verb) -> Controlled {
        match self.control(now, job, verb).await {
            ControlOutcome::Done(controlled) => controlled,
            other => panic!("done: {other:?}"),
        }
    }

    /// Applies a verb that must be refused.
    pub async fn refused(&self, now: Timestamp, job: JobId, verb: Verb) -> Refusal {
        match self.control(now, job, verb).await {
            ControlOutcome::Refused(refusal) => refusal,
            other => panic!("refused: {other:?}"),
        }
    }

    pub async fn redrive(&self, now: Timestamp, dead: OccurrenceId) -> ControlOutcome {
        self.store.redrive(now, vec![dead]).await.unwrap().remove(0)
    }

    /// Redrives a dead occurrence.
    pub async fn redriven(&self, now: Timestamp, dead: OccurrenceId) -> Controlled {
        match self.redrive(now, dead).await {
            ControlOutcome::Done(controlled) => controlled,
            other => panic!("redriven: {other:?}"),
        }
    }

    pub async fn cancel(&self, now: Timestamp, execution: ExecutionId) -> CancelOutcome {
        self.store.cancel(now, vec![execution]).await.unwrap().remove(0)
    }

    pub async fn worker(&self) -> Worker {
        Worker { harness: self.clone(), session: self.open_session("w").await, turn: 0, beat: 0 }
    }

    /// All dead letters, latest first.
    pub async fn dead_letters(&self) -> Vec<DeadLetter> {
        let query = DeadLetterQuery { limit: 1_000, ..DeadLetterQuery::default() };
        self.store.dead_letters(query).await.unwrap().items
    }
}

/// A worker that tracks its own poll sequence numbers and heartbeats.
pub(super) struct Worker {
    harness: Harness,
    pub session: SessionId,
    turn: u64,
    beat: u64,
}

impl Worker {
    /// Claims executions of the job type `report` from all queues.
    pub async fn claim(&mut self, now: Timestamp, limit: usize) -> Vec<Assignment> {
        let claimed = self.harness.claim(now, self.session, self.turn + 1, limit).await;
        self.turn += u64::from(!claimed.is_empty());
        claimed
    }

    pub async fn claim_one(&mut self, now: Timestamp) -> Assignment {
        self.claim(now, 1).await.pop().expect("there is something to claim")
    }

    /// Claims everything that one queue has for one job type. Returns the executions.
    pub async fn claim_in(&mut self, now: Timestamp, queue: &str, job_type: &str) -> Vec<ExecutionId> {
        let (queues, job_types) = (vec![queue.to_owned()], vec![job_type.to_owned()]);
        let claim = Claim { session: self.session, turn: self.turn + 1, limit: 100, queues, job_types };
        let ClaimOutcome::Claimed { assignments, .. } = self.harness.claim_from(now, claim).await else {
            panic!("the worker is alive");
        };
        self.turn += u64::from(!assignments.is_empty());
        assignments.iter().map(|assignment| assignment.execution).collect()
    }

    /// Whether there is nothing to claim.
    pub async fn is_idle(&mut self, now: Timestamp) -> bool {
        self.claim(now, 1).await.is_empty()
    }

    /// A slot reservation of this worker.
    pub fn reservation(&self) -> SlotReservation {
        SlotReservation { session: self.session, turn: self.turn + 1 }
    }

    /// Reports an end that must be accepted. Returns the commit effects.
    pub async fn end(&self, now: Timestamp, of: &Assignment, end: ReportedEnd) -> CommitEffects {
        self.harness.accept(now, self.session, of, end).await
    }

    /// Claims one execution and ends it. Returns the execution and the commit effects.
    pub async fn run(&mut self, now: Timestamp, end: ReportedEnd) -> (ExecutionId, CommitEffects) {
        let assignment = self.claim_one(now).await;
        let effects = self.end(now, &assignment, end).await;
        (assignment.execution, effects)
    }

    pub async fn give_back(&self, now: Timestamp, of: &Assignment) -> CommitEffects {
        let mut effects = self.harness.store.give_back(now, self.session, vec![of.lease()]).await.unwrap();
        effects.remove(0).expect("it holds the lease")
    }

    /// Sends a heartbeat. Returns what it is asked to stop.
    pub async fn beat(&mut self, now: Timestamp) -> Vec<LeaseRef> {
        self.beat += 1;
        let beat = Beat { session: self.session, beat: self.beat, draining: false };
        match self.harness.store.beat(now, vec![beat]).await.unwrap().remove(0) {
            BeatOutcome::Counted { cancel, .. } => cancel,
            BeatOutcome::SessionLost => panic!("the worker is alive"),
        }
    }

    /// Loses the session and recovers what it held.
    pub async fn lose(&self, now: Timestamp) -> Recovered {
        assert_eq!(self.harness.lose(now, self.session, self.beat).await, [true]);
        self.harness.store.recover(now, 1_000).await.unwrap()
    }
}

/// The only gate that keeps an execution waiting.
pub(super) fn behind(gate: Gate) -> LiveState {
    LiveState::Waiting(Gates::only(gate))
}

/// The default lane of a job.
pub(super) fn lane() -> Lane {
    Lane::new("default", "report")
}

/// The time gate that a failed attempt is waiting behind.
pub(super) fn time_gate(effects: &CommitEffects) -> (Timestamp, ExecutionId) {
    match &effects.due[..] {
        [Due { at, what: DueKind::Live { occurrence, attempt }, .. }] => (*at, occurrence.attempt(*attempt)),
        other => panic!("due: {other:?}"),
    }
}

/// A place in a trace, with this `tracestate`.
pub fn trace(state: &str) -> TraceContext {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    TraceContext::of_headers(parent, state).expect("a valid header")
}
