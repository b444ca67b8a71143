//! Statistics: current work and completed work.

use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsBody {
    /// The store's time when this was read.
    pub now: Timestamp,
    /// Live executions by queue and job type. Of many, the deepest.
    pub queues: Vec<LaneBody>,
    /// Connected workers. Of many, those connected for the longest time.
    pub workers: Vec<WorkerBody>,
    /// Totals, including lanes and workers that are not listed.
    #[serde(default)]
    pub live: LiveBody,
    /// Whether `queues` or `workers` are incomplete.
    #[serde(default)]
    pub truncated: bool,
    /// How many jobs are stored, by status.
    #[serde(default)]
    pub jobs: JobsBody,
    /// Counters of all live processes of the cluster, each since its start.
    pub counters: CountersBody,
    /// How many processes these are.
    #[serde(default)]
    pub processes: u32,
}

/// Totals of live executions and connected workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveBody {
    /// Pairs of queue and job type with live executions.
    pub lanes: u64,
    pub waiting: u64,
    pub queued: u64,
    pub running: u64,
    /// Sessions of workers.
    pub sessions: u64,
    pub slots: u64,
}

/// How many jobs there are by status, and how many dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobsBody {
    pub active: u64,
    pub paused: u64,
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub dead_letters: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneBody {
    pub queue: String,
    pub job_type: String,
    pub waiting: u64,
    pub queued: u64,
    pub running: u64,
    /// When the oldest queued execution became available.
    pub oldest_queued_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerBody {
    pub worker_id: String,
    pub slots: u32,
    pub job_types: Vec<String>,
    pub started_at: Timestamp,
    pub last_heartbeat_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CountersBody {
    pub submitted: u64,
    pub fired: u64,
    pub skipped: u64,
    pub fire_conflicts: u64,
    pub claimed: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub timed_out: u64,
    pub cancelled: u64,
    pub expired: u64,
    pub lost: u64,
    pub retried: u64,
    pub given_back: u64,
    pub stale_reports: u64,
    pub sessions_lost: u64,
    pub store_errors: u64,
}
