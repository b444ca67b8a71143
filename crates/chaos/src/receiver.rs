//! Receives notifications: a webhook that records each message before it answers. It refuses the first try of some
//! messages, so that repeats happen even without a fault.

use crate::member::now;
use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use punctual_core::ids::ExecutionId;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;

/// The first try of one in this many messages is refused.
const REFUSED_ONE_IN: usize = 4;

/// One try of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotificationTry {
    pub at: Timestamp,
    /// The same for every try of a message.
    pub id: String,
    /// Such as `job.failed`.
    pub kind: String,
    pub events: Vec<ReceivedEvent>,
    pub is_accepted: bool,
}

/// What a message is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedEvent {
    pub name: String,
    #[serde(default)]
    pub execution_id: Option<ExecutionId>,
}

/// The server. It runs until this program ends.
pub struct Receiver {
    address: String,
    shared: ReceivedMessages,
}

#[derive(Clone)]
struct ReceivedMessages {
    file: Arc<Mutex<File>>,
    all: Arc<Mutex<Vec<NotificationTry>>>,
}

impl Receiver {
    pub async fn start(folder: &Path) -> Result<Self> {
        let path = folder.join("messages.jsonl");
        let file = OpenOptions::new().create(true).append(true).open(&path).context("make the record")?;
        let shared = ReceivedMessages { file: Arc::new(Mutex::new(file)), all: Arc::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let router = Router::new().route("/messages", post(receive)).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Receiver { address, shared })
    }

    pub fn url(&self) -> String {
        format!("http://{}/messages", self.address)
    }

    /// All messages so far.
    pub fn messages(&self) -> Vec<NotificationTry> {
        self.shared.all.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn receive(
    State(shared): State<ReceivedMessages>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, String) {
    match shared.record(&headers, &body) {
        Ok(true) => (StatusCode::NO_CONTENT, String::new()),
        Ok(false) => (StatusCode::SERVICE_UNAVAILABLE, "the first try is refused".to_owned()),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error:#}")),
    }
}

impl ReceivedMessages {
    /// Returns whether the message is accepted.
    fn record(&self, headers: &HeaderMap, body: &str) -> Result<bool> {
        let id =
            headers.get("webhook-id").and_then(|id| id.to_str().ok()).context("there is no webhook-id")?;
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let known: BTreeSet<&str> = all.iter().map(|message| message.id.as_str()).collect();
        let is_accepted = known.contains(id) || !known.len().is_multiple_of(REFUSED_ONE_IN);
        let (kind, events) = read(body)?;
        let message = NotificationTry { at: now(), id: id.to_owned(), kind, events, is_accepted };
        let line = serde_json::to_string(&message)? + "\n";
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())?;
        all.push(message);
        Ok(is_accepted)
    }
}

/// The event of a message, and further ones of the same kind.
fn read(body: &str) -> Result<(String, Vec<ReceivedEvent>)> {
    let mut body: Value = serde_json::from_str(body)?;
    let kind = body["type"].as_str().context("there is no type")?.to_owned();
    let mut data = body["data"].take();
    let events = match data["events"].take() {
        Value::Array(events) => events,
        _ => vec![data],
    };
    Ok((kind, events.into_iter().map(serde_json::from_value).collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_and_a_list_of_events_are_read() {
        let names = |body: &str| {
            let (kind, events) = read(body).unwrap();
            (kind, events.into_iter().map(|event| event.name).collect::<Vec<_>>())
        };
        let one = r#"{"type": "job.failed", "data": {"name": "a", "execution_id": null}}"#;
        assert_eq!(names(one), ("job.failed".to_owned(), vec!["a".to_owned()]));
        let list =
            r#"{"type": "job.failed", "data": {"name": "a", "events": [{"name": "a"}, {"name": "b"}]}}"#;
        assert_eq!(names(list).1, ["a", "b"]);
        assert!(read("{}").is_err());
    }
}
