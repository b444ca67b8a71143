//! What happened to past occurrences: which did not run, which failed permanently, which were late.

use super::{ExplainedFacts, LATE_MIN, TOLD_MAX, blamed_name, in_brackets, rough, status_reason, when};
use crate::reasons;
use punctual_client::RecentOccurrence;
use punctual_core::ids::OccurrenceId;
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{Finished, Origin};
use punctual_core::ports::DeadLetter;
use punctual_core::schedule::{OverlapPolicy, SkipRange, SkipReason};
use punctual_core::time::Timestamp;
use std::time::Duration;

/// Finished occurrences that are shown.
const RECENT_MAX: usize = 10;

pub fn sentences(facts: &ExplainedFacts) -> Vec<String> {
    let mut said = Vec::new();
    said.extend(facts.dead.as_ref().map(|letter| died(letter, facts)));
    if let Some(attempts) = ended(facts).next() {
        said.extend(how_it_ended(attempts, facts));
        said.extend(late(attempts, facts));
    }
    said.extend(facts.skipped.iter().take(TOLD_MAX).map(|range| skipped(range, facts)));
    said
}

/// A sentence saying that the latest runs of a job that runs again have failed. The failure is why people ask.
pub fn failing(facts: &ExplainedFacts) -> Option<String> {
    let runs_again = matches!(facts.view.status(), JobStatus::Active | JobStatus::Paused);
    let last = ended(facts).next()?.first().filter(|_| runs_again)?;
    let failed = ended(facts).take_while(|attempts| attempts[0].status.is_failure()).count();
    let (at, why) = (when(last.completed_at, facts.now), of_end(last, facts));
    let error = in_brackets(last.error.as_deref());
    match failed {
        0 => None,
        1 => Some(format!("Its last run failed at {at}: {why}{error}.")),
        _ => Some(format!("Its last {failed} runs failed, the latest at {at}: {why}{error}.")),
    }
}

/// The occurrences that have ended, latest first, each with its attempts, latest first.
fn ended(facts: &ExplainedFacts) -> impl Iterator<Item = &[Finished]> {
    let is_open = |id: OccurrenceId| facts.view.open.iter().any(|live| live.id == id);
    facts
        .history
        .chunk_by(|a, b| a.id.occurrence == b.id.occurrence)
        .filter(move |attempts| !is_open(attempts[0].id.occurrence))
}

pub fn recent(facts: &ExplainedFacts) -> Vec<RecentOccurrence> {
    let shown = |attempts: &[Finished]| {
        let last = &attempts[0];
        let is_plain = matches!(last.status, Status::Succeeded);
        RecentOccurrence {
            scheduled_time: last.scheduled_time,
            status: last.status.into(),
            reason: (!is_plain).then(|| of_end(last, facts)),
            late_by: lateness(attempts).map(Into::into),
            attempts: last.id.attempt - u32::from(last.started_at.is_none()),
        }
    };
    ended(facts).take(RECENT_MAX).map(shown).collect()
}

/// How an occurrence ended, and what else may have caused it.
fn of_end(last: &Finished, facts: &ExplainedFacts) -> String {
    let reason = reasons::of_end(last, &facts.view.job.spec, blamed_name(facts));
    match may_have_given_way(last, facts) {
        true => format!("{reason}, by the next occurrence (overlap_policy REPLACE) or by a request"),
        false => reason,
    }
}

/// Whether a later occurrence may have replaced this one. No record says so for certain.
fn may_have_given_way(last: &Finished, facts: &ExplainedFacts) -> bool {
    let job = &facts.view.job;
    let open = facts.view.open.iter().map(|live| (live.id, live.scheduled_time));
    let ended = facts.history.iter().map(|ended| (ended.id.occurrence, ended.scheduled_time));
    let came_before_its_end = |(id, scheduled_time): (OccurrenceId, Timestamp)| {
        id.number > last.id.occurrence.number && scheduled_time <= last.completed_at
    };
    last.status == Status::Cancelled
        && job.spec.settings.overlap == OverlapPolicy::Replace
        && last.job_version == job.version
        && open.chain(ended).any(came_before_its_end)
}

/// How long after its scheduled time the first attempt began, if it began and is still in history.
fn lateness(attempts: &[Finished]) -> Option<Duration> {
    let first = attempts.last().filter(|first| first.id.attempt == 1)?;
    Some(first.started_at?.since(first.scheduled_time))
}

/// How late it was, to follow a sentence about the occurrence.
fn late(attempts: &[Finished], facts: &ExplainedFacts) -> Option<String> {
    let late_by = lateness(attempts).filter(|late_by| *late_by >= LATE_MIN)?;
    let first = attempts.last()?;
    // Triggered occurrences do not wait for other jobs.
    let has_parents = !facts.view.job.spec.settings.depends_on.is_empty() && first.origin != Origin::Trigger;
    // A parent that has run again since does not show when this one could start.
    let ended_at =
        facts.parents_ended_at.filter(|ended_at| first.started_at.is_some_and(|at| at >= *ended_at));
    if !has_parents || ended_at.is_some_and(|ended_at| ended_at <= first.scheduled_time) {
        return Some(format!("It started {} late.", rough(late_by)));
    }
    let since = ended_at.and_then(|ended_at| Some(first.started_at?.since(ended_at)));
    Some(match since.filter(|since| *since >= LATE_MIN) {
        Some(since) => {
            format!("It started {} after the last of the jobs that it depends on had ended.", rough(since))
        }
        None => format!(
            "It started {} after its scheduled time, because it waited for the jobs that it depends on.",
            rough(late_by)
        ),
    })
}

/// The failed attempts before the one that succeeded.
fn after_failures(attempts: &[Finished]) -> String {
    let Some((last, before)) = attempts.split_first() else { return String::new() };
    let count = last.id.attempt - 1;
    if count == 0 {
        return String::new();
    }
    let all = |status: Status| before.iter().all(|attempt| attempt.status == status);
    let how = match before.first().map(|attempt| attempt.status) {
        Some(Status::Failed) if all(Status::Failed) => "failed",
        Some(Status::TimedOut) if all(Status::TimedOut) => "ran out of time",
        Some(Status::Lost) if all(Status::Lost) => "was lost with its worker",
        Some(Status::Snoozed) if all(Status::Snoozed) => "was snoozed",
        _ => "did not succeed",
    };
    // The error of a timeout says the same as `how`.
    let said = before.first().filter(|_| !all(Status::TimedOut)).and_then(|attempt| attempt.error.as_deref());
    let error = in_brackets(said);
    match count {
        1 => format!(", after an attempt that {how}{error}"),
        _ => {
            let how = if how.starts_with("was") { "were lost with their workers" } else { how };
            format!(", after {count} attempts that {how}{error}")
        }
    }
}

fn how_it_ended(attempts: &[Finished], facts: &ExplainedFacts) -> Option<String> {
    let last = attempts.first()?;
    let is_dead = facts.dead.as_ref().is_some_and(|letter| letter.occurrence == last.id.occurrence);
    let (scheduled, ended) = (last.scheduled_time, when(last.completed_at, facts.now));
    let latest = format!("The latest occurrence, scheduled for {scheduled},");
    let reason = of_end(last, facts);
    match last.status {
        // Its dead letter explains it.
        _ if is_dead => None,
        Status::Succeeded => Some(format!("{latest} succeeded at {ended}{}.", after_failures(attempts))),
        // The job's status already gives the reason.
        _ if status_reason(facts).as_ref() == Some(&reason) => Some(format!("{latest} ended at {ended}.")),
        _ => Some(format!("{latest} ended at {ended}: {reason}.")),
    }
}

fn died(letter: &DeadLetter, facts: &ExplainedFacts) -> String {
    let DeadLetter { occurrence, attempts, scheduled_time, .. } = letter;
    let error = in_brackets(letter.error.as_deref());
    let attempts = if *attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
    let what_to_do = match facts.view.status() {
        JobStatus::Cancelled => "which cannot be redriven, as the job is cancelled",
        _ => "and a redrive runs it again",
    };
    format!(
        "The occurrence scheduled for {scheduled_time} failed permanently at {} after {attempts}{error}; \
         its dead letter is {occurrence}, {what_to_do}.",
        when(letter.died_at, facts.now)
    )
}

fn skipped(range: &SkipRange, facts: &ExplainedFacts) -> String {
    let because = match fired_late(range, facts) {
        Some((scheduled, fired_at)) => format!(
            "no scheduler fired in time: at {fired_at}, when one did, the occurrence scheduled for \
             {scheduled} was also due and ran first (overlap_policy)"
        ),
        None => reasons::because(range.reason).to_owned(),
    };
    match range.count {
        1 => format!("The occurrence scheduled for {} was skipped because {because}.", range.first),
        count => format!(
            "{count} occurrences scheduled from {} to {} were skipped because {because}.",
            range.first, range.last
        ),
    }
}

/// The occurrence that blocked these and the time of its fire, if it was fired so late that these were
/// already due. Had it been fired on time, they might have run.
fn fired_late(range: &SkipRange, facts: &ExplainedFacts) -> Option<(Timestamp, Timestamp)> {
    if range.reason != SkipReason::Overlap {
        return None;
    }
    let is_first = |attempt: u32, origin: Origin| attempt == 1 && origin == Origin::Schedule;
    let open = facts.view.open.iter().filter(|live| is_first(live.attempt, live.origin));
    let ended = facts.history.iter().filter(|ended| is_first(ended.id.attempt, ended.origin));
    let open = open.map(|live| (live.scheduled_time, live.available_at));
    let fired = open.chain(ended.map(|ended| (ended.scheduled_time, ended.available_at)));
    fired.filter(|(scheduled, at)| *scheduled < range.first && *at >= range.last).max()
}
