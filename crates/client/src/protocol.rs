//! The worker protocol on the wire: requests of a worker in any language, and the server's responses.
//! `docs/worker-protocol.md` explains it.
//!
//! Durations are numbers of seconds here, so that a worker needs no parser for them.

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

/// `POST /worker/sessions`: opens a session when a worker starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenSession {
    /// The worker's name, stable across restarts.
    pub worker: String,
    pub job_types: Vec<String>,
    /// Concurrent handlers; informational.
    #[serde(default = "one")]
    pub slots: u32,
    /// How long it may be silent before its work is given to other workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_secs: Option<Seconds>,
    /// The queues it serves, empty for all; informational.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
    /// The version of its program; informational.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The machine it runs on; informational.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

fn one<T: From<u8>>() -> T {
    T::from(1)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionBody {
    pub session: SessionId,
    /// The server's time.
    pub now: Timestamp,
    pub lease_secs: Seconds,
    /// The heartbeat interval.
    pub beat_secs: Seconds,
    /// All handlers must have stopped this long after the last answered heartbeat was *sent*.
    pub stop_after_secs: Seconds,
}

/// `POST /worker/poll`: asks for work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PollRequest {
    pub session: SessionId,
    pub turn: u64,
    /// The maximum number of executions to assign.
    #[serde(default = "one")]
    pub capacity: usize,
    /// The queues it serves; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
    pub job_types: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_secs: Option<Seconds>,
    /// Everything that the worker holds. Other executions leased to it are returned to the queue, so that it
    /// need not resync.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional_each")]
    pub held: Option<Vec<LeaseBody>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PollAnswer {
    pub assignments: Vec<AssignmentBody>,
}

/// A leased execution with everything that a worker needs to run it.
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
    /// How long the handler may run; the worker enforces it.
    pub timeout_secs: Seconds,
    /// When that time ends, if the handler starts at once.
    pub deadline: Timestamp,
    pub scheduled_time: Timestamp,
    pub available_at: Timestamp,
    /// The order in which a worker starts its assignments: lower first. Older servers do not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<i64>,
    pub attempt_number: u32,
    /// The same for every attempt of the occurrence.
    pub idempotency_key: OccurrenceId,
    /// The checkpoint of an earlier attempt; absent if there is none.
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
            // A worker could not parse a checkpoint from before the depth limit: it starts without one.
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
            // The server sends no checkpoint that is too large or too deep.
            checkpoint: body.checkpoint.and_then(|document| Checkpoint::new(document.get()).ok()),
        }
    }
}

/// One lease, identified so that it cannot be confused with a later one.
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

/// `POST /worker/heartbeat`: keeps the session alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    pub session: SessionId,
    /// Higher than in all earlier heartbeats of the session.
    pub beat: u64,
    /// The worker's condition; informational. If absent, the last one stays valid.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub condition: Option<ConditionBody>,
    /// The worker is draining: it stops polling and closes the session when its running executions have
    /// finished. Cannot be undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
}

/// `POST /worker/demand`: asks how much work waits for workers like this one.
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
    /// How long the oldest of them has waited; 0 if there are none.
    pub oldest_wait_secs: Seconds,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatAnswer {
    /// The server's time.
    pub now: Timestamp,
    /// The last poll sequence number that the session has used.
    pub turn: u64,
    /// Executions that the session holds and should stop.
    pub cancel: Vec<LeaseBody>,
    /// Finish running executions, give back those that have not started, close the session, and end.
    #[serde(default)]
    pub drain: bool,
}

/// `POST /worker/report`: reports ended executions.
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
    /// For a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// For a failure or an interruption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// For a failure: whether another attempt may succeed. True by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// In server time; by default the time of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// In server time; by default now.
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
    /// The worker had to stop it: it is unknown how far it got, and the job itself may be fine.
    Interrupted,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportsAnswer {
    /// One per report, in order.
    pub answers: Vec<Verdict>,
}

/// The server's answer to a report or a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Accepted,
    /// The same report was already accepted and its answer was lost; or this note, or a newer one, was
    /// already stored.
    AlreadyAccepted,
    /// There is a later lease, or the occurrence is closed: it is ignored.
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

/// `POST /worker/notes`: stores progress and checkpoints of handlers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotesRequest {
    pub session: SessionId,
    #[serde(deserialize_with = "object::each")]
    pub notes: Vec<NoteBody>,
}

/// The notes of one handler. Absent fields stay unchanged.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoteBody {
    pub execution_id: ExecutionId,
    pub epoch: Epoch,
    /// Numbers the notes of the lease, so that a late copy of an earlier note is ignored; if absent, the note
    /// counts as the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub progress: Option<ProgressNote>,
    /// Any document; `null` deletes the stored one.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
    pub checkpoint: Option<Box<RawValue>>,
}

/// The progress of a handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgressNote {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<Percent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A document that is present, even if it is `null`.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotesAnswer {
    /// One per note, in order.
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

/// `POST /worker/give-back`: returns executions that were not started to the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GiveBackRequest {
    pub session: SessionId,
    #[serde(deserialize_with = "object::each")]
    pub leases: Vec<LeaseBody>,
}

/// `POST /worker/resync`: lists everything that the worker holds; other executions leased to it are returned
/// to the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResyncRequest {
    pub session: SessionId,
    pub turn: u64,
    #[serde(deserialize_with = "object::each")]
    pub held: Vec<LeaseBody>,
}

/// `POST /worker/logs`: stores log lines of a handler.
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
    /// In server time; by default now.
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
