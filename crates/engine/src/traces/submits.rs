//! Requests that ask for runs: submits, batches and triggers. Also decides which trace is stored with a job.

use super::{Subject, TracedStep, Traces, shortened, waits_event};
use crate::{EngineContext, SubmitError, Submitted};
use punctual_core::control::Verb;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::Job;
use punctual_core::limits;
use punctual_core::occurrence::RunInput;
use punctual_core::ports::{FinishedSpan, SpanValue};
use punctual_core::time::Timestamp;
use punctual_core::trace_context::{SpanId, SubmittedTrace, TraceContext, TraceId, starts_at_once};
use std::sync::Arc;

/// One submit of one or more jobs.
pub(crate) struct TracedSubmission {
    /// The trace of the caller.
    caller: Option<TraceContext>,
    in_batch: bool,
    /// `None` if this node records no spans.
    recorded: Option<RecordedSubmission>,
}

struct RecordedSubmission {
    traces: Arc<Traces>,
    started_at: Timestamp,
    /// The span of a batch.
    batch: Option<TraceContext>,
    jobs: Vec<TracedSubmit>,
}

/// A job of a submit, for its span.
struct TracedSubmit {
    /// Its place among the jobs of the request.
    place: usize,
    job: JobId,
    name: String,
    queue: String,
    job_type: String,
    context: TraceContext,
    waits_for_jobs: bool,
    waits_for_limit: bool,
}

impl EngineContext {
    pub(crate) fn submission(&self, caller: Option<TraceContext>, jobs: usize) -> TracedSubmission {
        let in_batch = jobs > 1;
        let recorded = self.traces.clone().map(|traces| {
            let batch = in_batch.then(|| traces.batch_place(caller.as_ref()));
            RecordedSubmission { traces, started_at: self.time.now(), batch, jobs: vec![] }
        });
        TracedSubmission { caller, in_batch, recorded }
    }
}

impl Traces {
    fn batch_place(&self, caller: Option<&TraceContext>) -> TraceContext {
        match caller {
            Some(caller) => caller.at(self.random_span()),
            None => {
                let trace = self.random_trace();
                TraceContext::new(trace, self.random_span(), self.config.sample.keeps(trace))
            }
        }
    }

    /// The span of a submit of one job.
    fn submit_place(&self, job: &Job, caller: Option<&TraceContext>) -> TraceContext {
        match caller {
            Some(caller) => caller.at(SpanId::of_submit(job.id)),
            // It begins the trace of the run that starts at once.
            None if starts_at_once(&job.spec.settings, job.id) => self.own_place(job.id.occurrence(1)),
            None => {
                let trace = TraceId::of_submit(job.id);
                TraceContext::new(trace, SpanId::of_submit(job.id), self.config.sample.keeps(trace))
            }
        }
    }
}

impl TracedSubmission {
    /// Stores with the job the trace that its runs extend or link to. Nothing is stored that follows from the id of the
    /// job.
    pub(crate) fn stamp(&mut self, place: usize, job: &mut Job) {
        let is_at_once = starts_at_once(&job.spec.settings, job.id);
        let Some(recorded) = &mut self.recorded else {
            let in_batch = self.in_batch;
            job.spec.settings.trace = self.caller.clone().map(|context| SubmittedTrace { context, in_batch });
            return;
        };
        let own = match &recorded.batch {
            Some(_) => recorded.traces.own_place(job.id.occurrence(1)),
            None => recorded.traces.submit_place(job, self.caller.as_ref()),
        };
        let stored = recorded.batch.as_ref().unwrap_or(&own);
        let follows_from_id = recorded.batch.is_none() && is_at_once;
        if self.caller.is_some() || (stored.is_sampled && !follows_from_id) {
            let trace = SubmittedTrace { context: stored.clone(), in_batch: self.in_batch };
            job.spec.settings.trace = Some(trace);
        }
        // Runs of a batch's jobs that start later begin with their fires.
        if own.is_sampled && (is_at_once || recorded.batch.is_none()) {
            recorded.jobs.push(TracedSubmit {
                place,
                job: job.id,
                name: job.spec.name.clone(),
                queue: job.spec.queue.clone(),
                job_type: job.spec.job_type.clone(),
                context: own,
                waits_for_jobs: !job.spec.settings.depends_on.is_empty(),
                waits_for_limit: false,
            });
        }
    }

    /// The job at this place was stored and waits for room in a limit.
    pub(crate) fn waits_for_limit(&mut self, place: usize) {
        let jobs = self.recorded.iter_mut().flat_map(|recorded| &mut recorded.jobs);
        jobs.filter(|job| job.place == place).for_each(|job| job.waits_for_limit = true);
    }

    /// Records the spans, with the answers to all jobs of the request.
    pub(crate) fn ended(self, answers: &[Result<Submitted, SubmitError>], now: Timestamp) {
        let TracedSubmission { caller, recorded, .. } = self;
        let Some(recorded) = recorded else { return };
        let mut links = Vec::new();
        for job in &recorded.jobs {
            let mut span = job.span(answers.get(job.place), (recorded.started_at, now));
            match &recorded.batch {
                Some(batch) => {
                    span.links.push(batch.clone());
                    links.push(job.context.clone());
                }
                None => span.parent = caller.as_ref().map(|caller| caller.span),
            }
            recorded.traces.record(span);
        }
        let Some(batch) = recorded.batch.filter(|batch| batch.is_sampled) else { return };
        let queue = recorded.jobs.first().map(|job| job.queue.as_str());
        let queue = queue.filter(|queue| recorded.jobs.iter().all(|job| job.queue == *queue));
        let subject = Subject { queue, ..Subject::default() };
        let mut span = Traces::span(TracedStep::Submit, subject, None, batch, (recorded.started_at, now));
        let refused = answers.iter().filter(|answer| answer.is_err()).count();
        span.attributes.push(("messaging.batch.message_count", SpanValue::number(answers.len() as u64)));
        span.attributes.push(("punctual.batch.refused", SpanValue::number(refused as u64)));
        links.truncate(limits::SPAN_LINKS_MAX);
        span.links = links;
        span.parent = caller.map(|caller| caller.span);
        recorded.traces.record(span);
    }
}

impl TracedSubmit {
    fn span(
        &self,
        answer: Option<&Result<Submitted, SubmitError>>,
        (started_at, now): (Timestamp, Timestamp),
    ) -> FinishedSpan {
        let subject =
            Subject { name: Some(&self.name), queue: Some(&self.queue), job_type: Some(&self.job_type) };
        let times = (started_at, now);
        let mut span = Traces::span(TracedStep::Submit, subject, Some(self.job), self.context.clone(), times);
        match answer {
            Some(Ok(submitted)) if submitted.is_existing => {
                span.attributes.push(("punctual.existing_job.id", SpanValue::text(submitted.job)));
            }
            Some(Ok(submitted)) => {
                if self.waits_for_jobs {
                    span.events.push(waits_event("dependency", now, None));
                }
                if let Some(until) = submitted.next_run_time.filter(|until| *until > now) {
                    span.events.push(waits_event("time", now, Some(until)));
                }
                if self.waits_for_limit {
                    span.events.push(waits_event("concurrency", now, None));
                }
            }
            Some(Err(error)) => span.error = Some(shortened(&error.to_string())),
            None => {}
        }
        span
    }
}

/// A run that a user asks for.
pub(crate) struct TriggerSpan {
    caller: Option<TraceContext>,
    /// Its own place, if the run extends the trace of the caller.
    own: Option<TraceContext>,
    started_at: Timestamp,
}

impl Traces {
    /// The span of a verb, if that asks for a run. The run follows it.
    pub(crate) fn trigger(&self, verb: &mut Verb, started_at: Timestamp) -> Option<TriggerSpan> {
        let input = match verb {
            Verb::Trigger { input, .. } => input,
            Verb::TriggerAfter(_) => return Some(TriggerSpan { caller: None, own: None, started_at }),
            _ => return None,
        };
        let caller = input.as_ref().and_then(|input| input.trace.clone());
        let own = caller.as_ref().map(|caller| caller.at(self.random_span()));
        if let (Some(input), Some(own)) = (input, &own) {
            *input = Arc::new(RunInput { trace: Some(own.clone()), ..RunInput::clone(input) });
        }
        Some(TriggerSpan { caller, own, started_at })
    }

    pub(crate) fn triggered(&self, trigger: TriggerSpan, added: Option<ExecutionId>, now: Timestamp) {
        let Some(added) = added else { return };
        let context = trigger.own.unwrap_or_else(|| self.own_place(added.occurrence));
        if !context.is_sampled {
            return;
        }
        let (job, times) = (Some(added.occurrence.job), (trigger.started_at, now));
        let mut span = Traces::span(TracedStep::Trigger, Subject::default(), job, context, times);
        span.parent = trigger.caller.map(|caller| caller.span);
        span.attributes.push(("punctual.execution.id", SpanValue::text(added)));
        self.record(span);
    }
}
