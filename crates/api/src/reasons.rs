//! Reasons for a job's status and for executions that did not run: one sentence each.

use punctual_core::job::{JobSpec, JobStatus, Settings};
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{Finished, Live};
use punctual_core::ports::{JobView, Lane, SessionRow};
use punctual_core::schedule::SkipReason;
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;
use punctual_engine::{EligibleWorkers, parent_to_blame};

/// Characters of an error that are quoted in a sentence.
const ERROR_CHARS_MAX: usize = 300;

/// Why the job has its status, where the status alone does not explain it. `blamed` is the name of the job
/// that caused it, if [`parent_to_blame`] returns one.
pub fn of_status(view: &JobView, blamed: Option<&str>) -> Option<String> {
    match view.status() {
        JobStatus::Failed => view.last_finished.as_ref().map(|last| of_end(last, &view.job.spec, blamed)),
        JobStatus::Cancelled => Some(of_cancel(view)),
        JobStatus::Active | JobStatus::Paused | JobStatus::Completed => None,
    }
}

/// Why work in a lane stays queued although its gates are open.
pub fn of_queueing(lane: &Lane, sessions: &[SessionRow]) -> Option<String> {
    let (queue, job_type) = (lane.queue(), lane.job_type());
    let able = EligibleWorkers::in_lane(lane, sessions);
    if !able.open.is_empty() {
        return None;
    }
    if !able.held.is_empty() {
        let held: Vec<String> = able.held.iter().map(|row| of_holding(row)).collect();
        return Some(format!("waits for a worker that takes work: {}", held.join(", ")));
    }
    let serves = if sessions.iter().any(|row| row.has_handler(job_type)) {
        format!(" and serves the queue {queue}")
    } else {
        String::new()
    };
    Some(format!("waits for a worker that has a handler for {job_type}{serves}; none is connected"))
}

/// Why nothing starts during shutdown, to follow "it".
pub fn of_stopping() -> String {
    "runs after the next start, as the server is stopping".to_owned()
}

/// A worker and the reason why it accepts no work.
pub fn of_holding(row: &SessionRow) -> String {
    match row.mode {
        SessionMode::Open => format!("{} refuses work ({})", row.worker, row.refuses().join("; ")),
        SessionMode::Paused => format!("{} is paused", row.worker),
        SessionMode::Draining => format!("{} is draining", row.worker),
    }
}

/// The first line of an error, cut to fit into a sentence.
pub fn first_line(error: &str) -> String {
    let error = error.trim();
    let line = error.lines().next().unwrap_or_default().trim_end();
    let cut = line.char_indices().nth(ERROR_CHARS_MAX).map_or(line, |(end, _)| &line[..end]);
    if cut.len() < error.len() { format!("{cut}…") } else { cut.to_owned() }
}

/// How an occurrence ended with this execution.
pub fn of_end(last: &Finished, spec: &JobSpec, blamed: Option<&str>) -> String {
    let attempt = last.id.attempt;
    let how = match last.status {
        Status::Skipped => return of_skip(last, spec, blamed),
        Status::Expired if attempt == 1 => return "it had not started when it expired".to_owned(),
        Status::Expired => return format!("attempt {attempt} had not started when it expired"),
        Status::Cancelled if last.started_at.is_none() => {
            return format!("attempt {attempt} was cancelled before it started");
        }
        Status::Cancelled => return format!("attempt {attempt} was cancelled while it ran"),
        Status::Succeeded => return format!("attempt {attempt} succeeded"),
        Status::TimedOut => "ran out of time",
        Status::Lost => "was lost with its worker",
        Status::Failed => "failed",
        Status::Snoozed => return format!("attempt {attempt} was snoozed by its handler"),
    };
    let settings = &spec.settings;
    let why = if settings.fails_for_good(last.status, last.error.as_deref()) {
        "is not retried, as retry.fail_on says".to_owned()
    } else if charged(last) > settings.max_retries {
        "no retry is left".to_owned()
    } else if let Some(expires_at) = expiry_in_the_way(last, settings) {
        format!("is not retried, as it expires at {expires_at}, before the retry would come")
    } else {
        // Retries were left but none followed: the handler reported the failure as permanent.
        "cannot be retried".to_owned()
    };
    format!("attempt {attempt} {how} and {why}")
}

/// The attempts up to this one that used up a retry.
fn charged(last: &Finished) -> u32 {
    last.id.attempt - last.input.as_ref().map_or(0, |input| input.snoozes)
}

/// The expiry time that a retry after this attempt would have missed.
fn expiry_in_the_way(last: &Finished, settings: &Settings) -> Option<Timestamp> {
    // Redriven occurrences do not expire, and only those could begin so late.
    let expires_at = settings.expires_at(last.scheduled_time).filter(|at| last.available_at < *at)?;
    let retry_at = match last.status {
        Status::Lost => last.completed_at,
        _ => last.completed_at.plus(settings.retry.delay(charged(last), last.id.occurrence)),
    };
    (retry_at >= expires_at).then_some(expires_at)
}

fn of_skip(last: &Finished, spec: &JobSpec, blamed: Option<&str>) -> String {
    if let Some(parent) = parent_to_blame(last, spec) {
        let name = blamed.map_or(String::new(), |name| format!(" ({name})"));
        return format!("it was skipped because job {parent}{name}, on which it depended, did not succeed");
    }
    match (&last.error, last.reason) {
        (Some(why), _) => format!("it was skipped: {}", first_line(why)),
        (None, Some(reason)) => format!("it was skipped because {}", because(reason)),
        (None, None) => "it was skipped".to_owned(),
    }
}

fn of_cancel(view: &JobView) -> String {
    let asked: Vec<String> = view.open.iter().map(Live::execution).map(|id| id.to_string()).collect();
    if !asked.is_empty() {
        return format!("{} still runs and has been asked to stop", asked.join(", "));
    }
    match &view.last_finished {
        Some(last) if last.status == Status::Cancelled => of_end(last, &view.job.spec, None),
        _ => "no further executions will run".to_owned(),
    }
}

/// Why occurrences did not run, to follow "because".
pub const fn because(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Overlap => {
            "an earlier occurrence was still open, or was due at the same time and ran first (overlap_policy)"
        }
        SkipReason::Misfire => "no scheduler fired in time (misfire_policy)",
        SkipReason::Paused => "the job was paused",
        SkipReason::Calendar => "the calendar excludes that time",
        SkipReason::Dependency => "a job that it depended on did not succeed",
        SkipReason::Backlog => "too many occurrences of the job were open (max_open)",
        SkipReason::Requested => "a user asked to skip it",
    }
}

/// The wire name of the reason.
pub fn word_of(reason: SkipReason) -> String {
    let word = match reason {
        SkipReason::Overlap => "overlap",
        SkipReason::Misfire => "misfire",
        SkipReason::Paused => "paused",
        SkipReason::Calendar => "calendar",
        SkipReason::Dependency => "dependency",
        SkipReason::Backlog => "backlog",
        SkipReason::Requested => "requested",
    };
    word.to_owned()
}
