//! One handler: parses its payload, serializes its result, and provides its context.

use punctual_core::causes::in_full;
use punctual_core::documents::DocumentProblem;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};
use punctual_core::log_level::LogLevel;
use punctual_core::notes::{Checkpoint, CheckpointProblem, CheckpointTooLarge, Percent, Progress};
use punctual_core::ports::{
    Assignment, ExecutionContext, Executor, LogSink, LogStream, NoteError, NoteSink, Outcome, Stop,
    StopSignal, Task,
};
use punctual_core::retry::ChosenTime;
use punctual_core::time::Timestamp;
use punctual_core::trace_context::TraceContext;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What a handler knows about its run.
#[derive(Clone)]
pub struct Context {
    assignment: Assignment,
    deadline: Timestamp,
    logs: Arc<dyn LogSink>,
    notes: Arc<dyn NoteSink>,
    stop: Arc<dyn StopSignal>,
    cancellation: Cancellation,
}

impl Context {
    pub fn execution_id(&self) -> ExecutionId {
        self.assignment.execution
    }

    pub fn job_id(&self) -> JobId {
        self.assignment.execution.occurrence.job
    }

    /// The name of the job.
    pub fn name(&self) -> &str {
        &self.assignment.name
    }

    pub fn job_type(&self) -> &str {
        &self.assignment.job_type
    }

    pub fn queue(&self) -> &str {
        &self.assignment.queue
    }

    /// Counts the runs of the occurrence from 1.
    pub fn attempt_number(&self) -> u32 {
        self.assignment.execution.attempt
    }

    /// The scheduled time of the run.
    pub fn scheduled_time(&self) -> Timestamp {
        self.assignment.scheduled_time
    }

    /// The same for every attempt of the occurrence: pass it to anything that must not happen twice.
    pub fn idempotency_key(&self) -> OccurrenceId {
        self.assignment.idempotency_key()
    }

    /// The place of this attempt in a trace, as the header `traceparent` of the W3C standard "Trace Context". Give it to
    /// your tracing library as the parent of the handler's spans.
    pub fn traceparent(&self) -> Option<String> {
        self.assignment.trace_context().map(TraceContext::traceparent)
    }

    /// The header `tracestate` that goes along with [`Context::traceparent`].
    pub fn tracestate(&self) -> Option<&str> {
        self.assignment.trace_context().and_then(TraceContext::tracestate)
    }

    /// When the attempt will time out, in server time.
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Adds a line to the log of this run. Waits while too many lines are in flight.
    pub async fn log(&self, message: impl Into<String>) {
        self.logs.append(LogStream::Log, message.into()).await;
    }

    /// Adds a line with a level, such as [`LogLevel::Error`].
    pub async fn log_at(&self, level: LogLevel, message: impl AsRef<str>) {
        self.logs.append(LogStream::Log, format!("{}{}", level.prefix(), message.as_ref())).await;
    }

    /// The checkpoint that an earlier attempt saved, if any: where to continue.
    pub fn checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>, serde_json::Error> {
        let checkpoint = self.assignment.checkpoint.as_ref();
        checkpoint.map(|checkpoint| serde_json::from_str(checkpoint.as_json())).transpose()
    }

    /// Saves a document for the next attempt, replacing the previous one. Returns when it is durable; at most
    /// 64 KiB of JSON, nested at most 100 levels deep.
    pub async fn save_checkpoint<T: Serialize + ?Sized>(
        &self,
        checkpoint: &T,
    ) -> Result<(), CheckpointError> {
        let checkpoint = Checkpoint::new(serde_json::to_string(checkpoint)?)?;
        Ok(self.notes.checkpoint(checkpoint).await?)
    }

    /// Reports progress, from 0 to 100. Call it as often as you like: the latest value is sent about twice a
    /// second.
    pub fn progress(&self, percent: f64, message: impl Into<String>) {
        let percent = Percent::nearest(percent);
        self.notes.progress(Progress { percent, message: Some(message.into()) });
    }

    /// Waits until the handler is asked to stop: cancelled, timed out, or its worker is shut down. It then
    /// has the worker's `stop_grace` to save a checkpoint and return; without one it is dropped.
    pub async fn stopping(&self) {
        self.stop.requested(Stop::Politely).await;
    }

    /// Signals the end of the run to anything that the handler has spawned.
    pub fn cancellation(&self) -> Cancellation {
        self.cancellation.clone()
    }
}

/// Why a checkpoint may not have been stored.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error(transparent)]
    TooLarge(#[from] CheckpointTooLarge),
    #[error("the checkpoint {0}")]
    Document(#[from] DocumentProblem),
    #[error("the checkpoint cannot be written as JSON")]
    NotJson(#[from] serde_json::Error),
    #[error(transparent)]
    NotKept(#[from] NoteError),
}

impl From<CheckpointProblem> for CheckpointError {
    fn from(problem: CheckpointProblem) -> Self {
        match problem {
            CheckpointProblem::TooLarge(problem) => CheckpointError::TooLarge(problem),
            CheckpointProblem::Document(problem) => CheckpointError::Document(problem),
        }
    }
}

/// Whether a run is over: cancelled, timed out, its lease lost, or finished.
///
/// A handler itself need not check: its future is dropped at its next `await`. Tasks or threads that it has
/// spawned continue unless they check here.
#[derive(Debug, Clone)]
pub struct Cancellation(watch::Receiver<()>);

impl Cancellation {
    pub fn is_cancelled(&self) -> bool {
        // Nothing is ever sent: the sender is dropped with the run.
        self.0.has_changed().is_err()
    }

    /// Waits until the run is over.
    pub async fn cancelled(&self) {
        let mut run = self.0.clone();
        while run.changed().await.is_ok() {}
    }
}

/// Why a handler failed. Every error converts to one that is retried, so that `?` works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerError {
    message: String,
    is_retryable: bool,
    retry_at: Option<ChosenTime>,
    is_snooze: bool,
}

impl HandlerError {
    /// A failure that another attempt may fix.
    pub fn new(message: impl Into<String>) -> Self {
        HandlerError { message: message.into(), is_retryable: true, retry_at: None, is_snooze: false }
    }

    /// A failure that no attempt can fix: the job fails at once.
    pub fn permanent(message: impl Into<String>) -> Self {
        HandlerError { is_retryable: false, ..HandlerError::new(message) }
    }

    /// Not a failure: the run should come again after this time. It uses up no retry. An occurrence may be snoozed
    /// 100 times, for at most 366 days each.
    pub fn snooze(delay: Duration) -> Self {
        let retry_at = Some(ChosenTime::After(delay));
        HandlerError { retry_at, is_snooze: true, ..HandlerError::new("snoozed") }
    }

    /// The same failure, retried after this time instead of the delay of the job's retry policy.
    pub fn retry_after(self, delay: Duration) -> Self {
        HandlerError { retry_at: Some(ChosenTime::After(delay)), ..self }
    }

    /// The same failure, retried at this time.
    pub fn retry_at(self, at: Timestamp) -> Self {
        HandlerError { retry_at: Some(ChosenTime::At(at)), ..self }
    }

    fn into_outcome(self) -> Outcome {
        match (self.is_snooze, self.retry_at) {
            (true, Some(until)) => Outcome::Snoozed { until },
            (_, retry_at) => Outcome::Failed { error: self.message, retryable: self.is_retryable, retry_at },
        }
    }
}

impl<E: std::error::Error> From<E> for HandlerError {
    fn from(error: E) -> Self {
        HandlerError::new(in_full(&error))
    }
}

/// A function from a payload to a result, as an executor.
pub(super) struct Typed<P, F> {
    job_type: String,
    function: Arc<F>,
    payload: PhantomData<fn(P)>,
}

impl<P, F> Typed<P, F> {
    pub(super) fn new(job_type: String, function: F) -> Self {
        Typed { job_type, function: Arc::new(function), payload: PhantomData }
    }
}

impl<P, R, F, Running> Executor for Typed<P, F>
where
    P: DeserializeOwned + Send + 'static,
    R: Serialize + 'static,
    F: Fn(Context, P) -> Running + Send + Sync + 'static,
    Running: Future<Output = Result<R, HandlerError>> + Send + 'static,
{
    fn job_types(&self) -> Vec<String> {
        vec![self.job_type.clone()]
    }

    fn execute(&self, context: ExecutionContext) -> Task<Outcome> {
        let function = self.function.clone();
        let ExecutionContext { assignment, deadline, logs, notes, stop, results: _ } = context;
        Box::pin(async move {
            let (_running, run) = watch::channel(());
            let payload = match serde_json::from_str(&assignment.payload) {
                Ok(payload) => payload,
                Err(error) => return failed(format!("the payload does not fit the handler: {error}")),
            };
            let cancellation = Cancellation(run);
            let context = Context { assignment, deadline, logs, notes, stop, cancellation };
            match function(context, payload).await {
                Ok(result) => succeeded(&result),
                Err(error) => error.into_outcome(),
            }
        })
    }
}

/// A handler that may clean up for a while when it is asked to stop.
pub(super) struct Graceful {
    pub(super) handler: Arc<dyn Executor>,
    pub(super) grace: Duration,
}

impl Executor for Graceful {
    fn job_types(&self) -> Vec<String> {
        self.handler.job_types()
    }

    fn execute(&self, context: ExecutionContext) -> Task<Outcome> {
        let stop = context.stop.clone();
        let running = self.handler.execute(context);
        Box::pin(async move {
            tokio::select! {
                biased;
                // Another worker may start the same execution at any moment: there is no time to clean up.
                () = stop.requested(Stop::AtOnce) => {
                    Outcome::Interrupted { error: "the lease of the run was lost".to_owned() }
                }
                outcome = running => outcome,
            }
        })
    }

    fn stop_time_max(&self, _assignment: &Assignment) -> Duration {
        self.grace
    }
}

fn succeeded(result: &impl Serialize) -> Outcome {
    match serde_json::to_string(result) {
        // `null` means no result.
        Ok(text) if text == "null" => Outcome::Succeeded { result: None },
        Ok(text) => Outcome::Succeeded { result: Some(text) },
        Err(error) => failed(format!("the result cannot be written as JSON: {error}")),
    }
}

fn failed(error: String) -> Outcome {
    Outcome::failed_for_good(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use punctual_core::ids::Epoch;
    use punctual_core::ports::{BlobError, BlobSource, ResultSink};
    use std::sync::Mutex;

    struct Nowhere;

    #[async_trait]
    impl ResultSink for Nowhere {
        async fn store(&self, _: Arc<dyn BlobSource>) -> Result<String, BlobError> {
            Err(BlobError::NotFound)
        }
    }

    #[async_trait]
    impl LogSink for Nowhere {
        async fn append(&self, _: LogStream, _: String) {}
    }

    #[async_trait]
    impl StopSignal for Nowhere {
        async fn requested(&self, _: Stop) {
            std::future::pending::<()>().await;
        }
    }

    /// Records notes.
    #[derive(Default)]
    struct Notebook {
        progress: Mutex<Vec<Progress>>,
        checkpoints: Mutex<Vec<Checkpoint>>,
    }

    #[async_trait]
    impl NoteSink for Notebook {
        fn progress(&self, progress: Progress) {
            self.progress.lock().unwrap().push(progress);
        }

        async fn checkpoint(&self, checkpoint: Checkpoint) -> Result<(), NoteError> {
            self.checkpoints.lock().unwrap().push(checkpoint);
            Ok(())
        }
    }

    /// A stop that has been requested.
    struct Stopped(Stop);

    #[async_trait]
    impl StopSignal for Stopped {
        async fn requested(&self, stop: Stop) {
            if stop > self.0 {
                std::future::pending::<()>().await;
            }
        }
    }

    fn context(payload: &str) -> ExecutionContext {
        ExecutionContext {
            assignment: Assignment {
                execution: JobId::new(Timestamp::EPOCH, 1).occurrence(1).attempt(2),
                epoch: Epoch(1),
                job_version: 1,
                name: "double".to_owned(),
                job_type: "double".to_owned(),
                queue: "default".to_owned(),
                payload: payload.to_owned(),
                timeout: Duration::from_secs(1),
                scheduled_time: Timestamp::EPOCH,
                available_at: Timestamp::EPOCH,
                rank: 0,
                checkpoint: None,
                result_overflow: Default::default(),
                trace: None,
            },
            deadline: Timestamp::from_micros(1_000_000),
            logs: Arc::new(Nowhere),
            notes: Arc::new(Notebook::default()),
            results: Arc::new(Nowhere),
            stop: Arc::new(Nowhere),
        }
    }

    async fn run<R: Serialize + 'static>(
        payload: &str,
        answer: fn(u32) -> Result<R, HandlerError>,
    ) -> Outcome {
        let handler = Typed::new("double".to_owned(), move |context: Context, number: u32| async move {
            assert_eq!(context.attempt_number(), 2);
            answer(number)
        });
        handler.execute(context(payload)).await
    }

    #[tokio::test]
    async fn payload_and_result_are_typed() {
        assert_eq!(
            run("21", |number| Ok(number * 2)).await,
            Outcome::Succeeded { result: Some("42".to_owned()) }
        );
        assert_eq!(run("21", |_| Ok(())).await, Outcome::Succeeded { result: None });
        let misfit = run("\"x\"", Ok).await;
        assert!(matches!(misfit, Outcome::Failed { retryable: false, .. }), "{misfit:?}");
    }

    #[tokio::test]
    async fn errors_are_retried_unless_they_are_permanent() {
        let io = run("1", |_| -> Result<(), _> { Err(std::io::Error::other("gone"))? }).await;
        assert_eq!(io, Outcome::failed("gone".to_owned()));
        let permanent =
            run("1", |_| -> Result<(), _> { Err(HandlerError::permanent("no such image")) }).await;
        assert_eq!(permanent, Outcome::failed_for_good("no such image".to_owned()));
        const DELAY: Duration = Duration::from_secs(600);
        let until = ChosenTime::After(DELAY);
        let later =
            run("1", |_| -> Result<(), _> { Err(HandlerError::new("busy").retry_after(DELAY)) }).await;
        assert_eq!(
            later,
            Outcome::Failed { error: "busy".to_owned(), retryable: true, retry_at: Some(until) }
        );
        let snoozed = run("1", |_| -> Result<(), _> { Err(HandlerError::snooze(DELAY)) });
        assert_eq!(snoozed.await, Outcome::Snoozed { until });
    }

    #[tokio::test]
    async fn checkpoints_are_typed_and_told_when_they_are_too_large() {
        let handler = Typed::new("double".to_owned(), |context: Context, (): ()| async move {
            let done: u32 = context.checkpoint()?.unwrap_or_default();
            context.progress(250.0, "");
            context.save_checkpoint(&(done + 1)).await?;
            let too_large = context.save_checkpoint(&"x".repeat(64 * 1024)).await.unwrap_err();
            assert_eq!(
                too_large.to_string(),
                "the checkpoint has 65538 bytes, more than the 65536 that are kept"
            );
            Ok(done)
        });
        let notebook = Arc::new(Notebook::default());
        let mut run = context("null");
        run.assignment.checkpoint = Checkpoint::new("41").ok();
        run.notes = notebook.clone();
        assert_eq!(handler.execute(run).await, Outcome::Succeeded { result: Some("41".to_owned()) });
        assert_eq!(*notebook.checkpoints.lock().unwrap(), [Checkpoint::new("42").unwrap()]);
        assert_eq!(notebook.progress.lock().unwrap()[0].percent, Percent::new(100.0));
        let mut misfit = context("null");
        misfit.assignment.checkpoint = Checkpoint::new("\"text\"").ok();
        assert!(matches!(handler.execute(misfit).await, Outcome::Failed { retryable: true, .. }));
    }

    #[tokio::test]
    async fn a_handler_with_grace_hears_of_a_polite_stop_and_is_dropped_on_an_urgent_one() {
        let handler = Arc::new(Typed::new("double".to_owned(), |context: Context, (): ()| async move {
            context.stopping().await;
            context.save_checkpoint(&1).await?;
            Ok(())
        }));
        let grace = Duration::from_secs(9);
        let graceful = Graceful { handler, grace };
        let run = |stop| ExecutionContext { stop: Arc::new(Stopped(stop)), ..context("null") };
        assert_eq!(graceful.stop_time_max(&context("null").assignment), grace);
        assert_eq!(graceful.execute(run(Stop::Politely)).await, Outcome::Succeeded { result: None });
        let outcome = graceful.execute(run(Stop::AtOnce)).await;
        assert!(matches!(outcome, Outcome::Interrupted { .. }), "{outcome:?}");
    }

    #[tokio::test]
    async fn what_a_handler_has_spawned_hears_that_the_run_is_over() {
        let (tell, mut told) = watch::channel(None);
        let handler = Typed::new("double".to_owned(), move |context: Context, (): ()| {
            tell.send_replace(Some(context.cancellation()));
            std::future::pending::<Result<(), HandlerError>>()
        });
        let run = tokio::spawn(handler.execute(context("null")));
        let cancellation = told.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        assert!(!cancellation.is_cancelled());
        run.abort();
        cancellation.cancelled().await;
        assert!(cancellation.is_cancelled());
    }
}
