//! Pausing the whole cluster: everything waits, or recurring runs are skipped; and two changes of a queue at once.

use crate::driven::{HOUR, MINUTE, advance, attempts, standing_at, standing_in, start};
use crate::principals::Principal;
use crate::server::{Server, eventually};
use punctual_client::ExecutionStatus::Succeeded;
use punctual_client::SetPause;
use punctual_core::job::JobStatus;
use punctual_core::schedule::SkipReason;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

fn noop(name: &str) -> Value {
    json!({"name": name, "job_type": "noop"})
}

async fn is_paused(server: &Server) -> bool {
    server.client().cluster_pause().await.unwrap().paused
}

#[tokio::test]
async fn nothing_starts_until_the_cluster_is_resumed() {
    let server = Server::start();
    let client = server.client();
    assert!(!client.cluster_pause().await.unwrap().paused);
    let said = server.said(&["pause", "--reason", "database upgrade"]);
    assert!(said.contains("the cluster is paused since") && said.contains("database upgrade"), "{said}");
    let waiting = server.submit(noop("waiting")).await;
    let explained = client.explain(waiting).await.unwrap().summary;
    assert!(
        explained.contains("The whole cluster has been paused") && explained.contains("database upgrade"),
        "{explained}"
    );
    assert!(server.said(&["stats"]).contains("the cluster is paused since"));
    let doctor = server.cli(&["doctor"]);
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("database upgrade"));
    assert_eq!(client.job(waiting).await.unwrap().status, JobStatus::Active);
    // A queue that is resumed stays held by the cluster.
    client.resume_queue("default").await.unwrap();
    let (_, queues) = server.get("/api/v1/queues").await;
    assert!(queues["items"].as_array().unwrap().iter().all(|queue| queue["queue"] == "default"), "{queues}");
    assert!(server.said(&["unpause"]).contains("resumed the cluster"));
    assert_eq!(client.wait(waiting).await.unwrap().status, JobStatus::Completed);
    assert!(server.said(&["unpause"]).contains("was not paused"));
    let (_, entries) = server.get("/api/v1/audit?action=cluster.pause").await;
    assert_eq!(entries["items"].as_array().unwrap().len(), 1, "{entries}");
}

#[tokio::test]
async fn a_pause_survives_a_kill_and_ends_at_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let server = standing_in(directory.path(), start());
    let until = Some(start().plus(2 * HOUR));
    let pause = SetPause { reason: "move".to_owned(), until, skip: false };
    server.client().pause_cluster(&pause).await.unwrap();
    let job = server.submit(noop("waiting")).await;
    server.kill();

    let server = standing_in(directory.path(), start().plus(HOUR));
    assert!(is_paused(&server).await);
    assert_eq!(server.client().cluster_pause().await.unwrap().until, until);
    assert_eq!(server.client().job(job).await.unwrap().status, JobStatus::Active);
    advance(&server, start().plus(2 * HOUR + MINUTE)).await;
    eventually("it runs by itself", async || {
        server.client().job(job).await.unwrap().status == JobStatus::Completed
    })
    .await;
    assert!(!is_paused(&server).await);
}

#[tokio::test]
async fn recurring_runs_wait_or_are_skipped_by_choice() {
    for skip in [false, true] {
        let server = standing_at(start());
        let client = server.client();
        let hourly =
            json!({"name": "hourly", "job_type": "noop", "interval": "1h", "overlap_policy": "QUEUE"});
        let hourly = server.submit(hourly).await;
        let once = server.submit(json!({"name": "once", "job_type": "noop", "delay": "90m"})).await;
        client.pause_cluster(&SetPause { reason: "test".to_owned(), until: None, skip }).await.unwrap();
        advance(&server, start().plus(3 * HOUR + MINUTE)).await;
        assert_eq!(client.job(once).await.unwrap().status, JobStatus::Active, "one-time jobs wait");
        client.resume_cluster().await.unwrap();
        assert_eq!(client.wait(once).await.unwrap().status, JobStatus::Completed);
        advance(&server, start().plus(4 * HOUR + MINUTE)).await;
        let page = client.executions(hourly, None, None).await.unwrap();
        let ran: Vec<u32> = attempts(&server, hourly)
            .await
            .iter()
            .filter(|run| run.2 == Succeeded)
            .map(|run| run.0)
            .collect();
        if skip {
            assert_eq!((page.skipped[0].count, page.skipped[0].reason), (3, SkipReason::Paused));
            assert_eq!(ran, [1]);
        } else {
            assert_eq!((page.skipped.len(), ran.len()), (0, 4), "{ran:?}");
        }
    }
}

#[tokio::test]
async fn a_pause_needs_a_reason_and_a_token_for_the_whole_cluster() {
    let server = Server::start();
    let put = async |body: Value| {
        let request = server.request(Method::PUT, "/api/v1/pause").json(&body);
        crate::server::answer(request).await
    };
    for (body, field) in [
        (json!({}), "reason"),
        (json!({"reason": ""}), "reason"),
        (json!({"reason": "x", "until": "2020-01-01T00:00:00Z"}), "until"),
        (json!({"reason": "x", "untill": null}), "untill"),
    ] {
        let (status, problem) = put(body.clone()).await;
        assert_eq!(
            (status, &problem["errors"][0]["field"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!(field)),
            "{problem}"
        );
    }
    let limited =
        Principal::create(&server, json!({"name": "mailer", "role": "operator", "queues": ["mail"]})).await;
    let (status, _) = limited.send(Method::PUT, "/api/v1/pause", &json!({"reason": "x"})).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(!is_paused(&server).await);
}

#[tokio::test]
async fn two_changes_of_a_queue_at_the_same_time_both_take_effect() {
    let server = Server::start();
    for round in 0..10_u32 {
        let queue = format!("/api/v1/queues/raced-{round}");
        let change = async |body: Value| {
            crate::server::answer(server.request(Method::PATCH, &queue).json(&body)).await
        };
        let (one, two, three) = tokio::join!(
            change(json!({"concurrency": 3})),
            change(json!({"rate": "5/1s"})),
            change(json!({"weights": {"ann": 2}})),
        );
        assert!(
            [&one, &two, &three].iter().all(|(status, _)| *status == StatusCode::OK),
            "{one:?} {two:?} {three:?}"
        );
        let (_, stored) = server.get(&queue).await;
        assert_eq!(
            (&stored["concurrency"], &stored["rate"], &stored["weights"]),
            (&json!(3), &json!("5/1s"), &json!({"ann": 2}))
        );
    }
    server.said(&["queue", "set", "raced-0", "--concurrency", "none", "--weight", "ann=none"]);
    let (_, stored) = server.get("/api/v1/queues/raced-0").await;
    assert_eq!(
        (&stored["concurrency"], &stored["rate"], &stored["weights"]),
        (&Value::Null, &json!("5/1s"), &json!({}))
    );
}

#[tokio::test]
async fn names_of_queues_that_break_urls_are_refused() {
    let server = Server::start();
    for name in [".", ".."] {
        let mut job = noop("dotted");
        job["queue"] = json!(name);
        let (status, problem) = server.post("/api/v1/jobs", &job.to_string()).await;
        assert_eq!(
            (status, &problem["errors"][0]["field"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!("queue")),
            "{problem}"
        );
        assert_eq!(server.cli(&["queue", "set", name, "--concurrency", "1"]).status.code(), Some(2));
    }
}
