//! Executions of all jobs, listed by status.

use crate::driven::{HOUR, standing_at, start, up_to};
use crate::server::{Server, eventually};
use punctual_client::{ExecutionBody, ExecutionFilter, ExecutionStatus, TriggerRequest};
use punctual_core::ids::JobId;
use reqwest::StatusCode;
use serde_json::json;

/// All pages of two.
async fn listed(server: &Server, filter: ExecutionFilter) -> Vec<ExecutionBody> {
    let mut filter = ExecutionFilter { limit: Some(2), ..filter };
    let mut items = Vec::new();
    loop {
        let page = server.client().all_executions(&filter).await.unwrap();
        items.extend(page.items);
        if page.next_cursor.is_none() {
            return items;
        }
        filter.cursor = page.next_cursor;
    }
}

fn with(status: ExecutionStatus) -> ExecutionFilter {
    ExecutionFilter { status: Some(status), ..ExecutionFilter::default() }
}

fn jobs(items: &[ExecutionBody]) -> Vec<JobId> {
    let mut ids: Vec<JobId> = items.iter().map(|item| item.job_id).collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn every_status_has_its_list() {
    let server = Server::start_with(&["--slots", "3"]);
    let mut ended = Vec::new();
    for number in 0..3 {
        let job = server.submit(json!({"name": format!("quick {number}"), "job_type": "noop"})).await;
        server.client().wait(job).await.unwrap();
        ended.push(job);
    }
    let mut running = Vec::new();
    for queue in ["a", "b", "a"] {
        let nap = json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 3_600_000}, "queue": queue});
        running.push(server.submit(nap).await);
    }
    let all_run = async || listed(&server, ExecutionFilter::default()).await.len() == 3;
    eventually("all that fits runs", all_run).await;
    let orphan = server.submit(json!({"name": "orphan", "job_type": "mystery", "max_retries": 7})).await;
    let later = server.submit(json!({"name": "later", "job_type": "noop", "depends_on": [orphan]})).await;

    let runs = listed(&server, with(ExecutionStatus::Running)).await;
    assert_eq!(jobs(&runs), running);
    let first = runs.iter().find(|one| one.job_id == running[0]).unwrap();
    let called = (first.name.as_deref(), first.job_type.as_deref(), first.queue.as_deref());
    assert_eq!(called, (Some("nap"), Some("sleep"), Some("a")));
    assert_eq!((first.worker_id.as_deref(), first.max_retries), (Some("embedded"), Some(3)));
    let queued = listed(&server, with(ExecutionStatus::Queued)).await;
    assert_eq!((jobs(&queued), queued[0].max_retries), (vec![orphan], Some(7)));
    assert_eq!(jobs(&listed(&server, with(ExecutionStatus::Waiting)).await), [later]);
    let succeeded = listed(&server, with(ExecutionStatus::Succeeded)).await;
    let latest_first: Vec<JobId> = succeeded.iter().map(|one| one.job_id).collect();
    assert_eq!(latest_first, [ended[2], ended[1], ended[0]]);
    assert_eq!(listed(&server, with(ExecutionStatus::Lost)).await.len(), 0);

    let in_queue = ExecutionFilter { queue: Some("a".to_owned()), ..ExecutionFilter::default() };
    assert_eq!(jobs(&listed(&server, in_queue).await), [running[0], running[2]]);
    let elsewhere = ExecutionFilter { worker: Some("nobody".to_owned()), ..ExecutionFilter::default() };
    assert_eq!(listed(&server, elsewhere).await.len(), 0);
    let of_type = ExecutionFilter { job_type: Some("sleep".to_owned()), ..ExecutionFilter::default() };
    assert_eq!(listed(&server, of_type).await.len(), 3);
}

/// Open executions of one job, far more than its view contains.
const OPEN: usize = 300;

#[tokio::test]
async fn all_open_executions_of_a_job_are_listed_page_by_page() {
    let server = Server::start();
    let client = server.client();
    let job = server
        .submit(json!({"name": "many", "job_type": "nobody", "cron_expression": "0 0 1 1 *", "overlap_policy": "ALLOW"}))
        .await;
    for _ in 0..OPEN {
        client.trigger(job, TriggerRequest { despite_overlap: true, payload: None }).await.unwrap();
    }
    let (mut pages, mut listed, mut cursor) = (0, Vec::new(), None::<String>);
    loop {
        let page = client.executions(job, Some(70), cursor.as_deref()).await.unwrap();
        pages += 1;
        listed.extend(page.items.iter().map(|item| item.execution_id));
        // One that is not listed yet ends, and is still listed.
        let open = OPEN.saturating_sub(listed.len());
        if let Some(number) = u32::try_from(open).ok().filter(|open| *open > 0) {
            client.cancel_execution(job.occurrence(number).attempt(1)).await.unwrap();
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    let all: Vec<_> = (1..=OPEN as u32).rev().map(|number| job.occurrence(number).attempt(1)).collect();
    assert_eq!((pages, listed), (5, all));

    let shown = server.said(&["job", "history", &job.to_string(), "--limit", "300"]);
    assert!(shown.contains(&format!("{job}.1.1")) && shown.contains(&format!("{job}.300.1")), "{shown}");
    assert!(!shown.contains("--cursor"), "{shown}");
    let told = client.explain(job).await.unwrap();
    let open = OPEN - 4;
    let rest = format!("10 of its open executions are explained here, {} more are not", open - 10);
    assert!(told.sentences.iter().any(|sentence| sentence.starts_with(&rest)), "{:?}", told.sentences);
    assert_eq!(told.executions.last().unwrap().execution_id, job.occurrence(1).attempt(1), "first in line");
}

#[tokio::test]
async fn a_cursor_of_another_list_and_an_unknown_status_are_told() {
    let server = Server::start();
    for (query, field) in [
        ("status=BUSY", "status"),
        ("status=QUEUED&cursor=waiting-executions~1", "cursor"),
        ("cursor=running-executions~1", "cursor"),
        ("workers=w1", "workers"),
        ("limit=0", "limit"),
    ] {
        let (status, problem) = server.get(&format!("/api/v1/executions?{query}")).await;
        assert_eq!((status, &problem["errors"][0]["field"]), (StatusCode::BAD_REQUEST, &json!(field)));
    }
    let (status, page) = server.get("/api/v1/executions?status=queued").await;
    assert_eq!((status, page), (StatusCode::OK, json!({"items": [], "next_cursor": null})));
}

#[tokio::test]
async fn of_a_job_as_many_skipped_ranges_are_shown_as_its_limit_and_no_fewer_than_by_default() {
    let server = standing_at(start());
    let client = server.client();
    let job =
        json!({"name": "hourly", "job_type": "noop", "cron_expression": "0 * * * *", "timezone": "UTC"});
    let job = server.submit(job).await;
    // Each jump misses two times and lands on a third, which runs: a range for each.
    for jump in 1..=105 {
        client.jump_clock(&up_to(start().plus(3 * jump * HOUR))).await.unwrap();
    }
    for (limit, shown) in [(None, 100), (Some(5), 100), (Some(103), 103), (Some(1_000), 105)] {
        let page = client.executions(job, limit, None).await.unwrap();
        assert_eq!(page.skipped.len(), shown, "limit {limit:?}");
        assert_eq!(page.skipped[0].last, start().plus(314 * HOUR), "the latest first");
    }
}
