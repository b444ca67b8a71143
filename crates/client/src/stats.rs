//! Statistics: current work and completed work.

use crate::pause::PauseBody;
use crate::wire::wire;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

wire! {
    /// How much there is to do and how much was done.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct StatsBody as "Stats" {
        /// The store's time when this was read.
        pub now: Timestamp,
        /// Live executions, by queue and job type. If there are too many to list, those with the most
        /// executions.
        pub queues: Vec<LaneBody> = up_to(limits::STATS_LANES_MAX, list(the("Lane"))),
        /// The connected workers; if there are too many to list, those connected for longest. `/workers`
        /// lists all.
        pub workers: Vec<WorkerBody> = up_to(limits::STATS_WORKERS_MAX, list(the("Worker"))),
        /// The totals, listed or not.
        #[serde(default)]
        pub live: LiveBody,
        /// Whether `queues` or `workers` are incomplete.
        #[serde(default)]
        pub truncated: bool,
        /// How many jobs are stored, by status.
        #[serde(default)]
        pub jobs: JobsBody,
        /// What all live processes have done since each started.
        pub counters: CountersBody,
        /// How many processes were counted.
        #[serde(default)]
        pub processes: u32,
        /// What the figures were counted from, for a caller with a limited scope: they cover its own jobs only.
        /// `counters` are then 0. Omitted for others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub looked_at: Option<LookedAtBody>,
        /// The pause of the whole cluster; omitted if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub pause: Option<PauseBody>,
    }
}

wire! {
    /// How far figures that cover only the caller's jobs were counted.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct LookedAtBody as "LookedAt" {
        /// The latest jobs, up to this many.
        pub jobs: u64,
        /// Live executions, up to this many.
        pub executions: u64,
        /// There are no others, so that the figures are exact.
        pub complete: bool,
    }
}

wire! {
    /// Totals of live executions and connected workers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(default)]
    pub struct LiveBody as "LiveTotals" {
        /// Pairs of queue and job type that have live executions.
        pub lanes: u64,
        /// Executions that may not start yet.
        pub waiting: u64,
        /// Executions that could start now.
        pub queued: u64,
        /// Executions that run.
        pub running: u64,
        /// Sessions of workers.
        pub sessions: u64,
        /// Handlers that these workers can run at once.
        pub slots: u64,
    }
}

wire! {
    /// How many jobs there are by status, and how many dead letters.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(default)]
    pub struct JobsBody as "JobCounts" {
        /// Jobs that are `ACTIVE`.
        pub active: u64,
        /// Jobs that are `PAUSED`.
        pub paused: u64,
        /// Jobs that are `COMPLETED` and still stored.
        pub completed: u64,
        /// Jobs that are `FAILED` and still stored.
        pub failed: u64,
        /// Jobs that are `CANCELLED` and still stored.
        pub cancelled: u64,
        /// Occurrences that failed permanently and are still stored.
        pub dead_letters: u64,
    }
}

wire! {
    /// Live executions of one queue and job type.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct LaneBody as "Lane" {
        /// The queue.
        pub queue: String,
        /// The job type.
        pub job_type: String,
        /// Executions that may not start yet.
        pub waiting: u64,
        /// Executions that could start now.
        pub queued: u64,
        /// Executions that run.
        pub running: u64,
        /// When the oldest queued execution became available.
        pub oldest_queued_at: Option<Timestamp>,
    }
}

wire! {
    /// A worker that is connected.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct WorkerBody as "Worker" {
        /// Its name.
        pub worker_id: String,
        /// Handlers that it runs at once.
        pub slots: u32,
        /// The job types it can run.
        pub job_types: Vec<String> = list(text().about("A job type.")),
        /// When its session began.
        pub started_at: Timestamp,
        /// When its last heartbeat arrived.
        pub last_heartbeat_at: Timestamp,
    }
}

wire! {
    /// What all live processes have done since each started.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(default)]
    pub struct CountersBody as "Counters" {
        /// Jobs submitted.
        pub submitted: u64,
        /// Occurrences started by schedules; immediate jobs are queued without being fired.
        pub fired: u64,
        /// Occurrences that did not run, for a recorded reason.
        pub skipped: u64,
        /// Fires that found the schedule already fired or changed.
        pub fire_conflicts: u64,
        /// Executions leased to workers.
        pub claimed: u64,
        /// Executions that succeeded.
        pub succeeded: u64,
        /// Executions that failed.
        pub failed: u64,
        /// Executions that timed out.
        pub timed_out: u64,
        /// Executions that were cancelled.
        pub cancelled: u64,
        /// Executions that expired before they could start.
        pub expired: u64,
        /// Attempts whose handlers asked to run again later.
        pub snoozed: u64,
        /// Executions whose worker session stopped sending heartbeats.
        pub lost: u64,
        /// Attempts that follow a failed one.
        pub retried: u64,
        /// Executions returned unstarted.
        pub given_back: u64,
        /// Reports rejected because their lease was gone.
        pub stale_reports: u64,
        /// Worker sessions declared lost.
        pub sessions_lost: u64,
        /// Calls to the store that failed.
        pub store_errors: u64,
    }
}
