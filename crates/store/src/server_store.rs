//! The `Store` port on a database server, for a store with writers over units of work, connections for
//! reads, and maintenance. The adapter's own `read!`, `read_at_once!` and `list!` choose the connection of
//! a read.

use std::time::{SystemTime, UNIX_EPOCH};

/// A number that differs between processes, for work that they must not all do at the same time.
pub(crate) fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64) ^ (u64::from(std::process::id()) << 32)
}

/// The reads that pass their arguments on, and how each chooses its connection.
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

        crate::server::directory::serve_directory! { $store }
        crate::server_store::serve_reads! { $store:
            read clock() -> Timestamp;
            read due(segments: SegmentSet, until: Timestamp, limit: usize) -> Vec<Due>;
            read sessions() -> Vec<SessionRow>;
            read token_of_session(session: SessionId) -> Option<String>;
            read holdings() -> Vec<(SessionId, u64)>;
            read_at_once job(id: JobId) -> Option<JobView>;
            list history(job: JobId, before: Option<ExecutionId>, limit: usize) -> Page<Finished, ExecutionId>;
            list executions_of_job(job: JobId, before: Option<ExecutionId>, limit: usize) -> Page<ExecutionView, ExecutionId>;
            read execution(id: ExecutionId) -> Option<ExecutionView>;
            read finished_after(after: u64, limit: usize) -> FinishedPage;
            read history_span() -> HistorySpan;
            read running(after: Option<RunningPlace>, limit: usize) -> Page<OpenExecution, RunningPlace>;
            read notes(job: JobId, up_to: u32, limit: usize) -> Vec<Noted>;
            read checkpoint(occurrence: OccurrenceId) -> Option<Checkpoint>;
            list skipped(job: JobId, limit: usize) -> Vec<SkipRange>;
            read queues() -> Vec<QueueRow>;
            read waiting_lines(after: Option<LimiterId>, limit: usize) -> Page<WaitList, LimiterId>;
            read paused_queues() -> Vec<PausedQueue>;
            read ahead(occurrence: OccurrenceId, limit: usize) -> Option<usize>;
            list depths() -> Vec<Depth>;
            list job_counts() -> JobCounts;
            list logs(execution: ExecutionId, after: Option<u64>, limit: usize) -> Page<LogLine, u64>;
            list last_logs(execution: ExecutionId, count: usize) -> Vec<LogLine>;
            read logs_removed_until() -> Option<Timestamp>;
            read noted_clock() -> NotedClock;
        }
    };
}
pub(crate) use serve_store;

macro_rules! serve_reads {
    ($store:ty: $($how:ident $read:ident($($argument:ident: $type:ty),*) -> $found:ty;)*) => {
        const _: () = {
            use crate::stored_numbers::StoredNumber;
            use async_trait::async_trait;
            use punctual_core::health::WorkerCondition;
            use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
            use punctual_core::limiter::{LimiterId, LimiterUse, WaitList};
            use punctual_core::notes::{Checkpoint, Noted};
            use punctual_core::occurrence::Finished;
            use punctual_core::ports::{
                DeadLetter, DeadLetterQuery, Depth, Due, ExecutionQuery, ExecutionView, ExecutionWalk,
                FinishedPage, HistorySpan, Horizon, JobCounts, JobOwner, JobQuery, JobView, ListedExecution, LogLine,
                NotedClock, OpenExecution, Page, PausedQueue, QueueRow, Retained, Retired, Retirement,
                RunningPlace, SessionRow, Store, StoreError, StoreFigures, StoreHealth, Write,
                WriteReply,
            };
            use punctual_core::schedule::SkipRange;
            use punctual_core::time::Timestamp;

            #[async_trait]
            impl Store for $store {
                $(async fn $read(&self, $($argument: $type),*) -> Result<$found, StoreError> {
                    $how!(self.readers, reads => reads.$read($($argument),*))
                })*

                async fn write(&self, write: Write) -> Result<WriteReply, StoreError> {
                    self.writers.write(write).await
                }

                async fn jobs(&self, query: JobQuery) -> Result<Page<JobView, JobId>, StoreError> {
                    list!(self.readers, reads => reads.jobs(&query))
                }

                async fn job_owners(&self, jobs: Vec<JobId>) -> Result<Vec<JobOwner>, StoreError> {
                    read!(self.readers, reads => reads.job_owners(&jobs))
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

                async fn dead_letters(
                    &self,
                    query: DeadLetterQuery,
                ) -> Result<Page<DeadLetter, u64>, StoreError> {
                    list!(self.readers, reads => reads.dead_letters(&query))
                }

                async fn limiters(&self, lines: Vec<WaitList>) -> Result<Vec<LimiterUse>, StoreError> {
                    read!(self.readers, reads => reads.limiters(&lines))
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
            }
        };
    };
}
pub(crate) use serve_reads;
