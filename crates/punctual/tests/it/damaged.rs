//! Files that are incomplete, damaged or in use: what `backup`, `check`, `doctor` and `serve` make of them.

use crate::server::{BINARY, PATIENCE, Server, answer, eventually};
use punctual_core::ids::JobId;
use punctual_core::time::Timestamp;
use punctual_store::baseline::Past;
use punctual_store::sqlite::keep_past;
use reqwest::{Method, StatusCode};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGE: usize = 4_096;

fn run(arguments: &[&str], data_dir: &Path) -> Output {
    Command::new(BINARY).args(arguments).arg("--data-dir").arg(data_dir).output().expect("the binary starts")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn check(data_dir: &Path) -> Output {
    run(&["check"], data_dir)
}

fn refused_start(data_dir: &Path) -> String {
    let output = run(&["serve", "--listen", "127.0.0.1:0"], data_dir);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    said(&output)
}

/// Files below a directory with their sizes.
fn files(dir: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())).collect()
}

/// A data directory with so many executions that a copy of it takes a while.
fn keep_many(data: &Path) {
    fs::create_dir_all(data).unwrap();
    let until = Timestamp::from_micros(1_763_195_400_000_000);
    let past = Past { executions: 100_000, until, span: Duration::from_secs(86_400), payload_bytes: 200 };
    keep_past(data, past, &(Arc::new(|_| {}) as _)).unwrap();
    Server::start_in(data, &[]).stop();
}

#[tokio::test]
async fn a_backup_that_is_killed_is_never_taken_for_a_whole_one() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    keep_many(&data);
    let whole = fs::metadata(data.join("punctual.db")).unwrap().len();
    let size = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    let mut incomplete = 0;
    for (round, part) in [0, whole / 4, whole / 2, whole - 1, whole].into_iter().enumerate() {
        let copy = directory.path().join(format!("copy{round}"));
        let mut backup =
            Command::new(BINARY).arg("backup").arg(&copy).arg("--data-dir").arg(&data).spawn().unwrap();
        let partial = copy.join("punctual.db.partial");
        let start = Instant::now();
        while size(&partial) <= part && backup.try_wait().unwrap().is_none() {
            // The last of these moments never comes: then it has ended by itself.
            assert!(start.elapsed() < PATIENCE, "the backup does not end");
            tokio::task::yield_now().await;
        }
        backup.kill().unwrap();
        backup.wait().unwrap();
        if copy.join("punctual.db").exists() {
            assert!(check(&copy).status.success());
            assert_eq!(size(&copy.join("punctual.db")), whole);
            continue;
        }
        incomplete += 1;
        let before = files(&copy);
        let checked = check(&copy);
        let told = said(&checked);
        assert!(!checked.status.success(), "{told}");
        assert!(told.contains("incomplete backup") && told.contains("take the backup again"), "{told}");
        assert_eq!(files(&copy), before);
        assert!(refused_start(&copy).contains("incomplete backup"));
        let onto = run(&["backup", copy.to_str().unwrap()], &data);
        assert!(!onto.status.success() && said(&onto).contains("interrupted"), "{}", said(&onto));
        let of = run(&["backup", directory.path().join("of").to_str().unwrap()], &copy);
        assert!(!of.status.success() && said(&of).contains("incomplete backup"), "{}", said(&of));
        let doctor = run(&["doctor"], &copy);
        assert!(said(&doctor).contains("incomplete backup"), "{}", said(&doctor));
    }
    assert!(incomplete > 0, "no backup was killed before its end");
}

#[test]
fn a_backup_that_does_not_fit_on_the_disk_fails_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let [data, copy] = ["data", "copy"].map(|name| directory.path().join(name));
    keep_many(&data);
    // With the signal ignored, a write beyond the limit is an error, as on a full disk.
    let script = "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\"";
    let mut limited = Command::new("bash");
    limited.args(["-c", script, BINARY, "backup"]).arg(&copy).arg("--data-dir").arg(&data);
    let output = limited.output().unwrap();
    assert!(!output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("cannot be copied"), "{}", said(&output));
    assert!(!copy.exists(), "{:?}", files(&copy));
    assert!(run(&["backup", copy.to_str().unwrap()], &data).status.success());
    assert!(check(&copy).status.success());
}

#[test]
fn a_check_creates_nothing_and_needs_no_directory_that_can_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let [data, nothing] = ["data", "nothing"].map(|name| directory.path().join(name));
    fs::create_dir(&nothing).unwrap();
    for dir in [&nothing, &directory.path().join("nowhere")] {
        let checked = check(dir);
        assert_eq!(checked.status.code(), Some(5));
        assert!(said(&checked).contains(&format!("no database in {}", dir.display())), "{}", said(&checked));
    }
    assert_eq!(files(&nothing), BTreeMap::new());
    assert!(!directory.path().join("nowhere").exists());

    // Killed: what was committed last is still in the write-ahead log.
    let server = Server::start_in(&data, &[]);
    server.said(&["job", "submit", "noop", "--wait"]);
    server.kill();
    for file in fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()) {
        fs::set_permissions(file, Permissions::from_mode(0o400)).unwrap();
    }
    fs::set_permissions(&data, Permissions::from_mode(0o500)).unwrap();
    let before = files(&data);
    assert!(before["punctual.db-wal"] > 0);
    for _ in 0..2 {
        let checked = check(&data);
        assert!(checked.status.success(), "{}", said(&checked));
        assert_eq!(files(&data), before);
    }
    fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
}

/// Pages of a large value, found by what is in them.
fn pages_of(file: &Path, letter: u8) -> Vec<u64> {
    let bytes = fs::read(file).unwrap();
    let pages =
        bytes.chunks(PAGE).enumerate().filter(|(_, page)| page[4..].iter().all(|byte| *byte == letter));
    pages.map(|(number, _)| (number * PAGE) as u64).collect()
}

fn overwrite(file: &Path, offset: u64) {
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&[0xff; PAGE], offset).unwrap();
}

async fn keep_large_job(data: &Path) {
    let server = Server::start_in(data, &[]);
    server.submit(json!({"name": "large", "delay": "1h", "payload": "y".repeat(50_000)})).await;
    assert!(server.stop().success());
}

#[tokio::test]
async fn a_server_does_not_start_on_damaged_pages() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    keep_large_job(&data).await;
    let file = data.join("punctual.db");
    overwrite(&file, pages_of(&file, b'y')[3]);
    let before = fs::read(&file).unwrap();
    let told = refused_start(&data);
    assert!(told.contains("punctual.db is damaged") && told.contains("punctual check"), "{told}");
    assert!(told.contains("restore a backup"), "{told}");
    let checked = check(&data);
    assert_eq!(checked.status.code(), Some(1), "{}", said(&checked));
    let doctor = run(&["doctor"], &data);
    assert!(!doctor.status.success() && said(&doctor).contains("damaged"), "{}", said(&doctor));
    let copy = directory.path().join("copy");
    let backup = run(&["backup", copy.to_str().unwrap()], &data);
    assert!(!backup.status.success() && said(&backup).contains("damaged"), "{}", said(&backup));
    assert!(!copy.exists());
    assert!(fs::read(&file).unwrap() == before, "nothing was changed");
}

#[tokio::test]
async fn damage_under_a_running_server_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    keep_large_job(&data).await;
    let server = Server::start_in(&data, &["--store-check-interval", "1s"]);
    assert_eq!(server.get("/readyz").await.0, StatusCode::OK);
    let file = data.join("punctual.db");
    overwrite(&file, pages_of(&file, b'y')[3]);
    eventually("it is not ready", async || server.get("/readyz").await.0 == StatusCode::SERVICE_UNAVAILABLE)
        .await;
    let (_, problem) = server.get("/readyz").await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("damaged") && detail.contains("punctual.db: "), "{detail}");
    let (status, problem) = answer(server.anonymous(Method::GET, "/readyz")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!problem["detail"].as_str().unwrap().contains("punctual.db"), "{problem}");
    let metrics = server.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    let damage =
        metrics.lines().find_map(|line| line.strip_prefix("punctual_store_damage_problems ")).unwrap();
    assert!(damage.parse::<f64>().unwrap() > 0.0, "{damage}");
    let doctor = server.cli(&["doctor"]);
    assert!(!doctor.status.success() && said(&doctor).contains("damaged"), "{}", said(&doctor));
    assert!(!run(&["backup", directory.path().join("copy").to_str().unwrap()], &data).status.success());
}

#[test]
fn a_second_server_is_refused_when_the_lock_file_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &[]);
    fs::remove_file(directory.path().join("punctual.lock")).unwrap();
    assert!(refused_start(directory.path()).contains("another process"));
    assert!(said(&check(directory.path())).contains("another process"));
    server.said(&["job", "submit", "after", "--type", "noop", "--wait"]);
}

#[tokio::test]
async fn a_queue_that_cannot_be_read_affects_no_other_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    let server = Server::start_in(&data, &[]);
    server.said(&["queue", "set", "payroll", "--concurrency", "73519"]);
    assert!(server.stop().success());
    let path = data.join("punctual.db");
    let mut bytes = fs::read(&path).unwrap();
    let limit = bytes.windows(5).position(|digits| digits == b"73519").unwrap();
    bytes[limit] = b'x';
    fs::write(&path, bytes).unwrap();

    let checked = check(&data);
    assert_eq!(checked.status.code(), Some(1), "{}", said(&checked));
    assert!(said(&checked).contains("queues") && said(&checked).contains("payroll"), "{}", said(&checked));

    let server = Server::start_in(&data, &[]);
    let held = server.submit(json!({"name": "pay", "job_type": "noop", "queue": "payroll"})).await;
    server.said(&["job", "submit", "mail", "--type", "noop", "--wait"]);
    let (status, problem) = server.post("/api/v1/queues/payroll/resume", "").await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    let doctor = server.cli(&["doctor"]);
    assert!(said(&doctor).contains("payroll"), "{}", said(&doctor));
    assert_eq!(server.get(&format!("/api/v1/jobs/{held}")).await.1["status"], "ACTIVE");
    server.said(&["queue", "set", "payroll", "--concurrency", "5"]);
    eventually("it runs", async || {
        server.get(&format!("/api/v1/jobs/{held}")).await.1["status"] == "COMPLETED"
    })
    .await;
    assert!(server.stop().success());
    assert!(check(&data).status.success());
}

#[tokio::test]
async fn verbs_on_a_job_that_cannot_be_read_are_answered_as_reads_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    let server = Server::start_in(&data, &[]);
    let [job, other] =
        [417, 3].map(|max_retries| json!({"name": "x", "delay": "1h", "max_retries": max_retries}));
    let (job, other) = (server.submit(job).await, server.submit(other).await);
    assert!(server.stop().success());
    let path = data.join("punctual.db");
    let mut bytes = fs::read(&path).unwrap();
    let settings = bytes.windows(4).position(|text| text == b":417").unwrap();
    bytes[settings + 1] = b'x';
    fs::write(&path, bytes).unwrap();
    assert!(said(&check(&data)).contains("column settings: "), "{}", said(&check(&data)));

    let server = Server::start_in(&data, &[]);
    let at = |job: JobId, verb: &str| format!("/api/v1/jobs/{job}{verb}");
    let (status, read) = server.get(&at(job, "")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    for (method, verb) in [(Method::POST, "/pause"), (Method::POST, "/cancel"), (Method::DELETE, "")] {
        let answered = answer(server.request(method.clone(), &at(job, verb))).await;
        assert_eq!(answered, (StatusCode::INTERNAL_SERVER_ERROR, read.clone()), "{method} {verb}");
        let (status, _) = answer(server.request(method, &at(other, verb))).await;
        assert!(status.is_success(), "{status}");
    }
}

#[tokio::test]
async fn an_emptied_database_is_not_backed_up() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    keep_large_job(&data).await;
    fs::write(data.join("punctual.db"), "").unwrap();
    let copy = directory.path().join("copy");
    let backup = run(&["backup", copy.to_str().unwrap()], &data);
    assert!(!backup.status.success() && said(&backup).contains("the file is empty"), "{}", said(&backup));
    let doctor = run(&["doctor"], &data);
    assert!(!doctor.status.success() && said(&doctor).contains("the file is empty"), "{}", said(&doctor));
}

#[tokio::test]
async fn doctor_finds_damaged_log_lines() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    keep_large_job(&data).await;
    let logs = data.join("logs.db");
    overwrite(&logs, PAGE as u64);
    let doctor = run(&["doctor"], &data);
    assert!(!doctor.status.success() && said(&doctor).contains("logs.db"), "{}", said(&doctor));
}

#[tokio::test]
async fn a_main_file_without_its_write_ahead_log_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    let server = Server::start_in(&data, &[]);
    server.submit(json!({"name": "kept", "delay": "1h"})).await;
    server.kill();
    fs::remove_file(data.join("punctual.db-wal")).unwrap();
    assert!(refused_start(&data).contains("has no tables"));
    let checked = check(&data);
    assert!(
        checked.status.code() == Some(1) && said(&checked).contains("has no tables"),
        "{}",
        said(&checked)
    );
    let doctor = run(&["doctor"], &data);
    assert!(!doctor.status.success() && said(&doctor).contains("has no tables"), "{}", said(&doctor));
    let backup = run(&["backup", directory.path().join("copy").to_str().unwrap()], &data);
    assert!(!backup.status.success() && said(&backup).contains("has no tables"), "{}", said(&backup));
}

#[tokio::test]
async fn a_write_ahead_log_that_is_deleted_under_a_server_stops_its_writes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &[]);
    server.submit(json!({"name": "kept", "delay": "1h"})).await;
    fs::remove_file(directory.path().join("punctual.db-wal")).unwrap();
    let (status, problem) = server.post("/api/v1/jobs", r#"{"name": "lost"}"#).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{problem}");
    assert_eq!(server.get("/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert!(server.stop().success());
    let server = Server::start_in(directory.path(), &[]);
    assert_eq!(server.get("/api/v1/jobs").await.1["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_malformed_value_is_backed_up_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    let server = Server::start_in(&data, &[]);
    server.submit(json!({"name": "odd", "delay": "1h", "payload": {"marker": 73519}})).await;
    assert!(server.stop().success());
    let path = data.join("punctual.db");
    let mut bytes = fs::read(&path).unwrap();
    let value = bytes.windows(5).position(|digits| digits == b"73519").unwrap();
    bytes[value] = b'x';
    fs::write(&path, bytes).unwrap();
    let copy = directory.path().join("copy");
    let backup = run(&["backup", copy.to_str().unwrap()], &data);
    assert!(
        backup.status.success() && said(&backup).contains("malformed values in the copy: 1"),
        "{}",
        said(&backup)
    );
    assert_eq!(check(&copy).status.code(), Some(1));
}

#[tokio::test]
async fn a_damaged_payload_does_not_keep_other_jobs_from_their_workers() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &[]);
    let bad = server.submit(json!({"name": "bad", "job_type": "remote", "payload": {"marker": 73519}})).await;
    for name in ["first", "second"] {
        server.submit(json!({"name": name, "job_type": "remote"})).await;
    }
    assert!(server.stop().success());
    let path = directory.path().join("punctual.db");
    let mut bytes = fs::read(&path).unwrap();
    let value = bytes.windows(5).position(|digits| digits == b"73519").unwrap();
    bytes[value] = b'x';
    fs::write(&path, bytes).unwrap();

    let server = Server::start_in(directory.path(), &[]);
    let opening = json!({"worker": "remote", "job_types": ["remote"], "lease_secs": 60});
    let (_, session) = server.post("/api/v1/worker/sessions", &opening.to_string()).await;
    let poll = json!({"session": session["session"], "turn": 1, "job_types": ["remote"], "wait_secs": 0, "capacity": 5});
    let (status, polled) = server.post("/api/v1/worker/poll", &poll.to_string()).await;
    let names =
        polled["assignments"].as_array().map(|list| list.iter().map(|one| one["name"].clone()).collect());
    assert_eq!((status, names), (StatusCode::OK, Some(vec![json!("first"), json!("second")])), "{polled}");
    let (_, page) = server.get(&format!("/api/v1/jobs/{}/executions", bad)).await;
    let failed = &page["items"][0];
    assert_eq!(failed["status"], "FAILED", "{failed}");
    assert!(failed["error_message"].as_str().unwrap().contains("payload is damaged"), "{failed}");
}
