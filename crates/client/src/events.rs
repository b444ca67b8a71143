//! What happens to executions, as it happens.

use crate::client::{Client, ClientError};
use crate::execution::{ExecutionBody, ExecutionStatus};
use crate::stream::EventStream;
use punctual_core::ids::JobId;
use reqwest::Method;
use serde::Serialize;

/// Which executions to hear of. Everything left out matches all.
#[derive(Debug, Clone, Default, Serialize)]
pub struct EventFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ExecutionStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// An execution moved, or has ended.
    Execution(Box<ExecutionBody>),
    /// Some of what finished since the place asked for is not kept any more.
    Gap,
    /// The server stops: open a new stream after [`Events::cursor`] to go on.
    Stop,
}

/// An open stream of events.
#[derive(Debug)]
pub struct Events(EventStream);

impl Events {
    /// The next event; `None` when the connection is over.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        while let Some(event) = self.0.next().await? {
            match event.kind.as_str() {
                "execution" => {
                    let body = serde_json::from_str(&event.data);
                    let body = body.map_err(|error| ClientError::Unexpected(error.to_string()))?;
                    return Ok(Some(Event::Execution(Box::new(body))));
                }
                "gap" => return Ok(Some(Event::Gap)),
                "stop" => return Ok(Some(Event::Stop)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The place after which a new stream goes on without missing anything that finishes.
    pub fn cursor(&self) -> Option<&str> {
        self.0.last_id()
    }
}

impl Client {
    /// Listens to what happens from now on, or from a place on that an earlier stream had reached.
    pub async fn events(&self, filter: &EventFilter, after: Option<&str>) -> Result<Events, ClientError> {
        let request = self.request(Method::GET, "/events").query(filter);
        self.open_stream(request, after).await.map(Events)
    }
}
