//! How many slots and workers a queue needs, as reported to autoscalers, and slots that follow the work.

use crate::server::{Server, eventually};
use punctual_core::ids::JobId;
use serde_json::{Value, json};

/// Jobs that take longer than any test.
async fn naps(server: &Server, queue: &str, count: usize) -> Vec<JobId> {
    let nap = json!({
        "name": "nap", "job_type": "sleep", "queue": queue, "payload": {"ms": 600_000}, "timeout_secs": 900,
    });
    let jobs: Vec<Value> = std::iter::repeat_n(nap, count).collect();
    let (status, body) = server.post("/api/v1/jobs/batch", &json!({"jobs": jobs}).to_string()).await;
    assert!(status.is_success(), "{body}");
    let ids = body["items"].as_array().expect("answers").iter();
    ids.map(|item| item["job_id"].as_str().expect("an id").parse().expect("the id of a job")).collect()
}

async fn told(server: &Server, path: &str) -> Value {
    let (status, body) = server.get(&format!("/api/v1/autoscaling{path}")).await;
    assert!(status.is_success(), "{body}");
    body
}

/// Waits until the API reports these numbers for a queue.
async fn has(server: &Server, queue: &str, queued: u64, running: u64) {
    eventually(&format!("{queue}: {queued} queued, {running} running"), async || {
        let told = told(server, &format!("/{queue}")).await;
        (&told["queued"], &told["running"]) == (&json!(queued), &json!(running))
    })
    .await;
}

#[tokio::test]
async fn a_queue_is_told_with_what_it_has_and_what_it_needs() {
    let server = Server::start_with(&["--slots", "2"]);
    naps(&server, "images", 10).await;
    has(&server, "images", 8, 2).await;

    let patient = told(&server, "/images?target_wait=1h&slots_per_worker=4").await;
    assert_eq!((&patient["workers"], &patient["slots"]), (&json!(1), &json!(2)));
    let needs = |told: &Value| (told["desired_slots"].clone(), told["desired_workers"].clone());
    assert_eq!(needs(&patient), (json!(2), json!(1)), "nothing waits for too long: as many as there are");
    eventually("what waits for too long asks for more, four times as many at most", async || {
        let hasty = told(&server, "/images?target_wait=1ms&slots_per_worker=4").await;
        needs(&hasty) == (json!(8), json!(2))
    })
    .await;
    let wait = told(&server, "/images").await["oldest_wait_secs"].as_f64().expect("a number");
    assert!(wait > 0.0);

    naps(&server, "mail", 1).await;
    has(&server, "mail", 1, 0).await;
    let page = told(&server, "?target_wait=1h").await;
    let names: Vec<&Value> = page["items"].as_array().unwrap().iter().map(|item| &item["queue"]).collect();
    assert!(names.contains(&&json!("images")) && names.contains(&&json!("mail")), "{page}");
    let total = &page["total"];
    assert_eq!((&total["queue"], &total["queued"], &total["running"]), (&Value::Null, &json!(9), &json!(2)));
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.as_str().unwrap().contains("punctual_desired_slots{queue=\"images\"} "), "{metrics}");
}

#[tokio::test]
async fn what_nobody_may_run_needs_no_workers_and_who_takes_no_work_is_not_counted() {
    let server = Server::start_with(&["--slots", "2"]);
    naps(&server, "images", 5).await;
    has(&server, "images", 3, 2).await;
    server.client().pause_queue("images").await.unwrap();
    has(&server, "images", 0, 2).await;
    let paused = told(&server, "/images?target_wait=1ms").await;
    assert_eq!(paused["desired_slots"], 2, "what runs needs its slots: {paused}");
    server.client().resume_queue("images").await.unwrap();
    has(&server, "images", 3, 2).await;
    server.client().pause_worker("embedded").await.unwrap();
    eventually("a paused worker is not counted", async || {
        let told = told(&server, "/images").await;
        (&told["workers"], &told["slots"]) == (&json!(0), &json!(0))
    })
    .await;
    let unknown = told(&server, "/nobody-uses-it").await;
    assert_eq!((&unknown["queued"], &unknown["desired_slots"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn a_question_that_makes_no_sense_is_told_so() {
    let server = Server::start();
    for (query, field) in [
        ("target_wait=0s", "target_wait"),
        ("target_wait=25h", "target_wait"),
        ("slots_per_worker=0", "slots_per_worker"),
    ] {
        let (status, problem) = server.get(&format!("/api/v1/autoscaling?{query}")).await;
        assert_eq!((status.as_u16(), &problem["errors"][0]["field"]), (400, &json!(field)), "{problem}");
    }
}

/// How many slots the worker reports, and how many of them are in use.
async fn slots(server: &Server) -> Option<(u32, u32)> {
    let condition = server.client().worker("embedded").await.ok()?.condition?;
    Some((condition.slots, condition.running))
}

#[tokio::test]
async fn slots_between_bounds_follow_what_waits_and_go_back_when_it_is_done() {
    let server = Server::start_with(&["--slots", "4..64"]);
    eventually("it begins with the least", async || slots(&server).await == Some((4, 0))).await;
    let jobs = naps(&server, "images", 80).await;
    eventually("it has as many as it may", async || slots(&server).await == Some((64, 64))).await;
    has(&server, "images", 16, 64).await;
    assert!(server.said(&["workers", "list"]).contains("64/64 (4..64)"));
    for job in jobs {
        server.client().cancel(job).await.unwrap();
    }
    eventually("it gives up a quarter once they have been idle", async || {
        slots(&server).await.is_some_and(|(slots, running)| slots < 64 && running == 0)
    })
    .await;
}
