//! Checks the observations of a run. Pure: it takes values and returns values, knows no server and no clock,
//! and is tested with histories that contain deliberate errors.

mod availability;
mod fires;
pub mod notifications;
mod outcomes;
mod submissions;
#[cfg(test)]
mod tests;

pub use availability::{Availability, availability};

use crate::observed::{FoundJob, Observed, RequestedJob};
use crate::recorder::RecordedRun;
use punctual_core::ids::{ExecutionId, JobId};
use serde::Serialize;
use std::collections::BTreeMap;

/// Rules that must never be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckedRule {
    /// A due occurrence was neither fired nor skipped for a reason that its job allows.
    Missed,
    /// An occurrence was fired that was never due, or was fired twice.
    Extra,
    /// A handler began before its time.
    Early,
    /// More than one accepted outcome of an attempt, more than one success of an occurrence, or attempts that
    /// are not in sequence.
    DoubledOutcome,
    /// An accepted outcome that no run of the same attempt had.
    StaleOutcome,
    /// A run that history does not contain.
    UnknownRun,
    /// A handler was called twice for one attempt, or twice where only one attempt is allowed.
    RanTwice,
    /// Two occurrences of a job ran concurrently although the job forbids it.
    Overlapped,
    /// An acknowledged job does not exist.
    LostSubmission,
    /// One submission became several jobs.
    DoubledSubmission,
    /// A job had not finished after all faults had ended.
    Unfinished,
    /// A job with retries ended without success.
    GaveUp,
    /// A failure, or a job that did not run, caused no message that arrived.
    LostNotification,
    /// Messages about one failure have different ids, so that the receiver cannot tell that they are one.
    DoubledNotification,
    /// A process ended without an order.
    EndedByItself,
    /// Too many requests failed while the database and an API node were available.
    Unavailable,
}

/// A broken rule, with details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleViolation {
    pub rule: CheckedRule,
    pub what: String,
}

impl RuleViolation {
    pub fn new(rule: CheckedRule, what: impl Into<String>) -> Self {
        RuleViolation { rule, what: what.into() }
    }
}

/// What was checked, so that an empty run does not pass unnoticed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    pub jobs: usize,
    pub occurrences_due: usize,
    pub fired: usize,
    pub skipped_for_overlap: usize,
    pub attempts: usize,
    pub lost_attempts: usize,
    pub failed_attempts: usize,
    pub runs: usize,
    pub submissions_unanswered: usize,
    /// Runs of lost attempts that overlapped a later run of the same job, because their worker was paused and
    /// could not stop them.
    pub overlaps_of_paused_workers: usize,
    /// Failures and jobs that did not run, the messages that arrived, and their tries.
    pub notifications_due: usize,
    pub notifications: usize,
    pub notification_tries: usize,
}

/// The result of the checks.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CheckVerdict {
    pub counted: Counted,
    pub violations: Vec<RuleViolation>,
}

/// A wish, the job created for it, and the runs of that job.
pub(crate) struct Case<'a> {
    pub wish: &'a RequestedJob,
    pub job: &'a FoundJob,
    pub runs: Vec<&'a RecordedRun>,
}

pub fn judge(observed: &Observed) -> CheckVerdict {
    let mut verdict = CheckVerdict::default();
    verdict.counted.runs = observed.runs.len();
    submissions::check(observed, &mut verdict);
    let executions: BTreeMap<ExecutionId, _> = observed
        .jobs
        .iter()
        .flat_map(|job| job.executions.iter().map(|execution| (execution.id, execution)))
        .collect();
    outcomes::check_runs_are_known(&observed.runs, &executions, &mut verdict);
    for case in cases(observed) {
        verdict.counted.jobs += 1;
        fires::check(&case, &observed.faults, &mut verdict);
        outcomes::check(&case, &observed.faults, &mut verdict);
    }
    notifications::check(observed, &mut verdict);
    for end in observed.unordered_ends.iter().filter(|end| !end.is_expected) {
        let what = format!("{} at {}: {}", end.member, end.at, end.status);
        verdict.violations.push(RuleViolation::new(CheckedRule::EndedByItself, what));
    }
    let answered = availability(observed);
    if !answered.is_enough() {
        verdict.violations.push(RuleViolation::new(CheckedRule::Unavailable, answered.to_string()));
    }
    verdict
}

/// Every wish with an existing job, including jobs that were never acknowledged.
fn cases(observed: &Observed) -> Vec<Case<'_>> {
    let mut runs: BTreeMap<JobId, Vec<&RecordedRun>> = BTreeMap::new();
    for run in &observed.runs {
        runs.entry(run.execution.occurrence.job).or_default().push(run);
    }
    let wishes: BTreeMap<&str, &RequestedJob> =
        observed.wishes.iter().map(|wish| (wish.key.as_str(), wish)).collect();
    observed
        .jobs
        .iter()
        .filter_map(|job| {
            let wish = *wishes.get(job.key.as_deref()?)?;
            Some(Case { wish, job, runs: runs.remove(&job.id).unwrap_or_default() })
        })
        .collect()
}
