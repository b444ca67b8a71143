//! The `/users/{user_id}/jobs` API.

use super::{Hand, ask, create, get, now, server, text};
use crate::driven::{HOUR, MINUTE, advance, pass};
use crate::principals::Principal;
use crate::server::answer;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

#[tokio::test]
async fn a_recurring_job_of_a_user_runs_in_its_interval() {
    let server = server();
    let ann = Principal::submitter(&server, "ann").await;
    let job = json!({"executionInterval": "PT3H", "maxRetryCount": 3, "is_reccuring": true});
    let (status, accepted) = ann.post("/users/ann/jobs", &job).await;
    assert_eq!(status, StatusCode::CREATED, "{accepted}");
    assert_eq!(accepted, json!({"job_id": accepted["job_id"]}));
    let id = text(&accepted["job_id"]);
    let (status, listed) = ann.get("/users/ann/jobs").await;
    assert_eq!(status, StatusCode::OK, "{listed}");
    let created = &listed["jobs"][0]["created_time"];
    let expected = json!({"jobs": [{"user_id": "ann", "job_id": id, "is_recurring": true, "interval": "PT3H",
        "max_retry_count": 3, "created_time": created, "next_execution_time": "2026-05-01T13:00:00Z"}]});
    assert_eq!(listed, expected);

    advance(&server, now().plus(6 * HOUR)).await;
    let (_, history) = ann.get(&format!("/users/ann/jobs/{id}/history")).await;
    let seen = |entry: &Value| {
        assert!(entry["last_update_time"].is_string(), "{entry}");
        (text(&entry["execution_time"]), text(&entry["status"]), entry["retry_count"].clone())
    };
    let all: Vec<_> = history["history"].as_array().unwrap().iter().map(seen).collect();
    let run = |time: &str| (time.to_owned(), "COMPLETED".to_owned(), json!(0));
    assert_eq!(all, [run("2026-05-01T16:00:00Z"), run("2026-05-01T13:00:00Z")]);
    let (_, latest) = ann.get(&format!("/users/ann/jobs/{id}/history?limit=1")).await;
    assert_eq!((&latest["job_id"], &latest["history"]), (&json!(id), &json!([history["history"][0]])));

    let path = format!("/users/ann/jobs/{id}");
    let (status, _) = answer(ann.request(Method::DELETE, &path)).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let (status, _) = answer(ann.request(Method::DELETE, &path)).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(ann.get("/users/ann/jobs").await.1, json!({"jobs": []}));
}

#[tokio::test]
async fn the_interval_of_any_job_is_in_iso_8601() {
    let server = server();
    let ann = Principal::submitter(&server, "ann").await;
    ann.submit(json!({"name": "native", "job_type": "noop", "interval": "90s"})).await;
    let (_, listed) = ann.get("/users/ann/jobs").await;
    assert_eq!(listed["jobs"][0]["interval"], "PT1M30S", "{listed}");
}

#[tokio::test]
async fn a_task_is_scheduled_until_its_retries_are_used_up() {
    let server = server();
    let hand = Hand::open(&server, "sync").await;
    let job =
        json!({"job_type": "sync", "maxRetryCount": 1, "is_recurring": false, "executionInterval": "PT1H"});
    let id = text(&create(&server, "/users/ann/jobs", job).await["job_id"]);
    let history = async || get(&server, &format!("/users/ann/jobs/{id}/history")).await["history"].clone();
    let state = |entries: &Value| (entries[0]["status"].clone(), entries[0]["retry_count"].clone());
    assert_eq!(history().await, json!([]));
    pass(&server, now().plus(HOUR)).await;
    let taken = hand.take().await;
    assert_eq!(state(&history().await), (json!("SCHEDULED"), json!(0)));
    hand.fail(&taken, "away").await;
    let entries = history().await;
    assert_eq!((state(&entries), entries.as_array().unwrap().len()), ((json!("SCHEDULED"), json!(1)), 1));
    pass(&server, now().plus(HOUR).plus(5 * MINUTE)).await;
    hand.fail(&hand.take().await, "away").await;
    assert_eq!(state(&history().await), (json!("FAILED"), json!(1)));
}

#[tokio::test]
async fn the_next_execution_time_changes_by_job() {
    let server = server();
    let next = async |id: &str, time: &str, status: u16| {
        let body = json!({"next_execution_time": time});
        ask(&server, Method::PATCH, &format!("/users/ann/jobs/{id}"), Some(body), status).await
    };
    let job = json!({"executionInterval": "PT3H", "maxRetryCount": 3, "is_reccuring": true});
    let interval = text(&create(&server, "/users/ann/jobs", job).await["job_id"]);
    let moved = next(&interval, "2026-05-01T11:30:00Z", 200).await;
    assert_eq!(moved, json!({"job_id": interval, "next_execution_time": "2026-05-01T11:30:00Z"}));
    advance(&server, now().plus(2 * HOUR)).await;
    let (_, stored) = server.get(&format!("/api/v1/jobs/{interval}")).await;
    assert_eq!(stored["next_run_time"], "2026-05-01T14:30:00Z");
    let history = get(&server, &format!("/users/ann/jobs/{interval}/history")).await;
    assert_eq!(history["history"][0]["execution_time"], "2026-05-01T11:30:00Z");

    let once = json!({"executionInterval": "P1D", "is_reccuring": false});
    let once = text(&create(&server, "/users/ann/jobs", once).await["job_id"]);
    let moved = next(&once, "2026-05-01T18:00:00Z", 200).await;
    assert_eq!(moved["next_execution_time"], "2026-05-01T18:00:00Z");

    let cron = json!({"name": "noop", "cron_expression": "0 9 * * *", "owner_id": "ann"});
    let cron = server.submit(cron).await.to_string();
    let moved = next(&cron, "2026-05-04T09:00:00Z", 200).await;
    assert_eq!(moved["next_execution_time"], "2026-05-04T09:00:00Z");
    let refused = next(&cron, "2026-05-05T10:00:00Z", 422).await;
    let detail = text(&refused["detail"]);
    assert!(detail.contains("next_execution_time") && detail.contains("2026-05-06T09:00:00Z"), "{detail}");
    let refused = next(&interval, "2026-05-01T08:00:00Z", 422).await;
    assert!(text(&refused["detail"]).contains("must be in the future"), "{refused}");
}

#[tokio::test]
async fn a_user_is_named_by_owner_or_by_its_own_id_or_email_address() {
    let server = server();
    let user = json!({"email": "ann@example.org", "role": "submitter", "owner_id": "team-a"});
    let user = create(&server, "/api/v1/users", user).await;
    let user_id = text(&user["user_id"]);
    let ann = Principal::create(&server, json!({"name": "laptop", "user_id": user_id})).await;
    let job = json!({"executionInterval": "PT3H", "is_reccuring": true});
    for name in ["team-a", "ann@example.org", user_id.as_str()] {
        let (status, accepted) = ann.post(&format!("/users/{name}/jobs"), &job).await;
        assert_eq!(status, StatusCode::CREATED, "{name}: {accepted}");
    }
    let listed = get(&server, "/users/team-a/jobs").await;
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 3, "{listed}");
    assert_eq!(listed, ann.get("/users/ann@example.org/jobs").await.1);
}
