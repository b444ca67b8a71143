//! A driven clock: schedules across daylight-saving changes, downtime and years, in moments.

use crate::driven::{DAY, HOUR, MINUTE, advance, at, standing_at, up_to};
use crate::server::{Server, eventually};
use punctual_client::{ClockMode, ExecutionStatus, MoveClock, SkipRangeBody, Span, SubmitJob};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;

/// The nominal times of all executions, in order; each has succeeded, and at its own time.
async fn ran_on_time(server: &Server, job: JobId) -> Vec<Timestamp> {
    let page = server.client().executions(job, Some(1_000), None).await.unwrap();
    assert_eq!(page.skipped, []);
    for execution in &page.items {
        assert_eq!(execution.status, ExecutionStatus::Succeeded, "{execution:?}");
        assert_eq!(execution.started_at, Some(execution.scheduled_time), "{execution:?}");
        assert_eq!(execution.completed_at, Some(execution.scheduled_time), "{execution:?}");
    }
    page.items.iter().rev().map(|execution| execution.scheduled_time).collect()
}

/// How many executions there are, and what was skipped.
async fn ran_and_skipped(server: &Server, job: JobId) -> (usize, Vec<(u64, SkipReason)>) {
    let page = server.client().executions(job, Some(1_000), None).await.unwrap();
    assert_eq!(page.next_cursor, None);
    let skipped = page.skipped.iter().map(|SkipRangeBody { count, reason, .. }| (*count, *reason));
    (page.items.len(), skipped.collect())
}

/// A daylight-saving change, with a daily job whose local time it skips or repeats.
struct Change {
    zone: &'static str,
    at: &'static str,
    daily: &'static str,
    daily_runs: [&'static str; 3],
}

/// Drives a server from 30 hours before the change to 40 hours after it. The daily job runs three times. The
/// job for every quarter of an hour neither skips nor repeats: all offsets are multiples of a quarter, so its
/// runs are the quarters of UTC.
async fn check(change: Change) {
    let changes_at = at(change.at);
    let server = standing_at(changes_at.minus(30 * HOUR));
    let daily = json!({
        "name": "daily", "job_type": "noop", "cron_expression": change.daily, "timezone": change.zone,
    });
    let daily = server.submit(daily).await;
    assert_eq!(advance(&server, changes_at.minus(HOUR)).await.fired, 1);
    let quarterly = json!({
        "name": "quarterly", "job_type": "noop", "cron_expression": "*/15 * * * *",
        "timezone": change.zone, "max_runs": 12,
    });
    let quarterly = server.submit(quarterly).await;
    assert_eq!(advance(&server, changes_at.plus(40 * HOUR)).await.fired, 2 + 12);
    assert_eq!(ran_on_time(&server, daily).await, change.daily_runs.map(at));
    let quarters: Vec<Timestamp> = (1..=12).map(|n| changes_at.minus(HOUR).plus(n * 15 * MINUTE)).collect();
    assert_eq!(ran_on_time(&server, quarterly).await, quarters);
}

#[tokio::test]
async fn clocks_in_berlin_go_forward() {
    // 02:00 +01:00 becomes 03:00 +02:00: 02:30 does not exist and runs right after.
    check(Change {
        zone: "Europe/Berlin",
        at: "2026-03-29T01:00:00Z",
        daily: "30 2 * * *",
        daily_runs: ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
    })
    .await;
}

#[tokio::test]
async fn clocks_in_berlin_go_back() {
    // 03:00 +02:00 becomes 02:00 +01:00: of the two 02:30 the first counts.
    check(Change {
        zone: "Europe/Berlin",
        at: "2026-10-25T01:00:00Z",
        daily: "30 2 * * *",
        daily_runs: ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
    })
    .await;
}

#[tokio::test]
async fn clocks_in_new_york_go_forward() {
    // 02:00 -05:00 becomes 03:00 -04:00.
    check(Change {
        zone: "America/New_York",
        at: "2026-03-08T07:00:00Z",
        daily: "30 2 * * *",
        daily_runs: ["2026-03-07T07:30:00Z", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"],
    })
    .await;
}

#[tokio::test]
async fn clocks_in_new_york_go_back() {
    // 02:00 -04:00 becomes 01:00 -05:00.
    check(Change {
        zone: "America/New_York",
        at: "2026-11-01T06:00:00Z",
        daily: "30 1 * * *",
        daily_runs: ["2026-10-31T05:30:00Z", "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
    })
    .await;
}

#[tokio::test]
async fn clocks_on_lord_howe_go_forward_by_half_an_hour() {
    // 02:00 +10:30 becomes 02:30 +11:00.
    check(Change {
        zone: "Australia/Lord_Howe",
        at: "2026-10-03T15:30:00Z",
        daily: "15 2 * * *",
        daily_runs: ["2026-10-02T15:45:00Z", "2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"],
    })
    .await;
}

#[tokio::test]
async fn clocks_on_lord_howe_go_back_by_half_an_hour() {
    // 02:00 +11:00 becomes 01:30 +10:30.
    check(Change {
        zone: "Australia/Lord_Howe",
        at: "2026-04-04T15:00:00Z",
        daily: "45 1 * * *",
        daily_runs: ["2026-04-03T14:45:00Z", "2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"],
    })
    .await;
}

#[tokio::test]
async fn retries_come_when_the_driven_time_does() {
    let start = at("2026-05-01T00:00:00Z");
    let server = standing_at(start);
    // Its timeout is in real time, its retries follow the driven clock.
    let job = json!({
        "name": "slow", "job_type": "sleep", "payload": {"ms": 60_000}, "timeout_secs": 0.05,
        "max_retries": 2, "retry": {"strategy": "ladder", "steps": ["1h", "2h"]},
    });
    let job = server.submit(job).await;
    advance(&server, start.plus(4 * HOUR)).await;
    let page = server.client().executions(job, None, None).await.unwrap();
    let attempts = page.items.iter().rev().map(|execution| (execution.available_at, execution.status));
    let expected = [start, start.plus(HOUR), start.plus(3 * HOUR)].map(|at| (at, ExecutionStatus::TimedOut));
    assert_eq!(attempts.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_jump_is_an_outage_and_misfire_policies_decide() {
    let start = at("2026-05-01T00:00:00Z");
    let server = standing_at(start);
    let job = |name: &str, policy: &str, grace: &str, limit: Option<u32>| {
        let mut job = json!({
            "name": name, "job_type": "noop", "cron_expression": "* * * * * *", "overlap_policy": "ALLOW",
            "misfire_policy": policy, "misfire_grace": grace,
        });
        if let Some(limit) = limit {
            job["misfire_limit"] = json!(limit);
        }
        job
    };
    let skip = server.submit(job("skip", "SKIP_MISSED", "60s", None)).await;
    let once = server.submit(job("once", "RUN_ONCE", "0s", None)).await;
    let once_in_grace = server.submit(job("once-in-grace", "RUN_ONCE", "60s", None)).await;
    let all = server.submit(job("all", "RUN_ALL", "60s", Some(500))).await;

    // Half a second more than three hours: 10,800 seconds have begun, the last one half a second ago.
    let to = start.plus(3 * HOUR).shifted(500_000);
    let moved = server.client().jump_clock(&up_to(to)).await.unwrap();

    // The grace of a minute reaches back to 02:59:00.5, so that its 60 seconds from :01 to :00 simply run.
    let misfire = SkipReason::Misfire;
    assert_eq!(ran_and_skipped(&server, skip).await, (60, vec![(10_740, misfire)]));
    assert_eq!(ran_and_skipped(&server, once).await, (1, vec![(10_799, misfire)]));
    assert_eq!(ran_and_skipped(&server, once_in_grace).await, (60, vec![(10_740, misfire)]));
    assert_eq!(ran_and_skipped(&server, all).await, (560, vec![(10_240, misfire)]));
    assert_eq!((moved.fired, moved.skipped), (60 + 1 + 60 + 560, 10_740 + 10_799 + 10_740 + 10_240));
    assert_eq!((moved.now, moved.settled, moved.more), (to, true, false));

    let client = server.client();
    let latest = client.executions(once, None, None).await.unwrap().items[0].scheduled_time;
    assert_eq!(latest, start.plus(3 * HOUR), "the latest one stands for all");
    let replayed = client.executions(all, Some(1_000), None).await.unwrap();
    let earliest = replayed.items.iter().map(|execution| execution.scheduled_time).min();
    assert_eq!(earliest, Some(start.plus(Duration::from_secs(10_241))), "the latest 500 of those missed");
}

#[tokio::test]
async fn whatever_the_overlap_policy_run_all_runs_every_missed_occurrence() {
    let start = at("2026-05-01T00:00:00Z");
    let server = standing_at(start);
    let mut jobs = vec![];
    for policy in ["SKIP", "ALLOW", "QUEUE", "REPLACE"] {
        let job = json!({
            "name": policy, "job_type": "noop", "cron_expression": "* * * * *", "overlap_policy": policy,
            "misfire_policy": "RUN_ALL", "max_open": 5,
        });
        jobs.push((policy, server.submit(job).await));
    }
    let at_once = MoveClock { settle: Some(Span::default()), ..up_to(start.plus(3 * HOUR).shifted(500_000)) };
    server.client().jump_clock(&at_once).await.unwrap();
    for (policy, job) in jobs {
        eventually(&format!("all have run under {policy}"), async || {
            let page = server.client().executions(job, Some(1_000), None).await.unwrap();
            let statuses = page.items.iter().map(|execution| execution.status);
            statuses.filter(|status| *status == ExecutionStatus::Succeeded).count() == 180
        })
        .await;
        assert_eq!(ran_and_skipped(&server, job).await, (180, vec![]), "{policy}");
    }
}

#[tokio::test]
async fn a_year_that_was_missed_is_one_row() {
    let start = at("2026-05-01T00:00:00Z");
    let server = standing_at(start);
    let job = json!({
        "name": "seconds", "job_type": "noop", "cron_expression": "* * * * * *", "overlap_policy": "ALLOW",
    });
    let job = server.submit(job).await;
    let moved = server.client().jump_clock(&up_to(start.plus(365 * DAY))).await.unwrap();
    // The last minute, and the second with which it began, are within the grace.
    let missed = 365 * 24 * 3_600 - 61;
    assert_eq!((moved.fired, moved.skipped, moved.settled), (61, missed, true));
    let page = server.client().executions(job, None, None).await.unwrap();
    let skipped: Vec<_> = page.skipped.iter().map(|range| (range.first, range.last, range.count)).collect();
    let second = Duration::from_secs(1);
    assert_eq!(skipped, [(start.plus(second), start.plus(365 * DAY).minus(61 * second), missed)]);
}

#[tokio::test]
async fn a_worker_does_not_notice_that_a_year_has_passed() {
    let start = at("2026-05-01T00:00:00Z");
    let server = standing_at(start);
    let client = server.client();
    let nap = SubmitJob::named("nap").with_type("sleep").with_payload(&json!({"ms": 300})).unwrap();
    let nap = client.submit(&nap).await.unwrap().job_id;
    eventually("the nap has begun", async || {
        let page = client.executions(nap, None, None).await.unwrap();
        page.items.iter().any(|execution| execution.status != ExecutionStatus::Queued)
    })
    .await;
    let before = client.stats().await.unwrap();
    let year_later = start.plus(365 * DAY);
    let at_once = MoveClock { settle: Some(Span::default()), ..up_to(year_later) };
    assert_eq!(client.jump_clock(&at_once).await.unwrap().now, year_later);

    assert_eq!(client.wait(nap).await.unwrap().status, JobStatus::Completed);
    let page = client.executions(nap, None, None).await.unwrap();
    let [only] = &page.items[..] else { panic!("one attempt: {page:?}") };
    assert_eq!(only.started_at, Some(start));
    assert!((start..=year_later).contains(&only.completed_at.unwrap()), "{only:?}");

    // Work continues in the same session.
    let next = client.submit(&SubmitJob::named("next").with_type("noop")).await.unwrap().job_id;
    assert_eq!(client.wait(next).await.unwrap().status, JobStatus::Completed);
    let page = client.executions(next, None, None).await.unwrap();
    assert_eq!((page.items[0].started_at, page.items[0].completed_at), (Some(year_later), Some(year_later)));
    let after = client.stats().await.unwrap();
    assert_eq!((after.counters.sessions_lost, after.counters.lost), (0, 0));
    let sessions = |stats: &punctual_client::StatsBody| {
        stats.workers.iter().map(|worker| (worker.worker_id.clone(), worker.started_at)).collect::<Vec<_>>()
    };
    assert_eq!(sessions(&after), sessions(&before));
    assert_eq!(sessions(&after).len(), 1);
}

#[tokio::test]
async fn a_way_that_makes_no_sense_is_refused_by_field() {
    let server = standing_at(at("2026-05-01T00:00:00Z"));
    for (body, field, said) in [
        (r#"{}"#, "by", "is needed (or give to)"),
        (r#"{"by":"1h","to":"2026-05-02T00:00:00Z"}"#, "to", "must not be given together with by"),
        (r#"{"to":"2026-04-30T23:59:59Z"}"#, "to", "must not be before 2026-05-01T00:00:00Z"),
        (r#"{"by":"-1h"}"#, "by", "must be a duration such as 30s"),
        (r#"{"by":3600}"#, "by", "must be a duration such as \"30s\""),
        (r#"{"by":"9000w","settle":"31s"}"#, "settle", "must be at most 30s"),
        (r#"{"by":"500000w"}"#, "by", "must not be beyond 9999-12-30"),
        (r#"{"to":"tomorrow"}"#, "to", "must be a time such as 2026-11-15T08:30:00Z"),
        (r#"{"by":"1h","setle":"0s"}"#, "setle", "did you mean settle?"),
    ] {
        for path in ["/api/v1/clock/advance", "/api/v1/clock/jump"] {
            let (status, problem) = server.post(path, body).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}: {problem}");
            let error = &problem["errors"][0];
            assert_eq!(error["field"], field, "{body}: {problem}");
            assert!(error["detail"].as_str().unwrap().contains(said), "{body}: {problem}");
        }
    }
    for (body, expected) in [
        ("[]", StatusCode::UNPROCESSABLE_ENTITY),
        ("{", StatusCode::BAD_REQUEST),
        ("", StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(server.post("/api/v1/clock/advance", body).await.0, expected, "{body:?}");
    }
    assert_eq!(server.client().clock().await.unwrap().now, at("2026-05-01T00:00:00Z"), "it stands still");
}

#[tokio::test]
async fn the_machines_clock_is_not_driven() {
    let server = Server::start();
    assert_eq!(server.client().clock().await.unwrap().mode, ClockMode::System);
    for path in ["/api/v1/clock/advance", "/api/v1/clock/jump"] {
        let (status, problem) = server.post(path, r#"{"by":"1h"}"#).await;
        assert_eq!(status, StatusCode::CONFLICT, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("--clock manual"), "{problem}");
    }
}

#[test]
fn the_command_line_drives_the_clock() {
    let server = standing_at(at("2026-03-28T12:00:00Z"));
    let said = |arguments: &[&str]| {
        let output = server.cli(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(said(&["clock", "show"]), "now 2026-03-28T12:00:00Z, a manual clock\n");
    let submit = ["job", "submit", "backup", "--type", "noop", "--cron", "30 2 * * *"];
    assert!(said(&submit).ends_with("runs at 2026-03-29T02:30:00Z\n"));
    assert_eq!(said(&["clock", "advance", "3d"]), "now 2026-03-31T12:00:00Z, 3 occurrences fired\n");
    assert_eq!(
        said(&["clock", "jump", "--to", "2026-04-02T02:30:30Z"]),
        "now 2026-04-02T02:30:30Z, 1 occurrence fired, 1 skipped\n"
    );
    let moved: Value = serde_json::from_str(&said(&["clock", "advance", "1h", "-o", "json"])).unwrap();
    assert_eq!(
        moved,
        json!({"now": "2026-04-02T03:30:30Z", "fired": 0, "skipped": 0, "settled": true, "more": false})
    );
    let back = server.cli(&["clock", "jump", "--to", "2026-01-01T00:00:00Z"]);
    assert_eq!(back.status.code(), Some(4), "{}", String::from_utf8_lossy(&back.stderr));
    let start = server.cli(&["serve", "--clock-start", "2026-01-01T00:00:00Z"]);
    assert_eq!(start.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&start.stderr).contains("add --clock manual"));
}
