//! Tokens and users over the API.

use crate::server::{Server, answer};
use punctual_client::{CreateToken, CreateUser, RotateToken, Span};
use punctual_core::access::{Permission, Role};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;

async fn as_token(server: &Server, token: &str, path: &str) -> (StatusCode, Value) {
    answer(server.anonymous(Method::GET, path).bearer_auth(token)).await
}

fn token_of(role: Role) -> CreateToken {
    CreateToken { name: role.to_string(), role: Some(role), ..CreateToken::default() }
}

#[tokio::test]
async fn a_token_is_created_with_a_secret_that_is_never_shown_again() {
    let server = Server::start();
    let body =
        r#"{"name":"deploy","role":"submitter","owner_id":"team","queues":["mail-*"],"expires_after":"30d"}"#;
    let request = server.request(Method::POST, "/api/v1/tokens").header("content-type", "application/json");
    let created = request.body(body).send().await.unwrap();
    assert_eq!(created.status(), StatusCode::CREATED);
    assert_eq!(created.headers()["cache-control"], "no-store");
    let location = created.headers()["location"].to_str().unwrap().to_owned();
    let token: Value = created.json().await.unwrap();
    let (id, secret) = (token["token_id"].as_str().unwrap(), token["secret"].as_str().unwrap());
    assert_eq!(location, format!("/api/v1/tokens/{id}"));
    let hidden = secret.strip_prefix(&format!("pt_{id}_")).unwrap();
    assert!(id.len() == 12 && hidden.len() >= 40, "{secret}");
    assert_eq!(
        (&token["role"], &token["owner_id"], &token["all_owners"], &token["queues"]),
        (&json!("submitter"), &json!("team"), &json!(false), &json!(["mail-*"]))
    );
    assert!(token["expires_at"].is_string() && token["last_used_at"].is_null());

    let (status, me) = as_token(&server, secret, "/api/v1/me").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        me,
        json!({
            "token_id": id, "name": "deploy", "role": "submitter", "user_id": null, "owner_id": "team",
            "all_owners": false, "queues": ["mail-*"], "job_types": [],
            "permissions": ["jobs:read", "payload:read", "jobs:write", "server:read", "secrets:read", "notifications:read"],
        })
    );
    let shown = server.get(&location).await.1;
    assert_eq!((&shown["name"], shown.get("secret")), (&json!("deploy"), None));
    let (_, list) = server.get("/api/v1/tokens").await;
    let ids: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|token| token["token_id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"admin") && ids.contains(&id), "{ids:?}");
    assert!(!list.to_string().contains(hidden));
}

#[tokio::test]
async fn lists_have_pages() {
    let server = Server::start();
    let client = server.client();
    for number in 0..3 {
        client.create_token(&token_of(Role::Viewer)).await.unwrap();
        let email = format!("user{number}@example.org");
        let (status, _) =
            server.post("/api/v1/users", &json!({"email": email, "role": "viewer"}).to_string()).await;
        assert_eq!(status, StatusCode::CREATED);
    }
    for (path, total) in [("/api/v1/tokens", 4), ("/api/v1/users", 3)] {
        let (_, first) = server.get(&format!("{path}?limit=2")).await;
        let cursor = first["next_cursor"].as_str().unwrap();
        let (_, second) = server.get(&format!("{path}?limit=2&cursor={cursor}")).await;
        let count = |page: &Value| page["items"].as_array().unwrap().len();
        assert_eq!(
            (count(&first) + count(&second), second["next_cursor"].is_null()),
            (total, true),
            "{path}"
        );
        let list = path.trim_start_matches("/api/v1/");
        for bad in ["jobs~x".to_owned(), format!("{list}~%00"), format!("{list}~a-b")] {
            let (status, _) = server.get(&format!("{path}?cursor={bad}")).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{bad}");
        }
    }
    assert_eq!(client.tokens().await.unwrap().items.len(), 4);
    assert_eq!(client.users().await.unwrap().items.len(), 3);
}

#[tokio::test]
async fn ids_that_nothing_can_have_are_unknown() {
    let server = Server::start();
    for id in ["x", "%00", "a%00@b", "a%2Fb", "%F0%9F%98%80", "..%2Fadmin", "ADMIN", "admin%20"] {
        for (method, path) in [
            (Method::GET, format!("/api/v1/tokens/{id}")),
            (Method::DELETE, format!("/api/v1/tokens/{id}")),
            (Method::POST, format!("/api/v1/tokens/{id}/rotate")),
            (Method::GET, format!("/api/v1/users/{id}")),
            (Method::DELETE, format!("/api/v1/users/{id}")),
        ] {
            let (status, problem) = answer(server.request(method.clone(), &path)).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{method} {path}: {problem}");
        }
    }
    assert_eq!(server.get("/api/v1/me").await.0, StatusCode::OK);
}

#[tokio::test]
async fn wrong_requests_are_answered_by_field_and_store_nothing() {
    let server = Server::start();
    for (body, field) in [
        (r#"{"role":"viewer"}"#, "name"),
        (r#"{"name":"a"}"#, "role"),
        (r#"{"name":"a","role":"root"}"#, "role"),
        (r#"{"name":"a","role":"viewer","permissions":["all"]}"#, "permissions[0]"),
        (r#"{"name":"a","role":"viewer","queues":[""]}"#, "queues"),
        (r#"{"name":"a","role":"viewer","expires_at":"2020-01-01T00:00:00Z"}"#, "expires_at"),
        (r#"{"name":"a","role":"viewer","expires_after":"soon"}"#, "expires_after"),
        (r#"{"name":"a","user_id":"nobody"}"#, "user_id"),
        (r#"{"name":"a","role":"viewer","secret":"mine"}"#, "secret"),
    ] {
        let (status, problem) = server.post("/api/v1/tokens", body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}: {problem}");
        assert_eq!(problem["errors"][0]["field"], field, "{body}: {problem}");
    }
    for (body, field) in [
        (r#"{"email":"ann","role":"viewer"}"#, "email"),
        (r#"{"email":"ann@example.org"}"#, "role"),
        (r#"{"email":"ann@example.org","role":"viewer","disabled":true}"#, "disabled"),
    ] {
        let (status, problem) = server.post("/api/v1/users", body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}: {problem}");
        assert_eq!(problem["errors"][0]["field"], field, "{body}: {problem}");
    }
    assert_eq!(server.client().tokens().await.unwrap().items.len(), 1);
    assert_eq!(server.client().users().await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn a_request_that_makes_a_secret_takes_no_key() {
    let server = Server::start();
    let token = server.client().create_token(&token_of(Role::Viewer)).await.unwrap();
    for path in ["/api/v1/tokens".to_owned(), format!("/api/v1/tokens/{}/rotate", token.token_id)] {
        let request = server.request(Method::POST, &path).header("idempotency-key", "once");
        let (status, problem) = answer(request.json(&json!({"name": "a", "role": "viewer"}))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains("Idempotency-Key is not accepted here"),
            "{problem}"
        );
    }
    assert_eq!(server.client().tokens().await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn a_rotated_token_keeps_its_id_and_its_old_secret_ends_when_asked() {
    let server = Server::start();
    let client = server.client();
    let token = client.create_token(&token_of(Role::Viewer)).await.unwrap();
    let first = token.secret.unwrap();
    let works = async |secret: &str| as_token(&server, secret, "/api/v1/me").await.0 == StatusCode::OK;
    let rotated = client.rotate_token(&token.token_id, &RotateToken::default()).await.unwrap();
    let second = rotated.secret.unwrap();
    assert_eq!(rotated.token_id, token.token_id);
    assert!(rotated.old_secret_until.is_some() && works(&first).await && works(&second).await);
    let at_once = RotateToken { overlap: Some(Span::from(Duration::ZERO)), ..RotateToken::default() };
    let rotated = client.rotate_token(&token.token_id, &at_once).await.unwrap();
    assert_eq!(rotated.old_secret_until, None);
    assert!(!works(&first).await && !works(&second).await && works(&rotated.secret.unwrap()).await);
    let long =
        RotateToken { overlap: Some(Span::from(Duration::from_secs(8 * 86_400))), ..RotateToken::default() };
    let refused = client.rotate_token(&token.token_id, &long).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().errors[0].field, "overlap");
    assert!(client.rotate_token("unknown", &at_once).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn the_last_token_that_manages_access_cannot_be_revoked() {
    let server = Server::start();
    let client = server.client();
    client.create_token(&token_of(Role::Operator)).await.unwrap();
    let limited = CreateToken { owner_id: Some("team".to_owned()), ..token_of(Role::Admin) };
    client.create_token(&limited).await.unwrap();
    let refused = client.revoke_token("admin").await.unwrap_err();
    let problem = refused.problem().unwrap();
    assert_eq!(problem.status, 409);
    assert!(problem.detail.as_ref().unwrap().contains("serve --new-admin-token"), "{problem:?}");
    let other = client.create_token(&token_of(Role::Admin)).await.unwrap();
    client.revoke_token("admin").await.unwrap();
    let (status, _) = server.get("/api/v1/me").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let (status, _) = as_token(&server, &other.secret.unwrap(), "/api/v1/tokens").await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn no_token_grants_what_it_lacks() {
    let server = Server::start();
    let permissions = vec![Permission::AccessRead, Permission::AccessWrite];
    let all_owners = Some(true);
    let steward = CreateToken { permissions, all_owners, ..token_of(Role::Submitter) };
    let steward = server.client().create_token(&steward).await.unwrap().secret.unwrap();
    let create = async |body: Value| {
        answer(server.anonymous(Method::POST, "/api/v1/tokens").bearer_auth(&steward).json(&body)).await
    };
    let (status, problem) = create(json!({"name": "a", "role": "admin"})).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{problem}");
    let (status, _) = create(json!({"name": "a", "role": "viewer", "permissions": ["audit:read"]})).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, _) = create(json!({"name": "a", "role": "viewer"})).await;
    assert_eq!(status, StatusCode::CREATED);
    let rotate = server.anonymous(Method::POST, "/api/v1/tokens/admin/rotate").bearer_auth(&steward);
    assert_eq!(answer(rotate).await.0, StatusCode::FORBIDDEN, "its secret would be that of an admin");
}

#[tokio::test]
async fn a_token_of_a_user_may_do_what_the_user_may_now() {
    let server = Server::start();
    let client = server.client();
    let user: CreateUser = serde_json::from_value(json!({
        "email": "Ann@Example.org", "role": "operator", "display_name": "Ann", "notification_channel": "slack",
    }))
    .unwrap();
    let user = client.add_user(&user).await.unwrap();
    assert_eq!((user.email.as_str(), user.all_owners, user.disabled), ("ann@example.org", true, false));
    let (status, problem) =
        server.post("/api/v1/users", r#"{"email":"ann@example.ORG","role":"viewer"}"#).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    let new = CreateToken {
        name: "laptop".to_owned(),
        user_id: Some(user.user_id.clone()),
        ..CreateToken::default()
    };
    let token = client.create_token(&new).await.unwrap();
    assert_eq!((token.role.as_str(), token.user_id.as_ref()), ("operator", Some(&user.user_id)));
    let secret = token.secret.unwrap();
    let role = async || as_token(&server, &secret, "/api/v1/me").await.1["role"].clone();
    assert_eq!(role().await, "operator");

    let patch = json!({"role": "viewer", "display_name": null});
    let changed = client.update_user("ann@example.org", &patch).await.unwrap();
    assert_eq!((changed.display_name, changed.notification_channel.as_deref()), (None, Some("slack")));
    assert_eq!(role().await, "viewer");
    assert_eq!(client.token(&token.token_id).await.unwrap().role, "viewer");
    client.update_user(&user.user_id, &json!({"disabled": true})).await.unwrap();
    assert_eq!(as_token(&server, &secret, "/api/v1/me").await.0, StatusCode::UNAUTHORIZED);
    client.update_user(&user.user_id, &json!({"disabled": null})).await.unwrap();
    assert_eq!(role().await, "viewer");
    client.remove_user(&user.user_id).await.unwrap();
    assert_eq!(as_token(&server, &secret, "/api/v1/me").await.0, StatusCode::UNAUTHORIZED);
    assert!(client.token(&token.token_id).await.unwrap_err().is_not_found());
    assert!(client.user(&user.user_id).await.unwrap_err().is_not_found());
    assert!(client.update_user("ann@example.org", &patch).await.unwrap_err().is_not_found());
}
