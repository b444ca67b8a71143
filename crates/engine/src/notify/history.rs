//! Events that history shows: failures, recoveries, successes, late and long runs, and occurrences that never
//! started.

use super::ending::EndAudience;
use super::facts::{JobFacts, next_attempt, of_failure, of_unstarted, span_text};
use super::reconciler::{NotifyFindings, RaisedAlert, Reconciler};
use super::targets::Targets;
use crate::EngineContext;
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::notify::{EventKind, EventSubject, NotificationEvent, NotificationRule, RuleEvent};
use punctual_core::occurrence::{Finished, Origin};
use punctual_core::ports::StoreError;
use punctual_core::time::Timestamp;
use std::time::Duration;

/// Shorter delays are not late by any rule.
const LATE_MIN: Duration = Duration::from_secs(1);

/// A finished execution, its job, and the time at which it is looked at.
struct Ended<'a> {
    facts: &'a JobFacts,
    finished: &'a Finished,
    now: Timestamp,
    is_silenced: bool,
}

impl Reconciler {
    /// Looks at one finished execution.
    pub(super) async fn look_at(
        &mut self,
        context: &EngineContext,
        finished: &Finished,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let now = context.time.now();
        let was_long = self.end_long(finished, now, findings);
        if matches!(finished.status, Status::Cancelled | Status::Snoozed) || !self.may_matter(finished) {
            return Ok(());
        }
        let job = finished.id.occurrence.job;
        let Some(facts) = self.facts(context, job, finished.job_version).await? else { return Ok(()) };
        let is_silenced = self.is_silenced(EventSubject::Job(facts.selected()), now);
        let ended = Ended { facts: &facts, finished, now, is_silenced };
        match finished.status {
            Status::Succeeded => self.succeeded(&ended, findings),
            Status::Skipped | Status::Expired => {
                self.missed_once(&ended, findings);
                return Ok(());
            }
            _ if self.is_final(context, &ended).await? => self.failed(&ended, findings),
            _ => {}
        }
        self.late(&ended, findings);
        if was_long { Ok(()) } else { self.ran_long(context, &ended, findings).await }
    }

    /// Ends the alert about a run that was found to be long while it ran. Returns whether there was one.
    fn end_long(&mut self, finished: &Finished, now: Timestamp, findings: &mut NotifyFindings) -> bool {
        let name = format!("long~{}", finished.id);
        let Some(alert) = self.end_alert(&name, findings) else { return false };
        let started_at = finished.started_at.unwrap_or(finished.completed_at);
        let text = format!("The run ended after {}.", span_text(finished.completed_at.since(started_at)));
        self.send_end(&name, alert, (EndAudience::Notified, text), now, findings);
        true
    }

    /// Most executions succeed, and most installations ask for nothing about them: their jobs are not read.
    fn may_matter(&self, finished: &Finished) -> bool {
        let job = finished.id.occurrence.job;
        let has_alert = || {
            ["failed", "late", "missed"].iter().any(|what| self.alerts.contains_key(&format!("{what}~{job}")))
        };
        finished.status != Status::Succeeded
            || self.used.successes
            || self.used.late
            || self.used.long
            || finished.id.attempt > 1
            || has_alert()
    }

    /// Whether a failed attempt is the last one of its occurrence.
    async fn is_final(&self, context: &EngineContext, ended: &Ended<'_>) -> Result<bool, StoreError> {
        if !self.is_watched(ended.facts) {
            return Ok(false);
        }
        Ok(context.store.execution(next_attempt(ended.finished.id)).await?.is_none())
    }

    /// The targets of an event of the job.
    fn wanted(&self, ended: &Ended<'_>, kind: EventKind) -> Targets {
        self.targets_for(ended.facts, kind, ended.now, |_| true)
    }

    /// Sends an event about the execution, unless there is nowhere to send it, or it is silenced.
    fn send_ended(
        &self,
        ended: &Ended<'_>,
        targets: Targets,
        (kind, alert): (EventKind, &str),
        text: impl FnOnce() -> String,
        findings: &mut NotifyFindings,
    ) {
        if !targets.is_empty() && !ended.is_silenced {
            let event = ended.facts.finished_event(&self.config, kind, ended.finished, text());
            self.send(ended.now, targets.channels.into_values(), alert, &event, findings);
        }
    }

    fn failed(&mut self, ended: &Ended<'_>, findings: &mut NotifyFindings) {
        let Ended { facts, finished, now, .. } = *ended;
        let kind = EventKind::Failed;
        let name = facts.alert(kind);
        if !facts.is_recurring {
            self.end_overdue(ended, findings);
            let targets = self.targets_for(facts, kind, now, |rule| rule.failures == 1);
            self.send_ended(ended, targets, (kind, &name), || of_failure(finished), findings);
            return;
        }
        let event = facts.finished_event(&self.config, kind, finished, of_failure(finished));
        let raised = RaisedAlert { name: &name, event, occurrences: 1, rule: None, now };
        let targets_at = |known: &Self, count: u64| {
            known.targets_for(facts, kind, now, |rule| u64::from(rule.failures) <= count)
        };
        self.raise(raised, targets_at, findings);
    }

    fn succeeded(&mut self, ended: &Ended<'_>, findings: &mut NotifyFindings) {
        let Ended { facts, finished, now, .. } = *ended;
        if facts.is_recurring {
            for kind in [EventKind::Failed, EventKind::Missed] {
                self.recovered(ended, kind, findings);
            }
        } else if self.alerts.contains_key(&facts.alert(EventKind::Missed)) {
            self.recovered(ended, EventKind::Missed, findings);
        } else if finished.id.attempt > facts.max_retries + 1 {
            let failed = self.wanted(ended, EventKind::Failed);
            let targets = self.recovery_targets(ended, failed.channels.keys());
            let text = "It succeeded after it had failed and was retried.".to_owned();
            let event = facts.finished_event(&self.config, EventKind::Recovered, finished, text);
            let name = facts.alert(EventKind::Failed);
            self.send(now, targets.channels.into_values(), &name, &event, findings);
        }
        let started_at = finished.started_at.unwrap_or(finished.completed_at);
        let text = || format!("It ran for {}.", span_text(finished.completed_at.since(started_at)));
        let kind = EventKind::Succeeded;
        self.send_without_end(ended, self.wanted(ended, kind), (kind, "succeeded"), text, findings);
    }

    /// Where a recovery goes, after these channels got a message about the problem. Incidents are closed even during a
    /// silence.
    fn recovery_targets<'a>(
        &self,
        ended: &Ended<'_>,
        notified: impl IntoIterator<Item = &'a String>,
    ) -> Targets {
        let mut targets =
            if ended.is_silenced { Targets::default() } else { self.wanted(ended, EventKind::Recovered) };
        self.add_incidents(&mut targets, notified);
        targets
    }

    /// Sends an event that nothing ends, such as a success: services for incidents open one and close it at once.
    fn send_without_end(
        &self,
        ended: &Ended<'_>,
        targets: Targets,
        (kind, what): (EventKind, &str),
        text: impl FnOnce() -> String,
        findings: &mut NotifyFindings,
    ) {
        if targets.is_empty() || ended.is_silenced {
            return;
        }
        let Ended { facts, finished, now, .. } = *ended;
        let name = format!("{what}~{}", finished.id);
        let event = facts.finished_event(&self.config, kind, finished, text());
        let mut closed = Targets::default();
        self.add_incidents(&mut closed, targets.channels.keys());
        self.send(now, targets.channels.into_values(), &name, &event, findings);
        let end = NotificationEvent {
            event_id: format!("{}:resolved", event.event_id),
            kind: EventKind::Resolved,
            explanation: "This event has no end that a later one reports.".to_owned(),
            ..event
        };
        self.send(now, closed.channels.into_values(), &name, &end, findings);
    }

    /// A job that runs once did not start in time, and has started or expired since.
    fn end_overdue(&mut self, ended: &Ended<'_>, findings: &mut NotifyFindings) -> bool {
        let name = ended.facts.alert(EventKind::Missed);
        let Some(alert) = self.end_alert(&name, findings) else { return false };
        let text = "The run has started or expired since.".to_owned();
        self.send_end(&name, alert, (EndAudience::Incidents, text), ended.now, findings);
        true
    }

    /// Ends the alert about failures or missed runs of a recurring job, after as many successes as rules ask for.
    fn recovered(&mut self, ended: &Ended<'_>, problem: EventKind, findings: &mut NotifyFindings) {
        let Ended { facts, finished, now, .. } = *ended;
        let name = facts.alert(problem);
        let Some(stored) = self.alerts.get(&name) else { return };
        // An occurrence that started before the alert says nothing about it.
        if finished.scheduled_time < stored.alert.event.scheduled_time.unwrap_or(stored.alert.since) {
            return;
        }
        let rules = facts.rules.iter().map(|place| &self.rules[*place].1);
        let needed = rules.filter(|rule| rule.has(RuleEvent::Recovered)).map(|rule| rule.successes).max();
        if stored.alert.successes + 1 < needed.unwrap_or(1) {
            self.count_success(&name, findings);
            return;
        }
        let Some(alert) = self.end_alert(&name, findings) else { return };
        if problem == EventKind::Missed && facts.is_recurring {
            self.watch.missed.note_recovery(facts.id, finished.scheduled_time);
        }
        let targets = self.recovery_targets(ended, &alert.channels);
        if targets.is_empty() {
            return;
        }
        let what = if problem == EventKind::Failed { "failed" } else { "did not run" };
        let times = if alert.count == 1 { "once".to_owned() } else { format!("{} times", alert.count) };
        let text = format!("It succeeded after it {what} {times}.");
        let mut event = facts.finished_event(&self.config, EventKind::Recovered, finished, text);
        event.since = Some(alert.since);
        self.send(now, targets.channels.into_values(), &name, &event, findings);
    }

    /// An occurrence of a job that runs once ended without a start. Those of recurring jobs are found as missed.
    fn missed_once(&mut self, ended: &Ended<'_>, findings: &mut NotifyFindings) {
        // It was found when its time was over.
        if ended.facts.is_recurring || self.end_overdue(ended, findings) {
            return;
        }
        let (kind, name) = (EventKind::Missed, ended.facts.alert(EventKind::Missed));
        let text = || of_unstarted(ended.finished);
        self.send_ended(ended, self.wanted(ended, kind), (kind, &name), text, findings);
    }

    /// A run that started late. For a recurring job, that is an alert until a run starts in time.
    fn late(&mut self, ended: &Ended<'_>, findings: &mut NotifyFindings) {
        let Ended { facts, finished, now, .. } = *ended;
        let Some(started_at) = finished.started_at else { return };
        // A user has asked for a run after its time.
        let is_asked =
            finished.origin == Origin::Backfill || finished.input.as_ref().is_some_and(|input| input.moved);
        if finished.id.attempt > 1 || is_asked {
            return;
        }
        let late = started_at.since(finished.scheduled_time);
        let kind = EventKind::Late;
        let name = facts.alert(kind);
        let is_own = late > limits::NOTIFY_LATE_DEFAULT && !facts.notify.on_late.is_empty();
        let is_of_rule = |rule: &NotificationRule| late > rule.late_by();
        let rules = facts.rules.iter().map(|place| &self.rules[*place].1);
        let mut late_rules = rules.filter(|rule| rule.has(RuleEvent::Late) && is_of_rule(rule));
        if late < LATE_MIN || !(is_own || late_rules.next().is_some()) {
            if let Some(alert) = self.end_alert(&name, findings) {
                let end = (EndAudience::Incidents, "A run started in time.".to_owned());
                self.send_end(&name, alert, end, now, findings);
            }
            return;
        }
        // A notification that it did not run in time was sent already.
        if self.alerts.contains_key(&facts.alert(EventKind::Missed)) {
            return;
        }
        let targets_at = |known: &Self| {
            let mut targets = Targets::default();
            for channel in facts.notify.on_late.iter().filter(|_| is_own) {
                known.add_target(&mut targets, channel, None, Some(facts), now);
            }
            known.add_rules(&mut targets, facts, kind, now, is_of_rule);
            targets
        };
        let text = || format!("It started {} after its scheduled time.", span_text(late));
        if !facts.is_recurring {
            self.send_without_end(ended, targets_at(self), (kind, "late"), text, findings);
            return;
        }
        let event = facts.finished_event(&self.config, kind, finished, text());
        let raised = RaisedAlert { name: &name, event, occurrences: 1, rule: None, now };
        self.raise(raised, |known, _| targets_at(known), findings);
    }

    /// A run that was longer than a rule allows, unless it was found while it ran.
    async fn ran_long(
        &mut self,
        context: &EngineContext,
        ended: &Ended<'_>,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let Ended { facts, finished, now, .. } = *ended;
        let Some(started_at) = finished.started_at.filter(|_| self.used.long) else { return Ok(()) };
        let ran = finished.completed_at.since(started_at);
        let usual = self.usual_for(context, facts, ran).await?;
        let is_long = |rule: &NotificationRule| is_longer(rule, ran, usual);
        let targets = self.targets_for(facts, EventKind::RunningLong, now, is_long);
        let text = || long_text("It ran", ran, usual);
        self.send_without_end(ended, targets, (EventKind::RunningLong, "long"), text, findings);
        Ok(())
    }
}

/// Whether a run is longer than a rule allows. `usual` is the 95th percentile of recent runs.
pub(super) fn is_longer(rule: &NotificationRule, ran: Duration, usual: Option<Duration>) -> bool {
    let most = rule.longer_than_ms.map(Duration::from_millis);
    let unusual = rule.longer_than_usual_percent.zip(usual).map(|(percent, usual)| usual * percent / 100);
    most.is_some_and(|most| ran > most) || unusual.is_some_and(|most| ran > most)
}

pub(super) fn long_text(what: &str, ran: Duration, usual: Option<Duration>) -> String {
    match usual {
        Some(usual) => format!(
            "{what} for {}. 95 % of its recent runs took at most {}.",
            span_text(ran),
            span_text(usual)
        ),
        None => format!("{what} for {}.", span_text(ran)),
    }
}
