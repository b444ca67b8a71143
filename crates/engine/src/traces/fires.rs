//! Fires of schedules. The span of a fire begins the trace of its run and links to the trace of the submit.

use super::{Subject, TracedJob, TracedStep, Traces, lock, waits_event};
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::limits;
use punctual_core::ports::{Lane, SpanValue};
use punctual_core::time::Timestamp;
use std::sync::Arc;

/// An occurrence that was fired.
pub(crate) struct FiredRun {
    pub occurrence: OccurrenceId,
    pub scheduled_time: Timestamp,
    pub lane: Lane,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub waits_for_limit: bool,
}

impl Traces {
    /// Records the spans of fires that were committed. The facts about jobs that are unknown here are read beside.
    pub(crate) fn fired(self: &Arc<Self>, runs: Vec<FiredRun>) {
        let mut unknown = Vec::new();
        for run in runs {
            if !self.own_place(run.occurrence).is_sampled {
                continue;
            }
            match self.known_job(run.occurrence.job) {
                Some(job) => self.record_fire(&run, &job),
                None => unknown.push(run),
            }
        }
        if unknown.is_empty() {
            return;
        }
        let (traces, count) = (self.clone(), unknown.len());
        self.read_beside(
            count,
            Box::pin(async move {
                for run in unknown {
                    match traces.read_job(run.occurrence.job).await {
                        Some(job) => traces.record_fire(&run, &job),
                        None => traces.left_out(1),
                    }
                }
                traces.read_ended(count);
            }),
        );
    }

    fn record_fire(&self, run: &FiredRun, job: &TracedJob) {
        let subject = Subject {
            name: Some(&job.name),
            queue: Some(run.lane.queue()),
            job_type: Some(run.lane.job_type()),
        };
        let (context, id) = (self.own_place(run.occurrence), run.occurrence.job);
        let mut span =
            Traces::span(TracedStep::Fire, subject, Some(id), context, (run.started_at, run.ended_at));
        let late = run.ended_at.since(run.scheduled_time).as_millis();
        span.attributes.extend([
            ("punctual.occurrence", SpanValue::number(run.occurrence.number)),
            ("punctual.scheduled_time", SpanValue::text(run.scheduled_time)),
            ("punctual.lateness_ms", SpanValue::number(late)),
        ]);
        if run.waits_for_limit {
            span.events.push(waits_event("concurrency", run.ended_at, None));
        }
        span.links.extend(job.submitted_in.clone());
        self.record(span);
    }

    /// Remembers the facts about a job for its next fires.
    pub(crate) fn know_job(&self, id: JobId, job: TracedJob) {
        let mut jobs = lock(&self.jobs);
        if jobs.len() >= limits::TRACED_JOBS_MAX {
            jobs.pop_first();
        }
        jobs.insert(id, (self.host.clock.monotonic(), job));
    }

    fn known_job(&self, id: JobId) -> Option<TracedJob> {
        let now = self.host.clock.monotonic();
        let jobs = lock(&self.jobs);
        let (known_at, job) = jobs.get(&id)?;
        (now.since(*known_at) < limits::TRACED_JOB_AGE_MAX).then(|| job.clone())
    }

    async fn read_job(&self, id: JobId) -> Option<TracedJob> {
        let spec = self.store.job(id).await.ok()??.job.spec;
        let job = TracedJob { name: spec.name, submitted_in: spec.settings.trace.map(|trace| trace.context) };
        self.know_job(id, job.clone());
        Some(job)
    }
}
