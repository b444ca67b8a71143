//! Results that are too large for the database: stored as blobs, read back, bounded, and only for those who may read
//! the execution.

use crate::principals::Principal;
use crate::process::{failure, last_execution, submit, written};
use crate::server::{ALLOW_ROOT, BINARY, Server, answer, eventually};
use punctual_client::{Client, ExecutionBody, ExecutionStatus, LogStreamBody};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const LARGE: usize = 300_000;

/// A script whose last line is a JSON string of this many bytes.
fn prints(bytes: usize) -> String {
    let letters = bytes - 2;
    format!("echo before; printf '\"'; head -c {letters} /dev/zero | tr '\\0' x; printf '\"\\n'")
}

/// The same text.
fn printed(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

fn job(name: &str, script: &str) -> Value {
    json!({"name": name, "job_type": "shell", "payload": {"script": script}, "result_overflow": "blob", "max_retries": 0})
}

async fn run(client: &Client, script: &str) -> ExecutionBody {
    let id = submit(client, job("large", script)).await;
    client.wait(id).await.unwrap();
    last_execution(client, id).await
}

fn reference(execution: &ExecutionBody) -> Value {
    assert_eq!(execution.status, ExecutionStatus::Succeeded, "{:?}", execution.error_message);
    serde_json::from_str(execution.result.as_ref().expect("a result").get()).unwrap()
}

/// The result as the API returns it.
async fn read(client: &Client, execution: &ExecutionBody) -> String {
    let mut result = client.result(execution.execution_id).await.unwrap();
    let mut text = Vec::new();
    while let Some(part) = result.next().await.unwrap() {
        text.extend(part);
    }
    String::from_utf8(text).unwrap()
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let (mut directories, mut files) = (vec![directory.to_owned()], vec![]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let list = if entry.path().is_dir() { &mut directories } else { &mut files };
            list.push(entry.path());
        }
    }
    files
}

#[tokio::test]
async fn a_large_result_of_a_command_is_stored_completely() {
    let server = Server::start_with(&["--allow", "shell"]);
    let client = server.client();
    let execution = run(&client, &prints(LARGE)).await;
    let reference = reference(&execution);
    assert_eq!(reference["bytes"], json!(LARGE), "{reference}");
    let text = read(&client, &execution).await;
    assert_eq!(text, printed(LARGE));

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("result.json");
    server.said(&["job", "result", "large", "--output", file.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let summed = Command::new("sha256sum").arg(&file).output().unwrap();
    let sum = String::from_utf8(summed.stdout).unwrap();
    assert_eq!(sum.split(' ').next().unwrap(), reference["sha256"].as_str().unwrap());
    let shown = server.said(&["job", "result", &execution.execution_id.to_string()]);
    assert_eq!(shown.trim_end(), text);

    // A small one is in the database as before, and read in the same way.
    let small = run(&client, "echo '{\"rows\": 3}'").await;
    assert_eq!(small.result.as_ref().unwrap().get(), "{\"rows\": 3}");
    assert_eq!(read(&client, &small).await, "{\"rows\": 3}");
    // As large as one in the database may be, and one byte more.
    for (bytes, is_blob) in [(65_536, false), (65_537, true)] {
        let execution = run(&client, &prints(bytes)).await;
        assert_eq!(execution.result.as_ref().unwrap().get().contains("$blob"), is_blob, "{bytes}");
        assert_eq!(read(&client, &execution).await, printed(bytes));
    }
}

#[tokio::test]
async fn only_a_last_line_of_json_is_a_result_and_it_has_a_limit() {
    let server = Server::start_with(&["--allow", "shell", "--blobs-size-max", "1MiB"]);
    let client = server.client();
    let not_json = run(&client, "printf '['; head -c 100000 /dev/zero | tr '\\0' x; echo").await;
    assert_eq!((not_json.status, not_json.result.is_none()), (ExecutionStatus::Succeeded, true));
    let notes = written(&client, &not_json, LogStreamBody::Log).await;
    assert!(notes.iter().any(|note| note.contains("is not JSON: it is not the result")), "{notes:?}");

    let followed = run(&client, &format!("{}; echo '{{\"rows\": 1}}'", prints(LARGE))).await;
    assert_eq!(followed.result.as_ref().unwrap().get(), "{\"rows\": 1}");
    let twice = run(&client, &format!("{}; {}", prints(LARGE), prints(200_000))).await;
    assert_eq!(read(&client, &twice).await, printed(200_000));

    let failed = run(&client, &format!("{}; exit 3", prints(LARGE))).await;
    assert!(failure(&failed).starts_with("exited with code 3"), "{}", failure(&failed));
    let too_large = run(&client, &prints(1024 * 1024 + 10)).await;
    assert!(
        failure(&too_large).contains("it has more than 1048576 bytes (blobs.size_max)"),
        "{}",
        failure(&too_large)
    );
    // What was refused has left nothing.
    assert_eq!(files_below(&server.data_dir().join("blobs")).len(), 1);
    // Without the option, the result is cut, and says so.
    let mut cut = job("cut", &prints(LARGE));
    cut["result_overflow"] = json!("truncate");
    let cut = submit(&client, cut).await;
    client.wait(cut).await.unwrap();
    assert_eq!(reference(&last_execution(&client, cut).await)["truncated"], true);
}

#[tokio::test]
async fn a_remote_worker_sends_large_results_to_the_server() {
    let server = Server::start_with(&["--blobs-size-max", "1MiB"]);
    let client = server.client();
    let _worker = RemoteWorker::start(&server);
    let execution = run(&client, &prints(LARGE)).await;
    assert_eq!(reference(&execution)["bytes"], json!(LARGE));
    assert_eq!(read(&client, &execution).await, printed(LARGE));
    // The answer arrives although much of the result was not read.
    let too_large = run(&client, &prints(40 * 1024 * 1024)).await;
    assert!(failure(&too_large).contains("at most 1048576 bytes"), "{}", failure(&too_large));
}

/// Killed on drop.
struct RemoteWorker(Child);

impl RemoteWorker {
    fn start(server: &Server) -> Self {
        let worker = Command::new(BINARY)
            .args([
                "worker",
                "--server",
                &server.address,
                "--allow",
                "shell",
                "--log-level",
                "off",
                "--data-dir",
            ])
            .arg(server.data_dir())
            .env(ALLOW_ROOT, "true")
            .stdout(Stdio::null())
            .spawn();
        RemoteWorker(worker.expect("the binary starts"))
    }
}

impl Drop for RemoteWorker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A worker that speaks the protocol itself.
async fn say(worker: &Principal<'_>, verb: &str, body: Value) -> Value {
    let (status, answer) = worker.post(&format!("/api/v1/worker/{verb}"), &body).await;
    assert!(status.is_success(), "{verb}: {answer}");
    answer
}

async fn upload(
    worker: &Principal<'_>,
    session: &Value,
    execution: &str,
    text: String,
) -> (StatusCode, Value) {
    let path = format!("/api/v1/worker/results?session={session}&execution_id={execution}");
    let request = worker.request(Method::POST, &path).header("Content-Type", "application/json");
    answer(request.body(text)).await
}

/// A worker with an execution in a session of its own.
async fn took(server: &Server, worker: &Principal<'_>) -> (Value, Value) {
    server.submit(json!({"name": "raw", "payload": {}, "result_overflow": "blob"})).await;
    let opening = json!({"worker": "raw", "job_types": ["raw"], "lease_secs": 600});
    let session = say(worker, "sessions", opening).await["session"].clone();
    let poll = json!({"session": session, "turn": 1, "job_types": ["raw"], "wait_secs": 5});
    let taken = say(worker, "poll", poll).await["assignments"][0].clone();
    assert_eq!(taken["result_overflow"], "blob");
    (session, taken)
}

#[tokio::test]
async fn a_crash_before_the_report_leaves_only_a_blob_that_nothing_refers_to() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start_in(&data, &[]);
    let worker = Principal::create(&server, json!({"name": "raw", "role": "worker"})).await;
    let (session, taken) = took(&server, &worker).await;
    let execution = taken["execution_id"].as_str().unwrap().to_owned();
    let (status, first) = upload(&worker, &session, &execution, printed(LARGE)).await;
    assert_eq!((status, &first["bytes"]), (StatusCode::CREATED, &json!(LARGE)), "{first}");
    let secret = worker.secret.clone();
    server.kill();

    let server = Server::start_in(&data, &[]);
    let worker = Principal::known(&server, &secret);
    assert_eq!(files_below(&data.join("blobs")).len(), 1);
    let (status, unfinished) = server.get(&format!("/api/v1/executions/{execution}/result")).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{unfinished}");
    let (status, second) = upload(&worker, &session, &execution, printed(70_000)).await;
    assert_eq!(status, StatusCode::CREATED, "{second}");
    assert_ne!(first["$blob"], second["$blob"]);
    let report = json!({"reports": [{"session": session, "execution_id": execution, "epoch": taken["epoch"],
        "outcome": "succeeded", "result": second}]});
    assert_eq!(say(&worker, "report", report).await["answers"], json!(["accepted"]));
    let result = client_text(&server, &execution).await;
    assert_eq!(result, (StatusCode::OK, printed(70_000)));
    // The handler is done: nothing more is accepted for it.
    let (status, late) = upload(&worker, &session, &execution, printed(70_000)).await;
    assert_eq!(status, StatusCode::CONFLICT, "{late}");
}

async fn client_text(server: &Server, execution: &str) -> (StatusCode, String) {
    let answer =
        server.request(Method::GET, &format!("/api/v1/executions/{execution}/result")).send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

#[tokio::test]
async fn a_result_is_stored_by_the_worker_that_runs_it_and_read_by_those_who_may() {
    let server = Server::start();
    let worker = Principal::create(&server, json!({"name": "raw", "role": "worker"})).await;
    let other = Principal::create(&server, json!({"name": "other", "role": "worker"})).await;
    let (session, taken) = took(&server, &worker).await;
    let execution = taken["execution_id"].as_str().unwrap();
    let (status, refused) = upload(&other, &session, execution, printed(LARGE)).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let (status, refused) = upload(&worker, &json!(4711), execution, printed(LARGE)).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let missing = worker.request(Method::POST, "/api/v1/worker/results");
    let missing = missing.header("Content-Type", "application/json").body("1");
    let (status, refused) = answer(missing).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(refused["detail"].as_str().unwrap().contains("session"), "{refused}");
    assert_eq!(files_below(&server.data_dir().join("blobs")).len(), 0);

    let (_, stored) = upload(&worker, &session, execution, printed(LARGE)).await;
    let report = json!({"reports": [{"session": session, "execution_id": execution, "epoch": taken["epoch"],
        "outcome": "succeeded", "result": stored}]});
    say(&worker, "report", report).await;
    assert_eq!(client_text(&server, execution).await, (StatusCode::OK, printed(LARGE)));
    let viewer = Principal::create(&server, json!({"name": "board", "role": "viewer"})).await;
    let path = format!("/api/v1/executions/{execution}/result");
    let (status, refused) = viewer.get(&path).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");
    assert!(refused.to_string().contains("payload:read"), "{refused}");
    // Another owner gets the answer of an execution that does not exist.
    let ann = Principal::submitter(&server, "ann").await;
    let unknown = "01900000-0000-7000-8000-000000000000.1.1";
    let (foreign, missing) =
        (ann.get(&path).await, ann.get(&format!("/api/v1/executions/{unknown}/result")).await);
    assert_eq!(
        (foreign.0, foreign.1.to_string().replace(execution, unknown)),
        (missing.0, missing.1.to_string())
    );

    // A handler that returns the reference of another execution reaches nothing.
    let (session, thief) = took(&server, &worker).await;
    let report = json!({"reports": [{"session": session, "execution_id": thief["execution_id"], "epoch": thief["epoch"],
        "outcome": "succeeded", "result": stored}]});
    say(&worker, "report", report).await;
    let (status, nothing) = client_text(&server, thief["execution_id"].as_str().unwrap()).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{nothing}");
}

#[tokio::test]
async fn blobs_are_encrypted_where_payloads_are() {
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("keys");
    std::fs::write(&keys, "01".repeat(32)).unwrap();
    let options =
        ["--allow", "shell", "--secrets-key-file", keys.to_str().unwrap(), "--store-encrypt-payloads"];
    let server = Server::start_with(&options);
    let client = server.client();
    let execution = run(&client, &prints(LARGE)).await;
    assert_eq!(reference(&execution)["bytes"], json!(LARGE));
    assert_eq!(read(&client, &execution).await, printed(LARGE));
    let files = files_below(&server.data_dir().join("blobs"));
    assert_eq!(files.len(), 1);
    let stored = std::fs::read_to_string(&files[0]).unwrap();
    assert!(stored.starts_with("punctual-sealed:1:") && !stored.contains("xxxxxxxx"));

    // What was shortened, or put together in another order, is not handed out.
    let lines: Vec<&str> = stored.lines().collect();
    assert!(lines.len() > 2);
    let shortened = lines[..lines.len() - 1].join("\n") + "\n";
    let swapped = [&[lines[1], lines[0]], &lines[2..]].concat().join("\n") + "\n";
    for damaged in [shortened, swapped] {
        std::fs::write(&files[0], damaged).unwrap();
        let broken = match client.result(execution.execution_id).await {
            // Its first part is damaged, or the server closed the connection before it had sent anything.
            Err(error) => error.problem().is_none_or(|problem| problem.status == 500),
            Ok(mut result) => loop {
                match result.next().await {
                    Ok(Some(_)) => {}
                    Ok(None) => break false,
                    Err(_) => break true,
                }
            },
        };
        assert!(broken, "a damaged blob was handed out as a whole");
    }
}

#[tokio::test]
async fn a_job_that_cannot_have_blobs_is_refused_with_the_reason() {
    let server = Server::start_with(&["--allow", "shell"]);
    server.said(&["job", "submit", "later", "--shell", "true", "--result-overflow", "blob", "--delay", "1h"]);
    let mut secret = job("secret", "true");
    secret["payload"]["env"] = json!({"TOKEN": {"$secret": "token"}});
    let (status, refused) = server.post("/api/v1/jobs", &secret.to_string()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.to_string().contains("result_overflow"), "{refused}");
    assert!(refused.to_string().contains("refers to secrets"), "{refused}");
}

#[tokio::test]
async fn a_backup_has_the_blobs() {
    let directory = tempfile::tempdir().unwrap();
    let [data, copy] = ["data", "copy"].map(|name| directory.path().join(name));
    let server = Server::start_in(&data, &["--allow", "shell"]);
    let execution = run(&server.client(), &prints(LARGE)).await;
    let backup = Command::new(BINARY).arg("backup").arg(&copy).arg("--data-dir").arg(&data).output().unwrap();
    assert!(backup.status.success(), "{}", String::from_utf8_lossy(&backup.stderr));
    assert!(String::from_utf8_lossy(&backup.stdout).contains("1 blob"), "{backup:?}");
    server.kill();
    std::fs::remove_dir_all(&data).unwrap();
    let restored = Server::start_in(&copy, &[]);
    assert_eq!(read(&restored.client(), &execution).await, printed(LARGE));
    // A blob that is lost is missing with a reason, and nothing else is.
    std::fs::remove_dir_all(copy.join("blobs")).unwrap();
    let (status, missing) = client_text(&restored, &execution.execution_id.to_string()).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(missing.contains("the blob does not exist"), "{missing}");
}

/// With an S3 store, of `cargo xtask services run s3`.
mod s3 {
    use super::*;

    #[tokio::test]
    async fn large_results_are_stored_in_s3() {
        let url = std::env::var("PUNCTUAL_TEST_S3").expect(
            "PUNCTUAL_TEST_S3: use `cargo xtask services run s3 -- cargo nextest run`, or `cargo xtask test`",
        );
        let url: reqwest::Url = url.parse().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let credentials = directory.path().join("s3.key");
        std::fs::write(&credentials, format!("{}\n{}\n", url.username(), url.password().unwrap())).unwrap();
        let place = format!("s3:/{}/it/{}", url.path(), std::process::id());
        let endpoint = format!("http://{}:{}", url.host_str().unwrap(), url.port().unwrap());
        let server = Server::start_with(&[
            "--allow",
            "shell",
            "--blobs",
            &place,
            "--blobs-endpoint",
            &endpoint,
            "--blobs-credentials-file",
            credentials.to_str().unwrap(),
        ]);
        let client = server.client();
        // In one request, and in several.
        for bytes in [LARGE, 12 * 1024 * 1024] {
            let execution = run(&client, &prints(bytes)).await;
            assert_eq!(reference(&execution)["bytes"], json!(bytes));
            assert_eq!(read(&client, &execution).await, printed(bytes));
        }
        assert!(!server.data_dir().join("blobs").exists());
    }

    #[tokio::test]
    async fn a_place_that_cannot_be_reached_delays_the_result_until_the_job_times_out() {
        let server = Server::start_with(&[
            "--allow",
            "shell",
            "--blobs",
            "s3://none",
            "--blobs-endpoint",
            "http://127.0.0.1:9",
        ]);
        let client = server.client();
        let mut job = job("away", &prints(LARGE));
        job["timeout_secs"] = json!(5);
        let id = submit(&client, job).await;
        eventually("the attempt has ended", async || client.job(id).await.unwrap().last_error.is_some())
            .await;
        let error = client.job(id).await.unwrap().last_error.unwrap();
        assert!(error.contains("the result was not stored (result_overflow: blob)"), "{error}");
    }
}
