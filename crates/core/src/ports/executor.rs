//! Running handlers.

use crate::documents::result_problem;
use crate::lifecycle::Ending;
use crate::limits;
use crate::notes::{Checkpoint, Progress};
use crate::occurrence::ReportedEnd;
use crate::ports::{Assignment, BlobError, BlobSource, LogStream, Task};
use crate::retry::ChosenTime;
use crate::time::Timestamp;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// Runs executions of one or more job types.
///
/// The caller drops the returned future to stop the handler: on timeout, cancel, or a lost lease. Nothing
/// must keep running after that.
pub trait Executor: Send + Sync {
    /// The job types that this executor runs.
    fn job_types(&self) -> Vec<String>;
    fn execute(&self, context: ExecutionContext) -> Task<Outcome>;
    /// How long a handler may take to end after it was asked to stop. The end of its attempt is reported only
    /// then, so that the next attempt does not run in parallel. With zero, the handler is dropped at once.
    fn stop_time_max(&self, _assignment: &Assignment) -> Duration {
        Duration::ZERO
    }
}

/// The input of a handler, and the ports that it may use.
#[derive(Clone)]
pub struct ExecutionContext {
    pub assignment: Assignment,
    /// When the attempt times out.
    pub deadline: Timestamp,
    /// The log of this execution.
    pub logs: Arc<dyn LogSink>,
    /// The progress and checkpoints of this execution.
    pub notes: Arc<dyn NoteSink>,
    /// Where a result goes that is too large for the database.
    pub results: Arc<dyn ResultSink>,
    pub stop: Arc<dyn StopSignal>,
}

/// The log of one execution.
#[async_trait]
pub trait LogSink: Send + Sync {
    /// Appends a line after all earlier ones. Waits while too many lines are buffered: a handler that writes
    /// faster than the server stores is slowed down to its pace, and no other handler is.
    async fn append(&self, stream: LogStream, message: String);
}

/// Stores a large result of one execution.
#[async_trait]
pub trait ResultSink: Send + Sync {
    /// Stores the result as a blob, and returns the reference that is the result instead, as JSON text. Tries again
    /// while the server cannot be reached.
    async fn store(&self, result: Arc<dyn BlobSource>) -> Result<String, BlobError>;
}

/// The notes of one execution.
#[async_trait]
pub trait NoteSink: Send + Sync {
    /// Reports the progress of the execution. Never waits: only the latest value is sent, at the next
    /// interval.
    fn progress(&self, progress: Progress);
    /// Stores a document for the next attempt of the occurrence, in place of the previous one. Returns when
    /// it is durable.
    async fn checkpoint(&self, checkpoint: Checkpoint) -> Result<(), NoteError>;
}

/// Why a checkpoint is not known to be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// The run has ended, or another worker has taken over: its notes are no longer accepted.
    #[error("the checkpoint was not stored: the lease of this run is gone")]
    LeaseLost,
    /// It may or may not be stored.
    #[error("the checkpoint may not have been stored: no answer within {} seconds", limits::CHECKPOINT_WAIT_MAX.as_secs())]
    Unanswered,
}

/// Asks a handler to stop.
#[async_trait]
pub trait StopSignal: Send + Sync {
    /// Waits until a stop at least as urgent as this one is requested.
    async fn requested(&self, stop: Stop);

    /// The handler's work had ended before it was asked to stop, and what took so long was only cleaning up:
    /// its own outcome counts, not a timeout.
    fn ended_before(&self) {}
}

/// How urgently a handler must stop, each more urgent than the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// It timed out, was cancelled, or its worker shuts down: it may clean up first.
    Politely,
    /// Its lease is lost: another worker may start the same execution at any moment.
    AtOnce,
}

/// How a handler ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// With a result as JSON text, or none.
    Succeeded {
        result: Option<String>,
    },
    Failed {
        error: String,
        retryable: bool,
        /// When to try again; the retry policy decides if there is none.
        retry_at: Option<ChosenTime>,
    },
    /// It wants to run again later. This is no failure and uses up no retry.
    Snoozed {
        until: ChosenTime,
    },
    TimedOut,
    Cancelled,
    /// Its worker had to stop it. As with a worker that stopped responding, how far it came is unknown, and
    /// the job is not known to be at fault.
    Interrupted {
        error: String,
    },
}

impl Outcome {
    /// A failure that another attempt may fix.
    pub fn failed(error: String) -> Self {
        Outcome::Failed { error, retryable: true, retry_at: None }
    }

    /// A failure that no attempt can fix.
    pub fn failed_for_good(error: String) -> Self {
        Outcome::Failed { error, retryable: false, retry_at: None }
    }

    /// The end of an attempt whose result was stored as a blob, or could not be.
    pub fn with_stored(result: Result<String, BlobError>) -> Self {
        match result {
            Ok(reference) => Outcome::Succeeded { result: Some(reference) },
            Err(error @ (BlobError::TooLarge { .. } | BlobError::Refused(_))) => Outcome::failed_for_good(
                format!("the result was not stored (result_overflow: blob): {error}"),
            ),
            Err(error) => {
                Outcome::failed(format!("the result was not stored (result_overflow: blob): {error}"))
            }
        }
    }

    /// Applies the limits: a result that is too large or nested too deep fails the attempt without retry, an
    /// error message that is too long is truncated.
    pub fn within_limits(self) -> Self {
        match self {
            Outcome::Succeeded { result: Some(result) } => match result_problem(&result) {
                Some(error) => Outcome::failed_for_good(error),
                None => Outcome::Succeeded { result: Some(result) },
            },
            Outcome::Failed { error, retryable, retry_at } => {
                Outcome::Failed { error: cut(error), retryable, retry_at }
            }
            Outcome::Interrupted { error } => Outcome::Interrupted { error: cut(error) },
            outcome => outcome,
        }
    }

    /// The end of the run with this outcome.
    pub fn into_end(self, started_at: Timestamp, completed_at: Timestamp) -> ReportedEnd {
        let next_at = match &self {
            Outcome::Failed { retry_at, .. } => *retry_at,
            Outcome::Snoozed { until } => Some(*until),
            _ => None,
        };
        let (ending, retryable, error, result) = match self {
            Outcome::Succeeded { result } => (Ending::Succeeded, false, None, result),
            Outcome::Failed { error, retryable, .. } => (Ending::Failed, retryable, Some(error), None),
            Outcome::Snoozed { .. } => (Ending::Snoozed, true, None, None),
            Outcome::TimedOut => {
                (Ending::TimedOut, true, Some("the attempt ran out of time".to_owned()), None)
            }
            Outcome::Cancelled => (Ending::Cancelled, false, None, None),
            Outcome::Interrupted { error } => (Ending::Lost, true, Some(error), None),
        };
        ReportedEnd { ending, retryable, next_at, started_at: Some(started_at), completed_at, error, result }
    }
}

/// Marks where an error was truncated; counts towards its length.
const CUT: &str = " […]";

fn cut(error: String) -> String {
    if error.len() <= limits::ERROR_BYTES_MAX {
        return error;
    }
    format!("{}{CUT}", &error[..error.floor_char_boundary(limits::ERROR_BYTES_MAX - CUT.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_to_keep_is_noticed_or_cut() {
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        let succeeded = |bytes| Outcome::Succeeded { result: Some(text(bytes)) }.within_limits();
        assert!(matches!(succeeded(limits::RESULT_BYTES_MAX), Outcome::Succeeded { .. }));
        let too_large = succeeded(limits::RESULT_BYTES_MAX + 1);
        assert!(matches!(too_large, Outcome::Failed { retryable: false, .. }), "{too_large:?}");
        let nested = |depth: usize| Some(format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
        let too_deep = Outcome::Succeeded { result: nested(30_000) }.within_limits();
        let error = "the result nests arrays and objects more than 100 deep".to_owned();
        assert_eq!(too_deep, Outcome::failed_for_good(error));
        let failed = |error: String| match Outcome::failed(error).within_limits() {
            Outcome::Failed { error, retryable: true, .. } => error,
            other => panic!("{other:?}"),
        };
        assert_eq!(failed("short".to_owned()), "short");
        let long = failed("ü".repeat(limits::ERROR_BYTES_MAX));
        assert!(long.ends_with(" […]") && long.len() <= limits::ERROR_BYTES_MAX);
    }
}
