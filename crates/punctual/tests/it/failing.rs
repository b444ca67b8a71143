//! Recurring jobs whose last run failed: they are active, and lists, `explain` and `doctor` tell of them.

use crate::driven::{DAY, HOUR, advance, standing_at, start, up_to};
use crate::server::Server;
use punctual_client::JobFilter;
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;

/// The jobs that a filter finds, following its pages. Their order is not known: they have the same age.
async fn found(server: &Server, filter: JobFilter) -> BTreeSet<JobId> {
    let (mut jobs, mut filter) = (BTreeSet::new(), filter);
    loop {
        let page = server.client().jobs(&filter).await.unwrap();
        jobs.extend(page.items.iter().map(|job| job.job_id));
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() {
            return jobs;
        }
    }
}

fn hourly(name: &str, job_type: &str) -> Value {
    json!({"name": name, "job_type": job_type, "interval": "1h", "max_retries": 0})
}

#[tokio::test]
async fn a_recurring_job_whose_last_run_failed_is_listed_and_told() {
    let server = standing_at(start());
    // A sleep without a length fails.
    let broken = server.submit(hourly("broken", "sleep")).await;
    let other = server.submit(hourly("other", "sleep")).await;
    let good = server.submit(hourly("good", "noop")).await;
    let once = json!({"name": "once", "job_type": "sleep", "max_retries": 0});
    let once = server.submit(once).await;
    advance(&server, start().plus(2 * HOUR)).await;

    let failing = |filter| JobFilter { failing: Some(true), ..filter };
    assert_eq!(found(&server, failing(JobFilter::default())).await, [once, other, broken].into());
    let active = JobFilter { status: Some(JobStatus::Active), limit: Some(1), ..JobFilter::default() };
    assert_eq!(found(&server, failing(active)).await, [other, broken].into(), "page by page");
    let others = JobFilter { failing: Some(false), ..JobFilter::default() };
    assert_eq!(found(&server, others).await, [good].into());
    let (status, problem) = server.get("/api/v1/jobs?failing=maybe").await;
    assert_eq!((status.as_u16(), &problem["errors"][0]["field"]), (400, &json!("failing")), "{problem}");

    let failed = server.cli(&["job", "list", "--status", "failed"]);
    let (listed, told) =
        (String::from_utf8(failed.stdout).unwrap(), String::from_utf8(failed.stderr).unwrap());
    assert!(listed.contains("once") && !listed.contains("broken"), "{listed}");
    assert_eq!(
        told,
        "note: 2 active jobs failed in their last run: `punctual job list --failing` lists them\n"
    );
    let listed = server.said(&["job", "list", "--failing"]);
    assert!(listed.contains("broken") && listed.contains("once") && !listed.contains("good"), "{listed}");

    let explained = server.said(&["job", "explain", "broken"]);
    assert!(
        explained.starts_with("Its last 2 runs failed, the latest at 2026-05-01T02:00:00"),
        "{explained}"
    );
    assert!(explained.contains("\nIt runs next at "), "{explained}");
}

/// What `punctual doctor` finds about one subject.
fn examined(server: &Server, check: &str) -> Value {
    let output = Command::new(crate::server::BINARY)
        .args(["doctor", "-o", "json", "--config", "/dev/null", "--data-dir"])
        .arg(server.data_dir())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["check"] == check).cloned().unwrap_or_default()
}

#[tokio::test]
async fn doctor_names_the_jobs_that_missed_a_run() {
    let server = standing_at(start());
    let nightly = json!({"name": "nightly", "job_type": "noop", "cron_expression": "0 2 * * *"});
    server.submit(nightly).await;
    server.submit(json!({"name": "yearly", "job_type": "noop", "cron_expression": "0 0 1 1 *"})).await;
    advance(&server, start().plus(DAY)).await;
    assert_eq!(examined(&server, "missed runs")["level"], "good");
    // A jump is an outage: nothing fires on the way.
    server.client().jump_clock(&up_to(start().plus(DAY + 8 * HOUR))).await.unwrap();
    let finding = examined(&server, "missed runs");
    assert_eq!(finding["level"], "warning", "{finding}");
    let said = finding["found"].as_str().unwrap();
    assert!(said.starts_with("did not run: nightly at 2026-05-02") && !said.contains("yearly"), "{said}");
    server.client().jump_clock(&up_to(start().plus(DAY + 20 * HOUR))).await.unwrap();
    advance(&server, start().plus(7 * DAY)).await;
    assert_eq!(examined(&server, "missed runs")["level"], "good", "it is old news by then");
}

#[test]
fn doctor_does_not_deny_what_the_server_allows() {
    let server = Server::start();
    let finding = examined(&server, "commands");
    assert!(finding["level"] == "skipped" && finding["found"].as_str().unwrap().contains("do not allow"));
    let server = Server::start_with(&["--allow", "process,shell"]);
    let finding = examined(&server, "commands");
    // Doctor has not checked how they are isolated.
    assert_eq!(finding["level"], "skipped", "{finding}");
    let said = finding["found"].as_str().unwrap();
    assert!(said.starts_with("the running server allows process and shell jobs"), "{said}");
}
