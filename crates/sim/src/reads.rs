//! Reads of the store, from SQLite or from the tables of a simulated database server.

use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
use punctual_core::limiter::{LimiterId, LimiterUse, WaitList};
use punctual_core::notes::{Checkpoint, Noted};
use punctual_core::occurrence::Finished;
use punctual_core::ports::{
    DeadLetter, DeadLetterQuery, Depth, Due, ExecutionView, FinishedPage, HistorySpan, JobCounts, JobOwner,
    JobQuery, JobView, OpenExecution, Page, PausedQueue, QueueRow, SessionRow, StoreError,
};
use punctual_core::schedule::SkipRange;
use punctual_core::time::Timestamp;
use punctual_store::memory_server::MemoryDatabase;
use punctual_store::sqlite;

pub enum StoreReads<'a> {
    Sqlite(sqlite::SqliteReads<'a>),
    Memory(&'a mut MemoryDatabase),
}

macro_rules! reads {
    ($($name:ident($($argument:ident: $type:ty),*) -> $found:ty;)*) => {
        impl StoreReads<'_> {
            $(pub fn $name(&mut self, $($argument: $type),*) -> Result<$found, StoreError> {
                match self {
                    StoreReads::Sqlite(reads) => reads.$name($($argument),*),
                    StoreReads::Memory(reads) => reads.$name($($argument),*),
                }
            })*
        }
    };
}

reads! {
    due(segments: SegmentSet, until: Timestamp, limit: usize) -> Vec<Due>;
    sessions() -> Vec<SessionRow>;
    token_of_session(session: SessionId) -> Option<String>;
    holdings() -> Vec<(SessionId, u64)>;
    job(id: JobId) -> Option<JobView>;
    jobs(query: &JobQuery) -> Page<JobView, JobId>;
    named_job(owner: &str, name: &str) -> Option<JobId>;
    job_owners(jobs: &[JobId]) -> Vec<JobOwner>;
    history(job: JobId, before: Option<ExecutionId>, limit: usize) -> Page<Finished, ExecutionId>;
    execution(id: ExecutionId) -> Option<ExecutionView>;
    notes(job: JobId, up_to: u32, limit: usize) -> Vec<Noted>;
    checkpoint(occurrence: OccurrenceId) -> Option<Checkpoint>;
    skipped(job: JobId, limit: usize) -> Vec<SkipRange>;
    dead_letters(query: &DeadLetterQuery) -> Page<DeadLetter, u64>;
    queues() -> Vec<QueueRow>;
    paused_queues() -> Vec<PausedQueue>;
    waiting_lines(after: Option<LimiterId>, limit: usize) -> Page<WaitList, LimiterId>;
    limiters(lines: &[WaitList]) -> Vec<LimiterUse>;
    finished_after(after: u64, limit: usize) -> FinishedPage;
    history_span() -> HistorySpan;
    open_executions(ids: &[OccurrenceId]) -> Vec<OpenExecution>;
    depths() -> Vec<Depth>;
    job_counts() -> JobCounts;
}
