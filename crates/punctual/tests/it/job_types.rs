//! Job types with a schema: payloads are checked when jobs are submitted and changed.

use crate::server::Server;
use reqwest::Method;
use serde_json::{Value, json};

const SCHEMA: &str = r#"{"schema": {"type": "object", "required": ["customer"], "additionalProperties": false,
    "properties": {"customer": {"type": "integer", "minimum": 1}, "items": {"type": "array", "items": {"type": "string"}}}}}"#;

async fn put(server: &Server, name: &str, body: &str) -> (u16, Value) {
    let request = server.request(Method::PUT, &format!("/api/v1/job-types/{name}"));
    let (status, answer) =
        crate::server::answer(request.header("content-type", "application/json").body(body.to_owned())).await;
    (status.as_u16(), answer)
}

fn problem(answer: &Value) -> String {
    let error = &answer["errors"][0];
    format!(
        "{} {}",
        error["field"].as_str().unwrap_or_default(),
        error["message"].as_str().unwrap_or_default()
    )
}

#[tokio::test]
async fn payloads_that_do_not_match_are_refused_with_their_path() {
    let server = Server::start();
    let job = |payload: Value| json!({"name": "a", "job_type": "bill", "payload": payload}).to_string();
    assert_eq!(server.post("/api/v1/jobs", &job(json!("anything"))).await.0, 201);

    assert_eq!(put(&server, "bill", SCHEMA).await.0, 201);
    let (status, answer) = put(&server, "bill", SCHEMA).await;
    assert_eq!((status, &answer["version"]), (200, &json!(2)));
    for (payload, said) in [
        (json!("anything"), "payload must be an object"),
        (json!({}), "payload.customer is missing"),
        (json!({"customer": 0}), "payload.customer must be at least 1"),
        (json!({"customer": 1, "items": ["a", 2]}), "payload.items[1] must be a string"),
        (json!({"customer": 1, "custmer": 1}), "payload.custmer is unknown; known are customer, items"),
    ] {
        let (status, answer) = server.post("/api/v1/jobs", &job(payload)).await;
        assert_eq!(status, 422, "{answer}");
        assert!(answer.to_string().contains(said), "{said}: {answer}");
        assert!(problem(&answer).contains("payload"), "{answer}");
    }
    let (status, submitted) = server.post("/api/v1/jobs", &job(json!({"customer": 7}))).await;
    assert_eq!(status, 201, "{submitted}");

    // A batch refuses one job and accepts the other.
    let batch = json!({"jobs": [{"name": "a", "job_type": "bill", "payload": {}}, {"name": "b", "job_type": "bill", "payload": {"customer": 1}}]});
    let (_, answer) = server.post("/api/v1/jobs/batch", &batch.to_string()).await;
    assert!(answer["items"][0].to_string().contains("payload.customer is missing"), "{answer}");
    assert!(answer["items"][1]["job_id"].is_string(), "{answer}");

    // Changes are checked, too.
    let path = format!("/api/v1/jobs/{}", submitted["job_id"].as_str().unwrap());
    let (status, answer) = server.patch(&path, &json!({"payload": {"customer": "x"}})).await;
    assert_eq!(status, 422);
    assert!(answer.to_string().contains("payload.customer must be a whole number"), "{answer}");

    // So is a payload for one run.
    let (status, answer) = server.post(&format!("{path}/trigger"), r#"{"payload": {"customer": 0}}"#).await;
    assert_eq!(status, 422, "{answer}");
    assert!(answer.to_string().contains("payload.customer must be at least 1"), "{answer}");

    let request = server.request(Method::DELETE, "/api/v1/job-types/bill");
    assert_eq!(crate::server::answer(request).await.0, 204);
    assert_eq!(server.post("/api/v1/jobs", &job(json!("anything"))).await.0, 201);
    assert_eq!(server.get("/api/v1/job-types/bill").await.0, 404);
}

#[tokio::test]
async fn a_schema_that_would_not_be_checked_is_refused() {
    let server = Server::start();
    for (name, body, said) in [
        ("bill", r#"{"schema": {"typ": "object"}}"#, "schema.typ is a keyword that Punctual does not check"),
        ("bill", r#"{"schema": {"$ref": "https://example.com/"}}"#, "schema.$ref must refer to a definition"),
        ("bill", "{}", "schema"),
        ("shell", r#"{"schema": {}}"#, "is a built-in job type"),
        ("%20bill", r#"{"schema": {}}"#, "must not begin or end with white space"),
    ] {
        let (status, answer) = put(&server, name, body).await;
        assert_eq!(status, 422, "{answer}");
        assert!(answer.to_string().contains(said), "{said}: {answer}");
    }
    let (status, answer) = server.post("/api/v1/jobs", r#"{"name": "a", "job_type": ".."}"#).await;
    assert_eq!(status, 422);
    assert!(answer.to_string().contains("job_type"), "{answer}");
}

#[tokio::test]
async fn workers_register_schemas_that_people_can_replace() {
    let server = Server::start();
    let open = |schema: Value| {
        let body = json!({"worker": "w", "job_types": ["mail"], "schemas": {"mail": schema}}).to_string();
        let server = &server;
        async move { server.post("/api/v1/worker/sessions", &body).await }
    };
    let registered = || async { server.get("/api/v1/job-types/mail").await.1 };
    assert_eq!(open(json!({"type": "object"})).await.0, 201);
    assert_eq!(registered().await["by_worker"], json!(true));
    let (status, answer) =
        server.post("/api/v1/jobs", r#"{"name": "a", "job_type": "mail", "payload": 1}"#).await;
    assert_eq!(status, 422, "{answer}");
    // The same schema is not stored again; another one is.
    assert_eq!(open(json!({"type": "object"})).await.0, 201);
    assert_eq!(registered().await["version"], json!(1));
    assert_eq!(open(json!({"type": "string"})).await.0, 201);
    assert_eq!(registered().await["version"], json!(2));

    put(&server, "mail", r#"{"schema": {"type": "integer"}}"#).await;
    assert_eq!(open(json!({"type": "object"})).await.0, 201);
    let schema = registered().await;
    assert_eq!((&schema["schema"], &schema["by_worker"]), (&json!({"type": "integer"}), &json!(false)));

    let (status, answer) = open(json!({"typ": "object"})).await;
    assert_eq!(status, 422);
    assert!(answer.to_string().contains("schemas.mail.typ"), "{answer}");
    let other = r#"{"worker": "w", "job_types": ["mail"], "schemas": {"other": {}}}"#;
    let (status, answer) = server.post("/api/v1/worker/sessions", other).await;
    assert_eq!(status, 422);
    assert!(answer.to_string().contains("schemas.other"), "{answer}");
}

#[test]
fn the_command_line_sets_lists_shows_and_removes_schemas() {
    let (server, directory) = (Server::start(), tempfile::tempdir().unwrap());
    let file = directory.path().join("bill.yaml");
    std::fs::write(&file, "type: object\nrequired: [customer]\n").unwrap();
    assert!(server.said(&["type", "list"]).starts_with("no job type has a schema"));
    let said = server.said(&[
        "type",
        "set",
        "bill",
        "--schema",
        file.to_str().unwrap(),
        "--description",
        "Sends bills",
    ]);
    assert_eq!(said, "set the schema of bill (version 1)\n");
    let listed = server.said(&["type", "list"]);
    assert!(listed.contains("bill") && listed.contains("Sends bills"), "{listed}");
    let shown: Value = serde_json::from_str(&server.said(&["type", "show", "bill", "-o", "json"])).unwrap();
    assert_eq!(shown["schema"], json!({"type": "object", "required": ["customer"]}));
    let refused = server.cli(&["job", "submit", "x", "--type", "bill", "--payload", "{}"]);
    assert!(!refused.status.success());
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("payload.customer is missing, as the schema of the job type bill says"), "{told}");
    assert_eq!(server.said(&["type", "remove", "bill"]), "removed the schema of bill\n");
    server.said(&["job", "submit", "x", "--type", "bill", "--payload", "{}"]);
}
