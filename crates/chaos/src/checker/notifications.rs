//! Every failure, and every job that did not run, caused a message that arrived. Repeats of a message have its id.

use super::{CheckVerdict, CheckedRule, RuleViolation};
use crate::observed::{Attempts, FoundJob, Observed, RequestedJob};
use crate::receiver::NotificationTry;
use punctual_client::ExecutionStatus;
use punctual_core::ids::ExecutionId;
use std::collections::{BTreeMap, BTreeSet};

/// The types of the messages that the rule of a run asks for.
const FAILED: &str = "job.failed";
const MISSED: &str = "job.missed";

pub fn check(observed: &Observed, verdict: &mut CheckVerdict) {
    let ids = |is_wanted: fn(&NotificationTry) -> bool| -> BTreeSet<&str> {
        observed.messages.iter().filter(|one| is_wanted(one)).map(|one| one.id.as_str()).collect()
    };
    verdict.counted.notifications_due = failures(observed).len() + observed.unserved.len();
    verdict.counted.notifications = ids(|message| message.is_accepted).len();
    verdict.counted.notification_tries = observed.messages.len();
    verdict.violations.extend(lost(observed));
    let doubled = told(&observed.messages).into_iter().filter(|((kind, _), ids)| {
        // A job that does not run is reported again while that lasts, as a message of its own.
        *kind == FAILED && ids.len() > 1
    });
    verdict.violations.extend(doubled.map(|((kind, subject), ids)| {
        let what = format!("{kind} of {subject} has the ids {ids:?}");
        RuleViolation::new(CheckedRule::DoubledNotification, what)
    }));
}

/// Whether a message is still to arrive.
pub fn is_any_missing(observed: &Observed) -> bool {
    !lost(observed).is_empty()
}

fn lost(observed: &Observed) -> Vec<RuleViolation> {
    let mut lost = vec![];
    let mut violation = |what: String| lost.push(RuleViolation::new(CheckedRule::LostNotification, what));
    // A message that was refused is sent again, and counts only then.
    let accepted: BTreeSet<&str> =
        observed.messages.iter().filter(|one| one.is_accepted).map(|one| one.id.as_str()).collect();
    for message in observed.messages.iter().filter(|one| !accepted.contains(one.id.as_str())) {
        violation(format!("{} was never accepted: {message:?}", message.id));
    }
    let told = told(&observed.messages);
    for execution in failures(observed) {
        if !told.contains_key(&(FAILED, execution.to_string())) {
            violation(format!("the failure of {execution}"));
        }
    }
    for name in &observed.unserved {
        if !told.contains_key(&(MISSED, name.clone())) {
            violation(format!("{name} did not run"));
        }
    }
    lost
}

/// The ids of the messages about each execution, or about each job that has none.
fn told(messages: &[NotificationTry]) -> BTreeMap<(&str, String), BTreeSet<&str>> {
    let mut told: BTreeMap<(&str, String), BTreeSet<&str>> = BTreeMap::new();
    for message in messages {
        for event in &message.events {
            let subject = match (event.execution_id, message.kind.as_str()) {
                (Some(execution), FAILED) => execution.to_string(),
                _ => event.name.clone(),
            };
            told.entry((message.kind.as_str(), subject)).or_default().insert(message.id.as_str());
        }
    }
    told
}

/// The executions that failed for good, of jobs that have only one attempt.
fn failures(observed: &Observed) -> Vec<ExecutionId> {
    let wishes: BTreeMap<&str, &RequestedJob> =
        observed.wishes.iter().map(|wish| (wish.key.as_str(), wish)).collect();
    let has_one_attempt = |job: &&FoundJob| {
        let wish = job.key.as_deref().and_then(|key| wishes.get(key));
        wish.is_some_and(|wish| wish.attempts == Attempts::AtMostOne)
    };
    let failed = [ExecutionStatus::Failed, ExecutionStatus::Lost, ExecutionStatus::TimedOut];
    let mut failures = vec![];
    for job in observed.jobs.iter().filter(has_one_attempt) {
        for execution in job.executions.iter().filter(|execution| failed.contains(&execution.status)) {
            // Another rule reports an attempt that should not be there.
            let is_retried = job.executions.iter().any(|other| {
                other.id.occurrence == execution.id.occurrence && other.id.attempt > execution.id.attempt
            });
            if !is_retried {
                failures.push(execution.id);
            }
        }
    }
    failures
}
