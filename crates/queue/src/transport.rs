//! The port to a broker: it sends bytes to every process that subscribes. The broker need not store them.

use async_trait::async_trait;
use punctual_core::ports::ReadyQueueError;

#[async_trait]
pub(crate) trait BrokerTransport: Send + Sync {
    /// Sends a message to all subscribers. Connects if necessary; after an error the next call connects again.
    async fn publish(&self, message: Vec<u8>) -> Result<(), ReadyQueueError>;

    /// Opens a separate connection, on which messages arrive from now on. Dropping it closes the connection.
    async fn subscribe(&self) -> Result<Box<dyn BrokerSubscription>, ReadyQueueError>;
}

#[async_trait]
pub(crate) trait BrokerSubscription: Send {
    /// Waits for the next message. A call that is dropped loses none. An error ends the subscription.
    async fn next(&mut self) -> Result<Vec<u8>, ReadyQueueError>;
}
