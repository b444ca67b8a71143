//! The pause of the whole cluster on the wire.

use crate::client::{Client, ClientError};
use crate::wire::wire;
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};

wire! {
    /// A pause of the whole cluster.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct SetPause as "SetPause" {
        /// Why, for everyone who wonders: `explain`, `stats` and `doctor` show it.
        pub reason: String = text().example("database upgrade"),
        /// When the pause ends by itself; null for never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub until: Option<Timestamp>,
        /// Skip recurring occurrences that fall due meanwhile. By default they wait, like everything else.
        #[serde(default)]
        pub skip: bool = flag().otherwise(false),
    }

    /// Whether the cluster is paused. While it is, nothing starts, as if every queue were paused.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct PauseBody as "ClusterPause" {
        /// Whether it is.
        pub paused: bool,
        /// Why.
        pub reason: Option<String>,
        /// Since when.
        pub paused_at: Option<Timestamp>,
        /// When it ends by itself.
        pub until: Option<Timestamp>,
        /// Recurring occurrences are skipped instead of waiting.
        pub skip: bool,
        /// The name of the token or user that has paused it.
        pub paused_by: Option<String>,
    }
}

impl Client {
    pub async fn cluster_pause(&self) -> Result<PauseBody, ClientError> {
        self.send(self.request(Method::GET, "/pause")).await
    }

    /// Pauses the whole cluster.
    pub async fn pause_cluster(&self, pause: &SetPause) -> Result<PauseBody, ClientError> {
        self.send(self.request(Method::PUT, "/pause").json(pause)).await
    }

    pub async fn resume_cluster(&self) -> Result<PauseBody, ClientError> {
        self.send(self.request(Method::DELETE, "/pause")).await
    }
}
