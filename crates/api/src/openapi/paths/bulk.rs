//! Operations on many jobs or executions.

use super::super::operation::{Operation, Title};
use super::{BULK, paged};
use axum::http::Method;
use punctual_client::API_PREFIX;
use punctual_client::schema::the;
use punctual_engine::UseCase;
use serde_json::json;

const NO_OPERATION: &str = "There is no such operation, or the token may not see it.";

pub fn operations() -> Vec<Operation> {
    vec![start(), list(), show(), cancel()]
}

fn title(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: BULK, summary }
}

fn start() -> Operation {
    let title = title("startBulk", "Act on everything that a filter selects");
    Operation::new(Method::POST, format!("{API_PREFIX}/bulk"), title)
        .needs(UseCase::StartBulk)
        .about(
            "Starts an operation that acts on each job or execution that matches now, in steps. It survives restarts, and \
             `GET /bulk/{operation_id}` shows its progress. Jobs that are submitted later, and jobs that the token may \
             not change, are never touched. With `dry_run`, nothing is stored. An `Idempotency-Key` makes it \
             repeatable.",
        )
        .takes("BulkRequest", json!({"action": "pause", "filter": {"queue": "mail"}, "dry_run": true}))
        .answers(200, "A dry run: what would be acted on.", "BulkAnswer")
        .answers(202, "The operation was started.", "BulkAnswer")
        .with_header(202, "Location")
        .fails(409, "As many operations run as may run at once.")
}

fn list() -> Operation {
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/bulk"), title("listOperations", "List operations"))
        .needs(UseCase::ReadBulk)
        .about(
            "Running operations first, the latest first. A token with a limited scope sees its own. Finished ones are \
             kept for 30 days.",
        );
    paged(operation).answers(200, "One page.", "OperationPage")
}

fn on_operation(method: Method, rest: &str, title: Title) -> Operation {
    Operation::new(method, format!("{API_PREFIX}/bulk/{{operation_id}}{rest}"), title)
        .in_path("operation_id", the("OperationId").about("The operation."))
        .answers(200, "The operation in its current state.", "Operation")
        .fails(404, NO_OPERATION)
}

fn show() -> Operation {
    on_operation(Method::GET, "", title("getOperation", "Get an operation"))
        .needs(UseCase::ReadBulk)
        .about("Its progress, and the first refusals with their reasons.")
}

fn cancel() -> Operation {
    on_operation(Method::POST, "/cancel", title("cancelOperation", "Cancel an operation"))
        .needs(UseCase::CancelBulk)
        .about("It ends after its current step. Changes already made are kept.")
        .may_take("Nothing", json!({}))
        .fails(409, "It has already ended.")
}
