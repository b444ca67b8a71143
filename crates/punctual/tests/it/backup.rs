//! A backup under load, while the server keeps running.

use crate::server::{BINARY, Server, eventually};
use punctual_client::{DeadLetterFilter, DeadLetterSelection, ExecutionStatus, SubmitJob};
use punctual_core::job::JobStatus;
use serde_json::json;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_holds_all_that_was_acknowledged_before_it_and_can_be_served() {
    let directory = tempfile::tempdir().unwrap();
    let [data, copy] = ["data", "copy"].map(|name| directory.path().join(name));
    let server = Server::start_in(&data, &[]);
    let client = server.client();
    let done = server.submit(json!({"name": "done", "job_type": "noop"})).await;
    let dead = json!({"name": "dead", "job_type": "sleep", "payload": {"minutes": 1}, "max_retries": 0});
    let dead = server.submit(dead).await;
    let later = server.submit(json!({"name": "later", "job_type": "noop", "delay": "1h"})).await;
    let hourly = server.submit(json!({"name": "hourly", "job_type": "noop", "interval": "1h"})).await;
    for finished in [done, dead] {
        client.wait(finished).await.unwrap();
    }

    let (stop, submitted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = tokio::spawn({
        let (client, stop, submitted) = (server.client(), stop.clone(), submitted.clone());
        async move {
            while !stop.load(Ordering::Relaxed) {
                client.submit(&SubmitJob::named("load").with_type("noop")).await.unwrap();
                submitted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    eventually("there is load", async || submitted.load(Ordering::Relaxed) > 10).await;
    let backup = Command::new(BINARY).arg("backup").arg(&copy).arg("--data-dir").arg(&data).output().unwrap();
    assert!(backup.status.success(), "{}", String::from_utf8_lossy(&backup.stderr));
    // The server keeps running.
    let after = submitted.load(Ordering::Relaxed);
    eventually("the load goes on", async || submitted.load(Ordering::Relaxed) > after).await;
    stop.store(true, Ordering::Relaxed);
    load.await.unwrap();
    server.kill();

    let checked = Command::new(BINARY).args(["check", "--data-dir"]).arg(&copy).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let restored = Server::start_in(&copy, &[]);
    let client = restored.client();
    assert_eq!(client.job(done).await.unwrap().status, JobStatus::Completed);
    assert_eq!(client.job(hourly).await.unwrap().status, JobStatus::Active);
    assert_eq!(client.job(later).await.unwrap().status, JobStatus::Active);
    let history = client.executions(done, None, None).await.unwrap().items;
    assert_eq!(history[0].status, ExecutionStatus::Succeeded);
    let letters = client.dead_letters(&DeadLetterFilter::default(), None, None).await.unwrap().items;
    assert_eq!(letters.iter().map(|letter| letter.job_id).collect::<Vec<_>>(), [dead]);
    let all = DeadLetterSelection::matching(DeadLetterFilter::default());
    assert_eq!(client.redrive(&all).await.unwrap().redriven, 1);
    restored.said(&["job", "submit", "after", "--type", "noop", "--wait"]);
}
