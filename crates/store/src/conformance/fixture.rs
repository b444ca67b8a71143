//! What the cases share: times, jobs, and the verbs with the answers they expect.

use punctual_core::ids::{ExecutionId, JobId, SessionId};
use punctual_core::job::{Job, JobMark, JobSpec};
use punctual_core::lifecycle::Ending;
use punctual_core::occurrence::End;
use punctual_core::ports::{
    Assignment, Begun, Claim, ClaimOutcome, Due, DueKind, Fire, FireOutcome, JobView, NewJob, Offer,
    OpenOutcome, Recovered, Report, ReportAnswer, ReportOutcome, SessionOpening, Store, SubmitOutcome,
    TimeGate,
};
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::schedule::{Recurring, Schedule};
use punctual_core::session::Pulse;
use punctual_core::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;

pub(super) const SECOND_US: i64 = 1_000_000;
pub(super) const LEASE: Duration = Duration::from_secs(6);

/// A moment in the story of a case.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_763_195_400_000_000 + seconds * SECOND_US)
}

/// The n-th job of a case; ids sort by their numbers.
pub(super) fn job_with(number: u32, change: impl FnOnce(&mut JobSpec)) -> Job {
    let mut spec = JobSpec::named("report");
    change(&mut spec);
    let created_at = at(0).shifted(i64::from(number) * 1_000);
    Job {
        id: JobId::new(created_at, u64::from(number)),
        version: 1,
        mark: JobMark::Active,
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

pub(super) fn succeeded(seconds: i64) -> End {
    End {
        ending: Ending::Succeeded,
        retryable: false,
        started_at: Some(at(seconds)),
        completed_at: at(seconds),
        error: None,
        result: Some("42".to_owned()),
    }
}

pub(super) fn failed(seconds: i64) -> End {
    End {
        ending: Ending::Failed,
        retryable: true,
        started_at: Some(at(seconds)),
        completed_at: at(seconds),
        error: Some("it broke".to_owned()),
        result: None,
    }
}

/// A store with the verbs as sentences; an unexpected answer fails the case.
#[derive(Clone)]
pub(super) struct House {
    pub store: Arc<dyn Store>,
}

impl House {
    pub fn new(store: Arc<dyn Store>) -> Self {
        House { store }
    }

    /// Submits one job without an offer.
    pub async fn submit(&self, now: Timestamp, job: Job) -> Begun {
        self.submit_to(now, job, None).await
    }

    pub async fn submit_to(&self, now: Timestamp, job: Job, offer: Option<Offer>) -> Begun {
        let mut outcomes = self.store.submit(now, vec![NewJob { job, offer }]).await.unwrap();
        match outcomes.pop() {
            Some(SubmitOutcome::Created(begun)) => begun,
            other => panic!("submitted: {other:?}"),
        }
    }

    pub async fn open_session(&self, worker: &str) -> SessionId {
        let opening = SessionOpening {
            worker: worker.to_owned(),
            lease: LEASE,
            embedded: false,
            job_types: vec!["report".to_owned()],
            slots: 4,
        };
        self.store.open_session(at(0), opening).await.unwrap()
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
            ClaimOutcome::Claimed(assignments) => assignments,
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
        end: End,
    ) -> ReportOutcome {
        let report = Report { session, lease: of.lease(), end };
        self.store.report(now, vec![report]).await.unwrap().pop().unwrap()
    }

    /// Reports an end that must be accepted; what follows from it.
    pub async fn accept(&self, now: Timestamp, session: SessionId, of: &Assignment, end: End) -> Begun {
        let outcome = self.report(now, session, of, end).await;
        assert_eq!(outcome.answer, ReportAnswer::Accepted);
        outcome.retry
    }

    pub async fn fire(&self, now: Timestamp, job: JobId, version: u32) -> FireOutcome {
        self.store.fire(now, vec![Fire { job, version, offer: None }]).await.unwrap().pop().unwrap()
    }

    /// Fires a schedule that must be due: how many occurrences fired, how many were skipped, what is due next.
    pub async fn fired(&self, now: Timestamp, job: JobId, version: u32) -> (usize, u64, Option<Due>) {
        match self.fire(now, job, version).await {
            FireOutcome::Fired { begun, occurrences, skipped } => (occurrences.len(), skipped, begun.due),
            other => panic!("fired: {other:?}"),
        }
    }

    pub async fn open_gate(&self, now: Timestamp, of: ExecutionId, offer: Option<Offer>) -> OpenOutcome {
        let gate = TimeGate { occurrence: of.occurrence, attempt: of.attempt, offer };
        self.store.open_time_gates(now, vec![gate]).await.unwrap().pop().unwrap()
    }

    /// Loses a session that has never beaten and recovers all it held.
    pub async fn lose_and_recover(&self, now: Timestamp, session: SessionId) -> Recovered {
        assert_eq!(self.lose(now, session, 0).await, [true]);
        self.store.recover(now, 1_000).await.unwrap()
    }

    pub async fn lose(&self, now: Timestamp, session: SessionId, beat: u64) -> Vec<bool> {
        self.store.lose_sessions(now, vec![Pulse { session, beat, lease: LEASE }]).await.unwrap()
    }

    pub async fn view(&self, id: JobId) -> JobView {
        self.store.job(id).await.unwrap().expect("the job is there")
    }
}

/// The time gate that a failed attempt is waiting behind.
pub(super) fn time_gate(begun: &Begun) -> (Timestamp, ExecutionId) {
    match &begun.due {
        Some(Due { at, what: DueKind::TimeGate { occurrence, attempt }, .. }) => {
            (*at, occurrence.attempt(*attempt))
        }
        other => panic!("due: {other:?}"),
    }
}
