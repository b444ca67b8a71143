//! Running handlers.

use crate::lifecycle::Ending;
use crate::occurrence::End;
use crate::ports::{Assignment, Task};
use crate::time::Timestamp;

/// Runs executions of one or more job types.
///
/// The returned future is dropped to stop the handler: on timeout, cancel, a lost lease. It must leave nothing
/// running behind.
pub trait Executor: Send + Sync {
    /// The job types that this executor runs.
    fn job_types(&self) -> Vec<String>;
    fn execute(&self, context: ExecutionContext) -> Task<Outcome>;
}

/// What a handler is told.
#[derive(Debug, Clone)]
pub struct ExecutionContext {
    pub assignment: Assignment,
    /// When the attempt will be timed out.
    pub deadline: Timestamp,
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
