//! Queues, statistics, the clock, health and documentation.

use super::super::operation::{Operation, Title};
use super::super::schema::name;
use super::{CLOCK, NO_PARAMETERS, QUEUES, SERVER, paged_by_most};
use axum::http::Method;
use punctual_client::API_PREFIX;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    let mut operations = vec![list_queues(), show_queue(), set_queue()];
    operations.extend(queue_verbs());
    operations.extend([stats(), nodes(), me(), clock()]);
    operations.extend(clock_moves());
    operations.extend(health());
    operations.extend([metrics(), document(), page()]);
    operations
}

fn list_queues() -> Operation {
    let title = Title { id: "listQueues", tag: QUEUES, summary: "List queues" };
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/queues"), title)
        .about("Every queue that has live work, is paused or has settings, by name.")
        .fails(400, "A parameter is unknown or out of bounds.");
    paged_by_most(operation).answers(200, "One page.", "QueuePage")
}

fn on_queue(method: Method, rest: &str, title: Title) -> Operation {
    Operation::new(method, format!("{API_PREFIX}/queues/{{queue}}{rest}"), title)
        .in_path("queue", name("The queue's name."))
        .answers(200, "The queue as it is now.", "Queue")
        .fails(404, "No queue can have this name.")
}

fn show_queue() -> Operation {
    let title = Title { id: "getQueue", tag: QUEUES, summary: "Look at a queue" };
    on_queue(Method::GET, "", title)
        .about("One of any name: a queue that nobody has used yet is empty and open.")
        .fails(400, NO_PARAMETERS)
}

fn set_queue() -> Operation {
    let title = Title { id: "setQueue", tag: QUEUES, summary: "Set up a queue" };
    on_queue(Method::PUT, "", title)
        .about("Sets all settings: what is left out is as by default. Needs the role operator.")
        .takes(
            "SetQueue",
            json!({"max_depth": 10_000, "concurrency": 20, "key_concurrency": 1, "rate": "100/1m"}),
        )
}

fn queue_verbs() -> [Operation; 2] {
    let verb = |rest, id, summary, about: &str| {
        let title = Title { id, tag: QUEUES, summary };
        on_queue(Method::POST, rest, title).about(about).may_take("Nothing", json!({}))
    };
    [
        verb(
            "/pause",
            "pauseQueue",
            "Pause a queue",
            "Keeps everything of the queue waiting; what runs goes on. Needs the role operator.",
        ),
        verb("/resume", "resumeQueue", "Resume a queue", "Hands out again. Needs the role operator."),
    ]
}

fn server(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: SERVER, summary }
}

fn stats() -> Operation {
    Operation::new(Method::GET, format!("{API_PREFIX}/stats"), server("getStats", "Figures"))
        .about(
            "How many jobs there are by status, what waits and runs, which workers are there, and what this server did \
            since it started.",
        )
        .answers(200, "The figures.", "Stats")
}

fn nodes() -> Operation {
    Operation::new(Method::GET, format!("{API_PREFIX}/nodes"), server("listNodes", "The server that answers"))
        .about(
            "The version of the server that answers, since when it runs, what it does, and how far its clock is off. \
            Others on the same store are not listed: ask them.",
        )
        .answers(200, "The server that answers.", "NodePage")
        .fails(400, NO_PARAMETERS)
}

fn me() -> Operation {
    Operation::new(Method::GET, format!("{API_PREFIX}/me"), server("getMe", "Whose token it is"))
        .about("The public part of the token that is shown, and its role.")
        .answers(200, "Who asks.", "Me")
        .fails(400, NO_PARAMETERS)
}

fn clock() -> Operation {
    let title = Title { id: "getClock", tag: CLOCK, summary: "What time it is" };
    Operation::new(Method::GET, format!("{API_PREFIX}/clock"), title)
        .about("The time by which schedules go, and whether it is the machine's.")
        .answers(200, "The clock.", "Clock")
}

fn clock_moves() -> [Operation; 2] {
    let moving = |rest, id, summary, about: &str| {
        let title = Title { id, tag: CLOCK, summary };
        Operation::new(Method::POST, format!("{API_PREFIX}/clock/{rest}"), title)
            .about(about)
            .takes("MoveClock", json!({"by": "1h"}))
            .answers(200, "How far it got.", "ClockMoved")
            .fails(409, "This server goes by the machine's clock.")
    };
    [
        moving(
            "advance",
            "advanceClock",
            "Let time pass",
            "Stops at every due time on the way until all that is due has been fired and has run. Only on \
                a server started with `--clock manual`.",
        ),
        moving(
            "jump",
            "jumpClock",
            "Let time leap",
            "Misfire policies decide about what lies in between. Only on a server started with `--clock \
                manual`.",
        ),
    ]
}

fn health() -> [Operation; 4] {
    [
        Operation::public(Method::GET, "/", server("getRoot", "What is here"))
            .about("Where to go from the root of the server.")
            .answers(200, "What is where.", "Index"),
        Operation::new(Method::GET, API_PREFIX, server("getIndex", "What the API has"))
            .about("Where to go from the root of the API.")
            .answers(200, "What is where.", "Index"),
        Operation::public(Method::GET, "/livez", server("getLiveness", "Does the process live"))
            .about("For whoever restarts what hangs.")
            .answers(200, "It does.", "Live"),
        Operation::public(Method::GET, "/readyz", server("getReadiness", "Can it serve"))
            .about(
                "For load balancers: the store reads and writes, and nobody has told the server to \
                stop.",
            )
            .answers(200, "It can.", "Ready")
            .answers_as(
                503,
                "It cannot: the store does not read or write (a problem that says why), or the server is stopping.",
                "application/problem+json",
                json!({"$ref": "#/components/schemas/Problem"}),
            )
            .also_answers(503, "application/json", "Ready"),
    ]
}

fn metrics() -> Operation {
    Operation::new(Method::GET, "/metrics", server("getMetrics", "Metrics for Prometheus"))
        .about("The text format of Prometheus.")
        .answers_as(200, "The metrics.", "text/plain", json!({"type": "string"}))
}

fn document() -> Operation {
    Operation::public(Method::GET, "/openapi.json", server("getOpenApi", "This document"))
        .about("OpenAPI 3.1.")
        .answers_as(200, "The document.", "application/json", json!({"type": "object"}))
}

fn page() -> Operation {
    Operation::public(Method::GET, "/docs", server("getDocs", "This document, to browse"))
        .about("A page that shows this document and can try it out. It loads nothing from elsewhere.")
        .answers_as(200, "The page.", "text/html", json!({"type": "string"}))
}
