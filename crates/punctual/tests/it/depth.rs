//! Queues with a size limit accept no more than that, and report it.

use crate::driven::{HOUR, pass, standing_at, start};
use crate::redact::shown;
use crate::server::{Server, answer};
use punctual_client::{BatchItem, SetQueue, SubmitJob};
use punctual_core::job::JobStatus;
use reqwest::{Method, StatusCode};
use serde_json::json;
use std::time::Duration;

fn letter(number: usize) -> SubmitJob {
    let queue = Some("mail".to_owned());
    SubmitJob { queue, ..SubmitJob::named(format!("letter-{number}")).with_type("noop") }
}

#[tokio::test]
async fn many_who_submit_at_once_never_overfill_a_queue() {
    let server = Server::start();
    let client = server.client();
    client.pause_queue("mail").await.unwrap();
    let set =
        client.set_queue("mail", &SetQueue { max_depth: Some(7), ..SetQueue::default() }).await.unwrap();
    assert_eq!((set.settings.max_depth, set.paused, set.depth()), (Some(7), true, 0));
    let mut submitters = tokio::task::JoinSet::new();
    for number in 0..60 {
        let client = client.clone();
        submitters.spawn(async move { client.submit(&letter(number)).await });
    }
    let mut taken = Vec::new();
    while let Some(submitted) = submitters.join_next().await {
        match submitted.unwrap() {
            Ok(submitted) => taken.push(submitted.job_id),
            Err(error) => {
                let problem = error.problem().unwrap_or_else(|| panic!("{error}"));
                assert_eq!((problem.status, problem.title.as_str()), (429, "the queue is full"));
                assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
                assert!(error.is_retryable());
            }
        }
    }
    assert_eq!(taken.len(), 7);
    let mail = client.queue("mail").await.unwrap();
    assert_eq!((mail.queued, mail.settings.max_depth), (7, Some(7)));
    client.resume_queue("mail").await.unwrap();
    for job in taken {
        assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Completed);
    }
    client.submit(&letter(61)).await.unwrap();
}

#[tokio::test]
async fn a_limit_outlives_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &[]);
    server.client().pause_queue("mail").await.unwrap();
    server.client().set_queue("mail", &SetQueue { max_depth: Some(1), ..SetQueue::default() }).await.unwrap();
    server.client().submit(&letter(1)).await.unwrap();
    server.kill();
    let server = Server::start_in(directory.path(), &[]);
    let refused = server.client().submit(&letter(2)).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().status, 429);
    let open = server
        .client()
        .set_queue("mail", &SetQueue { max_depth: None, ..SetQueue::default() })
        .await
        .unwrap();
    assert_eq!((open.settings.max_depth, open.queued), (None, 1));
    server.client().submit(&letter(2)).await.unwrap();
}

#[tokio::test]
async fn a_batch_is_taken_as_far_as_there_is_room() {
    let server = Server::start();
    let client = server.client();
    client.pause_queue("mail").await.unwrap();
    client.set_queue("mail", &SetQueue { max_depth: Some(2), ..SetQueue::default() }).await.unwrap();
    let jobs: Vec<SubmitJob> = (0..4).map(letter).collect();
    let keyed = client.with_request_key("batch-1");
    let items = keyed.submit_batch(&jobs).await.unwrap().items;
    let refused: Vec<bool> = items.iter().map(|item| matches!(item, BatchItem::Refused { .. })).collect();
    assert_eq!(refused, [false, false, true, true]);
    let BatchItem::Refused { error } = &items[2] else { panic!("{items:?}") };
    assert_eq!((error.status, error.retry_after_secs), (429, Some(5)));
    let said = error.detail.as_deref().unwrap();
    assert!(said.contains("queue mail has depth 2") && said.contains("max_depth 2"), "{said}");

    // No job is accepted: the whole request is rejected. A repeat accepts those for which there was no room
    // before, and none twice.
    let nothing = client.submit_batch(&jobs[..1]).await.unwrap_err();
    assert_eq!(nothing.problem().unwrap().status, 429);
    client.set_queue("mail", &SetQueue { max_depth: Some(4), ..SetQueue::default() }).await.unwrap();
    let again = keyed.submit_batch(&jobs).await.unwrap().items;
    assert!(again.iter().all(|item| matches!(item, BatchItem::Submitted(_))), "{again:?}");
    assert_eq!(client.queue("mail").await.unwrap().queued, 4);
}

#[tokio::test]
async fn what_is_to_come_is_taken_and_fires_into_a_full_queue() {
    let server = standing_at(start());
    let client = server.client();
    client.pause_queue("mail").await.unwrap();
    client.set_queue("mail", &SetQueue { max_depth: Some(0), ..SetQueue::default() }).await.unwrap();
    let later = json!({"name": "later", "job_type": "noop", "queue": "mail", "delay": "1h"});
    let later = server.submit(later).await;
    let hourly = json!({"name": "hourly", "job_type": "noop", "queue": "mail", "interval": "1h"});
    let hourly = server.submit(hourly).await;
    let (status, _) = server.post(&format!("/api/v1/jobs/{hourly}/trigger"), "").await;
    assert_eq!(status, StatusCode::CREATED, "people who trigger a job mean it");
    pass(&server, start().plus(HOUR)).await;
    assert_eq!(client.queue("mail").await.unwrap().queued, 2, "the trigger and what was to come");
    assert_eq!(client.job(later).await.unwrap().status, JobStatus::Active);
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused_by_name() {
    let server = Server::start();
    for (body, said) in [
        (json!({"max_depht": 1}), "max_depht"),
        (json!({"max_depth": -1}), "max_depth"),
        (json!({"max_depth": "many"}), "max_depth"),
        (json!({"max_depth": 2_000_000_000_000_u64}), "max_depth must be a number from 0 to"),
    ] {
        let request = server.request(Method::PUT, "/api/v1/queues/mail").json(&body);
        let (status, problem) = answer(request).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body} gave {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(said), "{problem}");
    }
}

#[test]
fn the_command_line_limits_queues() {
    let server = standing_at(start());
    insta::assert_snapshot!("queue_set", shown(&server.cli(&["queue", "set", "mail", "--max-depth", "1"])));
    server.said(&["queue", "pause", "mail"]);
    server.said(&["job", "submit", "letter", "--type", "noop", "--queue", "mail"]);
    let another = ["job", "submit", "another", "--type", "noop", "--queue", "mail"];
    let refused = server.cli(&[&another[..], &["--retry-time", "0s"]].concat());
    insta::assert_snapshot!("queue_full", shown(&refused));
    insta::assert_snapshot!("queue_show", shown(&server.cli(&["queue", "show", "mail"])));
    server.said(&["queue", "set", "mail", "--max-depth", "none"]);
    server.said(&["job", "submit", "another", "--type", "noop", "--queue", "mail"]);
    insta::assert_snapshot!(
        "queue_set_nonsense",
        shown(&server.cli(&["queue", "set", "mail", "--max-depth", "-"]))
    );
}
