//! Every operation, by topic.

mod executions;
mod jobs;
mod server;
mod worker;
mod workers;

use super::operation::Operation;
use super::schema::{Schema, text, the, whole};
use punctual_core::limits;
use serde_json::{Value, json};

pub fn all() -> Vec<Operation> {
    [
        jobs::operations(),
        executions::operations(),
        workers::operations(),
        server::operations(),
        worker::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const JOBS: &str = "Jobs";
const SCHEDULES: &str = "Schedules";
const EXECUTIONS: &str = "Executions";
const DEAD_LETTERS: &str = "Dead letters";
const QUEUES: &str = "Queues";
const WORKERS: &str = "Workers";
const SERVER: &str = "Server";
const CLOCK: &str = "Clock";
const WORKER: &str = "Worker protocol";

/// The tags, in the order in which users need them.
pub fn tags() -> Value {
    json!([
        {"name": JOBS, "description": "Submit jobs, look at them, change them, control them."},
        {"name": SCHEDULES, "description": "When something runs next."},
        {"name": EXECUTIONS, "description": "Attempts: what runs, what ran, and what it wrote."},
        {"name": DEAD_LETTERS, "description": "What failed for good."},
        {"name": QUEUES, "description": "What waits, how much may, and whether it is handed out."},
        {"name": WORKERS, "description": "Who runs it, and what people ask of them."},
        {"name": SERVER, "description": "Health, figures and documentation."},
        {"name": CLOCK, "description": "The time by which schedules go, and driving it on a server that \
            was started for that."},
        {"name": WORKER, "description": "How a worker in any language takes jobs, runs them and says how \
            they ended. The token needs the role operator."},
    ])
}

/// The parameters of a page.
fn paged(operation: Operation) -> Operation {
    operation
        .in_query(
            "limit",
            whole("How many items the page may have.", 1..=limits::PAGE_ITEMS_MAX as u64)
                .otherwise(limits::PAGE_ITEMS_DEFAULT),
        )
        .in_query("cursor", text("The `next_cursor` of the page before."))
}

/// The same for lists that are usually short: the default page size is the maximum.
fn paged_by_most(operation: Operation) -> Operation {
    operation
        .in_query(
            "limit",
            whole("How many items the page may have.", 1..=limits::PAGE_ITEMS_MAX as u64)
                .otherwise(limits::PAGE_ITEMS_MAX),
        )
        .in_query("cursor", text("The `next_cursor` of the page before."))
}

/// Adds to the 200 that it may be a stream of server-sent events, and adds the error for when no stream slot
/// is free.
fn streaming(operation: Operation, about: &str) -> Operation {
    operation
        .streams(about)
        .fails(
            503,
            "All places for streams are taken, or the store cannot be reached, or the server is stopping.",
        )
        .with_header(503, "Retry-After")
}

fn job_id() -> Schema {
    the("JobId", "The job.")
}

fn execution_id() -> Schema {
    the("ExecutionId", "The execution.")
}

const NO_PARAMETERS: &str = "The query has parameters: there are none.";
const NO_JOB: &str = "There is no such job.";
