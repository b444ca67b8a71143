//! The `/api/job` API.

use super::{Hand, create, fields, get, now, server, text};
use crate::driven::{MINUTE, pass};
use serde_json::json;

#[tokio::test]
async fn a_job_with_two_attempts_fails_after_both() {
    let server = server();
    let hand = Hand::open(&server, "ImageProcessing").await;
    let job =
        json!({"name": "ImageProcessing", "payload": {"imageUrl": "http://img.com/1.png"}, "maxRetries": 2});
    let accepted = create(&server, "/api/job", job).await;
    assert_eq!(accepted, json!({"jobId": accepted["jobId"], "status": "PENDING"}));
    let path = format!("/api/job/{}", text(&accepted["jobId"]));

    let first = hand.take().await;
    assert_eq!(first["payload"], json!({"imageUrl": "http://img.com/1.png"}));
    let running = get(&server, &path).await;
    assert_eq!(
        (&running["status"], &running["executions"][0]["status"]),
        (&json!("RUNNING"), &json!("RUNNING"))
    );
    hand.fail(&first, "Connection timeout").await;
    let waiting = get(&server, &path).await;
    assert_eq!((&waiting["status"], &waiting["retryCount"]), (&json!("PENDING"), &json!(1)));

    pass(&server, now().plus(5 * MINUTE)).await;
    hand.fail(&hand.take().await, "Image not found").await;
    let failed = get(&server, &path).await;
    assert_eq!(fields(&failed), ["executions", "jobId", "maxRetries", "name", "retryCount", "status"]);
    let expected = json!({"jobId": accepted["jobId"], "name": "ImageProcessing", "status": "FAILED", "retryCount": 2,
        "maxRetries": 2, "executions": failed["executions"]});
    assert_eq!(failed, expected);
    let executions = failed["executions"].as_array().unwrap();
    let seen = executions.iter().map(|one| {
        assert!(one["startedAt"].is_string() && one["endedAt"].is_string(), "{one}");
        (one["attempt"].as_u64().unwrap(), text(&one["status"]), text(&one["error"]))
    });
    let seen: Vec<_> = seen.collect();
    let failed = || "FAILED".to_owned();
    assert_eq!(
        seen,
        [(1, failed(), "Connection timeout".to_owned()), (2, failed(), "Image not found".to_owned())]
    );
    let (_, letters) = server.get("/api/v1/dead-letters").await;
    assert_eq!(letters["items"][0]["job_id"], accepted["jobId"], "{letters}");
}

#[tokio::test]
async fn a_job_succeeds_with_its_result_and_has_three_attempts_by_default() {
    let server = server();
    let accepted =
        create(&server, "/api/job", json!({"name": "PDFConversion", "payload": {"fileId": "doc123"}})).await;
    let path = format!("/api/job/{}", text(&accepted["jobId"]));
    assert_eq!(get(&server, &path).await["status"], "QUEUED");
    let hand = Hand::open(&server, "PDFConversion").await;
    hand.succeed(&hand.take().await, json!({"outputUrl": "http://img.com/out.pdf"})).await;
    let done = get(&server, &path).await;
    assert_eq!(
        (&done["status"], &done["retryCount"], &done["maxRetries"]),
        (&json!("SUCCESS"), &json!(0), &json!(3))
    );
    assert_eq!(done["result"], json!({"outputUrl": "http://img.com/out.pdf"}));
    assert_eq!(done["executions"][0]["status"], "SUCCESS");
}
