//! Every operation, by topic.

mod access;
mod audit;
mod bulk;
mod calendars;
mod executions;
mod job_types;
mod jobs;
mod notifications;
mod secrets;
mod server;
mod views;
mod worker;
mod workers;

use super::operation::Operation;
use punctual_client::schema::{Schema, flag, text, the, whole};
use punctual_core::limits;
use serde_json::{Value, json};

pub fn all() -> Vec<Operation> {
    [
        jobs::operations(),
        executions::operations(),
        bulk::operations(),
        workers::operations(),
        server::operations(),
        access::operations(),
        calendars::operations(),
        secrets::operations(),
        notifications::operations(),
        job_types::operations(),
        audit::operations(),
        views::operations(),
        worker::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The parameter of operations that remove what may be in use.
fn force() -> Schema {
    flag().about("Remove it although rules, channels, users or unfinished jobs use it.")
}

/// Why such an operation is refused.
const IN_USE: &str = "Rules, channels, users or unfinished jobs use it; the detail names the first 10 of them. With more \
                      than about 20,000 unfinished jobs, it is not known whether all do not.";

const JOBS: &str = "Jobs";
const SCHEDULES: &str = "Schedules";
const EXECUTIONS: &str = "Executions";
const DEAD_LETTERS: &str = "Dead letters";
const BULK: &str = "Bulk";
const QUEUES: &str = "Queues";
const WORKERS: &str = "Workers";
const SERVER: &str = "Server";
const ACCESS: &str = "Access";
const SECRETS: &str = "Secrets";
const NOTIFICATIONS: &str = "Notifications";
const JOB_TYPES: &str = "Job types";
const VIEWS: &str = "Saved views";
const CLOCK: &str = "Clock";
const WORKER: &str = "Worker protocol";

/// The tags, in the order in which users need them.
pub fn tags() -> Value {
    json!([
        {"name": JOBS, "description": "Submit, read, change and control jobs."},
        {"name": SCHEDULES, "description": "When jobs run next."},
        {"name": EXECUTIONS, "description": "Attempts: running and finished executions, and their logs."},
        {"name": DEAD_LETTERS, "description": "Occurrences that failed permanently."},
        {"name": BULK, "description": "One action on everything that a filter selects."},
        {"name": QUEUES, "description": "Waiting and running executions by queue, limits, and pausing."},
        {"name": WORKERS, "description": "Connected workers, their state, and orders to them."},
        {"name": SERVER, "description": "Health, statistics and documentation."},
        {"name": ACCESS, "description": "Tokens and users: who may use the server, and what each may do."},
        {"name": SECRETS, "description": "Values that payloads refer to, and that only workers get."},
        {"name": NOTIFICATIONS, "description": "Notifications about jobs that fail or do not run: channels, rules, silences, \
                                                alerts and deliveries."},
        {"name": JOB_TYPES, "description": "Schemas that payloads must match."},
        {"name": VIEWS, "description": "Lists with their filters, as each user has saved them."},
        {"name": CLOCK, "description": "The clock that schedules use, and how to move it on a server that \
                                        was started with a manual clock."},
        {"name": WORKER, "description": "How a worker in any language claims jobs, runs them and reports \
                                         their outcomes. The token needs the role worker."},
    ])
}

/// The parameters of a page.
fn paged(operation: Operation) -> Operation {
    operation
        .in_query(
            "limit",
            whole(1..=limits::PAGE_ITEMS_MAX as u64)
                .about("The maximum number of items on the page.")
                .otherwise(limits::PAGE_ITEMS_DEFAULT),
        )
        .in_query("cursor", text().about("The `next_cursor` of the previous page."))
}

/// The same for lists that are usually short: the default page size is the maximum.
fn paged_by_most(operation: Operation) -> Operation {
    operation
        .in_query(
            "limit",
            whole(1..=limits::PAGE_ITEMS_MAX as u64)
                .about("The maximum number of items on the page.")
                .otherwise(limits::PAGE_ITEMS_MAX),
        )
        .in_query("cursor", text().about("The `next_cursor` of the previous page."))
}

/// Adds to the 200 that it may be a stream of server-sent events, and adds the error for when no stream slot
/// is free.
fn streaming(operation: Operation, about: &str) -> Operation {
    operation
        .streams(about)
        .fails(
            503,
            "The maximum number of streams is open, or the store cannot be reached, or the server is \
             stopping.",
        )
        .with_header(503, "Retry-After")
}

fn job_id() -> Schema {
    the("JobId").about("The job.")
}

fn execution_id() -> Schema {
    the("ExecutionId").about("The execution.")
}

const NO_PARAMETERS: &str = "The query has parameters, but this route accepts none.";
const NO_JOB: &str = "There is no such job.";
