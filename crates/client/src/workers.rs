//! Workers and nodes on the wire.

use crate::client::{Client, ClientError, segment};
use crate::page::Page;
use punctual_core::ids::SessionId;
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};

/// A session of a worker: one start of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSessionBody {
    pub session_id: SessionId,
    /// The worker's name, stable over restarts.
    pub worker_id: String,
    pub state: WorkerState,
    /// Whether it lives in the server's own process.
    pub embedded: bool,
    pub version: Option<String>,
    pub host: Option<String>,
    /// Handlers that it runs at once.
    pub slots: u32,
    /// Executions that it holds: those that run, and those that it has fetched ahead.
    pub running: u64,
    pub job_types: Vec<String>,
    /// The queues it serves; empty for all.
    pub queues: Vec<String>,
    pub started_at: Timestamp,
    pub last_heartbeat_at: Timestamp,
}

/// What people have made of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WorkerState {
    /// It gets work.
    Open,
    /// It gets no new work and goes on with what it has.
    Paused,
    /// It finishes what runs, gives back the rest, and closes its session.
    Draining,
}

impl WorkerState {
    pub const fn as_str(self) -> &'static str {
        match self {
            WorkerState::Open => "OPEN",
            WorkerState::Paused => "PAUSED",
            WorkerState::Draining => "DRAINING",
        }
    }
}

/// A server of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeBody {
    pub node_id: String,
    pub version: String,
    pub started_at: Timestamp,
    pub roles: Vec<String>,
    /// Where it listens.
    pub address: String,
    /// The version of the time zone data that schedules go by.
    pub tzdb_version: String,
    /// How far this machine's clock is ahead of the time that the cluster goes by, in milliseconds.
    pub clock_offset_ms: i64,
    /// The kind of its store: `sqlite`, `postgres` or `mysql`.
    pub store: String,
    /// The version of the store's tables.
    pub schema_version: usize,
    /// Whether the store lives in the server's own process. If not, there may be other servers on it.
    pub embedded_store: bool,
}

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeBody {
    /// The public part of the token.
    pub token_id: String,
    pub role: String,
}

impl Client {
    /// All sessions of workers that are neither lost nor closed.
    pub async fn workers(&self) -> Result<Page<WorkerSessionBody>, ClientError> {
        self.send(self.request(Method::GET, "/workers")).await
    }

    /// One session, by its id, or by the worker's name if it has just one.
    pub async fn worker(&self, worker: &str) -> Result<WorkerSessionBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/workers/{}", segment(worker)))).await
    }

    /// Gives a worker no new work; it goes on with what it has.
    pub async fn pause_worker(&self, worker: &str) -> Result<WorkerSessionBody, ClientError> {
        self.order(worker, "pause").await
    }

    pub async fn resume_worker(&self, worker: &str) -> Result<WorkerSessionBody, ClientError> {
        self.order(worker, "resume").await
    }

    /// Has a worker finish what runs, give back the rest and close its session.
    pub async fn drain_worker(&self, worker: &str) -> Result<WorkerSessionBody, ClientError> {
        self.order(worker, "drain").await
    }

    async fn order(&self, worker: &str, order: &str) -> Result<WorkerSessionBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/workers/{}/{order}", segment(worker)))).await
    }

    pub async fn nodes(&self) -> Result<Page<NodeBody>, ClientError> {
        self.send(self.request(Method::GET, "/nodes")).await
    }

    /// Who the server takes this client for.
    pub async fn me(&self) -> Result<MeBody, ClientError> {
        self.send(self.request(Method::GET, "/me")).await
    }
}
