//! Control verbs on jobs: pause, resume, trigger, cancel, delete. The job's explanation shows each of them.

use crate::driven::{HOUR, advance, attempts, explained, pass, reaches, standing_at, start};
use crate::server::{Server, answer, eventually};
use punctual_client::ExecutionStatus::{Cancelled, Queued, Running, Succeeded, TimedOut, Waiting};
use punctual_client::TriggerRequest;
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use punctual_core::occurrence::Origin;
use punctual_core::schedule::SkipReason;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// A job that runs for longer than any test waits.
fn long_nap(name: &str) -> Value {
    json!({"name": name, "job_type": "sleep", "payload": {"ms": 3_600_000}, "timeout_secs": 3_600})
}

async fn status(server: &Server, job: JobId) -> JobStatus {
    server.client().job(job).await.unwrap().status
}

#[tokio::test]
async fn what_falls_due_while_a_job_is_paused_is_skipped_as_one_range() {
    let server = standing_at(start());
    let client = server.client();
    let job = server.submit(json!({"name": "hourly", "job_type": "noop", "interval": "1h"})).await;
    assert_eq!(advance(&server, start().plus(HOUR)).await.fired, 1);

    assert_eq!(client.pause(job).await.unwrap().status, JobStatus::Paused);
    assert_eq!(client.pause(job).await.unwrap().status, JobStatus::Paused, "once more changes nothing");
    assert_eq!(advance(&server, start().plus(4 * HOUR + HOUR / 2)).await.fired, 0);
    assert!(explained(&server, job).await.contains("The job is paused"));

    let resumed = client.resume(job).await.unwrap();
    assert_eq!((resumed.status, resumed.next_run_time), (JobStatus::Active, Some(start().plus(5 * HOUR))));
    let page = client.executions(job, None, None).await.unwrap();
    let [range] = &page.skipped[..] else { panic!("one range: {page:?}") };
    assert_eq!((range.count, range.reason), (3, SkipReason::Paused));
    assert_eq!((range.first, range.last), (start().plus(2 * HOUR), start().plus(4 * HOUR)));
    assert!(explained(&server, job).await.contains("because the job was paused"));

    assert_eq!(advance(&server, start().plus(5 * HOUR)).await.fired, 1);
    assert_eq!(attempts(&server, job).await.len(), 2);
}

#[tokio::test]
async fn a_one_time_job_that_was_paused_runs_late() {
    let server = standing_at(start());
    let client = server.client();
    let job = server.submit(json!({"name": "once", "job_type": "noop", "delay": "1h"})).await;
    client.pause(job).await.unwrap();
    let late = start().plus(3 * HOUR);
    advance(&server, late).await;
    assert_eq!((status(&server, job).await, attempts(&server, job).await), (JobStatus::Paused, vec![]));
    client.resume(job).await.unwrap();
    assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Completed);
    let page = client.executions(job, None, None).await.unwrap();
    let [only] = &page.items[..] else { panic!("one run: {page:?}") };
    assert_eq!((only.scheduled_time, only.started_at), (start().plus(HOUR), Some(late)));
}

#[tokio::test]
async fn a_trigger_runs_now_even_while_paused_and_leaves_the_schedule_alone() {
    let server = standing_at(start());
    let client = server.client();
    let job = server.submit(json!({"name": "daily", "job_type": "noop", "cron_expression": "@daily"})).await;
    let next = client.job(job).await.unwrap().next_run_time;
    for _ in 0..2 {
        let triggered = client.trigger(job, TriggerRequest::default()).await.unwrap();
        assert_eq!((triggered.origin, triggered.scheduled_time), (Origin::Trigger, start()));
        let ran = reaches(&server, triggered.execution_id, Succeeded).await;
        assert_eq!(ran.started_at, Some(start()));
        client.pause(job).await.unwrap();
    }
    client.resume(job).await.unwrap();
    assert_eq!(client.job(job).await.unwrap().next_run_time, next);
    assert_eq!(attempts(&server, job).await, [(1, 1, Succeeded), (2, 1, Succeeded)]);
}

#[tokio::test]
async fn a_trigger_beside_an_open_run_must_say_so() {
    let server = standing_at(start());
    let job = server.submit(long_nap("nap")).await;
    reaches(&server, job.occurrence(1).attempt(1), Running).await;
    let path = format!("/api/v1/jobs/{job}/trigger");
    let (refused, problem) = server.post(&path, "{}").await;
    assert_eq!(refused, StatusCode::CONFLICT);
    assert!(problem["detail"].as_str().unwrap().contains("override"), "{problem}");
    let advice = json!([{"action": "trigger_job", "job_id": job, "override": true}]);
    assert_eq!(problem["advice"], advice, "{problem}");
    let (taken, execution) = server.post(&path, r#"{"override": true}"#).await;
    assert_eq!((taken, &execution["execution_id"]), (StatusCode::CREATED, &json!(format!("{job}.2.1"))));
    reaches(&server, job.occurrence(2).attempt(1), Running).await;
}

#[tokio::test]
async fn a_finished_job_can_be_triggered_again() {
    let server = standing_at(start());
    let client = server.client();
    let job = server.submit(json!({"name": "once", "job_type": "noop"})).await;
    assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Completed);
    let again = client.trigger(job, TriggerRequest::default()).await.unwrap().execution_id;
    assert_eq!(again, job.occurrence(2).attempt(1));
    reaches(&server, again, Succeeded).await;
    assert_eq!(status(&server, job).await, JobStatus::Completed);
}

#[tokio::test]
async fn a_job_that_is_cancelled_before_its_time_never_runs() {
    let server = standing_at(start());
    let client = server.client();
    for job in [
        json!({"name": "once", "job_type": "noop", "delay": "1h"}),
        json!({"name": "hourly", "job_type": "noop", "interval": "1h"}),
    ] {
        let job = server.submit(job).await;
        assert_eq!(client.cancel(job).await.unwrap().status, JobStatus::Cancelled);
        assert_eq!(client.cancel(job).await.unwrap().status, JobStatus::Cancelled, "once more is no error");
        for verb in ["pause", "resume", "trigger", "retry"] {
            let (refused, problem) = server.post(&format!("/api/v1/jobs/{job}/{verb}"), "").await;
            assert_eq!(refused, StatusCode::CONFLICT, "{verb}: {problem}");
        }
        assert!(explained(&server, job).await.contains("The job is cancelled"));
    }
    assert_eq!(advance(&server, start().plus(5 * HOUR)).await.fired, 0);
}

#[tokio::test]
async fn cancelling_drops_what_is_queued() {
    let server = standing_at(start());
    let client = server.client();
    let job = server.submit(json!({"name": "nobody-runs-this"})).await;
    assert_eq!(attempts(&server, job).await, [(1, 1, Queued)]);
    assert!(explained(&server, job).await.contains("No connected worker has a handler for nobody-runs-this"));
    assert_eq!(client.cancel(job).await.unwrap().status, JobStatus::Cancelled);
    assert_eq!(attempts(&server, job).await, [(1, 1, Cancelled)]);
    assert!(explained(&server, job).await.contains("cancelled before it started"));
}

#[tokio::test]
async fn cancelling_stops_what_runs_and_nothing_retries_it() {
    let server = standing_at(start());
    let client = server.client();
    let job = server.submit(long_nap("nap")).await;
    let execution = job.occurrence(1).attempt(1);
    reaches(&server, execution, Running).await;
    assert!(explained(&server, job).await.contains("has been running on worker embedded"));
    client.cancel(job).await.unwrap();
    reaches(&server, execution, Cancelled).await;
    assert_eq!(status(&server, job).await, JobStatus::Cancelled);
    advance(&server, start().plus(5 * HOUR)).await;
    assert_eq!(attempts(&server, job).await, [(1, 1, Cancelled)]);
    assert!(explained(&server, job).await.contains("cancelled while it ran"));
}

#[tokio::test]
async fn cancelling_one_execution_leaves_its_job_alone() {
    let server = standing_at(start());
    let client = server.client();
    let mut job = long_nap("hourly");
    job["interval"] = json!("1h");
    let job = server.submit(job).await;
    pass(&server, start().plus(HOUR)).await;
    let execution = job.occurrence(1).attempt(1);
    reaches(&server, execution, Running).await;
    let asked = client.cancel_execution(execution).await.unwrap();
    assert!(asked.cancel_requested || asked.status == Cancelled, "{asked:?}");
    reaches(&server, execution, Cancelled).await;
    let job = client.job(job).await.unwrap();
    assert_eq!((job.status, job.next_run_time), (JobStatus::Active, Some(start().plus(2 * HOUR))));
    let again = server.post(&format!("/api/v1/executions/{execution}/cancel"), "").await;
    assert_eq!(again.0, StatusCode::CONFLICT, "{again:?}");
    assert_eq!(client.execution(execution).await.unwrap().status, Cancelled);
}

#[tokio::test]
async fn a_deleted_job_is_gone_with_all_that_belongs_to_it() {
    let server = standing_at(start());
    let client = server.client();
    let waiting = server.submit(json!({"name": "hourly", "job_type": "noop", "interval": "1h"})).await;
    let dead = server.submit(json!({"name": "broken", "job_type": "sleep"})).await;
    assert_eq!(client.wait(dead).await.unwrap().status, JobStatus::Failed);
    let running = server.submit(long_nap("nap")).await;
    reaches(&server, running.occurrence(1).attempt(1), Running).await;
    for job in [waiting, dead, running] {
        let path = format!("/api/v1/jobs/{job}");
        let (status, body) = answer(server.request(Method::DELETE, &path)).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{body}");
        for path in [path.clone(), format!("{path}/executions"), format!("{path}/explain")] {
            assert_eq!(server.get(&path).await.0, StatusCode::NOT_FOUND, "{path}");
        }
        let (again, _) = answer(server.request(Method::DELETE, &path)).await;
        assert_eq!(again, StatusCode::NOT_FOUND);
    }
    assert_eq!(server.get("/api/v1/jobs").await.1["items"], json!([]));
    assert_eq!(server.get("/api/v1/dead-letters").await.1["items"], json!([]));
    eventually("nothing runs any more", async || {
        client.stats().await.unwrap().queues.iter().all(|lane| lane.running == 0)
    })
    .await;
    assert_eq!(advance(&server, start().plus(3 * HOUR)).await.fired, 0);
}

#[tokio::test]
async fn a_pause_holds_a_retry_and_a_cancel_ends_it_without_a_dead_letter() {
    let server = standing_at(start());
    let client = server.client();
    let flaky = json!({
        "name": "flaky", "job_type": "sleep", "payload": {"ms": 60_000}, "timeout_secs": 0.02,
        "retry": {"strategy": "ladder", "steps": ["1h"]},
    });
    let job = server.submit(flaky).await;
    reaches(&server, job.occurrence(1).attempt(1), TimedOut).await;
    client.pause(job).await.unwrap();
    advance(&server, start().plus(3 * HOUR)).await;
    assert_eq!(attempts(&server, job).await, [(1, 1, TimedOut), (1, 2, Waiting)]);
    client.resume(job).await.unwrap();
    reaches(&server, job.occurrence(1).attempt(2), TimedOut).await;
    client.cancel(job).await.unwrap();
    assert_eq!(attempts(&server, job).await, [(1, 1, TimedOut), (1, 2, TimedOut), (1, 3, Cancelled)]);
    assert_eq!(server.get("/api/v1/dead-letters").await.1["items"], json!([]));
}

#[tokio::test]
async fn a_schedule_that_ends_during_a_pause_is_over_on_resume() {
    let server = standing_at(start());
    let client = server.client();
    let ends = start().plus(3 * HOUR + HOUR / 2).to_string();
    let job = json!({"name": "hourly", "job_type": "noop", "interval": "1h", "end_at": ends});
    let job = server.submit(job).await;
    advance(&server, start().plus(HOUR)).await;
    client.pause(job).await.unwrap();
    advance(&server, start().plus(9 * HOUR)).await;
    assert_eq!(status(&server, job).await, JobStatus::Paused);
    assert_eq!(client.resume(job).await.unwrap().status, JobStatus::Completed);
    let page = client.executions(job, None, None).await.unwrap();
    assert_eq!((page.items.len(), page.skipped[0].count), (1, 2));
}

#[tokio::test]
async fn a_paused_job_stays_paused_when_it_is_updated() {
    let server = standing_at(start());
    let client = server.client();
    let job = server.submit(json!({"name": "hourly", "job_type": "noop", "interval": "1h"})).await;
    client.pause(job).await.unwrap();
    let (code, changed) = server.patch(&format!("/api/v1/jobs/{job}"), &json!({"interval": "2h"})).await;
    assert_eq!((code, &changed["status"]), (StatusCode::OK, &json!("PAUSED")), "{changed}");
    assert_eq!(advance(&server, start().plus(5 * HOUR)).await.fired, 0);
    let resumed = client.resume(job).await.unwrap();
    assert_eq!(resumed.next_run_time, Some(start().plus(6 * HOUR)));
    assert_eq!(advance(&server, start().plus(6 * HOUR)).await.fired, 1);
}

#[tokio::test]
async fn a_trigger_waits_its_turn_in_a_queue_and_a_full_one_refuses_it() {
    let server = standing_at(start());
    let client = server.client();
    let mut job = long_nap("nap");
    job["interval"] = json!("1d");
    job["overlap_policy"] = json!("QUEUE");
    job["overlap_limit"] = json!(1);
    let job = server.submit(job).await;
    for _ in 0..2 {
        client.trigger(job, TriggerRequest::default()).await.unwrap();
    }
    let first = job.occurrence(1).attempt(1);
    reaches(&server, first, Running).await;
    assert_eq!(attempts(&server, job).await, [(1, 1, Running), (2, 1, Waiting)]);
    let (refused, problem) = server.post(&format!("/api/v1/jobs/{job}/trigger"), "").await;
    assert_eq!(refused, StatusCode::CONFLICT);
    assert!(problem["detail"].as_str().unwrap().contains("overlap_limit"), "{problem}");
    client.cancel_execution(first).await.unwrap();
    reaches(&server, job.occurrence(2).attempt(1), Running).await;
}

#[test]
fn waiting_for_a_triggered_run_tells_how_it_ended() {
    let server = Server::start();
    let submit = ["job", "submit", "slow", "--type", "sleep", "--payload", "{\"ms\":60000}", "--every", "1d"];
    server
        .said(&[&submit[..], &["--timeout", "20ms", "--max-retries", "1", "--retry-steps", "10ms"]].concat());
    let failed = server.cli(&["job", "trigger", "slow", "--wait", "-o", "json"]);
    assert_eq!(failed.status.code(), Some(1));
    let last: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!((&last["attempt_number"], &last["status"]), (&json!(2), &json!("TIMED_OUT")));
    server.said(&["job", "update", "slow", "--timeout", "1h"]);
    let bound = ["job", "trigger", "slow", "--wait", "--wait-timeout", "50ms"];
    assert_eq!(server.cli(&bound).status.code(), Some(8));
}

#[test]
fn verbs_take_several_jobs_and_tell_what_became_of_each() {
    use crate::redact::shown;
    let server = Server::start();
    for name in ["a", "b"] {
        server.said(&["job", "submit", name, "--type", "noop", "--every", "1h"]);
    }
    server.said(&["job", "submit", "done", "--type", "noop", "--wait"]);
    insta::assert_snapshot!("verbs_pause", shown(&server.cli(&["job", "pause", "a", "b"])));
    insta::assert_snapshot!("verbs_list_paused", shown(&server.cli(&["job", "list", "--status", "paused"])));
    insta::assert_snapshot!(
        "verbs_resume_some",
        shown(&server.cli(&["job", "resume", "a", "nobody", "done", "b"]))
    );
    insta::assert_snapshot!("verbs_trigger_wait", shown(&server.cli(&["job", "trigger", "a", "--wait"])));
    insta::assert_snapshot!("verbs_retry_nothing", shown(&server.cli(&["job", "retry", "a"])));
    insta::assert_snapshot!("verbs_cancel", shown(&server.cli(&["job", "cancel", "a"])));
    insta::assert_snapshot!("verbs_delete", shown(&server.cli(&["job", "delete", "a", "done"])));
    insta::assert_snapshot!("verbs_left", shown(&server.cli(&["job", "list"])));
    let refused = server.cli(&["job", "pause", "b", "gone", "-o", "json"]);
    assert_eq!(refused.status.code(), Some(5));
    let items: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(items["items"][0]["status"], "PAUSED");
    assert_eq!(
        (&items["items"][1]["job"], &items["items"][1]["error"]["status"]),
        (&json!("gone"), &json!(404))
    );
}

#[tokio::test]
async fn the_command_line_stops_what_runs() {
    use crate::redact::shown;
    let server = standing_at(start());
    let job = server.submit(long_nap("nap")).await;
    let execution = job.occurrence(1).attempt(1);
    reaches(&server, execution, Running).await;
    let trigger = server.cli(&["job", "trigger", "nap"]);
    assert_eq!(trigger.status.code(), Some(4));
    insta::assert_snapshot!("stop_trigger_refused", shown(&trigger));
    server.said(&["job", "cancel", &execution.to_string()]);
    reaches(&server, execution, Cancelled).await;
    insta::assert_snapshot!("stop_history", shown(&server.cli(&["job", "history", "nap"])));
}
