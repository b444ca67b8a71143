//! Workers that are slow, stopped or killed next to others on one PostgreSQL database: their executions run
//! elsewhere, and a job that kills its workers fails permanently.

use crate::cluster::{Cluster, Process};
use crate::server::{PATIENCE, Server, eventually};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Executions that a worker prefetches: so many that some are certainly held.
const AHEAD: usize = 20;

/// A worker with a single slot that has learned that runs are short, so that it prefetches more than it has a
/// slot for.
async fn eager_worker(cluster: &Cluster, api: &Process) -> Process {
    let options = ["--slots", "1", "--prefetch", "64", "--lease", "1s"];
    let worker = cluster.start(&[&["worker", "--worker-name", "slow"][..], &options].concat());
    for _ in 0..AHEAD {
        let quick = api.submit(cluster, json!({"name": "noop"})).await;
        api.completes(cluster, quick).await;
    }
    worker
}

/// Gives the only worker a job that takes long, and then many short ones, for which its poll is already
/// waiting. Returns the long one, and the others.
async fn hold_up(cluster: &Cluster, api: &Process) -> (JobId, Vec<JobId>) {
    let long = json!({"name": "sleep", "payload": {"ms": 600_000}, "timeout_secs": 900});
    let long = api.submit(cluster, long).await;
    eventually("the long one runs", async || {
        api.executions(cluster, long).await.first().is_some_and(|run| run["status"] == "RUNNING")
    })
    .await;
    let jobs: Vec<Value> = (0..AHEAD).map(|_| json!({"name": "noop"})).collect();
    let batch = Some(json!({"jobs": jobs}));
    let (_, body) = api.request(cluster, Method::POST, "/api/v1/jobs/batch", batch).await;
    let ids = body["items"].as_array().expect("answers").iter();
    let id = |item: &Value| item["job_id"].as_str().expect("an id").parse().expect("the id of a job");
    (long, ids.map(id).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_slow_worker_has_fetched_ahead_runs_on_an_idle_one() {
    Cluster::with(async |cluster| {
        let api = cluster.api();
        let _slow = eager_worker(cluster, &api).await;
        let (long, others) = hold_up(cluster, &api).await;
        let _idle = cluster.worker("idle");
        for job in others {
            api.completes(cluster, job).await;
            let runs = api.executions(cluster, job).await;
            assert_eq!(runs.len(), 1, "what was given back counts as no attempt: {runs:?}");
            assert_eq!((&runs[0]["worker_id"], &runs[0]["attempt_number"]), (&json!("idle"), &json!(1)));
        }
        assert_eq!(api.executions(cluster, long).await[0]["status"], "RUNNING", "it is left alone");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stopped_worker_held_runs_elsewhere_and_its_late_word_counts_for_nothing() {
    Cluster::with(async |cluster| {
        let (api, _scheduler) = (cluster.api(), cluster.scheduler());
        let slow = eager_worker(cluster, &api).await;
        let (long, others) = hold_up(cluster, &api).await;
        let pid = Pid::from_child(&slow.child);
        kill_process(pid, Signal::STOP).expect("it runs");
        let _idle = cluster.worker("idle");
        for job in &others {
            api.completes(cluster, *job).await;
        }
        eventually("the long one is lost and runs elsewhere", async || {
            let runs = api.executions(cluster, long).await;
            runs.iter().any(|run| run["status"] == "LOST" && run["worker_id"] == "slow")
                && runs.iter().any(|run| run["status"] == "RUNNING" && run["worker_id"] == "idle")
        })
        .await;
        kill_process(pid, Signal::CONT).expect("it is still there");
        eventually("it comes back with a new session", async || {
            let (_, workers) = api.request(cluster, Method::GET, "/api/v1/workers", None).await;
            let workers = workers["items"].as_array().cloned().unwrap_or_default();
            workers.iter().any(|worker| worker["worker_id"] == "slow")
        })
        .await;
        for job in others {
            let runs = api.executions(cluster, job).await;
            let succeeded = runs.iter().filter(|run| run["status"] == "SUCCEEDED").count();
            assert_eq!(succeeded, 1, "{runs:?}");
        }
        let runs = api.executions(cluster, long).await;
        let running: Vec<&Value> = runs.iter().filter(|run| run["status"] == "RUNNING").collect();
        assert!(running.len() == 1 && running[0]["worker_id"] == "idle", "{runs:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_kills_its_workers_is_given_up_before_it_has_killed_them_all() {
    Cluster::with(async |cluster| {
        let (api, _scheduler) = (cluster.api(), cluster.scheduler());
        // Isolation would keep the command from killing its worker.
        let exposed = |name: &&str| {
            let command = ["worker", "--worker-name", name, "--lease", "1s", "--allow", "shell"];
            cluster.start(&[&command[..], &["--worker-isolation", "none"]].concat())
        };
        let mut workers: Vec<Process> = ["one", "two", "three", "four"].iter().map(exposed).collect();
        // A command runs under a shim, whose parent is the worker.
        let script = "kill -9 $(awk '/^PPid:/ {print $2}' /proc/$PPID/status); sleep 600";
        let job =
            json!({"name": "shell", "payload": {"script": script}, "max_retries": 2, "timeout_secs": 900});
        let job = api.submit(cluster, job).await;
        let client = api.client(cluster);
        eventually("the job is given up", async || {
            client.job(job).await.is_ok_and(|job| job.status == JobStatus::Failed)
        })
        .await;
        let runs = api.executions(cluster, job).await;
        assert_eq!(runs.len(), 3, "{runs:?}");
        assert!(runs.iter().all(|run| run["status"] == "LOST"), "{runs:?}");
        let is_gone = |worker: &mut Process| worker.child.try_wait().unwrap().is_some();
        let gone = workers.iter_mut().map(is_gone).filter(|is_gone| *is_gone).count();
        assert_eq!(gone, 3, "one of four is left");
        let (_, letters) = api.request(cluster, Method::GET, "/api/v1/dead-letters", None).await;
        let error = letters["items"][0]["error_message"].as_str().expect("an error").to_owned();
        assert_eq!(
            error,
            "the worker stopped responding in attempt 3, the last: a job that repeatedly loses its workers \
             may be crashing them"
        );
        let next = api.submit(cluster, json!({"name": "noop"})).await;
        api.completes(cluster, next).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_knows_at_its_start_that_the_worker_it_was_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    // The test does not wait for the end of this lease.
    let options = ["--lease", "10m"];
    let server = Server::start_in(directory.path(), &options);
    let job = server.submit(json!({"name": "sleep", "payload": {"ms": 600_000}, "timeout_secs": 900})).await;
    let status = async |server: &Server, attempt: u32| {
        let execution = server.client().execution(job.occurrence(1).attempt(attempt)).await;
        execution.map(|execution| execution.status.as_str().to_owned()).unwrap_or_default()
    };
    eventually("it runs", async || status(&server, 1).await == "RUNNING").await;
    server.kill();
    let server = Server::start_in(directory.path(), &options);
    assert!(PATIENCE.as_secs() < 600, "or this would prove nothing");
    eventually("it runs again", async || status(&server, 2).await == "RUNNING").await;
    assert_eq!(status(&server, 1).await, "LOST");
}
