//! The state of the server and its cluster: statistics, measurements, nodes, and the clock that tests drive.

use super::{Forbidden, Overview, UseCase, UseCaseError, UseCases};
use crate::series::TOTALS;
use crate::{
    ClusterSnapshot, CounterSnapshot, Drive, Driven, Engine, EventsState, Exemplars, MeasureSnapshot,
    NodeSeen, ReadyQueueState,
};
use punctual_core::limiter::{LimiterUse, WaitList};
use punctual_core::limits;
use punctual_core::ports::{
    CoordinationError, DrivenClock, JobCounts, QueueRow, SpanFigures, StoreError, StoreFigures, StoreHealth,
};
use punctual_core::series::JobTotals;
use punctual_core::time::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The state of this node in its cluster.
#[derive(Debug, Clone)]
pub struct NodeState {
    pub cluster: ClusterSnapshot,
    /// By how many microseconds the store's time is ahead of this machine's; negative if it is behind.
    pub clock_offset_us: i64,
    /// How far this machine's clock may be off before this node stops firing.
    pub clock_offset_max: Duration,
    /// Where hints of other processes come from; `None` if there are none.
    pub ready_queue: Option<ReadyQueueState>,
    /// How far events are published; `None` if this process publishes none.
    pub events: Option<EventsState>,
    /// Warnings for operators.
    pub warnings: Vec<String>,
}

impl NodeState {
    pub(super) fn of(engine: &Engine) -> Self {
        NodeState {
            cluster: engine.cluster(),
            clock_offset_us: engine.clock_offset_us(),
            clock_offset_max: engine.clock_offset_max(),
            ready_queue: engine.context.peers.state(),
            events: engine.context.outbox.state(),
            warnings: engine.warnings(),
        }
    }
}

/// Current and completed work.
#[derive(Debug)]
pub struct Stats {
    pub now: Timestamp,
    pub overview: Arc<Overview>,
    pub jobs: JobCounts,
    /// The counters of all nodes of the cluster: this node's own and those that the others publish. Only this
    /// node's where the others are unknown.
    pub counters: CounterSnapshot,
    /// How many processes they are from.
    pub processes: u32,
    /// What was read, if only the caller's own jobs count.
    pub looked_at: Option<LookedAt>,
}

/// How many jobs and executions figures were counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookedAt {
    pub jobs: u64,
    pub executions: u64,
    /// Whether there are no others.
    pub is_all: bool,
}

/// Everything that is measured, at one moment.
#[derive(Debug)]
pub struct Readings {
    pub overview: Arc<Overview>,
    /// The use of queues with limits, up to a bounded number of them.
    pub limited: Vec<LimitedQueue>,
    pub node: NodeState,
    /// How long the oldest unfired schedule has been due, as seen by the leader; zero on other nodes.
    pub overdue: Duration,
    pub is_retention_paused: bool,
    pub jobs: JobCounts,
    pub counters: CounterSnapshot,
    pub measures: MeasureSnapshot,
    /// `None` if no spans are recorded.
    pub spans: Option<SpanFigures>,
    pub exemplars: Exemplars,
    pub store: StoreFigures,
    /// Jobs with metrics of their own.
    pub job_totals: JobTotals,
}

/// A queue with a concurrency or rate limit.
#[derive(Debug)]
pub struct LimitedQueue {
    pub queue: String,
    /// `None` if only starts are limited.
    pub concurrency: Option<u32>,
    pub used: LimiterUse,
}

impl UseCases {
    /// Whether the caller may see the settings of this process.
    pub fn check_settings_readable(&self) -> Result<(), UseCaseError> {
        Ok(self.permit(UseCase::ReadSettings)?)
    }

    /// For a caller with a limited scope, only its own jobs count.
    pub async fn stats(&self) -> Result<Stats, UseCaseError> {
        self.permit(UseCase::ReadStats)?;
        if self.is_limited() {
            return Ok(self.own_stats().await?);
        }
        let overview = self.overview().await?;
        let jobs = self.store().job_counts().await?;
        let (counters, processes) = self.counted().await;
        Ok(Stats { now: self.now(), overview, jobs, counters, processes, looked_at: None })
    }

    async fn counted(&self) -> (CounterSnapshot, u32) {
        let own = self.engine.counters();
        let Some(Ok(nodes)) = self.engine.nodes().await else { return (own, 1) };
        let peers = nodes.into_iter().filter(|node| !node.is_self).filter_map(|node| node.card);
        peers.fold((own, 1), |(sum, processes), card| (sum.plus(&card.counters), processes + 1))
    }

    pub async fn readings(&self) -> Result<Readings, UseCaseError> {
        self.permit(UseCase::ReadServer)?;
        let engine = &self.engine;
        Ok(Readings {
            overview: self.overview().await?,
            limited: self.limited().await?,
            node: NodeState::of(engine),
            overdue: engine.overdue(),
            is_retention_paused: engine.is_retention_paused(),
            jobs: self.store().job_counts().await?,
            counters: engine.counters(),
            measures: engine.measures(),
            spans: engine.span_figures(),
            exemplars: engine.exemplars(),
            store: self.store().figures().await?,
            job_totals: self
                .store()
                .document(TOTALS.0, TOTALS.1)
                .await?
                .map_or_else(JobTotals::default, |document| document.read().unwrap_or_default()),
        })
    }

    async fn limited(&self) -> Result<Vec<LimitedQueue>, StoreError> {
        let rows =
            self.store().queues().await?.into_iter().filter(|row| !row.settings.limits.of_queue().is_none());
        let rows: Vec<QueueRow> = rows.take(limits::METRIC_LANES_MAX).collect();
        if rows.is_empty() {
            return Ok(vec![]);
        }
        let used =
            self.store().limiters(rows.iter().map(|row| WaitList::of_queue(&row.queue)).collect()).await?;
        let limited = rows.into_iter().zip(used).map(|(row, used)| LimitedQueue {
            queue: row.queue,
            concurrency: row.settings.limits.concurrency,
            used,
        });
        Ok(limited.collect())
    }

    /// Failures and damage of the store, without a query of the database.
    pub fn store_health(&self) -> Result<StoreHealth, Forbidden> {
        self.permit(UseCase::ReadServer)?;
        Ok(self.store().health())
    }

    pub fn node_state(&self) -> Result<NodeState, Forbidden> {
        self.permit(UseCase::ReadServer)?;
        Ok(NodeState::of(&self.engine))
    }

    /// All members of the cluster; `None` if there is no coordination.
    pub async fn nodes(&self) -> Result<Option<Result<Vec<NodeSeen>, CoordinationError>>, Forbidden> {
        self.permit(UseCase::ReadServer)?;
        Ok(self.engine.nodes().await)
    }

    /// Advances the clock: everything on the way fires at its own time.
    pub async fn advance_clock(&self, clock: &dyn DrivenClock, drive: Drive) -> Result<Driven, UseCaseError> {
        self.permit(UseCase::DriveClock)?;
        let details = json!({ "advance_to": drive.to });
        let driven = self.engine.advance(clock, drive).await?;
        self.record(UseCase::DriveClock, "clock".to_owned(), Some(&details)).await;
        Ok(driven)
    }

    /// Jumps the clock: times in between count as missed.
    pub async fn jump_clock(&self, clock: &dyn DrivenClock, drive: Drive) -> Result<Driven, UseCaseError> {
        self.permit(UseCase::DriveClock)?;
        let details = json!({ "jump_to": drive.to });
        let driven = self.engine.jump(clock, drive).await?;
        self.record(UseCase::DriveClock, "clock".to_owned(), Some(&details)).await;
        Ok(driven)
    }
}
