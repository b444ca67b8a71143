//! What became of occurrences: which did not run, which failed for good, which were late.

use super::{Facts, LATE_MIN, TOLD_MAX, rough, when};
use crate::reasons;
use punctual_client::{API_PREFIX, RecentOccurrence};
use punctual_core::ids::OccurrenceId;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::Finished;
use punctual_core::ports::DeadLetter;
use punctual_core::schedule::SkipRange;
use std::time::Duration;

/// Finished occurrences that are shown.
const RECENT_MAX: usize = 10;

pub fn sentences(facts: &Facts) -> Vec<String> {
    let mut said = Vec::new();
    said.extend(facts.dead.as_ref().map(|letter| died(letter, facts)));
    if let Some(last) = ended(facts).next().and_then(<[Finished]>::first) {
        said.extend(how_it_ended(last, facts));
    }
    said.extend(ended(facts).next().and_then(late));
    said.extend(facts.skipped.iter().take(TOLD_MAX).map(skipped));
    said
}

/// The occurrences that have ended, latest first, each with its attempts, latest first.
fn ended(facts: &Facts) -> impl Iterator<Item = &[Finished]> {
    let is_open = |id: OccurrenceId| facts.view.open.iter().any(|live| live.id == id);
    facts
        .history
        .chunk_by(|a, b| a.id.occurrence == b.id.occurrence)
        .filter(move |attempts| !is_open(attempts[0].id.occurrence))
}

pub fn recent(facts: &Facts) -> Vec<RecentOccurrence> {
    let shown = |attempts: &[Finished]| {
        let last = &attempts[0];
        let is_plain = matches!(last.status, Status::Succeeded);
        RecentOccurrence {
            scheduled_time: last.scheduled_time,
            status: last.status.into(),
            reason: (!is_plain).then(|| reasons::of_end(last, &facts.view.job.spec)),
            late_by: lateness(attempts).map(Into::into),
            attempts: last.id.attempt - u32::from(last.started_at.is_none()),
        }
    };
    ended(facts).take(RECENT_MAX).map(shown).collect()
}

/// How long after its scheduled time the first attempt began, if that attempt is still kept.
fn lateness(attempts: &[Finished]) -> Option<Duration> {
    let first = attempts.last().filter(|first| first.id.attempt == 1)?;
    Some(first.started_at.unwrap_or(first.available_at).since(first.scheduled_time))
}

fn late(attempts: &[Finished]) -> Option<String> {
    let late_by = lateness(attempts).filter(|late_by| *late_by >= LATE_MIN)?;
    let scheduled = attempts[0].scheduled_time;
    let began =
        if attempts.iter().any(|attempt| attempt.started_at.is_some()) { "started" } else { "was ready" };
    Some(format!("The latest occurrence, scheduled for {scheduled}, {began} {} late.", rough(late_by)))
}

fn how_it_ended(last: &Finished, facts: &Facts) -> Option<String> {
    let is_dead = facts.dead.as_ref().is_some_and(|letter| letter.occurrence == last.id.occurrence);
    let (scheduled, ended) = (last.scheduled_time, when(last.completed_at, facts.now));
    let reason = || reasons::of_end(last, &facts.view.job.spec);
    match last.status {
        // Its dead letter says it all.
        _ if is_dead => None,
        Status::Succeeded => {
            Some(format!("The latest occurrence, scheduled for {scheduled}, succeeded at {ended}."))
        }
        _ => {
            Some(format!("The latest occurrence, scheduled for {scheduled}, ended at {ended}: {}.", reason()))
        }
    }
}

fn died(letter: &DeadLetter, facts: &Facts) -> String {
    let DeadLetter { occurrence, attempts, scheduled_time, .. } = letter;
    let error = letter.error.as_ref().map_or(String::new(), |error| format!(" ({error})"));
    let attempts = if *attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
    format!(
        "The occurrence scheduled for {scheduled_time} failed for good at {} after {attempts}{error}; its dead letter \
         is {occurrence}, and POST {API_PREFIX}/dead-letters/redrive with {{\"ids\": [\"{occurrence}\"]}} runs it again.",
        when(letter.died_at, facts.now)
    )
}

fn skipped(range: &SkipRange) -> String {
    let because = reasons::because(range.reason);
    match range.count {
        1 => format!("The occurrence scheduled for {} was skipped because {because}.", range.first),
        count => format!(
            "{count} occurrences scheduled from {} to {} were skipped because {because}.",
            range.first, range.last
        ),
    }
}
