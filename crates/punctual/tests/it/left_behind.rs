//! Documents as an earlier release or repeated crashes have left them in the store.

use crate::http::web::{Answer, Web};
use crate::notifications::{OPTIONS, body, deliveries, failing, webhook};
use crate::server::{BINARY, Server, eventually};
use punctual_client::host;
use punctual_core::limits::{DELIVERY_UNFINISHED_MAX, SCHEMA_PATTERNS_MAX};
use punctual_core::ports::{Directory, DirectoryChange, DirectoryOutcome, DocumentChange, DocumentKind};
use punctual_store::sqlite::{SqliteOptions, SqliteStore};
use serde_json::{Value, json};
use std::path::Path;

/// Changes the documents of a kind while no server runs.
async fn rewrite(data_dir: &Path, kind: DocumentKind, change: impl Fn(&str, &mut Value)) {
    let clock = host::this_machine().unwrap().clock;
    let store = SqliteStore::open(&SqliteOptions::new(data_dir), clock).unwrap();
    let documents = store.documents(kind, None, 100).await.unwrap().items;
    assert!(!documents.is_empty(), "there is no {kind:?}");
    let changed = documents.into_iter().map(|document| {
        let mut body: Value = document.read().unwrap();
        change(&document.name, &mut body);
        DocumentChange::Replace(document.changed(&body))
    });
    let changes = DirectoryChange::Documents(changed.collect());
    assert_eq!(store.change_directory(changes, None).await.unwrap(), DirectoryOutcome::Done);
}

#[tokio::test]
async fn a_message_during_which_the_process_always_ends_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let slow = ["--notify-allow", "127.0.0.1/32", "--notify-window", "60s"];
    let server = Server::start_in(folder.path(), &slow);
    for channel in ["last-try", "too-many"] {
        webhook(&server, channel, &web.url(&format!("/{channel}"))).await;
    }
    server.submit(failing("nightly", json!({"on_failure": ["last-try", "too-many"]}))).await;
    eventually("both wait for others of their kind", async || deliveries(&server).await.len() == 2).await;
    server.kill();
    rewrite(folder.path(), DocumentKind::Delivery, |_, delivery| {
        let is_over = delivery["channel"] == "too-many";
        delivery["unfinished"] = json!(DELIVERY_UNFINISHED_MAX - u32::from(!is_over));
        delivery["attempts"] = delivery["unfinished"].clone();
        delivery["due_at"] = delivery["created_at"].clone();
    })
    .await;
    let server = Server::start_in(folder.path(), &OPTIONS);
    eventually("both are over", async || {
        deliveries(&server).await.iter().all(|one| one["state"] == "sent" || one["state"] == "failed")
    })
    .await;
    let deliveries = deliveries(&server).await;
    let of = |channel: &str| deliveries.iter().find(|one| one["channel"] == channel).unwrap();
    assert_eq!((&of("last-try")["state"], &of("too-many")["state"]), (&json!("sent"), &json!("failed")));
    let reason = format!("the process ended during {DELIVERY_UNFINISHED_MAX} attempts in a row");
    assert_eq!(of("too-many")["last_error"], reason, "{deliveries:?}");
    let lines: Vec<String> = web.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(lines, ["POST /last-try HTTP/1.1"], "nothing more is sent: {}", body(&web.asked()[0]));
}

#[tokio::test]
async fn a_schema_over_the_limits_of_this_release_is_shown_as_not_enforced() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schema.json");
    std::fs::write(&file, r#"{"type": "object"}"#).unwrap();
    let set = ["type", "set", "bill", "--schema", file.to_str().unwrap()];
    let data_dir = folder.path().join("data");
    let server = Server::start_in(&data_dir, &[]);
    server.said(&set);
    assert!(!server.said(&["type", "show", "bill"]).contains("Not enforced"));
    server.kill();
    let patterns: Vec<Value> =
        (0..=SCHEMA_PATTERNS_MAX).map(|n| json!({"pattern": format!("^{n}")})).collect();
    let schema = json!({ "anyOf": patterns }).to_string();
    rewrite(&data_dir, DocumentKind::JobType, |_, job_type| job_type["schema"] = json!(schema)).await;

    let server = Server::start_in(&data_dir, &[]);
    server.submit(json!({"name": "a", "job_type": "bill", "payload": 7})).await;
    let (_, shown) = server.get("/api/v1/job-types/bill").await;
    let reason = shown["not_enforced"].as_str().unwrap_or_else(|| panic!("{shown}"));
    assert!(reason.contains(&SCHEMA_PATTERNS_MAX.to_string()), "{reason}");
    let shown = server.said(&["type", "show", "bill"]);
    assert!(shown.contains(reason) && shown.contains("punctual type set bill --schema FILE"), "{shown}");
    let examined = || {
        let mut doctor = std::process::Command::new(BINARY);
        let output = doctor.args(["doctor", "--data-dir"]).arg(&data_dir).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(examined().contains("payloads of bill are not checked"), "{}", examined());
    server.said(&set);
    assert!(examined().contains("all schemas are enforced: 1"), "{}", examined());
}
