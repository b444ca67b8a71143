//! One action on everything that a filter selects: through the API and the command line, by callers with limited
//! access, and across a kill of the server.

use crate::principals::Principal;
use crate::server::{Server, eventually};
use punctual_client::{BulkRequest, ExecutionStatus, JobFilter, OperationBody};
use punctual_core::ids::{JobId, OperationId};
use punctual_core::job::JobStatus;
use punctual_core::limits;
use punctual_core::operation::{BulkAction, OperationStatus};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A job that never runs by itself.
fn idle(name: &str) -> Value {
    json!({"name": name, "job_type": "noop", "interval": "24h", "start_at": "2099-01-01T00:00:00Z"})
}

fn tagged(name: &str, tag: &str) -> Value {
    let mut job = idle(name);
    job["tags"] = json!([tag]);
    job
}

async fn submit_many(server: &Server, count: usize, tag: &str) -> Vec<JobId> {
    submit_all(server, (0..count).map(|number| tagged(&format!("{tag}-{number}"), tag)).collect()).await
}

async fn submit_all(server: &Server, jobs: Vec<Value>) -> Vec<JobId> {
    let (status, body) = server.post("/api/v1/jobs/batch", &json!({ "jobs": jobs }).to_string()).await;
    assert!(status.is_success(), "{body}");
    let items = body["items"].as_array().expect("items").iter();
    items.map(|item| item["job_id"].as_str().expect("an id").parse().expect("the id of a job")).collect()
}

async fn bulk(server: &Server, body: Value) -> Value {
    let (status, answer) = server.post("/api/v1/bulk", &body.to_string()).await;
    assert!(status.is_success(), "{body}: {answer}");
    answer
}

async fn finished(server: &Server, answer: &Value) -> OperationBody {
    let id: OperationId = answer["operation_id"].as_str().expect("an id").parse().expect("an id");
    let client = server.client();
    eventually("the operation has ended", async || {
        client.operation(id).await.is_ok_and(|operation| operation.status != OperationStatus::Running)
    })
    .await;
    client.operation(id).await.unwrap()
}

async fn done(server: &Server, body: Value) -> OperationBody {
    let started = bulk(server, body).await;
    finished(server, &started).await
}

async fn count(server: &Server, status: JobStatus, tag: &str) -> usize {
    let filter = JobFilter {
        status: Some(status),
        tags: vec![tag.to_owned()],
        limit: Some(1_000),
        ..JobFilter::default()
    };
    server.client().jobs(&filter).await.unwrap().items.len()
}

#[tokio::test]
async fn a_dry_run_counts_shows_a_sample_and_stores_nothing() {
    let server = Server::start();
    submit_many(&server, 25, "nightly").await;
    server.submit(tagged("other", "weekly")).await;
    let answer =
        bulk(&server, json!({"action": "pause", "filter": {"tag": "nightly"}, "dry_run": true})).await;
    assert_eq!((&answer["matched"], &answer["matched_is_exact"]), (&json!(25), &json!(true)));
    assert_eq!(answer["operation_id"], Value::Null);
    let sample = answer["sample"].as_array().unwrap();
    assert_eq!((sample.len(), &sample[0]["status"]), (10, &json!("ACTIVE")));
    assert!(sample.iter().all(|one| one["name"].as_str().unwrap().starts_with("nightly-")), "{sample:?}");
    assert_eq!(count(&server, JobStatus::Paused, "nightly").await, 0);
    assert_eq!(server.client().operations(None, None).await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn each_action_is_done_to_all_jobs_that_match_and_to_no_other() {
    let server = Server::start();
    submit_many(&server, 230, "batch").await;
    let other = server.submit(idle("other")).await;
    let of_batch = |action: &str| json!({"action": action, "filter": {"tag": ["batch"]}});

    let paused = done(&server, of_batch("pause")).await;
    assert_eq!(
        (paused.status, paused.matched, paused.done, paused.refused),
        (OperationStatus::Completed, 230, 230, 0)
    );
    assert_eq!(count(&server, JobStatus::Paused, "batch").await, 230);
    assert_eq!(done(&server, of_batch("resume")).await.done, 230);
    assert_eq!(count(&server, JobStatus::Active, "batch").await, 230);

    let updated =
        done(&server, json!({"action": "update", "filter": {"tag": "batch"}, "patch": {"priority": 9}}))
            .await;
    assert_eq!((updated.done, updated.patch), (230, Some(json!({"priority": 9}))));
    let patch = json!({"max_retries": 3, "payload": {"password": "x"}});
    done(&server, json!({"action": "update", "filter": {"tag": "batch"}, "patch": patch})).await;
    let (_, entries) = server.get("/api/v1/audit?action=bulk.start").await;
    let patches: Vec<&Value> =
        entries["items"].as_array().unwrap().iter().map(|entry| &entry["details"]["patch"]).collect();
    let without_payload = json!({"max_retries": 3, "payload": "changed"});
    assert_eq!(patches, [&without_payload, &json!({"priority": 9}), &Value::Null, &Value::Null]);
    let high = JobFilter { priority: Some("9".parse().unwrap()), limit: Some(1_000), ..JobFilter::default() };
    assert_eq!(server.client().jobs(&high).await.unwrap().items.len(), 230);

    assert_eq!(done(&server, of_batch("trigger")).await.done, 230);
    eventually("all have run once", async || {
        let (_, stats) = server.get("/api/v1/stats").await;
        stats["counters"]["succeeded"] == json!(230)
    })
    .await;
    let cancelled = done(&server, json!({"action": "cancel", "filter": {"tag": "batch"}})).await;
    assert_eq!(cancelled.done, 230);
    assert_eq!(count(&server, JobStatus::Cancelled, "batch").await, 230);
    assert_eq!(done(&server, of_batch("delete")).await.done, 230);
    assert_eq!(done(&server, of_batch("delete")).await.matched, 0);
    let job = server.client().job(other).await.unwrap();
    assert_eq!((job.status, job.priority.0.get()), (JobStatus::Active, 5));
}

#[tokio::test]
async fn what_cannot_be_done_to_a_job_is_reported_with_its_reason() {
    let server = Server::start();
    let jobs = submit_many(&server, 3, "mixed").await;
    server.client().cancel(jobs[1]).await.unwrap();
    let preview =
        bulk(&server, json!({"action": "resume", "filter": {"tag": "mixed"}, "dry_run": true})).await;
    let refusals: Vec<&Value> =
        preview["sample"].as_array().unwrap().iter().map(|item| &item["refusal"]).collect();
    assert_eq!(refusals.iter().filter(|refusal| refusal.is_string()).count(), 1, "{preview}");
    let operation = done(&server, json!({"action": "pause", "filter": {"tag": "mixed"}})).await;
    assert_eq!((operation.done, operation.refused), (2, 1));
    assert_eq!(operation.refusals[0].id, jobs[1].to_string());
    assert!(operation.refusals[0].reason.contains("Cancelled"), "{:?}", operation.refusals);

    let (status, problem) = server
        .post("/api/v1/bulk", &json!({"action": "update", "all": true, "patch": {"priorty": 3}}).to_string())
        .await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert!(problem["errors"][0]["detail"].as_str().unwrap().contains("priorty"), "{problem}");
}

#[tokio::test]
async fn an_empty_filter_must_be_confirmed() {
    let server = Server::start();
    server.submit(idle("one")).await;
    let (status, problem) = server.post("/api/v1/bulk", r#"{"action": "delete"}"#).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(problem["errors"][0]["field"], "filter", "{problem}");
    assert_eq!(done(&server, json!({"action": "delete", "all": true})).await.done, 1);
}

#[tokio::test]
async fn a_caller_acts_on_its_own_jobs_and_sees_its_own_operations() {
    let server = Server::start();
    let (ann, bob) = (Principal::submitter(&server, "ann").await, Principal::submitter(&server, "bob").await);
    for number in 0..3 {
        ann.submit(tagged(&format!("ann-{number}"), "shared")).await;
        bob.submit(tagged(&format!("bob-{number}"), "shared")).await;
    }
    let (status, answer) = ann.post("/api/v1/bulk", &json!({"action": "pause", "all": true})).await;
    assert_eq!((status, &answer["matched"]), (StatusCode::ACCEPTED, &json!(3)), "{answer}");
    let operation = finished(&server, &answer).await;
    assert_eq!((operation.done, operation.requested_by.as_str()), (3, "ann"));
    let paused = JobFilter { status: Some(JobStatus::Paused), ..JobFilter::default() };
    let owners: BTreeSet<String> =
        server.client().jobs(&paused).await.unwrap().items.into_iter().map(|job| job.owner_id).collect();
    assert_eq!(owners, BTreeSet::from(["ann".to_owned()]));

    // Naming the other's jobs does not help.
    let theirs = json!({"action": "delete", "filter": {"owner": "ann"}, "dry_run": true});
    assert_eq!(bob.post("/api/v1/bulk", &theirs).await.1["matched"], 0);
    let path = format!("/api/v1/bulk/{}", operation.operation_id);
    assert_eq!(bob.get(&path).await.0, StatusCode::NOT_FOUND);
    assert_eq!(bob.post(&format!("{path}/cancel"), &json!({})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(bob.get("/api/v1/bulk").await.1["items"], json!([]));
    assert_eq!(ann.get("/api/v1/bulk").await.1["items"].as_array().unwrap().len(), 1);
    let viewer = Principal::create(&server, json!({"name": "eve", "role": "viewer"})).await;
    assert_eq!(viewer.post("/api/v1/bulk", &theirs).await.0, StatusCode::FORBIDDEN);
    assert_eq!(viewer.get(&path).await.0, StatusCode::OK);
    let (_, entries) = server.get("/api/v1/audit?action=bulk.start").await;
    assert_eq!(entries["items"].as_array().unwrap().len(), 1, "{entries}");
    let (_, entries) = server.get("/api/v1/audit?action=job.pause").await;
    assert_eq!(entries["items"], json!([]), "one entry for the request");
}

#[tokio::test]
async fn a_token_with_one_queue_acts_in_that_queue_only() {
    let server = Server::start();
    for queue in ["mail-eu", "mail-us", "work"] {
        let mut job = idle(queue);
        job["queue"] = json!(queue);
        server.submit(job).await;
    }
    let mailer =
        Principal::create(&server, json!({"name": "mailer", "role": "operator", "queues": ["mail-*"]})).await;
    let (_, answer) = mailer.post("/api/v1/bulk", &json!({"action": "pause", "all": true})).await;
    assert_eq!(finished(&server, &answer).await.done, 2);
    let move_all = json!({"action": "update", "all": true, "patch": {"queue": "work"}});
    let (status, problem) = mailer.post("/api/v1/bulk", &move_all).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
}

#[tokio::test]
async fn a_kill_in_the_middle_loses_and_repeats_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &[]);
    let jobs = submit_many(&server, 1_500, "many").await;
    let started = bulk(&server, json!({"action": "trigger", "filter": {"tag": "many"}})).await;
    let id: OperationId = started["operation_id"].as_str().unwrap().parse().unwrap();
    eventually("some are done", async || server.client().operation(id).await.is_ok_and(|seen| seen.done > 0))
        .await;
    server.kill();

    let server = Server::start_in(directory.path(), &[]);
    let later = server.submit(tagged("later", "many")).await;
    let operation = finished(&server, &started).await;
    assert_eq!((operation.status, operation.done, operation.refused), (OperationStatus::Completed, 1_500, 0));
    let client = server.client();
    for job in jobs.iter().step_by(37) {
        // An execution that ran when the server was killed is lost and tried again: that is a second attempt.
        let executions = client.executions(*job, None, None).await.unwrap().items;
        let first_attempts = executions.iter().filter(|one| one.attempt_number == 1).count();
        assert_eq!(first_attempts, 1, "{job} was triggered once: {executions:?}");
    }
    let counts = |page: punctual_client::ExecutionsPage| page.items.len();
    assert_eq!(counts(client.executions(later, None, None).await.unwrap()), 0, "it came after the start");
    let finished = client.operations(None, None).await.unwrap().items;
    assert_eq!(finished.iter().map(|operation| operation.operation_id).collect::<Vec<_>>(), [id]);
}

/// What is retried fails again at once, so the step that was interrupted finds new dead letters of the same occurrences.
#[tokio::test]
async fn a_kill_in_the_middle_retries_no_dead_letter_twice() {
    const JOBS: usize = 900;
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &[]);
    let failing = |number: usize| {
        json!({"name": format!("dead-{number}"), "job_type": "http", "tags": ["dead"], "max_retries": 0,
               "payload": {"url": "http://127.0.0.1:1/"}})
    };
    let jobs: Vec<Value> = (0..JOBS).map(failing).collect();
    let (status, body) = server.post("/api/v1/jobs/batch", &json!({ "jobs": jobs }).to_string()).await;
    assert!(status.is_success(), "{body}");
    eventually("all have failed", async || count(&server, JobStatus::Failed, "dead").await == JOBS).await;
    let started = bulk(&server, json!({"action": "retry", "filter": {"tag": "dead"}})).await;
    let id: OperationId = started["operation_id"].as_str().unwrap().parse().unwrap();
    eventually("some are done", async || server.client().operation(id).await.is_ok_and(|seen| seen.done > 0))
        .await;
    server.kill();

    let server = Server::start_in(directory.path(), &[]);
    let operation = finished(&server, &started).await;
    assert_eq!((operation.status, operation.done, operation.refused), (OperationStatus::Completed, 900, 0));
    eventually("all have failed again", async || count(&server, JobStatus::Failed, "dead").await == JOBS)
        .await;
    let job_ids = body["items"].as_array().expect("items").iter();
    for job in job_ids.map(|item| item["job_id"].as_str().unwrap().parse::<JobId>().unwrap()) {
        let executions = server.client().executions(job, None, None).await.unwrap().items;
        let attempts: Vec<u32> = executions.iter().map(|one| one.attempt_number).collect();
        assert_eq!(attempts, [2, 1], "{job} was retried once");
    }
}

#[tokio::test]
async fn an_operation_can_be_cancelled_and_keeps_what_was_done() {
    let server = Server::start();
    submit_many(&server, 3_000, "long").await;
    let started = bulk(&server, json!({"action": "trigger", "filter": {"tag": "long"}})).await;
    let id: OperationId = started["operation_id"].as_str().unwrap().parse().unwrap();
    let cancelled = server.client().cancel_operation(id).await.unwrap();
    assert!(cancelled.cancelling || cancelled.status == OperationStatus::Cancelled, "{cancelled:?}");
    let operation = finished(&server, &started).await;
    assert_eq!(operation.status, OperationStatus::Cancelled);
    assert!(operation.done < 3_000, "{operation:?}");
    // Repeating it changes nothing, and a finished one cannot be cancelled.
    assert_eq!(server.client().cancel_operation(id).await.unwrap().done, operation.done);
    let over = done(&server, json!({"action": "delete", "filter": {"name": "nothing"}})).await;
    let refused = server.client().cancel_operation(over.operation_id).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().status, 409);
}

#[tokio::test]
async fn no_more_operations_run_than_may_even_if_many_start_at_once() {
    let server = Server::start();
    // So many that an operation has not ended before the others are started.
    for owner in ["ann", "bob", "eve"] {
        let job = |number| json!({"name": format!("{owner}-{number}"), "job_type": "noop", "delay": "1h", "tags": ["long"], "owner_id": owner});
        submit_all(&server, (0..2_000).map(job).collect()).await;
    }
    let operator = async |owner: &str| {
        Principal::create(&server, json!({"name": owner, "role": "operator", "owner_id": owner})).await
    };
    let (ann, bob, eve) = (operator("ann").await, operator("bob").await, operator("eve").await);
    let body = json!({"action": "trigger", "filter": {"tag": "long"}});
    // The later owners find room, though the first one wants all of it.
    for (name, who, others) in [("ann", &ann, 0), ("bob", &bob, 1), ("eve", &eve, 2)] {
        let starts = (0..limits::OPERATIONS_RUNNING_MAX).map(|_| who.post("/api/v1/bulk", &body));
        let answers = futures_util::future::join_all(starts).await;
        let (started, refused): (Vec<_>, Vec<_>) =
            answers.iter().partition(|(status, _)| *status == StatusCode::ACCEPTED);
        assert!(refused.iter().all(|(status, _)| *status == StatusCode::CONFLICT), "{refused:?}");
        let operations = server.client().operations(None, None).await.unwrap().items;
        let running = operations.iter().filter(|operation| operation.status == OperationStatus::Running);
        let (theirs, running): (Vec<_>, Vec<_>) =
            (running.clone().filter(|operation| operation.requested_by == name).collect(), running.collect());
        // One that has finished meanwhile has made room for another.
        let finished = operations.len() - running.len();
        let room = limits::OPERATIONS_RUNNING_MAX - (others * limits::OPERATIONS_OF_OWNER_MAX);
        let max = room.min(limits::OPERATIONS_OF_OWNER_MAX);
        assert!(!refused.is_empty() && started.len() <= max + finished, "{answers:?}");
        assert!(started.len() >= max, "{answers:?}");
        assert!(theirs.len() <= limits::OPERATIONS_OF_OWNER_MAX, "{operations:?}");
        assert!(running.len() <= limits::OPERATIONS_RUNNING_MAX, "{operations:?}");
    }
}

#[tokio::test]
async fn operations_that_race_leave_each_job_in_one_of_their_states() {
    let server = Server::start();
    submit_many(&server, 400, "raced").await;
    let of = |action: &str| json!({"action": action, "filter": {"tag": "raced"}});
    let (pause, resume, delete) = tokio::join!(
        bulk(&server, of("pause")),
        bulk(&server, of("resume")),
        bulk(&server, json!({"action": "delete", "filter": {"tag": "raced", "q": "raced-1"}})),
    );
    for started in [&pause, &resume, &delete] {
        let operation = finished(&server, started).await;
        assert_eq!(operation.status, OperationStatus::Completed, "{operation:?}");
        assert!(operation.done + operation.refused <= 400, "{operation:?}");
    }
    let left =
        count(&server, JobStatus::Paused, "raced").await + count(&server, JobStatus::Active, "raced").await;
    assert_eq!(left, 400 - 111, "raced-1, raced-10 to raced-19 and raced-100 to raced-199 are gone");
}

#[tokio::test]
async fn a_revoked_token_stops_its_operation() {
    let server = Server::start();
    submit_many(&server, 3_000, "long").await;
    let deployer = Principal::create(&server, json!({"name": "deploy", "role": "operator"})).await;
    let (_, started) =
        deployer.post("/api/v1/bulk", &json!({"action": "trigger", "filter": {"tag": "long"}})).await;
    deployer.revoke().await;
    let operation = finished(&server, &started).await;
    assert_eq!(operation.status, OperationStatus::Failed, "{operation:?}");
    assert!(operation.failure.unwrap().contains("revoked"));
    assert!(operation.done < 3_000);
}

#[tokio::test]
async fn a_repeated_request_with_a_key_starts_one_operation() {
    let server = Server::start();
    submit_many(&server, 5, "keyed").await;
    let client = server.client().with_request_key("deploy-17");
    let filter = json!({"tag": "keyed"}).as_object().unwrap().clone();
    let request = BulkRequest::new(BulkAction::Trigger, filter);
    let first = client.bulk(&request).await.unwrap().operation_id;
    assert_eq!(client.bulk(&request).await.unwrap().operation_id, first);
    assert_eq!(client.operations(None, None).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn open_executions_are_cancelled_and_dead_ones_retried() {
    let server = Server::start();
    let client = server.client();
    let nap = |name: &str| {
        json!({"name": name, "job_type": "sleep", "queue": "naps", "payload": {"ms": 3_600_000},
            "timeout_secs": 3_600})
    };
    let (first, second) = (server.submit(nap("first")).await, server.submit(nap("second")).await);
    client.pause_queue("held").await.unwrap();
    let mut waiting = nap("waiting");
    waiting["queue"] = json!("held");
    let waiting = server.submit(waiting).await;
    for job in [first, second] {
        eventually("it runs", async || {
            let run = client.execution(job.occurrence(1).attempt(1)).await;
            run.is_ok_and(|run| run.status == ExecutionStatus::Running)
        })
        .await;
    }
    let cancelled =
        done(&server, json!({"action": "cancel", "target": "executions", "filter": {"queue": "naps"}})).await;
    assert_eq!((cancelled.done, cancelled.refused), (2, 0), "{cancelled:?}");
    for job in [first, second] {
        assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Cancelled);
    }
    assert_eq!(client.job(waiting).await.unwrap().status, JobStatus::Active);

    let dead = json!({"name": "dead", "job_type": "sleep", "payload": {"ms": 60_000}, "timeout_secs": 0.02,
        "max_retries": 0});
    let dead = server.submit(dead).await;
    assert_eq!(client.wait(dead).await.unwrap().status, JobStatus::Failed);
    let retried =
        done(&server, json!({"action": "retry", "target": "executions", "filter": {"name": "dead"}})).await;
    assert_eq!((retried.done, retried.refused), (1, 0));
    eventually("it has failed again", async || {
        client.execution(dead.occurrence(1).attempt(2)).await.is_ok_and(|run| run.status.is_finished())
    })
    .await;
    let by_job = done(&server, json!({"action": "retry", "filter": {"status": "FAILED"}})).await;
    assert_eq!((by_job.done, by_job.refused), (1, 0), "{by_job:?}");
    let nothing_dead = done(&server, json!({"action": "retry", "filter": {"name": "waiting"}})).await;
    assert_eq!((nothing_dead.done, nothing_dead.refused), (0, 1));
}

#[tokio::test]
async fn jobs_that_were_put_by_their_name_are_updated_with_others() {
    let server = Server::start();
    server.said(&[
        "job", "submit", "report", "--type", "noop", "--every", "1h", "--tag", "applied", "--upsert",
    ]);
    let update = ["job", "update", "--all", "--tag", "applied", "--patch", r#"{"priority": 8}"#];
    let shown = server.said(&[&update[..], &["--dry-run"]].concat());
    assert!(!shown.contains("cannot be changed"), "{shown}");
    assert!(server.said(&[&update[..], &["--yes"]].concat()).contains("1/1"));
    let changed = server.client().named_job("report").await.unwrap().unwrap();
    assert_eq!(changed.priority.0.get(), 8);
}

#[tokio::test]
async fn the_command_line_shows_asks_waits_and_sums_up() {
    let server = Server::start();
    let jobs = submit_many(&server, 12, "cli").await;
    let shown = server.said(&["job", "pause", "--all", "--tag", "cli", "--dry-run"]);
    assert!(shown.contains("pause: 12 jobs match; the first ones:"), "{shown}");
    assert_eq!(count(&server, JobStatus::Paused, "cli").await, 0);

    // Standard input is not a terminal here.
    let unconfirmed = server.cli(&["job", "pause", "--all", "--tag", "cli"]);
    assert_eq!(unconfirmed.status.code(), Some(2));
    let said = String::from_utf8(unconfirmed.stderr).unwrap();
    assert!(said.contains("this would pause 12 jobs") && said.contains("--yes"), "{said}");

    let paused = server.said(&["job", "pause", "--all", "--tag", "cli", "--yes"]);
    assert!(paused.contains("COMPLETED") && paused.contains("12/12"), "{paused}");
    assert_eq!(count(&server, JobStatus::Paused, "cli").await, 12);
    server.client().cancel(jobs[0]).await.unwrap();
    let partly = server.cli(&["job", "resume", "--all", "--where", "tag=cli", "--yes"]);
    assert_eq!(partly.status.code(), Some(4), "one was refused");
    let said = String::from_utf8(partly.stdout).unwrap();
    assert!(said.contains(&jobs[0].to_string()) && said.contains("11/12"), "{said}");

    // --tag selects, as in all other commands, and does not replace the tags of all jobs.
    let update = ["job", "update", "--all", "--tag", "cli", "--status", "active", "--max-retries", "7"];
    let shown = server.said(&[&update[..], &["--dry-run"]].concat());
    assert!(shown.contains(r#"update with {"max_retries":7}: 11 jobs match"#), "{shown}");
    assert!(server.said(&[&update[..], &["--yes"]].concat()).contains("11/11"));
    let changed = server.client().job(jobs[1]).await.unwrap();
    assert_eq!((changed.max_retries, changed.tags), (7, vec!["cli".to_owned()]));
    let unclear =
        server.cli(&["job", "update", "--all", "--where", "tag=cli", "--priority", "high", "--yes"]);
    assert_eq!(unclear.status.code(), Some(2));
    assert!(String::from_utf8(unclear.stderr).unwrap().contains("--patch '{\"priority\": 8}'"));
    let patched = ["job", "update", "--all", "--tag", "cli", "--patch", r#"{"priority": 8}"#, "--yes"];
    let partly = server.cli(&patched);
    assert_eq!(partly.status.code(), Some(4), "one was refused");
    assert_eq!(server.client().job(jobs[1]).await.unwrap().priority.0.get(), 8);
    assert!(server.said(&["job", "delete", "--all", "--name", "nothing", "--yes"]).contains("no jobs match"));
    let listed = server.said(&["operations", "list"]);
    assert_eq!(listed.lines().count(), 5, "{listed}");
    let detached = server.said(&["job", "delete", "--all", "-q", "cli", "--yes", "--detach", "-o", "json"]);
    let id = serde_json::from_str::<Value>(&detached).unwrap()["operation_id"].as_str().unwrap().to_owned();
    eventually("it has ended", async || server.said(&["operations", "show", &id]).contains("COMPLETED"))
        .await;
    let late = server.cli(&["operations", "cancel", &id]);
    assert_eq!(late.status.code(), Some(4));
}
