//! The worker protocol; `docs/worker-protocol.md` explains it.

use super::super::operation::{Operation, Title};
use super::super::schema::whole;
use super::WORKER;
use crate::openapi::types::EXECUTION;
use axum::http::Method;
use punctual_client::API_PREFIX;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    vec![open(), close(), poll(), heartbeat(), demand(), report(), notes(), give_back(), resync(), logs()]
}

fn operation(method: Method, rest: &str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new(method, format!("{API_PREFIX}/worker{rest}"), Title { id, tag: WORKER, summary })
}

/// An operation within a session.
fn in_session(method: Method, rest: &str, id: &'static str, summary: &'static str) -> Operation {
    operation(method, rest, id, summary).fails(
        410,
        "The session is over: stop all handlers and open a new one. Also for a session that never was.",
    )
}

const STALE: &str = "The turn was used already: go on with a higher one.";

fn open() -> Operation {
    operation(Method::POST, "/sessions", "openSession", "A worker has started")
        .about("Opens its session. Each start of a worker is a session of its own.")
        .takes(
            "OpenSession",
            json!({"worker": "resizer-1", "job_types": ["ImageProcessing"], "slots": 4, "lease_secs": 6, "host": "render-7"}),
        )
        .answers(201, "The session.", "Session")
}

fn close() -> Operation {
    in_session(Method::DELETE, "/sessions/{id}", "closeSession", "A worker stops")
        .about("What it has not reported goes back unstarted.")
        .in_path("id", whole("The number of the session.", 0..=i64::MAX as u64))
        .may_take("Nothing", json!({}))
        .answers_nothing(204, "It is closed.")
}

fn poll() -> Operation {
    in_session(Method::POST, "/poll", "poll", "Take work")
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
    in_session(Method::POST, "/heartbeat", "heartbeat", "A worker is alive")
        .about("To be sent every `beat_secs`. The answer says what to stop, and whether to drain.")
        .takes("Heartbeat", json!({"session": 7, "beat": 1, "condition": {"slots": 4, "running": 3}}))
        .answers(200, "What the worker should know.", "HeartbeatAnswer")
}

fn demand() -> Operation {
    operation(Method::POST, "/demand", "demand", "What waits for a worker")
        .about("For a worker that runs more at once while more waits. The answer may be a second old.")
        .takes("Demand", json!({"job_types": ["ImageProcessing"]}))
        .answers(200, "What waits.", "DemandAnswer")
}

fn report() -> Operation {
    operation(Method::POST, "/report", "report", "Executions have ended")
        .about("One answer per report. Repeat a report until it is answered.")
        .takes(
            "Reports",
            json!({"reports": [{
                "session": 7, "execution_id": EXECUTION, "epoch": 1, "outcome": "succeeded", "result": {"width": 80},
            }]}),
        )
        .answers(200, "What the server says to each.", "ReportsAnswer")
}

fn notes() -> Operation {
    in_session(Method::POST, "/notes", "takeNotes", "How far handlers have come")
        .about(
            "Progress, for people to see, and checkpoints, for the next attempts. One answer per note; a checkpoint \
            counts once it is answered `accepted`.",
        )
        .takes(
            "Notes",
            json!({"session": 7, "notes": [{
                "execution_id": EXECUTION, "epoch": 1, "number": 1,
                "progress": {"percent": 40, "message": "page 5 of 12"}, "checkpoint": {"page": 5},
            }]}),
        )
        .answers(200, "What the server says to each.", "NotesAnswer")
}

fn give_back() -> Operation {
    in_session(Method::POST, "/give-back", "giveBack", "Executions were not started")
        .about("They go back to the queue, neither charged nor numbered.")
        .takes("GiveBack", json!({"session": 7, "leases": [{"execution_id": EXECUTION, "epoch": 1}]}))
        .answers_nothing(204, "They are given back.")
}

fn resync() -> Operation {
    in_session(Method::POST, "/resync", "resync", "What a worker holds")
        .about("Whatever else was leased to it goes back.")
        .takes("Resync", json!({"session": 7, "turn": 5, "held": []}))
        .answers_nothing(204, "Both agree.")
        .fails(409, STALE)
}

fn logs() -> Operation {
    in_session(Method::POST, "/logs", "appendLogs", "A handler has written lines")
        .about("To be sent before the report: afterwards they are refused.")
        .takes(
            "NewLogs",
            json!({"session": 7, "execution_id": EXECUTION, "lines": [{"message": "half way"}]}),
        )
        .answers_nothing(204, "They are kept.")
        .fails(409, "The execution does not run in this session.")
}
