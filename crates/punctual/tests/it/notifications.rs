//! Notifications: channels, the `notify` of jobs, rules, silences and deliveries, with receivers on this machine.

use crate::cluster::Cluster;
use crate::http::web::{Answer, Asked, Web};
use crate::server::{Server, answer, eventually};
use punctual_core::time::Timestamp;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

pub const OPTIONS: [&str; 4] = ["--notify-allow", "127.0.0.1/32", "--notify-window", "1s"];
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A server whose channels may call this machine.
pub fn server() -> Server {
    Server::start_with(&OPTIONS)
}

pub async fn put(server: &Server, path: &str, body: Value) -> (StatusCode, Value) {
    answer(server.request(Method::PUT, &format!("/api/v1{path}")).json(&body)).await
}

pub async fn webhook(server: &Server, name: &str, url: &str) {
    let channel = json!({"type": "webhook", "url": url, "secret": SECRET});
    let (status, body) = put(server, &format!("/channels/{name}"), channel).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
}

/// A job that fails at once: web calls may not go to this machine.
pub fn failing(name: &str, notify: Value) -> Value {
    json!({
        "name": name, "job_type": "http", "payload": {"url": "http://127.0.0.1:1/"}, "max_retries": 0,
        "notify": notify,
    })
}

pub fn body(asked: &Asked) -> Value {
    serde_json::from_slice(&asked.body).unwrap()
}

/// The messages of this type.
pub fn told(web: &Web, kind: &str) -> Vec<Value> {
    web.asked().iter().map(body).filter(|body| body["type"] == kind).collect()
}

pub async fn deliveries(server: &Server) -> Vec<Value> {
    server.get("/api/v1/notifications/deliveries").await.1["items"].as_array().unwrap().clone()
}

/// The ids of the messages about each job.
fn ids_by_name(web: &Web) -> BTreeMap<String, BTreeSet<String>> {
    let mut received: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for asked in web.asked() {
        let name = body(&asked)["data"]["name"].as_str().unwrap().to_owned();
        received.entry(name).or_default().insert(asked.header("webhook-id").unwrap().to_owned());
    }
    received
}

#[tokio::test]
async fn a_failure_is_told_once_by_a_signed_webhook() {
    let server = server();
    let web = Web::answering(Answer::status("204 No Content", "")).await;
    webhook(&server, "ops", &web.url("/hook")).await;
    let job = server.submit(failing("nightly", json!({"on_failure": "ops"}))).await;
    eventually("the failure is reported", async || !web.asked().is_empty()).await;
    let asked = web.asked().remove(0);
    let sent = body(&asked);
    assert_eq!((sent["type"].as_str(), sent["data"]["name"].as_str()), (Some("job.failed"), Some("nightly")));
    assert_eq!(sent["data"]["job_id"], json!(job));
    assert_eq!(sent["data"]["execution_id"], json!(format!("{job}.1.1")));
    assert!(sent["data"]["error_message"].as_str().unwrap().contains("127.0.0.1"), "{sent}");
    assert!(sent["data"]["explanation"].as_str().unwrap().starts_with("The only attempt failed"), "{sent}");
    let page = format!("/ui/executions/{job}.1.1");
    assert!(sent["data"]["url"].as_str().unwrap().ends_with(&page), "{sent}");
    assert!(asked.header("webhook-signature").unwrap().starts_with("v1,"));
    assert!(asked.header("webhook-timestamp").unwrap().parse::<i64>().unwrap() > 1_700_000_000);
    let id = asked.header("webhook-id").unwrap().to_owned();
    eventually("it is stored as sent", async || deliveries(&server).await[0]["state"] == "sent").await;
    let delivery = deliveries(&server).await.remove(0);
    assert_eq!(id, format!("msg_{}", delivery["delivery_id"].as_str().unwrap()));
    assert_eq!((delivery["attempts"].as_u64(), delivery["channel"].as_str()), (Some(1), Some("ops")));
    // A replay is a message of its own.
    let path =
        format!("/api/v1/notifications/deliveries/{}/replay", delivery["delivery_id"].as_str().unwrap());
    let (status, replayed) = server.post(&path, "{}").await;
    assert_eq!((status, &replayed["replay_of"]), (StatusCode::OK, &delivery["delivery_id"]), "{replayed}");
    eventually("it is sent once more", async || web.asked().len() == 2).await;
    assert_ne!(web.asked()[1].header("webhook-id"), Some(id.as_str()));
    assert_eq!(body(&web.asked()[1]), sent);
}

#[tokio::test]
async fn a_job_must_name_channels_that_exist() {
    let server = server();
    let job = failing("nightly", json!({"on_missed": ["nobody"]})).to_string();
    let (status, body) = server.post("/api/v1/jobs", &job).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(body["errors"][0]["field"], "notify.on_missed", "{body}");
    assert!(body["errors"][0]["detail"].as_str().unwrap().contains("there is none named nobody"), "{body}");
    let (status, body) =
        put(&server, "/notifications/rules/all", json!({"events": ["failed"], "channels": ["nobody"]})).await;
    assert_eq!(
        (status, &body["errors"][0]["field"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("channels[0]"))
    );
}

#[tokio::test]
async fn secrets_of_channels_are_neither_returned_nor_stored_in_plain_text() {
    let server = server();
    webhook(&server, "ops", "https://example.org/hook").await;
    let url = "https://hooks.slack.example/T0/very-secret-path";
    let (status, shown) = put(&server, "/channels/chat", json!({"type": "slack", "url": url})).await;
    assert_eq!((status, &shown["hidden"]), (StatusCode::CREATED, &json!(["url"])), "{shown}");
    let (_, listed) = server.get("/api/v1/channels").await;
    assert!(
        !listed.to_string().contains("very-secret") && !listed.to_string().contains("whsec_"),
        "{listed}"
    );
    // Fields that are left out stay as they are.
    let (status, shown) =
        put(&server, "/channels/ops", json!({"type": "webhook", "url": "https://example.org/new"})).await;
    assert_eq!((status, &shown["hidden"]), (StatusCode::OK, &json!(["secret"])), "{shown}");
    assert_eq!(shown["url"], "https://example.org/new");
    let (status, body) = put(&server, "/channels/x", json!({"type": "command"})).await;
    assert_eq!(
        (status, &body["errors"][0]["field"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("type")),
        "{body}"
    );
    let (status, body) =
        put(&server, "/channels/x", json!({"type": "pagerduty", "routing_key": {"$secret": "none"}})).await;
    assert_eq!(
        (status, &body["errors"][0]["field"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("routing_key.$secret")),
        "{body}"
    );
    let data_dir = server.data_dir().to_owned();
    for file in std::fs::read_dir(data_dir).unwrap().flatten().filter(|file| file.path().is_file()) {
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(!bytes.windows(11).any(|part| part == b"very-secret"), "{:?}", file.path());
    }
}

#[tokio::test]
async fn a_moved_channel_does_not_take_its_secrets_along() {
    let server = server();
    let mail = json!({"type": "email", "host": "mail.example.org", "from": "a@example.org", "to": ["b@example.org"],
        "username": "punctual", "password": "very-secret"});
    let page = json!({"type": "opsgenie", "api_key": "very-secret"});
    for (name, channel) in [("mail", &mail), ("page", &page)] {
        let (status, body) = put(&server, &format!("/channels/{name}"), channel.clone()).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
    }
    let moved = |channel: &Value, field: &str, value: Value, secret: &str| {
        let mut channel = channel.clone();
        channel[field] = value;
        channel.as_object_mut().unwrap().remove(secret);
        channel
    };
    for (name, channel, field) in [
        ("mail", moved(&mail, "host", json!("mail.example.com"), "password"), "password"),
        ("mail", moved(&mail, "port", json!(2525), "password"), "password"),
        ("mail", moved(&mail, "username", json!("another"), "password"), "password"),
        ("page", moved(&page, "url", json!("https://example.com"), "api_key"), "api_key"),
        ("mail", moved(&mail, "tls", json!("none"), ""), "tls"),
    ] {
        let (status, body) = put(&server, &format!("/channels/{name}"), channel).await;
        assert_eq!(
            (status, &body["errors"][0]["field"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!(field)),
            "{body}"
        );
    }
    // It stays where nothing else changes, and can be given again.
    let (status, body) =
        put(&server, "/channels/mail", moved(&mail, "to", json!(["c@example.org"]), "password")).await;
    assert_eq!((status, &body["hidden"]), (StatusCode::OK, &json!(["password"])), "{body}");
    let (status, body) =
        put(&server, "/channels/mail", moved(&mail, "host", json!("mail.example.com"), "")).await;
    assert_eq!(status, StatusCode::OK, "{body}");
}

#[tokio::test]
async fn logs_in_messages_need_the_permission_to_read_them() {
    let server = server();
    let chat =
        |logs: bool| json!({"type": "slack", "url": "https://chat.example.org/x", "include_logs": logs});
    let (status, body) = put(&server, "/channels/logs", chat(true)).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let made = server.said(&[
        "token",
        "create",
        "spy",
        "--role",
        "viewer",
        "--permission",
        "notifications:write",
        "-o",
        "json",
    ]);
    let made: Value = serde_json::from_str(&made).unwrap();
    let token = made["secret"].as_str().unwrap();
    let rule = |channel: &str| json!({"events": ["failed"], "channels": [channel]});
    for (path, body, expected) in [
        ("/channels/spy", chat(true), StatusCode::FORBIDDEN),
        ("/channels/logs", chat(false), StatusCode::FORBIDDEN),
        ("/notifications/rules/spy", rule("logs"), StatusCode::FORBIDDEN),
        ("/channels/spy", chat(false), StatusCode::CREATED),
        ("/notifications/rules/spy", rule("spy"), StatusCode::CREATED),
    ] {
        let request = server.anonymous(Method::PUT, &format!("/api/v1{path}")).bearer_auth(token).json(&body);
        let (status, answer) = answer(request).await;
        assert_eq!(status, expected, "{path}: {answer}");
        assert!(status.is_success() || answer.to_string().contains("payload:read"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_receiver_that_was_away_gets_its_messages_and_others_do_not_wait() {
    let server = server();
    let away: SocketAddr = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    webhook(&server, "away", &format!("http://{away}/")).await;
    webhook(&server, "ops", &web.url("/")).await;
    server.submit(failing("nightly", json!({"on_failure": ["away", "ops"]}))).await;
    eventually("the other one is reported", async || web.asked().len() == 1).await;
    eventually("the attempt failed", async || {
        deliveries(&server).await.iter().any(|one| one["channel"] == "away" && one["last_error"].is_string())
    })
    .await;
    let back = Web::answering_at(away, Answer::status("200 OK", "")).await;
    eventually("it is reported when the receiver is back", async || back.asked().len() == 1).await;
    eventually("both are sent", async || deliveries(&server).await.iter().all(|one| one["state"] == "sent"))
        .await;
}

#[tokio::test]
async fn a_message_survives_kill_9_before_and_while_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let slow = ["--notify-allow", "127.0.0.1/32", "--notify-window", "3s"];
    let server = Server::start_in(folder.path(), &slow);
    let web = Web::answering(Answer::Hanging(b"")).await;
    webhook(&server, "ops", &web.url("/")).await;
    server.submit(failing("nightly", json!({"on_failure": "ops"}))).await;
    eventually("it waits for others of its kind", async || !deliveries(&server).await.is_empty()).await;
    assert_eq!(web.asked().len(), 0);
    server.kill();
    let server = Server::start_in(folder.path(), &slow);
    eventually("it is sent after the crash", async || web.asked().len() == 1).await;
    server.kill();
    let _server = Server::start_in(folder.path(), &slow);
    eventually("it is not known whether it arrived, so it is sent again", async || web.asked().len() == 2)
        .await;
    let ids: Vec<_> =
        web.asked().iter().map(|asked| asked.header("webhook-id").unwrap().to_owned()).collect();
    assert_eq!(ids[0], ids[1], "the receiver can tell that it is the same");
}

#[tokio::test]
async fn messages_under_way_survive_repeated_kills_and_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let mut server = Server::start_in(folder.path(), &OPTIONS);
    webhook(&server, "ops", &web.url("/")).await;
    let names: BTreeSet<String> = (0..40).map(|number| format!("import-{number}")).collect();
    let jobs: Vec<Value> = names.iter().map(|name| failing(name, json!({"on_failure": "ops"}))).collect();
    let mut received = BTreeMap::new();
    for (round, jobs) in jobs.chunks(10).enumerate() {
        let (status, stored) = server.post("/api/v1/jobs/batch", &json!({"jobs": jobs}).to_string()).await;
        assert!(status.is_success(), "{stored}");
        // The server dies in the middle: some messages of this round are sent, and others are not.
        eventually("a message of this round arrived", async || {
            received = ids_by_name(&web);
            received.len() > round * 10
        })
        .await;
        server.kill();
        server = Server::start_in(folder.path(), &OPTIONS);
    }
    eventually("every failure is reported", async || {
        received = ids_by_name(&web);
        received.len() == names.len()
    })
    .await;
    assert_eq!(received.keys().cloned().collect::<BTreeSet<_>>(), names);
    assert!(received.values().all(|ids| ids.len() == 1), "a repeated message has the same id: {received:?}");
}

#[tokio::test]
async fn a_forked_copy_of_a_store_sends_nothing_until_it_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let away: SocketAddr = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let server = Server::start_in(folder.path(), &OPTIONS);
    webhook(&server, "ops", &format!("http://{away}/")).await;
    let mut poll = failing("poll", json!({"on_failure": "ops"}));
    poll["interval"] = json!("1s");
    server.submit(poll).await;
    eventually("a message waits", async || !deliveries(&server).await.is_empty()).await;
    server.kill();
    let forked = std::process::Command::new(crate::server::BINARY)
        .args(["migrate", "fork", "--this-is-a-copy", "--data-dir"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(forked.status.success(), "{}", String::from_utf8_lossy(&forked.stderr));
    let web = Web::answering_at(away, Answer::status("200 OK", "")).await;
    // It must not report the health of the original either.
    let monitor = Web::answering(Answer::status("200 OK", "")).await;
    let ping = monitor.url("/ping");
    let copy = Server::start_in(folder.path(), &[&OPTIONS[..], &["--notify-heartbeat-url", &ping]].concat());
    let (_, state) = copy.get("/api/v1/notifications").await;
    assert_eq!((state["stopped"].is_string(), &state["pending"]), (true, &json!(0)), "{state}");
    // A fork pauses its queues, so a failure there needs a queue of its own.
    let mut fresh = failing("fresh", json!({"on_failure": "ops"}));
    fresh["queue"] = json!("copy");
    let failed = copy.submit(fresh).await;
    eventually("a job fails in the copy", async || {
        copy.get(&format!("/api/v1/jobs/{failed}")).await.1["status"] == "FAILED"
    })
    .await;
    let (_, state) = copy.get("/api/v1/notifications").await;
    assert_eq!((web.connections(), &state["pending"]), (0, &json!(0)), "{state}");
    assert_eq!(monitor.connections(), 0);
    copy.said(&["notify", "resume"]);
    let mut later = failing("later", json!({"on_failure": "ops"}));
    later["queue"] = json!("copy");
    copy.submit(later).await;
    eventually("the copy sends messages now", async || !web.asked().is_empty()).await;
    eventually("and its heartbeat", async || !monitor.asked().is_empty()).await;
}

#[tokio::test]
async fn a_receiver_that_is_gone_disables_its_channel() {
    let server = server();
    let web = Web::answering(Answer::status("410 Gone", "no longer")).await;
    webhook(&server, "ops", &web.url("/")).await;
    server.submit(failing("nightly", json!({"on_failure": "ops"}))).await;
    eventually("the channel is disabled", async || {
        server.get("/api/v1/channels/ops").await.1["disabled"].is_string()
    })
    .await;
    eventually("the message is given up", async || deliveries(&server).await[0]["state"] == "failed").await;
    webhook_again(&server, &web.url("/")).await;
}

/// Setting it again enables it.
async fn webhook_again(server: &Server, url: &str) {
    let (status, body) = put(server, "/channels/ops", json!({"type": "webhook", "url": url})).await;
    assert_eq!((status, &body["disabled"]), (StatusCode::OK, &Value::Null), "{body}");
}

#[tokio::test]
async fn an_incident_is_opened_by_a_failing_job_and_closed_when_it_recovers() {
    let server = server();
    let web = Web::answering(Answer::status("202 Accepted", "{}")).await;
    let channel = json!({"type": "pagerduty", "url": web.url(""), "routing_key": "R1"});
    assert_eq!(put(&server, "/channels/duty", channel).await.0, StatusCode::CREATED);
    let mut job = failing("poll", json!({"on_failure": "duty"}));
    job["interval"] = json!("1s");
    let id = server.submit(job).await;
    eventually("the incident is opened", async || !web.asked().is_empty()).await;
    eventually("it fails on", async || {
        let (_, alerts) = server.get("/api/v1/notifications/alerts").await;
        alerts["items"][0]["count"].as_u64().is_some_and(|count| count >= 2)
    })
    .await;
    assert_eq!(web.asked().len(), 1, "it is reported once");
    let alert = server.get("/api/v1/notifications/alerts").await.1["items"][0].clone();
    assert_eq!((alert["state"].as_str(), alert["type"].as_str()), (Some("firing"), Some("job.failed")));
    let path = format!("/api/v1/notifications/alerts/{}/ack", alert["alert_id"].as_str().unwrap());
    let (status, acknowledged) = server.post(&path, "{}").await;
    assert_eq!(
        (status, acknowledged["state"].as_str()),
        (StatusCode::OK, Some("acknowledged")),
        "{acknowledged}"
    );
    let (status, body_of_patch) =
        server.patch(&format!("/api/v1/jobs/{id}"), &json!({"job_type": "noop", "payload": null})).await;
    assert_eq!(status, StatusCode::OK, "{body_of_patch}");
    eventually("the incident is closed", async || web.asked().len() == 2).await;
    let (opened, closed) = (body(&web.asked()[0]), body(&web.asked()[1]));
    assert_eq!(
        (opened["event_action"].as_str(), closed["event_action"].as_str()),
        (Some("trigger"), Some("resolve"))
    );
    assert_eq!(opened["dedup_key"], closed["dedup_key"]);
    assert!(web.asked()[0].line.contains("/v2/enqueue"));
}

#[tokio::test]
async fn a_run_that_did_not_start_is_told_with_its_reason() {
    let server = server();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    webhook(&server, "ops", &web.url("/")).await;
    server
        .submit(json!({
            "name": "orphan", "job_type": "no-such-handler", "interval": "1s", "misfire_grace": "1s",
            "notify": {"on_missed": "ops"},
        }))
        .await;
    eventually("it is reported", async || !told(&web, "job.missed").is_empty()).await;
    let missed = told(&web, "job.missed").remove(0);
    assert_eq!(missed["data"]["name"], "orphan");
    let explanation = missed["data"]["explanation"].as_str().unwrap();
    assert!(explanation.contains("no connected worker runs the job type no-such-handler"), "{missed}");
}

#[tokio::test]
async fn runs_that_a_dead_scheduler_missed_are_told_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(folder.path(), &OPTIONS);
    let web = Web::answering(Answer::status("200 OK", "")).await;
    webhook(&server, "ops", &web.url("/")).await;
    let job = server
        .submit(json!({
            "name": "backup", "job_type": "noop", "interval": "1s", "misfire_grace": "100ms",
            "notify": {"on_missed": "ops", "on_recovery": "ops"},
        }))
        .await;
    let ran = async || server.get(&format!("/api/v1/jobs/{job}")).await.1;
    eventually("it runs", async || ran().await["last_run_time"].is_string()).await;
    let next: Timestamp = ran().await["next_run_time"].as_str().unwrap().parse().unwrap();
    server.kill();
    let now = || Timestamp::EPOCH.plus(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap());
    eventually("the grace of three runs is over", async || now() > next.plus(Duration::from_millis(2_200)))
        .await;
    let _server = Server::start_in(folder.path(), &OPTIONS);
    eventually("the missed runs are reported", async || !told(&web, "job.missed").is_empty()).await;
    let missed = told(&web, "job.missed").remove(0);
    let explanation = missed["data"]["explanation"].as_str().unwrap();
    assert!(explanation.contains("no scheduler was running"), "{missed}");
    eventually("it has recovered", async || !told(&web, "job.recovered").is_empty()).await;
}

#[tokio::test]
async fn rules_select_jobs_and_silences_suppress_them() {
    let server = server();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    webhook(&server, "ops", &web.url("/")).await;
    // What happened before the first rule is not told.
    server.submit(json!({"name": "old", "job_type": "http", "payload": {"url": "http://127.0.0.1:1/"}, "max_retries": 0})).await;
    eventually("it failed", async || {
        server.get("/api/v1/dead-letters").await.1["items"].as_array().is_some_and(|all| all.len() == 1)
    })
    .await;
    let rule =
        json!({"name": "backups", "events": ["failed"], "channels": ["ops"], "match": {"tags": ["backup"]}});
    let (status, body) = server.post("/api/v1/notifications/rules", &rule.to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    assert_eq!(server.post("/api/v1/notifications/rules", &rule.to_string()).await.0, StatusCode::CONFLICT);
    let silence = json!({"match": {"names": ["quiet*"]}, "duration": "1h", "reason": "known"});
    let (status, silence) = server.post("/api/v1/notifications/silences", &silence.to_string()).await;
    assert_eq!((status, silence["active"].as_bool()), (StatusCode::CREATED, Some(true)), "{silence}");
    let job = |name: &str, tags: Value| json!({"name": name, "job_type": "http", "payload": {"url": "http://127.0.0.1:1/"}, "max_retries": 0, "tags": tags});
    for one in
        [job("quiet-1", json!(["backup"])), job("other", json!([])), job("loud", json!(["backup", "x"]))]
    {
        server.submit(one).await;
    }
    eventually("the selected one is reported", async || !told(&web, "job.failed").is_empty()).await;
    let names: Vec<Value> =
        told(&web, "job.failed").iter().map(|body| body["data"]["name"].clone()).collect();
    assert_eq!(names, ["loud"]);
    let path = format!("/api/v1/notifications/silences/{}", silence["silence_id"].as_str().unwrap());
    assert_eq!(server.request(Method::DELETE, &path).send().await.unwrap().status(), StatusCode::NO_CONTENT);
    server.submit(job("quiet-2", json!(["backup"]))).await;
    eventually("it is reported after the silence", async || told(&web, "job.failed").len() == 2).await;
}

#[tokio::test]
async fn a_channel_in_use_is_removed_by_force_only() {
    let server = server();
    webhook(&server, "ops", "http://127.0.0.1:1/").await;
    webhook(&server, "duty", "http://127.0.0.1:1/").await;
    let escalate = json!({"after": "15m", "to": "duty"});
    let rule = json!({"events": ["failed"], "channels": ["ops"], "escalate": escalate});
    let (status, body) = put(&server, "/notifications/rules/all", rule).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let job = json!({"name": "report", "interval": "1h", "notify": {"on_failure": "ops"}});
    let job = server.submit(job).await;
    let user = json!({"email": "jane@example.org", "role": "viewer", "notification_channel": "ops"});
    let (status, user) = server.post("/api/v1/users", &user.to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{user}");
    let user = user["user_id"].as_str().unwrap();
    let remove =
        async |name: &str| answer(server.request(Method::DELETE, &format!("/api/v1/channels/{name}"))).await;
    let advice = "take it out of them first, or pass force=true (`--force`) to remove it nevertheless";
    for (name, users) in
        [("ops", format!("rule all, user {user}, job report ({job})")), ("duty", "rule all".to_owned())]
    {
        let (status, refused) = remove(name).await;
        assert_eq!(status, StatusCode::CONFLICT, "{refused}");
        assert_eq!(refused["detail"], format!("the channel {name} is in use by {users}: {advice}"));
    }
    let (status, body) = remove("ops?force=1").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    assert_eq!(
        server.said(&["channel", "remove", "ops", "duty", "--force"]),
        "removed channel ops\nremoved channel duty\n"
    );
    assert_eq!(remove("ops").await.0, StatusCode::NOT_FOUND);
    assert_eq!(remove("ops?force=true").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn many_failures_are_one_message_with_a_list() {
    let server = server();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let channel = json!({"type": "slack", "url": web.url("/chat")});
    assert_eq!(put(&server, "/channels/chat", channel).await.0, StatusCode::CREATED);
    let jobs: Vec<Value> =
        (0..50).map(|number| failing(&format!("import-{number}"), json!({"on_failure": "chat"}))).collect();
    let (status, stored) = server.post("/api/v1/jobs/batch", &json!({"jobs": jobs}).to_string()).await;
    assert!(status.is_success(), "{stored}");
    let events = async || -> u64 {
        deliveries(&server)
            .await
            .iter()
            .filter(|one| one["state"] == "sent")
            .filter_map(|one| one["count"].as_u64())
            .sum()
    };
    eventually("all are reported", async || events().await == 50).await;
    let messages = web.asked().len();
    assert!(messages <= 10, "50 failures were {messages} messages");
    let text = body(&web.asked()[0])["text"].as_str().unwrap().to_owned();
    assert!(text.contains("- import-"), "{text}");
}

/// A mail server that accepts everything, and keeps what it was told.
pub async fn mail_server() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, said) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let kept = said.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            write.write_all(b"220 test ESMTP\r\n").await.unwrap();
            let mut in_data = false;
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().unwrap().push(line.clone());
                let verb = line.split(' ').next().unwrap_or_default().to_ascii_uppercase();
                let reply: &[u8] = match verb.as_str() {
                    _ if in_data && line != "." => continue,
                    "." => {
                        in_data = false;
                        b"250 queued\r\n"
                    }
                    "EHLO" => b"250-test\r\n250-AUTH PLAIN LOGIN\r\n250 8BITMIME\r\n",
                    "AUTH" => b"235 welcome\r\n",
                    "DATA" => {
                        in_data = true;
                        b"354 go on\r\n"
                    }
                    "QUIT" => b"221 bye\r\n",
                    _ => b"250 ok\r\n",
                };
                if write.write_all(reply).await.is_err() {
                    break;
                }
            }
        }
    });
    (address, said)
}

// Commands block their thread, and the mail server needs another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mails_are_sent_with_a_login_and_the_command_line_tests_them() {
    let server = server();
    let (address, said) = mail_server().await;
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "hunter2\n").unwrap();
    let (port, password) = (address.port().to_string(), password.display().to_string());
    let shown = server.said(&[
        "channel",
        "set",
        "mail",
        "--type",
        "email",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--tls",
        "none",
        "--username",
        "punctual",
        "--secret-file",
        &password,
        "--from",
        "punctual@example.org",
        "--to",
        "ops@example.org",
    ]);
    assert!(shown.contains("email") && !shown.contains("hunter2"), "{shown}");
    let tested = server.said(&["notify", "test", "mail"]);
    assert!(tested.starts_with("delivered msg_"), "{tested}");
    let said = said.lock().unwrap().join("\n");
    // The user and the password, in Base64.
    assert!(said.contains("AUTH PLAIN AHB1bmN0dWFsAGh1bnRlcjI="), "{said}");
    assert!(said.contains("RCPT TO:<ops@example.org>"), "{said}");
    assert!(said.contains("Subject: [punctual] punctual this is a test"), "{said}");
    assert!(said.contains("A test of the channel mail"), "{said}");
    let listed = server.said(&["channel", "list"]);
    assert!(listed.contains("mail") && listed.contains("ready"), "{listed}");
    let refused = server.cli(&["notify", "test", "nobody"]);
    assert!(!refused.status.success());
}

#[tokio::test]
async fn schedulers_that_take_over_from_each_other_tell_each_failure_and_none_twice() {
    Cluster::with(async |cluster| {
        let api = cluster.api();
        let scheduler =
            || cluster.start(&[&["scheduler", "--health-listen", "127.0.0.1:0"], &OPTIONS[..]].concat());
        let schedulers = [scheduler(), scheduler()];
        let _worker = cluster.worker("one");
        let web = Web::answering(Answer::status("200 OK", "")).await;
        // Without a secret: there is no key that would encrypt it.
        let channel = json!({"name": "ops", "type": "webhook", "url": web.url("/")});
        let (status, body_of_channel) =
            api.request(cluster, Method::POST, "/api/v1/channels", Some(channel)).await;
        assert_eq!(status, StatusCode::CREATED, "{body_of_channel}");
        let mut names = BTreeSet::new();
        let fail = async |number: usize| {
            let job = json!({
                "name": format!("import-{number}"), "job_type": "shell", "payload": {"script": "exit 3"},
                "max_retries": 0, "notify": {"on_failure": "ops"},
            });
            api.submit(cluster, job).await;
        };
        for number in 0..10 {
            fail(number).await;
            names.insert(format!("import-{number}"));
        }
        // One of the two leads, and the other one takes over.
        let [first, _second] = schedulers;
        first.kill();
        for number in 10..20 {
            fail(number).await;
            names.insert(format!("import-{number}"));
        }
        eventually("a message for each failure arrives", async || ids_by_name(&web).len() == names.len())
            .await;
        let told = ids_by_name(&web);
        assert_eq!(told.keys().cloned().collect::<BTreeSet<_>>(), names);
        assert!(told.values().all(|ids| ids.len() == 1), "a repeated message has the same id: {told:?}");
    })
    .await;
}
