//! The `Store` port: the reads of every store, and the rest for a database server with writers over units of
//! work, connections for reads, and maintenance. The adapter's own `read!`, `read_at_once!`, `list!` and
//! `read_logs!` choose the connection of a read.

use std::time::{SystemTime, UNIX_EPOCH};

/// A number that differs between processes, for work that they must not all do at the same time.
pub(crate) fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64) ^ (u64::from(std::process::id()) << 32)
}

/// Implements the ports of a server store.
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

            async fn audit_call(&self, call: AuditCall) -> Result<u64, punctual_core::ports::StoreError> {
                Ok(self.audit.run(&call).await?)
            }

            async fn directory_call(&self, call: DirectoryCall) -> Result<DirectoryReply, Fault> {
                self.maintenance.probe.transact(&call).await
            }

            async fn membership_call(&self, call: MembershipCall) -> Result<MembershipReply, Fault> {
                self.membership.call(&call).await
            }

            async fn membership_entries(&self) -> Result<punctual_core::ports::Entries, Fault> {
                self.membership.entries().await
            }
        }

        crate::directory::serve_directory! { $store }
        crate::audit::serve_audit! { $store }
        crate::store_port::serve_reads! { $store {
            async fn clock(&self) -> Result<Timestamp, StoreError> {
                read!(self.readers, reads => reads.clock())
            }

            async fn noted_clock(&self) -> Result<NotedClock, StoreError> {
                read!(self.readers, reads => reads.noted_clock())
            }

            async fn logs_removed_until(&self) -> Result<Option<Timestamp>, StoreError> {
                read!(self.readers, reads => reads.logs_removed_until())
            }

            async fn write(&self, write: Write) -> Result<WriteReply, StoreError> {
                self.writers.write(write).await
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
                Ok(self.maintenance.write_number(crate::stored_numbers::StoredNumber::SteadyClock, at).await?)
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
                Ok(self.maintenance.write_number(crate::stored_numbers::StoredNumber::Probe, now).await?)
            }

            async fn keep_condition(
                &self,
                session: SessionId,
                condition: WorkerCondition,
            ) -> Result<(), StoreError> {
                Ok(self.maintenance.keep_condition(session, &condition).await?)
            }
        } }
    };
}
pub(crate) use serve_store;

/// Implements the port with these methods and all reads that pass their arguments on. Each names how it
/// chooses its connection.
macro_rules! serve_reads {
    ($store:ty { $($rest:tt)* }) => {
        crate::store_port::serve_listed! { $store { $($rest)* } {
            read due(segments: SegmentSet, until: Timestamp, limit: usize) -> Vec<Due>;
            read sessions() -> Vec<SessionRow>;
            read token_of_session(session: SessionId) -> Option<String>;
            read holdings() -> Vec<(SessionId, u64)>;
            read_at_once job(id: JobId) -> Option<JobView>;
            list history(job: JobId, before: Option<ExecutionId>, limit: usize) -> Page<Finished, ExecutionId>;
            list executions_of_job(job: JobId, before: Option<ExecutionId>, limit: usize) -> Page<ExecutionView, ExecutionId>;
            read execution(id: ExecutionId) -> Option<ExecutionView>;
            read finished_after(after: u64, limit: usize) -> FinishedPage;
            read run_times_after(after: u64, limit: usize) -> RunTimesPage;
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
            read_logs logs(execution: ExecutionId, after: Option<u64>, limit: usize) -> Page<LogLine, u64>;
            read_logs last_logs(execution: ExecutionId, before: Option<u64>, count: usize) -> Vec<LogLine>;
        } {
            list jobs(query: JobQuery) -> Page<JobView, JobId>;
            read named_job(owner: String, name: String) -> Option<JobId>;
            read job_owners(jobs: Vec<JobId>) -> Vec<JobOwner>;
            read open_executions(ids: Vec<OccurrenceId>) -> Vec<OpenExecution>;
            list executions(query: ExecutionQuery) -> Page<ListedExecution, ExecutionWalk>;
            list dead_letters(query: DeadLetterQuery) -> Page<DeadLetter, u64>;
            read limiters(lines: Vec<WaitList>) -> Vec<LimiterUse>;
        } }
    };
}
pub(crate) use serve_reads;

/// The reads of the second list take their arguments by reference.
macro_rules! serve_listed {
    (
        $store:ty { $($rest:tt)* }
        { $($how:ident $read:ident($($argument:ident: $type:ty),*) -> $found:ty;)* }
        { $($how_of:ident $read_of:ident($($query:ident: $type_of:ty),*) -> $found_of:ty;)* }
    ) => {
        const _: () = {
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
                RunTimesPage, RunningPlace, SessionRow, Store, StoreError, StoreFigures, StoreHealth, Write,
                WriteReply,
            };
            use punctual_core::schedule::SkipRange;
            use punctual_core::time::Timestamp;

            #[async_trait]
            impl Store for $store {
                $(async fn $read(&self, $($argument: $type),*) -> Result<$found, StoreError> {
                    $how!(self.readers, reads => reads.$read($($argument),*))
                })*

                $(async fn $read_of(&self, $($query: $type_of),*) -> Result<$found_of, StoreError> {
                    $how_of!(self.readers, reads => reads.$read_of($(&$query),*))
                })*

                $($rest)*
            }
        };
    };
}
pub(crate) use serve_listed;
