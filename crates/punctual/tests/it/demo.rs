//! `punctual demo`: example jobs on a running server.

use crate::redact::redacted;
use crate::server::Server;
use punctual_core::job::JobStatus;
use std::process::Command;

#[tokio::test]
async fn the_demo_ends_as_it_says_and_can_be_repeated_and_removed() {
    let server = Server::start();
    server.submit(serde_json::json!({"name": "demo-nap", "job_type": "noop"})).await;
    let told = server.said(&["demo"]);
    insta::assert_snapshot!(
        "demo_told",
        redacted(&told).replace("COMPLETED", "[ended]").replace("ACTIVE", "[ended]")
    );
    let status = async |name: &str| {
        let id: serde_json::Value =
            serde_json::from_str(&server.said(&["job", "list", "--name", name, "-o", "json"])).unwrap();
        let tagged = id["items"].as_array().unwrap().iter().find(|job| job["tags"][0] == "demo").unwrap();
        serde_json::from_value::<JobStatus>(tagged["status"].clone()).unwrap()
    };
    for name in ["demo-flaky", "demo-extract", "demo-transform", "demo-load", "demo-later", "demo-nap"] {
        assert_eq!(status(name).await, JobStatus::Completed, "{name}");
    }
    assert_eq!(status("demo-hopeless").await, JobStatus::Failed);
    let flaky = server.said(&["job", "history", "demo-flaky"]);
    // A slow machine may need one attempt more.
    assert!(flaky.matches("TIMED_OUT").count() >= 2, "{flaky}");
    assert_eq!(flaky.matches("SUCCEEDED").count(), 1, "{flaky}");
    assert!(server.said(&["dlq", "list"]).contains("demo-hopeless"));
    let again = server.said(&["demo", "--no-watch", "-o", "json"]);
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&again["removed"], again["items"].as_array().unwrap().len()), (&8.into(), 8));
    assert_eq!(server.said(&["demo", "--clean"]), "removed 8 jobs of the demo\n");
    assert_eq!(server.said(&["demo", "--clean"]), "removed 0 jobs of the demo\n");
    // Other jobs with the same name are kept.
    assert_eq!(server.client().jobs(&Default::default()).await.unwrap().items.len(), 1);
}

#[test]
fn without_a_server_the_demo_says_how_to_start_one() {
    let directory = tempfile::tempdir().unwrap();
    let output =
        Command::new(crate::server::BINARY).arg("demo").current_dir(directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stderr).contains("start `punctual serve`"));
}
