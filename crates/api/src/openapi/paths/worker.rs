//! The worker protocol; `docs/worker-protocol.md` explains it.

use super::super::operation::{Operation, Title};
use super::WORKER;
use axum::http::Method;
use punctual_client::API_PREFIX;
use punctual_client::schema::EXECUTION_EXAMPLE;
use punctual_client::schema::{the, whole};
use punctual_engine::UseCase;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    vec![
        open(),
        close(),
        poll(),
        heartbeat(),
        demand(),
        report(),
        notes(),
        give_back(),
        resync(),
        logs(),
        store_result(),
    ]
}

fn operation(method: Method, rest: &str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new(method, format!("{API_PREFIX}/worker{rest}"), Title { id, tag: WORKER, summary })
        .needs(UseCase::Work)
}

/// An operation within a session.
fn in_session(method: Method, rest: &str, id: &'static str, summary: &'static str) -> Operation {
    operation(method, rest, id, summary).fails(
        410,
        "The session is over: stop all handlers and open a new one. Also returned for an unknown session.",
    )
}

const STALE: &str = "The turn was already used: continue with a higher one.";

fn open() -> Operation {
    operation(Method::POST, "/sessions", "openSession", "Open a session")
        .about("Called when a worker starts. Each start of a worker is a session of its own.")
        .takes(
            "OpenSession",
            json!({"worker": "resizer-1", "job_types": ["ImageProcessing"], "slots": 4, "lease_secs": 6, "host": "render-7"}),
        )
        .answers(201, "The session.", "Session")
}

fn close() -> Operation {
    in_session(Method::DELETE, "/sessions/{id}", "closeSession", "Close a session")
        .about("Executions that it has not reported are returned to the queue unstarted.")
        .in_path("id", whole(0..=i64::MAX as u64).about("The id of the session."))
        .may_take("Nothing", json!({}))
        .answers_nothing(204, "The session is closed.")
}

fn poll() -> Operation {
    in_session(Method::POST, "/poll", "poll", "Poll for work")
        .about("Waits for work if there is none, for at most `wait_secs`.")
        .takes(
            "Poll",
            json!({
                "session": 7, "turn": 4, "job_types": ["ImageProcessing"], "capacity": 2, "wait_secs": 0, "held": [],
            }),
        )
        .answers(200, "Work, or none.", "PollAnswer")
        .fails(409, STALE)
}

fn heartbeat() -> Operation {
    in_session(Method::POST, "/heartbeat", "heartbeat", "Send a heartbeat")
        .about("Send it every `beat_secs`. The response says what to stop, and whether to drain.")
        .takes("Heartbeat", json!({"session": 7, "beat": 1, "condition": {"slots": 4, "running": 3}}))
        .answers(200, "Instructions for the worker.", "HeartbeatAnswer")
}

fn demand() -> Operation {
    operation(Method::POST, "/demand", "demand", "Get the backlog of a worker")
        .about(
            "For a worker that adapts its concurrency to the backlog. The response may be up to a \
                second old.",
        )
        .takes("Demand", json!({"job_types": ["ImageProcessing"]}))
        .answers(200, "The backlog.", "DemandAnswer")
}

fn report() -> Operation {
    operation(Method::POST, "/report", "report", "Report ended executions")
        .about("One result per report. Repeat a report until it is answered.")
        .takes(
            "Reports",
            json!({"reports": [{
                "session": 7, "execution_id": EXECUTION_EXAMPLE, "epoch": 1, "outcome": "succeeded", "result": {"width": 80},
            }]}),
        )
        .answers(200, "The result of each report.", "ReportsAnswer")
}

fn notes() -> Operation {
    in_session(Method::POST, "/notes", "takeNotes", "Report progress and checkpoints")
        .about(
            "Progress, for people to see, and checkpoints, for the next attempts. One result per note; a \
             checkpoint is stored once its result is `accepted`.",
        )
        .takes(
            "Notes",
            json!({"session": 7, "notes": [{
                "execution_id": EXECUTION_EXAMPLE, "epoch": 1, "number": 1,
                "progress": {"percent": 40, "message": "page 5 of 12"}, "checkpoint": {"page": 5},
            }]}),
        )
        .answers(200, "The result of each note.", "NotesAnswer")
}

fn give_back() -> Operation {
    in_session(Method::POST, "/give-back", "giveBack", "Give back unstarted executions")
        .about("They return to the queue; the attempt is not counted.")
        .takes("GiveBack", json!({"session": 7, "leases": [{"execution_id": EXECUTION_EXAMPLE, "epoch": 1}]}))
        .answers_nothing(204, "The executions are returned.")
}

fn resync() -> Operation {
    in_session(Method::POST, "/resync", "resync", "Reconcile leases")
        .about("The worker lists its leases; all other executions leased to it return to the queue.")
        .takes("Resync", json!({"session": 7, "turn": 5, "held": []}))
        .answers_nothing(204, "The leases are reconciled.")
        .fails(409, STALE)
}

fn logs() -> Operation {
    in_session(Method::POST, "/logs", "appendLogs", "Append log lines")
        .about("Send them before the report: afterwards they are rejected.")
        .takes(
            "NewLogs",
            json!({"session": 7, "execution_id": EXECUTION_EXAMPLE, "lines": [{"message": "half way"}]}),
        )
        .answers_nothing(204, "The lines are stored.")
        .fails(409, "The execution does not run in this session.")
}

fn store_result() -> Operation {
    in_session(Method::POST, "/results", "storeResult", "Store a large result")
        .about(
            "Stores a result of more than 64 KiB as a blob, for executions with `result_overflow: blob`. The body is the \
             result, JSON text of any size up to the setting `blobs.size_max`, sent in chunks or with its length. Report \
             the answer as the `result` of the execution; a blob that no report refers to is deleted after a day.",
        )
        .in_query("session", whole(0..=i64::MAX as u64).about("The id of the session."))
        .in_query("execution_id", the("ExecutionId").about("The execution, which runs in this session."))
        .takes_any(json!({"rows": [1, 2, 3]}))
        .answers_as(
            201,
            "The reference, for the report.",
            "application/json",
            json!({
                "type": "object",
                "required": ["$blob", "bytes", "sha256"],
                "properties": {
                    "$blob": {"type": "string", "format": "uuid"},
                    "bytes": {"type": "integer", "minimum": 0},
                    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                },
            }),
        )
        .fails(409, "The execution does not run in this session, it uses secrets, or the server has no place for blobs.")
}
