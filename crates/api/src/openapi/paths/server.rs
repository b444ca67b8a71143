//! Queues, statistics, the clock, health and documentation.

use super::super::operation::{Operation, Title};
use super::{CLOCK, NO_PARAMETERS, QUEUES, SERVER, paged_by_most};
use axum::http::Method;
use punctual_client::API_PREFIX;
use punctual_client::schema::{name, one_of, text, the, time, whole};
use punctual_core::limits;
use punctual_engine::UseCase;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    let mut operations = vec![list_queues(), show_queue(), set_queue(), patch_queue()];
    operations.extend(queue_verbs());
    operations.extend(pauses());
    operations.extend([stats(), series(), nodes(), me(), clock()]);
    operations.extend(clock_moves());
    operations.extend(health());
    operations.extend([metrics(), document(), page()]);
    operations
}

fn list_queues() -> Operation {
    let title = Title { id: "listQueues", tag: QUEUES, summary: "List queues" };
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/queues"), title)
        .needs(UseCase::ReadQueues)
        .about("Every queue that has live executions, is paused or has settings, by name.")
        .fails(400, "A parameter is unknown or out of range.");
    paged_by_most(operation).answers(200, "One page.", "QueuePage")
}

fn on_queue(method: Method, rest: &str, title: Title) -> Operation {
    Operation::new(method, format!("{API_PREFIX}/queues/{{queue}}{rest}"), title)
        .in_path("queue", name().about("The queue's name."))
        .answers(200, "The queue in its current state.", "Queue")
        .fails(404, "No queue can have this name.")
}

fn show_queue() -> Operation {
    let title = Title { id: "getQueue", tag: QUEUES, summary: "Get a queue" };
    on_queue(Method::GET, "", title)
        .needs(UseCase::ReadQueues)
        .about("Any valid name is accepted: a queue that has not been used yet is empty and open.")
        .fails(400, NO_PARAMETERS)
}

fn set_queue() -> Operation {
    let title = Title { id: "setQueue", tag: QUEUES, summary: "Set up a queue" };
    on_queue(Method::PUT, "", title)
        .needs(UseCase::SetQueue)
        .about("Sets all settings: omitted ones get their defaults.")
        .takes(
            "SetQueue",
            json!({"max_depth": 10_000, "concurrency": 20, "key_concurrency": 1, "rate": "100/1m"}),
        )
}

fn patch_queue() -> Operation {
    let title = Title { id: "patchQueue", tag: QUEUES, summary: "Change some settings of a queue" };
    on_queue(Method::PATCH, "", title)
        .needs(UseCase::SetQueue)
        .about(
            "Settings that the body does not name stay. Of two changes at the same time, both take effect.",
        )
        .takes("PatchQueue", json!({"concurrency": 20, "rate": null}))
}

fn pauses() -> [Operation; 3] {
    let on_pause = |method, id, summary| {
        let title = Title { id, tag: QUEUES, summary };
        Operation::new(method, format!("{API_PREFIX}/pause"), title).answers(
            200,
            "Whether the cluster is paused.",
            "ClusterPause",
        )
    };
    [
        on_pause(Method::GET, "getPause", "Get the pause of the cluster")
            .needs(UseCase::ReadPause)
            .about("Whether the cluster is paused, since when, why and until when."),
        on_pause(Method::PUT, "pauseCluster", "Pause the whole cluster")
            .needs(UseCase::SetPause)
            .about(
                "Nothing starts, as if every queue were paused; running executions finish. Repeating it changes the \
                 reason, the end and the choice. It ends by itself at `until`.",
            )
            .takes("SetPause", json!({"reason": "database upgrade"})),
        on_pause(Method::DELETE, "resumeCluster", "Resume the cluster")
            .needs(UseCase::EndPause)
            .about("Everything that waited runs, late. Queues that were paused on their own stay paused."),
    ]
}

fn queue_verbs() -> [Operation; 2] {
    let verb = |rest, id, summary, case, about: &str| {
        let title = Title { id, tag: QUEUES, summary };
        on_queue(Method::POST, rest, title).needs(case).about(about).may_take("Nothing", json!({}))
    };
    [
        verb(
            "/pause",
            "pauseQueue",
            "Pause a queue",
            UseCase::PauseQueue,
            "The queue starts no executions; running ones continue.",
        ),
        verb(
            "/resume",
            "resumeQueue",
            "Resume a queue",
            UseCase::ResumeQueue,
            "The queue starts executions again.",
        ),
    ]
}

fn server(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: SERVER, summary }
}

fn stats() -> Operation {
    Operation::new(Method::GET, format!("{API_PREFIX}/stats"), server("getStats", "Get statistics"))
        .needs(UseCase::ReadStats)
        .about(
            "The number of jobs by status, waiting and running executions, connected workers, and what all \
             live processes of the cluster have done since each started. For a caller with a limited scope, the figures \
             cover its own jobs, counted up to a limit (`looked_at`), and the counters of processes are 0.",
        )
        .answers(200, "The statistics.", "Stats")
}

fn series() -> Operation {
    let metric = one_of(&["executions", "duration", "lateness", "waiting"]).about(
        "What the columns hold: executions by status; or how long executions ran, how late those of schedules \
         started, or how long they waited for a worker.",
    );
    let by = one_of(&["all", "queue", "job_type", "job"])
        .about("What the executions are divided by. Jobs with the same owner and name are counted together.");
    let step = the("Duration").about(
        "The length of a step, in whole minutes. If omitted, the shortest that gives at most 240 steps.",
    );
    Operation::new(Method::GET, format!("{API_PREFIX}/series"), server("getSeries", "Get figures over time"))
        .needs(UseCase::ReadSeries)
        .about(
            "What executions did in each step of time, for charts: one series for each queue, job type or job, with \
             columns of equal length. Executions are counted in the minute in which they ended. A caller with a \
             limited scope sees figures of its own jobs only, as far as these have figures of their own.",
        )
        .in_query("metric", metric.otherwise("executions"))
        .in_query("by", by.otherwise("queue"))
        .in_query("name", text().about("Only the queue, job type or job with this name."))
        .in_query("since", time().about("The beginning; by default three hours before `until`."))
        .in_query("until", time().about("The end; by default now."))
        .in_query("step", step)
        .in_query(
            "limit",
            whole(1..=limits::SERIES_SHOWN_MAX as u64)
                .about("How many series, those with the most executions.")
                .otherwise(limits::SERIES_SHOWN_DEFAULT),
        )
        .answers(200, "The figures.", "SeriesPage")
}

fn nodes() -> Operation {
    Operation::new(Method::GET, format!("{API_PREFIX}/nodes"), server("listNodes", "List nodes"))
        .needs(UseCase::ReadServer)
        .about(
            "All live processes of the cluster, each with its version, start time, roles, segments and \
             clock offset. If the server that answers cannot reach the others, it lists only itself and \
             sets `others_unknown`.",
        )
        .answers(200, "All live processes of the cluster.", "NodePage")
        .fails(400, NO_PARAMETERS)
}

fn me() -> Operation {
    Operation::new(Method::GET, format!("{API_PREFIX}/me"), server("getMe", "Get the caller"))
        .about("The caller's token, role, scope and permissions. Any valid token may ask.")
        .answers(200, "The caller.", "Me")
        .fails(400, NO_PARAMETERS)
}

fn clock() -> Operation {
    let title = Title { id: "getClock", tag: CLOCK, summary: "Get the clock" };
    Operation::new(Method::GET, format!("{API_PREFIX}/clock"), title)
        .about("The clock that schedules use, and whether it is the machine's.")
        .answers(200, "The clock.", "Clock")
}

fn clock_moves() -> [Operation; 2] {
    let moving = |rest, id, summary, about: &str| {
        let title = Title { id, tag: CLOCK, summary };
        Operation::new(Method::POST, format!("{API_PREFIX}/clock/{rest}"), title)
            .needs(UseCase::DriveClock)
            .about(about)
            .takes("MoveClock", json!({"by": "1h"}))
            .answers(200, "How far the clock was moved.", "ClockMoved")
            .fails(409, "This server uses the machine's clock.")
    };
    [
        moving(
            "advance",
            "advanceClock",
            "Advance the clock",
            "Stops at every due time on the way until everything that is due has been fired and has run. \
             Only on a server started with `--clock manual`.",
        ),
        moving(
            "jump",
            "jumpClock",
            "Jump the clock",
            "Misfire policies decide what happens to occurrences in between. Only on a server started with \
             `--clock manual`.",
        ),
    ]
}

fn health() -> [Operation; 4] {
    [
        Operation::public(Method::GET, "/", server("getRoot", "List the parts of the server"))
            .about("Links from the root of the server.")
            .answers(200, "The links.", "Index"),
        Operation::new(Method::GET, API_PREFIX, server("getIndex", "List the parts of the API"))
            .about("Links from the root of the API.")
            .answers(200, "The links.", "Index"),
        Operation::public(Method::GET, "/livez", server("getLiveness", "Liveness probe"))
            .about("For supervisors that restart a process that hangs.")
            .answers(200, "The process is alive.", "Live"),
        Operation::public(Method::GET, "/readyz", server("getReadiness", "Readiness probe"))
            .about("For load balancers: the store can be read and written, and the server is not stopping.")
            .answers(200, "The server is ready.", "Ready")
            .answers_as(
                503,
                "Not ready: the store cannot be read or written (a problem that says why), or the server \
                 is stopping.",
                "application/problem+json",
                json!({"$ref": "#/components/schemas/Problem"}),
            )
            .also_answers(503, "application/json", "Ready"),
    ]
}

fn metrics() -> Operation {
    Operation::new(Method::GET, "/metrics", server("getMetrics", "Metrics for Prometheus"))
        .needs(UseCase::ReadServer)
        .about("The text format of Prometheus.")
        .answers_as(200, "The metrics.", "text/plain", json!({"type": "string"}))
}

fn document() -> Operation {
    Operation::public(Method::GET, "/openapi.json", server("getOpenApi", "This document"))
        .about("OpenAPI 3.1.")
        .answers_as(200, "The document.", "application/json", json!({"type": "object"}))
}

fn page() -> Operation {
    Operation::public(Method::GET, "/docs", server("getDocs", "Browse this document"))
        .about("A page that shows this document and can send requests. It loads nothing from other hosts.")
        .answers_as(200, "The page.", "text/html", json!({"type": "string"}))
}
