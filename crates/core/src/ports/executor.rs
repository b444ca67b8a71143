//! Running handlers.

use crate::documents::result_problem;
use crate::lifecycle::Ending;
use crate::limits;
use crate::notes::{Checkpoint, Progress};
use crate::occurrence::End;
use crate::ports::{Assignment, LogStream, Task};
use crate::time::Timestamp;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// Runs executions of one or more job types.
///
/// The returned future is dropped to stop the handler: on timeout, cancel, a lost lease. It must leave nothing
/// running behind.
pub trait Executor: Send + Sync {
    /// The job types that this executor runs.
    fn job_types(&self) -> Vec<String>;
    fn execute(&self, context: ExecutionContext) -> Task<Outcome>;
    /// How long a handler that was told to stop may take until it has ended. Only then is the end of its attempt
    /// told, so that the next one does not begin beside it. Zero drops the handler at once.
    fn stop_time_max(&self, _assignment: &Assignment) -> Duration {
        Duration::ZERO
    }
}

/// What a handler is told, and what it may tell.
#[derive(Clone)]
pub struct ExecutionContext {
    pub assignment: Assignment,
    /// When the attempt will be timed out.
    pub deadline: Timestamp,
    /// The log of this execution.
    pub logs: Arc<dyn LogSink>,
    /// What this execution notes for people and for its next attempt.
    pub notes: Arc<dyn NoteSink>,
    pub stop: Arc<dyn StopSignal>,
}

/// The log of one execution.
#[async_trait]
pub trait LogSink: Send + Sync {
    /// Adds a line after all earlier ones. Waits while too many lines are on their way: whoever writes faster
    /// than the house takes is slowed down to its pace, and nobody else is.
    async fn append(&self, stream: LogStream, message: String);
}

/// The notes of one execution.
#[async_trait]
pub trait NoteSink: Send + Sync {
    /// Shows how far the execution has come. Never waits: the latest word counts, and is sent when it is time to.
    fn progress(&self, progress: Progress);
    /// Leaves a document to the next attempt of the occurrence, in the place of the one before. Returns when it is
    /// kept for good.
    async fn checkpoint(&self, checkpoint: Checkpoint) -> Result<(), NoteError>;
}

/// Why a checkpoint is not known to be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// The run is over, or another worker has taken over: nothing that it notes counts any more.
    #[error("the checkpoint is not kept: the lease of this run is gone")]
    LeaseLost,
    /// It may or may not be kept.
    #[error("the checkpoint may not be kept: no answer within {} seconds", limits::CHECKPOINT_WAIT_MAX.as_secs())]
    Unanswered,
}

/// Tells a handler that it is to stop.
#[async_trait]
pub trait StopSignal: Send + Sync {
    /// Waits until a stop at least as urgent as this one is requested.
    async fn requested(&self, stop: Stop);
}

/// How soon a handler is to stop, each more urgent than the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Its time is over, it was cancelled, or its worker is shut down: it may tidy up first.
    Politely,
    /// Its lease is lost: another worker may start the same at any moment.
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
    },
    TimedOut,
    Cancelled,
    /// Its worker had to stop it: as with a worker that fell silent, nobody knows how far it came, and nothing is
    /// known to be wrong with the job.
    Interrupted {
        error: String,
    },
}

impl Outcome {
    /// The same within the limits of what is kept: a result that is too large or nests too deep fails the attempt for
    /// good, an error message that is too long is cut.
    pub fn within_limits(self) -> Self {
        match self {
            Outcome::Succeeded { result: Some(result) } => match result_problem(&result) {
                Some(error) => Outcome::Failed { error, retryable: false },
                None => Outcome::Succeeded { result: Some(result) },
            },
            Outcome::Failed { error, retryable } => Outcome::Failed { error: cut(error), retryable },
            Outcome::Interrupted { error } => Outcome::Interrupted { error: cut(error) },
            outcome => outcome,
        }
    }

    /// The end of the run that this outcome makes.
    pub fn into_end(self, started_at: Timestamp, completed_at: Timestamp) -> End {
        let (ending, retryable, error, result) = match self {
            Outcome::Succeeded { result } => (Ending::Succeeded, false, None, result),
            Outcome::Failed { error, retryable } => (Ending::Failed, retryable, Some(error), None),
            Outcome::TimedOut => {
                (Ending::TimedOut, true, Some("the attempt ran out of time".to_owned()), None)
            }
            Outcome::Cancelled => (Ending::Cancelled, false, None, None),
            Outcome::Interrupted { error } => (Ending::Lost, true, Some(error), None),
        };
        End { ending, retryable, started_at: Some(started_at), completed_at, error, result }
    }
}

/// What stands where an error was cut; it counts as part of it.
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
        let succeeded = |bytes| Outcome::Succeeded { result: Some("1".repeat(bytes)) }.within_limits();
        assert!(matches!(succeeded(limits::RESULT_BYTES_MAX), Outcome::Succeeded { .. }));
        let too_large = succeeded(limits::RESULT_BYTES_MAX + 1);
        assert!(matches!(too_large, Outcome::Failed { retryable: false, .. }), "{too_large:?}");
        let nested = |depth: usize| Some(format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
        let too_deep = Outcome::Succeeded { result: nested(30_000) }.within_limits();
        let error = "the result nests arrays and objects more than 100 deep".to_owned();
        assert_eq!(too_deep, Outcome::Failed { error, retryable: false });
        let failed = |error: String| match (Outcome::Failed { error, retryable: true }).within_limits() {
            Outcome::Failed { error, retryable: true } => error,
            other => panic!("{other:?}"),
        };
        assert_eq!(failed("short".to_owned()), "short");
        let long = failed("ü".repeat(limits::ERROR_BYTES_MAX));
        assert!(long.ends_with(" […]") && long.len() <= limits::ERROR_BYTES_MAX);
    }
}
