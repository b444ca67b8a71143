//! The ends of alerts: incidents are closed, and silences keep messages from people.

use crate::alert_events::{first, rule, with_receiver};
use crate::http::web::{Answer, Web};
use crate::notifications::{OPTIONS, body, deliveries, failing, put, server, told};
use crate::server::{Server, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// A server with the channel `duty`, which opens and closes incidents, and its receiver.
async fn with_incidents() -> (Server, Web) {
    let server = server();
    let web = Web::answering(Answer::status("202 Accepted", "{}")).await;
    let channel = json!({"type": "pagerduty", "url": web.url(""), "routing_key": "R1"});
    assert_eq!(put(&server, "/channels/duty", channel).await.0, StatusCode::CREATED);
    (server, web)
}

/// What the service has received about incidents: the action, and the key.
fn actions(web: &Web) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let action = |asked: Value| (text(&asked["event_action"]), text(&asked["dedup_key"]));
    web.asked().iter().map(|asked| action(body(asked))).collect()
}

/// Waits until one incident was opened, and returns its key.
async fn opened(web: &Web) -> String {
    eventually("an incident is opened", async || !web.asked().is_empty()).await;
    assert_eq!(actions(web)[0].0, "trigger");
    actions(web)[0].1.clone()
}

/// Waits until the incident with this key is closed.
async fn closed(web: &Web, key: &str) {
    let end = ("resolve".to_owned(), key.to_owned());
    eventually("the incident is closed", async || actions(web).contains(&end)).await;
}

async fn alerts(server: &Server) -> Vec<Value> {
    server.get("/api/v1/notifications/alerts").await.1["items"].as_array().unwrap().clone()
}

async fn succeed_from_now_on(server: &Server, job: &str) {
    let working = json!({"job_type": "noop", "payload": null});
    assert_eq!(server.patch(&format!("/api/v1/jobs/{job}"), &working).await.0, StatusCode::OK);
}

fn failing_often(name: &str, notify: Value) -> Value {
    let mut job = failing(name, notify);
    job["interval"] = json!("1s");
    job
}

#[tokio::test]
async fn alerts_of_cancelled_and_deleted_jobs_end() {
    for end in ["cancel", "delete"] {
        let (server, web) = with_incidents().await;
        let job = server.submit(failing_often("poll", json!({"on_failure": "duty"}))).await;
        let key = opened(&web).await;
        let (method, path) = match end {
            "cancel" => (Method::POST, format!("/api/v1/jobs/{job}/cancel")),
            _ => (Method::DELETE, format!("/api/v1/jobs/{job}")),
        };
        assert!(server.request(method, &path).send().await.unwrap().status().is_success());
        closed(&web, &key).await;
        assert!(alerts(&server).await.is_empty(), "{end}");
    }
}

#[tokio::test]
async fn the_alert_of_a_job_without_further_runs_ends_when_it_is_acknowledged() {
    let (server, web) = with_incidents().await;
    let mut job = failing_often("last", json!({"on_failure": "duty"}));
    job["max_runs"] = json!(1);
    let job = server.submit(job).await;
    let key = opened(&web).await;
    eventually("it has no further runs", async || {
        server.get(&format!("/api/v1/jobs/{job}")).await.1["status"] == "COMPLETED"
    })
    .await;
    let alert = alerts(&server).await.remove(0);
    let path = format!("/api/v1/notifications/alerts/{}/ack", alert["alert_id"].as_str().unwrap());
    assert_eq!(server.post(&path, "{}").await.0, StatusCode::OK);
    closed(&web, &key).await;
    assert!(alerts(&server).await.is_empty());
}

#[tokio::test]
async fn alerts_of_long_runs_end_with_the_run_however_it_ends() {
    let (server, web) = with_incidents().await;
    let fields = json!({"events": ["running_long"], "longer_than": "1s", "channels": ["duty"]});
    rule(&server, fields).await;
    let long = async |name: &str, ms: u64| {
        let job = json!({"name": name, "job_type": "sleep", "payload": {"ms": ms}, "timeout_secs": 300});
        server.submit(job).await
    };
    let cancelled = long("cancelled", 250_000).await;
    let key = opened(&web).await;
    assert!(key.contains(&cancelled.to_string()), "{key}");
    let path = format!("/api/v1/jobs/{cancelled}/cancel");
    assert!(server.post(&path, "{}").await.0.is_success());
    closed(&web, &key).await;
    // The leader looks at running executions every five seconds.
    let finished = long("finished", 12_000).await;
    eventually("it is notified", async || actions(&web).len() >= 3).await;
    let (action, key) = actions(&web).remove(2);
    assert!(action == "trigger" && key.contains(&finished.to_string()), "{action} {key}");
    closed(&web, &key).await;
    assert!(alerts(&server).await.is_empty());
}

#[tokio::test]
async fn a_recovery_during_a_silence_closes_the_incident_and_tells_nobody() {
    let (server, web) = with_incidents().await;
    let people = Web::answering(Answer::status("200 OK", "")).await;
    put(&server, "/channels/chat", json!({"type": "slack", "url": people.url("/")})).await;
    let notify = json!({"on_failure": "duty", "on_recovery": "chat"});
    let job = server.submit(failing_often("poll", notify)).await;
    let key = opened(&web).await;
    server.said(&["silence", "add", "--job-name", "poll", "--for", "1h"]);
    succeed_from_now_on(&server, &job.to_string()).await;
    closed(&web, &key).await;
    assert!(deliveries(&server).await.iter().all(|one| one["channel"] == "duty"));
    assert!(people.asked().is_empty());
}

#[tokio::test]
async fn the_incident_of_a_lost_worker_is_closed_when_it_is_back() {
    let (server, web) = with_incidents().await;
    rule(&server, json!({"events": ["worker_lost"], "channels": ["duty"]})).await;
    let opening =
        |lease: u32| json!({"worker": "silent", "job_types": ["raw"], "lease_secs": lease}).to_string();
    assert!(server.post("/api/v1/worker/sessions", &opening(20)).await.0.is_success());
    let key = opened(&web).await;
    assert!(key.contains("~silent"), "{key}");
    assert!(server.post("/api/v1/worker/sessions", &opening(600)).await.0.is_success());
    closed(&web, &key).await;
}

#[tokio::test]
async fn late_runs_are_an_incident_until_one_starts_in_time() {
    let (server, web) = with_incidents().await;
    rule(&server, json!({"events": ["late"], "late_by": "2s", "channels": ["duty"]})).await;
    server.client().pause_queue("slow").await.unwrap();
    let job = json!({"name": "poll", "job_type": "noop", "queue": "slow", "interval": "1s"});
    let job = server.submit(job).await;
    let path = format!("/api/v1/jobs/{job}/explain");
    // One run waits, and is late by then.
    eventually("runs were skipped behind it", async || {
        let skipped = server.get(&path).await.1["skipped"].as_array().cloned().unwrap_or_default();
        skipped.iter().filter_map(|range| range["count"].as_u64()).sum::<u64>() >= 3
    })
    .await;
    server.client().resume_queue("slow").await.unwrap();
    let key = opened(&web).await;
    assert_eq!(key, format!("punctual/late~{job}"));
    closed(&web, &key).await;
}

#[tokio::test]
async fn an_event_without_an_end_closes_its_incident_at_once() {
    let (server, web) = with_incidents().await;
    let fields = json!({"name": "report", "job_type": "noop", "notify": {"on_success": "duty"}});
    let job = server.submit(fields).await;
    let key = opened(&web).await;
    assert_eq!(key, format!("punctual/succeeded~{job}.1.1"));
    closed(&web, &key).await;
    assert_eq!(actions(&web).len(), 2);
}

/// The service is away while the incident opens, and back when it is closed.
#[tokio::test]
async fn an_incident_is_never_closed_before_it_is_opened() {
    let server = server();
    let address = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let channel = json!({"type": "pagerduty", "url": format!("http://{address}"), "routing_key": "R1"});
    put(&server, "/channels/duty", channel).await;
    let job = server.submit(failing_often("poll", json!({"on_failure": "duty"}))).await;
    eventually("it cannot be delivered", async || {
        deliveries(&server).await.iter().any(|one| one["last_error"].is_string())
    })
    .await;
    succeed_from_now_on(&server, &job.to_string()).await;
    eventually("both wait", async || deliveries(&server).await.len() == 2).await;
    let web = Web::answering_at(address, Answer::status("202 Accepted", "{}")).await;
    let key = opened(&web).await;
    closed(&web, &key).await;
}

#[tokio::test]
async fn a_silence_of_a_queue_covers_its_events_and_their_end() {
    let (server, web) = with_receiver().await;
    server.said(&["silence", "add", "--queue", "stuck*", "--for", "1h"]);
    let fields = json!({"events": ["queue_old"], "queue_older_than": "1s", "channels": ["ops"]});
    rule(&server, fields).await;
    let mut jobs = vec![];
    for queue in ["stuck-1", "loud"] {
        jobs.push(server.submit(json!({"name": queue, "job_type": "none", "queue": queue})).await);
    }
    assert_eq!(first(&web, "queue.old").await["data"]["queue"], "loud");
    eventually("both are alerts", async || alerts(&server).await.len() == 2).await;
    for job in jobs {
        assert!(server.post(&format!("/api/v1/jobs/{job}/cancel"), "{}").await.0.is_success());
    }
    assert_eq!(first(&web, "alert.resolved").await["data"]["queue"], "loud");
    eventually("both have ended", async || alerts(&server).await.is_empty()).await;
    let queues: Vec<Value> = web.asked().iter().map(|asked| body(asked)["data"]["queue"].clone()).collect();
    assert_eq!(queues, ["loud", "loud"]);
    assert_eq!(told(&web, "queue.old").len(), 1);
}

/// Many ends and failures are in one page of history.
#[tokio::test]
async fn a_job_that_fails_and_succeeds_by_turns_does_not_hold_up_other_messages() {
    let options = [&OPTIONS[..], &["--allow", "shell", "--slots", "1"]].concat();
    let server = Server::start_with(&options);
    let web = Web::answering(Answer::status("200 OK", "")).await;
    put(&server, "/channels/ops", json!({"type": "webhook", "url": web.url("/")})).await;
    let folder = tempfile::tempdir().unwrap();
    let turns = folder.path().join("turns").display().to_string();
    let script = format!("printf x >> '{turns}'; exit $(($(wc -c < '{turns}') % 2))");
    let job = json!({
        "name": "turns", "job_type": "shell", "payload": {"script": script}, "interval": "24h",
        "max_retries": 0, "overlap_policy": "ALLOW", "notify": {"on_failure": "ops", "on_recovery": "ops"},
    });
    let job = server.submit(job).await;
    let trigger = format!("/api/v1/jobs/{job}/trigger");
    assert!(server.post(&trigger, "{}").await.0.is_success());
    eventually("the first failure is an alert", async || alerts(&server).await.len() == 1).await;
    for _ in 1..60 {
        let (status, answered) = server.post(&trigger, "{}").await;
        assert!(status.is_success(), "{answered}");
    }
    let path = format!("/api/v1/jobs/{job}/executions?limit=100");
    eventually("all have run", async || {
        let (_, page) = server.get(&path).await;
        let items = page["items"].as_array().unwrap();
        items.iter().filter(|one| ["SUCCEEDED", "FAILED"].contains(&one["status"].as_str().unwrap())).count()
            == 60
    })
    .await;
    server.submit(failing("other", json!({"on_failure": "ops"}))).await;
    eventually("the other job is notified", async || {
        told(&web, "job.failed").iter().any(|one| one["data"]["name"] == "other")
    })
    .await;
    eventually("a recovery is notified", async || !told(&web, "job.recovered").is_empty()).await;
}
