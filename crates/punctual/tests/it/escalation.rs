//! Attempts to get more access than was given, and to change access unseen.

use crate::principals::Principal;
use crate::raw::{HERE, Raw, head};
use crate::server::{Server, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// A token that manages access and may do little else.
async fn steward(server: &Server) -> Principal<'_> {
    let permissions = ["access:read", "access:write"];
    Principal::create(server, json!({"name": "steward", "role": "viewer", "permissions": permissions})).await
}

async fn add_user(server: &Server, email: &str, role: &str) -> String {
    let (status, user) =
        server.post("/api/v1/users", &json!({"email": email, "role": role}).to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{user}");
    user["user_id"].as_str().expect("an id").to_owned()
}

async fn patch_user(server: &Server, user: &str, change: Value) -> StatusCode {
    server.patch(&format!("/api/v1/users/{user}"), &change).await.0
}

#[tokio::test]
async fn a_token_cannot_take_over_or_take_away_what_may_do_more() {
    let server = Server::start();
    let steward = steward(&server).await;
    let ann = add_user(&server, "ann@example.org", "viewer").await;
    let token = Principal::create(&server, json!({"name": "ann-laptop", "user_id": ann})).await;
    let rotate = format!("/api/v1/tokens/{}/rotate", token.id);
    assert_eq!(steward.post(&rotate, &json!({})).await.0, StatusCode::OK, "a viewer as it is itself");
    assert_eq!(patch_user(&server, &ann, json!({"role": "admin"})).await, StatusCode::OK);
    // Ten refusals of a token are stored, so each kind comes among the first ten.
    for path in [
        "/api/v1/tokens/admin".to_owned(),
        format!("/api/v1/tokens/{}", token.id),
        format!("/api/v1/users/{ann}"),
    ] {
        let status = steward.request(Method::DELETE, &path).send().await.expect("an answer").status();
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
    }
    for (method, path, body) in [
        (Method::POST, rotate, json!({})),
        (Method::POST, "/api/v1/tokens/admin/rotate".to_owned(), json!({})),
        (Method::POST, "/api/v1/tokens".to_owned(), json!({"name": "x", "role": "admin"})),
        (Method::POST, "/api/v1/tokens".to_owned(), json!({"name": "x", "user_id": ann})),
        (Method::POST, "/api/v1/users".to_owned(), json!({"email": "x@example.org", "role": "admin"})),
        (Method::PATCH, format!("/api/v1/users/{ann}"), json!({"role": "viewer"})),
        (Method::PATCH, "/api/v1/tokens/admin".to_owned(), json!({"role": "viewer"})),
        (Method::PATCH, format!("/api/v1/tokens/{}", token.id), json!({"name": "x"})),
        (Method::PATCH, format!("/api/v1/tokens/{}", steward.id), json!({"role": "admin"})),
        (
            Method::PATCH,
            format!("/api/v1/tokens/{}", steward.id),
            json!({"permissions": ["access:write", "payload:read"]}),
        ),
    ] {
        let (status, body) = steward.send(method.clone(), &path, &body).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}: {body}");
    }
    eventually("the attempts are in the audit log", async || {
        let (_, audit) = server.get("/api/v1/audit?outcome=refused&limit=100").await;
        let actions: Vec<&str> = audit["items"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|entry| entry["action"].as_str())
            .collect();
        ["token.create", "token.rotate", "token.revoke", "user.add", "user.update", "user.remove"]
            .iter()
            .all(|action| actions.contains(action))
    })
    .await;
}

#[tokio::test]
async fn an_admin_always_remains() {
    let server = Server::start();
    let expiring = json!({"name": "short", "role": "admin", "expires_after": "1h"});
    Principal::create(&server, expiring).await;
    let revoke = async |id: &str| {
        let path = format!("/api/v1/tokens/{id}");
        server.request(Method::DELETE, &path).send().await.expect("an answer").status()
    };
    assert_eq!(revoke("admin").await, StatusCode::CONFLICT, "the other one expires");
    let ann = add_user(&server, "ann@example.org", "admin").await;
    let token = Principal::create(&server, json!({"name": "ann-laptop", "user_id": ann})).await;
    assert_eq!(revoke("admin").await, StatusCode::NO_CONTENT);
    let path = format!("/api/v1/users/{ann}");
    for change in [json!({"role": "viewer"}), json!({"disabled": true}), json!({"owner_id": "team"})] {
        assert_eq!(token.send(Method::PATCH, &path, &change).await.0, StatusCode::CONFLICT, "{change}");
    }
    let removed = token.request(Method::DELETE, &path).send().await.expect("an answer").status();
    assert_eq!(removed, StatusCode::CONFLICT);
    assert_eq!(token.get("/api/v1/tokens").await.0, StatusCode::OK);
}

#[tokio::test]
async fn changes_of_a_user_at_the_same_time_are_all_kept() {
    let server = Server::start();
    let ann = add_user(&server, "ann@example.org", "operator").await;
    for round in 0..20 {
        let name = format!("round {round}");
        let (disabled, named) = tokio::join!(
            patch_user(&server, &ann, json!({"disabled": true})),
            patch_user(&server, &ann, json!({"display_name": name})),
        );
        assert_eq!((disabled, named), (StatusCode::OK, StatusCode::OK));
        let (_, user) = server.get(&format!("/api/v1/users/{ann}")).await;
        assert_eq!((&user["disabled"], &user["display_name"]), (&json!(true), &json!(name)));
        assert_eq!(patch_user(&server, &ann, json!({"disabled": false})).await, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_token_of_one_owner_cannot_work_for_the_others() {
    let server = Server::start();
    let fields = json!({"name": "x", "role": "submitter", "owner_id": "ann", "permissions": ["work:run"]});
    let (status, body) = server.post("/api/v1/tokens", &fields.to_string()).await;
    assert_eq!(
        (status, &body["errors"][0]["field"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("permissions")),
        "{body}"
    );
    let admin = Principal::create(&server, json!({"name": "a", "role": "admin", "owner_id": "ann"})).await;
    let opening = json!({"worker": "raw", "job_types": ["raw"], "lease_secs": 60});
    let (status, body) = admin.post("/api/v1/worker/sessions", &opening).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    // The owner of a worker token says to whom it belongs, and limits nothing.
    let fields = json!({"name": "w", "role": "worker", "owner_id": "ann"});
    let (_, body) = server.post("/api/v1/tokens", &fields.to_string()).await;
    assert_eq!((&body["owner_id"], &body["all_owners"]), (&json!("ann"), &json!(true)), "{body}");
}

#[tokio::test]
async fn keys_tell_nothing_about_jobs_out_of_scope() {
    let server = Server::start();
    let job = |queue: &str| {
        json!({"name": "x", "job_type": "sleep", "payload": {"ms": 600_000}, "queue": queue, "owner_id": "ann",
        "idempotency_key": "i", "unique_key": "u"})
    };
    let hidden = server.submit(job("pay")).await.to_string();
    let ann = json!({"name": "ann", "role": "submitter", "owner_id": "ann", "queues": ["mail"]});
    let ann = Principal::create(&server, ann).await;
    for key in ["idempotency_key", "unique_key"] {
        let mut job = job("mail");
        job.as_object_mut().expect("an object").remove(if key == "unique_key" {
            "idempotency_key"
        } else {
            "unique_key"
        });
        let (status, body) = ann.post("/api/v1/jobs", &job).await;
        assert_eq!(
            (status, &body["errors"][0]["field"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!(key)),
            "{body}"
        );
        assert!(!body.to_string().contains(&hidden), "{body}");
    }
}

#[tokio::test]
async fn the_permission_to_change_jobs_includes_seeing_them_but_not_their_data() {
    let server = Server::start();
    let changer =
        Principal::create(&server, json!({"name": "c", "role": "worker", "permissions": ["jobs:write"]}))
            .await;
    let job =
        server.submit(json!({"name": "x", "job_type": "noop", "delay": "1h", "payload": {"a": 1}})).await;
    let path = format!("/api/v1/jobs/{job}");
    let (status, seen) = changer.get(&path).await;
    assert_eq!((status, &seen["payload"]), (StatusCode::OK, &Value::Null), "{seen}");
    let (status, changed) = changer.post(&format!("{path}/pause"), &json!({})).await;
    assert_eq!((status, &changed["status"]), (StatusCode::OK, &json!("PAUSED")), "{changed}");
    assert_eq!(changer.get(&format!("{path}/logs")).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_client_that_disconnects_cannot_change_access_unseen() {
    let server = Server::start();
    for number in 0..30 {
        let body = json!({"name": format!("hasty-{number}"), "role": "viewer"}).to_string();
        let length = body.len();
        let mut raw = Raw::open(&server.address, HERE).await;
        let head = head(&server, "POST", "/api/v1/tokens");
        let request =
            format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
        raw.send(request.as_bytes()).await;
        drop(raw);
    }
    eventually("each token that was created has an entry", async || {
        let (_, tokens) = server.get("/api/v1/tokens?limit=100").await;
        let (_, audit) = server.get("/api/v1/audit?action=token.create&limit=100").await;
        let items = |list: &Value| list["items"].as_array().expect("a list").clone();
        let created: Vec<String> = items(&tokens)
            .iter()
            .filter(|token| token["token_id"] != "admin")
            .map(|token| format!("token {}", token["token_id"].as_str().expect("an id")))
            .collect();
        let entries = items(&audit);
        created.iter().all(|object| entries.iter().any(|entry| entry["object"] == json!(object)))
    })
    .await;
}

#[tokio::test]
async fn a_token_is_changed_under_the_rules_of_its_creation() {
    let server = Server::start();
    let token =
        Principal::create(&server, json!({"name": "a", "role": "submitter", "owner_id": "team"})).await;
    let path = format!("/api/v1/tokens/{}", token.id);
    let (status, body) =
        server.patch(&path, &json!({"name": "b", "role": "viewer", "expires_after": "1d"})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(
        (&body["name"], &body["role"], &body["owner_id"]),
        (&json!("b"), &json!("viewer"), &json!("team"))
    );
    assert!(body["expires_at"].is_string() && body.get("secret").is_none(), "{body}");
    let submit = json!({"name": "noop"});
    assert_eq!(
        token.post("/api/v1/jobs", &submit).await.0,
        StatusCode::FORBIDDEN,
        "at once, with the same secret"
    );
    let (status, body) = server.patch(&path, &json!({"role": "submitter", "expires_at": null})).await;
    assert_eq!((status, &body["expires_at"]), (StatusCode::OK, &Value::Null));
    assert_eq!(token.post("/api/v1/jobs", &submit).await.0, StatusCode::CREATED);

    let wrong = [
        (json!({"name": ""}), StatusCode::BAD_REQUEST),
        (json!({"expires_at": "2020-01-01T00:00:00Z"}), StatusCode::BAD_REQUEST),
        (json!({"user_id": "u"}), StatusCode::BAD_REQUEST),
        (json!({"permissions": ["work:run"]}), StatusCode::BAD_REQUEST),
    ];
    for (patch, expected) in wrong {
        let (status, body) = server.patch(&path, &patch).await;
        assert!(status == expected || status == StatusCode::UNPROCESSABLE_ENTITY, "{patch}: {status} {body}");
    }
    for last in [json!({"role": "operator"}), json!({"expires_after": "1d"}), json!({"queues": ["q"]})] {
        let (status, body) = server.patch("/api/v1/tokens/admin", &last).await;
        assert_eq!(status, StatusCode::CONFLICT, "{last}: {body}");
    }
    assert_eq!(server.patch("/api/v1/tokens/none", &json!({"name": "x"})).await.0, StatusCode::NOT_FOUND);
    let rotated = server.said(&["token", "rotate", &token.id, "--expires", "2d", "-o", "json"]);
    let rotated: Value = serde_json::from_str(&rotated).unwrap();
    assert!(rotated["expires_at"].is_string() && rotated["secret"].is_string());
    let said =
        server.said(&["token", "update", &token.id, "--unset", "expires", "--queue", "mail-*", "-o", "json"]);
    let updated: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&updated["expires_at"], &updated["queues"]), (&Value::Null, &json!(["mail-*"])));
    let (_, audit) =
        server.get(&format!("/api/v1/audit?action=token.update&object=token%20{}", token.id)).await;
    let details = &audit["items"][0]["details"];
    assert_eq!(details["after"]["scope"]["queues"], json!(["mail-*"]), "{audit}");
}

#[tokio::test]
async fn a_worker_token_that_is_limited_further_loses_its_sessions() {
    let server = Server::start();
    let token = Principal::create(&server, json!({"name": "w", "role": "worker"})).await;
    let open = json!({"worker": "w", "slots": 1, "job_types": ["echo"], "queues": ["mail"]});
    let (status, body) = token.post("/api/v1/worker/sessions", &open).await;
    assert!(status.is_success(), "{status} {body}");
    let path = format!("/api/v1/tokens/{}", token.id);
    assert_eq!(server.patch(&path, &json!({"name": "v"})).await.0, StatusCode::OK);
    assert_eq!(server.get("/api/v1/workers/w").await.0, StatusCode::OK, "it may do the same");
    assert_eq!(server.patch(&path, &json!({"queues": ["other"]})).await.0, StatusCode::OK);
    assert_eq!(server.get("/api/v1/workers/w").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_token_with_an_owner_is_told_why_it_cannot_work() {
    let server = Server::start();
    let token = Principal::create(&server, json!({"name": "a", "role": "admin", "owner_id": "team"})).await;
    let open = json!({"worker": "w", "slots": 1, "job_types": ["echo"], "queues": ["mail"]});
    let (status, body) = token.post("/api/v1/worker/sessions", &open).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("limited to the owner team") && !detail.contains("the role admin"), "{detail}");
}
