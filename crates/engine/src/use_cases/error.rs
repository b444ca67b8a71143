//! Why a use case has no result.

use super::{Forbidden, UsesFound};
use crate::ControlError;
use punctual_core::control::Refusal;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, OperationId, SessionId};
use punctual_core::job::InvalidField;
use punctual_core::lifecycle::Status;
use punctual_core::operation::OperationStatus;
use punctual_core::ports::{BlobError, CipherError, StoreError, WorkerPortError};
use punctual_core::sealed::Undecryptable;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum UseCaseError {
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    #[error("there is no job {0}")]
    NoSuchJob(JobId),
    #[error("there is no execution {0}")]
    NoSuchExecution(ExecutionId),
    #[error("there is no operation {0}")]
    NoSuchOperation(OperationId),
    #[error("operation {id} is {} and can no longer be cancelled", status.as_str())]
    OperationEnded { id: OperationId, status: OperationStatus },
    #[error("there is no token {0}")]
    NoSuchToken(String),
    #[error("there is no user {0}")]
    NoSuchUser(String),
    #[error("there is no calendar {0}")]
    NoSuchCalendar(String),
    /// It is used, or may be: not all jobs were read.
    #[error("the {what} {name} may be in use")]
    InUse { what: &'static str, name: String, found: UsesFound },
    #[error("there is no secret {0}")]
    NoSuchSecret(String),
    /// There is no such channel, rule, silence, alert or delivery.
    #[error("there is no {what} {name}")]
    NoSuchDocument { what: &'static str, name: String },
    #[error("there is a {what} {name} already")]
    DocumentExists { what: &'static str, name: String },
    #[error("the job type {0} has no schema")]
    NoSuchJobType(String),
    /// This node cannot encrypt or decrypt.
    #[error(transparent)]
    Cipher(#[from] CipherError),
    /// This node cannot decrypt the data of a job.
    #[error(transparent)]
    Undecryptable(#[from] Undecryptable),
    #[error("another user has the email address {0}")]
    EmailTaken(String),
    #[error("there are {max} {what} already, which is the limit: remove some that are not needed")]
    DirectoryFull { what: &'static str, max: usize },
    /// No other token has the permission to manage tokens.
    #[error("{0} is the last token or user without an expiry that may do everything")]
    LastAdmin(String),
    #[error("no worker is connected with the name or session id {0}")]
    NoSuchWorker(String),
    /// Several sessions of workers have this name.
    #[error("{name} matches {} sessions", sessions.len())]
    AmbiguousWorker { name: String, sessions: Vec<SessionId> },
    #[error("session {session} of worker {worker} is draining")]
    WorkerDraining { session: SessionId, worker: String },
    /// Several unfinished jobs have the name, and none was put by it.
    #[error("{} unfinished jobs are named {name}", jobs.len())]
    AmbiguousName { name: String, jobs: Vec<JobId> },
    /// There are too many jobs to search for one with the name.
    #[error("there are too many jobs with schedules to search for one that is named {name}")]
    NameNotSearched { name: String },
    /// The state of the job does not allow the change.
    #[error("{refusal}")]
    Refused { job: JobId, refusal: Refusal },
    #[error("execution {0} has no result")]
    NoResult(ExecutionId),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error("the execution has already ended")]
    ExecutionEnded(Status),
    #[error("occurrence {0} is still open")]
    OccurrenceOpen(OccurrenceId),
    #[error("execution {execution} does not run in session {session}")]
    NotHeld { execution: ExecutionId, session: SessionId },
    #[error("the request has invalid fields")]
    Invalid(Vec<InvalidField>),
    #[error("the name of the queue {problem}")]
    InvalidQueueName { queue: String, problem: String },
    #[error("the settings of the queue {queue} cannot be read ({reason})")]
    QueueUnreadable { queue: String, reason: String },
    /// Nothing was changed.
    #[error("other requests keep changing the job at the same time")]
    Busy,
    #[error(transparent)]
    Worker(#[from] WorkerPortError),
    /// Whether a change took effect is unknown.
    #[error(transparent)]
    StoreFailed(#[from] StoreError),
}

impl UseCaseError {
    pub(super) fn invalid(field: &str, fix: impl Into<String>) -> Self {
        UseCaseError::Invalid(vec![InvalidField::new(field, fix)])
    }

    /// The outcome of a verb on this job.
    pub(super) fn of_control(job: JobId, error: ControlError) -> Self {
        match error {
            ControlError::NotThere => UseCaseError::NoSuchJob(job),
            ControlError::Refused(refusal) => UseCaseError::Refused { job, refusal },
            ControlError::Invalid(problems) => UseCaseError::Invalid(problems),
            ControlError::Unavailable(error) => UseCaseError::StoreFailed(error),
        }
    }
}
