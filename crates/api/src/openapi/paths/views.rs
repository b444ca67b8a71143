//! Saved views, and effective settings.

use super::super::operation::{Operation, Title};
use super::{NO_PARAMETERS, SERVER, VIEWS};
use axum::http::Method;
use punctual_client::API_PREFIX;
use punctual_client::schema::text;
use punctual_engine::UseCase;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    vec![list(), set(), remove(), settings()]
}

fn list() -> Operation {
    let title = Title { id: "listViews", tag: VIEWS, summary: "List saved views" };
    Operation::new(Method::GET, format!("{API_PREFIX}/views"), title)
        .needs(UseCase::ReadViews)
        .about("The views that the caller has saved, all of them by name: at most 100. Sessions of one user or token share them.")
        .answers(200, "The views.", "ViewPage")
        .fails(400, NO_PARAMETERS)
}

fn on_view(method: Method, id: &'static str, summary: &'static str) -> Operation {
    let name = text().about("The name of the view.").example("my jobs");
    let title = Title { id, tag: VIEWS, summary };
    Operation::new(method, format!("{API_PREFIX}/views/{{name}}"), title).in_path("name", name)
}

fn set() -> Operation {
    on_view(Method::PUT, "setView", "Save a view")
        .needs(UseCase::SetView)
        .about("Saves a page with its filters under a name, in place of the caller's view of that name.")
        .takes("SetView", json!({"page": "jobs", "query": "status=ACTIVE&tag=nightly"}))
        .answers(200, "The view was replaced.", "View")
        .answers(201, "The view is new.", "View")
        .fails(400, "The body cannot be read, or the request has an `Idempotency-Key`.")
        .fails(409, "The caller has too many views, or other requests keep changing them.")
}

fn remove() -> Operation {
    on_view(Method::DELETE, "removeView", "Remove a saved view")
        .needs(UseCase::RemoveView)
        .about("Removes one of the caller's views.")
        .may_take("Nothing", json!({}))
        .answers_nothing(204, "It is gone.")
        .fails(404, "The caller has no such view.")
        .fails(409, "Other requests keep changing the caller's views.")
}

fn settings() -> Operation {
    let title = Title { id: "getSettings", tag: SERVER, summary: "Get the effective settings" };
    Operation::new(Method::GET, format!("{API_PREFIX}/settings"), title)
        .needs(UseCase::ReadSettings)
        .about(
            "Every setting of the server that answers, its value, and where the value comes from: a flag, a variable, a \
             line of the configuration file, or the default. Secrets are left out.",
        )
        .answers(200, "The settings.", "Settings")
        .fails(400, NO_PARAMETERS)
}
