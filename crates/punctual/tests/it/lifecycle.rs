//! Starting and stopping the server.

use crate::server::{BINARY, Server, answer, eventually};
use punctual_client::{Client, ExecutionStatus, SubmitJob};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use reqwest::{Method, StatusCode};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn serve(arguments: &[&str]) -> Output {
    Command::new(BINARY).arg("serve").args(arguments).output().expect("the binary starts")
}

fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(7));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A job whose script has begun and takes this many seconds. RUNNING only means that a worker holds the
/// execution: a worker that stops before the handler has begun returns it.
async fn begun(client: &Client, seconds: &str) -> JobId {
    // Commands cannot write into the data directory.
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("begun");
    let script = format!("touch {}; sleep {seconds}", mark.display());
    let job = SubmitJob::named("slow").with_type("shell").with_payload(&json!({"script": script})).unwrap();
    let job = client.submit(&job).await.unwrap().job_id;
    eventually("the script runs", async || mark.exists()).await;
    job
}

#[tokio::test]
async fn a_stopped_server_drains_exits_cleanly_and_finds_everything_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &["--allow", "shell"]);
    let client = server.client();
    let slow = begun(&client, "0.7").await;
    let later = SubmitJob { delay: Some("1h".parse().unwrap()), ..SubmitJob::named("later") };
    let later = client.submit(&later).await.unwrap().job_id;
    let server_address = server.address.clone();
    assert_eq!(server.stop().code(), Some(0));
    let address = std::fs::read_to_string(directory.path().join("server.address")).unwrap();
    assert_eq!(address.trim(), server_address, "commands must not turn to the default port");
    assert!(!directory.path().join("punctual.db-wal").exists(), "the database was not closed");

    let server = Server::start_in(directory.path(), &[]);
    let client = server.client();
    assert_eq!(client.job(slow).await.unwrap().status, JobStatus::Completed);
    let page = client.executions(slow, None, None).await.unwrap();
    assert_eq!(page.items.len(), 1, "the running attempt was finished, not repeated");
    assert_eq!(client.job(later).await.unwrap().status, JobStatus::Active);
}

#[tokio::test]
async fn a_stopping_server_answers_until_its_handlers_are_done() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &["--allow", "shell"]);
    let client = server.client();
    let slow = begun(&client, "3").await;
    server.terminate();
    eventually("the server is not ready", async || {
        answer(server.anonymous(Method::GET, "/readyz")).await
            == (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "stopping"}))
    })
    .await;
    assert_eq!(server.get("/livez").await.0, StatusCode::OK);
    assert_eq!(client.job(slow).await.unwrap().status, JobStatus::Active);
    let late = client.submit(&SubmitJob::named("noop")).await.unwrap().job_id;
    assert_eq!(server.ended().code(), Some(0));

    let server = Server::start_in(directory.path(), &[]);
    let client = server.client();
    assert_eq!(client.wait(late).await.unwrap().status, JobStatus::Completed);
    assert_eq!(client.executions(slow, None, None).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_second_signal_stops_at_once() {
    let server = Server::start();
    let client = server.client();
    let endless =
        SubmitJob::named("endless").with_type("sleep").with_payload(&json!({"ms": 600_000})).unwrap();
    let id = client.submit(&endless).await.unwrap().job_id;
    eventually("the job runs", async || {
        client.executions(id, None, None).await.unwrap().items[0].status == ExecutionStatus::Running
    })
    .await;
    server.terminate();
    eventually("the server is not ready", async || {
        answer(server.anonymous(Method::GET, "/readyz")).await.0 == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    assert_eq!(server.stop().code(), Some(1), "it has waited for the handler, or for the grace");
}

#[tokio::test]
async fn a_killed_server_recovers_what_ran() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &[]);
    let client = server.client();
    let slow = SubmitJob::named("slow").with_type("sleep").with_payload(&json!({"ms": 500})).unwrap();
    let id = client.submit(&slow).await.unwrap().job_id;
    eventually("the job runs", async || {
        client.executions(id, None, None).await.unwrap().items[0].status == ExecutionStatus::Running
    })
    .await;
    server.kill();
    let client_of_second = Server::start_in(directory.path(), &[]);
    let client = client_of_second.client();
    assert_eq!(client.wait(id).await.unwrap().status, JobStatus::Completed);
    let page = client.executions(id, None, None).await.unwrap();
    let seen: Vec<(u32, ExecutionStatus)> =
        page.items.iter().map(|execution| (execution.attempt_number, execution.status)).collect();
    assert_eq!(seen, [(2, ExecutionStatus::Succeeded), (1, ExecutionStatus::Lost)]);
}

#[test]
fn the_first_start_makes_a_token_that_only_its_owner_reads() {
    let directory = tempfile::tempdir().unwrap();
    let first = Server::start_in(directory.path(), &[]);
    let token = first.token.clone();
    let file = directory.path().join("admin.token");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(first.stop().success());
    let second = Server::start_in(directory.path(), &[]);
    assert_eq!(second.token, token);
    assert!(second.stop().success());
    let third = Server::start_in(directory.path(), &["--new-admin-token"]);
    assert_ne!(third.token, token);
    assert_eq!(third.cli(&["job", "list"]).status.code(), Some(0));
    assert_eq!(third.cli(&["job", "list", "--token", &token]).status.code(), Some(4));
}

#[test]
fn a_revoked_admin_token_does_not_come_back_with_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = Server::start_in(directory.path(), &[]);
    let created = first.said(&["token", "create", "ann", "--role", "admin", "-o", "json"]);
    let created: serde_json::Value = serde_json::from_str(&created).unwrap();
    let other = created["secret"].as_str().unwrap();
    first.said(&["token", "revoke", "admin"]);
    assert!(first.stop().success());
    let second = Server::start_in(directory.path(), &[]);
    assert_eq!(second.cli(&["job", "list"]).status.code(), Some(4));
    assert_eq!(second.cli(&["job", "list", "--token", other]).status.code(), Some(0));
    assert!(second.stop().success());
    let third = Server::start_in(directory.path(), &["--new-admin-token"]);
    assert_eq!(third.cli(&["job", "list"]).status.code(), Some(0));
}

#[test]
fn a_token_whose_file_is_gone_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let first = Server::start_in(directory.path(), &[]);
    let token = first.token.clone();
    assert!(first.stop().success());
    std::fs::remove_file(directory.path().join("admin.token")).unwrap();
    let second = Server::start_in(directory.path(), &[]);
    assert_ne!(second.token, token);
    assert_eq!(second.cli(&["job", "list"]).status.code(), Some(0));
    assert_eq!(second.cli(&["job", "list", "--token", &token]).status.code(), Some(4));
    let spaced = format!(" {}\n", second.token);
    assert_eq!(second.cli(&["job", "list", "--token", &spaced]).status.code(), Some(0));
}

#[test]
fn options_out_of_their_range_are_refused_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("data");
    for (option, value, hint) in [
        ("--log-level", "loud", "must be one of off, error, warn, info, debug, trace"),
        ("--slots", "0", "must be a number from 1 to 10000"),
        ("--keep-history", "0s", "must be a duration such as 30d or 12h, or forever"),
        ("--keep-finished-jobs", "never", "must be a duration such as 30d or 12h, or forever"),
        (
            "--logs-total-size-max",
            "100KiB",
            "must be a size of at least 1MiB, such as 512MiB or 2GiB, or off",
        ),
        ("--listen", "7173", "such as 127.0.0.1:7173"),
    ] {
        let refused = serve(&["--data-dir", dir.to_str().unwrap(), option, value]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(hint), "{said}");
    }
    assert!(!dir.exists());
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let server = Server::start();
    let dir = server.data_dir().to_str().unwrap();
    let said = complaint(&serve(&["--data-dir", dir, "--listen", "127.0.0.1:0"]));
    assert!(said.contains("another process has the data directory"), "{said}");
}

#[test]
fn a_port_in_use_is_told_as_such() {
    let server = Server::start();
    let other = tempfile::tempdir().unwrap();
    let dir = other.path().join("new");
    let said = complaint(&serve(&["--data-dir", dir.to_str().unwrap(), "--listen", &server.address]));
    assert!(said.contains("the port is in use"), "{said}");
    assert!(!dir.exists());
}

#[test]
fn a_directory_that_cannot_be_used_is_told_as_such() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let said = complaint(&serve(&["--data-dir", file.to_str().unwrap(), "--listen", "127.0.0.1:0"]));
    assert!(said.contains("cannot be used"), "{said}");
}

#[test]
fn a_backup_of_a_running_or_stopped_server_can_be_served() {
    let directory = tempfile::tempdir().unwrap();
    let [data, copy, second_copy] = ["data", "copy", "second"].map(|name| directory.path().join(name));
    let server = Server::start_in(&data, &[]);
    assert!(server.cli(&["job", "submit", "kept", "--delay", "1h"]).status.success());
    let backup = |to: &Path| {
        let done = Command::new(BINARY).arg("backup").arg(to).arg("--data-dir").arg(&data).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    backup(&copy);
    assert!(server.stop().success());
    backup(&second_copy);
    for copy in [copy, second_copy] {
        let server = Server::start_in(&copy, &[]);
        let list = server.cli(&["job", "list"]);
        assert!(String::from_utf8_lossy(&list.stdout).contains("kept"));
    }
}

#[test]
fn a_log_that_cannot_be_written_does_not_stop_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    assert!(Server::start_in(&data, &[]).stop().success());
    // Without its token file the server has something to warn about.
    std::fs::remove_file(data.join("admin.token")).unwrap();
    let server = Server::start_through(&["sh", "-c", r#"exec "$0" "$@" 2>/dev/full"#, BINARY], &data);
    assert!(server.cli(&["job", "submit", "kept", "--type", "noop", "--wait"]).status.success());
    assert!(server.stop().success());
}

#[test]
fn an_empty_list_of_queues_means_all_of_them() {
    let server = Server::start_with(&["--queues", ""]);
    let submitted = server.cli(&["job", "submit", "anywhere", "--type", "noop", "--queue", "mail", "--wait"]);
    assert!(submitted.status.success(), "{}", String::from_utf8_lossy(&submitted.stderr));
}

#[test]
fn what_is_kept_can_be_bounded_or_kept_forever() {
    for (jobs, history) in [("30d", "forever"), ("forever", "12h")] {
        let server = Server::start_with(&["--keep-finished-jobs", jobs, "--keep-history", history]);
        server.said(&["job", "submit", "hello", "--type", "noop", "--wait"]);
    }
}
