//! Payloads, results and checkpoints that are encrypted at rest, and filters on payloads.

use crate::principals::Principal;
use crate::process::{failure, last_execution};
use crate::server::{BINARY, Server, answer};
use punctual_core::ids::JobId;
use punctual_core::ports::Store;
use punctual_core::sealed::is_sealed;
use punctual_store::mysql::{self, MySqlOptions, MySqlStore};
use punctual_store::postgres::{self, PostgresOptions, PostgresStore};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// In every payload, result and checkpoint of these tests, and nowhere else.
const MARKER: &str = "zebra-crossing-4711";

const ENCRYPT: &str = "--store-encrypt-payloads";

/// A data directory with a file of keys beside it.
struct Site {
    directory: TempDir,
}

impl Site {
    fn new() -> Self {
        let site = Site { directory: tempfile::tempdir().unwrap() };
        site.set_keys(&[1]);
        site
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn set_keys(&self, bytes: &[u8]) {
        let keys: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}").repeat(32)).collect();
        std::fs::write(self.directory.path().join("keys"), keys.join("\n")).unwrap();
    }

    fn start(&self, options: &[&str]) -> Server {
        let keys = self.directory.path().join("keys");
        let options = [&["--secrets-key-file", keys.to_str().unwrap()], options].concat();
        Server::start_in(&self.data(), &options)
    }
}

fn files_with(directory: &Path, text: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
    let has_text = |path: &PathBuf| {
        std::fs::read(path).is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
    };
    files.filter(has_text).collect()
}

fn marked() -> Value {
    json!({"secret": MARKER, "n": 1.50})
}

fn raw_job() -> Value {
    json!({"name": "raw", "payload": marked(), "max_retries": 1, "retry": {"strategy": "fixed", "delay": "1ms"}})
}

async fn say(server: &Server, verb: &str, body: Value) -> Value {
    let (status, answer) = server.post(&format!("/api/v1/worker/{verb}"), &body.to_string()).await;
    assert!(status.is_success(), "{verb}: {answer}");
    answer
}

async fn open(server: &Server) -> i64 {
    let opening = json!({"worker": "raw", "job_types": ["raw"], "lease_secs": 600});
    say(server, "sessions", opening).await["session"].as_i64().unwrap()
}

fn poll_body(session: i64, turn: u64, wait_secs: u64) -> Value {
    json!({"session": session, "turn": turn, "job_types": ["raw"], "wait_secs": wait_secs})
}

async fn poll(server: &Server, session: i64, turn: u64) -> Value {
    let polled = say(server, "poll", poll_body(session, turn, 30)).await;
    assert_eq!(polled["assignments"].as_array().unwrap().len(), 1, "{polled}");
    polled["assignments"][0].clone()
}

async fn report(server: &Server, session: i64, work: &Value, end: Value) {
    let mut report =
        json!({"session": session, "execution_id": work["execution_id"], "epoch": work["epoch"]});
    report.as_object_mut().unwrap().extend(end.as_object().unwrap().clone());
    say(server, "report", json!({"reports": [report]})).await;
}

/// A job that writes everything that is encrypted, and reads it back: with a reserved slot, with a claim, with a
/// checkpoint of an earlier attempt, and with a stored answer.
async fn run_everything(server: &Server) -> JobId {
    let session = open(server).await;
    let (first, job) = tokio::join!(poll(server, session, 1), server.submit(raw_job()));
    assert_eq!(first["payload"], marked());
    let note = json!({"execution_id": first["execution_id"], "epoch": first["epoch"], "number": 1,
        "checkpoint": {"at": MARKER}});
    say(server, "notes", json!({"session": session, "notes": [note]})).await;
    report(server, session, &first, json!({"outcome": "failed", "error": "once more"})).await;
    let second = poll(server, session, 2).await;
    assert_eq!((&second["payload"], &second["checkpoint"]), (&marked(), &json!({"at": MARKER})));
    let path = format!("/api/v1/executions/{}", second["execution_id"].as_str().unwrap());
    assert_eq!(server.get(&path).await.1["checkpoint"], json!({"at": MARKER}));
    report(server, session, &second, json!({"outcome": "succeeded", "result": {"found": MARKER}})).await;
    assert_eq!(server.get(&path).await.1["result"], json!({"found": MARKER}));
    let closed = server.request(Method::DELETE, &format!("/api/v1/worker/sessions/{session}"));
    assert!(closed.send().await.unwrap().status().is_success());
    job
}

async fn everything_can_be_read(server: &Server, job: JobId) {
    let path = format!("/api/v1/jobs/{job}");
    let shown = server.get(&path).await.1;
    assert_eq!((&shown["payload"], &shown["result"]), (&marked(), &json!({"found": MARKER})), "{shown}");
    let executions = server.get(&format!("{path}/executions")).await.1;
    assert_eq!(executions["items"][0]["result"], json!({"found": MARKER}), "{executions}");
    let listed = server.get("/api/v1/jobs").await.1;
    let listed = listed["items"].as_array().unwrap();
    let listed = listed.iter().find(|one| one["job_id"] == json!(job)).unwrap();
    assert_eq!(listed["payload"], marked());
    let finished = server.get("/api/v1/executions?status=SUCCEEDED").await.1;
    assert_eq!(finished["items"][0]["result"], json!({"found": MARKER}), "{finished}");
}

#[test]
fn without_a_key_the_server_does_not_start_and_names_both_settings() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let output = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", ENCRYPT, "--data-dir"])
        .arg(&data)
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    for part in
        ["store.encrypt_payloads: needs a key", "secrets.key_file", "PUNCTUAL_SECRETS_KEY", "secrets.key,"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!data.exists(), "nothing was created");
}

#[tokio::test]
async fn no_file_of_the_store_contains_a_payload_result_or_checkpoint() {
    let site = Site::new();
    let server = site.start(&[ENCRYPT]);
    let job = run_everything(&server).await;
    everything_can_be_read(&server, job).await;
    // The answer to a request with a key is stored, and may repeat a part of the request.
    let later = json!({"name": "later", "delay": "1h", "payload": marked()});
    let keyed = || {
        let request = server.request(Method::POST, "/api/v1/jobs").header("Idempotency-Key", "k1");
        answer(request.json(&later))
    };
    let (status, submitted) = keyed().await;
    assert_eq!(status, StatusCode::CREATED, "{submitted}");
    assert_eq!(keyed().await, (status, submitted.clone()), "the stored answer");
    let path = format!("/api/v1/jobs/{}", submitted["job_id"].as_str().unwrap());
    let change = json!({"priority": 9, "payload": {"more": MARKER}});
    let (status, changed) = server.patch(&path, &change).await;
    assert_eq!((status, &changed["payload"]["more"]), (StatusCode::OK, &json!(MARKER)), "{changed}");
    let (_, same) = server.patch(&path, &change).await;
    assert_eq!(same["version"], changed["version"], "an update that changes nothing stays one");

    assert_eq!(files_with(&site.data(), MARKER), [] as [PathBuf; 0], "while it runs, with its WAL");
    assert!(server.stop().success());
    assert_eq!(files_with(&site.data(), MARKER), [] as [PathBuf; 0]);
    let checked = Command::new(BINARY).args(["check", "--data-dir"]).arg(site.data()).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[tokio::test]
async fn rows_of_both_kinds_can_be_read_and_a_rotation_encrypts_the_rest() {
    let site = Site::new();
    let server = site.start(&[]);
    let plain = server.submit(json!({"name": "plain", "delay": "1h", "payload": marked()})).await;
    assert!(!files_with(&site.data(), MARKER).is_empty(), "it is off by default");
    server.stop();
    let server = site.start(&[ENCRYPT]);
    let path = format!("/api/v1/jobs/{plain}");
    let before = server.get(&path).await.1;
    assert_eq!(before["payload"], marked());
    let job = run_everything(&server).await;
    assert!(
        server.said(&["secret", "rotate"]).starts_with("encrypted 0 secrets and 1 payloads with the key ")
    );
    assert_eq!(server.get(&path).await.1, before, "the version and the time of the last change stay");
    server.stop();

    site.set_keys(&[2, 1]);
    let server = site.start(&[ENCRYPT]);
    everything_can_be_read(&server, job).await;
    assert!(
        server.said(&["secret", "rotate"]).starts_with("encrypted 0 secrets and 2 payloads with the key ")
    );
    assert!(server.said(&["secret", "rotate"]).starts_with("encrypted 0 secrets with the key "));
    server.stop();

    // Without the option, rows stay readable, and new ones are plain.
    let server = site.start(&[]);
    everything_can_be_read(&server, job).await;
    let (status, changed) = server.patch(&path, &json!({"payload": {"n": 2}})).await;
    assert_eq!((status, &changed["payload"]["n"]), (StatusCode::OK, &json!(2)), "{changed}");
    server.stop();

    // The old key is needed for history only.
    site.set_keys(&[2]);
    let server = site.start(&[ENCRYPT]);
    let shown = server.get(&format!("/api/v1/jobs/{job}")).await.1;
    assert_eq!((&shown["payload"], &shown["result"]), (&marked(), &Value::Null));
    let why = shown["last_error"].as_str().unwrap();
    assert!(why.starts_with("the result of execution ") && why.contains("encrypted with the key"), "{why}");
}

#[tokio::test]
async fn with_the_wrong_key_a_job_is_neither_shown_nor_run() {
    let site = Site::new();
    let server = site.start(&[ENCRYPT]);
    let job = server.submit(raw_job()).await;
    let other = server.submit(json!({"name": "other", "delay": "1h", "payload": marked()})).await;
    server.stop();

    site.set_keys(&[2]);
    let server = site.start(&[ENCRYPT]);
    let (status, problem) = server.get(&format!("/api/v1/jobs/{job}")).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    let why = problem["detail"].as_str().unwrap();
    let expected = format!("the payload of job {job} cannot be decrypted: it is encrypted with the key ");
    assert!(why.starts_with(&expected) && why.contains("secrets.key_file"), "{why}");
    assert_eq!(server.patch(&format!("/api/v1/jobs/{job}"), &json!({"priority": 1})).await.0, status);
    let listed = server.get("/api/v1/jobs").await.1;
    let shown = listed["items"][0]["payload"]["unreadable"].as_str().unwrap();
    assert!(shown.starts_with("the payload of job "), "{listed}");
    let rotated = server.cli(&["secret", "rotate"]);
    assert!(!rotated.status.success());
    assert!(String::from_utf8_lossy(&rotated.stderr).contains(&expected));
    let doctor = server.cli(&["doctor", "-o", "json"]);
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("cannot be decrypted"), "{doctor:?}");

    let session = open(&server).await;
    let (status, polled) = server.post("/api/v1/worker/poll", &poll_body(session, 1, 30).to_string()).await;
    assert_eq!((status, &polled["assignments"]), (StatusCode::OK, &json!([])), "{polled}");
    let path = format!("/api/v1/jobs/{job}/executions");
    let executions = server.get(&path).await.1;
    let failed =
        executions["items"].as_array().unwrap().iter().find(|one| one["status"] == "FAILED").unwrap();
    assert!(failed["error_message"].as_str().unwrap().starts_with(&expected), "{executions}");
    let (status, paused) = server.post(&format!("/api/v1/jobs/{other}/pause"), "{}").await;
    assert_eq!((status, &paused["status"]), (StatusCode::OK, &json!("PAUSED")), "{paused}");
    let (status, _) = answer(server.request(Method::DELETE, &format!("/api/v1/jobs/{other}"))).await;
    assert!(status.is_success(), "it can be deleted");
    server.stop();

    // With the key, the next attempt gets the payload.
    site.set_keys(&[1]);
    let server = site.start(&[ENCRYPT]);
    let session = open(&server).await;
    assert_eq!(poll(&server, session, 1).await["payload"], marked());
}

#[tokio::test]
async fn attempts_that_end_for_lack_of_a_key_become_dead_letters_with_the_reason() {
    let site = Site::new();
    let server = site.start(&[ENCRYPT]);
    let job =
        json!({"name": "s", "job_type": "noop", "payload": marked(), "max_retries": 0, "queue": "held"});
    server.client().pause_queue("held").await.unwrap();
    let job = server.submit(job).await;
    server.stop();
    site.set_keys(&[2]);
    let server = site.start(&[]);
    server.client().resume_queue("held").await.unwrap();
    crate::server::eventually("the attempt has failed", async || {
        server.get(&format!("/api/v1/jobs/{job}/executions")).await.1["items"][0]["status"] == "FAILED"
    })
    .await;
    let execution = last_execution(&server.client(), job).await;
    assert!(failure(&execution).contains("cannot be decrypted"), "{execution:?}");
}

#[tokio::test]
async fn the_size_limit_applies_to_the_plain_text() {
    let site = Site::new();
    let server = site.start(&[ENCRYPT]);
    let of_bytes = |bytes: usize| json!({"name": "big", "delay": "1h", "payload": "x".repeat(bytes - 2)});
    let job = server.submit(of_bytes(256 * 1024)).await;
    let shown = server.get(&format!("/api/v1/jobs/{job}")).await.1;
    assert_eq!(shown["payload"].as_str().unwrap().len(), 256 * 1024 - 2);
    let (status, problem) = server.post("/api/v1/jobs", &of_bytes(256 * 1024 + 1).to_string()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
}

fn database(variable: &str) -> (String, String) {
    let server = std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `cargo xtask test`, which starts a server for the tests")
    });
    let mut random = [0; 8];
    getrandom::fill(&mut random).unwrap();
    let name = format!("sealed_{:016x}", u64::from_le_bytes(random));
    (server, name)
}

fn url_of(server: &str, name: &str) -> String {
    format!("{}/{name}", server.rsplit_once('/').expect("a database").0)
}

/// Starts a server on a shared database, runs a job and reads its rows as they are stored.
async fn is_encrypted_in(url: &str, open: impl AsyncFnOnce() -> Box<dyn Store>) {
    let site = Site::new();
    let server = site.start(&[ENCRYPT, "--store", url]);
    let job = run_everything(&server).await;
    everything_can_be_read(&server, job).await;
    assert!(server.stop().success());
    // First, because the source must not be in use.
    let path = site.directory.path().join("copy");
    let to = format!("sqlite:{}", path.display());
    let copied = Command::new(BINARY).args(["migrate-data", "--from", url, "--to", &to]).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(files_with(&path, MARKER), [] as [PathBuf; 0]);
    let stored = open().await.job(job).await.unwrap().unwrap();
    let result = stored.last_finished.unwrap().result.unwrap();
    for text in [&stored.job.spec.payload, &result] {
        assert!(is_sealed(text) && !text.contains(MARKER), "{text}");
    }
    std::fs::copy(site.data().join("admin.token"), path.join("admin.token")).unwrap();
    let moved = Server::start_in(
        &path,
        &["--secrets-key-file", site.directory.path().join("keys").to_str().unwrap()],
    );
    everything_can_be_read(&moved, job).await;
}

#[tokio::test]
async fn rows_in_postgres_are_encrypted_and_move_as_they_are() {
    let (server, name) = database("PUNCTUAL_TEST_POSTGRES");
    let whole = PostgresOptions::new(&server);
    postgres::create_database(&whole, &name).await.unwrap();
    let url = url_of(&server, &name);
    is_encrypted_in(&url, async || {
        Box::new(PostgresStore::open(&PostgresOptions::new(&url)).await.unwrap()) as Box<dyn Store>
    })
    .await;
    postgres::drop_database(&whole, &name).await.unwrap();
}

#[tokio::test]
async fn rows_in_mariadb_are_encrypted_and_move_as_they_are() {
    let (server, name) = database("PUNCTUAL_TEST_MARIADB");
    let whole = MySqlOptions::new(&server);
    mysql::create_database(&whole, &name).await.unwrap();
    let url = url_of(&server, &name);
    is_encrypted_in(&url, async || {
        Box::new(MySqlStore::open(&MySqlOptions::new(&url)).await.unwrap()) as Box<dyn Store>
    })
    .await;
    mysql::drop_database(&whole, &name).await.unwrap();
}

#[tokio::test]
async fn jobs_are_filtered_by_fields_of_their_payloads() {
    let site = Site::new();
    let server = site.start(&[]);
    for (name, payload) in [
        ("a", json!({"customer": 42, "order": {"id": "A-7"}})),
        ("b", json!({"customer": 43, "order": {"id": "A-7"}})),
        ("c", json!({"customer": "42"})),
        ("d", json!([42])),
    ] {
        server.submit(json!({"name": name, "delay": "1h", "payload": payload})).await;
    }
    let names = async |query: &str| {
        let (status, page) = server.get(&format!("/api/v1/jobs?{query}")).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        let names = page["items"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names("payload.customer=42").await, "c a");
    assert_eq!(names("payload.order.id=A-7&payload.customer=43").await, "b");
    assert_eq!(names("payload.order.id=A-7&name=a").await, "a");
    assert_eq!(names("payload.customer=44").await, "");
    let (_, first) = server.get("/api/v1/jobs?payload.customer=42&limit=1").await;
    let cursor = first["next_cursor"].as_str().unwrap();
    assert_eq!(names(&format!("payload.customer=42&limit=1&cursor={cursor}")).await, "a");
    let listed =
        server.said(&["job", "list", "--payload", "order.id=A-7", "--payload", "customer=42", "-o", "json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(server.cli(&["job", "list", "--payload", "customer"]).status.code(), Some(2));
    let (status, problem) = server.get("/api/v1/jobs?payload.=1").await;
    assert_eq!((status, &problem["errors"][0]["field"]), (StatusCode::BAD_REQUEST, &json!("payload.")));

    let blind = Principal::create(&server, json!({"name": "blind", "role": "viewer"})).await;
    assert_eq!(blind.get("/api/v1/jobs").await.0, StatusCode::OK);
    let (status, problem) = blind.get("/api/v1/jobs?payload.customer=42").await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("payload:read"), "{problem}");
    let held = json!({"action": "cancel", "filter": {"payload": {"customer": 42}}});
    let operator = json!({"name": "blind operator", "role": "viewer", "permissions": ["jobs:write"]});
    let operator = Principal::create(&server, operator).await;
    let (status, problem) = operator.post("/api/v1/bulk", &held).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("payload:read"), "{problem}");
    assert_eq!(names("status=ACTIVE").await, "d c b a", "nothing was cancelled");
    server.stop();

    let server = site.start(&[ENCRYPT]);
    let (status, problem) = server.get("/api/v1/jobs?payload.customer=42").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert_eq!(problem["errors"][0]["field"], "payload.customer");
    assert!(problem["detail"].as_str().unwrap().contains("store.encrypt_payloads"), "{problem}");
    let (status, problem) = server.post("/api/v1/bulk", &held.to_string()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("store.encrypt_payloads"), "{problem}");
}
