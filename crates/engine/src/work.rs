//! The worker port, for workers in this process and for remote ones behind the API.

use crate::batcher::Batcher;
use crate::measures::MeasuredRun;
use crate::poll_registry::ReservedSlots;
use crate::secrets::SecretUser;
use crate::traces::ReportedRun;
use crate::{Engine, EngineContext};
use async_trait::async_trait;
use futures_util::future::{Either, select};
use punctual_core::blobs::BlobReference;
use punctual_core::health::WorkerCondition;
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use punctual_core::limits;
use punctual_core::log_level::LogLevel;
use punctual_core::notes::{Note, NoteAnswer};
use punctual_core::ports::{
    Assignment, Beat, BeatAnswer, BeatOutcome, BlobError, BlobParts, CommitEffects, Heartbeat, LeaseRef,
    LogLine, LogStream, Poll, Report, ReportAnswer, ReportOutcome, Resync, ResyncOutcome, Served,
    SessionGrant, SessionOpening, SlotReservation, StoreError, WorkerPort, WorkerPortError,
};
use punctual_core::slots::Demand;
use std::pin::pin;
use std::sync::Arc;

#[async_trait]
impl WorkerPort for Engine {
    async fn open_session(&self, opening: SessionOpening) -> Result<SessionGrant, WorkerPortError> {
        let lease = opening.lease.clamp(limits::SESSION_LEASE_MIN, limits::SESSION_LEASE_MAX);
        let opening = SessionOpening { lease, ..opening };
        let worker = SecretUser::of(&opening);
        let name = self.context.traces.as_ref().map(|_| opening.worker.clone());
        let session = self.context.store.open_session(self.now(), opening).await.map_err(unavailable)?;
        self.context.secrets.opened(session, worker);
        if let (Some(traces), Some(name)) = (&self.context.traces, name) {
            traces.opened(session, name);
        }
        Ok(SessionGrant { session, now: self.now() })
    }

    async fn poll(&self, poll: Poll) -> Result<Vec<Assignment>, WorkerPortError> {
        let capacity = poll.capacity.min(limits::POLL_CAPACITY_MAX);
        if capacity == 0 {
            return Ok(Vec::new());
        }
        let session = poll.session;
        let reservation = SlotReservation { session, turn: poll.turn };
        let wait = self.context.host.clock.sleep(poll.wait);
        let answer = pin!(self.context.poll_registry.park(Poll { capacity, ..poll }));
        let gone = || WorkerPortError::Unavailable("the node is shutting down".to_owned());
        let assignments = match select(answer, wait).await {
            Either::Left((answer, _)) => answer.unwrap_or_else(|_| Err(gone()))?,
            Either::Right(((), _)) if self.context.poll_registry.leave(reservation) => return Ok(Vec::new()),
            // The outcome of a check or a lease is pending: leaving now would lose it.
            Either::Right(((), answer)) => answer.await.unwrap_or_else(|_| Err(gone()))?,
        };
        self.with_secrets(session, self.context.in_traces(session, assignments)).await
    }

    async fn beat(&self, heartbeat: Heartbeat) -> Result<BeatAnswer, WorkerPortError> {
        let Heartbeat { session, beat, condition, draining } = heartbeat;
        let outcomes = self.beats.call(vec![Beat { session, beat, draining }]).await.map_err(unavailable)?;
        match outcomes.into_iter().next() {
            Some(BeatOutcome::Counted { turn, cancel, drain }) => {
                self.keep_condition(session, condition);
                Ok(BeatAnswer { now: self.now(), turn, cancel, drain })
            }
            Some(BeatOutcome::SessionLost) | None => {
                self.context.counters.stale_beats.add(1);
                Err(WorkerPortError::SessionLost)
            }
        }
    }

    async fn demand(&self, served: Served) -> Result<Demand, WorkerPortError> {
        self.context.demand(&served).await.map_err(unavailable)
    }

    async fn report(&self, reports: Vec<Report>) -> Result<Vec<ReportAnswer>, WorkerPortError> {
        let reports = self.context.without_secrets_in_reports(reports).await.map_err(unavailable)?;
        let reported: Vec<_> = reports.iter().map(|report| report.lease.execution).collect();
        let answers = self.reports.call(reports).await.map_err(unavailable)?;
        self.context.forget_secrets(&reported, &answers);
        Ok(answers)
    }

    async fn note(&self, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, WorkerPortError> {
        let notes = self.context.without_secrets_in_notes(notes).await.map_err(unavailable)?;
        self.notes.call(notes).await.map_err(unavailable)
    }

    async fn give_back(&self, session: SessionId, leases: Vec<LeaseRef>) -> Result<(), WorkerPortError> {
        let context = &self.context;
        let touched: Vec<OccurrenceId> = leases.iter().map(|lease| lease.execution.occurrence).collect();
        let outcomes = context.store.give_back(self.now(), session, leases).await.map_err(unavailable)?;
        context.events.touched(touched);
        let gone = outcomes.iter().filter(|outcome| outcome.is_none()).count();
        context.counters.stale_give_backs.add(gone as u64);
        context.returned(outcomes.into_iter().flatten().collect());
        Ok(())
    }

    async fn resync(
        &self,
        session: SessionId,
        turn: u64,
        held: Vec<LeaseRef>,
    ) -> Result<(), WorkerPortError> {
        let outcome = self.context.store.resync(self.now(), Resync { session, turn, held }).await;
        self.context.given_back(outcome.map_err(unavailable)?)
    }

    async fn append_logs(&self, _session: SessionId, lines: Vec<LogLine>) -> Result<(), WorkerPortError> {
        let lines = self.context.without_secrets_in_lines(lines).await.map_err(unavailable)?;
        let jobs: Vec<JobId> = lines.iter().map(|line| line.execution.occurrence.job).collect();
        let copied = if self.context.config.log_output { lines.clone() } else { vec![] };
        self.context.store.append_logs(lines).await.map_err(unavailable)?;
        copied.iter().for_each(log_line);
        self.context.counters.log_lines.add(jobs.len() as u64);
        self.context.events.written(jobs);
        Ok(())
    }

    async fn store_result(
        &self,
        _session: SessionId,
        lease: LeaseRef,
        parts: Box<dyn BlobParts>,
    ) -> Result<BlobReference, BlobError> {
        self.context.store_result(lease, parts).await
    }

    async fn close_session(&self, session: SessionId) -> Result<(), WorkerPortError> {
        let outcome = self.context.store.close_session(self.now(), session).await;
        self.context.given_back(outcome.map_err(unavailable)?)
    }
}

impl Engine {
    /// Runs in parallel to the answer, which must not wait for data that only users read.
    fn keep_condition(&self, session: SessionId, condition: Option<WorkerCondition>) {
        let Some(condition) = condition else { return };
        let store = self.context.store.clone();
        self.context.host.spawn.spawn(Box::pin(async move {
            if let Err(error) = store.keep_condition(session, condition).await {
                tracing::debug!(%error, %session, "the condition of a worker was not stored; the worker will report it again");
            }
        }));
    }
}

/// Copies a line of a job into the log of this process.
fn log_line(line: &LogLine) {
    let (level, message) = LogLevel::split(&line.message);
    let stream = match line.stream {
        LogStream::Stdout => "stdout",
        LogStream::Stderr => "stderr",
        LogStream::Log => "log",
    };
    tracing::info!(
        target: "punctual::output",
        job_id = %line.execution.occurrence.job,
        execution_id = %line.execution,
        written_at = %line.timestamp,
        stream,
        line_level = level.map(LogLevel::word),
        line = message,
        "output"
    );
}

pub(crate) fn unavailable(error: StoreError) -> WorkerPortError {
    WorkerPortError::Unavailable(error.to_string())
}

impl EngineContext {
    fn given_back(&self, outcome: ResyncOutcome) -> Result<(), WorkerPortError> {
        match outcome {
            ResyncOutcome::GivenBack(effects) => {
                self.returned(effects);
                Ok(())
            }
            ResyncOutcome::StaleTurn => Err(WorkerPortError::StaleTurn),
            ResyncOutcome::SessionLost => Err(WorkerPortError::SessionLost),
        }
    }

    fn returned(&self, effects: Vec<CommitEffects>) {
        self.counters.given_back.add(effects.len() as u64);
        self.follow_up(effects, ReservedSlots::default());
    }

    pub(crate) fn report_batcher(self: Arc<Self>) -> Batcher<Report, ReportAnswer> {
        let spawn = self.host.spawn.clone();
        Batcher::new(spawn, limits::STORE_BATCH_MAX, move |reports| {
            Box::pin(self.clone().report_batch(reports))
        })
    }

    async fn report_batch(self: Arc<Self>, reports: Vec<Report>) -> Result<Vec<ReportAnswer>, StoreError> {
        let now = self.time.now();
        let ended: Vec<OccurrenceId> = if self.events.has_listeners() {
            reports.iter().map(|report| report.lease.execution.occurrence).collect()
        } else {
            vec![]
        };
        // A worker's clock may be ahead; history must not lie in the future. Nor may it contain results that
        // its readers cannot parse.
        let kept = |report: Report| report.not_after(now).within_limits();
        let reports: Vec<Report> = reports.into_iter().map(kept).collect();
        let runs: Vec<MeasuredRun> = reports.iter().map(|report| MeasuredRun::from(&report.end)).collect();
        let ends = self.traces.as_ref().map(|_| reports.iter().map(ReportedRun::from).collect::<Vec<_>>());
        self.measures.batches.report.observe(reports.len() as u64);
        let outcomes = self.store.report(now, reports).await;
        let outcomes = outcomes.inspect_err(|_| self.counters.store_errors.add(1))?;
        for (run, outcome) in runs.into_iter().zip(&outcomes) {
            self.count_report(run, outcome);
        }
        if let (Some(traces), Some(ends)) = (&self.traces, ends) {
            let times = (now, self.time.now());
            let ends = ends.into_iter().zip(&outcomes);
            traces.ended(ends.filter_map(|(end, outcome)| end.recorded(outcome, times)).collect());
        }
        self.events.touched(ended);
        let answers = outcomes.iter().map(|outcome| outcome.answer).collect();
        self.follow_up(outcomes.into_iter().map(|outcome| outcome.effects), ReservedSlots::default());
        Ok(answers)
    }

    fn count_report(&self, run: MeasuredRun, outcome: &ReportOutcome) {
        if outcome.answer == ReportAnswer::Stale {
            tracing::info!(ending = ?run.ending, "a report was rejected because its lease is gone");
            return self.counters.stale_reports.add(1);
        }
        // The status in history counts, not the reported one: a cancel may have been requested meanwhile.
        let Some(recorded) = outcome.recorded else { return };
        self.counters.ended(recorded);
        self.measures.ended(run, recorded);
        if outcome.is_retried {
            self.counters.retried.add(1);
        }
    }

    pub(crate) fn note_batcher(self: Arc<Self>) -> Batcher<Note, NoteAnswer> {
        let spawn = self.host.spawn.clone();
        Batcher::new(spawn, limits::STORE_BATCH_MAX, move |notes| Box::pin(self.clone().note_batch(notes)))
    }

    async fn note_batch(self: Arc<Self>, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, StoreError> {
        let answers = self.store.note(self.time.now(), notes).await;
        let answers = answers.inspect_err(|_| self.counters.store_errors.add(1))?;
        for answer in &answers {
            match answer {
                NoteAnswer::Accepted => self.counters.noted.add(1),
                NoteAnswer::AlreadyAccepted => {}
                NoteAnswer::Stale => {
                    tracing::info!("a note was rejected because its lease is gone");
                    self.counters.stale_notes.add(1);
                }
            }
        }
        Ok(answers)
    }

    pub(crate) fn beat_batcher(self: Arc<Self>) -> Batcher<Beat, BeatOutcome> {
        let spawn = self.host.spawn.clone();
        Batcher::new(spawn, limits::STORE_BATCH_MAX, move |beats| {
            let context = self.clone();
            Box::pin(async move { context.store.beat(context.time.now(), beats).await })
        })
    }
}
