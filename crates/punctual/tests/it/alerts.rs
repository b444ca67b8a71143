//! Who is notified, and when: owners, quiet times, escalation, links that acknowledge, and conditions of rules.

use crate::http::web::{Answer, Web};
use crate::notifications::{body, deliveries, failing, mail_server, put, server, told, webhook};
use crate::server::{Server, answer, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

async fn created(server: &Server, path: &str, body: Value) {
    let (status, answer) = put(server, path, body).await;
    assert!(status.is_success(), "{path}: {answer}");
}

/// A job that fails every second.
async fn failing_often(server: &Server, name: &str) {
    let mut job = failing(name, json!({}));
    job["interval"] = json!("1s");
    server.submit(job).await;
}

async fn alert(server: &Server) -> Value {
    server.get("/api/v1/notifications/alerts").await.1["items"][0].clone()
}

#[tokio::test]
async fn the_owner_of_a_job_is_notified_on_the_preferred_channel() {
    let server = server();
    let (address, said) = mail_server().await;
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let mail = json!({
        "type": "email", "host": "127.0.0.1", "port": address.port(), "tls": "none", "from": "punctual@example.org",
        "to": ["everybody@example.org"],
    });
    created(&server, "/channels/mail", mail).await;
    webhook(&server, "hook", &web.url("/")).await;
    for (email, owner, channel) in [
        ("jane@example.org", "billing", json!("mail")),
        ("joe@example.org", "billing", json!("hook")),
        ("ann@example.org", "shipping", json!("mail")),
        ("sam@example.org", "billing", Value::Null),
    ] {
        let user =
            json!({"email": email, "role": "submitter", "owner_id": owner, "notification_channel": channel});
        let (status, answer) = server.post("/api/v1/users", &user.to_string()).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
    let mut job = failing("invoices", json!({"on_failure": "owner"}));
    job["owner_id"] = json!("billing");
    server.submit(job).await;
    eventually("both owners are notified", async || {
        let sent = deliveries(&server).await.iter().filter(|one| one["state"] == "sent").count();
        sent == 2 && web.asked().len() == 1
    })
    .await;
    let said = said.lock().unwrap().join("\n");
    assert!(said.contains("RCPT TO:<jane@example.org>"), "{said}");
    assert!(!said.contains("everybody@") && !said.contains("ann@") && !said.contains("sam@"), "{said}");
    let (status, refused) =
        put(&server, "/channels/owner", json!({"type": "webhook", "url": "https://x.example/"})).await;
    assert_eq!((status, &refused["errors"][0]["field"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("name")));
}

#[tokio::test]
async fn messages_of_a_quiet_time_wait_for_its_end_or_are_dropped() {
    let server = server();
    let [held, dropped, loud] = [
        Web::answering(Answer::status("200 OK", "")).await,
        Web::answering(Answer::status("200 OK", "")).await,
        Web::answering(Answer::status("200 OK", "")).await,
    ];
    created(&server, "/calendars/always", json!({"entries": [{"times": ["00:00-24:00"]}]})).await;
    let quiet = json!({"type": "webhook", "url": held.url("/"), "mute": {"calendars": ["always"]}});
    created(&server, "/channels/held", quiet).await;
    webhook(&server, "dropped", &dropped.url("/")).await;
    webhook(&server, "loud", &loud.url("/")).await;
    let rule = json!({
        "events": ["failed"], "channels": ["dropped"], "mute": {"calendars": ["always"], "then": "drop"},
    });
    created(&server, "/notifications/rules/quiet", rule).await;
    server.submit(failing("nightly", json!({"on_failure": ["held", "loud"]}))).await;
    eventually("the other channel is notified", async || loud.asked().len() == 1).await;
    let waiting = deliveries(&server).await;
    let of = |name: &str| waiting.iter().find(|one| one["channel"] == name);
    assert_eq!(of("held").unwrap()["held_by"], json!(["always"]), "{waiting:?}");
    assert!(of("dropped").is_none(), "{waiting:?}");
    assert_eq!((held.asked().len(), dropped.asked().len()), (0, 0));
    // The quiet time ends.
    created(&server, "/calendars/always", json!({"entries": [{"dates": ["2001-01-01"]}]})).await;
    eventually("it is sent after the quiet time", async || held.asked().len() == 1).await;
    assert_eq!(body(&held.asked()[0])["data"]["name"], "nightly");
    let unknown = json!({"type": "webhook", "url": held.url("/"), "mute": {"calendars": ["never"]}});
    let (status, refused) = put(&server, "/channels/held", unknown).await;
    assert_eq!(
        (status, &refused["errors"][0]["field"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("mute.calendars[0]")),
        "{refused}"
    );
}

#[tokio::test]
async fn an_alert_that_nobody_acknowledges_escalates_once() {
    let server = server();
    let (first, second) = (
        Web::answering(Answer::status("200 OK", "")).await,
        Web::answering(Answer::status("200 OK", "")).await,
    );
    webhook(&server, "ops", &first.url("/")).await;
    webhook(&server, "duty", &second.url("/")).await;
    server.said(&[
        "notify",
        "rule",
        "set",
        "all",
        "--event",
        "failed",
        "--channel",
        "ops",
        "--escalate",
        "1s=duty",
    ]);
    failing_often(&server, "poll").await;
    eventually("the second channel is notified", async || !second.asked().is_empty()).await;
    let explanation = body(&second.asked()[0])["data"]["explanation"].as_str().unwrap().to_owned();
    assert!(explanation.starts_with("Not acknowledged for"), "{explanation}");
    assert_eq!(alert(&server).await["channels"], json!(["ops", "duty"]));
    assert_eq!((first.asked().len(), second.asked().len()), (1, 1));
}

#[tokio::test]
async fn a_link_acknowledges_its_alert_only_when_the_form_is_sent() {
    let server = server();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    webhook(&server, "ops", &web.url("/")).await;
    let rule = json!({"events": ["failed"], "channels": ["ops"], "escalate": {"after": "1h", "to": "ops"}});
    created(&server, "/notifications/rules/all", rule).await;
    failing_often(&server, "poll").await;
    eventually("it is notified", async || !web.asked().is_empty()).await;
    let url = body(&web.asked()[0])["data"]["ack_url"].as_str().unwrap().to_owned();
    let (path, token) = url.split_once("/acknowledge?t=").unwrap();
    assert!(path.starts_with("http://"), "{url}");
    let page = |method: Method, token: &str| match method {
        Method::POST => server
            .anonymous(method, "/acknowledge")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(format!("t={token}")),
        _ => server.anonymous(method, &format!("/acknowledge?t={token}")),
    };
    let shown = page(Method::GET, token).send().await.unwrap();
    assert_eq!(shown.status(), StatusCode::OK);
    let shown = shown.text().await.unwrap();
    assert!(
        shown.contains("<strong>poll</strong>") && shown.contains("<button>Acknowledge</button>"),
        "{shown}"
    );
    assert_eq!(alert(&server).await["state"], "firing", "reading the page changes nothing");
    let wrong = format!("{}x", &token[..token.len() - 1]);
    for method in [Method::GET, Method::POST] {
        let refused = page(method, &wrong).send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    }
    let done = page(Method::POST, token).send().await.unwrap().text().await.unwrap();
    assert!(done.contains("Acknowledged by a link sent to ops"), "{done}");
    assert_eq!(alert(&server).await["acknowledged_by"], "a link sent to ops");
    let again = page(Method::GET, token).send().await.unwrap().text().await.unwrap();
    assert!(!again.contains("<button>"), "{again}");
    // It is of no use for a later alert of the same job.
    let (_, jobs) = server.get("/api/v1/jobs?name=poll").await;
    let job = jobs["items"][0]["job_id"].as_str().unwrap().to_owned();
    let working = json!({"job_type": "noop", "payload": null});
    assert_eq!(server.patch(&format!("/api/v1/jobs/{job}"), &working).await.0, StatusCode::OK);
    eventually("the alert is over", async || alert(&server).await == Value::Null).await;
    assert_eq!(page(Method::POST, token).send().await.unwrap().status(), StatusCode::GONE);
}

#[tokio::test]
async fn rules_notice_full_limits_and_runs_that_are_longer_than_usual() {
    let server = server();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    webhook(&server, "ops", &web.url("/")).await;
    let rule = json!({
        "events": ["running_long", "limit_full"], "channels": ["ops"], "longer_than_usual_percent": 200,
        "limit_full_for": "1s",
    });
    created(&server, "/notifications/rules/slow", rule).await;
    server.said(&["queue", "set", "narrow", "--concurrency", "1"]);
    let job = json!({"name": "report", "queue": "narrow", "job_type": "noop", "interval": "1h", "overlap_policy": "ALLOW"});
    let id = server.submit(job).await;
    for _ in 0..12 {
        let (status, answer) = server.post(&format!("/api/v1/jobs/{id}/trigger"), "{}").await;
        assert!(status.is_success(), "{answer}");
    }
    eventually("it has run often", async || {
        let (_, page) = server.get(&format!("/api/v1/jobs/{id}/executions?limit=50")).await;
        page["items"].as_array().unwrap().iter().filter(|one| one["status"] == "SUCCEEDED").count() >= 12
    })
    .await;
    let slow = json!({"job_type": "sleep", "payload": {"ms": 60_000}});
    let (status, answered) = server.patch(&format!("/api/v1/jobs/{id}"), &slow).await;
    assert_eq!(status, StatusCode::OK, "{answered}");
    server.post(&format!("/api/v1/jobs/{id}/trigger"), "{}").await;
    server.submit(json!({"name": "other", "queue": "narrow", "job_type": "noop"})).await;
    eventually("both are noticed", async || {
        !told(&web, "job.running_long").is_empty() && !told(&web, "queue.limit_full").is_empty()
    })
    .await;
    let long = told(&web, "job.running_long").remove(0);
    assert_eq!(long["data"]["name"], "report");
    assert!(
        long["data"]["explanation"].as_str().unwrap().contains("95 % of its recent runs took at most"),
        "{long}"
    );
    assert_eq!(told(&web, "queue.limit_full").remove(0)["data"]["queue"], "narrow");
    let path = format!("/api/v1/jobs/{id}/cancel");
    assert!(answer(server.request(Method::POST, &path)).await.0.is_success());
    eventually("the limit is free again", async || !told(&web, "alert.resolved").is_empty()).await;
}
