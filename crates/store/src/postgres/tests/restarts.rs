//! A server that is stopped and restarted under load: everything acknowledged runs, and runs once.

use super::integrity::problems;
use super::waiting::{again, eventually};
use crate::conformance::counts_agree;
use crate::postgres::{PostgresOptions, PostgresStore};
use punctual_core::ids::{ExecutionId, JobId, SessionId};
use punctual_core::job::{Job, JobSpec, StoredStatus};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence;
use punctual_core::ports::{
    Assignment, Claim, ClaimOutcome, NewJob, Report, ReportAnswer, Resync, ResyncOutcome, SessionOpening,
    Store, SubmitOutcome,
};
use punctual_test_servers::{Result, Servers};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio_postgres::{Client, Config, NoTls};

/// The test has its own server, which it stops.
const SERVICE: &str = "postgres";
/// Submitters and workers.
const SUBMITTERS: u32 = 3;
const WORKERS: u32 = 2;
/// Jobs per submit.
const BATCH: u32 = 5;
/// Jobs that end between two restarts.
const JOBS_BETWEEN: u32 = 100;

/// How a server is stopped.
type End = fn(&mut Servers, &str) -> Result<()>;

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = Config::from_str(url).expect("a URL").connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped_under_load_loses_and_repeats_nothing() {
    let mut servers = Servers::start(SERVICE).unwrap();
    let url = servers.url(SERVICE).unwrap().to_owned();
    let store = Arc::new(PostgresStore::open(&PostgresOptions::new(url.clone())).await.unwrap());
    let work = Arc::new(Work::default());
    let submitters: Vec<_> =
        (0..SUBMITTERS).map(|index| tokio::spawn(submit(store.clone(), work.clone(), index))).collect();
    let workers: Vec<_> =
        (0..WORKERS).map(|index| tokio::spawn(run(store.clone(), work.clone(), index))).collect();
    let ends: [End; 4] = [Servers::stop, Servers::kill, Servers::stop, Servers::kill];
    for end in ends {
        work.makes_progress().await;
        // The others continue meanwhile, on their own threads.
        end(&mut servers, SERVICE).unwrap();
        servers.start_again(SERVICE).unwrap();
    }
    work.makes_progress().await;
    work.is_ending.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for submitter in submitters {
        acknowledged.extend(submitter.await.unwrap());
    }
    let mut accepted: BTreeMap<ExecutionId, u32> = BTreeMap::new();
    work.is_submitted.store(true, Ordering::Relaxed);
    for worker in workers {
        for execution in worker.await.unwrap() {
            *accepted.entry(execution).or_default() += 1;
        }
    }
    for job in &acknowledged {
        let history = store.history(*job, None, 10).await.unwrap().items;
        let ended: Vec<_> = history.iter().map(|one| (one.id, one.status)).collect();
        let execution = job.occurrence(1).attempt(1);
        assert_eq!(ended, [(execution, Status::Succeeded)]);
        assert_eq!(accepted.remove(&execution), Some(1), "exactly one worker ran it");
    }
    assert_eq!(accepted, BTreeMap::new(), "nothing ran that was not acknowledged");
    assert_eq!(store.job_counts().await.unwrap().completed, acknowledged.len() as u64);
    counts_agree(&*store).await;
    assert_eq!(problems(&connect(&url).await.unwrap()).await, Vec::<String>::new());
}

/// State shared by submitters and workers.
#[derive(Default)]
struct Work {
    done: AtomicU32,
    is_ending: AtomicBool,
    is_submitted: AtomicBool,
}

impl Work {
    /// Waits until more jobs have ended.
    async fn makes_progress(&self) {
        let before = self.done.load(Ordering::Relaxed);
        let is_done = async || self.done.load(Ordering::Relaxed) >= before + JOBS_BETWEEN;
        eventually("more jobs have ended", is_done).await;
    }
}

/// Submits until the end, and repeats each batch until it is acknowledged. Returns the acknowledged jobs.
async fn submit(store: Arc<PostgresStore>, work: Arc<Work>, index: u32) -> Vec<JobId> {
    let mut acknowledged = Vec::new();
    let mut number = index;
    while !work.is_ending.load(Ordering::Relaxed) {
        let mut jobs = Vec::new();
        for _ in 0..BATCH {
            number += SUBMITTERS;
            jobs.push(NewJob { job: job(number), reservation: None });
        }
        let outcomes = again(|| store.submit(now(), jobs.clone())).await;
        let is_there = |outcome| matches!(outcome, SubmitOutcome::Created(_) | SubmitOutcome::AlreadyThere);
        assert!(outcomes.into_iter().all(is_there));
        acknowledged.extend(jobs.iter().map(|new| new.job.id));
    }
    acknowledged
}

/// Works until everything is done. Returns the executions whose ends were accepted.
async fn run(store: Arc<PostgresStore>, work: Arc<Work>, index: u32) -> Vec<ExecutionId> {
    let opening = SessionOpening {
        worker: format!("w{index}"),
        lease: Duration::from_secs(600),
        embedded: false,
        job_types: vec!["report".to_owned()],
        slots: 10,
        about: Default::default(),
        token: None,
    };
    let session = again(|| store.open_session(now(), opening.clone())).await;
    let (mut turn, mut accepted) = (0, Vec::new());
    loop {
        let may_end = work.is_submitted.load(Ordering::Relaxed);
        let claim = Claim {
            session,
            turn: turn + 1,
            limit: 10,
            queues: vec![],
            job_types: vec!["report".to_owned()],
        };
        let assignments = match store.claim(now(), vec![claim]).await.map(|mut outcomes| outcomes.remove(0)) {
            Ok(ClaimOutcome::Claimed { assignments, .. }) => assignments,
            Ok(other) => panic!("claimed: {other:?}"),
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                turn = resynced(&store, session, turn).await;
                continue;
            }
        };
        if assignments.is_empty() {
            // Another worker may be about to return executions whose assignment was lost.
            if may_end && again(|| store.job_counts()).await.active == 0 {
                return accepted;
            }
            // The pace of a worker that polls, not a wait for something.
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        turn += 1;
        let report = |of: &Assignment| Report { session, lease: of.lease(), end: succeeded() };
        let reports: Vec<Report> = assignments.iter().map(report).collect();
        let outcomes = again(|| store.report(now(), reports.clone())).await;
        assert!(outcomes.iter().all(|outcome| outcome.answer != ReportAnswer::Stale), "{outcomes:?}");
        accepted.extend(assignments.iter().map(|assignment| assignment.execution));
        work.done.fetch_add(assignments.len() as u32, Ordering::Relaxed);
    }
}

/// Returns executions that were granted without a reply. Returns the last poll sequence number that was used.
async fn resynced(store: &PostgresStore, session: SessionId, last: u64) -> u64 {
    let mut turn = last;
    loop {
        turn += 1;
        let resync = Resync { session, turn, held: vec![] };
        match again(|| store.resync(now(), resync.clone())).await {
            ResyncOutcome::GivenBack(_) => return turn,
            // The claim was granted, or this very call was accepted before.
            ResyncOutcome::StaleTurn => {}
            ResyncOutcome::SessionLost => panic!("the session was not lost"),
        }
    }
}

fn now() -> punctual_core::time::Timestamp {
    super::fixture::at(1_000)
}

fn job(number: u32) -> Job {
    let created_at = super::fixture::at(0).plus(Duration::from_millis(number.into()));
    Job {
        id: JobId::new(created_at, number.into()),
        version: 1,
        mark: StoredStatus::Active,
        numbered: None,
        fired: 0,
        created_at,
        updated_at: created_at,
        spec: JobSpec::named("report"),
    }
}

fn succeeded() -> occurrence::ReportedEnd {
    occurrence::ReportedEnd {
        ending: Ending::Succeeded,
        retryable: false,
        next_at: None,
        started_at: Some(now()),
        completed_at: now(),
        error: None,
        result: None,
    }
}
