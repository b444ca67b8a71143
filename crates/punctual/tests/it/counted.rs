//! Counters of outcomes: they match history, even where a cancel and an outcome race.

use crate::server::{Server, eventually};
use futures_util::future::join_all;
use punctual_client::{CountersBody, ExecutionFilter, ExecutionStatus};
use serde_json::{Value, json};

/// How many executions have ended with each status, according to history.
async fn in_history(server: &Server) -> Vec<(ExecutionStatus, u64)> {
    let mut counts = Vec::new();
    for status in [
        ExecutionStatus::Succeeded,
        ExecutionStatus::Failed,
        ExecutionStatus::TimedOut,
        ExecutionStatus::Cancelled,
        ExecutionStatus::Lost,
        ExecutionStatus::Skipped,
        ExecutionStatus::Expired,
    ] {
        let filter =
            ExecutionFilter { status: Some(status), limit: Some(1_000), ..ExecutionFilter::default() };
        let page = server.client().all_executions(&filter).await.unwrap();
        assert!(page.next_cursor.is_none(), "one page is enough");
        counts.push((status, page.items.len() as u64));
    }
    counts
}

async fn counted(server: &Server) -> Vec<(ExecutionStatus, u64)> {
    let CountersBody { succeeded, failed, timed_out, cancelled, lost, skipped, expired, .. } =
        server.client().stats().await.unwrap().counters;
    vec![
        (ExecutionStatus::Succeeded, succeeded),
        (ExecutionStatus::Failed, failed),
        (ExecutionStatus::TimedOut, timed_out),
        (ExecutionStatus::Cancelled, cancelled),
        (ExecutionStatus::Lost, lost),
        (ExecutionStatus::Skipped, skipped),
        (ExecutionStatus::Expired, expired),
    ]
}

#[tokio::test]
async fn an_outcome_reported_after_a_cancel_counts_as_cancelled() {
    let server = Server::start();
    let jobs = [server.submit(json!({"name": "raw"})).await, server.submit(json!({"name": "raw"})).await];
    let say = async |verb: &str, body: Value| {
        let (status, answer) = server.post(&format!("/api/v1/worker/{verb}"), &body.to_string()).await;
        assert!(status.is_success(), "{answer}");
        answer
    };
    let opening = json!({"worker": "raw", "job_types": ["raw"], "lease_secs": 60});
    let session = say("sessions", opening).await["session"].clone();
    let poll = json!({"session": session, "turn": 1, "job_types": ["raw"], "wait_secs": 0, "capacity": 2});
    let assignments = say("poll", poll).await["assignments"].as_array().unwrap().clone();
    for job in jobs {
        server.client().cancel(job).await.unwrap();
    }
    let lease = |of: &Value| json!({"execution_id": of["execution_id"], "epoch": of["epoch"]});
    let mut report = lease(&assignments[0]);
    report["session"] = session.clone();
    report["outcome"] = json!("succeeded");
    assert_eq!(say("report", json!({"reports": [report]})).await["answers"], json!(["accepted"]));
    say("give-back", json!({"session": session, "leases": [lease(&assignments[1])]})).await;
    let history = in_history(&server).await;
    assert!(history.contains(&(ExecutionStatus::Cancelled, 2)), "{history:?}");
    assert_eq!(counted(&server).await, history);
    let (_, metrics) = server.get("/api/v1/stats").await;
    assert_eq!(metrics["counters"]["succeeded"], 0);
}

#[tokio::test]
async fn cancels_that_meet_outcomes_are_counted_as_they_were_recorded() {
    let server = Server::start();
    let jobs = (0..300)
        .map(|n| json!({"name": "short", "job_type": "sleep", "payload": {"ms": n % 20}, "max_retries": 0}));
    let batch = json!({"jobs": jobs.collect::<Vec<_>>()}).to_string();
    let (status, answer) = server.post("/api/v1/jobs/batch", &batch).await;
    assert!(status.is_success(), "{answer}");
    let ids: Vec<_> =
        answer["items"].as_array().expect("a list").iter().map(|item| item["job_id"].clone()).collect();
    let cancel = async |id: &Value| {
        // It is left open whether the cancel arrives in time.
        server.post(&format!("/api/v1/jobs/{}/cancel", id.as_str().expect("an id")), "").await
    };
    for some in ids.chunks(30) {
        join_all(some.iter().map(cancel)).await;
    }
    let total = |counts: &[(ExecutionStatus, u64)]| counts.iter().map(|(_, count)| count).sum::<u64>();
    eventually("all have ended", async || total(&in_history(&server).await) == 300).await;
    eventually("all are counted", async || total(&counted(&server).await) >= 300).await;
    assert_eq!(counted(&server).await, in_history(&server).await);
}
