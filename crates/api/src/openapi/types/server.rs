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
        ("paused", flag("It hands nothing out.")),
        ("paused_at", time("Since when.").or_null()),
        (
            "unreadable",
            text(
                "Why its settings cannot be read; left out if they can. Then it is held as if it were paused, until they are set again.",
            )
            .sometimes(),
        ),
        ("max_depth", max_depth().or_null()),
    ];
    fields.extend(limits_of_queue().map(|(field, schema)| (field, schema.or_null())));
    fields.push(("weights", weights()));
    fields.push(("in_line", count("Those of the waiting that wait for `concurrency` or `rate` alone.")));
    fields.extend(depths());
    schemas.answer::<QueueBody>("Queue", "A queue: what is in it, and how it is set.", fields);
    page(schemas, "QueuePage", "All queues that have live work, are paused or have settings.", "Queue");
    schemas.request::<SetQueue>(
        "SetQueue",
        "All settings of a queue: what is left out is as by default.",
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
            whole("How many executions are queued or run at once; null for any number.", most.clone()).example(20),
        ),
        (
            "rate",
            text("How many executions become claimable in a span of time, from a second to a day; null for any number.")
                .example("100/1m"),
        ),
        (
            "key_concurrency",
            whole("The same as `concurrency`, for the executions of each `concurrency_key`.", most).example(1),
        ),
        (
            "key_rate",
            text("The same as `rate`, for the executions of each `concurrency_key`.").example("5/1s"),
        ),
    ]
}

fn weights() -> Schema {
    Schema::of("object", "The shares of owners in the queue against those of others, who have one.")
        .with(
            "additionalProperties",
            json!({"type": "integer", "minimum": 1, "maximum": limits::OWNER_WEIGHT_MAX}),
        )
        .example(json!({"ann": 3}))
}

fn max_depth() -> Schema {
    whole(
        "How many executions may wait or be queued before submits that would join them are answered 429; null for \
            any number.",
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
                    "`OPEN`: it gets work. `PAUSED`: it goes on with what it has. `DRAINING`: it finishes what runs, \
                        gives back the rest and closes its session.",
                ),
            ),
            ("embedded", flag("It lives in the server's own process.")),
            ("version", text("Of its program, if it says so.").or_null()),
            ("host", text("The machine it runs on, if it says so.").or_null()),
            ("slots", count("Handlers that it runs at once.")),
            ("running", count("Executions that it holds: those that run, and those that it has fetched ahead.")),
            (
                "free_slots",
                count("How many more it could start now: none while it is paused, drains or refuses work."),
            ),
            ("job_types", list("What it can run.", text("A job type."))),
            ("queues", list("The queues it serves; empty for all.", text("A queue."))),
            ("started_at", time("When its session began.")),
            ("last_heartbeat_at", time("When it was last heard of.")),
            (
                "condition",
                the("WorkerCondition", "How it was when it last said so; null before its first word.").or_null(),
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
    let cpu_percent = whole("How busy its processors are, of those that it may use.", 0..=100);
    let refuses = list("Why it takes nothing new; empty if it does.", name("A reason."));
    schemas.answer::<ConditionBody>(
        "WorkerCondition",
        "How a worker is, in its own words. What it cannot tell is null; a worker may leave out all but its slots.",
        vec![
            ("slots", slots("Handlers that it runs at once.").example(8)),
            ("slots_min", slots("The least of them, if it adapts.").or_null().sometimes()),
            ("slots_max", slots("The most of them, if it adapts.").or_null().sometimes()),
            ("running", held("Handlers that run.")),
            ("ready", held("Executions that it has fetched ahead.")),
            ("address", name("Where its machine is found.").or_null().sometimes().example("10.0.0.7")),
            ("cpu_percent", cpu_percent.or_null().sometimes()),
            ("memory_free_bytes", bytes("Memory that it may still use.")),
            ("memory_total_bytes", bytes("Memory that it may use in all.")),
            ("disk_free_bytes", bytes("Space that is free on its disk.")),
            ("disk_total_bytes", bytes("The size of its disk.")),
            ("round_trip_ms", bytes("How long its last heartbeat took to be answered.")),
            ("last_error", text("What went wrong last on the way to its server or store.").or_null().sometimes()),
            ("refuses", up_to(limits::REFUSAL_REASONS_MAX, refuses).sometimes()),
        ],
    );
}

fn scaling(schemas: &mut Schemas) {
    let seconds = number("How long the oldest of the queued ones has waited.", 0.0..=1e12);
    schemas.answer::<ScalingBody>(
        "Scaling",
        "What a queue, or all of them, have and need.",
        vec![
            ("queue", text("Its name; null for all queues together.").or_null().example("default")),
            ("queued", count("Executions that could start now; none of a queue that is paused.")),
            ("running", count("Executions that run.")),
            ("oldest_wait_secs", seconds),
            ("workers", count("Workers that serve it and take work.")),
            ("slots", count("Their slots.")),
            ("desired_slots", count("The slots that would have nothing wait longer than wanted.")),
            ("desired_workers", count("The same in workers.")),
        ],
    );
    schemas.answer::<ScalingPage>(
        "ScalingPage",
        "What queues have and need.",
        vec![
            (
                "items",
                list(
                    "Queues that have something in them, or workers of their own.",
                    the("Scaling", "One of them."),
                ),
            ),
            ("total", the("Scaling", "Of all queues together, for workers that serve them all.")),
            ("next_cursor", text("Give it back as `cursor` to read on; null on the last page.").or_null()),
        ],
    );
}

fn session() -> Schema {
    Schema::default()
        .with("type", "integer")
        .with("format", "int64")
        .with("description", "The number of the session.")
}

fn nodes(schemas: &mut Schemas) {
    schemas.answer::<NodeBody>(
        "Node",
        "A process of the cluster.",
        vec![
            ("node_id", text("Its name.")),
            ("version", text("Of its program.").example(env!("CARGO_PKG_VERSION"))),
            ("started_at", time("When it started.")),
            ("roles", list("What it does.", text("A part of the work."))),
            ("address", text("Where it listens.").example("127.0.0.1:7070")),
            ("tzdb_version", text("The time zone data that schedules go by.").example("2025b")),
            (
                "clock_offset_ms",
                Schema::default().with("type", "integer").with("format", "int64").with(
                    "description",
                    "How far its machine's clock is ahead of the time that the cluster goes by, in milliseconds.",
                ),
            ),
            ("store", text("The kind of its store: sqlite, postgres or mysql.").example("sqlite")),
            ("schema_version", count("The version of the store's tables.")),
            (
                "embedded_store",
                flag("The store lives in the server's own process. If not, there may be other servers on it."),
            ),
            ("host", text("The machine that it runs on.")),
            ("pid", count("Its process there.")),
            ("leader", flag("It has the duties that one process has for all.")),
            ("segments", count("Of the 64 segments of all jobs, how many it fires.")),
            ("answering", flag("It is the process that answered.")),
            (
                "others_unknown",
                flag(
                    "Of the process that answered: there may be others, but it cannot find out who they are just now.",
                ),
            ),
            (
                "coordination",
                text(
                    "Through what it coordinates with the others: store, etcd, redis or zookeeper. Empty where its store is its \
                     own, and of older processes.",
                )
                .example("store"),
            ),
            ("warnings", list("What somebody should look into.", text("A sentence."))),
        ],
    );
    page(schemas, "NodePage", "All processes of the cluster that are alive.", "Node");
    schemas.answer::<MeBody>(
        "Me",
        "Whose token it is.",
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
                    list("What is live, by queue and job type. Of many, those that hold most.", the("Lane", "One of them.")),
                ),
            ),
            (
                "workers",
                up_to(
                    limits::STATS_WORKERS_MAX,
                    list(
                        "The workers that are connected; of many, those that have been for longest. `/workers` lists all.",
                        the("Worker", "One of them."),
                    ),
                ),
            ),
            ("live", the("LiveTotals", "What there is in all, shown or not.")),
            ("truncated", flag("Whether `queues` or `workers` leave anything out.")),
            ("jobs", the("JobCounts", "How many jobs are kept, by status.")),
            ("counters", the("Counters", "What the processes that are alive have done since each started.")),
            ("processes", count("How many processes these are.")),
        ],
    );
    schemas.answer::<LiveBody>(
        "LiveTotals",
        "What is live and who is connected, added up.",
        vec![
            ("lanes", count("Pairs of queue and job type that have something live.")),
            ("waiting", count("Executions that may not start yet.")),
            ("queued", count("Executions that could start now.")),
            ("running", count("Executions that run.")),
            ("sessions", count("Sessions of workers.")),
            ("slots", count("Handlers that these run at once.")),
        ],
    );
    schemas.answer::<JobsBody>(
        "JobCounts",
        "How many jobs there are by status, and how many dead letters.",
        vec![
            ("active", count("Jobs that are `ACTIVE`.")),
            ("paused", count("Jobs that are `PAUSED`.")),
            ("completed", count("Jobs that are `COMPLETED` and still kept.")),
            ("failed", count("Jobs that are `FAILED` and still kept.")),
            ("cancelled", count("Jobs that are `CANCELLED` and still kept.")),
            ("dead_letters", count("Occurrences that failed for good and are still kept.")),
        ],
    );
    let mut lane = vec![("queue", text("The queue.")), ("job_type", text("The job type."))];
    lane.extend(depths());
    schemas.answer::<LaneBody>("Lane", "What is live of one queue and job type.", lane);
    schemas.answer::<WorkerBody>(
        "Worker",
        "A worker that is connected.",
        vec![
            ("worker_id", text("Its name.")),
            ("slots", count("Handlers that it runs at once.")),
            ("job_types", list("What it can run.", text("A job type."))),
            ("started_at", time("When its session began.")),
            ("last_heartbeat_at", time("When it was last heard of.")),
        ],
    );
    schemas.answer::<CountersBody>(
        "Counters",
        "What one server has done since it started.",
        vec![
            ("submitted", count("Jobs submitted.")),
            (
                "fired",
                count("Occurrences that schedules began; immediate jobs are queued without being fired."),
            ),
            ("skipped", count("Occurrences that did not run, for a recorded reason.")),
            ("fire_conflicts", count("Fires that found the schedule already fired or changed.")),
            ("claimed", count("Executions leased to workers.")),
            ("succeeded", count("Executions that succeeded.")),
            ("failed", count("Executions that failed.")),
            ("timed_out", count("Executions that ran out of time.")),
            ("cancelled", count("Executions that were cancelled.")),
            ("expired", count("Executions that expired before they could start.")),
            ("lost", count("Executions whose worker session fell silent.")),
            ("retried", count("Attempts that follow a failed one.")),
            ("given_back", count("Executions returned unstarted.")),
            ("stale_reports", count("Reports refused because their lease was gone.")),
            ("sessions_lost", count("Worker sessions declared lost.")),
            ("store_errors", count("Calls to the store that failed.")),
        ],
    );
}

fn clock(schemas: &mut Schemas) {
    schemas.answer::<ClockBody>(
        "Clock",
        "The time by which schedules go.",
        vec![
            ("mode", words::<ClockMode>("Whether it is the machine's or driven by requests.")),
            ("now", time("What it shows.")),
        ],
    );
    let settle = format!(
        "How long to wait, in real time and at each stop, until nothing runs that could; `0s` not to \
            wait, at most {}s.",
        limits::ADVANCE_TIME_MAX.as_secs()
    );
    schemas.request::<MoveClock>(
        "MoveClock",
        "Where to move the clock: either `by` a length of time, or `to` a point in time.",
        vec![
            ("by", the("Duration", "How far.").example("1h")),
            ("to", time("Up to when; the clock never goes back.")),
            ("settle", the("Duration", &settle).otherwise("10s")),
        ],
    );
    schemas.answer::<ClockMoved>(
        "ClockMoved",
        "How far the clock was moved, and what happened on the way.",
        vec![
            ("now", time("What it shows.")),
            ("fired", count("Occurrences that schedules began.")),
            ("skipped", count("Occurrences that schedules skipped.")),
            ("settled", flag("Nothing that is due, queued for a worker or running is left.")),
            ("more", flag("A limit came before the time that was asked for: ask again to go on.")),
        ],
    );
}

/// These have no Rust types: only people and load balancers read them.
fn health(schemas: &mut Schemas) {
    let status = |about, words: &[&str]| {
        let schema = Schema::default().with("type", "object").with("description", about);
        schema
            .with("required", vec!["status"])
            .with("properties", json!({"status": one_of("In a word.", words).value()}))
    };
    schemas.add("Live", status("The process answers.", &["live"]));
    schemas.add("Ready", status("Whether the server can serve.", &["ready", "stopping"]));
    let index = Schema::default()
        .with("type", "object")
        .with("description", "What is where.")
        .with("required", vec!["name", "version"])
        .with("additionalProperties", json!({"type": "string"}));
    schemas.add("Index", index);
}
