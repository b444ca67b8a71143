//! Workers and nodes on the wire.

use crate::client::{Client, ClientError, segment};
use crate::page::Page;
use punctual_core::health::{Measured, Room, WorkerCondition};
use punctual_core::ids::SessionId;
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};

/// A session of a worker: from one start to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSessionBody {
    pub session_id: SessionId,
    /// The worker's name, stable across restarts.
    pub worker_id: String,
    pub state: WorkerState,
    /// Whether it runs in the server's own process.
    pub embedded: bool,
    pub version: Option<String>,
    pub host: Option<String>,
    /// Concurrent handlers; the current number, if it adapts.
    pub slots: u32,
    /// Executions that it holds, running and prefetched.
    pub running: u64,
    /// How many more it could start now: 0 while it is paused, drains or refuses work.
    #[serde(default)]
    pub free_slots: u64,
    pub job_types: Vec<String>,
    /// The queues it serves; empty for all.
    pub queues: Vec<String>,
    pub started_at: Timestamp,
    pub last_heartbeat_at: Timestamp,
    /// Its last reported condition; null until the first report, and for workers that never report.
    #[serde(default)]
    pub condition: Option<ConditionBody>,
}

/// The condition of a worker, as it reports it. Readers ignore fields of newer workers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConditionBody {
    /// Concurrent handlers.
    pub slots: u32,
    /// The minimum and the maximum of them, if it adapts.
    #[serde(default)]
    pub slots_min: Option<u32>,
    #[serde(default)]
    pub slots_max: Option<u32>,
    /// Running handlers.
    #[serde(default)]
    pub running: u32,
    /// Prefetched executions.
    #[serde(default)]
    pub ready: u32,
    /// The address of its machine.
    #[serde(default)]
    pub address: Option<String>,
    /// The use of its processors, relative to those it may use.
    #[serde(default)]
    pub cpu_percent: Option<u8>,
    #[serde(default)]
    pub memory_free_bytes: Option<u64>,
    #[serde(default)]
    pub memory_total_bytes: Option<u64>,
    #[serde(default)]
    pub disk_free_bytes: Option<u64>,
    #[serde(default)]
    pub disk_total_bytes: Option<u64>,
    /// The response time of its last heartbeat.
    #[serde(default)]
    pub round_trip_ms: Option<u64>,
    /// The last error on the way to its server or store.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Why it accepts no new work; empty if it does.
    #[serde(default)]
    pub refuses: Vec<String>,
}

impl From<WorkerCondition> for ConditionBody {
    fn from(condition: WorkerCondition) -> Self {
        let Measured { cpu_pct, memory, disk } = condition.measured;
        ConditionBody {
            slots: condition.slots,
            slots_min: condition.slots_min,
            slots_max: condition.slots_max,
            running: condition.running,
            ready: condition.ready,
            address: condition.address,
            cpu_percent: cpu_pct,
            memory_free_bytes: memory.map(|room| room.free),
            memory_total_bytes: memory.map(|room| room.total),
            disk_free_bytes: disk.map(|room| room.free),
            disk_total_bytes: disk.map(|room| room.total),
            round_trip_ms: condition.round_trip_us.map(|micros| micros.div_ceil(1_000)),
            last_error: condition.last_error,
            refuses: condition.refuses,
        }
    }
}

impl From<ConditionBody> for WorkerCondition {
    fn from(body: ConditionBody) -> Self {
        let room = |free: Option<u64>, total: Option<u64>| Some(Room { free: free?, total: total? });
        WorkerCondition {
            address: body.address,
            slots: body.slots,
            slots_min: body.slots_min,
            slots_max: body.slots_max,
            running: body.running,
            ready: body.ready,
            measured: Measured {
                cpu_pct: body.cpu_percent,
                memory: room(body.memory_free_bytes, body.memory_total_bytes),
                disk: room(body.disk_free_bytes, body.disk_total_bytes),
            },
            round_trip_us: body.round_trip_ms.map(|millis| millis.saturating_mul(1_000)),
            last_error: body.last_error,
            refuses: body.refuses,
        }
    }
}

/// The mode of a worker, as set by operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WorkerState {
    /// It gets work.
    Open,
    /// It gets no new work and continues what it has.
    Paused,
    /// It finishes running executions, returns the rest, and closes its session.
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

/// A process of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeBody {
    pub node_id: String,
    pub version: String,
    pub started_at: Timestamp,
    pub roles: Vec<String>,
    /// The address it listens on.
    pub address: String,
    /// The version of its time zone data.
    pub tzdb_version: String,
    /// How far this machine's clock is ahead of the cluster's time, in milliseconds.
    pub clock_offset_ms: i64,
    /// The kind of its store: `sqlite`, `postgres` or `mysql`.
    pub store: String,
    /// The version of the store's tables.
    pub schema_version: usize,
    /// Whether the store is in the server's own process. If not, other servers may share it.
    pub embedded_store: bool,
    /// The machine it runs on.
    #[serde(default)]
    pub host: String,
    /// Its process id there.
    #[serde(default)]
    pub pid: u32,
    /// Whether it is the leader.
    #[serde(default)]
    pub leader: bool,
    /// How many of the 64 segments of all jobs it fires.
    #[serde(default)]
    pub segments: u32,
    /// Whether it is the process that answered.
    #[serde(default)]
    pub answering: bool,
    /// For the answering process: there may be others, but it cannot determine them now.
    #[serde(default)]
    pub others_unknown: bool,
    /// Its coordination backend: `store`, `etcd`, `redis` or `zookeeper`; empty where its store is not
    /// shared, and for older processes.
    #[serde(default)]
    pub coordination: String,
    /// Warnings for operators.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeBody {
    /// The public part of the token.
    pub token_id: String,
    pub role: String,
}

impl Client {
    /// All sessions of workers that are neither lost nor closed.
    pub async fn workers(&self) -> Result<Page<WorkerSessionBody>, ClientError> {
        self.all_pages("/workers").await
    }

    /// One session, by its id, or by the worker's name if it has only one.
    pub async fn worker(&self, worker: &str) -> Result<WorkerSessionBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/workers/{}", segment(worker)))).await
    }

    /// Gives a worker no new work; it continues what it has.
    pub async fn pause_worker(&self, worker: &str) -> Result<WorkerSessionBody, ClientError> {
        self.order(worker, "pause").await
    }

    pub async fn resume_worker(&self, worker: &str) -> Result<WorkerSessionBody, ClientError> {
        self.order(worker, "resume").await
    }

    /// Lets a worker finish its running executions, return the rest and close its session.
    pub async fn drain_worker(&self, worker: &str) -> Result<WorkerSessionBody, ClientError> {
        self.order(worker, "drain").await
    }

    async fn order(&self, worker: &str, order: &str) -> Result<WorkerSessionBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/workers/{}/{order}", segment(worker)))).await
    }

    pub async fn nodes(&self) -> Result<Page<NodeBody>, ClientError> {
        self.send(self.request(Method::GET, "/nodes")).await
    }

    /// The identity of this client on the server.
    pub async fn me(&self) -> Result<MeBody, ClientError> {
        self.send(self.request(Method::GET, "/me")).await
    }
}
