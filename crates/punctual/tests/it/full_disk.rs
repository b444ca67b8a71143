//! A disk that is full: what cannot be kept is not acknowledged, and what was acknowledged stays.

use crate::server::{BINARY, Server};
use punctual_client::{ClientError, SubmitJob};
use punctual_core::ids::JobId;
use reqwest::{Method, StatusCode};
use serde_json::json;

/// Kilobytes that any one file may have: the write-ahead log reaches it soon.
const FILE_KILOBYTES_MAX: u32 = 512;

#[tokio::test]
async fn a_full_disk_answers_503_and_keeps_what_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    // With the signal ignored, a write beyond the limit is an error, as on a full disk.
    let script = format!("trap '' XFSZ; ulimit -f {FILE_KILOBYTES_MAX}; exec \"$0\" \"$@\"");
    let server = Server::start_through(&["bash", "-c", &script, BINARY], directory.path());
    let client = server.client();
    let large = SubmitJob {
        delay: Some("1h".parse().unwrap()),
        ..SubmitJob::named("large").with_payload(&"x".repeat(10_000)).unwrap()
    };
    let mut acknowledged: Vec<JobId> = Vec::new();
    let refused = loop {
        match client.submit(&large).await {
            Ok(submitted) => acknowledged.push(submitted.job_id),
            Err(error) => break error,
        }
        assert!(acknowledged.len() < 1_000, "the disk never gets full");
    };
    assert!(matches!(&refused, ClientError::Refused(problem) if problem.status == 503), "{refused}");
    assert!(refused.is_retryable());
    let request = server.request(Method::POST, "/api/v1/jobs");
    let response = request.json(&json!({"name": "x", "delay": "1h", "payload": "x".repeat(10_000)}));
    let response = response.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    server.kill();

    let server = Server::start_in(directory.path(), &[]);
    let client = server.client();
    for id in acknowledged {
        client.job(id).await.unwrap();
    }
    client.submit(&large).await.unwrap();
}
