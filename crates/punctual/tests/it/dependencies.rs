//! Jobs that depend on others.

use crate::driven::{HOUR, advance, attempts, explained, reaches, standing_at, start};
use crate::redact::shown;
use crate::server::{Server, eventually};
use punctual_client::ExecutionStatus::{Running, Skipped, Succeeded, Waiting};
use punctual_core::gates::Gate;
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use serde_json::{Value, json};

async fn child_of(server: &Server, name: &str, parents: &[JobId]) -> JobId {
    server.submit(json!({"name": name, "job_type": "noop", "depends_on": parents})).await
}

fn failing(name: &str) -> Value {
    json!({"name": name, "job_type": "sleep", "payload": {"minutes": 1}})
}

/// Waits until the job has failed because it was skipped.
async fn is_skipped(server: &Server, job: JobId, parent: JobId) {
    eventually("the child is skipped", async || attempts(server, job).await == [(1, 1, Skipped)]).await;
    let job = server.client().job(job).await.unwrap();
    assert_eq!(job.status, JobStatus::Failed);
    let reason = job.status_reason.unwrap();
    let named = server.client().job(parent).await.map_or(String::new(), |job| format!(" ({})", job.name));
    let told = format!("because job {parent}{named}, on which it depended, did not succeed");
    assert!(reason.contains(&told), "{reason}");
    assert!(explained(server, job.job_id).await.contains(&reason));
}

#[tokio::test]
async fn a_child_runs_when_the_last_parent_has_succeeded() {
    let server = standing_at(start());
    let client = server.client();
    let first = server.submit(json!({"name": "first", "job_type": "noop", "delay": "1h"})).await;
    let second = server.submit(json!({"name": "second", "job_type": "noop", "delay": "2h"})).await;
    let child = child_of(&server, "child", &[first, second]).await;
    assert_eq!(client.job(child).await.unwrap().depends_on, [first, second]);

    advance(&server, start().plus(HOUR)).await;
    assert_eq!(client.job(first).await.unwrap().status, JobStatus::Completed);
    let waiting = client.execution(child.occurrence(1).attempt(1)).await.unwrap();
    assert_eq!((waiting.status, &waiting.gates[..]), (Waiting, &[Gate::Dependency][..]));
    let told = explained(&server, child).await;
    assert!(told.contains(&format!("It waits for job {second} (second, ACTIVE) to succeed.")), "{told}");

    advance(&server, start().plus(2 * HOUR)).await;
    assert_eq!(client.wait(child).await.unwrap().status, JobStatus::Completed);
    let ran = client.execution(child.occurrence(1).attempt(1)).await.unwrap();
    assert_eq!((ran.status, ran.started_at), (Succeeded, Some(start().plus(2 * HOUR))));
}

#[tokio::test]
async fn a_parent_that_has_succeeded_before_holds_nothing_up() {
    let server = standing_at(start());
    let client = server.client();
    let parent = server.submit(json!({"name": "parent", "job_type": "noop"})).await;
    client.wait(parent).await.unwrap();
    let child = child_of(&server, "child", &[parent]).await;
    assert_eq!(client.wait(child).await.unwrap().status, JobStatus::Completed);
}

#[tokio::test]
async fn a_parent_that_fails_for_good_skips_its_children_and_theirs() {
    let server = standing_at(start());
    let client = server.client();
    let mut parent = failing("parent");
    parent["delay"] = json!("1h");
    let parent = server.submit(parent).await;
    let good = server.submit(json!({"name": "good", "job_type": "noop"})).await;
    let child = child_of(&server, "child", &[good, parent]).await;
    let grandchild = child_of(&server, "grandchild", &[child]).await;
    advance(&server, start().plus(HOUR)).await;
    assert_eq!(client.wait(parent).await.unwrap().status, JobStatus::Failed);
    is_skipped(&server, child, parent).await;
    is_skipped(&server, grandchild, child).await;
}

#[tokio::test]
async fn a_parent_that_is_cancelled_or_deleted_skips_its_children() {
    let server = standing_at(start());
    let client = server.client();
    let nap = json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 3_600_000}});
    let [cancelled, deleted] = [server.submit(nap.clone()).await, server.submit(nap).await];
    for parent in [cancelled, deleted] {
        reaches(&server, parent.occurrence(1).attempt(1), Running).await;
    }
    let children = [child_of(&server, "a", &[cancelled]).await, child_of(&server, "b", &[deleted]).await];
    client.cancel(cancelled).await.unwrap();
    client.delete(deleted).await.unwrap();
    for (child, parent) in children.into_iter().zip([cancelled, deleted]) {
        is_skipped(&server, child, parent).await;
    }
}

#[tokio::test]
async fn a_child_of_a_parent_that_has_failed_before_is_skipped_at_once() {
    let server = standing_at(start());
    let parent = server.submit(failing("parent")).await;
    assert_eq!(server.client().wait(parent).await.unwrap().status, JobStatus::Failed);
    let child = child_of(&server, "child", &[parent]).await;
    is_skipped(&server, child, parent).await;
}

#[tokio::test]
async fn a_child_that_is_cancelled_stops_waiting() {
    let server = standing_at(start());
    let client = server.client();
    let parent = server.submit(json!({"name": "parent", "job_type": "noop", "delay": "1h"})).await;
    let child = child_of(&server, "child", &[parent]).await;
    assert_eq!(client.cancel(child).await.unwrap().status, JobStatus::Cancelled);
    advance(&server, start().plus(HOUR)).await;
    assert_eq!(client.job(parent).await.unwrap().status, JobStatus::Completed);
    assert_eq!(client.job(child).await.unwrap().status, JobStatus::Cancelled);
}

#[tokio::test]
async fn a_chain_of_jobs_runs_in_order() {
    let server = standing_at(start());
    let client = server.client();
    let mut last = server.submit(json!({"name": "job-0", "job_type": "noop", "delay": "1h"})).await;
    for number in 1..20 {
        last = child_of(&server, &format!("job-{number}"), &[last]).await;
    }
    advance(&server, start().plus(HOUR)).await;
    assert_eq!(client.wait(last).await.unwrap().status, JobStatus::Completed);
}

#[test]
fn the_command_line_names_parents_by_name() {
    let server = standing_at(start());
    server.said(&["job", "submit", "extract", "--type", "noop", "--delay", "1h"]);
    let submit = ["job", "submit", "load", "--type", "noop", "--depends-on", "extract"];
    insta::assert_snapshot!("depends_submit", shown(&server.cli(&submit)));
    insta::assert_snapshot!("depends_show", shown(&server.cli(&["job", "show", "load"])));
    insta::assert_snapshot!("depends_history", shown(&server.cli(&["job", "history", "load"])));
    let unknown = server.cli(&["job", "submit", "load", "--depends-on", "transform"]);
    insta::assert_snapshot!("depends_unknown", shown(&unknown));
    server.said(&["clock", "advance", "1h"]);
    server.said(&["job", "wait", "load"]);
}
