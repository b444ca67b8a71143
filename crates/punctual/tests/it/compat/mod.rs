//! Programs written for other job APIs: their requests, through to the final state of a job, with the field names,
//! status words and codes that they expect.

pub mod access;
mod camel;
mod mistakes;
mod of_user;
mod single;
mod snake;
mod typed;

use crate::driven::standing_at;
use crate::server::{Server, answer, eventually};
use punctual_core::time::Timestamp;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::cell::Cell;

/// A server whose clock tests drive, for retries and recurring jobs.
fn server() -> Server {
    standing_at(now())
}

/// The time of that server at its start.
fn now() -> Timestamp {
    "2026-05-01T10:00:00Z".parse().unwrap()
}

/// A request that must get this status.
async fn ask(server: &Server, method: Method, path: &str, body: Option<Value>, status: u16) -> Value {
    let request = server.request(method.clone(), path);
    let request = match &body {
        Some(body) => request.json(body),
        None => request,
    };
    let (got, answered) = answer(request).await;
    assert_eq!(got, StatusCode::from_u16(status).unwrap(), "{method} {path} {body:?}: {answered}");
    answered
}

async fn get(server: &Server, path: &str) -> Value {
    ask(server, Method::GET, path, None, 200).await
}

/// Submits a job that must be accepted.
async fn create(server: &Server, path: &str, body: Value) -> Value {
    ask(server, Method::POST, path, Some(body), 201).await
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// The field names of an object, in order.
fn fields(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// A worker for one job type, which does what a test says.
struct Hand<'a> {
    server: &'a Server,
    session: Value,
    job_type: &'a str,
    turn: Cell<u64>,
}

impl<'a> Hand<'a> {
    async fn open(server: &'a Server, job_type: &'a str) -> Self {
        let opening = json!({"worker": "hand", "job_types": [job_type], "lease_secs": 60});
        let opened = ask(server, Method::POST, "/api/v1/worker/sessions", Some(opening), 201).await;
        Hand { server, session: opened["session"].clone(), job_type, turn: Cell::new(0) }
    }

    async fn say(&self, verb: &str, mut body: Value) -> Value {
        body["session"] = self.session.clone();
        let status = if verb == "logs" { 204 } else { 200 };
        ask(self.server, Method::POST, &format!("/api/v1/worker/{verb}"), Some(body), status).await
    }

    /// The next execution of its type.
    async fn take(&self) -> Value {
        let mut taken = Value::Null;
        eventually("there is work", async || {
            self.turn.set(self.turn.get() + 1);
            let poll = json!({"turn": self.turn.get(), "job_types": [self.job_type], "wait_secs": 1});
            taken = self.say("poll", poll).await["assignments"][0].take();
            !taken.is_null()
        })
        .await;
        taken
    }

    async fn report(&self, taken: &Value, outcome: Value) {
        let mut report = outcome;
        report["session"] = self.session.clone();
        report["execution_id"] = taken["execution_id"].clone();
        report["epoch"] = taken["epoch"].clone();
        let body = json!({"reports": [report]});
        let answered = ask(self.server, Method::POST, "/api/v1/worker/report", Some(body), 200).await;
        assert_eq!(answered["answers"], json!(["accepted"]));
    }

    async fn succeed(&self, taken: &Value, result: Value) {
        self.report(taken, json!({"outcome": "succeeded", "result": result})).await;
    }

    async fn fail(&self, taken: &Value, error: &str) {
        self.report(taken, json!({"outcome": "failed", "error": error})).await;
    }
}
