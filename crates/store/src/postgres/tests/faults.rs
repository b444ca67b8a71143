//! A database that fails in the middle of a call. A caller that repeats the call as the port requires loses
//! nothing and does nothing twice, wherever the connection was cut.

use super::database::{TestDatabase, client};
use super::fixture::at;
use super::integrity::problems;
use super::proxy::{Fault, Proxy, Sender};
use super::waiting::again;
use crate::conformance::counts_agree;
use crate::postgres::{PostgresOptions, PostgresStore};
use punctual_core::control::Verb;
use punctual_core::ids::{ExecutionId, JobId, SessionId};
use punctual_core::job::{Job, JobSpec, StoredStatus};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::{LiveState, ReportedEnd};
use punctual_core::ports::{
    Assignment, Claim, ClaimOutcome, Control, ControlOutcome, FireOutcome, FireRequest, NewJob, Report,
    ReportAnswer, Resync, ResyncOutcome, SessionOpening, Store, StoreError, SubmitOutcome,
};
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::schedule::Recurring;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Messages after which a call counts as never ending.
const MESSAGES_MAX: usize = 500;
/// Jobs per step of a walk.
const JOBS: u32 = 3;

/// A store behind a proxy, with one writer, so that the messages of a call are on one connection.
struct FaultSetup {
    store: Arc<PostgresStore>,
    proxy: Proxy,
    options: PostgresOptions,
}

impl FaultSetup {
    /// Runs a test, after which the tables must agree.
    async fn with(test: impl AsyncFnOnce(&FaultSetup)) {
        TestDatabase::with(async |options| {
            let (proxy, through) = Proxy::before(&options).await;
            let through = PostgresOptions { writers: 1, ..through };
            let store = Arc::new(PostgresStore::open(&through).await.unwrap());
            let stage = FaultSetup { store, proxy, options };
            test(&stage).await;
            counts_agree(&*stage.store).await;
            assert_eq!(problems(&client(&stage.options).await).await, Vec::<String>::new());
        })
        .await;
    }

    /// Cuts a call after every number of messages, from each side, until it succeeds untouched. Each step
    /// of the walk gets its number and prepares, calls and checks by itself.
    async fn walk(&self, mut step: impl AsyncFnMut(&FaultSetup, u32, Fault)) {
        let mut number = 0;
        for of in [Sender::Client, Sender::Server] {
            let mut messages = 0;
            loop {
                assert!(messages < MESSAGES_MAX, "the call never succeeds");
                number += 1;
                step(self, number, Fault::CutAfter { messages, of }).await;
                let was_cut = self.proxy.disarm();
                if !was_cut {
                    break;
                }
                messages += 1;
            }
            assert!(messages > 2, "a call of {messages} messages");
        }
    }

    /// Makes a call under a fault, and repeats it until it gets a reply, like a caller does. Returns the
    /// first reply, and the last.
    async fn call<T: Clone>(
        &self,
        fault: Fault,
        call: impl AsyncFn() -> Result<T, StoreError>,
    ) -> (Result<T, StoreError>, T) {
        self.proxy.arm(fault);
        let first = call().await;
        match &first {
            Ok(answer) => (first.clone(), answer.clone()),
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                let answer = again(|| call()).await;
                (first, answer)
            }
        }
    }

    async fn open_of(&self, job: JobId) -> Vec<(u32, LiveState)> {
        let view = again(|| self.store.job(job)).await.expect("the job exists");
        view.open.iter().map(|live| (live.id.number, live.state)).collect()
    }

    async fn ended_of(&self, job: JobId) -> Vec<(u32, u32, Status)> {
        let history = again(|| self.store.history(job, None, 100)).await;
        let facts = history.items.iter().rev();
        facts.map(|one| (one.id.occurrence.number, one.id.attempt, one.status)).collect()
    }

    async fn session(&self) -> SessionId {
        let opening = SessionOpening {
            worker: "w".to_owned(),
            lease: Duration::from_secs(6),
            embedded: false,
            job_types: vec!["report".to_owned()],
            slots: 4,
            about: Default::default(),
            token: None,
        };
        self.store.open_session(at(0), opening).await.unwrap()
    }

    /// Submits the jobs of a step and claims them all.
    async fn running(&self, number: u32) -> (SessionId, Vec<Assignment>) {
        let session = self.session().await;
        self.store.submit(at(1), new_jobs(number)).await.unwrap();
        let claimed = self.store.claim(at(2), vec![claim(number, session, 1)]).await.unwrap().remove(0);
        match claimed {
            ClaimOutcome::Claimed { assignments, .. } if assignments.len() == JOBS as usize => {
                (session, assignments)
            }
            other => panic!("claimed: {other:?}"),
        }
    }
}

/// The n-th job of a step, in a separate queue for each step.
fn job(step: u32, n: u32, change: impl FnOnce(&mut JobSpec)) -> Job {
    let number = step * 16 + n;
    let mut spec = JobSpec::named("report");
    spec.queue = queue(step);
    change(&mut spec);
    let created_at = at(0).plus(Duration::from_millis(number.into()));
    Job {
        id: JobId::new(created_at, number.into()),
        version: 1,
        mark: StoredStatus::Active,
        numbered: None,
        fired: 0,
        created_at,
        updated_at: created_at,
        spec,
    }
}

fn queue(step: u32) -> String {
    format!("step-{step}")
}

/// Jobs of a step: a plain one, one with keys, and one that may be retried at once.
fn new_jobs(step: u32) -> Vec<NewJob> {
    let keyed = job(step, 1, |spec| {
        spec.settings.unique_key = Some(queue(step));
    });
    let named = job(step, 2, |spec| spec.settings.idempotency_key = Some(format!("key-{step}")));
    [job(step, 0, |_| {}), keyed, named].map(|job| NewJob { job, reservation: None }).to_vec()
}

fn recurring(step: u32) -> Job {
    job(step, 0, |spec| {
        let every = Recurring::new(RecurrenceSpec::interval("10s", at(10))).expect("it is valid");
        spec.settings.schedule = every.into();
    })
}

fn claim(step: u32, session: SessionId, turn: u64) -> Claim {
    let (queues, job_types) = (vec![queue(step)], vec!["report".to_owned()]);
    Claim { session, turn, limit: 10, queues, job_types }
}

fn end(ending: Ending, retryable: bool) -> ReportedEnd {
    let error = (ending != Ending::Succeeded).then(|| "it broke".to_owned());
    let (started_at, completed_at) = (Some(at(3)), at(3));
    ReportedEnd { ending, retryable, next_at: None, started_at, completed_at, error, result: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submit_that_is_cut_anywhere_can_be_repeated() {
    FaultSetup::with(async |stage| {
        stage.walk(submits).await;
        // And on a connection that must be opened first.
        stage
            .walk(async |stage, number, fault| {
                stage.proxy.cut();
                submits(stage, number + 1_000, fault).await;
            })
            .await;
    })
    .await;
}

async fn submits(stage: &FaultSetup, number: u32, fault: Fault) {
    let jobs = new_jobs(number);
    let (_, outcomes) = stage.call(fault, async || stage.store.submit(at(1), jobs.clone()).await).await;
    let is_there = |outcome| matches!(outcome, SubmitOutcome::Created(_) | SubmitOutcome::AlreadyThere);
    assert!(outcomes.into_iter().all(is_there), "{fault:?}");
    for NewJob { job, .. } in &jobs {
        assert_eq!(stage.open_of(job.id).await, [(1, LiveState::Queued)], "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fire_that_is_cut_anywhere_can_be_repeated() {
    FaultSetup::with(async |stage| stage.walk(fires).await).await;
}

async fn fires(stage: &FaultSetup, number: u32, fault: Fault) {
    let job = recurring(number);
    stage.store.submit(at(1), vec![NewJob { job: job.clone(), reservation: None }]).await.unwrap();
    let fire = FireRequest { job: job.id, version: 1, reservation: None };
    let (_, outcomes) = stage.call(fault, async || stage.store.fire(at(10), vec![fire]).await).await;
    let is_known =
        |outcome: &FireOutcome| matches!(outcome, FireOutcome::Fired { .. } | FireOutcome::Conflict);
    assert!(outcomes.iter().all(is_known), "{fault:?}: {outcomes:?}");
    let view = again(|| stage.store.job(job.id)).await.expect("the job exists");
    let nominal: Vec<_> = view.open.iter().map(|live| live.scheduled_time).collect();
    assert_eq!(nominal, [at(10)], "{fault:?}");
    assert_eq!(view.schedule.and_then(|schedule| schedule.due_at), Some(at(20)), "{fault:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_cut_anywhere_is_recovered_by_a_resync() {
    FaultSetup::with(async |stage| stage.walk(claims).await).await;
}

async fn claims(stage: &FaultSetup, number: u32, fault: Fault) {
    let session = stage.session().await;
    let jobs = new_jobs(number);
    stage.store.submit(at(1), jobs.clone()).await.unwrap();
    let call = async || stage.store.claim(at(2), vec![claim(number, session, 1)]).await;
    let (_, mut outcomes) = stage.call(fault, call).await;
    let assignments = match outcomes.remove(0) {
        ClaimOutcome::Claimed { assignments, .. } => assignments,
        // It was granted, and the reply was lost.
        ClaimOutcome::StaleTurn => {
            let resync = Resync { session, turn: 2, held: vec![] };
            let given_back = stage.store.resync(at(3), resync).await.unwrap();
            assert!(
                matches!(given_back, ResyncOutcome::GivenBack(effects) if effects.len() == JOBS as usize)
            );
            let again = stage.store.claim(at(4), vec![claim(number, session, 3)]).await.unwrap().remove(0);
            let ClaimOutcome::Claimed { assignments, .. } = again else { panic!("claimed: {again:?}") };
            assignments
        }
        ClaimOutcome::SessionLost => panic!("the session was not lost"),
    };
    let claimed: BTreeSet<ExecutionId> = assignments.iter().map(|next| next.execution).collect();
    let all: BTreeSet<_> = jobs.iter().map(|new| new.job.id.occurrence(1).attempt(1)).collect();
    assert_eq!((claimed, assignments.len()), (all, JOBS as usize), "{fault:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_that_is_cut_anywhere_can_be_repeated() {
    FaultSetup::with(async |stage| stage.walk(reports).await).await;
}

async fn reports(stage: &FaultSetup, number: u32, fault: Fault) {
    let (session, assignments) = stage.running(number).await;
    let ends = [end(Ending::Succeeded, false), end(Ending::Failed, true), end(Ending::Failed, false)];
    let reports: Vec<Report> = assignments
        .iter()
        .zip(ends)
        .map(|(assignment, end)| Report { session, lease: assignment.lease(), end })
        .collect();
    let (_, outcomes) = stage.call(fault, async || stage.store.report(at(3), reports.clone()).await).await;
    assert!(outcomes.iter().all(|outcome| outcome.answer != ReportAnswer::Stale), "{fault:?}: {outcomes:?}");
    let statuses = [Status::Succeeded, Status::Failed, Status::Failed];
    for ((assignment, status), is_retried) in assignments.iter().zip(statuses).zip([false, true, false]) {
        let job = assignment.execution.occurrence.job;
        assert_eq!(stage.ended_of(job).await, [(1, 1, status)], "{fault:?}");
        assert_eq!(stage.open_of(job).await.len(), usize::from(is_retried), "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_counts_although_its_answer_is_lost() {
    FaultSetup::with(async |stage| {
        let lost = Fault::LoseCommit;
        // The name of the queue is committed separately, before the first job that needs it.
        stage.store.submit(at(1), vec![NewJob { job: job(1, 9, |_| {}), reservation: None }]).await.unwrap();
        let jobs = new_jobs(1);
        let (first, again) = stage.call(lost, async || stage.store.submit(at(1), jobs.clone()).await).await;
        assert!(matches!(first, Err(StoreError::Unavailable(_))), "{first:?}");
        assert_eq!(
            again,
            [SubmitOutcome::AlreadyThere, SubmitOutcome::AlreadyThere, SubmitOutcome::AlreadyThere]
        );

        let job = recurring(2);
        stage.store.submit(at(1), vec![NewJob { job: job.clone(), reservation: None }]).await.unwrap();
        let fire = FireRequest { job: job.id, version: 1, reservation: None };
        let (first, again) = stage.call(lost, async || stage.store.fire(at(10), vec![fire]).await).await;
        assert!(first.is_err() && again == [FireOutcome::Conflict], "{again:?}");
        assert_eq!(stage.open_of(job.id).await, [(1, LiveState::Queued)]);

        let session = stage.session().await;
        let call = async || stage.store.claim(at(2), vec![claim(1, session, 1)]).await;
        let (first, again) = stage.call(lost, call).await;
        assert!(first.is_err() && again == [ClaimOutcome::StaleTurn], "{again:?}");

        let (session, assignments) = stage.running(3).await;
        let succeeded =
            |of: &Assignment| Report { session, lease: of.lease(), end: end(Ending::Succeeded, false) };
        // So is the partition of history, before its first row.
        stage.store.report(at(3), vec![succeeded(&assignments[1])]).await.unwrap();
        let report = succeeded(&assignments[0]);
        let (first, again) =
            stage.call(lost, async || stage.store.report(at(3), vec![report.clone()]).await).await;
        assert!(first.is_err() && again[0].answer == ReportAnswer::AlreadyAccepted, "{again:?}");

        let pause = Control { job: job.id, verb: Verb::Pause };
        let (first, again) =
            stage.call(lost, async || stage.store.control(at(11), vec![pause.clone()]).await).await;
        assert!(first.is_err() && matches!(again[..], [ControlOutcome::Done(_)]), "{again:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_connections_hang_blocks_no_other() {
    FaultSetup::with(async |stage| {
        let (_, assignments) = stage.running(1).await;
        let job = assignments[0].execution.occurrence.job;
        stage.proxy.hold();
        let hanging = tokio::spawn({
            let store = stage.store.clone();
            async move { store.submit(at(1), new_jobs(2)).await }
        });
        let other = PostgresStore::open(&stage.options).await.unwrap();
        other.submit(at(1), new_jobs(3)).await.unwrap();
        other.control(at(3), vec![Control { job, verb: Verb::Pause }]).await.unwrap();
        assert!(!hanging.is_finished());
        stage.proxy.be_fair();
        let outcomes = hanging.await.unwrap().unwrap();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, SubmitOutcome::Created(_))), "{outcomes:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_database_is_reported_at_once_and_used_again_later() {
    FaultSetup::with(async |stage| {
        stage.store.submit(at(1), new_jobs(1)).await.unwrap();
        stage.proxy.go_away();
        for number in 2..10 {
            let error = stage.store.submit(at(1), new_jobs(number)).await.unwrap_err();
            assert!(error.is_retryable(), "{error}");
        }
        assert!(stage.store.job_counts().await.is_err_and(|error| error.is_retryable()));
        assert!(stage.store.probe(at(1)).await.is_err_and(|error| error.is_retryable()));
        let away = PostgresOptions {
            url: stage.options.url.replace(
                stage.options.url.rsplit('@').next().and_then(|rest| rest.split('/').next()).expect("a host"),
                &stage.proxy.address().to_string(),
            ),
            ..stage.options.clone()
        };
        assert!(PostgresStore::open(&away).await.is_err(), "it cannot be opened either");
        stage.proxy.be_fair();
        again(|| stage.store.submit(at(1), new_jobs(2))).await;
        again(|| stage.store.probe(at(2))).await;
        assert_eq!(again(|| stage.store.job_counts()).await.active, 2 * u64::from(JOBS));
    })
    .await;
}
