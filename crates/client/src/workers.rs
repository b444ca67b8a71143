//! Workers and nodes on the wire.

use crate::client::{Client, ClientError, segment};
use crate::page::Page;
use crate::wire::wire;
use punctual_core::health::{Measured, Room, WorkerCondition};
use punctual_core::ids::SessionId;
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};

wire! {
    /// A session of a worker: one start of it.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct WorkerSessionBody as "WorkerSession" {
        /// The id of the session.
        pub session_id: SessionId,
        /// The worker's name, stable over restarts.
        pub worker_id: String = text().example("resizer-1"),
        /// `OPEN`: it gets work. `PAUSED`: it only continues its running executions. `DRAINING`: it finishes
        /// running executions, gives back the rest and closes its session.
        pub state: WorkerState,
        /// It runs in the server's own process.
        pub embedded: bool,
        /// The version of its program, if reported.
        pub version: Option<String>,
        /// The machine it runs on, if reported.
        pub host: Option<String>,
        /// Handlers that it runs at once.
        pub slots: u32,
        /// Executions that it has leased: those that run, and those that it has prefetched. For a caller with a
        /// limited scope, its own.
        pub running: u64,
        /// How many more it could start now: none while it is paused, draining or refuses work. Null for a caller
        /// with a limited scope.
        #[serde(default)]
        pub free_slots: Option<u64>,
        /// The job types it can run.
        pub job_types: Vec<String> = list(text().about("A job type.")),
        /// The queues it serves; empty for all.
        pub queues: Vec<String> = list(text().about("A queue.")),
        /// When its session began.
        pub started_at: Timestamp,
        /// When its last heartbeat arrived.
        pub last_heartbeat_at: Timestamp,
        /// Its condition as last reported; null before the first report, and for a caller with a limited scope.
        #[serde(default)]
        pub condition: Option<ConditionBody>,
    }
}

wire! {
    /// The condition of a worker, as reported by itself. Unknown values are null; a worker may omit
    /// everything but its slots.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct ConditionBody as "WorkerCondition" {
        /// Handlers that it runs at once.
        pub slots: u32 = whole(1..=limits::WORKER_SLOTS_MAX.into()).example(8),
        /// The minimum of slots, if it adapts.
        #[serde(default)]
        pub slots_min: Option<u32> = whole(1..=limits::WORKER_SLOTS_MAX.into()).sometimes(),
        /// The maximum of slots, if it adapts.
        #[serde(default)]
        pub slots_max: Option<u32> = whole(1..=limits::WORKER_SLOTS_MAX.into()).sometimes(),
        /// Handlers that run.
        #[serde(default)]
        pub running: u32 = whole(0..=u32::MAX.into()).sometimes(),
        /// Executions that it has prefetched.
        #[serde(default)]
        pub ready: u32 = whole(0..=u32::MAX.into()).sometimes(),
        /// The address of its machine.
        #[serde(default)]
        pub address: Option<String> = name().example("10.0.0.7").sometimes(),
        /// The CPU usage, of the processors that it may use.
        #[serde(default)]
        pub cpu_percent: Option<u8> = whole(0..=100).sometimes(),
        /// Memory that it may still use.
        #[serde(default)]
        pub memory_free_bytes: Option<u64> = whole(0..=i64::MAX as u64).sometimes(),
        /// Memory that it may use in all.
        #[serde(default)]
        pub memory_total_bytes: Option<u64> = whole(0..=i64::MAX as u64).sometimes(),
        /// Space that is free on its disk.
        #[serde(default)]
        pub disk_free_bytes: Option<u64> = whole(0..=i64::MAX as u64).sometimes(),
        /// The size of its disk.
        #[serde(default)]
        pub disk_total_bytes: Option<u64> = whole(0..=i64::MAX as u64).sometimes(),
        /// How long its last heartbeat took to be answered.
        #[serde(default)]
        pub round_trip_ms: Option<u64> = whole(0..=i64::MAX as u64).sometimes(),
        /// The last error on the way to its server or store.
        #[serde(default)]
        pub last_error: Option<String> = text().sometimes(),
        /// Why it takes no new work; empty if it does.
        #[serde(default)]
        pub refuses: Vec<String> =
            up_to(limits::REFUSAL_REASONS_MAX, list(name().about("A reason."))).sometimes(),
    }
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

wire! {
    /// A process of the cluster.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct NodeBody as "Node" {
        /// Its name.
        pub node_id: String,
        /// The version of its program.
        pub version: String = text().example(env!("CARGO_PKG_VERSION")),
        /// When it started.
        pub started_at: Timestamp,
        /// Its roles.
        pub roles: Vec<String> = list(text().about("A role.")),
        /// The address it listens on.
        pub address: String = text().example("127.0.0.1:7070"),
        /// The version of the time zone data that schedules use.
        pub tzdb_version: String = text().example("2025b"),
        /// How far its machine's clock is ahead of the cluster's time, in milliseconds.
        pub clock_offset_ms: i64 = Schema::of("integer").with("format", "int64"),
        /// The kind of its store: sqlite, postgres or mysql.
        pub store: String = text().example("sqlite"),
        /// The version of the store's tables.
        pub schema_version: usize,
        /// The store runs in the server's own process. If not, other servers may use it too.
        pub embedded_store: bool,
        /// The machine that it runs on.
        #[serde(default)]
        pub host: String,
        /// Its process id there.
        #[serde(default)]
        pub pid: u32,
        /// It is the leader of the cluster.
        #[serde(default)]
        pub leader: bool,
        /// How many of the 64 segments of all jobs it fires.
        #[serde(default)]
        pub segments: u32,
        /// It is the process that answered.
        #[serde(default)]
        pub answering: bool,
        /// For the process that answered: there may be others, but it cannot currently find out which.
        #[serde(default)]
        pub others_unknown: bool,
        /// The backend through which it coordinates with the others: store, etcd, redis or zookeeper. Empty
        /// if its store is its own, and for older processes.
        #[serde(default)]
        pub coordination: String = text().example("store"),
        /// Where it receives hints of queued work from: postgres (the database), redis, nats or amqp. Empty if it
        /// only polls, and for older processes.
        #[serde(default)]
        pub ready_queue: String = text().example("redis"),
        /// Such hints arrive. While they do not, it polls the database.
        #[serde(default)]
        pub ready_queue_connected: bool,
        /// Problems that need attention.
        #[serde(default)]
        pub warnings: Vec<String> = list(text().about("A sentence.")),
    }
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
}
