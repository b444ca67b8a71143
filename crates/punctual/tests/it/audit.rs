//! The audit log, end to end.

use crate::browser::Browser;
use crate::cluster::Cluster;
use crate::principals::Principal;
use crate::server::{Server, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::fs;

/// Entries of the audit log that match these filters, latest first.
fn entries(server: &Server, filters: &[&str]) -> Vec<Value> {
    let said = server.said(&[&["audit", "-o", "json"], filters].concat());
    let page: Value = serde_json::from_str(&said).expect("JSON");
    page["items"].as_array().expect("a list").clone()
}

/// Waits until all entries are sealed.
async fn sealed(server: &Server) {
    let is_sealed = |entry: &Value| entry["number"].is_number() && entry["hash"].is_string();
    eventually("all entries are sealed", async || entries(server, &[]).iter().all(is_sealed)).await;
}

#[tokio::test]
async fn every_change_is_recorded_with_who_and_what() {
    let server = Server::start();
    let job = server.submit(json!({ "job_type": "echo", "name": "a", "cron_expression": "0 3 * * *" })).await;
    let pause = format!("/api/v1/jobs/{job}/pause");
    assert_eq!(server.post(&pause, "").await.0, StatusCode::OK);
    server
        .patch(&format!("/api/v1/jobs/{job}"), &json!({ "name": "b", "payload": { "password": "x" } }))
        .await;
    let late = json!({ "job_type": "echo", "name": "late", "delay": "1h", "unique_key": "k" });
    let batch = json!({ "jobs": [{ "job_type": "echo", "name": "now" }, late, late] });
    let (status, body) = server.post("/api/v1/jobs/batch", &batch.to_string()).await;
    assert!(status.is_success() && body.to_string().contains("unique_key"), "{body}");
    server.said(&["queue", "pause", "mail"]);
    server.said(&["queue", "set", "mail", "--max-depth", "7"]);
    let token = Principal::create(&server, json!({ "name": "deploy", "role": "viewer" })).await;
    assert_eq!(server.get(&format!("/api/v1/jobs/{job}")).await.0, StatusCode::OK);

    let written = entries(&server, &[]);
    let told: Vec<(&str, &str)> = written
        .iter()
        .map(|entry| (entry["action"].as_str().unwrap(), entry["outcome"].as_str().unwrap()))
        .collect();
    let expected = [
        ("token.create", "ok"),
        ("queue.set", "ok"),
        ("queue.pause", "ok"),
        ("job.submit", "2 of 3"),
        ("job.update", "ok"),
        ("job.pause", "ok"),
        ("job.submit", "ok"),
    ];
    assert_eq!(told, expected);
    assert!(written.iter().all(|entry| entry["token_id"] == "admin" && entry["source"] == "127.0.0.1"));
    assert_eq!(written[5]["object"], format!("job {job}"));
    assert_eq!(written[4]["details"]["name"], json!({ "before": "a", "after": "b" }));
    assert!(!written[4].to_string().contains("password"), "payloads are not repeated");
    assert_eq!(written[3]["details"]["jobs"], 3);
    assert_eq!(written[1]["details"]["after"]["max_depth"], 7);
    assert!(!written[0].to_string().contains("secret"));

    assert_eq!(token.post(&pause, &json!({})).await.0, StatusCode::FORBIDDEN);
    let refused = ["--outcome", "refused"];
    eventually("the refusal is recorded", async || !entries(&server, &refused).is_empty()).await;
    let refused = entries(&server, &refused);
    assert_eq!(
        (refused[0]["action"].as_str(), refused[0]["name"].as_str()),
        (Some("job.pause"), Some("deploy"))
    );
    assert_eq!(refused[0]["object"], format!("job {job}"));
    assert_eq!(entries(&server, &["--action", "queue.", "--limit", "1"]).len(), 1);
    assert_eq!(entries(&server, &["--object", "queue mail", "--since", "1h"]).len(), 2);
    for about_the_job in [job.to_string(), "b".to_owned()] {
        let found = entries(&server, &["--object", &about_the_job]);
        assert!(found.iter().any(|entry| entry["action"] == "job.update"), "{about_the_job}: {found:?}");
    }
    let unknown = server.cli(&["audit", "--object", "nothing"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("nothing is no object and no job"));
    let reason = refused[0]["outcome"].as_str().unwrap();
    assert!(server.said(&["audit", "--outcome", "refused"]).contains(reason), "{reason}");
    assert!(entries(&server, &["--until", "1h"]).is_empty());
    assert!(server.said(&["audit"]).contains("queue.pause"));
    let (status, _) = token.get("/api/v1/audit").await;
    assert_eq!(status, StatusCode::FORBIDDEN);

    let forged = format!("{}0", token.secret);
    let answer = server.anonymous(Method::GET, "/api/v1/me").bearer_auth(forged).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let unauthenticated = ["--action", "token.use", "--token-id", &token.id];
    eventually("a wrong secret is recorded", async || !entries(&server, &unauthenticated).is_empty()).await;
}

#[tokio::test]
async fn an_entry_that_was_changed_in_the_file_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &[]);
    for queue in ["first", "second", "third"] {
        server.said(&["queue", "pause", queue]);
    }
    sealed(&server).await;
    let verified = server.said(&["audit", "verify"]);
    assert!(verified.starts_with("3 entries are unchanged; the last entry is 3 with hash "), "{verified}");
    assert!(!verified.contains("not sealed"), "{verified}");
    assert!(server.stop().success());

    let file = directory.path().join("punctual.db");
    let mut bytes = fs::read(&file).unwrap();
    let (written, forged) = (b"queue second", b"queue secoND");
    let places: Vec<usize> =
        (0..bytes.len() - written.len()).filter(|at| bytes[*at..].starts_with(written)).collect();
    assert!(!places.is_empty(), "it is in the file");
    for at in places {
        bytes[at..at + forged.len()].copy_from_slice(forged);
    }
    fs::write(&file, bytes).unwrap();

    let server = Server::start_in(directory.path(), &[]);
    let output = server.cli(&["audit", "verify", "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let check: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&check["broken"]["number"], &check["checked"]), (&json!(2), &json!(1)));
    let output = server.cli(&["audit", "verify"]);
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("entry 2 is not as it was written: "));
}

#[tokio::test]
async fn entries_that_no_scheduler_has_sealed_are_counted() {
    Cluster::with(async |cluster| {
        let api = cluster.api();
        for queue in ["first", "second", "third"] {
            let path = format!("/api/v1/queues/{queue}/pause");
            let (status, body) = api.request(cluster, Method::POST, &path, None).await;
            assert_eq!(status, StatusCode::OK, "{body}");
        }
        let (_, check) = api.request(cluster, Method::GET, "/api/v1/audit/verify", None).await;
        assert_eq!((&check["checked"], &check["broken"]), (&json!(0), &Value::Null), "{check}");
        let unsealed = check["unsealed"].as_u64().expect("a number");
        assert!(unsealed >= 3, "{check}");
        let _scheduler = cluster.scheduler();
        eventually("all entries are sealed", async || {
            let (_, check) = api.request(cluster, Method::GET, "/api/v1/audit/verify", None).await;
            check["unsealed"] == json!(0) && check["checked"].as_u64() >= Some(unsealed)
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_change_that_would_leave_nobody_in_charge_is_recorded() {
    let server = Server::start();
    let output = server.cli(&["token", "revoke", "admin"]);
    assert!(!output.status.success());
    let filters = ["--action", "token.revoke", "--outcome", "refused", "--object", "token admin"];
    eventually("the refusal is recorded", async || !entries(&server, &filters).is_empty()).await;
    let why = entries(&server, &filters)[0]["outcome"].as_str().unwrap().to_owned();
    assert!(why.contains("token admin is the last token or user"), "{why}");
}

#[tokio::test]
async fn a_refused_request_of_the_form_for_users_names_its_job() {
    let server = Server::start();
    let job = server.submit(json!({ "job_type": "noop", "name": "a", "delay": "1h" })).await;
    let viewer = Principal::create(&server, json!({ "name": "ann", "role": "viewer" })).await;
    let path = format!("/users/default/jobs/{job}");
    let answer = server.anonymous(Method::DELETE, &path).bearer_auth(&viewer.secret).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    let object = format!("job {job}");
    let filters = ["--action", "job.delete", "--object", &object];
    eventually("the refusal names the job", async || !entries(&server, &filters).is_empty()).await;
}

/// Ten entries, and one that counts the other two.
#[tokio::test]
async fn refused_requests_are_recorded_also_if_the_server_stops_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &[]);
    let viewer = Principal::create(&server, json!({ "name": "ann", "role": "viewer" })).await;
    for _ in 0..12 {
        let (status, _) = viewer.post("/api/v1/jobs", &json!({"name": "a", "job_type": "noop"})).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
    }
    assert!(server.stop().success());

    let server = Server::start_in(directory.path(), &[]);
    let refused = entries(&server, &["--action", "job.submit", "--outcome", "refused"]);
    assert_eq!(refused.len(), 11, "{refused:?}");
    assert_eq!(
        refused.iter().filter(|entry| entry["details"]["suppressed"] == json!(2)).count(),
        1,
        "{refused:?}"
    );
}

#[test]
fn an_outcome_that_no_entry_has_is_refused() {
    let server = Server::start();
    let output = server.cli(&["audit", "--outcome", "bogus"]);
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("outcome") && said.contains("must be ok, refused"), "{said}");
}

#[tokio::test]
async fn logins_logouts_and_a_new_admin_token_are_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &[]);
    let token = Principal::create(&server, json!({ "name": "ann", "role": "viewer" })).await;
    let address = format!("http://{}", server.address);
    let mut browser = Browser::new();
    let page = browser.submit(&format!("{address}/login"), &format!("token={}", token.secret)).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    assert_eq!(browser.submit(&format!("{address}/logout"), "").await.status, StatusCode::SEE_OTHER);
    let told = entries(&server, &["--action", "session."]);
    let actions: Vec<&str> = told.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["session.close", "session.open"]);
    let (close, open) = (&told[0], &told[1]);
    assert_eq!(
        (&open["token_id"], &open["name"], &open["source"]),
        (&json!(token.id), &json!("ann"), &json!("127.0.0.1"))
    );
    assert_eq!((&open["object"], &open["details"]["role"]), (&close["object"], &json!("viewer")));
    assert!(!open.to_string().contains(&token.secret));

    for (wrong, known) in
        [(format!("{}0", token.secret), token.id.as_str()), ("nonsense".to_owned(), "unknown")]
    {
        let page = browser.submit(&format!("{address}/login"), &format!("token={wrong}")).await;
        assert_eq!(page.status, StatusCode::UNAUTHORIZED);
        let filters = ["--action", "session.open", "--outcome", "refused", "--token-id", known];
        eventually("the refused login is recorded", async || !entries(&server, &filters).is_empty()).await;
        let told = entries(&server, &filters);
        assert_eq!((&told[0]["object"], &told[0]["source"]), (&json!("login"), &json!("127.0.0.1")));
    }

    assert!(server.stop().success());
    let server = Server::start_in(directory.path(), &["--new-admin-token"]);
    let told = entries(&server, &["--object", "token admin"]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((&told[0]["action"], &told[0]["name"]), (&json!("token.rotate"), &json!("punctual serve")));
    assert_eq!(told[0]["details"]["reason"], "--new-admin-token");
}
