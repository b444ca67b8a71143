//! Stopping and starting under load: nothing is lost, no attempt is used up, unstarted executions are
//! returned, running ones finish or, past the grace period, are stopped cleanly.

use crate::server::{BINARY, Server, eventually};
use punctual_client::{Client, ExecutionStatus, SubmitJob};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use serde_json::json;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const RESTARTS: usize = 4;

/// Jobs that take a moment, so that at every stop some run, some are held by the worker and most wait.
fn short(name: &str) -> SubmitJob {
    SubmitJob { max_retries: Some(0), ..SubmitJob::named(name).with_type("sleep") }
        .with_payload(&json!({"ms": 20}))
        .unwrap()
}

/// Submits for as long as the server accepts jobs. Between two starts there is no answer: jobs that were not
/// acknowledged may exist or not, and are sent again under their own keys.
async fn submit_through_restarts(
    client: impl Fn() -> Option<Client>,
    ended: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<JobId>>>,
) {
    let mut number = 0;
    while !ended.load(Ordering::Relaxed) {
        let job = SubmitJob { idempotency_key: Some(format!("key-{number}")), ..short("load") };
        let answer = match client() {
            Some(client) => client.submit(&job).await.ok(),
            None => None,
        };
        match answer {
            Some(submitted) => {
                acknowledged.lock().unwrap().push(submitted.job_id);
                number += 1;
            }
            // The pace of a client that retries, not a wait for anything in particular.
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// With `max_retries: 0` a single used-up attempt would fail its job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_under_load_lose_nothing_and_burn_no_attempt() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--slots", "4", "--prefetch", "32"];
    let current: Arc<Mutex<Option<Client>>> = Arc::default();
    let ended = Arc::new(AtomicBool::new(false));
    let acknowledged: Arc<Mutex<Vec<JobId>>> = Arc::default();
    let load = {
        let current = current.clone();
        let client = move || current.lock().unwrap().clone();
        tokio::spawn(submit_through_restarts(client, ended.clone(), acknowledged.clone()))
    };
    let mut server = Server::start_in(directory.path(), &options);
    for _ in 0..RESTARTS {
        let client = server.client();
        current.lock().unwrap().replace(client.clone());
        let before = acknowledged.lock().unwrap().len();
        eventually("there is load", async || acknowledged.lock().unwrap().len() >= before + 150).await;
        eventually("handlers run", async || client.stats().await.unwrap().counters.succeeded > 10).await;
        assert!(server.stop().success());
        current.lock().unwrap().take();
        server = Server::start_in(directory.path(), &options);
    }
    current.lock().unwrap().replace(server.client());
    ended.store(true, Ordering::Relaxed);
    load.await.unwrap();
    let client = server.client();
    let jobs = acknowledged.lock().unwrap().clone();
    assert!(jobs.len() >= 150 * RESTARTS);
    for job in jobs {
        assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Completed, "{job}");
        let executions = client.executions(job, None, None).await.unwrap().items;
        let seen: Vec<_> = executions.iter().map(|one| (one.attempt_number, one.status)).collect();
        assert_eq!(seen, [(1, ExecutionStatus::Succeeded)], "{job}");
    }
    assert!(server.stop().success());
    let check = Command::new(BINARY).arg("check").arg("--data-dir").arg(directory.path()).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
}

/// Handlers that outlast the grace period are stopped and reported as interrupted: they run again right after
/// the next start.
#[tokio::test]
async fn what_outlasts_the_grace_is_given_up_and_runs_again() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--drain-grace", "100ms", "--slots", "1", "--allow", "shell"];
    let server = Server::start_in(directory.path(), &options);
    let client = server.client();
    let endless = json!({
        "name": "endless", "job_type": "shell", "max_retries": 1,
        "payload": {"script": "[ \"$PUNCTUAL_ATTEMPT\" = 1 ] && sleep 600; exit 0"},
    });
    let endless = server.submit(endless).await;
    eventually("it runs", async || {
        let executions = client.executions(endless, None, None).await.unwrap().items;
        executions.first().is_some_and(|execution| execution.status == ExecutionStatus::Running)
    })
    .await;
    // The only slot is taken: these are held by the worker or wait.
    let behind: Vec<JobId> = submit_behind(&server).await;
    assert!(server.stop().success(), "giving up a handler is not a failure of the server");

    let server = Server::start_in(directory.path(), &options);
    let client = server.client();
    assert_eq!(client.wait(endless).await.unwrap().status, JobStatus::Completed);
    let executions = client.executions(endless, None, None).await.unwrap().items;
    let seen: Vec<_> = executions.iter().map(|one| (one.attempt_number, one.status)).collect();
    assert_eq!(seen, [(2, ExecutionStatus::Succeeded), (1, ExecutionStatus::Lost)]);
    let told = executions[1].error_message.as_deref().expect("why it was given up");
    assert!(told.contains("stop") || told.contains("shut"), "{told}");
    for job in behind {
        assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Completed);
        assert_eq!(client.executions(job, None, None).await.unwrap().items.len(), 1);
    }
}

#[tokio::test]
async fn a_server_that_stops_says_that_what_it_takes_runs_later() {
    let server = Server::start_with(&["--drain-grace", "1h"]);
    let client = server.client();
    let nap = server.submit(json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 3_600_000}})).await;
    eventually("it runs", async || {
        client.execution(nap.occurrence(1).attempt(1)).await.unwrap().status == ExecutionStatus::Running
    })
    .await;
    server.terminate();
    eventually("it is stopping", async || server.get("/readyz").await.0 == 503).await;
    let submitted = client.submit(&short("late")).await.unwrap();
    let told = "runs after the next start, as the server is stopping";
    assert_eq!(submitted.status_reason.as_deref(), Some(told));
    // A worker that was still waiting for work may hold it for a moment, and returns it.
    eventually("the job says so, too", async || {
        client.job(submitted.job_id).await.unwrap().status_reason.as_deref() == Some(told)
    })
    .await;
    let said = server.said(&["job", "submit", "later", "--type", "noop"]);
    assert!(said.contains(told), "{said}");
}

async fn submit_behind(server: &Server) -> Vec<JobId> {
    let mut jobs = Vec::new();
    for _ in 0..10 {
        jobs.push(server.client().submit(&short("behind")).await.unwrap().job_id);
    }
    jobs
}
