//! The worker protocol on the wire: what a worker in any language says to the server, and what it hears.
//! `docs/worker-protocol.md` explains it.
//!
//! Lengths of time are numbers of seconds here, so that a worker can sleep for them without parsing anything.

use crate::duration::Seconds;
use crate::logs::LogStreamBody;
use crate::object;
use crate::workers::ConditionBody;
use punctual_core::ids::{Epoch, ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::job::Priority;
use punctual_core::notes::{Checkpoint, NoteAnswer, Percent};
use punctual_core::ports::{Assignment, LeaseRef, ReportAnswer};
use punctual_core::rank::rank;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;

/// `POST /worker/sessions`: a worker has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenSession {
    /// The worker's name, stable over restarts.
    pub worker: String,
    pub job_types: Vec<String>,
    /// Handlers that it runs at once; for people to see.
    #[serde(default = "one")]
    pub slots: u32,
    /// How long it may fall silent before its work is given to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_secs: Option<Seconds>,
    /// The queues it serves, for people to see; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
    /// The version of its program, for people to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The machine it runs on, for people to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

fn one<T: From<u8>>() -> T {
    T::from(1)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionBody {
    pub session: SessionId,
    /// The time by which the server goes.
    pub now: Timestamp,
    pub lease_secs: Seconds,
    /// How often to send a heartbeat.
    pub beat_secs: Seconds,
    /// All handlers must have stopped this long after the last heartbeat that was answered had been *sent*.
    pub stop_after_secs: Seconds,
}

/// `POST /worker/poll`: give me work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PollRequest {
    pub session: SessionId,
    pub turn: u64,
    /// How many executions it can take.
    #[serde(default = "one")]
    pub capacity: usize,
    /// The queues it serves; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
    pub job_types: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_secs: Option<Seconds>,
    /// All that the worker holds. Whatever else was leased to it goes back, so that it need not resync.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional_each")]
    pub held: Option<Vec<LeaseBody>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PollAnswer {
    pub assignments: Vec<AssignmentBody>,
}

/// A leased execution with all that a worker needs to run it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AssignmentBody {
    pub execution_id: ExecutionId,
    pub epoch: Epoch,
    pub job_id: JobId,
    pub job_version: u32,
    pub name: String,
    pub job_type: String,
    pub queue: String,
    pub payload: Box<RawValue>,
    /// How long the handler may run; the worker sees to it.
    pub timeout_secs: Seconds,
    /// When that time is over, if the handler starts at once.
    pub deadline: Timestamp,
    pub scheduled_time: Timestamp,
    pub available_at: Timestamp,
    /// The order in which a worker starts what it holds: lower first. Older servers do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<i64>,
    pub attempt_number: u32,
    /// The same for every attempt.
    pub idempotency_key: OccurrenceId,
    /// What an earlier attempt has left; not there if there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Box<RawValue>>,
}

impl AssignmentBody {
    pub fn new(assignment: Assignment, now: Timestamp) -> Result<Self, serde_json::Error> {
        Ok(AssignmentBody {
            execution_id: assignment.execution,
            epoch: assignment.epoch,
            job_id: assignment.execution.occurrence.job,
            job_version: assignment.job_version,
            idempotency_key: assignment.idempotency_key(),
            name: assignment.name,
            job_type: assignment.job_type,
            queue: assignment.queue,
            payload: RawValue::from_string(assignment.payload)?,
            timeout_secs: assignment.timeout.into(),
            deadline: now.max(assignment.available_at).plus(assignment.timeout),
            scheduled_time: assignment.scheduled_time,
            available_at: assignment.available_at,
            rank: Some(assignment.rank),
            attempt_number: assignment.execution.attempt,
            // A worker could not read one from before there was a limit of its depth: it begins without.
            checkpoint: assignment
                .checkpoint
                .filter(Checkpoint::is_readable)
                .map(|checkpoint| RawValue::from_string(checkpoint.into_json()))
                .transpose()?,
        })
    }
}

impl From<AssignmentBody> for Assignment {
    fn from(body: AssignmentBody) -> Self {
        Assignment {
            execution: body.execution_id,
            epoch: body.epoch,
            job_version: body.job_version,
            name: body.name,
            job_type: body.job_type,
            queue: body.queue,
            payload: body.payload.get().to_owned(),
            timeout: Duration::from_millis(body.timeout_secs.as_millis()),
            scheduled_time: body.scheduled_time,
            available_at: body.available_at,
            rank: body.rank.unwrap_or_else(|| rank(body.available_at, Priority::DEFAULT, Duration::ZERO)),
            // The server sends none that is too large or too deep.
            checkpoint: body.checkpoint.and_then(|document| Checkpoint::new(document.get()).ok()),
        }
    }
}

/// One lease, named so that a later one cannot be mistaken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseBody {
    pub execution_id: ExecutionId,
    pub epoch: Epoch,
}

impl From<LeaseRef> for LeaseBody {
    fn from(LeaseRef { execution, epoch }: LeaseRef) -> Self {
        LeaseBody { execution_id: execution, epoch }
    }
}

impl From<LeaseBody> for LeaseRef {
    fn from(LeaseBody { execution_id, epoch }: LeaseBody) -> Self {
        LeaseRef { execution: execution_id, epoch }
    }
}

/// `POST /worker/heartbeat`: I am alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    pub session: SessionId,
    /// Higher than in every earlier heartbeat of the session.
    pub beat: u64,
    /// How the worker is, for people to see. What it said before stands if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub condition: Option<ConditionBody>,
    /// The worker is ending: it polls no more and closes the session when what runs has finished. It stays so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
}

/// `POST /worker/demand`: how much waits for workers like me?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DemandRequest {
    pub job_types: Vec<String>,
    /// Empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemandAnswer {
    /// Executions that could start now.
    pub queued: u64,
    /// How long the oldest of them has waited; 0 if there is none.
    pub oldest_wait_secs: Seconds,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatAnswer {
    /// The time by which the server goes.
    pub now: Timestamp,
    /// The last turn that the session has used.
    pub turn: u64,
    /// Executions that the session holds and should stop.
    pub cancel: Vec<LeaseBody>,
    /// Finish what runs, give back what has not started, close the session, and end.
    #[serde(default)]
    pub drain: bool,
}

/// `POST /worker/report`: these have ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportRequest {
    #[serde(deserialize_with = "object::each")]
    pub reports: Vec<ReportBody>,
}

/// How one execution ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportBody {
    /// The session in which it was assigned.
    pub session: SessionId,
    pub execution_id: ExecutionId,
    pub epoch: Epoch,
    pub outcome: OutcomeWord,
    /// Of one that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Of one that failed or was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Of one that failed: whether another attempt may mend it. True if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// By the server's time; the time of the lease if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// By the server's time; now if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeWord {
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
    /// The worker had to stop it: nobody knows how far it came, and nothing is known to be wrong with the job.
    Interrupted,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportsAnswer {
    /// One per report, in their order.
    pub answers: Vec<Verdict>,
}

/// What the server says to a report or a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Accepted,
    /// This very report was accepted before and its answer had been lost; or this note, or a newer one.
    AlreadyAccepted,
    /// Another lease has taken over, or the occurrence is closed: it counts for nothing.
    Stale,
}

impl From<ReportAnswer> for Verdict {
    fn from(answer: ReportAnswer) -> Self {
        match answer {
            ReportAnswer::Accepted => Verdict::Accepted,
            ReportAnswer::AlreadyAccepted => Verdict::AlreadyAccepted,
            ReportAnswer::Stale => Verdict::Stale,
        }
    }
}

impl From<Verdict> for ReportAnswer {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Accepted => ReportAnswer::Accepted,
            Verdict::AlreadyAccepted => ReportAnswer::AlreadyAccepted,
            Verdict::Stale => ReportAnswer::Stale,
        }
    }
}

/// `POST /worker/notes`: this is how far handlers have come, and what their next attempts should know.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotesRequest {
    pub session: SessionId,
    #[serde(deserialize_with = "object::each")]
    pub notes: Vec<NoteBody>,
}

/// What one handler notes. What is left out stays as it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoteBody {
    pub execution_id: ExecutionId,
    pub epoch: Epoch,
    /// Counts the notes of the lease, so that a late copy of an earlier one counts for nothing; the newest of all if
    /// left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub progress: Option<ProgressNote>,
    /// Any document; `null` forgets the one that is there.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
    pub checkpoint: Option<Box<RawValue>>,
}

/// How far a handler has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgressNote {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<Percent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A document that is there, be it `null`.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotesAnswer {
    /// One per note, in their order.
    pub answers: Vec<Verdict>,
}

impl From<NoteAnswer> for Verdict {
    fn from(answer: NoteAnswer) -> Self {
        match answer {
            NoteAnswer::Accepted => Verdict::Accepted,
            NoteAnswer::AlreadyAccepted => Verdict::AlreadyAccepted,
            NoteAnswer::Stale => Verdict::Stale,
        }
    }
}

impl From<Verdict> for NoteAnswer {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Accepted => NoteAnswer::Accepted,
            Verdict::AlreadyAccepted => NoteAnswer::AlreadyAccepted,
            Verdict::Stale => NoteAnswer::Stale,
        }
    }
}

/// `POST /worker/give-back`: these have not been started and go back to the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GiveBackRequest {
    pub session: SessionId,
    #[serde(deserialize_with = "object::each")]
    pub leases: Vec<LeaseBody>,
}

/// `POST /worker/resync`: this is all that I hold; whatever else was leased to me goes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResyncRequest {
    pub session: SessionId,
    pub turn: u64,
    #[serde(deserialize_with = "object::each")]
    pub held: Vec<LeaseBody>,
}

/// `POST /worker/logs`: a handler has written this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogsRequest {
    pub session: SessionId,
    pub execution_id: ExecutionId,
    #[serde(deserialize_with = "object::each")]
    pub lines: Vec<NewLogLine>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewLogLine {
    pub message: String,
    #[serde(default = "own_log")]
    pub stream: LogStreamBody,
    /// By the server's time; now if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

fn own_log() -> LogStreamBody {
    LogStreamBody::Log
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ids::Epoch;

    #[test]
    fn an_assignment_survives_the_wire() {
        let assignment = Assignment {
            execution: JobId::new(Timestamp::EPOCH, 1).occurrence(2).attempt(3),
            epoch: Epoch(4),
            job_version: 5,
            name: "resize".to_owned(),
            job_type: "ImageProcessing".to_owned(),
            queue: "images".to_owned(),
            payload: r#"{"big": 12345678901234567890.125}"#.to_owned(),
            timeout: Duration::from_millis(1_500),
            scheduled_time: Timestamp::from_micros(6),
            available_at: Timestamp::from_micros(7),
            rank: -8,
            checkpoint: Checkpoint::new(r#"{"offset": 1.50}"#).ok(),
        };
        let body = AssignmentBody::new(assignment.clone(), Timestamp::EPOCH).unwrap();
        let text = serde_json::to_string(&body).unwrap();
        let back: AssignmentBody = serde_json::from_str(&text).unwrap();
        assert_eq!(back.deadline, Timestamp::from_micros(1_500_007));
        assert_eq!(Assignment::from(back), assignment);
    }

    #[test]
    fn assignments_of_an_older_server_start_in_the_order_in_which_they_became_ready() {
        let assignment = |available_us: i64| {
            let text = format!(
                r#"{{"execution_id": "{}", "epoch": 1, "job_id": "{}", "job_version": 1, "name": "a", "job_type": "a",
                "queue": "q", "payload": null, "timeout_secs": 1, "deadline": "{at}", "scheduled_time": "{at}",
                "available_at": "{at}", "attempt_number": 1, "idempotency_key": "{}"}}"#,
                JobId::new(Timestamp::EPOCH, 1).occurrence(1).attempt(1),
                JobId::new(Timestamp::EPOCH, 1),
                JobId::new(Timestamp::EPOCH, 1).occurrence(1),
                at = Timestamp::from_micros(available_us),
            );
            Assignment::from(serde_json::from_str::<AssignmentBody>(&text).unwrap())
        };
        assert!(assignment(1_000_000).rank < assignment(2_000_000).rank);
    }

    #[test]
    fn what_a_simple_worker_leaves_out_has_a_default() {
        let poll: PollRequest =
            serde_json::from_str(r#"{"session": 1, "turn": 1, "job_types": ["a"]}"#).unwrap();
        assert_eq!((poll.capacity, poll.wait_secs, poll.held), (1, None, None));
        let text = r#"{"session": 1, "turn": 1, "job_types": ["a"], "held": [["x", 1]]}"#;
        assert!(serde_json::from_str::<PollRequest>(text).is_err(), "a lease is an object");
    }
}
