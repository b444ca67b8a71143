//! Previews of schedules and of jobs: what they list, and which choices they take.

use crate::driven::{DAY, advance, at, standing_at, start};
use crate::server::Server;
use punctual_core::time::Timestamp;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;

async fn preview(server: &Server, schedule: Value) -> Value {
    let (status, body) = server.post("/api/v1/schedules/preview", &schedule.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{schedule}: {body}");
    body
}

fn times(preview: &Value) -> Vec<Timestamp> {
    let occurrences = preview["occurrences"].as_array().unwrap();
    occurrences.iter().map(|occurrence| at(occurrence["scheduled_time"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn the_next_runs_of_a_job_are_those_that_max_runs_leaves() {
    let server = standing_at(start());
    let daily = json!({
        "name": "daily", "job_type": "noop", "cron_expression": "0 6 * * *", "max_runs": 3, "jitter": "10m",
    });
    let job = server.submit(daily).await;
    let next = async || server.get(&format!("/api/v1/jobs/{job}/next?count=10")).await.1;
    let first = next().await;
    let morning = at("2026-05-01T06:00:00Z");
    assert_eq!(times(&first), [morning, morning.plus(DAY), morning.plus(2 * DAY)]);
    assert_eq!(
        first["description"], "At 06:00 every day, UTC; at most 3 runs; each starts up to 10m later",
        "{first}"
    );
    for occurrence in first["occurrences"].as_array().unwrap() {
        let due_at = at(occurrence["due_at"].as_str().unwrap());
        let delay = due_at.since(at(occurrence["scheduled_time"].as_str().unwrap()));
        assert!(delay <= Duration::from_secs(600), "{occurrence}");
    }
    let (_, shown) = server.get(&format!("/api/v1/jobs/{job}")).await;
    assert_eq!(shown["next_run_time"], first["occurrences"][0]["due_at"]);
    advance(&server, start().plus(DAY)).await;
    assert_eq!(times(&next().await), [morning.plus(DAY), morning.plus(2 * DAY)]);
    advance(&server, start().plus(3 * DAY)).await;
    assert_eq!(times(&next().await), []);
}

#[tokio::test]
async fn a_preview_takes_all_that_bounds_a_schedule() {
    let server = standing_at(start());
    let hours = |hours: u32| start().plus(hours * Duration::from_secs(3_600));
    let bounded = json!({"interval": "1h", "max_runs": 3, "jitter": "90s"});
    let body = preview(&server, bounded).await;
    assert_eq!(times(&body), [hours(1), hours(2), hours(3)]);
    assert_eq!(
        body["description"],
        "Every hour, counted from 2026-05-01T00:00:00+00:00; at most 3 runs; each starts up to 1m 30s later"
    );
    let later = preview(&server, json!({"interval": "1h", "max_runs": 3, "after": hours(2)})).await;
    assert_eq!(times(&later), [hours(3)], "the runs until then count");
    let past = preview(&server, json!({"interval": "1h", "after": "2026-04-01T00:00:00Z", "count": 2})).await;
    assert_eq!(times(&past), [hours(1), hours(2)], "the first run is one interval from now");
    let past = json!({"cron_expression": "@daily", "max_runs": 1, "after": "2026-04-01T00:00:00Z"});
    assert_eq!(times(&preview(&server, past).await), [at("2026-04-02T00:00:00Z")]);
    let none = json!({"cron_expression": "@daily", "max_runs": 0});
    let (status, body) = server.post("/api/v1/schedules/preview", &none.to_string()).await;
    assert_eq!((status, &body["errors"][0]["field"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("max_runs")));
}

#[tokio::test]
async fn a_preview_says_which_rule_about_clock_changes_applies() {
    let server = standing_at(start());
    let night = |pattern: &str| {
        json!({
            "cron_expression": pattern, "timezone": "Europe/Berlin", "after": "2026-10-25T00:40:00Z", "count": 2,
        })
    };
    let quarters = preview(&server, night("*/15 0-6 * * *")).await;
    assert_eq!(times(&quarters), [at("2026-10-25T00:45:00Z"), at("2026-10-25T01:00:00Z")]);
    assert_eq!((&quarters["dst_gap"], &quarters["dst_overlap"]), (&json!("SKIP"), &json!("BOTH")));
    let fixed = preview(&server, night("0 2,14 * * *")).await;
    assert_eq!(times(&fixed), [at("2026-10-25T13:00:00Z"), at("2026-10-26T01:00:00Z")]);
    assert_eq!((&fixed["dst_gap"], &fixed["dst_overlap"]), (&json!("RUN_AFTER"), &json!("FIRST")));
    let utc = preview(&server, json!({"cron_expression": "0 2 * * *"})).await;
    assert_eq!((&utc["dst_gap"], &utc["dst_overlap"]), (&Value::Null, &Value::Null));
    let mut chosen = night("0 2 * * *");
    chosen["dst_overlap"] = json!("second");
    let chosen = preview(&server, chosen).await;
    assert_eq!((&chosen["dst_overlap"], times(&chosen)[0]), (&json!("SECOND"), at("2026-10-25T01:00:00Z")));
}

#[tokio::test]
async fn a_choice_about_clock_changes_without_effect_is_refused() {
    let server = standing_at(start());
    let elapsed =
        json!({"name": "x", "job_type": "noop", "interval": "90s", "dst_gap": "skip", "dst_overlap": "both"});
    let (status, body) = server.post("/api/v1/jobs", &elapsed.to_string()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    let errors = body["errors"].as_array().unwrap();
    let fields: Vec<&Value> = errors.iter().map(|error| &error["field"]).collect();
    assert_eq!(fields, ["dst_gap", "dst_overlap"]);
    let detail = errors[0]["detail"].as_str().unwrap();
    assert!(detail.contains("90s is elapsed time"), "{detail}");
    let daily = json!({"name": "x", "job_type": "noop", "interval": "daily", "dst_gap": "skip"});
    server.submit(daily).await;
}

#[test]
fn a_schedule_without_runs_says_so() {
    let server = standing_at(start());
    let over = server.said(&["schedule", "preview", "--cron", "@daily", "--end-at", "2026-04-01T00:00:00Z"]);
    assert_eq!(over, "At 00:00 every day, UTC, until 2026-04-01T00:00:00+00:00\n\nno runs\n");
    let bounded = ["schedule", "preview", "--cron", "@daily", "--max-runs", "1", "--jitter", "5m"];
    let bounded = server.said(&bounded);
    assert_eq!(
        bounded.lines().collect::<Vec<_>>(),
        [
            "At 00:00 every day, UTC; one run; each starts up to 5m later",
            "",
            "UTC                   LOCAL                      CLOCK CHANGE",
            "2026-05-02T00:00:00Z  2026-05-02T00:00:00+00:00",
        ]
    );
}
