//! Runs that users ask for: with their own payload, and of finished occurrences once more.

use crate::principals::Principal;
use crate::server::{Server, eventually};
use punctual_client::ExecutionStatus;
use punctual_core::ids::JobId;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::path::Path;

const MARKER: &str = "own-payload-4711";

/// A job whose handler prints its payload as its result.
fn echo() -> Value {
    json!({"name": "echo", "job_type": "shell", "payload": {"script": "echo '{\"said\": \"usual\"}'"},
        "cron_expression": "0 0 1 1 *"})
}

fn saying(words: &str) -> Value {
    json!({"payload": {"script": format!("echo '{{\"said\": \"{words}\"}}'")}})
}

/// The finished execution of this answer.
async fn ended(server: &Server, started: &Value) -> Value {
    let path = format!("/api/v1/executions/{}", started["execution_id"].as_str().unwrap());
    eventually("it ends", async || server.get(&path).await.1["completed_at"].is_string()).await;
    server.get(&path).await.1
}

async fn trigger(server: &Server, job: JobId, body: &Value) -> Value {
    let (status, started) = server.post(&format!("/api/v1/jobs/{job}/trigger"), &body.to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{started}");
    started
}

async fn rerun(server: &Server, execution: &Value, body: &Value) -> (StatusCode, Value) {
    let id = execution["execution_id"].as_str().unwrap();
    server.post(&format!("/api/v1/executions/{id}/rerun"), &body.to_string()).await
}

#[tokio::test]
async fn a_trigger_may_replace_the_payload_for_one_run() {
    let server = Server::start_with(&["--allow", "shell"]);
    let job = server.submit(echo()).await;
    let own = ended(&server, &trigger(&server, job, &saying("own")).await).await;
    assert_eq!(own["result"], json!({"said": "own"}), "{own}");
    assert_eq!((&own["payload"], &own["repeats"]), (&saying("own")["payload"], &Value::Null));
    let usual = ended(&server, &trigger(&server, job, &json!({})).await).await;
    assert_eq!((&usual["result"], usual.get("payload")), (&json!({"said": "usual"}), None));
    assert_eq!(server.get(&format!("/api/v1/jobs/{job}")).await.1["payload"], echo()["payload"]);

    let path = format!("/api/v1/jobs/{job}/trigger");
    let (status, refused) = server.post(&path, &json!({"payload": {"scrip": "date"}}).to_string()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
    assert!(refused.to_string().contains("payload"), "{refused}");
    let (status, refused) =
        server.post(&path, &json!({"payload": {"script": {"$secret": "nil"}}}).to_string()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");

    let shown = server.said(&[
        "job",
        "trigger",
        &job.to_string(),
        "--payload",
        &saying("cli")["payload"].to_string(),
        "--wait",
    ]);
    assert!(shown.contains(r#"{"said": "cli"}"#) && shown.contains("Payload"), "{shown}");
}

#[tokio::test]
async fn a_finished_occurrence_can_run_again_with_the_same_or_another_payload() {
    let server = Server::start_with(&["--allow", "shell"]);
    let job = server.submit(echo()).await;
    let first = ended(&server, &trigger(&server, job, &saying("own")).await).await;
    let (status, again) = rerun(&server, &first, &json!({})).await;
    assert_eq!(status, StatusCode::CREATED, "{again}");
    let again = ended(&server, &again).await;
    assert_eq!((&again["result"], &again["origin"]), (&json!({"said": "own"}), &json!("trigger")));
    assert_eq!(again["repeats"], json!(format!("{job}.1")));
    assert_eq!(again["scheduled_time"], first["scheduled_time"], "handlers see which time they repeat");
    let (_, edited) = rerun(&server, &first, &saying("edited")).await;
    let edited = ended(&server, &edited).await;
    assert_eq!(
        (&edited["result"], &edited["repeats"]),
        (&json!({"said": "edited"}), &json!(format!("{job}.1")))
    );
    let usual = ended(&server, &trigger(&server, job, &json!({})).await).await;
    let (_, usual) = rerun(&server, &usual, &json!({})).await;
    assert_eq!(ended(&server, &usual).await["result"], json!({"said": "usual"}));
    assert_eq!(
        server.get(&format!("/api/v1/executions/{job}.1.1")).await.1,
        first,
        "finished executions never change"
    );

    let shown = server.said(&["executions", "rerun", &format!("{job}.1.1"), "--wait"]);
    assert!(shown.contains(&format!("{job}.1")) && shown.contains("SUCCEEDED"), "{shown}");
}

#[tokio::test]
async fn an_open_occurrence_cannot_be_run_again() {
    let server = Server::start();
    let sleep = json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 600_000}});
    let job = server.submit(sleep).await;
    let (status, refused) = rerun(&server, &json!({"execution_id": format!("{job}.1.1")}), &json!({})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("is still open"), "{refused}");
    let (status, _) = rerun(&server, &json!({"execution_id": format!("{job}.7.1")}), &json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

fn has_marker(directory: &Path) -> bool {
    let files = std::fs::read_dir(directory).unwrap().flatten();
    let contains = |bytes: Vec<u8>| bytes.windows(MARKER.len()).any(|part| part == MARKER.as_bytes());
    files.into_iter().any(|file| std::fs::read(file.path()).is_ok_and(contains))
}

#[tokio::test]
async fn the_payload_of_a_run_survives_a_kill_and_is_encrypted_like_that_of_a_job() {
    let directory = tempfile::tempdir().unwrap();
    let (data, keys) = (directory.path().join("data"), directory.path().join("keys"));
    std::fs::write(&keys, "01".repeat(32)).unwrap();
    let options = ["--secrets-key-file", keys.to_str().unwrap(), "--store-encrypt-payloads"];
    let server = Server::start_in(&data, &options);
    let job =
        server.submit(json!({"name": "later", "job_type": "raw", "cron_expression": "0 0 1 1 *"})).await;
    let started = trigger(&server, job, &json!({"payload": {"text": MARKER}})).await;
    assert_eq!(started["payload"], json!({"text": MARKER}));
    server.kill();

    let server = Server::start_in(&data, &options);
    assert!(!has_marker(&data), "it is stored in plain text");
    let opening = json!({"worker": "raw", "job_types": ["raw"], "lease_secs": 600});
    let session = server.post("/api/v1/worker/sessions", &opening.to_string()).await.1["session"].clone();
    let poll = json!({"session": session, "turn": 1, "job_types": ["raw"], "wait_secs": 30});
    let work = server.post("/api/v1/worker/poll", &poll.to_string()).await.1["assignments"][0].clone();
    assert_eq!(work["payload"], json!({"text": MARKER}), "{work}");
    let report = json!({"reports": [{"session": session, "execution_id": work["execution_id"], "epoch": work["epoch"],
        "outcome": "succeeded"}]});
    assert!(server.post("/api/v1/worker/report", &report.to_string()).await.0.is_success());
    let finished = ended(&server, &started).await;
    assert_eq!(finished["payload"], json!({"text": MARKER}));
    assert_eq!(finished["status"], json!(ExecutionStatus::Succeeded));
    let (_, again) = rerun(&server, &finished, &json!({})).await;
    assert_eq!(again["payload"], json!({"text": MARKER}));
    assert!(!has_marker(&data), "it is stored in plain text");
}

#[tokio::test]
async fn the_payload_of_a_run_needs_the_right_to_read_payloads() {
    let server = Server::start();
    let job =
        server.submit(json!({"name": "later", "job_type": "raw", "cron_expression": "0 0 1 1 *"})).await;
    let started = trigger(&server, job, &json!({"payload": {"text": MARKER}})).await;
    let path = format!("/api/v1/executions/{}", started["execution_id"].as_str().unwrap());
    let viewer = Principal::create(&server, json!({"name": "eye", "role": "viewer"})).await;
    let (status, shown) = viewer.get(&path).await;
    assert_eq!(status, StatusCode::OK);
    assert!(!shown.to_string().contains(MARKER), "{shown}");
}
