//! The spans of a node: submits, fires, claims, attempts and reports ([`submits`], [`runs`], [`fires`]).
//!
//! The engine records all of them, also those of attempts, when their reports are stored: workers in any language need
//! no exporter, and the span shows the recorded status. The ids follow from the ids of executions, so the worker gets the
//! id of its attempt's span with the assignment. Nothing waits for a span: where the engine lacks facts about a job, it
//! reads them in a task of its own.

mod fires;
mod runs;
mod submits;

pub(crate) use fires::FiredRun;
pub(crate) use runs::{EndedRun, ReportedRun};
pub(crate) use submits::TriggerSpan;

use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::ports::{
    FinishedSpan, Host, SpanEvent, SpanFigures, SpanKind, SpanSink, SpanValue, Store, Task,
};
use punctual_core::time::{Monotonic, Timestamp};
use punctual_core::trace_context::{RunTrace, SampleRatio, SpanId, TraceContext, TraceId};
use runs::TracedRun;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a node records spans.
#[derive(Debug, Clone)]
pub struct TracingConfig {
    pub sink: Arc<dyn SpanSink>,
    /// The share of traces that begin here and are recorded. A trace that a caller began is recorded if the caller
    /// records it.
    pub sample: SampleRatio,
}

pub(crate) struct Traces {
    config: TracingConfig,
    host: Host,
    store: Arc<dyn Store>,
    /// Executions that were leased on this node and have not ended.
    runs: Mutex<BTreeMap<ExecutionId, TracedRun>>,
    jobs: Mutex<BTreeMap<JobId, (Monotonic, TracedJob)>>,
    /// The names of workers.
    sessions: Mutex<BTreeMap<SessionId, String>>,
    /// The latest recorded run of each bucket of durations.
    exemplars: Mutex<Exemplars>,
    /// Reads in progress.
    reads: AtomicUsize,
    /// Spans without facts: the node read too much already, or the job is gone.
    incomplete: AtomicU64,
}

/// Recorded runs by outcome and by the bucket of their duration, for histograms.
pub type Exemplars = BTreeMap<(Status, usize), Exemplar>;

/// A run that stands for others of about the same duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exemplar {
    pub trace: TraceId,
    pub duration: Duration,
    pub at: Timestamp,
}

/// The facts about a job for the spans of its runs.
#[derive(Debug, Clone)]
pub(crate) struct TracedJob {
    pub name: String,
    /// The trace that it was submitted in.
    pub submitted_in: Option<TraceContext>,
}

/// The place of a run: the span that its own spans follow, and the span of another trace that it links to.
#[derive(Debug, Clone)]
struct RunPlace {
    root: TraceContext,
    link: Option<TraceContext>,
}

/// What a span is about, by the messaging conventions of OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TracedStep {
    Submit,
    Trigger,
    Fire,
    Claim,
    Attempt,
    Report,
}

impl TracedStep {
    const fn name(self) -> &'static str {
        match self {
            TracedStep::Submit => "submit",
            TracedStep::Trigger => "trigger",
            TracedStep::Fire => "fire",
            TracedStep::Claim => "claim",
            TracedStep::Attempt => "attempt",
            TracedStep::Report => "report",
        }
    }

    /// The `messaging.operation.type`.
    const fn word(self) -> &'static str {
        match self {
            TracedStep::Submit | TracedStep::Trigger => "send",
            TracedStep::Fire => "create",
            TracedStep::Claim => "receive",
            TracedStep::Attempt => "process",
            TracedStep::Report => "settle",
        }
    }

    const fn kind(self) -> SpanKind {
        match self {
            TracedStep::Submit | TracedStep::Trigger | TracedStep::Fire => SpanKind::Producer,
            TracedStep::Claim | TracedStep::Attempt => SpanKind::Consumer,
            TracedStep::Report => SpanKind::Internal,
        }
    }
}

/// The job of a span, as far as it is known.
#[derive(Debug, Clone, Copy, Default)]
struct Subject<'a> {
    name: Option<&'a str>,
    queue: Option<&'a str>,
    job_type: Option<&'a str>,
}

impl Traces {
    pub(crate) fn new(config: TracingConfig, host: &Host, store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Traces {
            config,
            host: host.clone(),
            store,
            runs: Mutex::default(),
            jobs: Mutex::default(),
            sessions: Mutex::default(),
            exemplars: Mutex::default(),
            reads: AtomicUsize::new(0),
            incomplete: AtomicU64::new(0),
        })
    }

    pub(crate) fn figures(&self) -> SpanFigures {
        let figures = self.config.sink.figures();
        SpanFigures { dropped: figures.dropped + self.incomplete.load(Ordering::Relaxed), ..figures }
    }

    pub(crate) fn exemplars(&self) -> Exemplars {
        lock(&self.exemplars).clone()
    }

    pub(crate) fn opened(&self, session: SessionId, worker: String) {
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= limits::TRACED_SESSIONS_MAX {
            sessions.pop_first();
        }
        sessions.insert(session, worker);
    }

    fn worker(&self, session: SessionId) -> Option<String> {
        lock(&self.sessions).get(&session).cloned()
    }

    fn random_span(&self) -> SpanId {
        SpanId::new(self.host.random.next_u64()).unwrap_or_else(|| self.random_span())
    }

    fn random_trace(&self) -> TraceId {
        let (high, low) = (self.host.random.next_u64(), self.host.random.next_u64());
        TraceId::new(u128::from(high) << 64 | u128::from(low)).unwrap_or_else(|| self.random_trace())
    }

    /// The place of a run that has a trace of its own.
    fn own_place(&self, occurrence: OccurrenceId) -> TraceContext {
        let trace = TraceId::of_run(occurrence);
        TraceContext::new(trace, SpanId::of_root(occurrence), self.config.sample.keeps(trace))
    }

    fn place(&self, occurrence: OccurrenceId, trace: Option<RunTrace>) -> RunPlace {
        match trace {
            Some(RunTrace { context, is_linked: false }) => RunPlace { root: context, link: None },
            linked => RunPlace { root: self.own_place(occurrence), link: linked.map(|trace| trace.context) },
        }
    }

    /// A span without events and links, with the attributes that all of them have.
    fn span(
        operation: TracedStep,
        subject: Subject<'_>,
        job: Option<JobId>,
        context: TraceContext,
        (started_at, ended_at): (Timestamp, Timestamp),
    ) -> FinishedSpan {
        let name = match subject.queue {
            Some(queue) => format!("{} {queue}", operation.name()),
            None => operation.name().to_owned(),
        };
        let mut attributes = vec![
            ("messaging.system", SpanValue::text("punctual")),
            ("messaging.operation.name", SpanValue::text(operation.name())),
            ("messaging.operation.type", SpanValue::text(operation.word())),
        ];
        let optional = [
            ("messaging.destination.name", subject.queue),
            ("punctual.job.name", subject.name),
            ("punctual.job.type", subject.job_type),
        ];
        attributes
            .extend(optional.into_iter().filter_map(|(key, value)| Some((key, SpanValue::text(value?)))));
        attributes.extend(job.map(|job| ("punctual.job.id", SpanValue::text(job))));
        FinishedSpan {
            name,
            kind: operation.kind(),
            context,
            parent: None,
            started_at,
            ended_at: ended_at.max(started_at),
            attributes,
            events: vec![],
            links: vec![],
            error: None,
        }
    }

    fn record(&self, span: FinishedSpan) {
        self.config.sink.record(span);
    }

    /// Runs a read of the store beside everything else, unless there are too many of them.
    fn read_beside(&self, spans: usize, read: Task) {
        let slots = self.reads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reads| {
            (reads < limits::TRACED_READS_MAX).then_some(reads + spans)
        });
        match slots {
            Ok(_) => self.host.spawn.spawn(read),
            Err(_) => self.left_out(spans),
        }
    }

    fn read_ended(&self, spans: usize) {
        self.reads.fetch_sub(spans, Ordering::Relaxed);
    }

    fn left_out(&self, spans: usize) {
        self.incomplete.fetch_add(spans as u64, Ordering::Relaxed);
    }
}

/// An execution waits behind a gate or for a limit.
fn waits_event(gate: &'static str, at: Timestamp, until: Option<Timestamp>) -> SpanEvent {
    let mut attributes = vec![("punctual.gate", SpanValue::text(gate))];
    attributes.extend(until.map(|until| ("punctual.gate.until", SpanValue::text(until))));
    SpanEvent { name: "punctual.waits", at, attributes }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The beginning of an error message.
fn shortened(error: &str) -> String {
    error[..error.floor_char_boundary(limits::SPAN_ERROR_BYTES_MAX)].to_owned()
}
