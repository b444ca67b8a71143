//! Workers, as people see them: who is connected, and what is asked of them.

use super::super::operation::{Operation, Title};
use super::super::schema::text;
use super::{NO_PARAMETERS, WORKERS};
use axum::http::Method;
use punctual_client::API_PREFIX;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    let mut operations = vec![list(), show()];
    operations.extend(orders());
    operations
}

fn title(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: WORKERS, summary }
}

fn list() -> Operation {
    Operation::new(Method::GET, format!("{API_PREFIX}/workers"), title("listWorkers", "List workers"))
        .about("Every session that is neither lost nor closed, on one page.")
        .answers(200, "All of them.", "WorkerPage")
        .fails(400, NO_PARAMETERS)
}

fn on_worker(method: Method, rest: &str, title: Title) -> Operation {
    Operation::new(method, format!("{API_PREFIX}/workers/{{id}}{rest}"), title)
        .in_path(
            "id",
            text("The number of a session, or the worker's name if it has just one.").example("resizer-1"),
        )
        .answers(200, "The worker as it is now.", "WorkerSession")
        .fails(404, "No worker is connected with this name or session.")
}

fn show() -> Operation {
    on_worker(Method::GET, "", title("getWorker", "Look at a worker"))
        .about("One session of it.")
        .fails(400, NO_PARAMETERS)
        .fails(409, SEVERAL)
}

const SEVERAL: &str = "Several sessions have this name: the detail lists their numbers.";

fn orders() -> [Operation; 3] {
    let order = |rest, title, about: &str| {
        on_worker(Method::POST, rest, title)
            .about(about)
            .may_take("Nothing", json!({}))
            .fails(409, "The session drains and will close; or several sessions have this name.")
    };
    [
        order(
            "/pause",
            title("pauseWorker", "Pause a worker"),
            "Gives it no new work; it goes on with what it has. Needs the role operator.",
        ),
        order(
            "/resume",
            title("resumeWorker", "Resume a worker"),
            "Gives it work again. Needs the role operator.",
        ),
        order(
            "/drain",
            title("drainWorker", "Drain a worker"),
            "Has it finish what runs, give back the rest and close its session. Needs the role operator.",
        ),
    ]
}
