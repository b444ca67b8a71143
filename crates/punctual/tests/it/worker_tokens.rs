//! Worker tokens: a session belongs to the token that opened it, and ends with it.

use crate::cluster::{Cluster, Process};
use crate::principals::Principal;
use crate::server::{Server, answer, eventually, http_client};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

async fn worker<'a>(server: &'a Server, name: &str, queue: &str) -> Principal<'a> {
    let fields = json!({"name": name, "role": "worker", "queues": [queue], "job_types": ["raw"]});
    Principal::create(server, fields).await
}

async fn say(worker: &Principal<'_>, verb: &str, body: Value) -> (StatusCode, Value) {
    worker.post(&format!("/api/v1/worker/{verb}"), &body).await
}

fn opening(queue: &str) -> Value {
    json!({"worker": "raw", "job_types": ["raw"], "queues": [queue], "lease_secs": 600})
}

async fn open(worker: &Principal<'_>, queue: &str) -> i64 {
    let (status, session) = say(worker, "sessions", opening(queue)).await;
    assert_eq!(status, StatusCode::CREATED, "{session}");
    session["session"].as_i64().expect("a number")
}

fn poll(session: i64, queue: &str) -> Value {
    json!({"session": session, "turn": 1, "job_types": ["raw"], "queues": [queue], "wait_secs": 0})
}

/// A job that runs in a new session of this worker: the session, and the lease.
async fn take(server: &Server, worker: &Principal<'_>, queue: &str) -> (i64, Value) {
    server.submit(json!({"name": "raw", "queue": queue, "payload": {"n": 1}})).await;
    let session = open(worker, queue).await;
    let (status, polled) = say(worker, "poll", poll(session, queue)).await;
    assert_eq!(status, StatusCode::OK, "{polled}");
    let found = &polled["assignments"][0];
    (session, json!({"execution_id": found["execution_id"], "epoch": found["epoch"]}))
}

fn report(session: i64, lease: &Value) -> Value {
    json!({"session": session, "execution_id": lease["execution_id"], "epoch": lease["epoch"], "outcome": "succeeded"})
}

async fn status_of(server: &Server, lease: &Value) -> Value {
    let execution = lease["execution_id"].as_str().expect("an id");
    server.get(&format!("/api/v1/executions/{execution}")).await.1["status"].clone()
}

#[tokio::test]
async fn a_worker_token_works_in_its_queues_and_does_nothing_else() {
    let server = Server::start();
    let mail = worker(&server, "mail", "mail").await;
    let (session, lease) = take(&server, &mail, "mail").await;
    let (status, body) = say(&mail, "report", json!({"reports": [report(session, &lease)]})).await;
    assert_eq!((status, &body["answers"][0]), (StatusCode::OK, &json!("accepted")), "{body}");
    assert_eq!(status_of(&server, &lease).await, "SUCCEEDED");

    // A schema would apply to jobs in all queues.
    let mut with_schema = opening("mail");
    with_schema["schemas"] = json!({"raw": {"not": {}}});
    let (status, refused) = say(&mail, "sessions", with_schema).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");
    assert!(refused.to_string().contains("punctual type set"), "{refused}");
    let (status, _) = server.get("/api/v1/job-types/raw").await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    for (queues, job_types) in [
        (json!([]), json!(["raw"])),
        (json!(["pay"]), json!(["raw"])),
        (json!(["mail"]), json!(["raw", "x"])),
    ] {
        let opening = json!({"worker": "raw", "job_types": job_types, "queues": queues, "lease_secs": 60});
        let (status, body) = say(&mail, "sessions", opening).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    }
    let (status, body) = say(&mail, "poll", poll(session, "pay")).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    for path in [
        "/api/v1/jobs",
        "/api/v1/executions",
        "/api/v1/workers",
        "/api/v1/stats",
        "/api/v1/tokens",
        "/metrics",
    ] {
        assert_eq!(mail.get(path).await.0, StatusCode::FORBIDDEN, "{path}");
    }
    let (status, _) = mail.post("/api/v1/jobs", &json!({"name": "x"})).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_token_cannot_touch_the_sessions_of_another() {
    let server = Server::start();
    let (first, second) = (worker(&server, "first", "mail").await, worker(&server, "second", "mail").await);
    let (session, lease) = take(&server, &first, "mail").await;
    let own = open(&second, "mail").await;
    let over = StatusCode::GONE;
    for (verb, body) in [
        ("poll", poll(session, "mail")),
        ("heartbeat", json!({"session": session, "beat": 9})),
        ("give-back", json!({"session": session, "leases": [lease]})),
        ("resync", json!({"session": session, "turn": 7, "held": []})),
    ] {
        let (status, answer) = say(&second, verb, body).await;
        assert_eq!(status, over, "{verb}: {answer}");
    }
    let forged =
        json!({"session": session, "execution_id": lease["execution_id"], "lines": [{"message": "forged"}]});
    let (status, answer) = say(&second, "logs", forged).await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    let (status, _) =
        second.send(Method::DELETE, &format!("/api/v1/worker/sessions/{session}"), &Value::Null).await;
    assert_ne!(status, StatusCode::NO_CONTENT);
    // Reports and notes in a batch: those for the other's session, and for its execution in the own session.
    let reports = json!({"reports": [report(session, &lease), report(own, &lease)]});
    let (status, body) = say(&second, "report", reports).await;
    assert_eq!((status, &body["answers"]), (StatusCode::OK, &json!(["stale", "stale"])), "{body}");
    let note =
        json!({"execution_id": lease["execution_id"], "epoch": lease["epoch"], "progress": {"percent": 99}});
    for used in [session, own] {
        let (status, body) = say(&second, "notes", json!({"session": used, "notes": [note]})).await;
        assert_eq!((status, &body["answers"]), (StatusCode::OK, &json!(["stale"])), "{body}");
    }
    assert_eq!(status_of(&server, &lease).await, "RUNNING");
    // The right token still can.
    let (_, body) = say(&first, "report", json!({"reports": [report(session, &lease)]})).await;
    assert_eq!(body["answers"][0], "accepted", "{body}");
}

#[tokio::test]
async fn revoking_a_token_ends_its_sessions_and_their_work_is_retried() {
    let server = Server::start();
    let (first, second) = (worker(&server, "first", "mail").await, worker(&server, "second", "mail").await);
    let (session, lease) = take(&server, &first, "mail").await;
    first.revoke().await;
    // The lease is ten minutes long: nothing but the revocation can have ended it.
    eventually("the execution is lost", async || status_of(&server, &lease).await == "LOST").await;
    let (status, _) = say(&first, "heartbeat", json!({"session": session, "beat": 9})).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let (status, _) = say(&first, "sessions", opening("mail")).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let next = open(&second, "mail").await;
    let mut turn = 0;
    eventually("another worker gets the next attempt", async || {
        turn += 1;
        let mut body = poll(next, "mail");
        body["turn"] = json!(turn);
        let (status, polled) = say(&second, "poll", body).await;
        assert_eq!(status, StatusCode::OK, "{polled}");
        !polled["assignments"].as_array().expect("a list").is_empty()
    })
    .await;
}

/// A worker with a token of a user, and the path of the user.
async fn worker_of_a_user<'a>(server: &'a Server, email: &str) -> (Principal<'a>, String) {
    let user = json!({"email": email, "role": "worker", "queues": ["mail"], "job_types": ["raw"]});
    let (status, user) = server.post("/api/v1/users", &user.to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{user}");
    let fields = json!({"name": email, "user_id": user["user_id"]});
    let path = format!("/api/v1/users/{}", user["user_id"].as_str().expect("an id"));
    (Principal::create(server, fields).await, path)
}

#[tokio::test]
async fn a_user_who_may_no_longer_work_loses_the_sessions_and_their_work_is_retried() {
    let server = Server::start();
    let changes = [
        Some(json!({"disabled": true})),
        Some(json!({"role": "viewer"})),
        Some(json!({"queues": ["pay"]})),
        Some(json!({"job_types": ["other"]})),
        None,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (worker, user) = worker_of_a_user(&server, &format!("ann{number}@example.org")).await;
        let (session, lease) = take(&server, &worker, "mail").await;
        // These leave what the session serves.
        for kept in
            [json!({"display_name": "Ann"}), json!({"queues": ["mail", "pay"]}), json!({"role": "admin"})]
        {
            let (status, body) = server.patch(&user, &kept).await;
            assert_eq!(status, StatusCode::OK, "{body}");
            let (status, body) = say(&worker, "heartbeat", json!({"session": session, "beat": 1})).await;
            assert_eq!(status, StatusCode::OK, "{kept}: {body}");
        }
        let status = match &change {
            Some(change) => server.patch(&user, change).await.0,
            None => answer(server.request(Method::DELETE, &user)).await.0,
        };
        assert!(status.is_success(), "{change:?}: {status}");
        // The lease is ten minutes long: nothing but the change can have ended it.
        eventually("the execution is lost", async || status_of(&server, &lease).await == "LOST").await;
        let (status, _) = say(&worker, "heartbeat", json!({"session": session, "beat": 9})).await;
        assert!(status.is_client_error(), "{change:?}: {status}");
    }
    let other = worker(&server, "other", "mail").await;
    let session = open(&other, "mail").await;
    let mut turn = 0;
    eventually("another worker gets a next attempt", async || {
        turn += 1;
        let mut body = poll(session, "mail");
        body["turn"] = json!(turn);
        say(&other, "poll", body).await.1["assignments"][0]["attempt_number"] == json!(2)
    })
    .await;
}

#[tokio::test]
async fn a_token_that_is_changed_keeps_only_the_sessions_that_it_still_allows() {
    let server = Server::start();
    let fields = json!({"name": "w", "role": "worker", "queues": ["mail", "pay"]});
    let worker = Principal::create(&server, fields).await;
    let (session, mail) = take(&server, &worker, "mail").await;
    let (_, pay) = take(&server, &worker, "pay").await;
    let (status, body) =
        server.patch(&format!("/api/v1/tokens/{}", worker.id), &json!({"queues": ["mail", "other"]})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    eventually("one execution is lost", async || status_of(&server, &pay).await == "LOST").await;
    let path = format!("/api/v1/tokens/{}/rotate", worker.id);
    let (status, body) = server.post(&path, r#"{"overlap": "1h"}"#).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let (status, body) = say(&worker, "heartbeat", json!({"session": session, "beat": 1})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(status_of(&server, &mail).await, "RUNNING");
    let (status, body) = server.post(&path, r#"{"overlap": "0s"}"#).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    eventually("the other one is lost", async || status_of(&server, &mail).await == "LOST").await;
}

#[tokio::test]
async fn a_waiting_poll_gets_no_work_after_its_token_has_ended() {
    let server = Server::start();
    let (first, second) = (worker(&server, "first", "mail").await, worker(&server, "second", "mail").await);
    let session = open(&first, "mail").await;
    let mut body = poll(session, "mail");
    body["wait_secs"] = json!(30);
    let waiting = say(&first, "poll", body);
    let change = async {
        // The poll waits by now, or arrives later and is refused at once.
        eventually("the session is known", async || {
            server.get("/api/v1/workers").await.1["items"].as_array().is_some_and(|items| items.len() > 1)
        })
        .await;
        let path = format!("/api/v1/tokens/{}/rotate", first.id);
        let (status, body) = server.post(&path, r#"{"overlap": "0s"}"#).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        server.submit(json!({"name": "raw", "queue": "mail"})).await;
    };
    let ((status, body), ()) = tokio::join!(waiting, change);
    assert_eq!(status, StatusCode::UNAUTHORIZED, "{body}");
    let next = open(&second, "mail").await;
    let mut turn = 0;
    eventually("another worker gets the job, as its first attempt", async || {
        turn += 1;
        let mut body = poll(next, "mail");
        body["turn"] = json!(turn);
        let (_, polled) = say(&second, "poll", body).await;
        polled["assignments"][0]["attempt_number"] == json!(1)
    })
    .await;
}

/// A request to a process of a cluster with this token.
async fn ask(
    process: &Process,
    token: &str,
    method: Method,
    path: &str,
    body: &Value,
) -> (StatusCode, Value) {
    let request = http_client().request(method, format!("http://{}/api/v1{path}", process.address));
    let request = request.bearer_auth(token);
    answer(if body.is_null() { request } else { request.json(body) }).await
}

#[tokio::test]
async fn a_token_that_one_node_revokes_does_not_work_on_another() {
    Cluster::with(async |cluster| {
        let (first, second, _scheduler) = (cluster.api(), cluster.api(), cluster.scheduler());
        let admin = cluster.token();
        let new = json!({"name": "w", "role": "worker", "queues": ["mail"], "job_types": ["raw"]});
        let (status, token) = ask(&first, &admin, Method::POST, "/tokens", &new).await;
        assert_eq!(status, StatusCode::CREATED, "{token}");
        let worker = token["secret"].as_str().unwrap();
        let job = json!({"name": "raw", "queue": "mail", "payload": {"n": 1}});
        assert_eq!(ask(&second, &admin, Method::POST, "/jobs", &job).await.0, StatusCode::CREATED);
        // The second node works for the token, and knows it.
        let (_, opened) = ask(&second, worker, Method::POST, "/worker/sessions", &opening("mail")).await;
        let session = opened["session"].as_i64().unwrap_or_else(|| panic!("{opened}"));
        let (_, polled) = ask(&second, worker, Method::POST, "/worker/poll", &poll(session, "mail")).await;
        let found = &polled["assignments"][0];
        let lease = json!({"execution_id": found["execution_id"], "epoch": found["epoch"]});
        let execution = format!("/executions/{}", lease["execution_id"].as_str().unwrap());

        let path = format!("/tokens/{}", token["token_id"].as_str().unwrap());
        assert_eq!(ask(&first, &admin, Method::DELETE, &path, &Value::Null).await.0, StatusCode::NO_CONTENT);
        // The lease is ten minutes long, so only the end of the session makes it lost.
        eventually("what the worker ran is lost", async || {
            ask(&second, &admin, Method::GET, &execution, &Value::Null).await.1["status"] == "LOST"
        })
        .await;
        let reports = json!({"reports": [report(session, &lease)]});
        let (status, answered) = ask(&second, worker, Method::POST, "/worker/report", &reports).await;
        // The second node may know the token for some seconds more, but the session is over.
        if status == StatusCode::OK {
            assert_eq!(answered["answers"], json!(["stale"]), "{answered}");
        } else {
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{answered}");
        }
        let mut again = poll(session, "mail");
        again["turn"] = json!(2);
        for (verb, body) in [("poll", again), ("heartbeat", json!({"session": session, "beat": 9}))] {
            let (status, answered) =
                ask(&second, worker, Method::POST, &format!("/worker/{verb}"), &body).await;
            let is_refused = [StatusCode::GONE, StatusCode::UNAUTHORIZED].contains(&status);
            assert!(is_refused, "{verb}: {status} {answered}");
        }
        eventually("the second node does not know the token any more", async || {
            let opened = ask(&second, worker, Method::POST, "/worker/sessions", &opening("mail")).await;
            opened.0 == StatusCode::UNAUTHORIZED
        })
        .await;
        let (_, shown) = ask(&second, &admin, Method::GET, &execution, &Value::Null).await;
        assert_eq!(shown["status"], "LOST", "no report of the revoked worker was accepted");
    })
    .await;
}
