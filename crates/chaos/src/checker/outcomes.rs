//! Attempts are in sequence, each with at most one outcome. Every accepted outcome is that of a run of the
//! same attempt. Runs that must not happen twice, or concurrently, did not.

use super::{Case, CheckVerdict, CheckedRule, RuleViolation};
use crate::nemesis::InjectedFault;
use crate::observed::{Attempts, FoundExecution, OverlapAllowed};
use crate::plan::FaultKind;
use crate::recorder::{CallOutcome, RecordedRun};
use punctual_client::ExecutionStatus;
use punctual_core::ids::{ExecutionId, OccurrenceId};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

type Executions<'a> = BTreeMap<ExecutionId, &'a FoundExecution>;

/// Every line of the record belongs to an attempt in history, and no attempt has two.
pub fn check_runs_are_known(runs: &[RecordedRun], executions: &Executions<'_>, verdict: &mut CheckVerdict) {
    let mut seen: BTreeMap<ExecutionId, &RecordedRun> = BTreeMap::new();
    for run in runs {
        let known = executions.get(&run.execution);
        let fits = known.is_some_and(|execution| {
            execution.scheduled_time == run.scheduled_time
                && run.attempt == run.execution.attempt
                && run.idempotency_key == run.execution.occurrence.to_string()
        });
        if !fits {
            let what = format!("run {run:?} is not in history: {known:?}");
            verdict.violations.push(RuleViolation::new(CheckedRule::UnknownRun, what));
        }
        if let Some(first) = seen.insert(run.execution, run) {
            let what = format!("{} ran twice, as runs {} and {}", run.execution, first.number, run.number);
            verdict.violations.push(RuleViolation::new(CheckedRule::RanTwice, what));
        }
    }
}

pub fn check(case: &Case<'_>, faults: &[InjectedFault], verdict: &mut CheckVerdict) {
    let key = &case.wish.key;
    let mut occurrences: BTreeMap<OccurrenceId, Vec<&FoundExecution>> = BTreeMap::new();
    for execution in &case.job.executions {
        occurrences.entry(execution.id.occurrence).or_default().push(execution);
    }
    if !case.job.is_finished {
        verdict
            .violations
            .push(RuleViolation::new(CheckedRule::Unfinished, format!("{key} (job {})", case.job.id)));
    }
    for (occurrence, mut attempts) in occurrences {
        attempts.sort_by_key(|execution| execution.id.attempt);
        verdict.counted.attempts += attempts.len();
        let of = |status| attempts.iter().filter(|execution| execution.status == status).count();
        verdict.counted.lost_attempts += of(ExecutionStatus::Lost);
        verdict.counted.failed_attempts += of(ExecutionStatus::Failed);
        check_attempts(case, occurrence, &attempts, verdict);
    }
    check_accepted(case, verdict);
    check_overlaps(case, faults, verdict);
}

/// Attempts are numbered without gaps and only the last one may have succeeded; with retries, it must have.
fn check_attempts(
    case: &Case<'_>,
    occurrence: OccurrenceId,
    attempts: &[&FoundExecution],
    verdict: &mut CheckVerdict,
) {
    let described = || {
        let all: Vec<String> =
            attempts.iter().map(|one| format!("{} {}", one.id.attempt, one.status)).collect();
        format!("{} {occurrence}: {}", case.wish.key, all.join(", "))
    };
    let is_in_order = (1..).zip(attempts).all(|(number, attempt)| attempt.id.attempt == number);
    let (last, before) = attempts.split_last().expect("an occurrence has an attempt");
    let retried = [ExecutionStatus::Failed, ExecutionStatus::Lost, ExecutionStatus::TimedOut];
    if !is_in_order || !before.iter().all(|attempt| retried.contains(&attempt.status)) {
        verdict.violations.push(RuleViolation::new(CheckedRule::DoubledOutcome, described()));
    }
    let is_over = last.status.is_finished();
    match case.wish.attempts {
        Attempts::UntilItSucceeds if is_over && last.status != ExecutionStatus::Succeeded => {
            verdict.violations.push(RuleViolation::new(CheckedRule::GaveUp, described()));
        }
        Attempts::AtMostOne if attempts.len() > 1 => {
            verdict.violations.push(RuleViolation::new(CheckedRule::RanTwice, described()));
        }
        _ => {}
    }
    if !is_over {
        verdict.violations.push(RuleViolation::new(CheckedRule::Unfinished, described()));
    }
}

/// A success names its run, which must belong to this attempt and have been answered with success. A failure has a
/// run whose call requested a failure, or that was aborted.
fn check_accepted(case: &Case<'_>, verdict: &mut CheckVerdict) {
    for execution in &case.job.executions {
        let runs: Vec<&&RecordedRun> = case.runs.iter().filter(|run| run.execution == execution.id).collect();
        let answered = |answer| runs.iter().any(|run| run.ended.is_some_and(|(_, ended)| ended == answer));
        let is_backed = match execution.status {
            ExecutionStatus::Succeeded => {
                answered(CallOutcome::Succeeded) && runs.iter().any(|run| Some(run.number) == execution.run)
            }
            ExecutionStatus::Failed => answered(CallOutcome::Failed) || answered(CallOutcome::BrokenOff),
            _ => true,
        };
        if !is_backed {
            let what = format!("{}: {execution:?} was accepted, and its runs are {runs:?}", case.wish.key);
            verdict.violations.push(RuleViolation::new(CheckedRule::StaleOutcome, what));
        }
    }
}

/// Runs of a job that skips overlaps never ran concurrently. A paused worker cannot stop its handlers, so a run of a
/// lost attempt whose worker was paused is counted separately. A worker that was only cut off must have stopped.
fn check_overlaps(case: &Case<'_>, faults: &[InjectedFault], verdict: &mut CheckVerdict) {
    if case.wish.overlap == OverlapAllowed::Allow {
        return;
    }
    let executions: BTreeMap<ExecutionId, &FoundExecution> =
        case.job.executions.iter().map(|execution| (execution.id, execution)).collect();
    let was_paused = |run: &RecordedRun, ended: Timestamp| {
        let execution = executions.get(&run.execution);
        let lost = execution.filter(|execution| execution.status == ExecutionStatus::Lost);
        lost.and_then(|lost| lost.worker.as_deref()).is_some_and(|worker| {
            let pauses =
                faults.iter().filter(|fault| fault.kind == FaultKind::Pause && fault.target == worker);
            pauses.into_iter().any(|pause| pause.from <= ended && run.began <= pause.until)
        })
    };
    let mut runs = case.runs.clone();
    runs.sort_by_key(|run| run.began);
    for (index, run) in runs.iter().enumerate() {
        let Some((ended, _)) = run.ended else { continue };
        for other in runs[index + 1..].iter().take_while(|other| other.began < ended) {
            if was_paused(run, ended) {
                verdict.counted.overlaps_of_paused_workers += 1;
            } else {
                let what = format!(
                    "{}: {} ran from {} to {ended}, and {} began at {}",
                    case.wish.key, run.execution, run.began, other.execution, other.began
                );
                verdict.violations.push(RuleViolation::new(CheckedRule::Overlapped, what));
            }
        }
    }
}
