//! Secrets on a shared database: servers without a key, with the same keys, and with different ones.

use crate::cluster::{Cluster, Process};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const VALUE: &str = "correct-horse-battery";

/// An API server with this key.
fn api(cluster: &Cluster, byte: u8) -> Process {
    let file = cluster.directory.path().join(format!("key{byte}"));
    std::fs::write(&file, format!("{byte:02x}").repeat(32)).unwrap();
    cluster.start(&["api", "--listen", "127.0.0.1:0", "--secrets-key-file", file.to_str().unwrap()])
}

async fn say(api: &Process, cluster: &Cluster, path: &str, body: Value) -> Value {
    let (status, answer) = api.request(cluster, Method::POST, path, Some(body)).await;
    assert!(status.is_success(), "{path}: {answer}");
    answer
}

async fn set(api: &Process, cluster: &Cluster) -> (StatusCode, Value) {
    let secret = json!({"value": VALUE, "owners": ["*"]});
    api.request(cluster, Method::PUT, "/api/v1/secrets/token", Some(secret)).await
}

#[tokio::test]
async fn a_shared_database_needs_a_key_and_each_server_redacts_what_reaches_it() {
    Cluster::with(async |cluster| {
        let bare = cluster.api();
        let (status, problem) = set(&bare, cluster).await;
        assert_eq!(status, StatusCode::CONFLICT, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("secrets.key_file or PUNCTUAL_SECRETS_KEY"), "{detail}");

        let (first, second, other) = (api(cluster, 1), api(cluster, 1), api(cluster, 2));
        assert_eq!(set(&first, cluster).await.0, StatusCode::CREATED);
        let opening = json!({"worker": "raw", "job_types": ["raw"], "lease_secs": 600});
        let session = say(&first, cluster, "/api/v1/worker/sessions", opening).await["session"].clone();
        let job = json!({"name": "raw", "payload": {"$secret": "token"}, "max_retries": 0});
        // Handed out by one server, reported to another: with the same key, without one, and with another one.
        let reporters =
            [(&second, "failed with [secret token]"), (&bare, "[withheld: "), (&other, "[withheld: ")];
        for (turn, (reporter, expected)) in (1..).zip(reporters) {
            let id = second.submit(cluster, job.clone()).await;
            let poll = json!({"session": session, "turn": turn, "job_types": ["raw"], "wait_secs": 30});
            let polled = say(&first, cluster, "/api/v1/worker/poll", poll).await;
            let found = &polled["assignments"][0];
            assert_eq!(found["payload"], VALUE, "{polled}");
            let logs = json!({"session": session, "execution_id": found["execution_id"],
                "lines": [{"message": format!("failed with {VALUE}")}]});
            say(reporter, cluster, "/api/v1/worker/logs", logs).await;
            let report = json!({"session": session, "execution_id": found["execution_id"],
                "epoch": found["epoch"], "outcome": "failed", "error": format!("failed with {VALUE}")});
            say(reporter, cluster, "/api/v1/worker/report", json!({"reports": [report]})).await;
            let (_, logs) =
                first.request(cluster, Method::GET, &format!("/api/v1/jobs/{id}/logs"), None).await;
            let message = logs["items"][0]["message"].as_str().unwrap();
            assert!(message.starts_with(expected), "{message}");
            let executions = first.executions(cluster, id).await;
            let error = executions[0]["error_message"].as_str().unwrap();
            assert!(error.starts_with(expected), "{error}");
        }
        // A server with another key hands out nothing, and says why.
        let id = second.submit(cluster, job.clone()).await;
        let poll = json!({"session": session, "turn": 4, "job_types": ["raw"], "wait_secs": 30});
        let polled = say(&other, cluster, "/api/v1/worker/poll", poll).await;
        assert_eq!(polled["assignments"], json!([]), "{polled}");
        let executions = first.executions(cluster, id).await;
        let error = executions[0]["error_message"].as_str().unwrap();
        assert!(error.contains("encrypted with the key") && error.contains("secrets.key_file"), "{error}");
    })
    .await;
}
