//! Why a job has the status it has, and why an execution did not run: one sentence each.

use punctual_core::job::{JobSpec, JobStatus};
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{Finished, Live};
use punctual_core::ports::JobView;
use punctual_core::schedule::SkipReason;

/// Why the job has its status, where the status alone does not say it.
pub fn of_status(view: &JobView) -> Option<String> {
    match view.status() {
        JobStatus::Failed => view.last_finished.as_ref().map(|last| of_end(last, &view.job.spec)),
        JobStatus::Cancelled => Some(of_cancel(view)),
        JobStatus::Active | JobStatus::Paused | JobStatus::Completed => None,
    }
}

/// Why a job stays queued although nothing else is in its way.
pub fn of_queueing(job_type: &str) -> String {
    format!("waits for a worker that has a handler for {job_type}; none is connected")
}

/// How an occurrence ended with this execution.
pub fn of_end(last: &Finished, spec: &JobSpec) -> String {
    let attempt = last.id.attempt;
    let how = match last.status {
        Status::Skipped => return of_skip(last),
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
    };
    let settings = &spec.settings;
    let why = if settings.fails_for_good(last.status, last.error.as_deref()) {
        "is not retried, as retry.fail_on says"
    } else if attempt > settings.max_retries {
        "no retry is left"
    } else if settings.expires_at(last.scheduled_time).is_some() {
        "cannot be retried, or not before it expires"
    } else {
        // Retries were left and none followed: the handler has said that another try would not help.
        "cannot be retried"
    };
    format!("attempt {attempt} {how} and {why}")
}

fn of_skip(last: &Finished) -> String {
    match (&last.error, last.reason) {
        (Some(why), _) => format!("it was skipped: {why}"),
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
        Some(last) if last.status == Status::Cancelled => of_end(last, &view.job.spec),
        _ => "nothing more of it will run".to_owned(),
    }
}

/// Why occurrences did not run, to follow "because".
pub const fn because(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Overlap => "an earlier occurrence was still open (overlap_policy)",
        SkipReason::Misfire => "the scheduler came too late (misfire_policy)",
        SkipReason::Paused => "the job was paused",
        SkipReason::Calendar => "the calendar excludes that time",
        SkipReason::Dependency => "a job that it depends on did not succeed",
        SkipReason::Backlog => "too many occurrences of the job were open (max_open)",
    }
}

/// The reason as one word.
pub fn word_of(reason: SkipReason) -> String {
    let word = match reason {
        SkipReason::Overlap => "overlap",
        SkipReason::Misfire => "misfire",
        SkipReason::Paused => "paused",
        SkipReason::Calendar => "calendar",
        SkipReason::Dependency => "dependency",
        SkipReason::Backlog => "backlog",
    };
    word.to_owned()
}
