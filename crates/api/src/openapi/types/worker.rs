//! The worker protocol.

use super::super::schema::{
    Schema, Schemas, any, count, flag, list, name, number, text, the, time, up_to, whole, words,
};
use punctual_client::protocol::{
    AssignmentBody, DemandAnswer, DemandRequest, GiveBackRequest, HeartbeatAnswer, HeartbeatRequest,
    LeaseBody, LogsRequest, NewLogLine, NoteBody, NotesAnswer, NotesRequest, OpenSession, OutcomeWord,
    PollAnswer, PollRequest, ProgressNote, ReportBody, ReportRequest, ReportsAnswer, ResyncRequest,
    SessionBody, Verdict,
};
use punctual_core::limits;
use serde_json::json;

pub fn describe(schemas: &mut Schemas) {
    sessions(schemas);
    polls(schemas);
    reports(schemas);
    notes(schemas);
    rest(schemas);
}

fn session() -> Schema {
    Schema::default()
        .with("type", "integer")
        .with("format", "int64")
        .with("minimum", i64::MIN)
        .with("maximum", i64::MAX)
        .with("description", "The number of the session.")
        .example(7)
}

fn counter(about: &str) -> Schema {
    whole(about, 1..=limits::REMOTE_COUNT_MAX)
}

fn epoch() -> Schema {
    whole("Which claim of the execution: together they name the lease.", 0..=u32::MAX.into()).example(1)
}

fn seconds(about: &str) -> Schema {
    number(about, 0.0..=limits::TIMEOUT_MAX.as_secs_f64())
}

fn job_types() -> Schema {
    let job_types = list("What it can run.", name("A job type.")).with("minItems", 1);
    up_to(limits::WORKER_LANES_MAX, job_types).example(json!(["ImageProcessing"]))
}

fn queues(about: &str) -> Schema {
    up_to(limits::WORKER_LANES_MAX, list(about, name("A queue."))).not_null().example(json!(["images"]))
}

fn leases(about: &str) -> Schema {
    up_to(limits::LEASES_NAMED_MAX, list(about, the("Lease", "One of them.")))
}

fn sessions(schemas: &mut Schemas) {
    let (least, most) = (limits::SESSION_LEASE_MIN.as_secs_f64(), limits::SESSION_LEASE_MAX.as_secs_f64());
    schemas.request::<OpenSession>(
        "OpenSession",
        "A worker has started.",
        vec![
            ("worker", name("The worker's name, stable over restarts.").needed().example("resizer-1")),
            ("job_types", job_types().needed()),
            (
                "slots",
                whole(
                    "Handlers that it runs at once; for people to see.",
                    1..=limits::WORKER_SLOTS_MAX.into(),
                )
                .not_null()
                .otherwise(1),
            ),
            (
                "lease_secs",
                number(
                    "How long it may fall silent before its work is given to others, in seconds.",
                    least..=most,
                )
                .otherwise(limits::SESSION_LEASE.as_secs()),
            ),
            ("queues", queues("The queues it serves, for people to see; empty for all.")),
            ("version", name("The version of its program, for people to see.").example("2.4.1")),
            ("host", name("The machine it runs on, for people to see.").example("render-7")),
        ],
    );
    schemas.answer::<SessionBody>(
        "Session",
        "A session that is open.",
        vec![
            ("session", session()),
            ("now", time("The time by which the server goes.")),
            ("lease_secs", seconds("How long it may fall silent.")),
            ("beat_secs", seconds("How often to send a heartbeat.")),
            (
                "stop_after_secs",
                seconds(
                    "All handlers must have stopped this long after the last \
                heartbeat that was answered had been *sent*.",
                ),
            ),
        ],
    );
    schemas.request::<HeartbeatRequest>(
        "Heartbeat",
        "The worker is alive.",
        vec![
            ("session", session().needed()),
            ("beat", counter("Higher than in every earlier heartbeat of the session.").needed()),
            (
                "condition",
                the(
                    "WorkerCondition",
                    "How the worker is, for people to see; what it said before, if left out.",
                )
                .or_null(),
            ),
            (
                "draining",
                flag(
                    "The worker is ending: it polls no more, and closes the session when what runs has finished. \
                     That cannot be taken back.",
                )
                .not_null()
                .otherwise(false),
            ),
        ],
    );
    schemas.request::<DemandRequest>(
        "Demand",
        "What a worker takes.",
        vec![("job_types", job_types().needed()), ("queues", queues("The queues it serves; empty for all."))],
    );
    schemas.answer::<DemandAnswer>(
        "DemandAnswer",
        "What waits for workers like this one.",
        vec![
            ("queued", count("Executions that could start now.")),
            ("oldest_wait_secs", seconds("How long the oldest of them has waited; 0 if there is none.")),
        ],
    );
    schemas.answer::<HeartbeatAnswer>(
        "HeartbeatAnswer",
        "What a worker should know.",
        vec![
            ("now", time("The time by which the server goes.")),
            ("turn", whole("The last turn that the session has used.", 0..=limits::REMOTE_COUNT_MAX)),
            (
                "cancel",
                list("Executions that the session holds and should stop.", the("Lease", "One of them.")),
            ),
            ("drain", flag("Finish what runs, give back what has not started, close the session, and end.")),
        ],
    );
}

fn polls(schemas: &mut Schemas) {
    schemas.request::<LeaseBody>(
        "Lease",
        "One lease, named so that a later one cannot be mistaken for it.",
        vec![("execution_id", the("ExecutionId", "The execution.").needed()), ("epoch", epoch().needed())],
    );
    schemas.request::<PollRequest>(
        "Poll",
        "Give me work.",
        vec![
            ("session", session().needed()),
            ("turn", counter("Counts the polls of the session.").needed()),
            (
                "capacity",
                whole("How many executions it can take.", 1..=limits::REMOTE_POLL_CAPACITY_MAX as u64)
                    .not_null()
                    .otherwise(1),
            ),
            ("queues", queues("The queues it serves; empty for all.")),
            ("job_types", job_types().needed()),
            (
                "wait_secs",
                number(
                    "How long to wait when there is nothing, in seconds; 0 takes what is \
                there.",
                    0.0..=limits::REMOTE_POLL_WAIT_MAX.as_secs_f64(),
                )
                .otherwise(20),
            ),
            (
                "held",
                leases(
                    "All that the worker holds. Whatever else was leased to it goes back, so that \
                it need not resync.",
                ),
            ),
        ],
    );
    schemas.answer::<PollAnswer>(
        "PollAnswer",
        "Work, if there is any.",
        vec![("assignments", list("To be run.", the("Assignment", "One of them.")))],
    );
    schemas.answer::<AssignmentBody>(
        "Assignment",
        "A leased execution with all that a worker needs to run it.",
        vec![
            ("execution_id", the("ExecutionId", "The execution.")),
            ("epoch", epoch()),
            ("job_id", the("JobId", "Its job.")),
            ("job_version", whole("Its job as it is now.", 1..=u32::MAX.into())),
            ("name", text("The job's name.")),
            ("job_type", text("The job's type.")),
            ("queue", text("The job's queue.")),
            ("payload", any("As submitted.")),
            (
                "timeout_secs",
                number("How long the handler may run, in seconds; the worker sees to it.", 0.0..=1e12),
            ),
            ("deadline", time("When that time is over, if the handler starts at once.")),
            ("scheduled_time", time("The nominal time of the occurrence.")),
            ("available_at", time("When it could begin.")),
            (
                "rank",
                Schema::of("integer", "Of what a worker holds, the lowest starts first.")
                    .with("format", "int64")
                    .sometimes(),
            ),
            ("attempt_number", whole("Which attempt of the occurrence.", 1..=u32::MAX.into())),
            (
                "idempotency_key",
                the(
                    "OccurrenceId",
                    "The same for every attempt: hand it on to whatever must not happen twice.",
                ),
            ),
            (
                "checkpoint",
                any("What an earlier attempt has saved; not there if there is nothing.").sometimes(),
            ),
        ],
    );
}

fn reports(schemas: &mut Schemas) {
    let reports = list("In any order, of any session.", the("Report", "One of them."));
    schemas.request::<ReportRequest>(
        "Reports",
        "These have ended. At most 8 MiB.",
        vec![("reports", up_to(limits::REMOTE_REPORTS_MAX, reports).needed())],
    );
    schemas.request::<ReportBody>(
        "Report",
        "How one execution ended.",
        vec![
            ("session", session().needed()),
            ("execution_id", the("ExecutionId", "The execution.").needed()),
            ("epoch", epoch().needed()),
            (
                "outcome",
                words::<OutcomeWord>(
                    "`interrupted`: the worker had to stop it and nothing is known to be wrong with the \
                        job.",
                )
                .needed(),
            ),
            (
                "result",
                any("Of one that succeeded: any JSON up to 64 KiB that nests at most 100 deep; a larger or deeper one \
                    fails the attempt for good."),
            ),
            (
                "error",
                text("Of one that failed, where it is required, or was interrupted.").example("disk full"),
            ),
            (
                "retryable",
                flag(
                    "Of one that failed: whether another attempt may mend it; true if left \
                out.",
                ),
            ),
            ("started_at", time("By the server's time; the time of the lease if left out.")),
            ("completed_at", time("By the server's time; now if left out.")),
        ],
    );
    schemas.answer::<ReportsAnswer>(
        "ReportsAnswer",
        "What the server says to each report.",
        vec![("answers", list("One per report, in their order.", the("Verdict", "What is said to one.")))],
    );
    schemas.add(
        "Verdict",
        words::<Verdict>(
            "`already_accepted`: this very report came before; or this note, or a newer one. `stale`: the lease is \
                gone, and what was said counts for nothing.",
        ),
    );
}

fn notes(schemas: &mut Schemas) {
    let notes = list("In any order.", the("Note", "One of them."));
    schemas.request::<NotesRequest>(
        "Notes",
        "How far handlers have come, and what their next attempts should know. At most 8 MiB.",
        vec![("session", session().needed()), ("notes", up_to(limits::REMOTE_NOTES_MAX, notes).needed())],
    );
    schemas.request::<NoteBody>(
        "Note",
        "What one handler notes: progress, a checkpoint, or both. What is left out stays as it is.",
        vec![
            ("execution_id", the("ExecutionId", "The execution.").needed()),
            ("epoch", epoch().needed()),
            (
                "number",
                counter(
                    "Counts the notes of the lease, so that a late copy of an earlier one counts for nothing; the \
                        newest of all if left out.",
                ),
            ),
            ("progress", the("ProgressNote", "How far it has come.")),
            (
                "checkpoint",
                any(
                    "Any JSON up to 64 KiB that nests at most 100 deep, for the next attempt; null forgets the one that \
                        is there.",
                )
                    .example(json!({"offset": 1500})),
            ),
        ],
    );
    schemas.request::<ProgressNote>(
        "ProgressNote",
        "How far a handler has come, for people.",
        vec![
            ("percent", number("How much of it is done.", 0.0..=100.0).example(40)),
            ("message", text("What it is at; what is beyond 500 bytes is cut off.").example("page 5 of 12")),
        ],
    );
    schemas.answer::<NotesAnswer>(
        "NotesAnswer",
        "What the server says to each note.",
        vec![("answers", list("One per note, in their order.", the("Verdict", "What is said to one.")))],
    );
}

fn rest(schemas: &mut Schemas) {
    schemas.request::<GiveBackRequest>(
        "GiveBack",
        "These have not been started and go back to the queue.",
        vec![("session", session().needed()), ("leases", leases("Those.").needed())],
    );
    schemas.request::<ResyncRequest>(
        "Resync",
        "This is all that the worker holds; whatever else was leased to it goes back.",
        vec![
            ("session", session().needed()),
            ("turn", counter("The next turn.").needed()),
            ("held", leases("All that it holds.").needed()),
        ],
    );
    let lines = list("In the order in which they were written.", the("NewLogLine", "One of them."));
    schemas.request::<LogsRequest>(
        "NewLogs",
        "A handler has written this. At most 8 MiB.",
        vec![
            ("session", session().needed()),
            ("execution_id", the("ExecutionId", "The execution whose handler it was.").needed()),
            ("lines", up_to(limits::LOG_BATCH_LINES_MAX, lines).needed()),
        ],
    );
    schemas.request::<NewLogLine>(
        "NewLogLine",
        "One line.",
        vec![
            ("message", text("The line; what is beyond 16 KiB is cut off.").needed()),
            ("stream", the("LogStream", "Where it was written to.").not_null().otherwise("log")),
            ("timestamp", time("By the server's time; now if left out.")),
        ],
    );
}
