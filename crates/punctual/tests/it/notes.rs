//! Progress and checkpoints from end to end: commands, the protocol, the Rust SDK, and their display.

use crate::server::{Server, eventually};
use punctual_client::worker::{Context, HandlerError, Worker};
use punctual_client::{Client, ExecutionBody, ExecutionStatus, LogStreamBody};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::notes::Percent;
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;

const COMMANDS: &[&str] = &["--allow", "process,shell"];

fn percent(of: &ExecutionBody) -> Option<f64> {
    of.progress
        .as_ref()
        .and_then(|progress| progress.percent)
        .map(|found| f64::from(found.hundredths()) / 100.0)
}

fn message(of: &ExecutionBody) -> Option<&str> {
    of.progress.as_ref().and_then(|progress| progress.message.as_deref())
}

fn checkpoint(of: &ExecutionBody) -> Option<Value> {
    of.checkpoint.as_ref().map(|document| serde_json::from_str(document.get()).unwrap())
}

/// The job's executions, the latest first.
async fn executions(client: &Client, job: JobId) -> Vec<ExecutionBody> {
    client.executions(job, None, None).await.unwrap().items
}

fn shell(script: &str, max_retries: u32) -> Value {
    let retry = json!({"strategy": "fixed", "delay": "0s"});
    json!({"name": "one", "job_type": "shell", "payload": {"script": script}, "max_retries": max_retries, "retry": retry})
}

/// Runs a script once; returns its execution.
async fn run(server: &Server, script: &str) -> ExecutionBody {
    let client = server.client();
    let job = server.submit(shell(script, 0)).await;
    client.wait(job).await.unwrap();
    let listed = executions(&client, job).await.remove(0);
    client.execution(listed.execution_id).await.unwrap()
}

/// The lines of an execution's log in this stream.
async fn said(server: &Server, of: &ExecutionBody, stream: LogStreamBody) -> Vec<String> {
    let page = server.client().execution_logs(of.execution_id, Some(1_000), None).await.unwrap();
    page.items.into_iter().filter(|line| line.stream == stream).map(|line| line.message).collect()
}

#[tokio::test]
async fn a_command_whose_server_is_killed_goes_on_from_its_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start_in(&data, COMMANDS);
    let script = r#"
        if [ -n "$PUNCTUAL_CHECKPOINT" ]; then echo "{\"from\": $PUNCTUAL_CHECKPOINT}"; exit; fi
        echo '{"percent": 40.5, "message": "copying"}' >"$PUNCTUAL_NOTES"
        echo '{"checkpoint": {"offset": 4096}}' >"$PUNCTUAL_NOTES"
        sleep 1000"#;
    let job = server.submit(shell(script, 1)).await;
    let client = server.client();
    let first: ExecutionId = format!("{job}.1.1").parse().unwrap();
    let is_noted = async || {
        let shown = client.execution(first).await.unwrap();
        percent(&shown) == Some(40.5) && checkpoint(&shown) == Some(json!({"offset": 4096}))
    };
    eventually("the command has noted", is_noted).await;
    let shown = server.said(&["job", "show", &job.to_string()]);
    assert!(shown.contains("40.5 %, copying"), "{shown}");
    let listed = executions(&client, job).await.remove(0);
    assert_eq!((listed.checkpoint_bytes, checkpoint(&listed)), (Some(16), None), "lists leave documents out");
    server.kill();

    let server = Server::start_in(&data, COMMANDS);
    let client = server.client();
    client.wait(job).await.unwrap();
    let attempts = executions(&client, job).await;
    let statuses: Vec<_> = attempts.iter().map(|attempt| attempt.status).collect();
    assert_eq!(statuses, [ExecutionStatus::Succeeded, ExecutionStatus::Lost]);
    let result: Value = serde_json::from_str(attempts[0].result.as_ref().unwrap().get()).unwrap();
    assert_eq!(result, json!({"from": {"offset": 4096}}));
    assert_eq!(
        (&attempts[0].progress, attempts[0].checkpoint_bytes),
        (&None, None),
        "success leaves nothing"
    );
}

#[tokio::test]
async fn every_process_of_a_command_can_note_and_what_it_prints_is_only_output() {
    let server = Server::start_with(COMMANDS);
    let ended = run(
        &server,
        r#"
        echo '{"percent": 99, "message": "printed"}'
        (setsid sh -c 'echo "{\"checkpoint\": 7}" >"$PUNCTUAL_NOTES"' <&- >&- 2>&-)
        for n in 1 2 3 4 5 6 7 8; do (echo "{\"message\": \"$n\"}" >>"$PUNCTUAL_NOTES") & done
        wait
        printf '{"percent": 20, "message": "without an end"}' >"$PUNCTUAL_NOTES"
        exit 3"#,
    )
    .await;
    assert_eq!((percent(&ended), message(&ended)), (Some(20.0), Some("without an end")), "{ended:?}");
    assert_eq!(checkpoint(&ended), Some(json!(7)));
    assert_eq!(said(&server, &ended, LogStreamBody::Log).await, [""; 0], "nothing was wrong with any line");
    assert_eq!(said(&server, &ended, LogStreamBody::Stdout).await.len(), 1);
}

#[tokio::test]
async fn bad_notes_are_told_in_the_log_and_a_flood_of_them_is_bounded() {
    let server = Server::start_with(COMMANDS);
    let ended = run(
        &server,
        r#"
        echo '{"percent": 101}' >"$PUNCTUAL_NOTES"
        (printf '{"checkpoint": "'; head -c 70000 /dev/zero | tr '\0' x; echo '"}') >"$PUNCTUAL_NOTES"
        yes '{"percent": 1}' | head -n 100000 >"$PUNCTUAL_NOTES"
        yes nonsense | head -n 100000 >"$PUNCTUAL_NOTES"
        exit 1"#,
    )
    .await;
    assert_eq!((percent(&ended), checkpoint(&ended)), (Some(1.0), None));
    let log = said(&server, &ended, LogStreamBody::Log).await;
    assert!(log[0].contains("must be a number from 0 to 100"), "{log:?}");
    assert!(log[1].contains("a checkpoint may have 65536 bytes"), "{log:?}");
    assert!(log[2].contains("it is not JSON"), "{log:?}");
    assert_eq!(log.len(), 11, "{log:?}");
    assert!(log[10].contains("are not shown"), "{log:?}");
}

/// Commands that end right after their last note, in every way that a command can end.
#[tokio::test]
async fn the_last_note_of_a_command_is_kept_however_soon_it_ends() {
    let server = Server::start_with(&["--allow", "shell", "--slots", "8"]);
    let client = server.client();
    let note = r#"echo '{"checkpoint": 1}' >"$PUNCTUAL_NOTES""#;
    let endings = [
        format!("{note}; exit 1"),
        format!("{note}; kill -9 $$"),
        format!("trap '{{ {}; }}; exit 1' TERM; sleep 1000 & wait", note.replace('\'', "'\\''")),
    ];
    let mut jobs = Vec::new();
    for ending in endings.iter().flat_map(|ending| std::iter::repeat_n(ending, 20)) {
        let mut job = shell(ending, 0);
        job["timeout_secs"] = json!(2);
        jobs.push(server.submit(job).await);
    }
    for job in jobs {
        client.wait(job).await.unwrap();
        let ended = client.execution(job.occurrence(1).attempt(1)).await.unwrap();
        assert_eq!(checkpoint(&ended), Some(json!(1)), "{ended:?}");
    }
}

#[tokio::test]
async fn a_last_note_that_cannot_be_read_is_told_however_soon_the_command_ends() {
    let server = Server::start_with(&["--allow", "shell", "--slots", "8"]);
    let client = server.client();
    let mut jobs = Vec::new();
    for _ in 0..20 {
        jobs.push(server.submit(shell(r#"echo 40 % >"$PUNCTUAL_NOTES""#, 0)).await);
    }
    for job in jobs {
        client.wait(job).await.unwrap();
        let ended = client.execution(job.occurrence(1).attempt(1)).await.unwrap();
        let log = said(&server, &ended, LogStreamBody::Log).await;
        assert!(log.len() == 1 && log[0].contains("was ignored: it is not JSON"), "{log:?}");
    }
}

async fn say(server: &Server, verb: &str, body: Value) -> (StatusCode, Value) {
    server.post(&format!("/api/v1/worker/{verb}"), &body.to_string()).await
}

async fn open(server: &Server) -> i64 {
    let opening = json!({"worker": "raw", "job_types": ["raw"], "lease_secs": 60});
    say(server, "sessions", opening).await.1["session"].as_i64().expect("a number")
}

/// The only assignment of the next poll.
async fn take(server: &Server, session: i64, turn: u64) -> Value {
    let poll = json!({"session": session, "turn": turn, "job_types": ["raw"], "wait_secs": 30});
    let (status, body) = say(server, "poll", poll).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body["assignments"][0].clone()
}

/// Sends a note about this assignment and returns the answer.
async fn note(server: &Server, session: i64, of: &Value, more: Value) -> String {
    let mut note = json!({"execution_id": of["execution_id"], "epoch": of["epoch"]});
    note.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let (status, body) = say(server, "notes", json!({"session": session, "notes": [note]})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body["answers"][0].as_str().expect("a word").to_owned()
}

#[tokio::test]
async fn a_note_counts_only_in_the_epoch_of_its_lease() {
    let server = Server::start();
    let session = open(&server).await;
    server.submit(json!({"name": "raw"})).await;
    let first = take(&server, session, 1).await;
    assert_eq!(first.get("checkpoint"), None);
    assert_eq!(
        note(&server, session, &first, json!({"number": 1, "checkpoint": {"row": 1.50}})).await,
        "accepted"
    );
    assert_eq!(
        note(&server, session, &first, json!({"number": 1, "checkpoint": 2})).await,
        "already_accepted"
    );
    assert_eq!(note(&server, session + 1, &first, json!({"checkpoint": 2})).await, "stale");
    let lease = json!({"execution_id": first["execution_id"], "epoch": first["epoch"]});
    say(&server, "give-back", json!({"session": session, "leases": [lease]})).await;
    assert_eq!(note(&server, session, &first, json!({"checkpoint": 2})).await, "stale");
    let second = take(&server, session, 2).await;
    assert_eq!(second["checkpoint"], json!({"row": 1.5}));
    assert_eq!(note(&server, session, &first, json!({"checkpoint": 2})).await, "stale");
    assert_eq!(note(&server, session, &second, json!({"checkpoint": null})).await, "accepted");
    let execution = second["execution_id"].as_str().unwrap().parse().unwrap();
    let shown = server.client().execution(execution).await.unwrap();
    assert_eq!((shown.checkpoint_bytes, checkpoint(&shown)), (None, None));
}

#[tokio::test]
async fn people_see_how_far_a_run_has_come() {
    let server = Server::start();
    let session = open(&server).await;
    let job = server.submit(json!({"name": "raw", "max_retries": 1})).await;
    let id = job.to_string();
    let first = take(&server, session, 1).await;
    let progress = json!({"progress": {"percent": 33.333, "message": "third"}, "checkpoint": [1]});
    assert_eq!(note(&server, session, &first, progress).await, "accepted");
    let (_, shown) = server.get(&format!("/api/v1/executions/{id}.1.1")).await;
    assert_eq!(
        (&shown["progress"]["percent"], &shown["progress"]["message"]),
        (&json!(33.33), &json!("third"))
    );
    assert_eq!(shown["checkpoint"], json!([1]));
    let (_, job_shown) = server.get(&format!("/api/v1/jobs/{id}")).await;
    assert_eq!(job_shown["progress"], shown["progress"]);
    let explained = server.said(&["job", "explain", &id]);
    assert!(explained.contains("Its progress is 33.33 %, third, reported at "), "{explained}");
    let history = server.said(&["job", "history", &id]);
    assert!(history.contains("RUNNING: 33.33 %, third"), "{history}");

    let mut report = json!({"session": session, "outcome": "failed", "error": "no"});
    report["execution_id"] = first["execution_id"].clone();
    report["epoch"] = first["epoch"].clone();
    say(&server, "report", json!({"reports": [report]})).await;
    let client = server.client();
    let attempts = executions(&client, job).await;
    assert_eq!((attempts[0].status, &attempts[0].progress), (ExecutionStatus::Waiting, &None));
    assert_eq!((attempts[1].status, message(&attempts[1])), (ExecutionStatus::Failed, Some("third")));
    let explained = server.said(&["job", "explain", &id]);
    assert!(explained.contains("Attempt 2 starts with a checkpoint of 3 bytes."), "{explained}");
    assert!(server.said(&["job", "history", &id]).contains("FAILED: 33.33 %, third"));
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Done {
    rows: u32,
}

#[tokio::test]
async fn a_rust_handler_saves_a_checkpoint_and_its_next_attempt_goes_on_from_it() {
    let server = Server::start();
    let worker = Worker::builder(server.client())
        .lease(Duration::from_secs(60))
        .handler("rows", |context: Context, (): ()| async move {
            let Some(done) = context.checkpoint::<Done>()? else {
                context.progress(50.0, "half of the rows");
                context.save_checkpoint(&Done { rows: 5 }).await?;
                let too_large = context.save_checkpoint(&"x".repeat(70_000)).await.unwrap_err();
                return Err(HandlerError::new(too_large.to_string()));
            };
            Ok(done.rows)
        })
        .build();
    let worker = tokio::spawn(worker.run());
    let client = server.client();
    let retry = json!({"strategy": "fixed", "delay": "1h"});
    let job = server.submit(json!({"name": "rows", "max_retries": 1, "retry": retry})).await;
    let has_failed = async || executions(&client, job).await.len() == 2;
    eventually("the first attempt has failed", has_failed).await;
    let failed = executions(&client, job).await.remove(1);
    let error = failed.error_message.as_deref();
    assert_eq!(error, Some("the checkpoint has 70002 bytes, more than the 65536 that are kept"));
    let shown = client.execution(failed.execution_id).await.unwrap();
    assert_eq!(shown.progress.as_ref().and_then(|progress| progress.percent), Percent::new(50.0));
    assert_eq!(checkpoint(&shown), Some(json!({"rows": 5})));
    let at_once = json!({"retry": {"strategy": "fixed", "delay": "0s"}});
    let again = server.submit(json!({"name": "rows", "max_retries": 1, "retry": at_once["retry"]})).await;
    client.wait(again).await.unwrap();
    let attempts = executions(&client, again).await;
    assert_eq!(attempts[0].result.as_ref().unwrap().get(), "5");
    worker.abort();
}

#[tokio::test]
async fn a_rust_handler_that_is_told_to_stop_can_save_how_far_it_is() {
    let server = Server::start();
    let (started, mut starts) = mpsc::unbounded_channel();
    let worker = Worker::builder(server.client())
        .lease(Duration::from_secs(60))
        .stop_grace(Duration::from_secs(60))
        .handler("long", move |context: Context, (): ()| {
            started.send(()).unwrap();
            async move {
                if let Some(done) = context.checkpoint::<Done>()? {
                    return Ok(done.rows);
                }
                context.stopping().await;
                context.save_checkpoint(&Done { rows: 9 }).await?;
                Ok(0)
            }
        })
        .build();
    let worker = tokio::spawn(worker.run());
    let client = server.client();
    let retry = json!({"strategy": "fixed", "delay": "0s"});
    let job = json!({"name": "long", "timeout_secs": 1, "max_retries": 1, "retry": retry});
    let job = server.submit(job).await;
    starts.recv().await.unwrap();
    client.wait(job).await.unwrap();
    let attempts = executions(&client, job).await;
    let statuses: Vec<_> = attempts.iter().map(|attempt| attempt.status).collect();
    assert_eq!(statuses, [ExecutionStatus::Succeeded, ExecutionStatus::TimedOut]);
    assert_eq!(attempts[0].result.as_ref().unwrap().get(), "9");
    worker.abort();
}
