//! Permanent failures: how often they were tried, and what can be done about them.

use crate::driven::{HOUR, MINUTE, advance, attempts, everything, explained, reaches, standing_at, start};
use crate::redact::shown;
use crate::server::{Server, eventually};
use punctual_client::ExecutionStatus::{Cancelled, Failed, Running, Succeeded, TimedOut, Waiting};
use punctual_client::{DeadLetterBody, DeadLetterFilter, DeadLetterSelection, SubmitJob};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use reqwest::StatusCode;
use serde_json::{Value, json};

/// Fails every attempt by its timeout, which is in real time; its retries follow the driven clock.
fn failing(max_retries: u32) -> Value {
    json!({
        "name": "flaky", "job_type": "sleep", "payload": {"ms": 60_000}, "timeout_secs": 0.02,
        "max_retries": max_retries, "retry": {"strategy": "ladder", "steps": ["1m", "10m"]},
    })
}

async fn letters(server: &Server) -> Vec<DeadLetterBody> {
    server.client().dead_letters(&DeadLetterFilter::default(), None, None).await.unwrap().items
}

/// Makes a job that fails by its timeout succeed the next time.
async fn mend(server: &Server, job: JobId) {
    let mended = json!({"payload": {"ms": 0}, "timeout_secs": 60});
    let (status, body) = server.patch(&format!("/api/v1/jobs/{job}"), &mended).await;
    assert_eq!(status, StatusCode::OK, "{body}");
}

#[tokio::test]
async fn a_job_that_always_fails_is_dead_after_exactly_its_attempts() {
    let server = standing_at(start());
    for max_retries in [0, 1, 3] {
        let begun = server.client().clock().await.unwrap().now;
        let job = server.submit(failing(max_retries)).await;
        advance(&server, begun.plus(HOUR)).await;
        let expected: Vec<_> = (1..=max_retries + 1).map(|attempt| (1, attempt, TimedOut)).collect();
        assert_eq!(attempts(&server, job).await, expected);
        let found = server.client().job(job).await.unwrap();
        assert_eq!(found.status, JobStatus::Failed);
        assert_eq!(
            found.status_reason,
            Some(format!("attempt {} ran out of time and no retry is left", max_retries + 1))
        );
        let letters = letters(&server).await;
        let letter = letters.iter().find(|letter| letter.job_id == job).unwrap();
        assert_eq!((letter.occurrence_id, letter.attempts), (job.occurrence(1), max_retries + 1));
        let retries = [MINUTE, 11 * MINUTE, 21 * MINUTE];
        let died_at = match max_retries {
            0 => begun,
            retries_left => begun.plus(retries[retries_left as usize - 1]),
        };
        assert_eq!(letter.died_at, died_at);
    }
}

#[tokio::test]
async fn a_failure_that_no_retry_can_mend_is_not_retried() {
    let server = standing_at(start());
    let mut job = failing(5);
    job["retry"]["fail_on"] = json!(["TIMED_OUT"]);
    let job = server.submit(job).await;
    assert_eq!(server.client().wait(job).await.unwrap().status, JobStatus::Failed);
    assert_eq!(attempts(&server, job).await, [(1, 1, TimedOut)]);
    assert!(explained(&server, job).await.contains("as retry.fail_on says"));
}

#[tokio::test]
async fn a_retried_job_goes_on_with_the_same_occurrence_and_the_next_attempts() {
    let server = standing_at(start());
    let client = server.client();
    let job = server.submit(failing(1)).await;
    advance(&server, start().plus(HOUR)).await;
    assert_eq!(attempts(&server, job).await, [(1, 1, TimedOut), (1, 2, TimedOut)]);

    let retried = client.retry(job).await.unwrap();
    assert_eq!(retried.execution_id, Some(job.occurrence(1).attempt(3)));
    assert_eq!(letters(&server).await, []);
    advance(&server, start().plus(2 * HOUR)).await;
    let all = attempts(&server, job).await;
    assert_eq!(all, (1..=4).map(|attempt| (1, attempt, TimedOut)).collect::<Vec<_>>(), "a fresh budget");
    let died = letters(&server).await;
    assert_eq!((died[0].occurrence_id, died[0].attempts), (job.occurrence(1), 4));

    mend(&server, job).await;
    client.retry(job).await.unwrap();
    assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Completed);
    assert_eq!(attempts(&server, job).await.last(), Some(&(1, 5, Succeeded)));
    let last = client.execution(job.occurrence(1).attempt(5)).await.unwrap();
    assert_eq!((last.scheduled_time, last.started_at), (start(), Some(start().plus(2 * HOUR))));
    assert_eq!(letters(&server).await, []);
    let (status, problem) = server.post(&format!("/api/v1/jobs/{job}/retry"), "").await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
}

#[tokio::test]
async fn redriving_by_id_adds_the_next_attempt_to_the_same_occurrence() {
    let server = standing_at(start());
    let client = server.client();
    let mut job = failing(0);
    job["interval"] = json!("1h");
    job["max_runs"] = json!(2);
    let job = server.submit(job).await;
    advance(&server, start().plus(3 * HOUR)).await;
    assert_eq!(client.job(job).await.unwrap().status, JobStatus::Completed, "recurring jobs just end");
    assert_eq!(attempts(&server, job).await, [(1, 1, TimedOut), (2, 1, TimedOut)]);
    assert!(explained(&server, job).await.contains("failed permanently"));

    mend(&server, job).await;
    let first = DeadLetterSelection::ids(vec![job.occurrence(1), job.occurrence(7)]);
    let answer = client.redrive(&first).await.unwrap();
    assert_eq!((answer.redriven, answer.refused.len()), (1, 1));
    assert_eq!(answer.refused[0].occurrence_id, job.occurrence(7));
    reaches(&server, job.occurrence(1).attempt(2), Succeeded).await;
    let again = client.redrive(&first).await.unwrap();
    assert_eq!((again.redriven, again.refused.len()), (0, 2), "a letter is redriven once");
    let left: Vec<_> = letters(&server).await.iter().map(|letter| letter.occurrence_id).collect();
    assert_eq!(left, [job.occurrence(2)]);
}

#[tokio::test]
async fn a_redriven_run_of_a_paused_job_waits_until_it_is_resumed() {
    let server = standing_at(start());
    let client = server.client();
    let mut job = failing(0);
    job["interval"] = json!("1h");
    let job = server.submit(job).await;
    advance(&server, start().plus(HOUR)).await;
    client.pause(job).await.unwrap();
    mend(&server, job).await;
    assert_eq!(client.redrive(&DeadLetterSelection::ids(vec![job.occurrence(1)])).await.unwrap().redriven, 1);
    advance(&server, start().plus(HOUR + MINUTE)).await;
    assert_eq!(attempts(&server, job).await, [(1, 1, TimedOut), (1, 2, Waiting)]);
    client.resume(job).await.unwrap();
    reaches(&server, job.occurrence(1).attempt(2), Succeeded).await;
}

#[tokio::test]
async fn redriven_runs_of_one_job_run_one_after_the_other() {
    let server = standing_at(start());
    let client = server.client();
    let mut job = failing(0);
    job["interval"] = json!("1h");
    job["max_runs"] = json!(3);
    let job = server.submit(job).await;
    advance(&server, start().plus(3 * HOUR)).await;
    assert_eq!(letters(&server).await.len(), 3);
    let (status, _) = server
        .patch(&format!("/api/v1/jobs/{job}"), &json!({"payload": {"ms": 3_600_000}, "timeout_secs": 3_600}))
        .await;
    assert_eq!(status, StatusCode::OK);
    let all = DeadLetterSelection::matching(DeadLetterFilter::default());
    assert_eq!(client.redrive(&all).await.unwrap().redriven, 3);
    let mut left = vec![1, 2, 3];
    while !left.is_empty() {
        let mut running = vec![];
        eventually("one of them runs", async || {
            let open = attempts(&server, job).await.into_iter().filter(|(_, attempt, _)| *attempt == 2);
            running = open.filter(|(_, _, status)| *status == Running).map(|(number, ..)| number).collect();
            !running.is_empty()
        })
        .await;
        assert_eq!(running.len(), 1, "{running:?}");
        client.cancel_execution(job.occurrence(running[0]).attempt(2)).await.unwrap();
        reaches(&server, job.occurrence(running[0]).attempt(2), Cancelled).await;
        left.retain(|number| *number != running[0]);
    }
}

#[tokio::test]
async fn what_was_discarded_cannot_be_redriven_and_its_history_stays() {
    let server = standing_at(start());
    let client = server.client();
    let job = server.submit(failing(0)).await;
    client.wait(job).await.unwrap();
    let which = DeadLetterSelection::ids(vec![job.occurrence(1)]);
    assert_eq!(client.discard(&which).await.unwrap().discarded, 1);
    assert_eq!(letters(&server).await, []);
    let before = everything(&server).await;
    assert_eq!(client.discard(&which).await.unwrap().discarded, 0);
    assert_eq!(client.redrive(&which).await.unwrap().redriven, 0);
    let (status, _) = server.post(&format!("/api/v1/jobs/{job}/retry"), "").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(everything(&server).await, before);
    assert_eq!(attempts(&server, job).await, [(1, 1, TimedOut)]);
}

#[tokio::test]
async fn letters_are_found_by_job_name_type_queue_time_and_error() {
    let server = standing_at(start());
    let client = server.client();
    let broken = json!({"name": "broken", "job_type": "sleep", "queue": "mail"});
    let broken = server.submit(broken).await;
    client.wait(broken).await.unwrap();
    advance(&server, start().plus(HOUR)).await;
    let flaky = server.submit(failing(0)).await;
    client.wait(flaky).await.unwrap();
    for (query, expected) in [
        (String::new(), vec![flaky, broken]),
        (format!("job_id={broken}"), vec![broken]),
        ("name=flaky".to_owned(), vec![flaky]),
        ("job_type=sleep".to_owned(), vec![flaky, broken]),
        ("job_type=noop".to_owned(), vec![]),
        ("queue=mail".to_owned(), vec![broken]),
        ("died_from=2026-05-01T00:30:00Z".to_owned(), vec![flaky]),
        ("died_until=2026-05-01T00:30:00Z".to_owned(), vec![broken]),
        ("died_from=2026-05-01T01:00:00Z&died_until=2026-05-01T01:00:00Z".to_owned(), vec![]),
        ("error=payload".to_owned(), vec![broken]),
        ("error=payload&name=flaky".to_owned(), vec![]),
    ] {
        let (status, page) = server.get(&format!("/api/v1/dead-letters?{query}")).await;
        assert_eq!(status, StatusCode::OK, "{query}: {page}");
        let found: Vec<JobId> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|letter| letter["job_id"].as_str().unwrap().parse().unwrap())
            .collect();
        assert_eq!(found, expected, "{query}");
    }
}

#[tokio::test]
async fn the_command_line_redrives_and_discards_page_after_page() {
    let server = standing_at(start());
    let client = server.client();
    let jobs: Vec<SubmitJob> = (0..1_200)
        .map(|number| SubmitJob {
            queue: Some(if number < 1_100 { "mail" } else { "other" }.to_owned()),
            ..SubmitJob::named(format!("broken-{number}")).with_type("sleep")
        })
        .collect();
    client.submit_batch(&jobs).await.unwrap();
    advance(&server, start().plus(MINUTE)).await;
    assert_eq!(client.stats().await.unwrap().counters.failed, 1_200);
    assert_eq!(server.said(&["dlq", "redrive", "--queue", "mail"]), "1100 redriven\n");
    advance(&server, start().plus(2 * MINUTE)).await;
    assert_eq!(client.stats().await.unwrap().counters.failed, 2_300);
    let refused = server.cli(&["dlq", "discard", "--queue", "mail"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--yes"));
    assert_eq!(server.said(&["dlq", "discard", "--queue", "mail", "--yes"]), "1100 discarded\n");
    assert_eq!(server.said(&["dlq", "redrive", "--all", "-o", "json"]).matches("100").count(), 1);
    advance(&server, start().plus(3 * MINUTE)).await;
    assert_eq!(server.said(&["dlq", "discard", "--all", "--yes"]), "100 discarded\n");
    assert_eq!(server.said(&["dlq", "list"]), "no dead letters\n");
}

#[tokio::test]
async fn the_command_line_says_which_were_refused() {
    let server = standing_at(start());
    let client = server.client();
    let job = server.submit(failing(0)).await;
    client.wait(job).await.unwrap();
    let cancelled = server.submit(json!({"name": "hourly", "job_type": "sleep", "interval": "1h"})).await;
    advance(&server, start().plus(HOUR)).await;
    assert_eq!(attempts(&server, cancelled).await, [(1, 1, Failed)]);
    client.cancel(cancelled).await.unwrap();
    let [first, second] = [job, cancelled].map(|job| job.occurrence(1).to_string());
    insta::assert_snapshot!("dlq_list", shown(&server.cli(&["dlq", "list", "--since", "2h"])));
    insta::assert_snapshot!("dlq_by_job", shown(&server.cli(&["dlq", "list", "--job", "flaky"])));
    insta::assert_snapshot!("dlq_redrive", shown(&server.cli(&["dlq", "redrive", &first, &second])));
    client.wait(job).await.unwrap();
    insta::assert_snapshot!("dlq_retry", shown(&server.cli(&["job", "retry", "flaky"])));
    insta::assert_snapshot!("dlq_discard", shown(&server.cli(&["dlq", "discard", &second])));
    for unclear in [
        &["dlq", "redrive"][..],
        &["dlq", "redrive", "--all", "--name", "x"],
        &["dlq", "discard", &first, "--all"],
    ] {
        assert_eq!(server.cli(unclear).status.code(), Some(2), "{unclear:?}");
    }
}
