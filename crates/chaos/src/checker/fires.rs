//! Every due occurrence was fired once, or skipped for a reason that its job allows, and nothing else was
//! fired.

use super::{Case, CheckVerdict, CheckedRule, RuleViolation};
use crate::nemesis::InjectedFault;
use crate::observed::{FoundExecution, FoundSkip, OverlapAllowed, Times};
use crate::plan::DATABASE;
use punctual_core::ids::OccurrenceId;
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The maximum time from the end of a handler until its report is accepted, without faults at its worker or
/// the database. Until then its occurrence is open; history contains the end as the worker saw it. Another
/// process that was cut off in the middle of a transaction may hold the row lock for three seconds, and a
/// process that waits for a row retries after five.
const REPORT_TIME_MAX: Duration = Duration::from_secs(8);

pub fn check(case: &Case<'_>, faults: &[InjectedFault], verdict: &mut CheckVerdict) {
    let fired = fired(&case.job.executions, faults);
    verdict.counted.fired += fired.len();
    match case.wish.times {
        Times::Once { at } => check_once(case, at, &fired, verdict),
        Times::Every { .. } => check_every(case, &fired, verdict),
    }
    for run in &case.runs {
        if run.began < run.scheduled_time {
            let what = format!(
                "{}: {} was due at {} and began at {}",
                case.wish.key, run.execution, run.scheduled_time, run.began
            );
            verdict.violations.push(RuleViolation::new(CheckedRule::Early, what));
        }
    }
}

/// Each occurrence with its time, and the latest possible end of its last attempt. `None` if it has not
/// ended: it stays open.
type FiredOccurrences = BTreeMap<OccurrenceId, (Timestamp, Option<Timestamp>)>;

fn fired(executions: &[FoundExecution], faults: &[InjectedFault]) -> FiredOccurrences {
    let mut fired = FiredOccurrences::new();
    for execution in executions {
        let over = execution.completed_at.map(|at| reported_by(at, execution.worker.as_deref(), faults));
        let entry = fired.entry(execution.id.occurrence).or_insert((execution.scheduled_time, over));
        entry.1 = match (entry.1, over) {
            (Some(one), Some(other)) => Some(one.max(other)),
            _ => None,
        };
    }
    fired
}

/// The latest time at which the store knew of an end on a worker: reports wait while faults, one after the
/// other, keep the worker from the database.
fn reported_by(ended: Timestamp, worker: Option<&str>, faults: &[InjectedFault]) -> Timestamp {
    let mut known = ended.plus(REPORT_TIME_MAX);
    // In order of their start.
    for fault in
        faults.iter().filter(|fault| fault.target == DATABASE || Some(fault.target.as_str()) == worker)
    {
        if fault.from <= known && ended <= fault.until {
            known = known.max(fault.until.plus(REPORT_TIME_MAX));
        }
    }
    known
}

fn check_once(case: &Case<'_>, at: Option<Timestamp>, fired: &FiredOccurrences, verdict: &mut CheckVerdict) {
    verdict.counted.occurrences_due += 1;
    let key = &case.wish.key;
    let times: Vec<Timestamp> = fired.values().map(|(scheduled, _)| *scheduled).collect();
    match (&times[..], at) {
        ([], _) => {
            let what = format!("{key} (job {}) was never fired; skipped: {:?}", case.job.id, case.job.skips);
            verdict.violations.push(RuleViolation::new(CheckedRule::Missed, what));
        }
        ([time], Some(at)) if *time != at => {
            let what = format!("{key} was due at {at} and fired for {time}");
            verdict.violations.push(RuleViolation::new(CheckedRule::Extra, what));
        }
        ([_], _) => {}
        (times, _) => {
            let what = format!("{key} runs once and was fired for {times:?}");
            verdict.violations.push(RuleViolation::new(CheckedRule::Extra, what));
        }
    }
}

fn check_every(case: &Case<'_>, fired: &FiredOccurrences, verdict: &mut CheckVerdict) {
    let key = &case.wish.key;
    let due: BTreeSet<Timestamp> = case.wish.times.nominal().into_iter().collect();
    verdict.counted.occurrences_due += due.len();
    let mut times: BTreeMap<Timestamp, u32> = BTreeMap::new();
    for (scheduled, _) in fired.values() {
        *times.entry(*scheduled).or_default() += 1;
    }
    for (time, count) in &times {
        if !due.contains(time) {
            let what = format!("{key} was fired for {time}, which is not one of its times");
            verdict.violations.push(RuleViolation::new(CheckedRule::Extra, what));
        } else if *count > 1 {
            let what = format!("{key} was fired {count} times for {time}");
            verdict.violations.push(RuleViolation::new(CheckedRule::Extra, what));
        }
    }
    check_skips(case, &due, &times, fired, verdict);
    for time in &due {
        let is_skipped = case.job.skips.iter().any(|skip| covers(skip, *time));
        if !times.contains_key(time) && !is_skipped {
            let what = format!("{key} (job {}) was not fired for {time}", case.job.id);
            verdict.violations.push(RuleViolation::new(CheckedRule::Missed, what));
        }
    }
}

fn covers(skip: &FoundSkip, time: Timestamp) -> bool {
    skip.first <= time && time <= skip.last
}

/// An occurrence may be skipped only because of overlap, only where the policy skips overlaps, and only while
/// an earlier occurrence was open.
fn check_skips(
    case: &Case<'_>,
    due: &BTreeSet<Timestamp>,
    times: &BTreeMap<Timestamp, u32>,
    fired: &FiredOccurrences,
    verdict: &mut CheckVerdict,
) {
    let key = &case.wish.key;
    for skip in &case.job.skips {
        let covered: Vec<Timestamp> = due.range(skip.first..=skip.last).copied().collect();
        let described =
            format!("{key} skipped {} from {} to {} ({:?})", skip.count, skip.first, skip.last, skip.reason);
        if covered.len() as u64 != skip.count {
            let what = format!("{described}, where {} were due", covered.len());
            verdict.violations.push(RuleViolation::new(CheckedRule::Missed, what));
        }
        if case.wish.overlap == OverlapAllowed::Allow || skip.reason != SkipReason::Overlap {
            verdict.violations.push(RuleViolation::new(CheckedRule::Missed, described.clone()));
            continue;
        }
        for time in covered {
            verdict.counted.skipped_for_overlap += 1;
            if times.contains_key(&time) {
                let what = format!("{described}, but {time} was fired as well");
                verdict.violations.push(RuleViolation::new(CheckedRule::Extra, what));
            }
            let was_open = |(scheduled, ended): &(Timestamp, Option<Timestamp>)| {
                *scheduled < time && ended.is_none_or(|ended| ended > time)
            };
            if !fired.values().any(was_open) {
                let what = format!("{described}, but nothing was open that could have overlapped at {time}");
                verdict.violations.push(RuleViolation::new(CheckedRule::Missed, what));
            }
        }
    }
}
