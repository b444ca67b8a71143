//! Claims, attempts and reports.

use super::{Exemplar, RunPlace, Subject, TracedJob, TracedStep, Traces, lock, shortened};
use crate::EngineContext;
use punctual_core::histogram::{LONG_US, bucket};
use punctual_core::ids::{ExecutionId, SessionId};
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::ports::{
    Assignment, ExecutionView, FinishedSpan, Report, ReportOutcome, SpanEvent, SpanValue,
};
use punctual_core::time::Timestamp;
use punctual_core::trace_context::{RunTrace, SpanId};
use std::sync::Arc;

/// An execution that was leased on this node, or read from the store.
pub(super) struct TracedRun {
    place: RunPlace,
    name: String,
    queue: String,
    job_type: String,
    scheduled_time: Timestamp,
    worker: Option<String>,
    leased_at: Option<Timestamp>,
}

/// An attempt that was recorded in history.
pub(crate) struct EndedRun {
    pub execution: ExecutionId,
    pub status: Status,
    /// As reported; unknown for a lost worker.
    pub started_at: Option<Timestamp>,
    pub completed_at: Timestamp,
    pub error: Option<String>,
    /// Whether another attempt follows, and when, if that is known.
    pub is_retried: bool,
    pub retry_at: Option<Timestamp>,
    /// When its report arrived and was stored; `None` if its worker was lost.
    pub report: Option<(Timestamp, Timestamp)>,
}

/// The parts of a report that its span shows.
pub(crate) struct ReportedRun {
    execution: ExecutionId,
    started_at: Option<Timestamp>,
    completed_at: Timestamp,
    error: Option<String>,
}

impl From<&Report> for ReportedRun {
    fn from(Report { lease, end, .. }: &Report) -> Self {
        ReportedRun {
            execution: lease.execution,
            started_at: end.started_at,
            completed_at: end.completed_at,
            error: end.error.as_deref().map(shortened),
        }
    }
}

impl ReportedRun {
    /// The end of the attempt, if the report recorded one.
    pub(crate) fn recorded(self, outcome: &ReportOutcome, times: (Timestamp, Timestamp)) -> Option<EndedRun> {
        let ReportedRun { execution, started_at, completed_at, error } = self;
        let retry_at = outcome.effects.due_time(execution.occurrence);
        Some(EndedRun {
            execution,
            status: outcome.recorded?,
            started_at,
            completed_at,
            error,
            is_retried: outcome.is_retried,
            retry_at: retry_at.filter(|_| outcome.is_retried || outcome.recorded == Some(Status::Snoozed)),
            report: Some(times),
        })
    }
}

impl EngineContext {
    /// Gives handlers the place of their attempt in a trace. If this node records no spans, that is the place of the
    /// request that the run extends.
    pub(crate) fn in_traces(&self, session: SessionId, mut assignments: Vec<Assignment>) -> Vec<Assignment> {
        match &self.traces {
            Some(traces) => traces.claimed(session, &mut assignments, self.time.now()),
            None => {
                for assignment in &mut assignments {
                    assignment.trace = assignment.trace.take().and_then(RunTrace::passed_on);
                }
            }
        }
        assignments
    }
}

impl Traces {
    fn claimed(&self, session: SessionId, assignments: &mut [Assignment], now: Timestamp) {
        let worker = self.worker(session);
        for assignment in assignments {
            let execution = assignment.execution;
            let trace = assignment.trace.take();
            if let Some(RunTrace { context, is_linked: true }) = &trace {
                let job = TracedJob { name: assignment.name.clone(), submitted_in: Some(context.clone()) };
                self.know_job(execution.occurrence.job, job);
            }
            let run = TracedRun {
                place: self.place(execution.occurrence, trace),
                name: assignment.name.clone(),
                queue: assignment.queue.clone(),
                job_type: assignment.job_type.clone(),
                scheduled_time: assignment.scheduled_time,
                worker: worker.clone(),
                leased_at: Some(now),
            };
            let context = run.place.root.at(SpanId::of_attempt(execution));
            if context.is_sampled {
                self.record(run.claim_span(assignment, now));
            }
            assignment.trace = Some(RunTrace { context, is_linked: false });
            let mut runs = lock(&self.runs);
            if runs.len() >= limits::TRACED_RUNS_MAX {
                runs.pop_first();
            }
            runs.insert(execution, run);
        }
    }

    /// Records the spans of attempts that have ended. Those that another node has leased are read beside.
    pub(crate) fn ended(self: &Arc<Self>, ended: Vec<EndedRun>) {
        let mut unknown = Vec::new();
        for end in ended {
            let run = lock(&self.runs).remove(&end.execution);
            match run {
                Some(run) => self.record_end(&run, &end),
                None => unknown.push(end),
            }
        }
        if unknown.is_empty() {
            return;
        }
        let (traces, count) = (self.clone(), unknown.len());
        self.read_beside(
            count,
            Box::pin(async move {
                for end in unknown {
                    match traces.read_run(end.execution).await {
                        Some(run) => traces.record_end(&run, &end),
                        None => traces.left_out(1),
                    }
                }
                traces.read_ended(count);
            }),
        );
    }

    fn record_end(&self, run: &TracedRun, end: &EndedRun) {
        if !run.place.root.is_sampled {
            return;
        }
        self.record(run.attempt_span(end));
        if let Some(started_at) = end.started_at {
            let duration = end.completed_at.since(started_at);
            let exemplar = Exemplar { trace: run.place.root.trace, duration, at: end.completed_at };
            lock(&self.exemplars).insert((end.status, bucket(LONG_US, duration)), exemplar);
        }
        if let Some(times) = end.report {
            self.record(run.report_span(end, times));
        }
    }

    async fn read_run(&self, execution: ExecutionId) -> Option<TracedRun> {
        let spec = self.store.job(execution.occurrence.job).await.ok()??.job.spec;
        let (scheduled_time, input, worker) = match self.store.execution(execution).await.ok()?? {
            ExecutionView::Finished(finished) => (finished.scheduled_time, finished.input, finished.worker),
            ExecutionView::Live { live, worker } => (live.scheduled_time, live.input, worker),
        };
        let trace = RunTrace::of(&spec.settings, input.as_deref(), execution.occurrence);
        Some(TracedRun {
            place: self.place(execution.occurrence, trace),
            name: spec.name,
            queue: spec.queue,
            job_type: spec.job_type,
            scheduled_time,
            worker,
            leased_at: None,
        })
    }
}

impl TracedRun {
    fn span(
        &self,
        operation: TracedStep,
        execution: ExecutionId,
        span: SpanId,
        times: (Timestamp, Timestamp),
    ) -> FinishedSpan {
        let subject =
            Subject { name: Some(&self.name), queue: Some(&self.queue), job_type: Some(&self.job_type) };
        let occurrence = execution.occurrence;
        let context = self.place.root.at(span);
        let mut span = Traces::span(operation, subject, Some(occurrence.job), context, times);
        span.parent = Some(self.place.root.span);
        span.attributes.extend([
            ("messaging.message.id", SpanValue::text(execution)),
            ("punctual.execution.id", SpanValue::text(execution)),
            ("punctual.occurrence", SpanValue::number(occurrence.number)),
            ("punctual.attempt", SpanValue::number(execution.attempt)),
            ("punctual.scheduled_time", SpanValue::text(self.scheduled_time)),
        ]);
        if let Some(worker) = &self.worker {
            span.attributes.push(("messaging.client.id", SpanValue::text(worker)));
            span.attributes.push(("punctual.worker", SpanValue::text(worker)));
        }
        span
    }

    /// From the time when the attempt could start to its lease.
    fn claim_span(&self, assignment: &Assignment, now: Timestamp) -> FinishedSpan {
        let execution = assignment.execution;
        let (available_at, scheduled_time) = (assignment.available_at.min(now), assignment.scheduled_time);
        let id = SpanId::of_claim(execution, assignment.epoch);
        let mut span = self.span(TracedStep::Claim, execution, id, (available_at, now));
        let waited = now.since(available_at).as_millis();
        span.attributes.push(("punctual.queue_wait_ms", SpanValue::number(waited)));
        if execution.attempt == 1 && available_at > scheduled_time {
            let waited = available_at.since(scheduled_time).as_millis();
            let attributes = vec![("punctual.waited_ms", SpanValue::number(waited))];
            span.events.push(SpanEvent { name: "punctual.gate_opened", at: available_at, attributes });
        }
        span
    }

    fn attempt_span(&self, end: &EndedRun) -> FinishedSpan {
        let ended_at = end.completed_at;
        let started_at = end.started_at.or(self.leased_at).unwrap_or(ended_at).min(ended_at);
        let id = SpanId::of_attempt(end.execution);
        let mut span = self.span(TracedStep::Attempt, end.execution, id, (started_at, ended_at));
        span.links.extend(self.place.link.clone());
        let status = end.status.word();
        span.attributes.push(("punctual.status", SpanValue::text(status)));
        if end.status.is_failure() {
            span.attributes.push(("error.type", SpanValue::text(status)));
            span.error = Some(end.error.as_deref().map_or_else(|| status.to_owned(), shortened));
        }
        if end.is_retried || end.status == Status::Snoozed {
            let name = if end.status == Status::Snoozed { "punctual.snooze" } else { "punctual.retry" };
            let next = ("punctual.attempt", SpanValue::number(end.execution.attempt + 1));
            let mut attributes = vec![next];
            attributes.extend(end.retry_at.map(|at| ("punctual.retry_at", SpanValue::text(at))));
            span.events.push(SpanEvent { name, at: ended_at, attributes });
        }
        span
    }

    /// From the arrival of the report to its commit.
    fn report_span(&self, end: &EndedRun, times: (Timestamp, Timestamp)) -> FinishedSpan {
        let id = SpanId::of_report(end.execution);
        let mut span = self.span(TracedStep::Report, end.execution, id, times);
        span.parent = Some(SpanId::of_attempt(end.execution));
        span.attributes.push(("punctual.status", SpanValue::text(end.status.word())));
        span
    }
}
