//! Five scenarios that every scheduler must handle, with real processes: many submit at once, an executor
//! dies, the scheduler restarts, retries run out, a queue stalls.

use crate::server::{Server, answer, eventually};
use punctual_client::{Client, DeadLetterFilter, ExecutionBody, ExecutionStatus, JobFilter, SubmitJob};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use reqwest::{Method, StatusCode};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

const COMMANDS: [&str; 2] = ["--allow", "process,shell"];

/// A file to which jobs append a line for each run: an independent record of what happened.
struct Record(PathBuf);

impl Record {
    fn in_dir(dir: &Path) -> Self {
        Record(dir.join("record"))
    }

    /// A script that records its job's id.
    fn script(&self) -> String {
        format!("echo \"$PUNCTUAL_JOB_ID\" >> '{}'", self.0.display())
    }

    /// How often each job has run.
    fn runs(&self) -> BTreeMap<String, usize> {
        let mut runs = BTreeMap::new();
        for line in std::fs::read_to_string(&self.0).unwrap_or_default().lines() {
            *runs.entry(line.to_owned()).or_default() += 1;
        }
        runs
    }
}

async fn executions(client: &Client, job: JobId) -> Vec<ExecutionBody> {
    client.executions(job, None, None).await.unwrap().items
}

async fn runs_now(client: &Client, job: JobId) {
    eventually("the job runs", async || {
        executions(client, job).await.iter().any(|execution| execution.status == ExecutionStatus::Running)
    })
    .await;
}

#[tokio::test]
async fn a_thousand_concurrent_submissions_make_a_thousand_jobs() {
    let server = Server::start();
    let client = server.client();
    let tasks: Vec<_> = (0..1_000)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move {
                client.submit(&SubmitJob::named(format!("job-{n}")).with_type("noop")).await.unwrap().job_id
            })
        })
        .collect();
    let mut acknowledged = HashSet::new();
    for task in tasks {
        assert!(acknowledged.insert(task.await.unwrap()), "one id for two jobs");
    }
    eventually("all jobs have run", async || client.stats().await.unwrap().counters.succeeded == 1_000).await;
    let mut filter = JobFilter { limit: Some(300), ..JobFilter::default() };
    let (mut ids, mut names) = (HashSet::new(), HashSet::new());
    loop {
        let page = client.jobs(&filter).await.unwrap();
        for job in page.items {
            assert_eq!(job.status, JobStatus::Completed);
            assert!(ids.insert(job.job_id) && names.insert(job.name), "a job was kept twice");
        }
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() {
            break;
        }
    }
    assert_eq!(ids, acknowledged);
}

/// Clients that time out and retry send the same job several times, often at the same moment.
#[tokio::test]
async fn the_same_job_sent_by_many_at_once_is_one_job() {
    let directory = tempfile::tempdir().unwrap();
    let record = Record::in_dir(directory.path());
    let server = Server::start_with(&COMMANDS);
    let job = |key: usize| SubmitJob {
        idempotency_key: Some(format!("order-{key}")),
        ..SubmitJob::named("order")
            .with_type("shell")
            .with_payload(&json!({"script": record.script()}))
            .unwrap()
    };
    let tasks: Vec<_> = (0..100)
        .map(|n| {
            let (client, job) = (server.client(), job(n % 20));
            tokio::spawn(async move { client.submit(&job).await.unwrap().job_id })
        })
        .collect();
    let mut ids = HashSet::new();
    for task in tasks {
        ids.insert(task.await.unwrap());
    }
    assert_eq!(ids.len(), 20);
    for id in &ids {
        assert_eq!(server.client().wait(*id).await.unwrap().status, JobStatus::Completed);
    }
    let expected: BTreeMap<String, usize> = ids.iter().map(|id| (id.to_string(), 1)).collect();
    assert_eq!(record.runs(), expected);
}

/// The whole process dies, and with it scheduler and worker: the worst case of an executor crash.
#[tokio::test]
async fn what_a_crashed_executor_was_doing_is_attempted_again_or_fails() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &COMMANDS);
    let nap = |name: &str, max_retries: u32| {
        // Only the first attempt takes long.
        let script = "[ \"$PUNCTUAL_ATTEMPT\" = 1 ] && sleep 600; exit 0";
        json!({"name": name, "job_type": "shell", "payload": {"script": script}, "max_retries": max_retries})
    };
    let again = server.submit(nap("again", 1)).await;
    let once = server.submit(nap("once", 0)).await;
    for job in [again, once] {
        runs_now(&server.client(), job).await;
    }
    server.kill();

    let server = Server::start_in(directory.path(), &COMMANDS);
    let client = server.client();
    assert_eq!(client.wait(again).await.unwrap().status, JobStatus::Completed);
    assert_eq!(client.wait(once).await.unwrap().status, JobStatus::Failed);
    let statuses = async |job| -> Vec<ExecutionStatus> {
        executions(&client, job).await.iter().map(|execution| execution.status).collect()
    };
    assert_eq!(statuses(again).await, [ExecutionStatus::Succeeded, ExecutionStatus::Lost]);
    assert_eq!(statuses(once).await, [ExecutionStatus::Lost]);
    let letters = client.dead_letters(&DeadLetterFilter::default(), None, None).await.unwrap().items;
    assert_eq!(letters.iter().map(|letter| letter.job_id).collect::<Vec<_>>(), [once]);
}

/// Jobs become due while the server stops and starts again; each is queued and run once.
#[tokio::test]
async fn a_scheduler_that_restarts_while_jobs_fall_due_queues_none_twice() {
    const JOBS: u64 = 120;
    let directory = tempfile::tempdir().unwrap();
    let record = Record::in_dir(directory.path());
    let data = directory.path().join("data");
    let mut server = Server::start_in(&data, &COMMANDS);
    let mut jobs = Vec::new();
    for number in 0..JOBS {
        let job = SubmitJob {
            delay: Some(Duration::from_millis(500 + 25 * number).into()),
            ..SubmitJob::named("due")
                .with_type("shell")
                .with_payload(&json!({"script": record.script()}))
                .unwrap()
        };
        jobs.push(server.client().submit(&job).await.unwrap().job_id);
    }
    for runs_before in [1, 30, 60] {
        eventually("more of them have run", async || record.runs().len() >= runs_before).await;
        assert!(server.stop().success());
        server = Server::start_in(&data, &COMMANDS);
    }
    let client = server.client();
    for job in &jobs {
        assert_eq!(client.wait(*job).await.unwrap().status, JobStatus::Completed);
        let executions = executions(&client, *job).await;
        assert_eq!(executions.len(), 1, "{executions:?}");
    }
    let expected: BTreeMap<String, usize> = jobs.iter().map(|id| (id.to_string(), 1)).collect();
    assert_eq!(record.runs(), expected);
}

#[tokio::test]
async fn a_job_whose_retries_are_used_up_fails_and_is_a_dead_letter() {
    let server = Server::start_with(&COMMANDS);
    let client = server.client();
    let job = json!({
        "name": "hopeless", "job_type": "shell", "payload": {"script": "echo no luck >&2; exit 3"}, "max_retries": 5,
        "retry": {"strategy": "fixed", "delay": "10ms"},
    });
    let job = server.submit(job).await;
    assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Failed);
    let attempts: Vec<(u32, ExecutionStatus)> =
        executions(&client, job).await.iter().map(|one| (one.attempt_number, one.status)).collect();
    let expected: Vec<_> = (1..=6).rev().map(|attempt| (attempt, ExecutionStatus::Failed)).collect();
    assert_eq!(attempts, expected, "five retries follow the first attempt");
    let letters = client.dead_letters(&DeadLetterFilter::default(), None, None).await.unwrap().items;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].job_id, letters[0].attempts), (job, 6));
    let error = letters[0].error_message.as_deref().unwrap();
    assert!(error.contains('3') && error.contains("no luck"), "{error}");
}

/// No worker claims from one queue. Schedules keep firing into it, other queues and the API are not affected,
/// and once a worker claims again, nothing is missing.
#[tokio::test]
async fn a_stalled_queue_leaves_the_scheduler_healthy_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &["--queues", "busy"]);
    let client = server.client();
    let recurring = |queue: &str| {
        json!({
            "name": queue, "job_type": "noop", "queue": queue, "interval": "100ms", "max_runs": 5,
            "overlap_policy": "ALLOW",
        })
    };
    let stalled = server.submit(recurring("stalled")).await;
    let now = server.submit(json!({"name": "now", "job_type": "noop", "queue": "stalled"})).await;
    let busy = server.submit(recurring("busy")).await;
    assert_eq!(client.wait(busy).await.unwrap().status, JobStatus::Completed);
    eventually("the schedule has fired into the stalled queue", async || {
        executions(&client, stalled).await.len() == 5
    })
    .await;
    let ready = answer(server.anonymous(Method::GET, "/readyz")).await;
    assert_eq!(ready, (StatusCode::OK, json!({"status": "ready"})));
    for job in [stalled, now] {
        for execution in executions(&client, job).await {
            assert_eq!(execution.status, ExecutionStatus::Queued);
        }
    }
    let stats = client.stats().await.unwrap();
    let lane = stats.queues.iter().find(|lane| lane.queue == "stalled").expect("the stalled queue");
    assert_eq!((lane.queued, lane.running), (6, 0));

    assert!(server.stop().success());
    let server = Server::start_in(directory.path(), &[]);
    let client = server.client();
    for (job, runs) in [(stalled, 5), (now, 1)] {
        assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Completed);
        let executions = executions(&client, job).await;
        assert_eq!(executions.len(), runs);
        assert!(executions.iter().all(|execution| execution.status == ExecutionStatus::Succeeded));
    }
}
