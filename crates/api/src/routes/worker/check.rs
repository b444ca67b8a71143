//! Validates requests of workers and converts them to the engine's types.

use crate::error::ApiError;
use punctual_client::protocol::{
    DemandRequest, HeartbeatRequest, LeaseBody, LogsRequest, NewLogLine, NoteBody, NotesRequest, OpenSession,
    OutcomeWord, PollRequest, ProgressNote, ReportBody,
};
use punctual_client::{ConditionBody, Seconds, Span};
use punctual_core::health::WorkerCondition;
use punctual_core::ids::SessionId;
use punctual_core::limits;
use punctual_core::log_level::LogLevel;
use punctual_core::names::{line_problem, name_problem, path_name_problem, queue_name_problem};
use punctual_core::notes::{Checkpoint, CheckpointProblem, CheckpointTooLarge, Note, Progress};
use punctual_core::ports::{
    Heartbeat, LeaseRef, LogLine, Outcome, Poll, Report, Served, SessionOpening, WorkerAbout,
};
use punctual_core::retry::ChosenTime;
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a poll waits by default.
const POLL_WAIT_DEFAULT: Duration = Duration::from_secs(20);

/// The session, and the schemas of job types that the worker registers.
pub fn opening(request: OpenSession) -> Result<(SessionOpening, BTreeMap<String, String>), ApiError> {
    path_name("worker", &request.worker)?;
    job_types(&request.job_types)?;
    within("slots", request.slots, 1..=limits::WORKER_SLOTS_MAX)?;
    queues(&request.queues)?;
    for (field, text) in [("version", &request.version), ("host", &request.host)] {
        if let Some(text) = text {
            line(field, text)?;
        }
    }
    let lease = request.lease_secs.map_or(limits::SESSION_LEASE, duration);
    let (least, most) = (limits::SESSION_LEASE_MIN, limits::SESSION_LEASE_MAX);
    if lease < least || lease > most {
        let fix = format!("must be from {} to {}", least.as_secs_f64(), most.as_secs_f64());
        return Err(ApiError::field("lease_secs", fix));
    }
    if let Some(other) = request.schemas.keys().find(|name| !request.job_types.contains(name)) {
        let fix = "is not one of job_types: a worker registers schemas of types that it runs";
        return Err(ApiError::field(format!("schemas.{other}"), fix));
    }
    let schemas = request.schemas.iter().map(|(name, schema)| (name.clone(), schema.to_string())).collect();
    let opening = SessionOpening {
        worker: request.worker,
        lease,
        // Only the process that holds the store may mark its own worker as embedded.
        embedded: false,
        job_types: request.job_types,
        slots: request.slots,
        about: WorkerAbout { queues: request.queues, version: request.version, host: request.host },
        // The use case sets it to the token of the caller.
        token: None,
    };
    Ok((opening, schemas))
}

/// The poll, and the worker's held leases if it lists them.
pub fn poll(request: PollRequest) -> Result<(Poll, Option<Vec<LeaseRef>>), ApiError> {
    let turn = turn(request.turn)?;
    within("capacity", request.capacity, 1..=limits::REMOTE_POLL_CAPACITY_MAX)?;
    queues(&request.queues)?;
    job_types(&request.job_types)?;
    let wait = request.wait_secs.map_or(POLL_WAIT_DEFAULT, duration);
    if wait > limits::REMOTE_POLL_WAIT_MAX {
        let fix = format!("must be at most {}", limits::REMOTE_POLL_WAIT_MAX.as_secs());
        return Err(ApiError::field("wait_secs", fix));
    }
    let held = request.held.map(|held| leases("held", held)).transpose()?;
    let poll = Poll {
        session: request.session,
        turn,
        capacity: request.capacity,
        queues: request.queues,
        job_types: request.job_types,
        wait,
    };
    Ok((poll, held))
}

pub fn heartbeat(request: HeartbeatRequest) -> Result<Heartbeat, ApiError> {
    let beat = count("beat", request.beat)?;
    let condition = request.condition.map(condition).transpose();
    let condition = condition.map_err(|error| error.within("condition"))?;
    Ok(Heartbeat { session: request.session, beat, condition, draining: request.draining })
}

fn condition(body: ConditionBody) -> Result<WorkerCondition, ApiError> {
    let slots = 1..=limits::WORKER_SLOTS_MAX;
    within("slots", body.slots, slots.clone())?;
    for (field, bound) in [("slots_min", body.slots_min), ("slots_max", body.slots_max)] {
        bound.map(|bound| within(field, bound, slots.clone())).transpose()?;
    }
    body.cpu_percent.map(|percent| within("cpu_percent", percent, 0..=100)).transpose()?;
    if let Some(address) = &body.address {
        line("address", address)?;
    }
    at_most("refuses", body.refuses.len(), limits::REFUSAL_REASONS_MAX)?;
    body.refuses
        .iter()
        .enumerate()
        .try_for_each(|(index, reason)| line(&format!("refuses[{index}]"), reason))?;
    let last_error = body.last_error.map(|error| cut_to(error, limits::NAME_BYTES_MAX));
    Ok(ConditionBody { last_error, ..body }.into())
}

pub fn served(request: DemandRequest) -> Result<Served, ApiError> {
    queues(&request.queues)?;
    job_types(&request.job_types)?;
    Ok(Served { queues: request.queues, job_types: request.job_types })
}

/// A number that a worker increments.
pub fn count(field: &str, number: u64) -> Result<u64, ApiError> {
    within(field, number, 1..=limits::REMOTE_COUNT_MAX)
}

/// The store's poll sequence number under which a wire number claims or resyncs.
pub fn turn(turn: u64) -> Result<u64, ApiError> {
    count("turn", turn).map(|turn| turn * 2)
}

/// The store's poll sequence number under which a poll resyncs before it claims.
pub fn turn_before(turn: u64) -> u64 {
    turn - 1
}

/// The wire number that a store's poll sequence number belongs to.
pub fn wire_turn(turn: u64) -> u64 {
    turn.div_ceil(2)
}

pub fn leases(field: &str, leases: Vec<LeaseBody>) -> Result<Vec<LeaseRef>, ApiError> {
    at_most(field, leases.len(), limits::LEASES_NAMED_MAX)?;
    Ok(leases.into_iter().map(LeaseRef::from).collect())
}

pub fn reports(reports: Vec<ReportBody>, now: Timestamp) -> Result<Vec<Report>, ApiError> {
    at_most("reports", reports.len(), limits::REMOTE_REPORTS_MAX)?;
    let report =
        |(index, body)| report(body, now).map_err(|error| error.within(&format!("reports[{index}]")));
    reports.into_iter().enumerate().map(report).collect()
}

fn report(body: ReportBody, now: Timestamp) -> Result<Report, ApiError> {
    use OutcomeWord::{Cancelled, Failed, Interrupted, Snoozed, Succeeded, TimedOut};
    if body.result.is_some() && body.outcome != Succeeded {
        return Err(ApiError::field("result", "is only valid for the outcome succeeded"));
    }
    if body.error.is_some() && !matches!(body.outcome, Failed | Interrupted) {
        return Err(ApiError::field("error", "is only valid for the outcomes failed and interrupted"));
    }
    if body.retryable.is_some() && body.outcome != Failed {
        return Err(ApiError::field("retryable", "is only valid for the outcome failed"));
    }
    let next_at = chosen(&body, now)?;
    let outcome = match body.outcome {
        Succeeded => Outcome::Succeeded { result: body.result.map(|result| result.get().to_owned()) },
        Failed => {
            let missing = || ApiError::field("error", "is required: say what went wrong");
            let error = body.error.ok_or_else(missing)?;
            Outcome::Failed { error, retryable: body.retryable.unwrap_or(true), retry_at: next_at }
        }
        Snoozed => {
            let missing = || ApiError::field("snooze", "is required: how long to wait, such as 10m");
            Outcome::Snoozed { until: next_at.ok_or_else(missing)? }
        }
        TimedOut => Outcome::TimedOut,
        Cancelled => Outcome::Cancelled,
        Interrupted => {
            let error = body.error.unwrap_or_else(|| "the worker had to stop it".to_owned());
            Outcome::Interrupted { error }
        }
    };
    let completed_at = body.completed_at.unwrap_or(now);
    let mut end = outcome.within_limits().into_end(completed_at, completed_at);
    end.started_at = body.started_at;
    let lease = LeaseRef { execution: body.execution_id, epoch: body.epoch };
    Ok(Report { session: body.session, lease, end })
}

/// When the handler wants to run again.
fn chosen(body: &ReportBody, now: Timestamp) -> Result<Option<ChosenTime>, ApiError> {
    let most = limits::CHOSEN_DELAY_MAX;
    let (failed, snoozed) = (body.outcome == OutcomeWord::Failed, body.outcome == OutcomeWord::Snoozed);
    let after = |field: &str, is_valid: bool, valid_for: &str, span: Option<Span>| match span {
        Some(_) if !is_valid => {
            Err(ApiError::field(field, format!("is only valid for the outcome {valid_for}")))
        }
        Some(span) if span.get() > most => Err(ApiError::field(field, "must be at most 366 days")),
        span => Ok(span.map(|span| ChosenTime::After(span.get()))),
    };
    let retry_after = after("retry_after", failed, "failed", body.retry_after)?;
    let snooze = after("snooze", snoozed, "snoozed", body.snooze)?;
    match body.retry_at {
        Some(_) if !failed && !snoozed => {
            Err(ApiError::field("retry_at", "is only valid for the outcomes failed and snoozed"))
        }
        Some(_) if retry_after.is_some() || snooze.is_some() => {
            Err(ApiError::field("retry_at", "excludes retry_after and snooze: name one of them"))
        }
        Some(at) if at > now.plus(most) => {
            Err(ApiError::field("retry_at", "must be at most 366 days from now"))
        }
        Some(at) => Ok(Some(ChosenTime::At(at))),
        None => Ok(retry_after.or(snooze)),
    }
}

pub fn notes(request: NotesRequest) -> Result<Vec<Note>, ApiError> {
    at_most("notes", request.notes.len(), limits::REMOTE_NOTES_MAX)?;
    let session = request.session;
    let note = |(index, body)| {
        note(session, body).map_err(|error: ApiError| error.within(&format!("notes[{index}]")))
    };
    request.notes.into_iter().enumerate().map(note).collect()
}

fn note(session: SessionId, body: NoteBody) -> Result<Note, ApiError> {
    if let Some(number) = body.number {
        count("number", number)?;
    }
    let checkpoint = body.checkpoint.map(|document| Checkpoint::new(document.get()));
    let refused = |problem| {
        let fix = match problem {
            CheckpointProblem::TooLarge(CheckpointTooLarge { bytes }) => {
                format!("must have at most {} bytes, not {bytes}", limits::CHECKPOINT_BYTES_MAX)
            }
            CheckpointProblem::Document(problem) => problem.requirement(),
        };
        ApiError::field("checkpoint", fix)
    };
    let checkpoint = checkpoint.transpose().map_err(refused)?;
    let progress =
        body.progress.map(|ProgressNote { percent, message }| Progress { percent, message }.within_limits());
    if checkpoint.is_none() && progress.as_ref().is_none_or(Progress::is_empty) {
        return Err(ApiError::field("progress", "must not be empty, unless there is a checkpoint"));
    }
    let lease = LeaseRef { execution: body.execution_id, epoch: body.epoch };
    Ok(Note { session, lease, number: body.number, progress, checkpoint })
}

pub fn log_lines(request: LogsRequest, now: Timestamp) -> Result<Vec<LogLine>, ApiError> {
    at_most("lines", request.lines.len(), limits::LOG_BATCH_LINES_MAX)?;
    let execution = request.execution_id;
    let line = |NewLogLine { message, stream, level, timestamp }| LogLine {
        number: 0,
        execution,
        // A worker's clock may be ahead; no line is stored with a future time.
        timestamp: timestamp.unwrap_or(now).min(now),
        stream: stream.into(),
        message: cut(match level.map(LogLevel::from) {
            Some(level) => format!("{}{message}", level.prefix()),
            None => message,
        }),
    };
    Ok(request.lines.into_iter().map(line).collect())
}

/// Cuts to the limit of one line.
fn cut(message: String) -> String {
    cut_to(message, limits::LOG_LINE_BYTES_MAX)
}

/// Cuts to this many bytes, including the cut mark.
fn cut_to(mut message: String, bytes: usize) -> String {
    const MARK: &str = " […]";
    if message.len() > bytes {
        message.truncate(message.floor_char_boundary(bytes - MARK.len()));
        message.push_str(MARK);
    }
    message
}

fn job_types(job_types: &[String]) -> Result<(), ApiError> {
    if job_types.is_empty() {
        return Err(ApiError::field("job_types", "must name at least one type that the worker can run"));
    }
    names("job_types", job_types, name_problem)
}

fn queues(queues: &[String]) -> Result<(), ApiError> {
    names("queues", queues, queue_name_problem)
}

fn names(field: &str, texts: &[String], problem: impl Fn(&str) -> Option<String>) -> Result<(), ApiError> {
    at_most(field, texts.len(), limits::WORKER_LANES_MAX)?;
    let wrong = texts.iter().enumerate().find_map(|(index, text)| Some((index, problem(text)?)));
    wrong.map_or(Ok(()), |(index, fix)| Err(ApiError::field(format!("{field}[{index}]"), fix)))
}

/// A name that routes find by path.
fn path_name(field: &str, text: &str) -> Result<(), ApiError> {
    path_name_problem(text).map_or(Ok(()), |fix| Err(ApiError::field(field, fix)))
}

/// Text for people, in one line.
fn line(field: &str, text: &str) -> Result<(), ApiError> {
    line_problem(text).map_or(Ok(()), |fix| Err(ApiError::field(field, fix)))
}

fn at_most(field: &str, count: usize, most: usize) -> Result<(), ApiError> {
    if count <= most {
        return Ok(());
    }
    Err(ApiError::field(field, format!("must have at most {most} entries, not {count}")))
}

fn within<T: PartialOrd + std::fmt::Display>(
    field: &str,
    number: T,
    range: std::ops::RangeInclusive<T>,
) -> Result<T, ApiError> {
    if range.contains(&number) {
        return Ok(number);
    }
    Err(ApiError::field(field, format!("must be from {} to {}, not {number}", range.start(), range.end())))
}

fn duration(seconds: Seconds) -> Duration {
    Duration::from_millis(seconds.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_turns_of_a_poll_follow_those_of_the_one_before() {
        for wire in 1..5 {
            let claim = turn(wire).unwrap();
            assert!(turn_before(claim) > turn(wire - 1).unwrap_or(0));
            assert_eq!((wire_turn(turn_before(claim)), wire_turn(claim)), (wire, wire));
        }
        assert_eq!(wire_turn(0), 0);
    }

    #[test]
    fn the_highest_turn_fits_into_every_store() {
        assert!(i64::try_from(turn(limits::REMOTE_COUNT_MAX).unwrap()).is_ok());
        assert!(turn(limits::REMOTE_COUNT_MAX + 1).is_err());
        assert!(turn(0).is_err());
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        assert_eq!(cut("short".to_owned()), "short");
        let long = cut("ü".repeat(limits::LOG_LINE_BYTES_MAX));
        assert!(long.len() <= limits::LOG_LINE_BYTES_MAX && long.ends_with("ü […]"));
    }
}
