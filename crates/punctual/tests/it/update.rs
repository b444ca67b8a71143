//! Changing jobs: only the named fields, and only the expected version.

use crate::driven::{HOUR, advance, everything, standing_at, start};
use crate::redact::shown;
use crate::server::{Server, answer};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

async fn read(server: &Server, job: JobId) -> (String, Value) {
    let request = server.request(Method::GET, &format!("/api/v1/jobs/{job}"));
    let response = request.send().await.unwrap();
    let etag = response.headers()["etag"].to_str().unwrap().to_owned();
    (etag, response.json().await.unwrap())
}

async fn patch_if(server: &Server, job: JobId, etag: &str, patch: &Value) -> (StatusCode, Value) {
    let request = server.request(Method::PATCH, &format!("/api/v1/jobs/{job}"));
    answer(request.header("if-match", etag).json(patch)).await
}

#[tokio::test]
async fn a_patch_changes_what_it_names_and_nothing_else() {
    let server = standing_at(start());
    let submitted = json!({
        "name": "report", "job_type": "noop", "payload": {"month": 11, "deep": {"a": 1}}, "interval": "1h",
        "queue": "reports", "max_retries": 2, "tags": ["x"],
    });
    let job = server.submit(submitted).await;
    let (_, mut expected) = read(&server, job).await;
    let patch = json!({"priority": "high", "queue": null, "payload": {"month": null, "deep": {"b": 2}}});
    let (status, changed) = server.patch(&format!("/api/v1/jobs/{job}"), &patch).await;
    assert_eq!(status, StatusCode::OK, "{changed}");
    expected["priority"] = json!(8);
    expected["queue"] = json!("default");
    expected["payload"] = json!({"deep": {"a": 1, "b": 2}});
    expected["version"] = json!(2);
    assert_eq!(changed, expected);
}

#[tokio::test]
async fn a_change_of_another_version_is_refused_and_changes_nothing() {
    let server = standing_at(start());
    let job = server.submit(json!({"name": "report", "job_type": "noop", "interval": "1h"})).await;
    let (first, _) = read(&server, job).await;
    let (status, changed) = patch_if(&server, job, &first, &json!({"priority": 7})).await;
    assert_eq!((status, &changed["version"]), (StatusCode::OK, &json!(2)));
    let before = everything(&server).await;
    let (status, problem) = patch_if(&server, job, &first, &json!({"priority": 1})).await;
    assert_eq!((status, &problem["version"]), (StatusCode::PRECONDITION_FAILED, &json!(2)), "{problem}");
    let put = server.request(Method::PUT, &format!("/api/v1/jobs/{job}")).header("if-match", &first);
    let (status, problem) = answer(put.json(&json!({"name": "other", "interval": "2h"}))).await;
    assert_eq!(status, StatusCode::PRECONDITION_FAILED, "{problem}");
    assert_eq!(everything(&server).await, before);
    let (second, _) = read(&server, job).await;
    let (status, _) = patch_if(&server, job, &second, &json!({"priority": 1})).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_put_replaces_the_whole_description() {
    let server = standing_at(start());
    let submitted = json!({
        "name": "report", "job_type": "noop", "payload": {"month": 11}, "interval": "1h", "queue": "reports",
        "max_retries": 2, "tags": ["x"], "owner_id": "ann", "unique_key": "u",
    });
    let job = server.submit(submitted).await;
    let put = server.request(Method::PUT, &format!("/api/v1/jobs/{job}"));
    let whole =
        json!({"name": "report", "job_type": "noop", "interval": "1h", "owner_id": "ann", "unique_key": "u"});
    let (status, changed) = answer(put.json(&whole)).await;
    assert_eq!(status, StatusCode::OK, "{changed}");
    let (_, expected) = read(
        &server,
        server
            .submit({
                let mut other = whole.clone();
                other["unique_key"] = json!("v");
                other
            })
            .await,
    )
    .await;
    for field in ["payload", "queue", "priority", "interval", "max_retries", "retry", "tags", "timeout_secs"]
    {
        assert_eq!(changed[field], expected[field], "{field}");
    }
    assert_eq!((&changed["version"], &changed["job_id"]), (&json!(2), &json!(job)));
}

#[tokio::test]
async fn what_is_queued_follows_its_jobs_new_place() {
    let server = standing_at(start());
    let client = server.client();
    client.pause_queue("mail").await.unwrap();
    let moved = server.submit(json!({"name": "moved", "job_type": "noop", "queue": "mail"})).await;
    let retyped = server.submit(json!({"name": "nobody-runs-this"})).await;
    for (job, patch) in [(moved, json!({"queue": "other"})), (retyped, json!({"job_type": "noop"}))] {
        let (status, body) = server.patch(&format!("/api/v1/jobs/{job}"), &patch).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Completed);
    }
}

#[tokio::test]
async fn a_changed_schedule_counts_from_now() {
    let server = standing_at(start());
    let job = server.submit(json!({"name": "tick", "job_type": "noop", "interval": "1h"})).await;
    advance(&server, start().plus(HOUR + HOUR / 2)).await;
    let (status, changed) = server.patch(&format!("/api/v1/jobs/{job}"), &json!({"interval": "2h"})).await;
    assert_eq!(status, StatusCode::OK, "{changed}");
    assert_eq!(changed["next_run_time"], start().plus(3 * HOUR + HOUR / 2).to_string());
    assert_eq!(advance(&server, start().plus(4 * HOUR)).await.fired, 1);
    let (_, page) = server.get(&format!("/api/v1/jobs/{job}/executions")).await;
    let versions: Vec<&Value> =
        page["items"].as_array().unwrap().iter().map(|execution| &execution["job_version"]).collect();
    assert_eq!(versions, [&json!(2), &json!(1)]);
}

#[test]
fn the_command_line_updates_what_its_flags_name() {
    let server = standing_at(start());
    let submit = ["job", "submit", "tick", "--type", "noop", "--every", "1h", "--queue", "slow"];
    server.said(&submit);
    let update = |options: &[&str]| server.cli(&[&["job", "update", "tick"], options].concat());
    insta::assert_snapshot!("update_some", shown(&update(&["--priority", "high", "--unset", "queue"])));
    insta::assert_snapshot!("update_stale", shown(&update(&["--every", "2h", "--if-version", "1"])));
    insta::assert_snapshot!("update_current", shown(&update(&["--cron", "@daily", "--if-version", "2"])));
    insta::assert_snapshot!("update_nothing", shown(&update(&[])));
    insta::assert_snapshot!("update_unknown", shown(&update(&["--unset", "colour"])));
    insta::assert_snapshot!("update_shown", shown(&server.cli(&["job", "show", "tick"])));
}

#[test]
fn a_new_command_or_script_takes_the_place_of_the_old() {
    let server = Server::start_with(&["--allow", "shell,process"]);
    let payload = |server: &Server| -> Value {
        let job = server.said(&["job", "show", "greet", "-o", "json"]);
        let job: Value = serde_json::from_str(&job).unwrap();
        json!([job["job_type"], job["payload"]])
    };
    let first = r#"{"script": "echo one", "env": {"A": "1"}}"#;
    server.said(&["job", "submit", "greet", "--type", "shell", "--payload", first, "--every", "1d"]);
    server.said(&["job", "update", "greet", "--shell", "echo two"]);
    assert_eq!(payload(&server), json!(["shell", {"script": "echo two", "env": {"A": "1"}}]));
    let mut line = std::process::Command::new(crate::server::BINARY);
    line.args(["job", "update", "greet", "--data-dir"])
        .arg(server.data_dir())
        .args(["--", "echo", "-n", "three"]);
    assert!(line.status().unwrap().success());
    assert_eq!(payload(&server), json!(["process", {"command": ["echo", "-n", "three"], "env": {"A": "1"}}]));
}

/// Of two jobs that wait for one key, the first gets another key and the second none: both continue.
#[tokio::test]
async fn a_concurrency_key_is_changed_and_taken_away_from_the_command_line() {
    let server = Server::start();
    server.said(&["queue", "set", "mail", "--key-concurrency", "1"]);
    let submit = async |name: &str, ms: u64| {
        let job = json!({
            "name": name, "job_type": "sleep", "queue": "mail", "payload": {"ms": ms},
            "concurrency_key": "customer-1",
        });
        server.submit(job).await
    };
    let _holder = submit("holder", 600_000).await;
    let (moved, freed) = (submit("moved", 1).await, submit("freed", 1).await);
    assert_eq!(server.client().queue("mail").await.unwrap().waiting, 2);
    server.said(&["job", "update", "moved", "--concurrency-key", "customer-2"]);
    server.said(&["job", "update", "freed", "--unset", "concurrency-key"]);
    for (job, key) in [(moved, Some("customer-2")), (freed, None)] {
        let job = server.client().wait(job).await.unwrap();
        assert_eq!((job.status, job.concurrency_key.as_deref()), (JobStatus::Completed, key), "{}", job.name);
    }
}
