//! The worker protocol on the wire: requests of a worker in any language, and the server's responses.
//! `docs/worker-protocol.md` explains it.
//!
//! Durations are numbers of seconds here, so that a worker needs no parser for them.

use crate::duration::{Seconds, Span};
use crate::logs::{LogLevelBody, LogStreamBody};
use crate::object;
use crate::wire::wire;
use crate::workers::ConditionBody;
use punctual_core::ids::{Epoch, ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::job::{Priority, ResultOverflow};
use punctual_core::notes::{Checkpoint, NoteAnswer, Percent};
use punctual_core::ports::{Assignment, LeaseRef, ReportAnswer};
use punctual_core::rank::rank;
use punctual_core::time::Timestamp;
use punctual_core::trace_context::{RunTrace, TraceContext};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;

wire! {
    /// A session to open.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct OpenSession as "OpenSession" {
        /// The worker's name, stable over restarts.
        pub worker: String = name().example("resizer-1"),
        /// The job types it can run.
        pub job_types: Vec<String> =
            up_to(limits::WORKER_LANES_MAX, list(name().about("A job type.")).with("minItems", 1))
                .example(json!(["ImageProcessing"])),
        /// Handlers that it runs at once; for people to see.
        #[serde(default = "one")]
        pub slots: u32 = whole(1..=limits::WORKER_SLOTS_MAX.into()).otherwise(1),
        /// How long it may be silent before its work is given to other workers, in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub lease_secs: Option<Seconds> =
            number(limits::SESSION_LEASE_MIN.as_secs_f64()..=limits::SESSION_LEASE_MAX.as_secs_f64())
                .otherwise(limits::SESSION_LEASE.as_secs()),
        /// The queues it serves; empty for all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub queues: Vec<String> =
            up_to(limits::WORKER_LANES_MAX, list(name().about("A queue."))).example(json!(["images"])),
        /// The version of its program, for people to see.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub version: Option<String> = name().example("2.4.1"),
        /// The machine it runs on, for people to see.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub host: Option<String> = name().example("render-7"),
        /// JSON Schemas for payloads of some of its job types, as for `PUT /job-types/{name}`. A schema that a person has set
        /// stays.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub schemas: BTreeMap<String, Value> = Schema::of("object")
            .with("additionalProperties", true)
            .example(json!({"ImageProcessing": {"type": "object"}})),
    }
}

fn one<T: From<u8>>() -> T {
    T::from(1)
}

wire! {
    /// A session that is open.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct SessionBody as "Session" {
        /// The id of the session.
        pub session: SessionId,
        /// The server's time.
        pub now: Timestamp,
        /// How long it may be silent.
        pub lease_secs: Seconds,
        /// How often to send a heartbeat.
        pub beat_secs: Seconds,
        /// All handlers must have stopped this long after the last heartbeat that was answered had been
        /// *sent*.
        pub stop_after_secs: Seconds,
    }
}

wire! {
    /// A request for work.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct PollRequest as "Poll" {
        /// The id of the session.
        pub session: SessionId,
        /// Counts the polls of the session.
        pub turn: u64 = whole(1..=limits::REMOTE_COUNT_MAX),
        /// How many executions it can take.
        #[serde(default = "one")]
        pub capacity: usize = whole(1..=limits::REMOTE_POLL_CAPACITY_MAX as u64).otherwise(1),
        /// The queues it serves; empty for those of the session.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub queues: Vec<String> =
            up_to(limits::WORKER_LANES_MAX, list(name().about("A queue."))).example(json!(["images"])),
        /// The job types it can run.
        pub job_types: Vec<String> =
            up_to(limits::WORKER_LANES_MAX, list(name().about("A job type.")).with("minItems", 1))
                .example(json!(["ImageProcessing"])),
        /// How long to wait when there is no work, in seconds; 0 does not wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub wait_secs: Option<Seconds> =
            number(0.0..=limits::REMOTE_POLL_WAIT_MAX.as_secs_f64()).otherwise(20),
        /// All leases of the worker. All other executions leased to it return to the queue, so that no resync
        /// is needed.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional_each")]
        pub held: Option<Vec<LeaseBody>> = up_to(limits::LEASES_NAMED_MAX, list(the("Lease"))),
    }
}

wire! {
    /// Work, if there is any.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct PollAnswer as "PollAnswer" {
        /// Executions to run.
        pub assignments: Vec<AssignmentBody>,
    }
}

wire! {
    /// A leased execution with everything that a worker needs to run it.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct AssignmentBody as "Assignment" {
        /// The execution.
        pub execution_id: ExecutionId,
        /// The number of the claim; with the execution id it identifies the lease.
        pub epoch: Epoch,
        /// Its job.
        pub job_id: JobId,
        /// The current version of its job.
        pub job_version: u32 = whole(1..=u32::MAX.into()),
        /// The job's name.
        pub name: String,
        /// The job's type.
        pub job_type: String,
        /// The job's queue.
        pub queue: String,
        /// As submitted.
        pub payload: Box<RawValue>,
        /// How long the handler may run, in seconds; the worker enforces it.
        pub timeout_secs: Seconds = number(0.0..=1e12),
        /// When that time ends, if the handler starts immediately.
        pub deadline: Timestamp,
        /// The nominal time of the occurrence.
        pub scheduled_time: Timestamp,
        /// When it could begin.
        pub available_at: Timestamp,
        /// Among the executions that a worker holds, the lowest starts first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rank: Option<i64> = Schema::of("integer").with("format", "int64"),
        /// The number of the attempt within the occurrence.
        pub attempt_number: u32 = whole(1..=u32::MAX.into()),
        /// The same for every attempt: pass it to systems that must not process the execution twice.
        pub idempotency_key: OccurrenceId,
        /// The checkpoint that an earlier attempt saved; omitted if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub checkpoint: Option<Box<RawValue>>,
        /// What to do with a result of more than 64 KiB: `blob` means that the worker sends it to `/worker/results`.
        #[serde(default, skip_serializing_if = "is_default")]
        pub result_overflow: ResultOverflow = words::<ResultOverflow>().otherwise("truncate"),
        /// The place of this attempt in a trace, by the W3C standard "Trace Context": pass it to the calls of the handler.
        /// Omitted if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub traceparent: Option<String> =
            Schema::of("string").example("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        /// Goes along with `traceparent`; omitted if it is empty.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tracestate: Option<String> = Schema::of("string").example("vendor=t61rcWkgMzE"),
    }
}

fn is_default(overflow: &ResultOverflow) -> bool {
    *overflow == ResultOverflow::default()
}

impl AssignmentBody {
    pub fn new(assignment: Assignment, now: Timestamp) -> Result<Self, serde_json::Error> {
        let trace = assignment.trace_context();
        let (traceparent, tracestate) = (
            trace.map(TraceContext::traceparent),
            trace.and_then(TraceContext::tracestate).map(str::to_owned),
        );
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
            result_overflow: assignment.result_overflow,
            traceparent,
            tracestate,
        })
    }
}

impl From<AssignmentBody> for Assignment {
    fn from(body: AssignmentBody) -> Self {
        let state = body.tracestate.as_deref().unwrap_or_default();
        let context = body.traceparent.and_then(|parent| TraceContext::of_headers(&parent, state));
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
            result_overflow: body.result_overflow,
            trace: context.map(|context| RunTrace { context, is_linked: false }),
        }
    }
}

wire! {
    /// One lease, identified so that a later one cannot be mistaken for it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct LeaseBody as "Lease" {
        /// The execution.
        pub execution_id: ExecutionId,
        /// The number of the claim; with the execution id it identifies the lease.
        pub epoch: Epoch,
    }
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

wire! {
    /// A heartbeat of a worker.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct HeartbeatRequest as "Heartbeat" {
        /// The id of the session.
        pub session: SessionId,
        /// Higher than in all earlier heartbeats of the session.
        pub beat: u64 = whole(1..=limits::REMOTE_COUNT_MAX),
        /// The worker's condition, for people to see; unchanged if omitted.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
        pub condition: Option<ConditionBody>,
        /// The worker is shutting down: it polls no more, and closes the session when its running executions
        /// have finished. This cannot be undone.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub draining: bool = flag().otherwise(false),
    }
}

wire! {
    /// What a worker takes.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct DemandRequest as "Demand" {
        /// The job types it can run.
        pub job_types: Vec<String> =
            up_to(limits::WORKER_LANES_MAX, list(name().about("A job type.")).with("minItems", 1))
                .example(json!(["ImageProcessing"])),
        /// The queues it serves; empty for all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub queues: Vec<String> =
            up_to(limits::WORKER_LANES_MAX, list(name().about("A queue."))).example(json!(["images"])),
    }
}

wire! {
    /// What is waiting for workers like this one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct DemandAnswer as "DemandAnswer" {
        /// Executions that could start now.
        pub queued: u64,
        /// How long the oldest of them has waited; 0 if there is none.
        pub oldest_wait_secs: Seconds,
    }
}

wire! {
    /// Instructions for a worker.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct HeartbeatAnswer as "HeartbeatAnswer" {
        /// The server's time.
        pub now: Timestamp,
        /// The last turn that the session used.
        pub turn: u64 = whole(0..=limits::REMOTE_COUNT_MAX),
        /// Executions that the session has leased and should stop.
        pub cancel: Vec<LeaseBody>,
        /// Finish running executions, give back those not started, close the session, and exit.
        #[serde(default)]
        pub drain: bool,
    }
}

wire! {
    /// Ended executions. At most 8 MiB.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ReportRequest as "Reports" {
        /// In any order, of any session.
        #[serde(deserialize_with = "object::each")]
        pub reports: Vec<ReportBody> = up_to(limits::REMOTE_REPORTS_MAX, list(the("Report"))),
    }
}

wire! {
    /// How one execution ended.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ReportBody as "Report" {
        /// The id of the session.
        pub session: SessionId,
        /// The execution.
        pub execution_id: ExecutionId,
        /// The number of the claim; with the execution id it identifies the lease.
        pub epoch: Epoch,
        /// `interrupted`: the worker had to stop it, and the job itself is not known to be at fault.
        pub outcome: OutcomeWord,
        /// For succeeded executions: any JSON up to 64 KiB, nested at most 100 deep; a larger or deeper one
        /// fails the attempt permanently.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub result: Option<Box<RawValue>>,
        /// For failed executions, where it is required, or interrupted ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<String> = text().example("disk full"),
        /// For failed executions: whether a retry may succeed; true if omitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retryable: Option<bool>,
        /// For failed executions: when to retry, in the server's time, instead of after the delay of the retry
        /// policy. At most 366 days from now. The retry is charged as any other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retry_at: Option<Timestamp>,
        /// For failed executions: how long to wait before the retry, instead of the delay of the retry policy; at
        /// most 366 days.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retry_after: Option<Span> = the("Duration").example("10m"),
        /// For snoozed executions, where it or `retry_at` is required: how long to wait before the occurrence runs
        /// again, at most 366 days.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub snooze: Option<Span> = the("Duration").example("10m"),
        /// In the server's time; the time of the lease if omitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub started_at: Option<Timestamp>,
        /// In the server's time; now if omitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub completed_at: Option<Timestamp>,
    }
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
    /// The handler asks to run again later. This is no failure and uses up no retry.
    Snoozed,
}

wire! {
    /// The result of each report.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ReportsAnswer as "ReportsAnswer" {
        /// One per report, in the same order.
        pub answers: Vec<Verdict> = list(the("Verdict").about("The result of one report.")),
    }
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

wire! {
    /// The progress of handlers, and the checkpoints for their next attempts. At most 8 MiB.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct NotesRequest as "Notes" {
        /// The id of the session.
        pub session: SessionId,
        /// In any order.
        #[serde(deserialize_with = "object::each")]
        pub notes: Vec<NoteBody> = up_to(limits::REMOTE_NOTES_MAX, list(the("Note"))),
    }
}

wire! {
    /// A note of one handler: progress, a checkpoint, or both. An omitted part stays unchanged.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct NoteBody as "Note" {
        /// The execution.
        pub execution_id: ExecutionId,
        /// The number of the claim; with the execution id it identifies the lease.
        pub epoch: Epoch,
        /// The number of the note within the lease, so that a late duplicate of an earlier one has no effect;
        /// counts as the newest if omitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub number: Option<u64> = whole(1..=limits::REMOTE_COUNT_MAX),
        /// The progress of the handler.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
        pub progress: Option<ProgressNote>,
        /// Any JSON up to 64 KiB, nested at most 100 deep, for the next attempt; null deletes the stored one.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
        pub checkpoint: Option<Box<RawValue>> = any().example(json!({"offset": 1500})),
    }
}

wire! {
    /// The progress of a handler, for people to see.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ProgressNote as "ProgressNote" {
        /// The completed share.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub percent: Option<Percent> = number(0.0..=100.0).example(40),
        /// The current step; cut off after 500 bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub message: Option<String> = text().example("page 5 of 12"),
    }
}

/// A document that is present, even if it is `null`.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

wire! {
    /// The result of each note.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct NotesAnswer as "NotesAnswer" {
        /// One per note, in the same order.
        pub answers: Vec<Verdict> = list(the("Verdict").about("The result of one note.")),
    }
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

wire! {
    /// Executions that have not been started and return to the queue.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct GiveBackRequest as "GiveBack" {
        /// The id of the session.
        pub session: SessionId,
        /// Those.
        #[serde(deserialize_with = "object::each")]
        pub leases: Vec<LeaseBody> = up_to(limits::LEASES_NAMED_MAX, list(the("Lease"))),
    }
}

wire! {
    /// All leases of the worker; all other executions leased to it return to the queue.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ResyncRequest as "Resync" {
        /// The id of the session.
        pub session: SessionId,
        /// The next turn.
        pub turn: u64 = whole(1..=limits::REMOTE_COUNT_MAX),
        /// All leases of the worker.
        #[serde(deserialize_with = "object::each")]
        pub held: Vec<LeaseBody> = up_to(limits::LEASES_NAMED_MAX, list(the("Lease"))),
    }
}

wire! {
    /// Log lines of a handler. At most 8 MiB.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct LogsRequest as "NewLogs" {
        /// The id of the session.
        pub session: SessionId,
        /// The execution that the lines belong to.
        pub execution_id: ExecutionId,
        /// In the order in which they were written.
        #[serde(deserialize_with = "object::each")]
        pub lines: Vec<NewLogLine> = up_to(limits::LOG_BATCH_LINES_MAX, list(the("NewLogLine"))),
    }
}

wire! {
    /// One line.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct NewLogLine as "NewLogLine" {
        /// The line; cut off after 16 KiB.
        pub message: String,
        /// Which stream it was written to.
        #[serde(default = "own_log")]
        pub stream: LogStreamBody = the("LogStream").otherwise("log"),
        /// Its severity. A message can carry it as well, as a prefix such as `<3>`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub level: Option<LogLevelBody>,
        /// In the server's time; now if omitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub timestamp: Option<Timestamp>,
    }
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
            result_overflow: ResultOverflow::Fail,
            trace: TraceContext::of_headers("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1")
                .map(|context| RunTrace { context, is_linked: false }),
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
