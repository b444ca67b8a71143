//! The snake_case `/api/jobs` API.

use super::{Hand, ask, create, get, now, server, text};
use crate::driven::{HOUR, pass};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn a_one_time_job_runs_and_is_done() {
    let server = server();
    let hand = Hand::open(&server, "EMAIL_SENDER").await;
    let job = json!({"name": "send-reminder-email", "job_type": "EMAIL_SENDER", "schedule_type": "ONE_TIME",
        "execute_at": "2024-01-16T09:00:00Z", "payload": {"user_id": "123", "template": "reminder"}, "priority": 5,
        "max_retries": 3, "timeout_secs": 60});
    let accepted = create(&server, "/api/jobs", job).await;
    assert_eq!(accepted, json!({"job_id": accepted["job_id"], "status": "ACTIVE"}));
    let id = text(&accepted["job_id"]);
    let path = format!("/api/jobs/{id}");
    // Its time has passed, so it runs at once.
    let taken = hand.take().await;
    assert_eq!((&taken["payload"]["template"], &taken["timeout_secs"]), (&json!("reminder"), &json!(60)));
    let executions = get(&server, &format!("{path}/executions?limit=10")).await;
    assert_eq!(executions["executions"][0]["status"], "RUNNING", "{executions}");
    hand.succeed(&taken, json!({"sent": 1})).await;

    let job = get(&server, &path).await;
    let last = &job["last_execution"];
    assert!(last["completed_at"].is_string(), "{job}");
    let expected = json!({"job_id": id, "jobId": id, "name": "send-reminder-email", "status": "DONE",
        "next_run_time": null, "last_execution": {"execution_id": format!("{id}.1.1"), "status": "SUCCESS",
        "completed_at": last["completed_at"]}});
    assert_eq!(job, expected);
    let executions = get(&server, &format!("{path}/executions?limit=10")).await;
    let execution = &executions["executions"][0];
    let expected = json!({"execution_id": format!("{id}.1.1"), "job_id": id, "jobId": id, "status": "SUCCESS",
        "scheduled_time": "2024-01-16T09:00:00Z", "started_at": execution["started_at"],
        "completed_at": last["completed_at"], "worker_id": "hand", "attempt_number": 1, "error_message": null,
        "result": {"sent": 1}});
    assert_eq!((executions["job_id"].clone(), execution), (json!(id), &expected));
}

#[tokio::test]
async fn a_recurring_job_is_triggered_paused_resumed_and_deleted() {
    let server = server();
    let hand = Hand::open(&server, "REPORT_GENERATOR").await;
    let job = json!({"name": "daily-report", "job_type": "REPORT_GENERATOR", "schedule_type": "RECURRING",
        "cron_expression": "0 9 * * *", "timezone": "America/New_York",
        "payload": {"report_type": "daily_summary"}, "priority": 7});
    let id = text(&create(&server, "/api/jobs", job).await["job_id"]);
    let path = format!("/api/jobs/{id}");
    let job = get(&server, &path).await;
    let expected = json!({"job_id": id, "jobId": id, "name": "daily-report", "status": "ACTIVE",
        "next_run_time": "2026-05-01T13:00:00Z", "last_execution": null});
    assert_eq!(job, expected);

    let triggered = ask(&server, Method::POST, &format!("{path}/trigger"), None, 201).await;
    assert_eq!((&triggered["job_id"], &triggered["attempt_number"]), (&json!(id), &json!(1)));
    assert!(triggered["execution_id"].is_string(), "{triggered}");
    hand.fail(&hand.take().await, "no data").await;
    let job = get(&server, &path).await;
    assert_eq!((&job["status"], &job["last_execution"]["status"]), (&json!("ACTIVE"), &json!("FAILED")));
    let executions = get(&server, &format!("{path}/executions?limit=10")).await;
    let statuses: Vec<&Value> =
        executions["executions"].as_array().unwrap().iter().map(|one| &one["status"]).collect();
    assert_eq!(statuses, [&json!("PENDING"), &json!("FAILED")]);
    assert_eq!(executions["executions"][1]["error_message"], "no data");

    let verb = async |verb: &str| ask(&server, Method::POST, &format!("{path}/{verb}"), None, 200).await;
    assert_eq!(verb("pause").await, json!({"jobId": id, "job_id": id, "status": "paused"}));
    assert_eq!(get(&server, &path).await["status"], "PAUSED");
    assert_eq!(verb("resume").await, json!({"jobId": id, "job_id": id, "status": "resumed"}));
    let deleted = ask(&server, Method::DELETE, &path, None, 200).await;
    assert_eq!(deleted, json!({"jobId": id, "job_id": id, "status": "cancelled"}));
    assert_eq!(get(&server, &path).await["status"], "DONE");
    pass(&server, now().plus(24 * HOUR)).await;
    let executions = get(&server, &format!("{path}/executions")).await;
    assert_eq!(executions["executions"].as_array().unwrap().len(), 2, "{executions}");
}
