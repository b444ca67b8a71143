//! One node's connection to the store.

use crate::database::Database;
use async_trait::async_trait;
use punctual_core::health::WorkerCondition;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
use punctual_core::limiter::{LimiterId, LimiterUse, Line};
use punctual_core::notes::{Checkpoint, Note, NoteAnswer, Noted};
use punctual_core::occurrence::Finished;
use punctual_core::ports::*;
use punctual_core::queue::QueueSettings;
use punctual_core::schedule::SkipRange;
use punctual_core::session::{Pulse, SessionDraining, SessionMode, SessionOrder};
use punctual_core::time::Timestamp;
use punctual_store::sqlite::{Call, Purged, Reply, Upkeep, UpkeepReply, Write, WriteReply};
use std::sync::Arc;

pub struct NodeStore {
    pub database: Arc<Database>,
    pub node: usize,
}

/// How many executions one step admits from a wait list or re-admits. Few, so that other calls often
/// interleave.
const ADMITTED_PER_STEP: usize = 3;
/// Wait lists per page of a scan.
const LINES_PER_PAGE: usize = 3;

/// Sends a write and unwraps the answer's variant.
macro_rules! write {
    ($store:expr, $write:expr, $variant:path) => {
        match $store.database.call($store.node, Call::Write($write)).await? {
            Reply::Write($variant(answer)) => Ok(answer),
            other => Err(StoreError::Broken(format!("answered with {other:?}"))),
        }
    };
}

/// Like `write`, for maintenance.
macro_rules! keep {
    ($store:expr, $upkeep:expr, $variant:path) => {
        match $store.database.call($store.node, Call::Upkeep($upkeep)).await? {
            Reply::Upkeep($variant(answer)) => Ok(answer),
            other => Err(StoreError::Broken(format!("answered with {other:?}"))),
        }
    };
}

#[async_trait]
impl Store for NodeStore {
    async fn clock(&self) -> Result<Timestamp, StoreError> {
        self.database.read(|world, _| Ok(world.now())).await
    }

    async fn submit(&self, now: Timestamp, jobs: Vec<NewJob>) -> Result<Vec<SubmitOutcome>, StoreError> {
        write!(self, Write::Submit { now, jobs }, WriteReply::Submitted)
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

    async fn fire(&self, now: Timestamp, fires: Vec<Fire>) -> Result<Vec<FireOutcome>, StoreError> {
        write!(self, Write::Fire { now, fires }, WriteReply::Fired)
    }

    async fn look(&self, now: Timestamp, looks: Vec<Look>) -> Result<Vec<LookOutcome>, StoreError> {
        write!(self, Write::Look { now, looks }, WriteReply::Looked)
    }

    async fn resolve(&self, now: Timestamp, limit: usize) -> Result<Resolved, StoreError> {
        write!(self, Write::Resolve { now, limit }, WriteReply::Resolved)
    }

    async fn claim(&self, now: Timestamp, claims: Vec<Claim>) -> Result<Vec<ClaimOutcome>, StoreError> {
        write!(self, Write::Claim { now, claims }, WriteReply::Claimed)
    }

    async fn report(&self, now: Timestamp, reports: Vec<Report>) -> Result<Vec<ReportOutcome>, StoreError> {
        write!(self, Write::Report { now, reports }, WriteReply::Reported)
    }

    async fn note(&self, now: Timestamp, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, StoreError> {
        write!(self, Write::Note { now, notes }, WriteReply::Noted)
    }

    async fn give_back(
        &self,
        now: Timestamp,
        session: SessionId,
        leases: Vec<LeaseRef>,
    ) -> Result<Vec<Option<Begun>>, StoreError> {
        write!(self, Write::GiveBack { now, session, leases }, WriteReply::GivenBack)
    }

    async fn resync(&self, now: Timestamp, resync: Resync) -> Result<ResyncOutcome, StoreError> {
        write!(self, Write::Resync { now, resync }, WriteReply::Resynced)
    }

    async fn open_session(&self, now: Timestamp, opening: SessionOpening) -> Result<SessionId, StoreError> {
        write!(self, Write::OpenSession { now, opening }, WriteReply::SessionOpened)
    }

    async fn beat(&self, now: Timestamp, beats: Vec<Beat>) -> Result<Vec<BeatOutcome>, StoreError> {
        write!(self, Write::Beat { now, beats }, WriteReply::Beaten)
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

    async fn lose_sessions(&self, now: Timestamp, silent: Vec<Pulse>) -> Result<Vec<bool>, StoreError> {
        write!(self, Write::LoseSessions { now, silent }, WriteReply::SessionsLost)
    }

    async fn lose_embedded_sessions(&self, now: Timestamp) -> Result<usize, StoreError> {
        write!(self, Write::LoseEmbeddedSessions { now }, WriteReply::EmbeddedSessionsLost)
    }

    async fn recover(&self, now: Timestamp, limit: usize) -> Result<Recovered, StoreError> {
        write!(self, Write::Recover { now, limit }, WriteReply::Recovered)
    }

    async fn close_session(&self, now: Timestamp, session: SessionId) -> Result<ResyncOutcome, StoreError> {
        write!(self, Write::CloseSession { now, session }, WriteReply::SessionClosed)
    }

    async fn order_session(
        &self,
        session: SessionId,
        order: SessionOrder,
    ) -> Result<Option<Result<SessionMode, SessionDraining>>, StoreError> {
        write!(self, Write::OrderSession { session, order }, WriteReply::SessionOrdered)
    }

    async fn holdings(&self) -> Result<Vec<(SessionId, u64)>, StoreError> {
        self.database.read(|_, reads| reads.holdings()).await
    }

    async fn control(
        &self,
        now: Timestamp,
        controls: Vec<Control>,
    ) -> Result<Vec<ControlOutcome>, StoreError> {
        write!(self, Write::Control { now, controls }, WriteReply::Controlled)
    }

    async fn cancel(
        &self,
        now: Timestamp,
        executions: Vec<ExecutionId>,
    ) -> Result<Vec<CancelOutcome>, StoreError> {
        write!(self, Write::Cancel { now, executions }, WriteReply::Cancelled)
    }

    async fn redrive(
        &self,
        now: Timestamp,
        dead: Vec<OccurrenceId>,
    ) -> Result<Vec<ControlOutcome>, StoreError> {
        write!(self, Write::Redrive { now, dead }, WriteReply::Redriven)
    }

    async fn discard(&self, dead: Vec<OccurrenceId>) -> Result<Vec<bool>, StoreError> {
        write!(self, Write::Discard { dead }, WriteReply::Discarded)
    }

    async fn pause_queue(
        &self,
        now: Timestamp,
        queue: String,
        pausing: Pausing,
    ) -> Result<Begun, StoreError> {
        write!(self, Write::PauseQueue { now, queue, pausing }, WriteReply::QueuePaused)
    }

    async fn begin_request(&self, now: Timestamp, request: NewRequest) -> Result<RequestState, StoreError> {
        write!(self, Write::BeginRequest { now, request }, WriteReply::RequestBegun)
    }

    async fn answer_request(&self, request: RequestKey, answer: StoredAnswer) -> Result<(), StoreError> {
        match self.database.call(self.node, Call::Write(Write::AnswerRequest { request, answer })).await? {
            Reply::Write(WriteReply::RequestAnswered) => Ok(()),
            other => Err(StoreError::Broken(format!("answered with {other:?}"))),
        }
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError> {
        self.database.read(move |_, reads| reads.job(id)).await
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView, JobId>, StoreError> {
        self.database.read(move |_, reads| reads.jobs(&query)).await
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
        job: JobId,
        before: Option<ExecutionId>,
        limit: usize,
    ) -> Result<Page<ExecutionView, ExecutionId>, StoreError> {
        self.database.read(move |_, reads| reads.executions_of_job(job, before, limit)).await
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
    ) -> Result<Page<Line, LimiterId>, StoreError> {
        // Few enough that a scan takes several pages.
        let limit = limit.min(LINES_PER_PAGE);
        self.database
            .read(move |world, reads| {
                let page = reads.waiting_lines(after, limit)?;
                world.audit(|auditor| auditor.read_lines(after, limit, &page));
                Ok(page)
            })
            .await
    }

    async fn limiters(&self, lines: Vec<Line>) -> Result<Vec<LimiterUse>, StoreError> {
        self.database.read(move |_, reads| reads.limiters(&lines)).await
    }

    async fn admit(&self, now: Timestamp, lines: Vec<Line>, limit: usize) -> Result<Admitted, StoreError> {
        let limit = limit.min(ADMITTED_PER_STEP);
        write!(self, Write::Admit { now, lines, limit }, WriteReply::Admitted)
    }

    async fn set_queue(&self, queue: String, settings: QueueSettings) -> Result<(), StoreError> {
        match self.database.call(self.node, Call::Write(Write::SetQueue { queue, settings })).await? {
            Reply::Write(WriteReply::QueueSet) => Ok(()),
            other => Err(StoreError::Broken(format!("answered with {other:?}"))),
        }
    }

    async fn finished_after(&self, after: u64, limit: usize) -> Result<FinishedPage, StoreError> {
        self.database.read(move |_, reads| reads.finished_after(after, limit)).await
    }

    async fn history_span(&self) -> Result<HistorySpan, StoreError> {
        self.database.read(|_, reads| reads.history_span()).await
    }

    async fn open_executions(&self, ids: Vec<OccurrenceId>) -> Result<Vec<OpenExecution>, StoreError> {
        self.database.read(move |_, reads| reads.open_executions(&ids)).await
    }

    async fn executions(
        &self,
        query: ExecutionQuery,
    ) -> Result<Page<ListedExecution, ExecutionWalk>, StoreError> {
        self.database.read(move |_, reads| reads.executions(&query)).await
    }

    async fn running(
        &self,
        after: Option<RunningPlace>,
        limit: usize,
    ) -> Result<Page<OpenExecution, RunningPlace>, StoreError> {
        self.database.read(move |_, reads| reads.running(after, limit)).await
    }

    async fn paused_queues(&self) -> Result<Vec<PausedQueue>, StoreError> {
        self.database.read(|_, reads| reads.paused_queues()).await
    }

    async fn ahead(&self, occurrence: OccurrenceId, limit: usize) -> Result<Option<usize>, StoreError> {
        self.database.read(move |_, reads| reads.ahead(occurrence, limit)).await
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

    async fn last_logs(&self, _execution: ExecutionId, _count: usize) -> Result<Vec<LogLine>, StoreError> {
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
        keep!(self, Upkeep::Retain { horizon, limit }, UpkeepReply::Retained)
    }

    async fn delete_unused(&self, limit: usize) -> Result<bool, StoreError> {
        keep!(self, Upkeep::DeleteUnused { limit }, UpkeepReply::UnusedDeleted)
    }

    async fn retire(&self, now: Timestamp, retirement: Retirement) -> Result<Retired, StoreError> {
        keep!(self, Upkeep::Retire { now, retirement }, UpkeepReply::Retired)
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<bool, StoreError> {
        let purged: Result<Purged, StoreError> =
            keep!(self, Upkeep::Purge { before, limit }, UpkeepReply::Purged);
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
        // Only people read it, and the simulation has none.
        Ok(())
    }

    async fn put_token(&self, _token: Token) -> Result<(), StoreError> {
        Err(StoreError::Broken("the simulated world has no tokens".to_owned()))
    }

    async fn add_token(&self, _token: Token) -> Result<Token, StoreError> {
        Err(StoreError::Broken("the simulated world has no tokens".to_owned()))
    }

    async fn token(&self, _id: &str) -> Result<Option<Token>, StoreError> {
        Ok(None)
    }
}

fn no_logs() -> StoreError {
    StoreError::Broken("the simulated handlers write no logs".to_owned())
}
