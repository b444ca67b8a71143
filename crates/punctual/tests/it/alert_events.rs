//! The events of rules and jobs, one by one: when each is notified, and when its alert ends.

use crate::cluster::{Cluster, Process};
use crate::http::web::{Answer, Web};
use crate::notifications::{OPTIONS, body, failing, put, server, told, webhook};
use crate::server::{Server, eventually};
use punctual_core::time::Timestamp;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

/// A server with a channel `ops`, and its receiver.
pub async fn with_receiver() -> (Server, Web) {
    let server = server();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    webhook(&server, "ops", &web.url("/")).await;
    (server, web)
}

pub async fn rule(server: &Server, fields: Value) {
    let (status, answer) = put(server, "/notifications/rules/it", fields).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
}

/// Waits for the first message of this type.
pub async fn first(web: &Web, kind: &str) -> Value {
    eventually(&format!("{kind} is notified"), async || !told(web, kind).is_empty()).await;
    told(web, kind).remove(0)
}

fn now() -> Timestamp {
    Timestamp::EPOCH.plus(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap())
}

#[tokio::test]
async fn failures_and_successes_in_a_row_are_counted() {
    let (server, web) = with_receiver().await;
    let fields = json!({
        "events": ["failed", "recovered"], "failures": 3, "successes": 2, "channels": ["ops"],
    });
    rule(&server, fields).await;
    let mut job = failing("poll", json!({}));
    job["interval"] = json!("1s");
    let id = server.submit(job).await;
    let failed = first(&web, "job.failed").await;
    assert_eq!(failed["data"]["execution_id"], json!(format!("{id}.3.1")), "the third failure: {failed}");
    let working = json!({"job_type": "noop", "payload": null});
    assert_eq!(server.patch(&format!("/api/v1/jobs/{id}"), &working).await.0, StatusCode::OK);
    let recovered = first(&web, "job.recovered").await;
    let (_, page) = server.get(&format!("/api/v1/jobs/{id}/executions?limit=100")).await;
    let executions = page["items"].as_array().unwrap().iter().rev();
    let successes: Vec<&Value> = executions.filter(|one| one["status"] == "SUCCEEDED").collect();
    assert_eq!(recovered["data"]["execution_id"], successes[1]["execution_id"], "the second success");
}

#[tokio::test]
async fn a_run_that_starts_late_is_notified() {
    let (server, web) = with_receiver().await;
    rule(&server, json!({"events": ["late"], "late_by": "1s", "channels": ["ops"]})).await;
    server.client().pause_queue("slow").await.unwrap();
    let job = server.submit(json!({"name": "late", "job_type": "noop", "queue": "slow"})).await;
    let due = now();
    server.submit(json!({"name": "prompt", "job_type": "noop"})).await;
    eventually("it is late", async || now() > due.plus(Duration::from_millis(1_500))).await;
    server.client().resume_queue("slow").await.unwrap();
    let late = first(&web, "job.late").await;
    assert_eq!((&late["data"]["name"], &late["data"]["job_id"]), (&json!("late"), &json!(job)));
    assert!(late["data"]["explanation"].as_str().unwrap().starts_with("It started "), "{late}");
    assert_eq!(told(&web, "job.late").len(), 1);
}

#[tokio::test]
async fn a_job_can_notify_of_its_late_start() {
    let (server, web) = with_receiver().await;
    let two_minutes_ago = now().minus(Duration::from_secs(120));
    let job = json!({
        "name": "late", "job_type": "noop", "execute_at": two_minutes_ago, "notify": {"on_late": "ops"},
    });
    server.submit(job).await;
    let late = first(&web, "job.late").await;
    assert_eq!(late["data"]["name"], "late");
    let explanation = late["data"]["explanation"].as_str().unwrap();
    assert!(explanation.starts_with("It started 2 min after"), "{late}");
}

/// A short run has usually ended when the leader looks.
#[tokio::test]
async fn a_run_that_was_longer_than_allowed_is_found_at_its_end() {
    let (server, web) = with_receiver().await;
    rule(&server, json!({"events": ["running_long"], "longer_than": "1s", "channels": ["ops"]})).await;
    let job = json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 1_100}, "interval": "2s"});
    server.submit(job).await;
    eventually("a run is found at its end", async || {
        let found = told(&web, "job.running_long");
        found.iter().any(|one| one["data"]["explanation"].as_str().unwrap().starts_with("It ran for 1 s"))
    })
    .await;
}

#[tokio::test]
async fn a_lasting_problem_is_repeated_unless_it_is_acknowledged() {
    let options = [&OPTIONS[..], &["--notify-repeat", "60s"]].concat();
    let server = Server::start_with(&options);
    let web = Web::answering(Answer::status("200 OK", "")).await;
    webhook(&server, "ops", &web.url("/")).await;
    for name in ["acknowledged", "open"] {
        let mut job = failing(name, json!({"on_failure": "ops"}));
        job["interval"] = json!("1s");
        server.submit(job).await;
    }
    let of = |name: &str| told(&web, "job.failed").iter().filter(|one| one["data"]["name"] == name).count();
    let alert = async |name: &str| {
        let (_, alerts) = server.get("/api/v1/notifications/alerts").await;
        alerts["items"].as_array().unwrap().iter().find(|one| one["name"] == name).cloned()
    };
    eventually("both are notified", async || of("acknowledged") == 1 && of("open") == 1).await;
    let id = alert("acknowledged").await.unwrap()["alert_id"].as_str().unwrap().to_owned();
    server.said(&["notify", "ack", &id]);
    // One failure each second.
    let failures = async || alert("open").await.unwrap()["count"].as_u64().unwrap();
    eventually("it goes on for a while", async || failures().await >= 10).await;
    assert_eq!((of("acknowledged"), of("open")), (1, 1));
    eventually("the open one is repeated", async || of("open") == 2).await;
    assert_eq!(of("acknowledged"), 1);
}

#[tokio::test]
async fn a_job_can_notify_of_each_success() {
    let (server, web) = with_receiver().await;
    let fields =
        json!({"name": "report", "job_type": "noop", "interval": "1s", "notify": {"on_success": "ops"}});
    server.submit(fields).await;
    eventually("it is notified twice", async || told(&web, "job.succeeded").len() >= 2).await;
    let runs: Vec<Value> =
        told(&web, "job.succeeded").iter().map(|one| one["data"]["execution_id"].clone()).collect();
    assert_ne!(runs[0], runs[1]);
}

#[tokio::test]
async fn many_dead_letters_are_an_alert_until_they_are_discarded() {
    let (server, web) = with_receiver().await;
    let fields = json!({
        "events": ["dead_letters"], "dead_letters_above": 2, "channels": ["ops"], "match": {"queues": ["mail"]},
    });
    rule(&server, fields).await;
    for number in 0..4 {
        let mut job = failing(&format!("mail-{number}"), json!({}));
        job["queue"] = json!(if number < 3 { "mail" } else { "other" });
        server.submit(job).await;
    }
    let many = first(&web, "queue.dead_letters").await;
    assert_eq!((&many["data"]["queue"], &many["data"]["occurrences"]), (&json!("mail"), &json!(3)), "{many}");
    server.said(&["dlq", "discard", "--queue", "mail", "--yes"]);
    let resolved = first(&web, "alert.resolved").await;
    assert_eq!(resolved["data"]["queue"], "mail");
}

#[tokio::test]
async fn work_that_waits_for_too_long_is_an_alert_until_it_is_gone() {
    let (server, web) = with_receiver().await;
    let fields = json!({
        "events": ["queue_old"], "queue_older_than": "1s", "channels": ["ops"], "match": {"queues": ["stuck*"]},
    });
    rule(&server, fields).await;
    for queue in ["stuck-1", "other"] {
        server.submit(json!({"name": queue, "job_type": "no-such-handler", "queue": queue})).await;
    }
    let old = first(&web, "queue.old").await;
    assert_eq!(old["data"]["queue"], "stuck-1");
    let (_, jobs) = server.get("/api/v1/jobs?name=stuck-1").await;
    let path = format!("/api/v1/jobs/{}/cancel", jobs["items"][0]["job_id"].as_str().unwrap());
    assert!(server.post(&path, "{}").await.0.is_success());
    let resolved = first(&web, "alert.resolved").await;
    assert_eq!(resolved["data"]["queue"], "stuck-1");
    assert_eq!(told(&web, "queue.old").len(), 1);
}

#[tokio::test]
async fn a_worker_that_stops_sending_heartbeats_is_notified_and_one_that_leaves_is_not() {
    let (server, web) = with_receiver().await;
    rule(&server, json!({"events": ["worker_lost"], "channels": ["ops"]})).await;
    let open = async |worker: &str| {
        let opening = json!({"worker": worker, "job_types": ["raw"], "lease_secs": 5});
        let (status, session) = server.post("/api/v1/worker/sessions", &opening.to_string()).await;
        assert!(status.is_success(), "{session}");
        session["session"].clone()
    };
    let leaving = open("leaving").await;
    open("silent").await;
    let path = format!("/api/v1/worker/sessions/{leaving}");
    assert!(server.request(Method::DELETE, &path).send().await.unwrap().status().is_success());
    let lost = first(&web, "worker.lost").await;
    assert_eq!(lost["data"]["name"], "silent", "{lost}");
    assert!(lost["data"]["explanation"].as_str().unwrap().contains("stopped sending heartbeats"), "{lost}");
    assert_eq!(told(&web, "worker.lost").len(), 1);
}

#[tokio::test]
async fn runs_that_were_missed_before_the_recovery_are_no_alert_of_their_own() {
    let (server, web) = with_receiver().await;
    server.client().pause_queue("night").await.unwrap();
    let job = json!({
        "name": "backup", "job_type": "noop", "queue": "night", "interval": "1s", "misfire_grace": "1s",
        "notify": {"on_missed": "ops", "on_recovery": "ops"},
    });
    let id = server.submit(job).await;
    let missed = first(&web, "job.missed").await;
    assert!(
        missed["data"]["explanation"].as_str().unwrap().contains("the queue night is paused"),
        "{missed}"
    );
    server.client().resume_queue("night").await.unwrap();
    first(&web, "job.recovered").await;
    // The leader looks for missed runs every five seconds, and has done so at least once by then.
    eventually("it has run for a while", async || {
        let (_, page) = server.get(&format!("/api/v1/jobs/{id}/executions?limit=50")).await;
        page["items"].as_array().unwrap().iter().filter(|one| one["status"] == "SUCCEEDED").count() >= 10
    })
    .await;
    let types: Vec<Value> = web.asked().iter().map(|asked| body(asked)["type"].clone()).collect();
    assert_eq!(types, ["job.missed", "job.recovered"], "each is notified once");
}

#[tokio::test]
async fn alerts_are_acknowledged_and_silences_added_by_commands() {
    let (server, web) = with_receiver().await;
    rule(&server, json!({"events": ["failed"], "channels": ["ops"]})).await;
    server.said(&["silence", "add", "--tag", "quiet", "--for", "2h", "--reason", "known"]);
    for (name, tags) in [("silenced", json!(["quiet"])), ("loud", json!([]))] {
        let mut job = failing(name, json!({}));
        (job["interval"], job["tags"]) = (json!("1s"), tags);
        server.submit(job).await;
    }
    assert_eq!(first(&web, "job.failed").await["data"]["name"], "loud");
    let (_, alerts) = server.get("/api/v1/notifications/alerts").await;
    let loud = alerts["items"].as_array().unwrap().iter().find(|one| one["name"] == "loud").unwrap().clone();
    let said = server.said(&["notify", "ack", loud["alert_id"].as_str().unwrap()]);
    assert!(said.contains("acknowledged"), "{said}");
    let (_, alerts) = server.get("/api/v1/notifications/alerts").await;
    let loud = alerts["items"].as_array().unwrap().iter().find(|one| one["name"] == "loud").unwrap().clone();
    assert_eq!(loud["state"], "acknowledged", "{loud}");
    assert!(told(&web, "job.failed").iter().all(|one| one["data"]["name"] == "loud"));
}

/// Anyone who knows the URL can send heartbeats, so processes do not show it.
#[tokio::test]
async fn a_url_elsewhere_gets_a_heartbeat_of_the_server() {
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heartbeat.url");
    std::fs::write(&file, format!("{}\n", web.url("/ping/4f2b"))).unwrap();
    let file = file.to_str().unwrap();
    // The operator has named it, so it may be on this machine.
    let servers = [
        Server::start_with(&["--notify-heartbeat-url", &web.url("/ping/4f2a")]),
        Server::start_with(&["--notify-heartbeat-url-file", file]),
    ];
    eventually("both are called", async || {
        let lines: BTreeSet<String> = web.asked().into_iter().map(|asked| asked.line).collect();
        lines.len() == 2
    })
    .await;
    for asked in web.asked() {
        assert!(asked.line.starts_with("POST /ping/4f2") && asked.body.is_empty(), "{}", asked.line);
    }
    for server in servers {
        let shown = std::fs::read(format!("/proc/{}/cmdline", server.pid())).unwrap();
        let shown = String::from_utf8_lossy(&shown);
        assert!(shown.contains("--notify-heartbeat-url") && !shown.contains("ping/"), "{shown}");
    }
}

/// All roles in one process, which other processes share the database with.
fn node(cluster: &Cluster) -> Process {
    let options = ["serve", "--listen", "127.0.0.1:0", "--coordination-ttl", "1s"];
    cluster.start(&[&options[..], &OPTIONS].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_ready_nodes_are_an_alert_until_there_are_enough() {
    Cluster::with(async |cluster| {
        let (first_node, second) = (node(cluster), node(cluster));
        let web = Web::answering(Answer::status("200 OK", "")).await;
        let send = async |method, path: &str, body: Value| {
            let (status, answer) = first_node.request(cluster, method, path, Some(body)).await;
            assert!(status.is_success(), "{path}: {answer}");
        };
        // Without a secret: there is no key that would encrypt it.
        send(Method::PUT, "/api/v1/channels/ops", json!({"type": "webhook", "url": web.url("/")})).await;
        let fields = json!({"events": ["node_not_ready"], "ready_nodes_below": 2, "channels": ["ops"]});
        send(Method::PUT, "/api/v1/notifications/rules/nodes", fields).await;
        let ready = async || {
            let (_, page) = first_node.request(cluster, Method::GET, "/api/v1/nodes", None).await;
            page["items"].as_array().unwrap().len()
        };
        eventually("both are members", async || ready().await == 2).await;
        second.kill();
        let missing = first(&web, "node.not_ready").await;
        let explanation = missing["data"]["explanation"].as_str().unwrap();
        assert_eq!(explanation, "1 node is ready, fewer than 2.", "{missing}");
        let (_, alerts) =
            first_node.request(cluster, Method::GET, "/api/v1/notifications/alerts", None).await;
        assert_eq!(alerts["items"][0]["type"], "node.not_ready", "{alerts}");
        let _third = node(cluster);
        let resolved = first(&web, "alert.resolved").await;
        assert_eq!(resolved["data"]["alert_id"], missing["data"]["alert_id"], "{resolved}");
        let types: Vec<Value> = web.asked().iter().map(|asked| body(asked)["type"].clone()).collect();
        assert_eq!(types, ["node.not_ready", "alert.resolved"], "each is notified once");
    })
    .await;
}
