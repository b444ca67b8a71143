//! Servers with a driven clock, and steps that tests of time have in common.

use crate::server::{Server, eventually};
use punctual_client::{ClockMoved, ExecutionBody, ExecutionStatus, MoveClock, Span};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::time::Timestamp;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3_600);
pub const DAY: Duration = Duration::from_secs(24 * 3_600);

pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The start time of the clock in most tests.
pub fn start() -> Timestamp {
    at("2026-05-01T00:00:00Z")
}

/// A server whose clock is at this time.
pub fn standing_at(start: Timestamp) -> Server {
    Server::start_with(&["--clock", "manual", "--clock-start", &start.to_string()])
}

/// The same, on a directory that outlives it.
pub fn standing_in(data_dir: &Path, start: Timestamp) -> Server {
    Server::start_in(data_dir, &["--clock", "manual", "--clock-start", &start.to_string()])
}

/// Up to this time, with the longest allowed settle time: the machine may be busy.
pub fn up_to(to: Timestamp) -> MoveClock {
    MoveClock { by: None, to: Some(to), settle: Some(Span::from(Duration::from_secs(30))) }
}

/// Advances, with as many requests as necessary, until nothing is left that is due, queued for a worker or
/// running.
pub async fn advance(server: &Server, to: Timestamp) -> ClockMoved {
    let client = server.client();
    let mut fired = 0;
    loop {
        let moved = client.advance_clock(&up_to(to)).await.unwrap();
        fired += moved.fired;
        if !moved.more {
            assert_eq!((moved.now, moved.settled), (to, true));
            return ClockMoved { fired, ..moved };
        }
    }
}

/// Advances without waiting for running executions.
pub async fn pass(server: &Server, to: Timestamp) -> ClockMoved {
    let at_once = MoveClock { settle: Some(Span::default()), ..up_to(to) };
    let moved = server.client().advance_clock(&at_once).await.unwrap();
    assert_eq!((moved.now, moved.more), (to, false));
    moved
}

/// Waits until the execution has this status.
pub async fn reaches(server: &Server, execution: ExecutionId, status: ExecutionStatus) -> ExecutionBody {
    let client = server.client();
    let mut seen = None;
    eventually(&format!("{execution} is {status}"), async || {
        seen = client.execution(execution).await.ok().filter(|execution| execution.status == status);
        seen.is_some()
    })
    .await;
    seen.unwrap()
}

/// Every attempt of a job in order: occurrence, attempt, status.
pub async fn attempts(server: &Server, job: JobId) -> Vec<(u32, u32, ExecutionStatus)> {
    let page = server.client().executions(job, Some(1_000), None).await.unwrap();
    let mut attempts: Vec<_> = page
        .items
        .iter()
        .map(|execution| {
            let id = execution.execution_id;
            (id.occurrence.number, id.attempt, execution.status)
        })
        .collect();
    attempts.sort_unstable();
    attempts
}

/// All sentences of a job's explanation, as one text.
pub async fn explained(server: &Server, job: JobId) -> String {
    let explained = server.client().explain(job).await.unwrap();
    let of_executions = explained.executions.into_iter().flat_map(|execution| execution.sentences);
    explained.sentences.into_iter().chain(of_executions).collect::<Vec<_>>().join("\n")
}

/// Everything that a rejected request must leave unchanged.
pub async fn everything(server: &Server) -> Value {
    let mut all = Vec::new();
    for path in ["/api/v1/jobs?limit=1000", "/api/v1/dead-letters", "/api/v1/queues"] {
        all.push(server.get(path).await.1);
    }
    let jobs = all[0]["items"].as_array().unwrap().clone();
    for job in jobs {
        let path = format!("/api/v1/jobs/{}/executions?limit=1000", job["job_id"].as_str().unwrap());
        all.push(server.get(&path).await.1);
    }
    all.push(server.get("/api/v1/stats").await.1["counters"]["submitted"].clone());
    Value::Array(all)
}
