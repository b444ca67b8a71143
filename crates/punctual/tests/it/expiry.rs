//! Executions that have not started in time expire.

use crate::driven::{HOUR, advance, attempts, explained, pass, standing_at, start};
use crate::server::eventually;
use punctual_client::ExecutionStatus::{Expired, Succeeded, TimedOut};
use punctual_core::job::JobStatus;
use serde_json::json;

#[tokio::test]
async fn a_job_that_has_not_started_by_its_expiry_fails_with_the_reason() {
    let server = standing_at(start());
    let client = server.client();
    let expires_at = start().plus(2 * HOUR);
    let job = json!({"name": "nobody-runs-this", "delay": "1h", "expires_at": expires_at.to_string()});
    let job = server.submit(job).await;
    pass(&server, start().plus(HOUR)).await;
    assert!(explained(&server, job).await.contains("It expires at 2026-05-01T02:00:00Z (in 1h)"));
    let execution = client.execution(job.occurrence(1).attempt(1)).await.unwrap();
    assert_eq!(execution.expires_at, Some(expires_at));

    pass(&server, start().plus(3 * HOUR)).await;
    eventually("it has expired", async || attempts(&server, job).await == [(1, 1, Expired)]).await;
    let job = client.job(job).await.unwrap();
    assert_eq!(
        (job.status, job.status_reason.as_deref()),
        (JobStatus::Failed, Some("it had not started when it expired"))
    );
    assert!(explained(&server, job.job_id).await.contains("it had not started when it expired"));
}

#[tokio::test]
async fn each_run_of_a_recurring_job_expires_for_itself() {
    let server = standing_at(start());
    let client = server.client();
    let hourly = json!({
        "name": "hourly", "job_type": "noop", "queue": "mail", "interval": "1h", "expires_after": "10m",
        "overlap_policy": "ALLOW",
    });
    let job = server.submit(hourly).await;
    advance(&server, start().plus(HOUR)).await;
    client.pause_queue("mail").await.unwrap();
    pass(&server, start().plus(3 * HOUR + HOUR / 2)).await;
    eventually("both have expired", async || {
        attempts(&server, job).await == [(1, 1, Succeeded), (2, 1, Expired), (3, 1, Expired)]
    })
    .await;
    client.resume_queue("mail").await.unwrap();
    advance(&server, start().plus(4 * HOUR)).await;
    let after = attempts(&server, job).await;
    assert_eq!(after, [(1, 1, Succeeded), (2, 1, Expired), (3, 1, Expired), (4, 1, Succeeded)]);
    assert_eq!(client.job(job).await.unwrap().status, JobStatus::Active);
}

#[tokio::test]
async fn a_retry_that_would_come_after_the_expiry_does_not_come() {
    let server = standing_at(start());
    let job = json!({
        "name": "slow", "job_type": "sleep", "payload": {"ms": 60_000}, "timeout_secs": 0.05,
        "expires_at": start().plus(3 * HOUR).to_string(), "max_retries": 5,
        "retry": {"strategy": "ladder", "steps": ["2h"]},
    });
    let job = server.submit(job).await;
    advance(&server, start().plus(24 * HOUR)).await;
    assert_eq!(attempts(&server, job).await, [(1, 1, TimedOut), (1, 2, TimedOut)]);
    let job = server.client().job(job).await.unwrap();
    assert_eq!(job.status, JobStatus::Failed);
    assert!(job.status_reason.as_ref().unwrap().contains("expire"), "{job:?}");
}
