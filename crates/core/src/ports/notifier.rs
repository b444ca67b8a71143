//! Sending messages to channels.

use crate::job::InvalidField;
use crate::notify::{Channel, OutgoingMessage};
use async_trait::async_trait;
use std::fmt;

/// What sends messages. It sends each once; the engine repeats what failed.
#[async_trait]
pub trait Notifier: fmt::Debug + Send + Sync {
    async fn send(&self, message: OutgoingMessage) -> Result<(), SendError>;

    /// What is wrong with a channel that only the sender can tell, such as the syntax of its template.
    fn problems(&self, channel: &Channel) -> Vec<InvalidField>;

    /// The channels of the configuration, by name.
    fn configured(&self) -> &[(String, Channel)];

    /// Calls a URL of the configuration, to tell a monitor elsewhere that this process is alive.
    async fn ping(&self, url: &str) -> Result<(), SendError>;
}

/// Why a message did not arrive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The receiver no longer wants messages: 410.
    #[error("the receiver is gone: {0}")]
    Gone(String),
    #[error("{0}")]
    Failed(String),
}

impl SendError {
    /// The same error, with the recipient that it is about.
    pub fn about(self, to: &str) -> Self {
        match self {
            SendError::Gone(error) => SendError::Gone(format!("{to}: {error}")),
            SendError::Failed(error) => SendError::Failed(format!("{to}: {error}")),
        }
    }
}
