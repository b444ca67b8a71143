//! `punctual doctor`: with a server, without one, and before the first start.

use crate::certificates::{Certificates, HERE};
use crate::http::web::{Answer, Web};
use crate::server::{BINARY, Server, eventually};
use rcgen::CertificateParams;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The doctor's findings for this directory, by check, and its exit code.
fn examine(dir: &Path, options: &[&str]) -> (Option<i32>, BTreeMap<String, Value>) {
    let output = Command::new(BINARY)
        .args(["doctor", "-o", "json", "--data-dir"])
        .arg(dir)
        .args(options)
        .current_dir(dir.parent().expect("a parent"))
        .output()
        .expect("the binary starts");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    });
    assert_eq!(report["ok"], json!(output.status.success()));
    let findings = report["findings"].as_array().expect("findings").iter();
    let by_check = findings.map(|finding| (finding["check"].as_str().unwrap().to_owned(), finding.clone()));
    (output.status.code(), by_check.collect())
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect()
}

#[test]
fn an_empty_directory_is_no_failure_and_stays_empty() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
    // Whatever listens on the default port of this machine does not matter here.
    let failed = |found: &BTreeMap<String, Value>| {
        let failed =
            found.iter().filter(|(check, finding)| *check != "server" && finding["level"] == "failed");
        failed.count()
    };
    let (_, found) = examine(&data, &[]);
    assert_eq!(failed(&found), 0, "{found:?}");
    assert_eq!(found["data directory"]["level"], "good");
    assert_eq!(found["store"]["level"], "skipped");
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0);
    std::fs::remove_dir(&data).unwrap();
    let (_, found) = examine(&data, &[]);
    assert_eq!(failed(&found), 0, "{found:?}");
    assert_eq!(found["data directory"]["level"], "warning");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_that_cannot_be_written_is_a_failure_with_its_cure() {
    // Not even root can create files there.
    let (code, found) = examine(Path::new("/sys/kernel"), &[]);
    assert_eq!((code, &found["data directory"]["level"]), (Some(1), &json!("failed")), "{found:?}");
    let said = found["data directory"]["found"].as_str().unwrap();
    assert!(said.starts_with("/sys/kernel cannot be written"), "{said}");
    assert!(found["data directory"]["fix"].is_string(), "{found:?}");
}

#[tokio::test]
async fn a_server_whose_worker_was_drained_is_to_be_restarted() {
    let server = Server::start();
    let client = server.client();
    let is_connected = async || !client.workers().await.unwrap().items.is_empty();
    eventually("the worker is there", is_connected).await;
    server.said(&["workers", "drain", "embedded"]);
    eventually("it is gone", async || client.workers().await.unwrap().items.is_empty()).await;
    let fix =
        |found: &BTreeMap<String, Value>| found["handlers"]["fix"].as_str().unwrap_or_default().to_owned();
    let (_, found) = examine(server.data_dir(), &[]);
    assert!(fix(&found).starts_with("restart the server"), "{found:?}");
    server.submit(json!({"name": "waits", "job_type": "noop"})).await;
    let (_, found) = examine(server.data_dir(), &[]);
    assert_eq!(found["handlers"]["found"], "no live worker runs jobs of type noop");
    assert!(fix(&found).starts_with("restart the server"), "{found:?}");
}

/// Neither is in a configuration file or variable that this command could read.
#[tokio::test]
async fn the_certificate_and_the_identity_provider_that_the_server_uses_are_examined() {
    let certificates = Certificates::new();
    let expired = |params: &mut CertificateParams| params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    certificates.replace(&certificates.authority.issue_with(&HERE, expired));
    let described =
        r#"{"issuer": "https://other.example.org", "jwks_uri": "https://other.example.org/keys"}"#;
    let provider = Web::answering(Answer::status("200 OK", described)).await;
    let issuer = provider.url("");
    let options = ["--oidc-issuer", &issuer, "--oidc-audience", "punctual", "--oidc-allow-http"];
    let server = certificates.serve(&options);
    let mut cluster = Value::Null;
    eventually("the server has asked the provider", async || {
        cluster = examine(server.data_dir(), &[]).1["cluster"].clone();
        cluster["found"].as_str().is_some_and(|found| found.contains("identity provider"))
    })
    .await;
    let found = cluster["found"].as_str().unwrap();
    assert_eq!(cluster["level"], "warning");
    assert!(found.contains("server.pem: the certificate has expired"), "{found}");
    assert!(found.contains("names another issuer: \"https://other.example.org\""), "{found}");
    // Others see it as well.
    assert!(server.said(&["nodes", "-o", "json"]).contains("the certificate has expired"));
}

#[tokio::test]
async fn a_running_server_is_examined_down_to_its_work() {
    let server = Server::start_with(&["--slots", "1"]);
    let (code, found) = examine(server.data_dir(), &["--config", "/dev/null"]);
    assert_eq!(code, Some(0));
    for check in [
        "store",
        "server",
        "version",
        "token",
        "time",
        "cluster",
        "handlers",
        "queues",
        "dead letters",
        "queued work",
    ] {
        assert_eq!(found[check]["level"], "good", "{:?}", found[check]);
    }
    let said = found["token"]["found"].as_str().unwrap();
    assert!(said.ends_with("is accepted; its role is admin"), "{said}");
    server.submit(json!({"name": "orphan", "job_type": "mystery"})).await;
    server.submit(json!({"name": "later", "job_type": "riddle", "delay": "1h"})).await;
    let dead = json!({"name": "dead", "job_type": "sleep", "payload": {"minutes": 1}, "max_retries": 0});
    let dead = server.submit(dead).await;
    server.client().wait(dead).await.unwrap();
    server.client().pause_queue("mail").await.unwrap();
    let (code, found) = examine(server.data_dir(), &[]);
    assert_eq!(code, Some(0), "warnings are no failure");
    assert_eq!(found["handlers"]["found"], "no live worker runs jobs of type mystery, riddle");
    assert_eq!(found["queues"]["found"], "paused: mail");
    assert_eq!(found["dead letters"]["found"], "runs that failed permanently: 1");
    let fix = found["dead letters"]["fix"].as_str().unwrap();
    assert!(fix.contains("`punctual dlq redrive --all`"), "as it can be typed: {fix}");
    for check in ["handlers", "queues", "dead letters"] {
        assert!(found[check]["fix"].is_string(), "{:?}", found[check]);
    }
}

#[tokio::test]
async fn a_type_that_is_served_in_another_queue_only_is_told_with_its_queue() {
    let server = Server::start();
    let opening = json!({"worker": "mailer", "job_types": ["letter"], "queues": ["mail"], "lease_secs": 60});
    let (status, session) = server.post("/api/v1/worker/sessions", &opening.to_string()).await;
    assert_eq!(status, reqwest::StatusCode::CREATED, "{session}");
    server.submit(json!({"name": "served", "job_type": "letter", "queue": "mail"})).await;
    let (_, found) = examine(server.data_dir(), &[]);
    assert_eq!(found["handlers"]["level"], "good", "{found:?}");
    server.submit(json!({"name": "misplaced", "job_type": "letter", "queue": "post"})).await;
    let (_, found) = examine(server.data_dir(), &[]);
    assert_eq!(found["handlers"]["found"], "no live worker runs jobs of type letter in queue post");
    server.client().pause_worker("mailer").await.unwrap();
    let (_, found) = examine(server.data_dir(), &[]);
    assert_eq!(found["handlers"]["found"], "no live worker runs jobs of type letter");
}

#[test]
fn a_stopped_server_is_examined_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start_in(&data, &[]);
    assert!(server.cli(&["job", "submit", "kept", "--delay", "1h"]).status.success());
    assert!(server.stop().success());
    let before = files(&data);
    let (code, found) = examine(&data, &[]);
    assert_eq!(code, Some(0));
    assert_eq!(found["store"]["level"], "good");
    assert_eq!(found["server"]["found"], "not running");
    assert!(files(&data) == before, "something was changed");
}

#[tokio::test]
async fn what_a_killed_server_left_is_told_and_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start_in(&data, &[]);
    server.submit(json!({"name": "kept", "delay": "1h"})).await;
    server.kill();
    let before = files(&data);
    let (_, found) = examine(&data, &[]);
    assert!(
        found["store"]["found"].as_str().unwrap().starts_with("the last server did not close it"),
        "{found:?}"
    );
    assert!(files(&data) == before, "something was changed");
}

#[test]
fn what_fails_sets_the_exit_code_and_says_what_to_do() {
    let server = Server::start();
    let token = server.data_dir().join("admin.token");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, found) = examine(server.data_dir(), &[]);
    assert_eq!(code, Some(1));
    assert_eq!(found["admin token"]["level"], "failed");
    assert!(found["admin token"]["fix"].as_str().unwrap().starts_with("chmod 600"), "{found:?}");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    // A token that the server does not know.
    std::fs::write(&token, format!("pt_admin_{}\n", "0".repeat(64))).unwrap();
    let (code, found) = examine(server.data_dir(), &[]);
    assert_eq!((code, &found["token"]["level"]), (Some(1), &json!("failed")));
    let (code, found) = examine(server.data_dir(), &["--server", "127.0.0.1:1"]);
    assert_eq!((code, &found["server"]["level"]), (Some(1), &json!("failed")));
}

#[tokio::test]
async fn a_broken_configuration_does_not_hide_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("punctual.toml"), "slotz = 4").unwrap();
    let server = Server::start_in(&directory.path().join("data"), &["--config", "/dev/null"]);
    let (code, found) = examine(server.data_dir(), &[]);
    assert_eq!(code, Some(1));
    let said = found["configuration"]["found"].as_str().unwrap();
    assert_eq!(said, "punctual.toml:1: slotz is not a setting; did you mean slots?");
    assert_eq!(found["server"]["level"], "good");
    eventually("the server runs on", async || server.client().stats().await.is_ok()).await;
}

#[test]
fn people_get_a_table_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(BINARY).arg("doctor").current_dir(directory.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("✓  configuration"), "{said}");
    assert!(said.contains("!  data directory  there is no ./punctual-data yet\n"), "{said}");
    assert!(said.contains("→ `punctual serve` creates it"), "{said}");
}

#[test]
fn a_check_that_was_not_made_is_not_good() {
    let is_root = rustix::process::geteuid().is_root();
    let user = if is_root { &["--worker-run-as", "nobody"][..] } else { &[] };
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let _server = Server::start_in(&data, &[&["--allow", "shell"], user].concat());
    let (_, findings) = examine(&data, &[]);
    assert_eq!(findings["commands"]["level"], "skipped", "{findings:?}");
    if is_root {
        assert_eq!(findings["user"]["level"], "skipped", "{findings:?}");
    }
}
