//! Limits of queues and keys: no more executions run at once than allowed, and the reason for waiting is
//! visible.

use crate::server::{Server, answer, eventually};
use punctual_client::{ExecutionStatus, SetQueue, SubmitJob};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use punctual_core::limits::LINES_PER_STEP_MAX;
use punctual_core::time::Timestamp;
use reqwest::{Method, StatusCode};
use serde_json::json;

fn sleeper(name: &str, key: Option<&str>) -> SubmitJob {
    SubmitJob {
        queue: Some("mail".to_owned()),
        concurrency_key: key.map(str::to_owned),
        payload: Some(serde_json::value::to_raw_value(&json!({"ms": 150})).unwrap()),
        ..SubmitJob::named(name).with_type("sleep")
    }
}

/// When the only run of each job began and ended, by start time.
async fn runs(server: &Server, jobs: &[JobId]) -> Vec<(Timestamp, Timestamp)> {
    let mut runs = Vec::new();
    for job in jobs {
        let run = server.client().execution(job.occurrence(1).attempt(1)).await.unwrap();
        runs.push((run.started_at.unwrap(), run.completed_at.unwrap()));
    }
    runs.sort_unstable();
    runs
}

/// The maximum number of these that ran at the same time.
fn most_at_once(runs: &[(Timestamp, Timestamp)]) -> usize {
    let at_once = |(began, _): &(Timestamp, Timestamp)| {
        runs.iter().filter(|(other, ended)| other <= began && ended > began).count()
    };
    runs.iter().map(at_once).max().unwrap_or(0)
}

#[tokio::test]
async fn no_more_run_at_once_than_a_queue_allows() {
    let server = Server::start();
    let client = server.client();
    let set =
        client.set_queue("mail", &SetQueue { concurrency: Some(2), ..SetQueue::default() }).await.unwrap();
    assert_eq!((set.settings.concurrency, set.settings.rate, set.in_line), (Some(2), None, 0));
    let mut jobs = Vec::new();
    for number in 0..7 {
        jobs.push(client.submit(&sleeper(&format!("letter-{number}"), None)).await.unwrap().job_id);
    }
    for job in &jobs {
        assert_eq!(client.wait(*job).await.unwrap().status, JobStatus::Completed);
    }
    assert_eq!(most_at_once(&runs(&server, &jobs).await), 2);
    let mail = client.queue("mail").await.unwrap();
    assert_eq!((mail.in_line, mail.waiting, mail.running), (0, 0, 0));
}

/// A limit is set while no worker claims the queued executions.
#[tokio::test]
async fn a_limit_reaches_a_backlog() {
    let server = Server::start();
    let client = server.client();
    eventually("the worker is connected", async || client.pause_worker("embedded").await.is_ok()).await;
    let mut jobs = Vec::new();
    for number in 0..200 {
        let payload = Some(serde_json::value::to_raw_value(&json!({"ms": 5})).unwrap());
        let letter = SubmitJob { payload, ..sleeper(&format!("letter-{number}"), None) };
        jobs.push(client.submit(&letter).await.unwrap().job_id);
    }
    assert_eq!(client.queue("mail").await.unwrap().queued, 200);
    server.said(&["queue", "set", "mail", "--concurrency", "1"]);
    eventually("all but one wait in line", async || client.queue("mail").await.unwrap().in_line == 199).await;
    client.resume_worker("embedded").await.unwrap();
    for job in &jobs {
        assert_eq!(client.wait(*job).await.unwrap().status, JobStatus::Completed);
    }
    let runs = runs(&server, &jobs).await;
    assert_eq!((runs.len(), most_at_once(&runs)), (200, 1));
}

/// More keys than one scan finds wait lists, all of which get room at once, without a wake-up.
#[tokio::test]
async fn every_line_moves_however_many_there_are() {
    let server = Server::start();
    let client = server.client();
    client.pause_queue("mail").await.unwrap();
    let keys = LINES_PER_STEP_MAX + 100;
    let letters: Vec<SubmitJob> = (0..keys * 2)
        .map(|number| {
            let key = format!("key-{}", number % keys);
            SubmitJob { payload: None, ..sleeper("letter", Some(&key)).with_type("noop") }
        })
        .collect();
    client.submit_batch(&letters).await.unwrap();
    server.said(&["queue", "set", "mail", "--key-rate", "1/1h"]);
    eventually("all wait in line", async || client.queue("mail").await.unwrap().queued == 0).await;
    client.resume_queue("mail").await.unwrap();
    eventually("one of each key is done", async || {
        client.stats().await.unwrap().jobs.completed == keys as u64
    })
    .await;
}

#[tokio::test]
async fn a_submit_to_a_full_queue_says_that_the_job_waits() {
    let server = Server::start();
    let limit = SetQueue { concurrency: Some(1), ..SetQueue::default() };
    server.client().set_queue("mail", &limit).await.unwrap();
    let submit = |name: &str| {
        server.said(&[
            "job",
            "submit",
            name,
            "--type",
            "sleep",
            "--payload",
            r#"{"ms": 3600000}"#,
            "--queue",
            "mail",
        ])
    };
    let (first, second) = (submit("first"), submit("second"));
    assert!(first.contains("runs at once"), "{first}");
    assert!(second.contains("waits: the limits of its queue allow no more executions now"), "{second}");
}

#[tokio::test]
async fn each_key_has_its_own_limit_and_explain_names_it() {
    let server = Server::start();
    let client = server.client();
    client.set_queue("mail", &SetQueue { key_concurrency: Some(1), ..SetQueue::default() }).await.unwrap();
    let long = SubmitJob {
        payload: Some(serde_json::value::to_raw_value(&json!({"ms": 60_000})).unwrap()),
        ..sleeper("long", Some("customer-1"))
    };
    let long = client.submit(&long).await.unwrap().job_id;
    let behind = client.submit(&sleeper("behind", Some("customer-1"))).await.unwrap().job_id;
    let other = client.submit(&sleeper("other", Some("customer-2"))).await.unwrap().job_id;
    assert_eq!(client.wait(other).await.unwrap().status, JobStatus::Completed, "another key does not wait");
    let explained = client.explain(behind).await.unwrap();
    let told = "It waits because one execution with the key \"customer-1\" in queue mail is queued or \
                running, and the limit is 1.";
    assert_eq!(explained.summary, told);
    let holder = &explained.executions[0].sentences[1];
    let held = format!(
        "The execution that counts against the limit is {long}.1.1 (long), running on worker embedded since "
    );
    assert!(holder.starts_with(&held), "{holder}");
    let waiting = client.execution(behind.occurrence(1).attempt(1)).await.unwrap();
    assert_eq!(waiting.status, ExecutionStatus::Waiting);
    client.cancel(long).await.unwrap();
    let job = client.wait(behind).await.unwrap();
    assert_eq!((job.status, job.concurrency_key.as_deref()), (JobStatus::Completed, Some("customer-1")));
}

#[tokio::test]
async fn a_limit_that_is_taken_away_holds_nobody_and_one_that_is_wrong_is_told() {
    let server = Server::start();
    let client = server.client();
    let slow = SetQueue { rate: Some("1/1h".parse().unwrap()), ..SetQueue::default() };
    client.set_queue("mail", &slow).await.unwrap();
    let first = client.submit(&sleeper("first", None)).await.unwrap().job_id;
    let second = client.submit(&sleeper("second", None)).await.unwrap().job_id;
    client.wait(first).await.unwrap();
    let explained = client.explain(second).await.unwrap();
    let rate = "It waits for the rate limit of executions of queue mail, 1/1h: the next one starts at ";
    assert!(explained.summary.starts_with(rate), "{}", explained.summary);
    assert_eq!(client.queue("mail").await.unwrap().in_line, 1);
    client.set_queue("mail", &SetQueue::default()).await.unwrap();
    assert_eq!(client.wait(second).await.unwrap().status, JobStatus::Completed);

    let wrong = [
        (json!({"concurrency": 0}), "concurrency"),
        (json!({"rate": "often"}), "rate"),
        (json!({"key_rate": "1/1ms"}), "key_rate"),
        (json!({"weights": {"ann": 0}}), "weights"),
    ];
    for (body, field) in wrong {
        let request = server.request(Method::PUT, "/api/v1/queues/mail").json(&body);
        let (status, problem) = answer(request).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(field), "{problem}");
    }
}
