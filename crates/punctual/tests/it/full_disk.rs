//! A full disk: the server acknowledges only jobs that it stored, and loses none of them.

use crate::server::{BINARY, Server};
use punctual_client::{ClientError, SubmitJob};
use punctual_core::ids::JobId;
use reqwest::{Method, StatusCode};
use serde_json::json;

/// The maximum size of any file in kilobytes: the write-ahead log reaches it soon.
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

    // The disk is still full, and the server starts anyway.
    let server = Server::start_through(&["bash", "-c", &script, BINARY], directory.path());
    let client = server.client();
    for id in &acknowledged {
        client.job(*id).await.unwrap();
    }
    server.kill();

    let server = Server::start_in(directory.path(), &[]);
    let client = server.client();
    for id in acknowledged {
        client.job(id).await.unwrap();
    }
    client.submit(&large).await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_write_down_its_address_serves_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let [data, log] = ["data", "log"].map(|name| directory.path().join(name));
    let server = Server::start_in(&data, &[]);
    let job = server.submit(json!({"name": "kept", "delay": "1h"})).await;
    let address = data.join("server.address");
    assert_eq!(std::fs::read_to_string(&address).unwrap().trim(), server.address);
    server.kill();

    // A directory in place of the temporary file prevents the write, as a full disk does.
    std::fs::create_dir(data.join("server.new")).unwrap();
    let script = format!("exec \"$0\" \"$@\" 2>'{}'", log.display());
    let server = Server::start_through(&["sh", "-c", &script, BINARY], &data);
    server.client().job(job).await.unwrap();
    assert!(!address.exists(), "commands must not turn to where the last server listened");
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(
        said.contains("cannot write") && said.contains(&format!("--server {}", server.address)),
        "{said}"
    );
}
