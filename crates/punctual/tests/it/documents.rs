//! Documents on which their readers would fail, by their depth, a number or half a character: no outcome is lost
//! because of one, and every page can still be parsed.

use crate::server::Server;
use reqwest::StatusCode;
use serde_json::{Value, json};

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// A session with one execution of each of these jobs.
async fn session_with(server: &Server, jobs: usize) -> (i64, Vec<Value>) {
    for _ in 0..jobs {
        server.submit(json!({"name": "raw", "max_retries": 3})).await;
    }
    let opening = json!({"worker": "raw", "job_types": ["raw"], "lease_secs": 60});
    let (_, session) = server.post("/api/v1/worker/sessions", &opening.to_string()).await;
    let session = session["session"].as_i64().expect("a number");
    let poll = json!({"session": session, "turn": 1, "job_types": ["raw"], "wait_secs": 0, "capacity": jobs});
    let (_, polled) = server.post("/api/v1/worker/poll", &poll.to_string()).await;
    let assignments = polled["assignments"].as_array().expect("a list").clone();
    assert_eq!(assignments.len(), jobs, "{polled}");
    (session, assignments)
}

#[tokio::test]
async fn a_reported_result_that_parsers_refuse_fails_its_attempt_and_no_other() {
    let server = Server::start();
    let (session, assignments) = session_with(&server, 3).await;
    let report = |assignment: &Value, result: &str| {
        format!(
            r#"{{"session": {session}, "execution_id": {}, "epoch": {}, "outcome": "succeeded", "result": {result}}}"#,
            assignment["execution_id"], assignment["epoch"]
        )
    };
    let reports = format!(
        r#"{{"reports": [{}, {}, {}]}}"#,
        report(&assignments[0], &nested(30_000)),
        report(&assignments[1], &nested(100)),
        report(&assignments[2], r#"["\ud800"]"#)
    );
    let (status, answers) = server.post("/api/v1/worker/report", &reports).await;
    assert_eq!(
        (status, &answers["answers"]),
        (StatusCode::OK, &json!(["accepted", "accepted", "accepted"])),
        "{answers}"
    );
    let execution = async |assignment: &Value| {
        server.get(&format!("/api/v1/executions/{}", assignment["execution_id"].as_str().unwrap())).await.1
    };
    let failed = execution(&assignments[0]).await;
    assert_eq!((&failed["status"], &failed["result"]), (&json!("FAILED"), &Value::Null));
    assert_eq!(failed["error_message"], "the result nests arrays and objects more than 100 deep");
    let (_, job) = server.get(&format!("/api/v1/jobs/{}", assignments[0]["job_id"].as_str().unwrap())).await;
    assert_eq!(job["status"], "FAILED", "another attempt would not help: {job}");
    let half = execution(&assignments[2]).await;
    let problem =
        "the result contains half of a surrogate pair (\\ud800 to \\udfff), which is not a character";
    assert_eq!((&half["status"], &half["error_message"]), (&json!("FAILED"), &json!(problem)));
    let kept = execution(&assignments[1]).await;
    assert_eq!((&kept["status"], kept["result"].to_string()), (&json!("SUCCEEDED"), nested(100)));
    let (status, page) = server.get("/api/v1/executions?status=SUCCEEDED").await;
    assert_eq!((status, page["items"].as_array().map(Vec::len)), (StatusCode::OK, Some(1)), "{page}");
}

#[tokio::test]
async fn a_checkpoint_that_nests_too_deep_is_refused_by_field() {
    let server = Server::start();
    let (session, assignments) = session_with(&server, 1).await;
    let note = async |depth: usize| {
        let note = format!(
            r#"{{"execution_id": {}, "epoch": {}, "checkpoint": {}}}"#,
            assignments[0]["execution_id"],
            assignments[0]["epoch"],
            nested(depth)
        );
        let notes = format!(r#"{{"session": {session}, "notes": [{note}]}}"#);
        server.post("/api/v1/worker/notes", &notes).await
    };
    let (status, problem) = note(30_000).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    let expected = json!({
        "field": "notes[0].checkpoint",
        "detail": "must nest arrays and objects at most 100 deep",
    });
    assert_eq!(problem["errors"][0], expected);
    assert_eq!(note(100).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_payload_that_parsers_refuse_is_refused() {
    let server = Server::start();
    let refusals = [
        (r#""half \ud800""#, "the body must not contain half of a surrogate pair (\\ud800 to \\udfff)"),
        (
            "1e999",
            "the body must contain only numbers that fit into a 64-bit float; send larger ones as strings",
        ),
    ];
    for (payload, detail) in refusals {
        let body = format!(r#"{{"name": "raw", "payload": {payload}}}"#);
        let (status, problem) = server.post("/api/v1/jobs", &body).await;
        assert_eq!((status, &problem["detail"]), (StatusCode::BAD_REQUEST, &json!(detail)), "{problem}");
    }
    let (_, page) = server.get("/api/v1/jobs").await;
    assert_eq!(page["items"], json!([]));
}
