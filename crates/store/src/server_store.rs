//! The `Store` port on a database server, for a store with writers over units of work, connections for
//! reads, and maintenance. The adapter's own `read!`, `read_at_once!` and `list!` choose the connection of
//! a read.

use std::time::{SystemTime, UNIX_EPOCH};

/// A number that differs between processes, for work that they must not all do at the same time.
pub(crate) fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64) ^ (u64::from(std::process::id()) << 32)
}

/// Sends a write and unpacks the reply. A reply of another kind would be a bug in the verbs.
macro_rules! written {
    ($store:expr, $write:expr, $reply:pat => $value:expr) => {
        match $store.writers.write($write).await? {
            $reply => Ok($value),
            other => Err(StoreError::Broken(format!("a write was answered with {other:?}"))),
        }
    };
}
pub(crate) use written;

macro_rules! serve_store {
    ($store:ty) => {
        const _: () = {
            use crate::stored_numbers::StoredNumber;
            use crate::server_store::written;
            use crate::write::{Write, WriteReply};
            use async_trait::async_trait;
            use punctual_core::health::WorkerCondition;
            use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
            use punctual_core::limiter::{LimiterId, LimiterUse, Line};
            use punctual_core::notes::{Checkpoint, Note, NoteAnswer, Noted};
            use punctual_core::occurrence::Finished;
            use punctual_core::ports::{
                Admitted, Beat, BeatOutcome, Begun, CancelOutcome, Claim, ClaimOutcome, Control, ControlOutcome, DeadLetter,
                DeadLetterQuery, Depth, Due, ExecutionQuery, ExecutionView, ExecutionWalk, FinishedPage, Fire,
                FireOutcome, HistorySpan, Horizon, JobCounts, JobQuery, JobView, LeaseRef, ListedExecution, LogLine,
                Look, LookOutcome, NewJob, NewRequest, NotedClock, OpenExecution, Page, PausedQueue, Pausing, QueueRow, Recovered,
                Report, ReportOutcome, RequestKey, RequestState, Resolved, Resync, ResyncOutcome, Retained, Retired,
                Retirement, RunningPlace, SessionOpening, SessionRow, Store, StoreError, StoreFigures, StoreHealth,
                StoredAnswer, SubmitOutcome, Token,
            };
            use punctual_core::queue::QueueSettings;
            use punctual_core::schedule::SkipRange;
            use punctual_core::session::{Pulse, SessionDraining, SessionMode, SessionOrder};
            use punctual_core::time::Timestamp;

            #[async_trait]
            impl Store for $store {
                async fn clock(&self) -> Result<Timestamp, StoreError> {
                    read!(self.readers, reads => reads.clock())
                }

                async fn submit(&self, now: Timestamp, jobs: Vec<NewJob>) -> Result<Vec<SubmitOutcome>, StoreError> {
                    written!(self, Write::Submit { now, jobs }, WriteReply::Submitted(outcomes) => outcomes)
                }

                async fn due(
                    &self,
                    segments: SegmentSet,
                    until: Timestamp,
                    limit: usize,
                ) -> Result<Vec<Due>, StoreError> {
                    read!(self.readers, reads => reads.due(segments, until, limit))
                }

                async fn fire(&self, now: Timestamp, fires: Vec<Fire>) -> Result<Vec<FireOutcome>, StoreError> {
                    written!(self, Write::Fire { now, fires }, WriteReply::Fired(outcomes) => outcomes)
                }

                async fn look(&self, now: Timestamp, looks: Vec<Look>) -> Result<Vec<LookOutcome>, StoreError> {
                    written!(self, Write::Look { now, looks }, WriteReply::Looked(outcomes) => outcomes)
                }

                async fn resolve(&self, now: Timestamp, limit: usize) -> Result<Resolved, StoreError> {
                    written!(self, Write::Resolve { now, limit }, WriteReply::Resolved(resolved) => resolved)
                }

                async fn claim(&self, now: Timestamp, claims: Vec<Claim>) -> Result<Vec<ClaimOutcome>, StoreError> {
                    written!(self, Write::Claim { now, claims }, WriteReply::Claimed(outcomes) => outcomes)
                }

                async fn report(&self, now: Timestamp, reports: Vec<Report>) -> Result<Vec<ReportOutcome>, StoreError> {
                    written!(self, Write::Report { now, reports }, WriteReply::Reported(outcomes) => outcomes)
                }

                async fn note(&self, now: Timestamp, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, StoreError> {
                    written!(self, Write::Note { now, notes }, WriteReply::Noted(answers) => answers)
                }

                async fn give_back(
                    &self,
                    now: Timestamp,
                    session: SessionId,
                    leases: Vec<LeaseRef>,
                ) -> Result<Vec<Option<Begun>>, StoreError> {
                    written!(self, Write::GiveBack { now, session, leases }, WriteReply::GivenBack(begun) => begun)
                }

                async fn resync(&self, now: Timestamp, resync: Resync) -> Result<ResyncOutcome, StoreError> {
                    written!(self, Write::Resync { now, resync }, WriteReply::Resynced(outcome) => outcome)
                }

                async fn open_session(&self, now: Timestamp, opening: SessionOpening) -> Result<SessionId, StoreError> {
                    written!(self, Write::OpenSession { now, opening }, WriteReply::SessionOpened(session) => session)
                }

                async fn beat(&self, now: Timestamp, beats: Vec<Beat>) -> Result<Vec<BeatOutcome>, StoreError> {
                    written!(self, Write::Beat { now, beats }, WriteReply::Beaten(outcomes) => outcomes)
                }

                async fn sessions(&self) -> Result<Vec<SessionRow>, StoreError> {
                    read!(self.readers, reads => reads.sessions())
                }

                async fn lose_sessions(&self, now: Timestamp, silent: Vec<Pulse>) -> Result<Vec<bool>, StoreError> {
                    written!(self, Write::LoseSessions { now, silent }, WriteReply::SessionsLost(lost) => lost)
                }

                async fn lose_embedded_sessions(&self, now: Timestamp) -> Result<usize, StoreError> {
                    written!(self, Write::LoseEmbeddedSessions { now }, WriteReply::EmbeddedSessionsLost(lost) => lost)
                }

                async fn recover(&self, now: Timestamp, limit: usize) -> Result<Recovered, StoreError> {
                    written!(self, Write::Recover { now, limit }, WriteReply::Recovered(recovered) => recovered)
                }

                async fn close_session(&self, now: Timestamp, session: SessionId) -> Result<ResyncOutcome, StoreError> {
                    written!(self, Write::CloseSession { now, session }, WriteReply::SessionClosed(outcome) => outcome)
                }

                async fn order_session(
                    &self,
                    session: SessionId,
                    order: SessionOrder,
                ) -> Result<Option<Result<SessionMode, SessionDraining>>, StoreError> {
                    written!(self, Write::OrderSession { session, order }, WriteReply::SessionOrdered(mode) => mode)
                }

                async fn holdings(&self) -> Result<Vec<(SessionId, u64)>, StoreError> {
                    read!(self.readers, reads => reads.holdings())
                }

                async fn control(
                    &self,
                    now: Timestamp,
                    controls: Vec<Control>,
                ) -> Result<Vec<ControlOutcome>, StoreError> {
                    written!(self, Write::Control { now, controls }, WriteReply::Controlled(outcomes) => outcomes)
                }

                async fn cancel(
                    &self,
                    now: Timestamp,
                    executions: Vec<ExecutionId>,
                ) -> Result<Vec<CancelOutcome>, StoreError> {
                    written!(self, Write::Cancel { now, executions }, WriteReply::Cancelled(outcomes) => outcomes)
                }

                async fn redrive(
                    &self,
                    now: Timestamp,
                    dead: Vec<OccurrenceId>,
                ) -> Result<Vec<ControlOutcome>, StoreError> {
                    written!(self, Write::Redrive { now, dead }, WriteReply::Redriven(outcomes) => outcomes)
                }

                async fn discard(&self, dead: Vec<OccurrenceId>) -> Result<Vec<bool>, StoreError> {
                    written!(self, Write::Discard { dead }, WriteReply::Discarded(outcomes) => outcomes)
                }

                async fn pause_queue(
                    &self,
                    now: Timestamp,
                    queue: String,
                    pausing: Pausing,
                ) -> Result<Begun, StoreError> {
                    written!(self, Write::PauseQueue { now, queue, pausing }, WriteReply::QueuePaused(begun) => begun)
                }

                async fn set_queue(&self, queue: String, settings: QueueSettings) -> Result<(), StoreError> {
                    written!(self, Write::SetQueue { queue, settings }, WriteReply::QueueSet => ())
                }

                async fn admit(&self, now: Timestamp, lines: Vec<Line>, limit: usize) -> Result<Admitted, StoreError> {
                    written!(self, Write::Admit { now, lines, limit }, WriteReply::Admitted(admitted) => admitted)
                }

                async fn begin_request(&self, now: Timestamp, request: NewRequest) -> Result<RequestState, StoreError> {
                    written!(self, Write::BeginRequest { now, request }, WriteReply::RequestBegun(state) => state)
                }

                async fn answer_request(&self, request: RequestKey, answer: StoredAnswer) -> Result<(), StoreError> {
                    written!(self, Write::AnswerRequest { request, answer }, WriteReply::RequestAnswered => ())
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

                async fn open_executions(&self, ids: Vec<OccurrenceId>) -> Result<Vec<OpenExecution>, StoreError> {
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

                async fn notes(&self, job: JobId, up_to: u32, limit: usize) -> Result<Vec<Noted>, StoreError> {
                    read!(self.readers, reads => reads.notes(job, up_to, limit))
                }

                async fn checkpoint(&self, occurrence: OccurrenceId) -> Result<Option<Checkpoint>, StoreError> {
                    read!(self.readers, reads => reads.checkpoint(occurrence))
                }

                async fn skipped(&self, job: JobId, limit: usize) -> Result<Vec<SkipRange>, StoreError> {
                    list!(self.readers, reads => reads.skipped(job, limit))
                }

                async fn dead_letters(&self, query: DeadLetterQuery) -> Result<Page<DeadLetter, u64>, StoreError> {
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

                async fn ahead(&self, occurrence: OccurrenceId, limit: usize) -> Result<Option<usize>, StoreError> {
                    read!(self.readers, reads => reads.ahead(occurrence, limit))
                }

                async fn depths(&self) -> Result<Vec<Depth>, StoreError> {
                    list!(self.readers, reads => reads.depths())
                }

                async fn job_counts(&self) -> Result<JobCounts, StoreError> {
                    list!(self.readers, reads => reads.job_counts())
                }

                async fn figures(&self) -> Result<StoreFigures, StoreError> {
                    let sizes: Result<StoreFigures, StoreError> = read!(self.readers, reads => reads.figures());
                    let (counted, removed) = (self.writers.figures(), self.removed_lines());
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
                    Ok(self.append_lines(lines).await?)
                }

                async fn logs(
                    &self,
                    execution: ExecutionId,
                    after: Option<u64>,
                    limit: usize,
                ) -> Result<Page<LogLine, u64>, StoreError> {
                    list!(self.readers, reads => reads.logs(execution, after, limit))
                }

                async fn last_logs(&self, execution: ExecutionId, count: usize) -> Result<Vec<LogLine>, StoreError> {
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

                async fn retire(&self, now: Timestamp, retirement: Retirement) -> Result<Retired, StoreError> {
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
