//! Events arrive as they happen, and no finished execution is missed.

use crate::driven::reaches;
use crate::server::{PATIENCE, Server};
use punctual_client::{EventFilter, Events, ExecutionBody, ExecutionStatus, StreamedEvent, SubmitJob};
use punctual_core::ids::JobId;
use reqwest::{Method, StatusCode};
use serde_json::json;
use std::collections::BTreeSet;

async fn next(events: &mut Events) -> StreamedEvent {
    let next = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event in time");
    next.expect("a stream").expect("an event")
}

async fn next_execution(events: &mut Events) -> ExecutionBody {
    match next(events).await {
        StreamedEvent::Execution(body) => *body,
        other => panic!("{other:?}"),
    }
}

/// Listens until all these jobs have succeeded.
async fn hear_of(events: &mut Events, mut expected: BTreeSet<JobId>) {
    while !expected.is_empty() {
        if let StreamedEvent::Execution(body) = next(events).await
            && body.status == ExecutionStatus::Succeeded
        {
            expected.remove(&body.job_id);
        }
    }
}

async fn submit_noops(server: &Server, count: usize) -> BTreeSet<JobId> {
    let jobs: Vec<SubmitJob> =
        (0..count).map(|number| SubmitJob::named(format!("job-{number}")).with_type("noop")).collect();
    let answer = server.client().submit_batch(&jobs).await.unwrap();
    let ids = answer.items.into_iter().map(|item| match item {
        punctual_client::BatchItem::Submitted(submitted) => submitted.job_id,
        punctual_client::BatchItem::Refused { error } => panic!("{error}"),
    });
    ids.collect()
}

#[tokio::test]
async fn nothing_that_finishes_is_missed_across_kills_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let filter = EventFilter { status: Some(ExecutionStatus::Succeeded), ..EventFilter::default() };
    let mut server = Server::start_in(directory.path(), &[]);
    let mut cursor: Option<String> = None;
    let mut unheard = BTreeSet::new();
    for round in 0..4 {
        let mut events = server.client().events(&filter, cursor.as_deref()).await.unwrap();
        unheard.extend(submit_noops(&server, 200).await);
        // Some are received, the rest finish while no client listens, or after the next start.
        for _ in 0..50 {
            let body = next_execution(&mut events).await;
            assert_eq!(body.status, ExecutionStatus::Succeeded);
            unheard.remove(&body.job_id);
        }
        cursor = events.cursor().map(str::to_owned);
        assert!(cursor.is_some());
        drop(events);
        if round % 2 == 1 {
            let wanted: BTreeSet<JobId> = unheard.iter().copied().collect();
            for job in wanted {
                server.client().wait(job).await.unwrap();
            }
        }
        server.kill();
        server = Server::start_in(directory.path(), &[]);
    }
    let mut events = server.client().events(&filter, cursor.as_deref()).await.unwrap();
    hear_of(&mut events, unheard).await;
}

#[tokio::test]
async fn moves_are_told_as_they_happen_and_what_runs_is_shown_at_first() {
    let server = Server::start();
    let client = server.client();
    let nap = json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 3_600_000}, "queue": "slow"});
    let nap = server.submit(nap).await;
    reaches(&server, nap.occurrence(1).attempt(1), ExecutionStatus::Running).await;

    let mut all = client.events(&EventFilter::default(), None).await.unwrap();
    let shown = next_execution(&mut all).await;
    assert_eq!((shown.job_id, shown.status), (nap, ExecutionStatus::Running));
    assert_eq!(shown.worker_id.as_deref(), Some("embedded"));

    let queue = Some("nobody".to_owned());
    let mut some = client.events(&EventFilter { queue, ..EventFilter::default() }, None).await.unwrap();
    let waits = json!({"name": "waits", "job_type": "unknown", "queue": "nobody"});
    let waits = server.submit(waits).await;
    let moved = next_execution(&mut some).await;
    assert_eq!((moved.job_id, moved.status), (waits, ExecutionStatus::Queued));
    client.cancel(waits).await.unwrap();
    let ended = next_execution(&mut some).await;
    assert_eq!((ended.job_id, ended.status), (waits, ExecutionStatus::Cancelled));
    assert!(some.cursor().is_some(), "what has ended has a place");

    let of_job = EventFilter { job_id: Some(nap), ..EventFilter::default() };
    let mut of_nap = client.events(&of_job, None).await.unwrap();
    assert_eq!(next_execution(&mut of_nap).await.status, ExecutionStatus::Running);
    client.cancel(nap).await.unwrap();
    let ended = loop {
        let body = next_execution(&mut of_nap).await;
        if body.status.is_finished() {
            break body;
        }
        assert_eq!((body.job_id, body.status), (nap, ExecutionStatus::Running));
    };
    assert_eq!(ended.status, ExecutionStatus::Cancelled);
}

#[tokio::test]
async fn the_end_of_what_a_deletion_ends_is_told() {
    let server = Server::start();
    let client = server.client();
    let nap = json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 3_600_000}});
    let runs = server.submit(nap).await;
    reaches(&server, runs.occurrence(1).attempt(1), ExecutionStatus::Running).await;
    let waits = server.submit(json!({"name": "waits", "job_type": "unknown"})).await;
    let mut events = client.events(&EventFilter::default(), None).await.unwrap();
    client.delete(runs).await.unwrap();
    client.delete(waits).await.unwrap();
    let mut unheard = BTreeSet::from([runs, waits]);
    while !unheard.is_empty() {
        let body = next_execution(&mut events).await;
        if body.status.is_finished() {
            assert_eq!(body.status, ExecutionStatus::Cancelled);
            assert!(unheard.remove(&body.job_id), "{body:?}");
        }
    }
    let (status, _) = server.get(&format!("/api/v1/executions/{runs}.1.1")).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "the job itself is gone");
}

#[tokio::test]
async fn a_retry_is_told_as_an_end_and_a_new_attempt() {
    let server = Server::start_with(&["--allow", "shell"]);
    let client = server.client();
    let mut events = client.events(&EventFilter::default(), None).await.unwrap();
    let job = json!({"name": "fails", "job_type": "shell", "payload": {"script": "exit 1"},
        "retry": {"strategy": "fixed", "delay": "1h"}});
    let job = server.submit(job).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&(2, ExecutionStatus::Waiting)) {
        let body = next_execution(&mut events).await;
        assert_eq!(body.job_id, job);
        seen.push((body.attempt_number, body.status));
    }
    assert!(seen.contains(&(1, ExecutionStatus::Failed)), "{seen:?}");
}

#[tokio::test]
async fn a_place_that_is_not_known_is_a_gap_and_one_of_another_list_an_error() {
    let server = Server::start();
    let mut events = server.client().events(&EventFilter::default(), Some("events~999999")).await.unwrap();
    assert!(matches!(next(&mut events).await, StreamedEvent::Gap));
    let jobs = submit_noops(&server, 1).await;
    hear_of(&mut events, jobs).await;
    for (path, said) in [
        ("/api/v1/events?cursor=jobs~1", "cursor must be the id of an event of this stream"),
        ("/api/v1/events?status=nonsense", "status must be one of WAITING, QUEUED"),
        ("/api/v1/events?job=1", "did you mean job_id"),
    ] {
        let (status, problem) = server.get(path).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(said), "{path}: {problem}");
    }
    let foreign = server.request(Method::GET, "/api/v1/events").header("last-event-id", "jobs~1");
    assert_eq!(foreign.send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    let no_text = reqwest::header::HeaderValue::from_bytes(b"events~\xff1").unwrap();
    let garbage = server.request(Method::GET, "/api/v1/events").header("last-event-id", no_text);
    assert_eq!(garbage.send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    let anonymous = server.anonymous(Method::GET, "/api/v1/events").send().await.unwrap();
    assert_eq!(anonymous.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_server_that_stops_says_so_to_those_who_listen() {
    let server = Server::start();
    let mut events = server.client().events(&EventFilter::default(), None).await.unwrap();
    let jobs = submit_noops(&server, 3).await;
    hear_of(&mut events, jobs).await;
    server.terminate();
    loop {
        if let StreamedEvent::Stop = next(&mut events).await {
            break;
        }
    }
    assert!(events.next().await.unwrap().is_none());
    assert!(server.ended().success());
}

#[tokio::test]
async fn no_more_listeners_are_served_than_the_limit_says() {
    let server = Server::start();
    let client = server.client();
    let mut listeners = Vec::new();
    let refused = loop {
        assert!(listeners.len() <= punctual_core::limits::EVENT_LISTENERS_MAX);
        match client.events(&EventFilter::default(), None).await {
            Ok(events) => listeners.push(events),
            Err(error) => break error,
        }
    };
    assert_eq!(listeners.len(), punctual_core::limits::EVENT_LISTENERS_MAX);
    assert_eq!(refused.problem().unwrap().status, 503);
    assert!(refused.retry_after().is_some());
    listeners.clear();
    crate::server::eventually("a place is free again", async || {
        client.events(&EventFilter::default(), None).await.is_ok()
    })
    .await;
}
