//! Paused queues hold everything.

use crate::driven::{HOUR, attempts, explained, pass, reaches, standing_at, start};
use crate::redact::shown;
use crate::server::Server;
use punctual_client::ExecutionStatus::{Queued, Running, Succeeded};
use punctual_core::job::JobStatus;
use serde_json::json;

#[tokio::test]
async fn a_paused_queue_keeps_everything_waiting_and_skips_nothing() {
    let server = standing_at(start());
    let client = server.client();
    let nap = json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 3_600_000}, "queue": "mail"});
    let nap = server.submit(nap).await;
    reaches(&server, nap.occurrence(1).attempt(1), Running).await;

    assert!(client.pause_queue("mail").await.unwrap().paused);
    assert!(client.pause_queue("mail").await.unwrap().paused, "once more is no error");
    let once = server.submit(json!({"name": "once", "job_type": "noop", "queue": "mail"})).await;
    let later =
        server.submit(json!({"name": "later", "job_type": "noop", "queue": "mail", "delay": "1h"})).await;
    let elsewhere = server.submit(json!({"name": "elsewhere", "job_type": "noop"})).await;
    assert_eq!(client.wait(elsewhere).await.unwrap().status, JobStatus::Completed);
    pass(&server, start().plus(2 * HOUR)).await;
    for job in [once, later] {
        assert_eq!(attempts(&server, job).await, [(1, 1, Queued)]);
        assert!(explained(&server, job).await.contains("The queue mail has been paused since"));
    }
    assert_eq!(attempts(&server, nap).await, [(1, 1, Running)], "what runs goes on");
    let queues = client.queues().await.unwrap().items;
    let mail = queues.iter().find(|queue| queue.queue == "mail").unwrap();
    assert_eq!((mail.paused_at, mail.queued, mail.running), (Some(start()), 2, 1));

    assert!(!client.resume_queue("mail").await.unwrap().paused);
    for job in [once, later] {
        assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Completed);
        assert_eq!(attempts(&server, job).await, [(1, 1, Succeeded)]);
    }
}

#[tokio::test]
async fn a_pause_of_a_queue_outlives_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = crate::driven::standing_in(directory.path(), start());
    server.client().pause_queue("mail").await.unwrap();
    let job = server.submit(json!({"name": "once", "job_type": "noop", "queue": "mail"})).await;
    server.kill();
    let server = crate::driven::standing_in(directory.path(), start().plus(HOUR));
    pass(&server, start().plus(2 * HOUR)).await;
    assert_eq!(attempts(&server, job).await, [(1, 1, Queued)]);
    server.client().resume_queue("mail").await.unwrap();
    assert_eq!(server.client().wait(job).await.unwrap().status, JobStatus::Completed);
}

#[tokio::test]
async fn a_queue_without_a_name_is_not_there() {
    let server = standing_at(start());
    for verb in ["pause", "resume"] {
        let (status, problem) = server.post(&format!("/api/v1/queues//{verb}"), "").await;
        assert_eq!(status, reqwest::StatusCode::NOT_FOUND, "{problem}");
    }
    assert_eq!(server.client().queues().await.unwrap().items, []);
}

#[test]
fn the_command_line_holds_queues() {
    let server = standing_at(start());
    insta::assert_snapshot!("queue_none", shown(&server.cli(&["queue", "list"])));
    insta::assert_snapshot!("queue_pause", shown(&server.cli(&["queue", "pause", "mail", "a/b c"])));
    server.said(&["job", "submit", "letter", "--type", "noop", "--queue", "mail"]);
    insta::assert_snapshot!("queue_list", shown(&server.cli(&["queue", "list"])));
    server.said(&["queue", "resume", "mail"]);
    server.said(&["job", "wait", "letter"]);
    insta::assert_snapshot!("queue_left", shown(&server.cli(&["queue", "list"])));
}

#[tokio::test]
async fn weights_are_shown_and_taken_away_one_by_one() {
    let server = Server::start();
    let set = |weights: &[&str]| {
        let flags = weights.iter().flat_map(|weight| ["--weight", *weight]);
        server.said(&["queue", "set", "mail"].into_iter().chain(flags).collect::<Vec<_>>())
    };
    assert!(set(&["ann=3", "bob=2", "eve=4"]).contains("ann=3, bob=2, eve=4"));
    for command in [&["queue", "list"][..], &["queue", "show", "mail"]] {
        let said = server.said(command);
        assert!(said.contains("WEIGHTS") && said.contains("ann=3, bob=2, eve=4"), "{said}");
    }
    let said = set(&["ann=none", "bob=1"]);
    assert!(said.contains("eve=4") && !said.contains("ann="), "{said}");
    let left = server.client().queue("mail").await.unwrap().settings.weights;
    assert_eq!(left.into_iter().collect::<Vec<_>>(), [("eve".to_owned(), 4)]);
    let refused = server.cli(&["queue", "set", "mail", "--weight", "ann"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("such as ann=3 or ann=none"), "{said}");
}
