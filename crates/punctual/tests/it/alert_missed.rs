//! Runs that did not happen: which are notified, and with which reason.

use crate::alert_events::{first, rule, with_receiver};
use crate::http::web::{Answer, Web};
use crate::notifications::{OPTIONS, deliveries, told, webhook};
use crate::server::{Server, answer, eventually};
use punctual_core::time::Timestamp;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// A time whose grace is over.
fn long_ago() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp::EPOCH.plus(now - Duration::from_secs(120))
}

/// The explanation of the first message about a missed run.
async fn reason(web: &Web) -> String {
    first(web, "job.missed").await["data"]["explanation"].as_str().unwrap().to_owned()
}

fn every_second(name: &str, rest: Value) -> Value {
    let mut job = json!({
        "name": name, "job_type": "noop", "interval": "1s", "misfire_grace": "1s",
        "notify": {"on_missed": "ops", "on_recovery": "ops"},
    });
    job.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    job
}

#[tokio::test]
async fn a_job_that_runs_once_and_has_no_worker_is_notified_once() {
    let (server, web) = with_receiver().await;
    rule(&server, json!({"events": ["missed"], "channels": ["ops"], "match": {"tags": ["backup"]}})).await;
    let once = |name: &str, tags: Value| json!({"name": name, "job_type": "no-such-handler", "execute_at": long_ago(), "tags": tags});
    let job = server.submit(once("once", json!(["backup"]))).await;
    server.submit(once("other", json!([]))).await;
    assert!(reason(&web).await.contains("no connected worker runs the job type no-such-handler"));
    let path = format!("/api/v1/jobs/{job}");
    let change = json!({"job_type": "noop"});
    assert_eq!(server.patch(&path, &change).await.0, StatusCode::OK);
    eventually("it has run", async || server.get(&path).await.1["status"] == "COMPLETED").await;
    eventually("the alert is over", async || {
        server.get("/api/v1/notifications/alerts").await.1["items"].as_array().unwrap().is_empty()
    })
    .await;
    assert_eq!(told(&web, "job.missed").len(), 1);
    assert_eq!(told(&web, "job.missed")[0]["data"]["name"], "once");
}

#[tokio::test]
async fn a_paused_job_that_should_have_run_once_is_notified_and_recovers() {
    let (server, web) = with_receiver().await;
    let later = Timestamp::EPOCH.plus(Duration::from_secs(4_000_000_000));
    let job = json!({
        "name": "once", "job_type": "noop", "execute_at": later,
        "notify": {"on_missed": "ops", "on_recovery": "ops"},
    });
    let job = server.submit(job).await;
    let path = format!("/api/v1/jobs/{job}");
    assert!(server.post(&format!("{path}/pause"), "{}").await.0.is_success());
    let change = json!({"execute_at": long_ago()});
    assert_eq!(server.patch(&path, &change).await.0, StatusCode::OK);
    assert!(reason(&web).await.ends_with("The job is paused."));
    assert!(server.post(&format!("{path}/resume"), "{}").await.0.is_success());
    let recovered = first(&web, "job.recovered").await;
    assert_eq!(recovered["data"]["job_id"], json!(job));
}

#[tokio::test]
async fn a_job_that_runs_once_in_a_paused_queue_is_notified() {
    let (server, web) = with_receiver().await;
    server.client().pause_queue("night").await.unwrap();
    let job = json!({
        "name": "once", "job_type": "noop", "queue": "night", "execute_at": long_ago(),
        "notify": {"on_missed": "ops"},
    });
    server.submit(job).await;
    assert!(reason(&web).await.ends_with("It waits: the queue night is paused."));
}

#[tokio::test]
async fn the_reason_names_the_pause_of_the_whole_cluster() {
    let (server, web) = with_receiver().await;
    server.said(&["pause", "--reason", "moving the database"]);
    server.submit(every_second("backup", json!({}))).await;
    let said = reason(&web).await;
    assert!(
        said.contains("The whole cluster is paused by") && said.contains("moving the database"),
        "{said}"
    );
}

#[tokio::test]
async fn the_reason_names_the_limit_of_the_queue() {
    let (server, web) = with_receiver().await;
    server.said(&["queue", "set", "narrow", "--concurrency", "1"]);
    let long = json!({
        "name": "long", "job_type": "sleep", "payload": {"ms": 120_000}, "queue": "narrow", "timeout_secs": 300,
    });
    let long = server.submit(long).await;
    let path = format!("/api/v1/jobs/{long}/executions");
    eventually("it runs", async || server.get(&path).await.1["items"][0]["status"] == "RUNNING").await;
    server.submit(every_second("backup", json!({"queue": "narrow"}))).await;
    assert!(reason(&web).await.ends_with("It waits: the queue narrow has reached its limit."));
}

#[tokio::test]
async fn the_reason_names_the_earlier_run() {
    let (server, web) = with_receiver().await;
    let rest = json!({
        "job_type": "sleep", "payload": {"ms": 120_000}, "timeout_secs": 300, "interval": "2s",
        "misfire_grace": "10s",
    });
    let mut queued = every_second("queued", rest.clone());
    queued["overlap_policy"] = json!("QUEUE");
    let job = server.submit(queued).await;
    let said = reason(&web).await;
    assert!(said.ends_with(&format!("It waits: the earlier run {job}.1.1 is still open.")), "{said}");
    let mut skipped = every_second("skipped", rest);
    skipped["overlap_policy"] = json!("SKIP");
    server.submit(skipped).await;
    let of_skipped = || told(&web, "job.missed").into_iter().find(|one| one["data"]["name"] == "skipped");
    eventually("skipped runs are notified", async || of_skipped().is_some()).await;
    let said = of_skipped().unwrap()["data"]["explanation"].as_str().unwrap().to_owned();
    assert!(said.ends_with("an earlier run was still open (overlap_policy SKIP)."), "{said}");
}

#[tokio::test]
async fn runs_of_a_paused_job_are_missed_and_those_that_a_calendar_excludes_are_not() {
    let (server, web) = with_receiver().await;
    let (status, answered) = answer(server.request(Method::PUT, "/api/v1/calendars/always").json(&json!({
        "entries": [{"times": ["00:00-24:00"]}],
    })))
    .await;
    assert!(status.is_success(), "{answered}");
    let excluded = server.submit(every_second("excluded", json!({"calendars": ["always"]}))).await;
    let job = server.submit(every_second("paused", json!({}))).await;
    assert!(server.post(&format!("/api/v1/jobs/{job}/pause"), "{}").await.0.is_success());
    assert!(
        reason(&web).await.contains("the job was paused")
            || reason(&web).await.contains("The job is paused.")
    );
    let path = format!("/api/v1/jobs/{excluded}/explain");
    eventually("runs were excluded for longer than the grace", async || {
        let skipped = server.get(&path).await.1["skipped"].as_array().cloned().unwrap_or_default();
        skipped.iter().filter_map(|range| range["count"].as_u64()).sum::<u64>() >= 8
    })
    .await;
    assert!(deliveries(&server).await.iter().all(|one| !one.to_string().contains("excluded")));
}

#[tokio::test]
async fn a_change_of_another_field_does_not_hide_missed_runs() {
    let (server, web) = with_receiver().await;
    let rest = json!({"job_type": "no-such-handler", "interval": "2s", "misfire_grace": "4s"});
    let job = server.submit(every_second("orphan", rest)).await;
    let path = format!("/api/v1/jobs/{job}");
    let mut priority = 0;
    // No run is as old as its grace without a change in between.
    eventually("it is notified", async || {
        priority = 1 + priority % 9;
        assert_eq!(server.patch(&path, &json!({"priority": priority})).await.0, StatusCode::OK);
        !told(&web, "job.missed").is_empty()
    })
    .await;
}

#[tokio::test]
async fn missed_runs_are_found_among_more_jobs_than_one_step_checks() {
    let (server, web) = with_receiver().await;
    let first_job = server.submit(every_second("first", json!({"job_type": "no-such-handler"}))).await;
    let quiet: Vec<Value> = (0..600)
        .map(|number| {
            json!({"name": format!("quiet-{number}"), "interval": "24h", "notify": {"on_missed": "ops"}})
        })
        .collect();
    for jobs in quiet.chunks(300) {
        let (status, stored) = server.post("/api/v1/jobs/batch", &json!({"jobs": jobs}).to_string()).await;
        assert!(status.is_success(), "{stored}");
    }
    let last_job = server.submit(every_second("last", json!({"job_type": "no-such-handler"}))).await;
    for job in [first_job, last_job] {
        eventually("it is notified", async || {
            told(&web, "job.missed").iter().any(|one| one["data"]["job_id"] == json!(job))
        })
        .await;
    }
}

/// Since when a condition holds is stored, and not counted again by the next leader.
#[tokio::test]
async fn conditions_that_are_not_alerts_yet_survive_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(folder.path(), &OPTIONS);
    let web = Web::answering(Answer::status("200 OK", "")).await;
    webhook(&server, "ops", &web.url("/")).await;
    let fields = |limit: &str| {
        json!({
            "events": ["worker_lost", "limit_full"], "limit_full_for": limit, "channels": ["ops"],
        })
    };
    rule(&server, fields("1h")).await;
    server.said(&["queue", "set", "narrow", "--concurrency", "1"]);
    for name in ["holder", "waiter"] {
        server.submit(json!({"name": name, "job_type": "no-such-handler", "queue": "narrow"})).await;
    }
    let opening = json!({"worker": "silent", "job_types": ["raw"], "lease_secs": 20}).to_string();
    assert!(server.post("/api/v1/worker/sessions", &opening).await.0.is_success());
    let pending = async |server: &Server, name: &str| {
        let (_, page) = server.get("/api/v1/notifications/alerts").await;
        let items = page["items"].as_array().unwrap().clone();
        items.into_iter().find(|one| one["name"] == name && one["state"] == "pending")
    };
    let mut since = Value::Null;
    eventually("both are pending", async || {
        let limit = pending(&server, "narrow").await;
        since = limit.as_ref().map_or(Value::Null, |limit| limit["since"].clone());
        limit.is_some() && pending(&server, "silent").await.is_some()
    })
    .await;
    assert!(web.asked().is_empty());
    server.kill();
    let server = Server::start_in(folder.path(), &OPTIONS);
    let request = server.request(Method::PUT, "/api/v1/notifications/rules/it").json(&fields("1s"));
    assert_eq!(answer(request).await.0, StatusCode::OK);
    assert_eq!(first(&web, "queue.limit_full").await["data"]["since"], since);
    eventually("the worker is lost", async || {
        told(&web, "worker.lost").iter().any(|one| one["data"]["name"] == "silent")
    })
    .await;
    assert_eq!(told(&web, "worker.lost").iter().filter(|one| one["data"]["name"] == "silent").count(), 1);
}
