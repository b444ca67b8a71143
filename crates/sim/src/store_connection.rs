//! One node's connection to the store.

use crate::database::SimDatabase;
use async_trait::async_trait;
use punctual_core::health::WorkerCondition;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
use punctual_core::limiter::{LimiterId, LimiterUse, WaitList};
use punctual_core::notes::{Checkpoint, Noted};
use punctual_core::occurrence::Finished;
use punctual_core::ports::*;
use punctual_core::schedule::SkipRange;
use punctual_core::time::Timestamp;
use punctual_store::memory_server::MemoryWriters;
use punctual_store::sqlite::{Purged, SqliteCall, SqliteReply, Upkeep, UpkeepReply};
use std::sync::Arc;

pub struct NodeStore {
    pub database: Arc<SimDatabase>,
    pub node: usize,
    /// Set if the store is on a server.
    pub writers: Option<MemoryWriters>,
}

/// How many executions one step admits from a wait list or re-admits. Few, so that other calls often
/// interleave.
const ADMITTED_PER_STEP: usize = 3;
/// Wait lists per page of a scan.
const WAIT_LISTS_PER_PAGE: usize = 3;

/// Sends a maintenance call and unwraps the answer's variant.
macro_rules! upkeep {
    ($store:expr, $upkeep:expr, $variant:path) => {
        match $store.database.call($store.node, SqliteCall::Upkeep($upkeep)).await? {
            SqliteReply::Upkeep($variant(answer)) => Ok(answer),
            other => Err(StoreError::Broken(format!("answered with {other:?}"))),
        }
    };
}

#[async_trait]
impl Store for NodeStore {
    async fn clock(&self) -> Result<Timestamp, StoreError> {
        self.database.read(|world, _| Ok(world.now())).await
    }

    async fn write(&self, mut write: Write) -> Result<WriteReply, StoreError> {
        if let Write::Admit { limit, .. } = &mut write {
            *limit = ADMITTED_PER_STEP.min(*limit);
        }
        if let Some(writers) = &self.writers {
            return writers.write(write).await;
        }
        match self.database.call(self.node, SqliteCall::Write(write)).await? {
            SqliteReply::Write(reply) => Ok(reply),
            other => Err(StoreError::Broken(format!("answered with {other:?}"))),
        }
    }

    async fn due(
        &self,
        segments: SegmentSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Due>, StoreError> {
        self.database
            .read(move |world, reads| {
                let due = reads.due(segments, until, limit)?;
                world.audit(|auditor| auditor.read_due(segments, until, limit, &due));
                Ok(due)
            })
            .await
    }

    async fn sessions(&self) -> Result<Vec<SessionRow>, StoreError> {
        self.database
            .read(|world, reads| {
                let rows = reads.sessions()?;
                world.audit(|auditor| auditor.read_sessions(&rows));
                Ok(rows)
            })
            .await
    }

    async fn token_of_session(&self, session: SessionId) -> Result<Option<String>, StoreError> {
        self.database.read(move |_, reads| reads.token_of_session(session)).await
    }

    async fn holdings(&self) -> Result<Vec<(SessionId, u64)>, StoreError> {
        self.database.read(|_, reads| reads.holdings()).await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError> {
        self.database.read(move |_, reads| reads.job(id)).await
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView, JobId>, StoreError> {
        self.database.read(move |_, reads| reads.jobs(&query)).await
    }

    async fn named_job(&self, owner: String, name: String) -> Result<Option<JobId>, StoreError> {
        self.database.read(move |_, reads| reads.named_job(&owner, &name)).await
    }

    async fn job_owners(&self, jobs: Vec<JobId>) -> Result<Vec<JobOwner>, StoreError> {
        self.database.read(move |_, reads| reads.job_owners(&jobs)).await
    }

    async fn history(
        &self,
        job: JobId,
        before: Option<ExecutionId>,
        limit: usize,
    ) -> Result<Page<Finished, ExecutionId>, StoreError> {
        self.database.read(move |_, reads| reads.history(job, before, limit)).await
    }

    async fn executions_of_job(
        &self,
        _job: JobId,
        _before: Option<ExecutionId>,
        _limit: usize,
    ) -> Result<Page<ExecutionView, ExecutionId>, StoreError> {
        Err(no_lists())
    }

    async fn execution(&self, id: ExecutionId) -> Result<Option<ExecutionView>, StoreError> {
        self.database.read(move |_, reads| reads.execution(id)).await
    }

    async fn notes(&self, job: JobId, up_to: u32, limit: usize) -> Result<Vec<Noted>, StoreError> {
        self.database.read(move |_, reads| reads.notes(job, up_to, limit)).await
    }

    async fn checkpoint(&self, occurrence: OccurrenceId) -> Result<Option<Checkpoint>, StoreError> {
        self.database.read(move |_, reads| reads.checkpoint(occurrence)).await
    }

    async fn skipped(&self, job: JobId, limit: usize) -> Result<Vec<SkipRange>, StoreError> {
        self.database.read(move |_, reads| reads.skipped(job, limit)).await
    }

    async fn dead_letters(&self, query: DeadLetterQuery) -> Result<Page<DeadLetter, u64>, StoreError> {
        self.database.read(move |_, reads| reads.dead_letters(&query)).await
    }

    async fn queues(&self) -> Result<Vec<QueueRow>, StoreError> {
        self.database.read(|_, reads| reads.queues()).await
    }

    async fn waiting_lines(
        &self,
        after: Option<LimiterId>,
        limit: usize,
    ) -> Result<Page<WaitList, LimiterId>, StoreError> {
        // Few enough that a scan takes several pages.
        let limit = limit.min(WAIT_LISTS_PER_PAGE);
        self.database
            .read(move |world, reads| {
                let page = reads.waiting_lines(after, limit)?;
                world.audit(|auditor| auditor.read_wait_lists(after, limit, &page));
                Ok(page)
            })
            .await
    }

    async fn limiters(&self, lines: Vec<WaitList>) -> Result<Vec<LimiterUse>, StoreError> {
        self.database.read(move |_, reads| reads.limiters(&lines)).await
    }

    async fn finished_after(&self, after: u64, limit: usize) -> Result<FinishedPage, StoreError> {
        self.database.read(move |_, reads| reads.finished_after(after, limit)).await
    }

    async fn run_times_after(&self, _after: u64, _limit: usize) -> Result<RunTimesPage, StoreError> {
        Err(no_lists())
    }

    async fn history_span(&self) -> Result<HistorySpan, StoreError> {
        self.database.read(|_, reads| reads.history_span()).await
    }

    async fn open_executions(&self, ids: Vec<OccurrenceId>) -> Result<Vec<OpenExecution>, StoreError> {
        self.database.read(move |_, reads| reads.open_executions(&ids)).await
    }

    async fn executions(
        &self,
        _query: ExecutionQuery,
    ) -> Result<Page<ListedExecution, ExecutionWalk>, StoreError> {
        Err(no_lists())
    }

    async fn running(
        &self,
        _after: Option<RunningPlace>,
        _limit: usize,
    ) -> Result<Page<OpenExecution, RunningPlace>, StoreError> {
        Err(no_lists())
    }

    async fn paused_queues(&self) -> Result<Vec<PausedQueue>, StoreError> {
        self.database.read(|_, reads| reads.paused_queues()).await
    }

    async fn ahead(&self, _occurrence: OccurrenceId, _limit: usize) -> Result<Option<usize>, StoreError> {
        Err(no_lists())
    }

    async fn depths(&self) -> Result<Vec<Depth>, StoreError> {
        self.database.read(|_, reads| reads.depths()).await
    }

    async fn job_counts(&self) -> Result<JobCounts, StoreError> {
        self.database.read(|_, reads| reads.job_counts()).await
    }

    async fn figures(&self) -> Result<StoreFigures, StoreError> {
        Ok(StoreFigures::default())
    }

    async fn append_logs(&self, _lines: Vec<LogLine>) -> Result<(), StoreError> {
        Err(no_logs())
    }

    async fn logs(
        &self,
        _execution: ExecutionId,
        _after: Option<u64>,
        _limit: usize,
    ) -> Result<Page<LogLine, u64>, StoreError> {
        Err(no_logs())
    }

    async fn last_logs(
        &self,
        _execution: ExecutionId,
        _before: Option<u64>,
        _count: usize,
    ) -> Result<Vec<LogLine>, StoreError> {
        Err(no_logs())
    }

    async fn logs_removed_until(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    async fn noted_clock(&self) -> Result<NotedClock, StoreError> {
        Ok(self.database.noted_clock())
    }

    async fn note_clock(&self, at: Timestamp) -> Result<(), StoreError> {
        self.database.note_clock(at);
        Ok(())
    }

    async fn retain(&self, horizon: Horizon, limit: usize) -> Result<Retained, StoreError> {
        upkeep!(self, Upkeep::Retain { horizon, limit }, UpkeepReply::Retained)
    }

    async fn delete_unused(&self, limit: usize) -> Result<bool, StoreError> {
        upkeep!(self, Upkeep::DeleteUnused { limit }, UpkeepReply::UnusedDeleted)
    }

    async fn retire(&self, now: Timestamp, retirement: Retirement) -> Result<Retired, StoreError> {
        upkeep!(self, Upkeep::Retire { now, retirement }, UpkeepReply::Retired)
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<bool, StoreError> {
        let purged: Result<Purged, StoreError> =
            upkeep!(self, Upkeep::Purge { before, limit }, UpkeepReply::Purged);
        Ok(purged?.more)
    }

    async fn probe(&self, _now: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    async fn keep_condition(
        &self,
        _session: SessionId,
        _condition: WorkerCondition,
    ) -> Result<(), StoreError> {
        // Only operators read it, and the simulation has none.
        Ok(())
    }
}

#[async_trait]
impl Directory for NodeStore {
    async fn change_directory(
        &self,
        _change: DirectoryChange,
        _entry: Option<AuditEntry>,
    ) -> Result<DirectoryOutcome, StoreError> {
        Err(no_directory())
    }

    async fn token(&self, _id: &str) -> Result<Option<Token>, StoreError> {
        Ok(None)
    }

    async fn tokens(&self, _after: Option<&str>, _limit: usize) -> Result<Page<Token, String>, StoreError> {
        Err(no_directory())
    }

    async fn touch_tokens(&self, _used: Vec<(String, Timestamp)>) -> Result<(), StoreError> {
        Err(no_directory())
    }

    async fn user(&self, _id: &str) -> Result<Option<User>, StoreError> {
        Ok(None)
    }

    async fn user_by_email(&self, _email: &str) -> Result<Option<User>, StoreError> {
        Ok(None)
    }

    async fn users(&self, _after: Option<&str>, _limit: usize) -> Result<Page<User, String>, StoreError> {
        Err(no_directory())
    }

    async fn secret(&self, _name: &str) -> Result<Option<StoredSecret>, StoreError> {
        Ok(None)
    }

    async fn secrets(
        &self,
        _after: Option<&str>,
        _limit: usize,
    ) -> Result<Page<StoredSecret, String>, StoreError> {
        Err(no_directory())
    }

    async fn document(&self, _kind: DocumentKind, _name: &str) -> Result<Option<StoredDocument>, StoreError> {
        Ok(None)
    }

    async fn documents(
        &self,
        _kind: DocumentKind,
        _after: Option<&str>,
        _limit: usize,
    ) -> Result<Page<StoredDocument, String>, StoreError> {
        Ok(Page { items: Vec::new(), next: None })
    }
}

fn no_directory() -> StoreError {
    StoreError::Broken("the simulated world has no tokens, users, secrets and documents".to_owned())
}

fn no_lists() -> StoreError {
    StoreError::Broken("only operators read lists, and the simulation has none".to_owned())
}

fn no_logs() -> StoreError {
    StoreError::Broken("the simulated handlers write no logs".to_owned())
}

/// The simulated clients are not audited.
#[async_trait]
impl AuditLog for NodeStore {
    async fn audit(&self, _query: AuditQuery) -> Result<Page<AuditRow, AuditId>, StoreError> {
        Err(no_lists())
    }

    async fn audit_ends(&self) -> Result<Option<ChainEnds>, StoreError> {
        Ok(Some(ChainEnds::EMPTY))
    }

    async fn audit_chain(&self, _after: u64, _limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        Ok(vec![])
    }

    async fn unsealed_audit(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn seal_audit(&self, _limit: usize) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn record_audit(&self, _entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn retain_audit(&self, _before: Timestamp, _limit: usize) -> Result<u64, StoreError> {
        Ok(0)
    }
}
