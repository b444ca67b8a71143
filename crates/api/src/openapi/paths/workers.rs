//! Workers as operators see them: which are connected, and the control verbs.

use super::super::operation::{Operation, Title};
use super::{NO_PARAMETERS, WORKERS, paged_by_most};
use axum::http::Method;
use punctual_client::API_PREFIX;
use punctual_client::schema::{text, whole};
use punctual_core::limits;
use punctual_engine::UseCase;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    let mut operations = vec![list(), show()];
    operations.extend(orders());
    operations.extend([autoscaling(), autoscaling_of()]);
    operations
}

/// The parameters of requests for the capacity of queues.
fn wanting(operation: Operation) -> Operation {
    let wait = text()
        .about("The target for how long executions may wait, as a duration; at most 24h.")
        .otherwise("10s")
        .example("30s");
    let slots = whole(1..=u64::from(limits::WORKER_SLOTS_MAX)).about("Slots per worker.");
    operation
        .in_query("target_wait", wait)
        .in_query("slots_per_worker", slots.otherwise(limits::WORKER_SLOTS_DEFAULT))
        .fails(400, "A parameter is unknown or out of range.")
}

fn autoscaling() -> Operation {
    let title = title("autoscaling", "How many workers are needed");
    let operation = wanting(Operation::new(Method::GET, format!("{API_PREFIX}/autoscaling"), title))
        .needs(UseCase::ReadServer)
        .about("For autoscalers: what every queue has, and what it needs. Sorted by name.");
    paged_by_most(operation).answers(200, "One page of queues.", "ScalingPage")
}

fn autoscaling_of() -> Operation {
    let title = title("autoscalingOfQueue", "How many workers a queue needs");
    wanting(Operation::new(Method::GET, format!("{API_PREFIX}/autoscaling/{{queue}}"), title))
        .needs(UseCase::ReadQueues)
        .about("The same for one queue. An unused queue needs nothing.")
        .in_path("queue", text().about("Its name.").example("default"))
        .answers(200, "The queue.", "Scaling")
}

fn title(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: WORKERS, summary }
}

fn list() -> Operation {
    let operation =
        Operation::new(Method::GET, format!("{API_PREFIX}/workers"), title("listWorkers", "List workers"))
            .needs(UseCase::ReadWorkers)
            .about("Every session that is neither lost nor closed, by id.")
            .fails(400, "A parameter is unknown or out of range.");
    paged_by_most(operation).answers(200, "One page.", "WorkerPage")
}

fn on_worker(method: Method, rest: &str, title: Title) -> Operation {
    Operation::new(method, format!("{API_PREFIX}/workers/{{id}}{rest}"), title)
        .in_path(
            "id",
            text()
                .about("The id of a session, or the worker's name if it has only one session.")
                .example("resizer-1"),
        )
        .answers(200, "The worker in its current state.", "WorkerSession")
        .fails(404, "No worker is connected with this name or session.")
}

fn show() -> Operation {
    on_worker(Method::GET, "", title("getWorker", "Get a worker"))
        .needs(UseCase::ReadWorkers)
        .about("One session of a worker.")
        .fails(400, NO_PARAMETERS)
        .fails(409, SEVERAL)
}

const SEVERAL: &str = "Several sessions have this name: the detail lists their ids.";

fn orders() -> [Operation; 3] {
    let order = |rest, title, about: &str| {
        on_worker(Method::POST, rest, title)
            .needs(UseCase::OrderWorker)
            .about(about)
            .may_take("Nothing", json!({}))
            .fails(409, "The session is draining and will close; or several sessions have this name.")
    };
    [
        order(
            "/pause",
            title("pauseWorker", "Pause a worker"),
            "Gives it no new work; its running executions continue.",
        ),
        order("/resume", title("resumeWorker", "Resume a worker"), "Gives it work again."),
        order(
            "/drain",
            title("drainWorker", "Drain a worker"),
            "It finishes running executions, gives back the rest and closes its session.",
        ),
    ]
}
