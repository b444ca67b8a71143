//! A stream of events about executions.

use crate::client::{Client, ClientError};
use crate::execution::{ExecutionBody, ExecutionStatus};
use crate::stream::EventStream;
use punctual_core::ids::JobId;
use reqwest::Method;
use serde::Serialize;

/// Filters for events. Absent filters match all.
#[derive(Debug, Clone, Default, Serialize)]
pub struct EventFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ExecutionStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
}

/// An event.
#[derive(Debug, Clone)]
pub enum StreamedEvent {
    /// An execution has changed its state or ended.
    Execution(Box<ExecutionBody>),
    /// Part of what finished since the requested position is no longer retained.
    Gap,
    /// The server is stopping: open a new stream after [`Events::cursor`] to continue.
    Stop,
}

/// An open stream of events.
#[derive(Debug)]
pub struct Events(EventStream);

impl Events {
    /// The next event; `None` when the connection has ended.
    pub async fn next(&mut self) -> Result<Option<StreamedEvent>, ClientError> {
        while let Some(event) = self.0.next().await? {
            match event.kind.as_str() {
                "execution" => {
                    let body = serde_json::from_str(&event.data);
                    let body = body.map_err(|error| ClientError::Unexpected(error.to_string()))?;
                    return Ok(Some(StreamedEvent::Execution(Box::new(body))));
                }
                "gap" => return Ok(Some(StreamedEvent::Gap)),
                "stop" => return Ok(Some(StreamedEvent::Stop)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The position after which a new stream continues without missing anything that finishes.
    pub fn cursor(&self) -> Option<&str> {
        self.0.last_id()
    }
}

impl Client {
    /// Listens to events from now on, or from a position that an earlier stream had reached.
    pub async fn events(&self, filter: &EventFilter, after: Option<&str>) -> Result<Events, ClientError> {
        let request = self.request(Method::GET, "/events").query(filter);
        self.open_stream(request, after).await.map(Events)
    }
}
