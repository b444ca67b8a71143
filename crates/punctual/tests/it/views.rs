//! Saved views, which belong to one caller, and the effective settings of a server.

use crate::server::Server;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

async fn names(server: &Server, token: &str) -> Vec<String> {
    let answer = server.anonymous(Method::GET, "/api/v1/views").bearer_auth(token).send().await;
    let page: Value = answer.expect("an answer").json().await.expect("a page");
    let items = page["items"].as_array().expect("a list").iter();
    items.map(|view| view["name"].as_str().expect("a name").to_owned()).collect()
}

async fn secret(server: &Server, role: &str) -> (String, String) {
    let body = json!({"name": role, "role": role}).to_string();
    let (_, token) = server.post("/api/v1/tokens", &body).await;
    let text = |field: &str| token[field].as_str().expect("a text").to_owned();
    (text("token_id"), text("secret"))
}

/// The status of an answer and its body, if it has one.
async fn sent(request: RequestBuilder) -> (StatusCode, Value) {
    let answer = request.send().await.expect("an answer");
    (answer.status(), serde_json::from_slice(&answer.bytes().await.expect("a body")).unwrap_or_default())
}

async fn save(server: &Server, name: &str, view: &'static str) -> (StatusCode, Value) {
    let path = format!("/api/v1/views/{name}");
    sent(server.request(Method::PUT, &path).header("content-type", "application/json").body(view)).await
}

#[tokio::test]
async fn each_caller_has_views_of_its_own() {
    let server = Server::start();
    let view = r#"{"page": "jobs", "query": "status=ACTIVE&tag=a%20b"}"#;
    let (status, saved) = save(&server, "my%20jobs", view).await;
    assert_eq!(status, StatusCode::CREATED, "{saved}");
    assert_eq!(saved, json!({"name": "my jobs", "page": "jobs", "query": "status=ACTIVE&tag=a%20b"}));
    let (status, saved) = save(&server, "my%20jobs", r#"{"page": "executions"}"#).await;
    assert_eq!((status, &saved["query"]), (StatusCode::OK, &json!("")));

    let (id, viewer) = secret(&server, "viewer").await;
    let own = server.anonymous(Method::PUT, "/api/v1/views/late").bearer_auth(&viewer);
    let own = own.header("content-type", "application/json").body(view).send().await.expect("an answer");
    assert_eq!(own.status(), StatusCode::CREATED, "a viewer may keep views");
    assert_eq!(names(&server, &viewer).await, ["late"]);
    assert_eq!(names(&server, &server.token).await, ["my jobs"]);
    let other = server.anonymous(Method::DELETE, "/api/v1/views/my%20jobs").bearer_auth(&viewer);
    assert_eq!(other.send().await.expect("an answer").status(), StatusCode::NOT_FOUND);

    for (name, wrong, field) in [
        ("a", r#"{"page": "Jobs"}"#, "page"),
        ("a", r#"{"page": "jobs", "query": "?a=b"}"#, "query"),
        ("%00", r#"{"page": "jobs"}"#, "name"),
    ] {
        let (status, problem) = save(&server, name, wrong).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        assert_eq!(problem["errors"][0]["field"], field);
    }
    let (status, _) = sent(server.request(Method::DELETE, "/api/v1/views/my%20jobs")).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let (status, _) = sent(server.request(Method::DELETE, &format!("/api/v1/tokens/{id}"))).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert!(names(&server, &server.token).await.is_empty());
}

#[tokio::test]
async fn operators_see_the_settings_and_where_they_come_from_without_secrets() {
    let heartbeat = "https://hc.example.org/ping/4f2a";
    let command = "pager=/bin/page --key 4f2a";
    let server = Server::start_with(&[
        "--slots",
        "3",
        "--notify-heartbeat-url",
        heartbeat,
        "--notify-commands",
        command,
        "--events",
        "redis://ann:4f2a@127.0.0.1:1",
    ]);
    let (status, settings) = server.get("/api/v1/settings").await;
    assert_eq!(status, StatusCode::OK, "{settings}");
    let of = |key: &str| -> Value {
        let items = settings["items"].as_array().expect("a list");
        items.iter().find(|item| item["key"] == key).cloned().unwrap_or_default()
    };
    assert_eq!((&of("slots")["value"], &of("slots")["from"]), (&json!(3), &json!("flag")));
    assert_eq!(of("slots")["origin"], "--slots");
    assert_eq!((&of("clock")["value"], &of("clock")["from"]), (&json!("system"), &json!("default")));
    assert!(of("data_dir")["value"].is_string());
    assert_eq!(
        (&of("notify.heartbeat_url")["value"], &of("notify.heartbeat_url")["hidden"]),
        (&Value::Null, &json!(true))
    );
    assert_eq!(of("notify.commands")["value"], json!(["pager=/bin/page (2 arguments)"]));
    assert!(of("events.url")["value"].as_str().is_some_and(|url| url.contains("127.0.0.1:1")), "{settings}");
    assert!(!settings.to_string().contains("4f2a"), "{settings}");
    for (role, expected) in [("viewer", StatusCode::FORBIDDEN), ("operator", StatusCode::OK)] {
        let (_, secret) = secret(&server, role).await;
        let asked = server.anonymous(Method::GET, "/api/v1/settings").bearer_auth(secret);
        assert_eq!(asked.send().await.expect("an answer").status(), expected, "{role}");
    }
}
