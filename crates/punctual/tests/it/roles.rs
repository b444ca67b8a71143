//! The store of a process, and the roles that can run separately.

use crate::server::{ALLOW_ROOT, BINARY, Server, eventually};
use punctual_client::WorkerState;
use punctual_core::job::JobStatus;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The binary in a directory, without the variables of the tests' own process.
fn punctual(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).current_dir(dir);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PUNCTUAL_") {
            command.env_remove(name);
        }
    }
    command.env(ALLOW_ROOT, "true");
    command
}

fn run(dir: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = punctual(dir, arguments).output().expect("the binary starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A process of some role. Killed on drop.
struct Role(Child);

impl Role {
    /// Starts it and waits for its first line, which it prints when it is ready.
    fn start(mut command: Command) -> (Self, String) {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        (Role(child), line)
    }

    fn stop(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("it still runs");
        self.0.wait().expect("it is gone").code()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn roles_of_a_cluster_are_refused_on_the_embedded_store() {
    let directory = tempfile::tempdir().unwrap();
    for role in ["api", "scheduler"] {
        for store in [&[][..], &["--store", "sqlite:"], &["--store", "sqlite:elsewhere"]] {
            let (code, stdout, stderr) = run(directory.path(), &[&[role], store].concat());
            assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
            let expected = format!(
                "error: `punctual {role}` shares its store with other processes, but the embedded SQLite store is used by a \
                 single one: run `punctual serve`, which combines all roles in one process, or choose a PostgreSQL or \
                 MySQL database with --store\n"
            );
            assert_eq!(stderr, expected);
        }
    }
    let (code, _, stderr) = run(directory.path(), &["worker", "--store", "sqlite:"]);
    assert!(
        code == Some(2) && stderr.contains("connect it to the server of that store, with --server"),
        "{stderr}"
    );
    let both = ["worker", "--store", "postgres://h/d", "--server", "127.0.0.1:1"];
    let (code, _, stderr) = run(directory.path(), &both);
    assert!(code == Some(2) && stderr.contains("pass --store or --server, not both"), "{stderr}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was started");
}

#[test]
fn a_store_that_cannot_be_used_is_told_without_its_password() {
    let directory = tempfile::tempdir().unwrap();
    for (url, told) in [
        ("oracle://me:hunter2@h/d", "--store: must be sqlite:DIRECTORY, postgres://USER@HOST/DATABASE"),
        (
            "postgres://me:hunter2@h",
            "--store: must be postgres://USER@HOST/DATABASE, with the name of the database",
        ),
        ("postgres://h/d?password=hunter2", "or set PUNCTUAL_STORE_PASSWORD"),
    ] {
        for command in ["serve", "api", "scheduler", "worker", "check"] {
            let (code, _, stderr) = run(directory.path(), &[command, "--store", url]);
            assert!(code == Some(2) && stderr.contains(told), "{command} {url}: {stderr}");
            assert!(!stderr.contains("hunter2"), "{stderr}");
        }
    }
    std::fs::write(directory.path().join("punctual.toml"), "[store]\nurl = \"postgres://me:hunter2@h/d\"\n")
        .unwrap();
    let (code, _, stderr) = run(directory.path(), &["serve"]);
    let told = "punctual.toml:2: store.url must not contain the password: write it to a separate file, and set \
                store.password_file to its path";
    assert!(code == Some(2) && stderr.contains(told) && !stderr.contains("hunter2"), "{stderr}");
}

#[test]
fn settings_are_shown_without_the_password() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = punctual(directory.path(), &["config", "show", "-o", "json"]);
    command.env("PUNCTUAL_STORE", "postgres://me:hunter2@h/d?sslmode=require");
    let shown = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(shown.contains("postgres://me@h/d?sslmode=require") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_manual_clock_is_for_the_embedded_store_alone() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["serve", "--clock", "manual", "--store", "postgres://h/d"];
    let (code, _, stderr) = run(directory.path(), &arguments);
    assert!(
        code == Some(2) && stderr.contains("clock: a manual clock is only for the embedded store"),
        "{stderr}"
    );
}

#[tokio::test]
async fn the_embedded_store_can_lie_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let [data, files, copy] = ["data", "files", "copy"].map(|name| directory.path().join(name));
    let store = format!("sqlite:{}", files.display());
    let server = Server::start_in(&data, &["--store", &store]);
    let job = server.submit(json!({"name": "noop"})).await;
    eventually("it ran", async || server.client().job(job).await.unwrap().status == JobStatus::Completed)
        .await;
    assert!(files.join("punctual.db").is_file() && !data.join("punctual.db").exists());
    assert!(data.join("admin.token").is_file());
    assert!(server.stop().success());
    let store = ["--store", &store];
    let copy = copy.to_str().unwrap();
    for command in [&["check"][..], &["backup", copy]] {
        let (code, _, stderr) = run(directory.path(), &[command, &store].concat());
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{command:?}");
    }
}

#[test]
fn the_embedded_store_needs_no_migration() {
    let directory = tempfile::tempdir().unwrap();
    for step in ["status", "up", "verify"] {
        let (code, stdout, stderr) = run(directory.path(), &["migrate", step]);
        assert_eq!(code, Some(0), "{stderr}");
        assert!(stdout.contains("the server migrates it when it starts"), "{stdout}");
    }
}

#[tokio::test]
async fn a_worker_asks_the_server_beside_it_and_finishes_what_runs_when_it_stops() {
    // The server's own worker serves another queue.
    let server = Server::start_with(&["--queues", "other"]);
    let data_dir = server.data_dir().to_str().unwrap();
    let arguments = ["worker", "--data-dir", data_dir, "--worker-name", "helping", "--allow", "shell"];
    let (worker, said) = Role::start(punctual(server.data_dir(), &arguments));
    assert!(said.contains(&format!("works for http://{}", server.address)), "{said}");
    let job = server.submit(json!({"name": "shell", "payload": {"script": "echo 7"}})).await;
    eventually("it ran", async || server.client().job(job).await.unwrap().status == JobStatus::Completed)
        .await;
    let (_, page) = server.get(&format!("/api/v1/jobs/{job}/executions")).await;
    assert_eq!((&page["items"][0]["worker_id"], &page["items"][0]["result"]), (&json!("helping"), &json!(7)));
    // A worker that stops returns executions that it has not started.
    // Commands cannot write into the data directory itself.
    let started = server.data_dir().with_file_name("started");
    let script = format!("touch {}; sleep 1; echo 8", started.display());
    let slow = server.submit(json!({"name": "shell", "payload": {"script": script}})).await;
    eventually("it has started", async || started.exists()).await;
    assert_eq!(worker.stop(), Some(0));
    let (_, page) = server.get(&format!("/api/v1/jobs/{slow}/executions")).await;
    assert_eq!(page["items"][0]["status"], "SUCCEEDED", "{page}");
}

#[tokio::test]
async fn a_worker_that_is_ending_is_shown_as_draining_and_takes_nothing_more() {
    let server = Server::start_with(&["--queues", "other"]);
    let client = server.client();
    let data_dir = server.data_dir().to_str().unwrap();
    let arguments = ["worker", "--data-dir", data_dir, "--worker-name", "leaving", "--drain-grace", "1h"];
    let arguments = [&arguments[..], &["--allow", "shell"]].concat();
    let (worker, _) = Role::start(punctual(server.data_dir(), &arguments));
    // Commands cannot write into the data directory itself.
    let started = server.data_dir().with_file_name("started");
    let payload = json!({"script": format!("touch {}; sleep 3600", started.display())});
    let nap = json!({"name": "nap", "job_type": "shell", "payload": payload, "timeout_secs": 7200});
    let running = server.submit(nap.clone()).await;
    eventually("it has started", async || started.exists()).await;
    kill_process(Pid::from_child(&worker.0), Signal::TERM).expect("it still runs");
    eventually("it drains", async || {
        let worker = client.worker("leaving").await.unwrap();
        (worker.state, worker.running, worker.free_slots) == (WorkerState::Draining, 1, Some(0))
    })
    .await;
    let refused = client.resume_worker("leaving").await.unwrap_err().to_string();
    assert!(refused.contains("is draining and will close"), "{refused}");
    let waits = server.submit(nap).await;
    let (_, explained) = server.get(&format!("/api/v1/jobs/{waits}/explain")).await;
    let summary = explained["summary"].as_str().unwrap();
    assert!(
        summary.contains("leaving") && summary.contains("is draining: it takes no more work"),
        "{summary}"
    );
    let (_, scaling) = server.get("/api/v1/autoscaling/default").await;
    assert_eq!((&scaling["workers"], &scaling["slots"]), (&json!(0), &json!(0)), "{scaling}");
    assert!(server.said(&["workers", "list"]).contains("DRAINING"));
    client.cancel(running).await.unwrap();
    let mut worker = worker;
    assert_eq!(worker.0.wait().unwrap().code(), Some(0));
    assert!(client.worker("leaving").await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_worker_that_people_drain_ends() {
    let server = Server::start();
    let arguments = ["worker", "--data-dir", server.data_dir().to_str().unwrap(), "--worker-name", "leaving"];
    let (mut worker, _) = Role::start(punctual(server.data_dir(), &arguments));
    eventually("it is there", async || server.client().worker("leaving").await.is_ok()).await;
    server.client().drain_worker("leaving").await.unwrap();
    assert_eq!(worker.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_worker_that_the_server_will_not_have_ends_and_says_why() {
    let server = Server::start();
    let mut command = punctual(server.data_dir(), &["worker", "--server", &server.address]);
    let output = command.env("PUNCTUAL_TOKEN", "pt_admin_0123").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("error: a valid token is needed"), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "it has no session, so it serves no server");
}
