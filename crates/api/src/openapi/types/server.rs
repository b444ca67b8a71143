//! The server: queues, statistics, clock and health.

use super::super::schema::{
    Schema, Schemas, count, flag, list, name, number, one_of, text, the, time, up_to, whole, words,
};
use super::page;
use punctual_client::{
    ClockBody, ClockMode, ClockMoved, ConditionBody, CountersBody, JobsBody, LaneBody, LiveBody, MeBody,
    MoveClock, NodeBody, QueueBody, ScalingBody, ScalingPage, SetQueue, StatsBody, WorkerBody,
    WorkerSessionBody, WorkerState,
};
use punctual_core::limits;
use serde_json::json;

pub fn describe(schemas: &mut Schemas) {
    queues(schemas);
    workers(schemas);
    nodes(schemas);
    stats(schemas);
    clock(schemas);
    health(schemas);
}

fn queues(schemas: &mut Schemas) {
    let mut fields = vec![
        ("queue", text("Its name.").example("default")),
        ("paused", flag("It is paused and starts no executions.")),
        ("paused_at", time("Since when.").or_null()),
        (
            "unreadable",
            text(
                "Why its settings cannot be read; omitted if they can. Until they are set again, the queue \
                 behaves as if it were paused.",
            )
            .sometimes(),
        ),
        ("max_depth", max_depth().or_null()),
    ];
    fields.extend(limits_of_queue().map(|(field, schema)| (field, schema.or_null())));
    fields.push(("weights", weights()));
    fields.push(("in_line", count("Waiting executions that wait only for `concurrency` or `rate`.")));
    fields.extend(depths());
    schemas.answer::<QueueBody>("Queue", "A queue: its executions and its settings.", fields);
    page(schemas, "QueuePage", "All queues that have live executions, are paused or have settings.", "Queue");
    schemas.request::<SetQueue>(
        "SetQueue",
        "All settings of a queue: omitted ones get their defaults.",
        [("max_depth", max_depth())]
            .into_iter()
            .chain(limits_of_queue())
            .chain([("weights", weights())])
            .collect(),
    );
}

fn limits_of_queue() -> [(&'static str, Schema); 4] {
    let most = 1..=u64::from(limits::CONCURRENCY_MAX);
    [
        (
            "concurrency",
            whole("How many executions may be queued or running at once; null for no limit.", most.clone())
                .example(20),
        ),
        (
            "rate",
            text(
                "How many executions become claimable in a time span, from a second to a day; null for no \
                  limit.",
            )
            .example("100/1m"),
        ),
        (
            "key_concurrency",
            whole("Like `concurrency`, for the executions of each `concurrency_key`.", most).example(1),
        ),
        ("key_rate", text("Like `rate`, for the executions of each `concurrency_key`.").example("5/1s")),
    ]
}

fn weights() -> Schema {
    Schema::of("object", "The weights of owners in the queue; all other owners have weight 1.")
        .with(
            "additionalProperties",
            json!({"type": "integer", "minimum": 1, "maximum": limits::OWNER_WEIGHT_MAX}),
        )
        .example(json!({"ann": 3}))
}

fn max_depth() -> Schema {
    whole(
        "How many executions may wait or be queued before submits that would add to them are answered 429; \
         null for no limit.",
        0..=limits::QUEUE_DEPTH_MAX,
    )
    .example(10_000)
}

fn workers(schemas: &mut Schemas) {
    schemas.answer::<WorkerSessionBody>(
        "WorkerSession",
        "A session of a worker: one start of it.",
        vec![
            ("session_id", session().example(7)),
            ("worker_id", text("The worker's name, stable over restarts.").example("resizer-1")),
            (
                "state",
                words::<WorkerState>(
                    "`OPEN`: it gets work. `PAUSED`: it only continues its running executions. `DRAINING`: \
                     it finishes running executions, gives back the rest and closes its session.",
                ),
            ),
            ("embedded", flag("It runs in the server's own process.")),
            ("version", text("The version of its program, if reported.").or_null()),
            ("host", text("The machine it runs on, if reported.").or_null()),
            ("slots", count("Handlers that it runs at once.")),
            (
                "running",
                count("Executions that it has leased: those that run, and those that it has prefetched."),
            ),
            (
                "free_slots",
                count("How many more it could start now: none while it is paused, draining or refuses work."),
            ),
            ("job_types", list("The job types it can run.", text("A job type."))),
            ("queues", list("The queues it serves; empty for all.", text("A queue."))),
            ("started_at", time("When its session began.")),
            ("last_heartbeat_at", time("When its last heartbeat arrived.")),
            (
                "condition",
                the("WorkerCondition", "Its condition as last reported; null before the first report.")
                    .or_null(),
            ),
        ],
    );
    condition(schemas);
    scaling(schemas);
    page(schemas, "WorkerPage", "All sessions that are neither lost nor closed.", "WorkerSession");
}

fn condition(schemas: &mut Schemas) {
    let slots = |about: &str| whole(about, 1..=u64::from(limits::WORKER_SLOTS_MAX));
    let held = |about: &str| whole(about, 0..=u64::from(u32::MAX)).sometimes();
    let bytes = |about: &str| whole(about, 0..=i64::MAX as u64).or_null().sometimes();
    let cpu_percent = whole("The CPU usage, of the processors that it may use.", 0..=100);
    let refuses = list("Why it takes no new work; empty if it does.", name("A reason."));
    schemas.answer::<ConditionBody>(
        "WorkerCondition",
        "The condition of a worker, as reported by itself. Unknown values are null; a worker may omit \
         everything but its slots.",
        vec![
            ("slots", slots("Handlers that it runs at once.").example(8)),
            ("slots_min", slots("The minimum of slots, if it adapts.").or_null().sometimes()),
            ("slots_max", slots("The maximum of slots, if it adapts.").or_null().sometimes()),
            ("running", held("Handlers that run.")),
            ("ready", held("Executions that it has prefetched.")),
            ("address", name("The address of its machine.").or_null().sometimes().example("10.0.0.7")),
            ("cpu_percent", cpu_percent.or_null().sometimes()),
            ("memory_free_bytes", bytes("Memory that it may still use.")),
            ("memory_total_bytes", bytes("Memory that it may use in all.")),
            ("disk_free_bytes", bytes("Space that is free on its disk.")),
            ("disk_total_bytes", bytes("The size of its disk.")),
            ("round_trip_ms", bytes("How long its last heartbeat took to be answered.")),
            ("last_error", text("The last error on the way to its server or store.").or_null().sometimes()),
            ("refuses", up_to(limits::REFUSAL_REASONS_MAX, refuses).sometimes()),
        ],
    );
}

fn scaling(schemas: &mut Schemas) {
    let seconds = number("How long the oldest of the queued ones has waited.", 0.0..=1e12);
    schemas.answer::<ScalingBody>(
        "Scaling",
        "What a queue, or all queues together, have and need.",
        vec![
            ("queue", text("Its name; null for all queues together.").or_null().example("default")),
            ("queued", count("Executions that could start now; 0 for a paused queue.")),
            ("running", count("Executions that run.")),
            ("oldest_wait_secs", seconds),
            ("workers", count("Workers that serve it and accept work.")),
            ("slots", count("Their slots.")),
            (
                "desired_slots",
                count("The slots that are needed so that no execution waits longer than the target."),
            ),
            ("desired_workers", count("The same in workers.")),
        ],
    );
    schemas.answer::<ScalingPage>(
        "ScalingPage",
        "What queues have and need.",
        vec![
            (
                "items",
                list("Queues that have executions, or workers of their own.", the("Scaling", "One of them.")),
            ),
            ("total", the("Scaling", "All queues together, for workers that serve all of them.")),
            ("next_cursor", text("Pass it as `cursor` to read on; null on the last page.").or_null()),
        ],
    );
}

fn session() -> Schema {
    Schema::default()
        .with("type", "integer")
        .with("format", "int64")
        .with("description", "The id of the session.")
}

fn nodes(schemas: &mut Schemas) {
    schemas.answer::<NodeBody>(
        "Node",
        "A process of the cluster.",
        vec![
            ("node_id", text("Its name.")),
            ("version", text("The version of its program.").example(env!("CARGO_PKG_VERSION"))),
            ("started_at", time("When it started.")),
            ("roles", list("Its roles.", text("A role."))),
            ("address", text("The address it listens on.").example("127.0.0.1:7070")),
            ("tzdb_version", text("The version of the time zone data that schedules use.").example("2025b")),
            (
                "clock_offset_ms",
                Schema::default().with("type", "integer").with("format", "int64").with(
                    "description",
                    "How far its machine's clock is ahead of the cluster's time, in milliseconds.",
                ),
            ),
            ("store", text("The kind of its store: sqlite, postgres or mysql.").example("sqlite")),
            ("schema_version", count("The version of the store's tables.")),
            (
                "embedded_store",
                flag("The store runs in the server's own process. If not, other servers may use it too."),
            ),
            ("host", text("The machine that it runs on.")),
            ("pid", count("Its process id there.")),
            ("leader", flag("It is the leader of the cluster.")),
            ("segments", count("How many of the 64 segments of all jobs it fires.")),
            ("answering", flag("It is the process that answered.")),
            (
                "others_unknown",
                flag(
                    "For the process that answered: there may be others, but it cannot currently find out \
                     which.",
                ),
            ),
            (
                "coordination",
                text(
                    "The backend through which it coordinates with the others: store, etcd, redis or \
                     zookeeper. Empty if its store is its own, and for older processes.",
                )
                .example("store"),
            ),
            ("warnings", list("Problems that need attention.", text("A sentence."))),
        ],
    );
    page(schemas, "NodePage", "All processes of the cluster that are alive.", "Node");
    schemas.answer::<MeBody>(
        "Me",
        "The caller's token.",
        vec![
            ("token_id", text("The public part of the token.")),
            ("role", one_of("What it may do.", &["viewer", "submitter", "operator", "admin"])),
        ],
    );
}

/// The depth of a queue or a part of it.
fn depths() -> Vec<(&'static str, Schema)> {
    vec![
        ("waiting", count("Executions that may not start yet.")),
        ("queued", count("Executions that could start now.")),
        ("running", count("Executions that run.")),
        ("oldest_queued_at", time("When the oldest queued execution became available.").or_null()),
    ]
}

fn stats(schemas: &mut Schemas) {
    schemas.answer::<StatsBody>(
        "Stats",
        "How much there is to do and how much was done.",
        vec![
            ("now", time("The store's time when this was read.")),
            (
                "queues",
                up_to(
                    limits::STATS_LANES_MAX,
                    list(
                        "Live executions, by queue and job type. If there are too many to list, those \
                          with the most executions.",
                        the("Lane", "One of them."),
                    ),
                ),
            ),
            (
                "workers",
                up_to(
                    limits::STATS_WORKERS_MAX,
                    list(
                        "The connected workers; if there are too many to list, those connected for \
                         longest. `/workers` lists all.",
                        the("Worker", "One of them."),
                    ),
                ),
            ),
            ("live", the("LiveTotals", "The totals, listed or not.")),
            ("truncated", flag("Whether `queues` or `workers` are incomplete.")),
            ("jobs", the("JobCounts", "How many jobs are stored, by status.")),
            ("counters", the("Counters", "What all live processes have done since each started.")),
            ("processes", count("How many processes were counted.")),
        ],
    );
    schemas.answer::<LiveBody>(
        "LiveTotals",
        "Totals of live executions and connected workers.",
        vec![
            ("lanes", count("Pairs of queue and job type that have live executions.")),
            ("waiting", count("Executions that may not start yet.")),
            ("queued", count("Executions that could start now.")),
            ("running", count("Executions that run.")),
            ("sessions", count("Sessions of workers.")),
            ("slots", count("Handlers that these workers can run at once.")),
        ],
    );
    schemas.answer::<JobsBody>(
        "JobCounts",
        "How many jobs there are by status, and how many dead letters.",
        vec![
            ("active", count("Jobs that are `ACTIVE`.")),
            ("paused", count("Jobs that are `PAUSED`.")),
            ("completed", count("Jobs that are `COMPLETED` and still stored.")),
            ("failed", count("Jobs that are `FAILED` and still stored.")),
            ("cancelled", count("Jobs that are `CANCELLED` and still stored.")),
            ("dead_letters", count("Occurrences that failed permanently and are still stored.")),
        ],
    );
    let mut lane = vec![("queue", text("The queue.")), ("job_type", text("The job type."))];
    lane.extend(depths());
    schemas.answer::<LaneBody>("Lane", "Live executions of one queue and job type.", lane);
    schemas.answer::<WorkerBody>(
        "Worker",
        "A worker that is connected.",
        vec![
            ("worker_id", text("Its name.")),
            ("slots", count("Handlers that it runs at once.")),
            ("job_types", list("The job types it can run.", text("A job type."))),
            ("started_at", time("When its session began.")),
            ("last_heartbeat_at", time("When its last heartbeat arrived.")),
        ],
    );
    schemas.answer::<CountersBody>(
        "Counters",
        "What all live processes have done since each started.",
        vec![
            ("submitted", count("Jobs submitted.")),
            (
                "fired",
                count("Occurrences started by schedules; immediate jobs are queued without being fired."),
            ),
            ("skipped", count("Occurrences that did not run, for a recorded reason.")),
            ("fire_conflicts", count("Fires that found the schedule already fired or changed.")),
            ("claimed", count("Executions leased to workers.")),
            ("succeeded", count("Executions that succeeded.")),
            ("failed", count("Executions that failed.")),
            ("timed_out", count("Executions that timed out.")),
            ("cancelled", count("Executions that were cancelled.")),
            ("expired", count("Executions that expired before they could start.")),
            ("lost", count("Executions whose worker session stopped sending heartbeats.")),
            ("retried", count("Attempts that follow a failed one.")),
            ("given_back", count("Executions returned unstarted.")),
            ("stale_reports", count("Reports rejected because their lease was gone.")),
            ("sessions_lost", count("Worker sessions declared lost.")),
            ("store_errors", count("Calls to the store that failed.")),
        ],
    );
}

fn clock(schemas: &mut Schemas) {
    schemas.answer::<ClockBody>(
        "Clock",
        "The clock that schedules use.",
        vec![
            ("mode", words::<ClockMode>("Whether it is the machine's clock or a manual one.")),
            ("now", time("The time it shows.")),
        ],
    );
    let settle = format!(
        "How long to wait, in real time and at each stop, until no execution that could run is left; `0s` \
         not to wait, at most {}s.",
        limits::ADVANCE_TIME_MAX.as_secs()
    );
    schemas.request::<MoveClock>(
        "MoveClock",
        "Where to move the clock: either `by` a duration, or `to` a point in time.",
        vec![
            ("by", the("Duration", "How far.").example("1h")),
            ("to", time("The time to move to; the clock never goes back.")),
            ("settle", the("Duration", &settle).otherwise("10s")),
        ],
    );
    schemas.answer::<ClockMoved>(
        "ClockMoved",
        "How far the clock was moved, and what happened on the way.",
        vec![
            ("now", time("The time it shows.")),
            ("fired", count("Occurrences started by schedules.")),
            ("skipped", count("Occurrences skipped by schedules.")),
            ("settled", flag("Nothing is due, queued for a worker or running.")),
            ("more", flag("A limit was reached before the requested time: repeat the request to continue.")),
        ],
    );
}

/// These have no Rust types: only people and load balancers read them.
fn health(schemas: &mut Schemas) {
    let status = |about, words: &[&str]| {
        let schema = Schema::default().with("type", "object").with("description", about);
        schema
            .with("required", vec!["status"])
            .with("properties", json!({"status": one_of("The status.", words).value()}))
    };
    schemas.add("Live", status("The process answers.", &["live"]));
    schemas.add("Ready", status("Whether the server can serve.", &["ready", "stopping"]));
    let index = Schema::default()
        .with("type", "object")
        .with("description", "The links.")
        .with("required", vec!["name", "version"])
        .with("additionalProperties", json!({"type": "string"}));
    schemas.add("Index", index);
}
