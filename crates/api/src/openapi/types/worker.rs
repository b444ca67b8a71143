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
        .with("description", "The id of the session.")
        .example(7)
}

fn counter(about: &str) -> Schema {
    whole(about, 1..=limits::REMOTE_COUNT_MAX)
}

fn epoch() -> Schema {
    whole("The number of the claim; with the execution id it identifies the lease.", 0..=u32::MAX.into())
        .example(1)
}

fn seconds(about: &str) -> Schema {
    number(about, 0.0..=limits::TIMEOUT_MAX.as_secs_f64())
}

fn job_types() -> Schema {
    let job_types = list("The job types it can run.", name("A job type.")).with("minItems", 1);
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
        "A session to open.",
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
                    "How long it may be silent before its work is given to other workers, in seconds.",
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
            ("now", time("The server's time.")),
            ("lease_secs", seconds("How long it may be silent.")),
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
        "A heartbeat of a worker.",
        vec![
            ("session", session().needed()),
            ("beat", counter("Higher than in all earlier heartbeats of the session.").needed()),
            (
                "condition",
                the("WorkerCondition", "The worker's condition, for people to see; unchanged if omitted.")
                    .or_null(),
            ),
            (
                "draining",
                flag(
                    "The worker is shutting down: it polls no more, and closes the session when its \
                     running executions have finished. This cannot be undone.",
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
        "What is waiting for workers like this one.",
        vec![
            ("queued", count("Executions that could start now.")),
            ("oldest_wait_secs", seconds("How long the oldest of them has waited; 0 if there is none.")),
        ],
    );
    schemas.answer::<HeartbeatAnswer>(
        "HeartbeatAnswer",
        "Instructions for a worker.",
        vec![
            ("now", time("The server's time.")),
            ("turn", whole("The last turn that the session used.", 0..=limits::REMOTE_COUNT_MAX)),
            (
                "cancel",
                list("Executions that the session has leased and should stop.", the("Lease", "One of them.")),
            ),
            (
                "drain",
                flag("Finish running executions, give back those not started, close the session, and exit."),
            ),
        ],
    );
}

fn polls(schemas: &mut Schemas) {
    schemas.request::<LeaseBody>(
        "Lease",
        "One lease, identified so that a later one cannot be mistaken for it.",
        vec![("execution_id", the("ExecutionId", "The execution.").needed()), ("epoch", epoch().needed())],
    );
    schemas.request::<PollRequest>(
        "Poll",
        "A request for work.",
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
                    "How long to wait when there is no work, in seconds; 0 does not wait.",
                    0.0..=limits::REMOTE_POLL_WAIT_MAX.as_secs_f64(),
                )
                .otherwise(20),
            ),
            (
                "held",
                leases(
                    "All leases of the worker. All other executions leased to it return to the queue, so \
                     that no resync is needed.",
                ),
            ),
        ],
    );
    schemas.answer::<PollAnswer>(
        "PollAnswer",
        "Work, if there is any.",
        vec![("assignments", list("Executions to run.", the("Assignment", "One of them.")))],
    );
    schemas.answer::<AssignmentBody>(
        "Assignment",
        "A leased execution with everything that a worker needs to run it.",
        vec![
            ("execution_id", the("ExecutionId", "The execution.")),
            ("epoch", epoch()),
            ("job_id", the("JobId", "Its job.")),
            ("job_version", whole("The current version of its job.", 1..=u32::MAX.into())),
            ("name", text("The job's name.")),
            ("job_type", text("The job's type.")),
            ("queue", text("The job's queue.")),
            ("payload", any("As submitted.")),
            (
                "timeout_secs",
                number("How long the handler may run, in seconds; the worker enforces it.", 0.0..=1e12),
            ),
            ("deadline", time("When that time ends, if the handler starts immediately.")),
            ("scheduled_time", time("The nominal time of the occurrence.")),
            ("available_at", time("When it could begin.")),
            (
                "rank",
                Schema::of("integer", "Among the executions that a worker holds, the lowest starts first.")
                    .with("format", "int64")
                    .sometimes(),
            ),
            (
                "attempt_number",
                whole("The number of the attempt within the occurrence.", 1..=u32::MAX.into()),
            ),
            (
                "idempotency_key",
                the(
                    "OccurrenceId",
                    "The same for every attempt: pass it to systems that must not process the execution \
                     twice.",
                ),
            ),
            (
                "checkpoint",
                any("The checkpoint that an earlier attempt saved; omitted if there is none.").sometimes(),
            ),
        ],
    );
}

fn reports(schemas: &mut Schemas) {
    let reports = list("In any order, of any session.", the("Report", "One of them."));
    schemas.request::<ReportRequest>(
        "Reports",
        "Ended executions. At most 8 MiB.",
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
                    "`interrupted`: the worker had to stop it, and the job itself is not known to be at \
                     fault.",
                )
                .needed(),
            ),
            (
                "result",
                any("For succeeded executions: any JSON up to 64 KiB, nested at most 100 deep; a larger or \
                     deeper one fails the attempt permanently."),
            ),
            (
                "error",
                text("For failed executions, where it is required, or interrupted ones.")
                    .example("disk full"),
            ),
            ("retryable", flag("For failed executions: whether a retry may succeed; true if omitted.")),
            ("started_at", time("In the server's time; the time of the lease if omitted.")),
            ("completed_at", time("In the server's time; now if omitted.")),
        ],
    );
    schemas.answer::<ReportsAnswer>(
        "ReportsAnswer",
        "The result of each report.",
        vec![(
            "answers",
            list("One per report, in the same order.", the("Verdict", "The result of one report.")),
        )],
    );
    schemas.add(
        "Verdict",
        words::<Verdict>(
            "`already_accepted`: the same report was already received; or this note, or a newer one. \
             `stale`: the lease is gone, and the message has no effect.",
        ),
    );
}

fn notes(schemas: &mut Schemas) {
    let notes = list("In any order.", the("Note", "One of them."));
    schemas.request::<NotesRequest>(
        "Notes",
        "The progress of handlers, and the checkpoints for their next attempts. At most 8 MiB.",
        vec![("session", session().needed()), ("notes", up_to(limits::REMOTE_NOTES_MAX, notes).needed())],
    );
    schemas.request::<NoteBody>(
        "Note",
        "A note of one handler: progress, a checkpoint, or both. An omitted part stays unchanged.",
        vec![
            ("execution_id", the("ExecutionId", "The execution.").needed()),
            ("epoch", epoch().needed()),
            (
                "number",
                counter(
                    "The number of the note within the lease, so that a late duplicate of an earlier one \
                     has no effect; counts as the newest if omitted.",
                ),
            ),
            ("progress", the("ProgressNote", "The progress of the handler.")),
            (
                "checkpoint",
                any("Any JSON up to 64 KiB, nested at most 100 deep, for the next attempt; null deletes \
                     the stored one.")
                .example(json!({"offset": 1500})),
            ),
        ],
    );
    schemas.request::<ProgressNote>(
        "ProgressNote",
        "The progress of a handler, for people to see.",
        vec![
            ("percent", number("The completed share.", 0.0..=100.0).example(40)),
            ("message", text("The current step; cut off after 500 bytes.").example("page 5 of 12")),
        ],
    );
    schemas.answer::<NotesAnswer>(
        "NotesAnswer",
        "The result of each note.",
        vec![(
            "answers",
            list("One per note, in the same order.", the("Verdict", "The result of one note.")),
        )],
    );
}

fn rest(schemas: &mut Schemas) {
    schemas.request::<GiveBackRequest>(
        "GiveBack",
        "Executions that have not been started and return to the queue.",
        vec![("session", session().needed()), ("leases", leases("Those.").needed())],
    );
    schemas.request::<ResyncRequest>(
        "Resync",
        "All leases of the worker; all other executions leased to it return to the queue.",
        vec![
            ("session", session().needed()),
            ("turn", counter("The next turn.").needed()),
            ("held", leases("All leases of the worker.").needed()),
        ],
    );
    let lines = list("In the order in which they were written.", the("NewLogLine", "One of them."));
    schemas.request::<LogsRequest>(
        "NewLogs",
        "Log lines of a handler. At most 8 MiB.",
        vec![
            ("session", session().needed()),
            ("execution_id", the("ExecutionId", "The execution that the lines belong to.").needed()),
            ("lines", up_to(limits::LOG_BATCH_LINES_MAX, lines).needed()),
        ],
    );
    schemas.request::<NewLogLine>(
        "NewLogLine",
        "One line.",
        vec![
            ("message", text("The line; cut off after 16 KiB.").needed()),
            ("stream", the("LogStream", "Which stream it was written to.").not_null().otherwise("log")),
            ("timestamp", time("In the server's time; now if omitted.")),
        ],
    );
}
