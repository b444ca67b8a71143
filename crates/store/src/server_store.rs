//! The `Store` port on a database server, for a store with writers over units of work, connections for
//! reads, and maintenance. The adapter's own `read!`, `read_at_once!` and `list!` choose the connection of
//! a read.

use std::time::{SystemTime, UNIX_EPOCH};

/// A number that differs between processes, for work that they must not all do at the same time.
pub(crate) fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64) ^ (u64::from(std::process::id()) << 32)
}

macro_rules! serve_store {
    ($store:ty) => {
        impl $store {
            /// The id of the database. All nodes that share it belong to one cluster, whatever their URLs.
            pub async fn cluster(&self) -> Result<String, punctual_core::ports::StoreError> {
                Ok(self.membership.cluster().await?)
            }

            /// The version of the tables that this binary works with.
            pub const fn schema_version() -> usize {
                super::migrate::VERSION
            }

            async fn membership_call(&self, call: MembershipCall) -> Result<MembershipReply, Fault> {
                self.membership.call(&call).await
            }

            async fn membership_entries(&self) -> Result<punctual_core::ports::Entries, Fault> {
                self.membership.entries().await
            }
        }

        const _: () = {
            use crate::stored_numbers::StoredNumber;
            use async_trait::async_trait;
            use punctual_core::health::WorkerCondition;
            use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
            use punctual_core::limiter::{LimiterId, LimiterUse, Line};
            use punctual_core::notes::{Checkpoint, Noted};
            use punctual_core::occurrence::Finished;
            use punctual_core::ports::{
                DeadLetter, DeadLetterQuery, Depth, Due, ExecutionQuery, ExecutionView, ExecutionWalk,
                FinishedPage, HistorySpan, Horizon, JobCounts, JobQuery, JobView, ListedExecution, LogLine,
                NotedClock, OpenExecution, Page, PausedQueue, QueueRow, Retained, Retired, Retirement,
                RunningPlace, SessionRow, Store, StoreError, StoreFigures, StoreHealth, Token, Write,
                WriteReply,
            };
            use punctual_core::schedule::SkipRange;
            use punctual_core::time::Timestamp;

            #[async_trait]
            impl Store for $store {
                async fn clock(&self) -> Result<Timestamp, StoreError> {
                    read!(self.readers, reads => reads.clock())
                }

                async fn write(&self, write: Write) -> Result<WriteReply, StoreError> {
                    self.writers.write(write).await
                }

                async fn due(
                    &self,
                    segments: SegmentSet,
                    until: Timestamp,
                    limit: usize,
                ) -> Result<Vec<Due>, StoreError> {
                    read!(self.readers, reads => reads.due(segments, until, limit))
                }

                async fn sessions(&self) -> Result<Vec<SessionRow>, StoreError> {
                    read!(self.readers, reads => reads.sessions())
                }

                async fn holdings(&self) -> Result<Vec<(SessionId, u64)>, StoreError> {
                    read!(self.readers, reads => reads.holdings())
                }

                async fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError> {
                    read_at_once!(self.readers, reads => reads.job(id))
                }

                async fn jobs(&self, query: JobQuery) -> Result<Page<JobView, JobId>, StoreError> {
                    list!(self.readers, reads => reads.jobs(&query))
                }

                async fn history(
                    &self,
                    job: JobId,
                    before: Option<ExecutionId>,
                    limit: usize,
                ) -> Result<Page<Finished, ExecutionId>, StoreError> {
                    list!(self.readers, reads => reads.history(job, before, limit))
                }

                async fn executions_of_job(
                    &self,
                    job: JobId,
                    before: Option<ExecutionId>,
                    limit: usize,
                ) -> Result<Page<ExecutionView, ExecutionId>, StoreError> {
                    list!(self.readers, reads => reads.executions_of_job(job, before, limit))
                }

                async fn execution(&self, id: ExecutionId) -> Result<Option<ExecutionView>, StoreError> {
                    read!(self.readers, reads => reads.execution(id))
                }

                async fn finished_after(&self, after: u64, limit: usize) -> Result<FinishedPage, StoreError> {
                    read!(self.readers, reads => reads.finished_after(after, limit))
                }

                async fn history_span(&self) -> Result<HistorySpan, StoreError> {
                    read!(self.readers, reads => reads.history_span())
                }

                async fn open_executions(
                    &self,
                    ids: Vec<OccurrenceId>,
                ) -> Result<Vec<OpenExecution>, StoreError> {
                    read!(self.readers, reads => reads.open_executions(&ids))
                }

                async fn executions(
                    &self,
                    query: ExecutionQuery,
                ) -> Result<Page<ListedExecution, ExecutionWalk>, StoreError> {
                    list!(self.readers, reads => reads.executions(&query))
                }

                async fn running(
                    &self,
                    after: Option<RunningPlace>,
                    limit: usize,
                ) -> Result<Page<OpenExecution, RunningPlace>, StoreError> {
                    read!(self.readers, reads => reads.running(after, limit))
                }

                async fn notes(
                    &self,
                    job: JobId,
                    up_to: u32,
                    limit: usize,
                ) -> Result<Vec<Noted>, StoreError> {
                    read!(self.readers, reads => reads.notes(job, up_to, limit))
                }

                async fn checkpoint(
                    &self,
                    occurrence: OccurrenceId,
                ) -> Result<Option<Checkpoint>, StoreError> {
                    read!(self.readers, reads => reads.checkpoint(occurrence))
                }

                async fn skipped(&self, job: JobId, limit: usize) -> Result<Vec<SkipRange>, StoreError> {
                    list!(self.readers, reads => reads.skipped(job, limit))
                }

                async fn dead_letters(
                    &self,
                    query: DeadLetterQuery,
                ) -> Result<Page<DeadLetter, u64>, StoreError> {
                    list!(self.readers, reads => reads.dead_letters(&query))
                }

                async fn queues(&self) -> Result<Vec<QueueRow>, StoreError> {
                    read!(self.readers, reads => reads.queues())
                }

                async fn waiting_lines(
                    &self,
                    after: Option<LimiterId>,
                    limit: usize,
                ) -> Result<Page<Line, LimiterId>, StoreError> {
                    read!(self.readers, reads => reads.waiting_lines(after, limit))
                }

                async fn limiters(&self, lines: Vec<Line>) -> Result<Vec<LimiterUse>, StoreError> {
                    read!(self.readers, reads => reads.limiters(&lines))
                }

                async fn paused_queues(&self) -> Result<Vec<PausedQueue>, StoreError> {
                    read!(self.readers, reads => reads.paused_queues())
                }

                async fn ahead(
                    &self,
                    occurrence: OccurrenceId,
                    limit: usize,
                ) -> Result<Option<usize>, StoreError> {
                    read!(self.readers, reads => reads.ahead(occurrence, limit))
                }

                async fn depths(&self) -> Result<Vec<Depth>, StoreError> {
                    list!(self.readers, reads => reads.depths())
                }

                async fn job_counts(&self) -> Result<JobCounts, StoreError> {
                    list!(self.readers, reads => reads.job_counts())
                }

                async fn figures(&self) -> Result<StoreFigures, StoreError> {
                    let sizes: Result<StoreFigures, StoreError> =
                        read!(self.readers, reads => reads.figures());
                    let (counted, removed) = (self.writers.figures(), self.logs.removed());
                    Ok(StoreFigures {
                        log_lines_removed: removed.lines,
                        log_bytes_removed: removed.bytes,
                        transaction_time: counted.transaction_time.snapshot(),
                        transaction_writes: counted.transaction_writes.snapshot(),
                        ..sizes?
                    })
                }

                fn health(&self) -> StoreHealth {
                    StoreHealth { errors: crate::failures::counts(), ..StoreHealth::default() }
                }

                async fn append_logs(&self, lines: Vec<LogLine>) -> Result<(), StoreError> {
                    Ok(self.logs.append(&lines).await?)
                }

                async fn logs(
                    &self,
                    execution: ExecutionId,
                    after: Option<u64>,
                    limit: usize,
                ) -> Result<Page<LogLine, u64>, StoreError> {
                    list!(self.readers, reads => reads.logs(execution, after, limit))
                }

                async fn last_logs(
                    &self,
                    execution: ExecutionId,
                    count: usize,
                ) -> Result<Vec<LogLine>, StoreError> {
                    list!(self.readers, reads => reads.last_logs(execution, count))
                }

                async fn logs_removed_until(&self) -> Result<Option<Timestamp>, StoreError> {
                    read!(self.readers, reads => reads.logs_removed_until())
                }

                async fn noted_clock(&self) -> Result<NotedClock, StoreError> {
                    read!(self.readers, reads => reads.noted_clock())
                }

                async fn note_clock(&self, at: Timestamp) -> Result<(), StoreError> {
                    Ok(self.maintenance.write_number(StoredNumber::SteadyClock, at).await?)
                }

                async fn retain(&self, horizon: Horizon, limit: usize) -> Result<Retained, StoreError> {
                    Ok(self.maintenance.retain(horizon, limit).await?)
                }

                async fn delete_unused(&self, limit: usize) -> Result<bool, StoreError> {
                    Ok(self.maintenance.delete_unused(limit).await?)
                }

                async fn retire(
                    &self,
                    now: Timestamp,
                    retirement: Retirement,
                ) -> Result<Retired, StoreError> {
                    Ok(self.maintenance.retire(now, retirement).await?)
                }

                async fn purge(&self, before: Timestamp, limit: usize) -> Result<bool, StoreError> {
                    Ok(self.maintenance.purge(before, limit).await?)
                }

                async fn probe(&self, now: Timestamp) -> Result<(), StoreError> {
                    Ok(self.maintenance.write_number(StoredNumber::Probe, now).await?)
                }

                async fn keep_condition(
                    &self,
                    session: SessionId,
                    condition: WorkerCondition,
                ) -> Result<(), StoreError> {
                    Ok(self.maintenance.keep_condition(session, &condition).await?)
                }

                async fn put_token(&self, token: Token) -> Result<(), StoreError> {
                    Ok(self.maintenance.put_token(&token).await?)
                }

                async fn add_token(&self, token: Token) -> Result<Token, StoreError> {
                    Ok(self.maintenance.add_token(&token).await?)
                }

                async fn token(&self, id: &str) -> Result<Option<Token>, StoreError> {
                    read!(self.readers, reads => reads.token(id))
                }
            }
        };
    };
}
pub(crate) use serve_store;
