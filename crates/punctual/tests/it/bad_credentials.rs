//! Every operation with credentials that are missing, wrong or for something else, also behind paths that look like
//! others: nothing foreign is answered, and nothing is done.

use crate::access_matrix::{Asked, compatible, operations, operations_about};
use crate::principals::Principal;
use crate::raw::{HERE, Raw};
use crate::server::{Server, eventually};
use serde_json::json;

const NO_JOB: &str = "0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11";
/// In the payload and the output of a job.
const DATA: &str = "data-of-ann";

/// The headers of a request without a valid credential, by name.
async fn credentials(server: &Server) -> Vec<(&'static str, String)> {
    let token = async |fields| Principal::create(server, fields).await;
    let revoked = token(json!({"name": "revoked", "role": "admin"})).await;
    revoked.revoke().await;
    let expired = token(json!({"name": "expired", "role": "admin", "expires_after": "1s"})).await;
    eventually("it has expired", async || expired.get("/api/v1/me").await.0.as_u16() == 401).await;
    let valid = token(json!({"name": "valid", "role": "admin"})).await;
    let bearer = |secret: &str| format!("Authorization: Bearer {secret}\r\n");
    let unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290Iiwicm9sZXMiOlsiYWRtaW4iXX0.";
    vec![
        ("none", String::new()),
        ("garbage", bearer("pt_")),
        ("unknown", bearer("pt_admin1_0123456789abcdef0123456789abcdef")),
        ("wrong secret", bearer(&format!("{}0", valid.secret))),
        ("wrong case", bearer(&valid.secret.to_uppercase())),
        ("expired", bearer(&expired.secret)),
        ("revoked", bearer(&revoked.secret)),
        ("unsigned JWT", bearer(unsigned)),
        ("another scheme", format!("Authorization: Basic {}\r\n", valid.secret)),
        ("two headers", format!("{}{}", bearer(&valid.secret), bearer("pt_a_b"))),
        ("two valid headers", format!("{}{}", bearer(&server.token), bearer(&valid.secret))),
        ("a token as a cookie", format!("Cookie: punctual_{}={}\r\n", port(server), valid.secret)),
        (
            "in other headers",
            format!("X-Authorization: Bearer {0}\r\nProxy-Authorization: Bearer {0}\r\n", valid.secret),
        ),
    ]
}

fn port(server: &Server) -> &str {
    server.address.rsplit(':').next().expect("a port")
}

/// A path and others that a careless check of public paths could confuse with it.
fn variants(path: &str) -> Vec<String> {
    let encoded = path.replacen("/api", "/%61pi", 1);
    vec![
        path.to_owned(),
        format!("{path}/readyz"),
        format!("{path};/livez"),
        format!("{path}?next=/livez"),
        format!("{path}%2f..%2flivez"),
        format!("{path}/../../../livez"),
        format!("/livez/..{path}"),
        format!("/livez/%2e%2e{path}"),
        format!("/{path}"),
        format!("{path}/"),
        encoded,
        path.to_uppercase(),
    ]
}

/// A connection that has sent this request.
async fn sent(server: &Server, asked: &Asked, path: &str, headers: &str) -> Raw {
    let body = asked.body.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut raw = Raw::open(&server.address, HERE).await;
    let head = format!(
        "{} {path} HTTP/1.1\r\nHost: {}\r\n{headers}Content-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        asked.method,
        server.address,
        body.len()
    );
    raw.send(head.as_bytes()).await;
    raw.send(body.as_bytes()).await;
    raw
}

#[tokio::test]
async fn no_operation_answers_without_a_valid_credential() {
    let server = Server::start_with(&["--auth-failure-limit", "none"]);
    let mut operations = operations(&server).await;
    operations.extend(compatible(NO_JOB, "ann"));
    let credentials = credentials(&server).await;
    let state = async || {
        let mut state = Vec::new();
        for path in ["/api/v1/jobs", "/api/v1/queues", "/api/v1/users", "/api/v1/dead-letters"] {
            state.push(server.get(path).await.1);
        }
        state.push(json!(server.get("/api/v1/tokens").await.1["items"].as_array().map(Vec::len)));
        state
    };
    let before = state().await;
    for asked in &operations {
        for path in variants(&asked.path) {
            for (name, headers) in &credentials {
                let status = sent(&server, asked, &path, headers).await.status().await;
                let is_refused = status.is_some_and(|status| (400..500).contains(&status));
                assert!(is_refused, "{} {path} with {name}: {status:?}", asked.method);
            }
        }
    }
    assert_eq!(state().await, before);
}

#[tokio::test]
async fn no_path_leads_past_the_role_or_the_scope_of_a_token() {
    let server = Server::start_with(&["--allow", "shell"]);
    let ann = Principal::submitter(&server, "ann").await;
    let script = format!("echo {DATA}; exit 3");
    let job = ann
        .submit(json!({"name": "payroll", "job_type": "shell", "queue": "pay", "max_retries": 0,
            "payload": {"script": script}}))
        .await;
    let job_path = format!("/api/v1/jobs/{job}");
    eventually("it has failed", async || server.get(&job_path).await.1["status"] == "FAILED").await;
    let state = async || {
        let mut state = Vec::new();
        for path in [
            job_path.as_str(),
            &format!("{job_path}/executions"),
            &format!("{job_path}/logs"),
            "/api/v1/jobs?owner=ann",
            "/api/v1/dead-letters?owner=ann",
            "/api/v1/queues/pay",
            "/api/v1/users",
            "/api/v1/channels",
            "/api/v1/secrets",
        ] {
            state.push(server.get(path).await.1);
        }
        state.push(json!(server.get("/api/v1/tokens").await.1["items"].as_array().map(Vec::len)));
        state
    };
    let token = async |fields| Principal::create(&server, fields).await.secret;
    let callers = [
        // Sees the job, but neither its data nor its output.
        token(json!({"name": "viewer", "role": "viewer"})).await,
        token(json!({"name": "bob", "role": "operator", "owner_id": "bob"})).await,
        token(json!({"name": "mail", "role": "operator", "queues": ["mail"]})).await,
    ];
    let before = state().await;
    let mut operations = operations_about(&server, &job).await;
    operations.extend(compatible(&job, "ann"));
    let mut answered = 0;
    for asked in &operations {
        // It has no end. The tests of events show what it contains.
        if asked.path == "/api/v1/events" {
            continue;
        }
        for path in variants(&asked.path) {
            for (number, secret) in callers.iter().enumerate() {
                let headers = format!("Authorization: Bearer {secret}\r\n");
                let text = sent(&server, asked, &path, &headers).await.rest().await;
                assert!(!text.contains(DATA), "{} {path} by caller {number}: {text}", asked.method);
                let sees_names = number == 0;
                assert!(
                    sees_names || !text.contains("payroll"),
                    "{} {path} by {number}: {text}",
                    asked.method
                );
                answered += usize::from(text.starts_with("HTTP/1.1 200"));
            }
        }
    }
    assert!(answered > 50, "only {answered} requests were answered at all");
    assert_eq!(state().await, before);
    let status = sent(&server, &operations[0], &job_path, "").await.status().await;
    assert_eq!(status, Some(401), "the server still answers");
}

#[tokio::test]
async fn a_body_needs_a_content_type() {
    let server = Server::start_with(&["--clock", "manual"]);
    for operation in operations(&server).await.iter().filter(|asked| asked.body.is_some()) {
        let Asked { method, path, body, .. } = operation;
        let body = body.as_ref().map(ToString::to_string).unwrap_or_default();
        let request = server.request(method.clone(), path).body(body);
        let twice = request.try_clone().expect("a text").header("Content-Type", "application/json");
        let status = request.send().await.expect("an answer").status();
        assert_eq!(status.as_u16(), 415, "{method} {path}");
        let twice = twice.header("Content-Type", "text/plain").send().await.expect("an answer");
        assert_eq!(twice.status().as_u16(), 400, "{method} {path} with two");
    }
}
