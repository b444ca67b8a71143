//! Messages to and from other systems through a broker: events that are published, and jobs that are submitted.
//!
//! Both deliver at least once. Receivers of events recognize repeated ones by their id; jobs have an idempotency key.

use async_trait::async_trait;
use std::fmt;

/// Where events are published.
#[async_trait]
pub trait EventSink: fmt::Debug + Send + Sync {
    /// The kind of the broker: `redis`, `nats`, `amqp` or `kafka`.
    fn kind(&self) -> &'static str;

    /// Publishes events in this order, and returns once the broker has stored all of them. After an error, any of
    /// them may have been stored.
    async fn publish(&self, events: &[OutgoingEvent]) -> Result<(), BrokerError>;
}

/// An event as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingEvent {
    /// The same for each repetition of the event, and of no other.
    pub id: String,
    /// Its type, such as `punctual.execution.finished`.
    pub kind: &'static str,
    /// The object that it is about. Brokers that spread events over partitions keep the order of those with the same one.
    pub subject: String,
    /// JSON text.
    pub body: String,
}

/// Where messages come from. A message that is neither acknowledged nor rejected is delivered again.
#[async_trait]
pub trait MessageSource: fmt::Debug + Send + Sync {
    /// The kind of the broker: `redis`, `nats`, `amqp` or `kafka`.
    fn kind(&self) -> &'static str;

    /// Waits for messages for a short time, and returns at most [`crate::limits::INTAKE_BATCH_MAX`]. Connects if
    /// necessary; after an error the next call connects again.
    async fn receive(&self) -> Result<Vec<IncomingMessage>, BrokerError>;

    /// These messages are done. Those of a connection that was lost are delivered again all the same.
    async fn acknowledge(&self, messages: &[IncomingMessage]) -> Result<(), BrokerError>;

    /// Moves a message to the place for rejected ones, together with the reason.
    async fn reject(&self, message: &IncomingMessage, why: &str) -> Result<(), BrokerError>;
}

/// A message as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncomingMessage {
    /// The same for each delivery of the message, and of no other in the same place; `None` if neither its sender nor
    /// the broker has given it one.
    pub id: Option<String>,
    pub body: Vec<u8>,
    /// What the source needs to acknowledge it.
    pub receipt: String,
}

/// Nothing was sent or received, or it is unknown whether it was. Callers retry, whatever the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BrokerError(pub String);

impl From<super::ReadyQueueError> for BrokerError {
    fn from(error: super::ReadyQueueError) -> Self {
        BrokerError(error.to_string())
    }
}
