//! Conditions that history cannot show: queues with old work or a full limit, many dead letters, and long runs.

use super::ending::{EndAudience, OverWalk};
use super::facts::{JobFacts, span_text};
use super::history::{is_longer, long_text};
use super::in_url;
use super::missed::MissedWalks;
use super::reconciler::{NotifyFindings, RaisedAlert, Reconciler, cut_name};
use super::targets::Targets;
use crate::EngineContext;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::notify::{EventKind, NotificationEvent, NotificationRule, RuleEvent};
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{DeadLetterQuery, ExecutionView, StoreError};
use punctual_core::time::{Monotonic, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Executions that one read returns.
const RUNNING_PAGE: usize = 100;

/// When conditions were checked last, and the places of walks that take several steps. What must survive a failover is
/// in pending alerts instead.
#[derive(Default)]
pub(super) struct WatchState {
    looked_at: Option<Monotonic>,
    pub(super) missed: MissedWalks,
    pub(super) over: OverWalk,
    /// How long runs of jobs usually take, and when that was computed.
    usual: BTreeMap<JobId, (Monotonic, Option<Duration>)>,
}

impl WatchState {
    /// Whether it is time to check all conditions.
    pub(super) fn is_due(&self, now: Monotonic) -> bool {
        self.looked_at.is_none_or(|at| now.since(at) >= limits::NOTIFY_WATCH_INTERVAL)
    }
}

impl Reconciler {
    /// Checks all conditions, every few seconds, and continues walks. Returns until when missed runs are now known, if
    /// that changed.
    pub(super) async fn look_around(
        &mut self,
        context: &EngineContext,
        missed_until: Timestamp,
        findings: &mut NotifyFindings,
    ) -> Result<Option<Timestamp>, StoreError> {
        self.workers(context, findings).await?;
        let now = context.host.clock.monotonic();
        let is_due = self.watch.is_due(now);
        if is_due {
            self.watch.looked_at = Some(now);
            self.queues(context, findings).await?;
            self.dead_letters(context, findings).await?;
            self.limits(context, findings).await?;
            self.nodes(context, findings).await?;
            self.running(context, findings).await?;
            self.escalate(context.time.now(), findings);
        }
        self.look_for_missed(context, missed_until, is_due, findings).await
    }

    async fn queues(
        &mut self,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let now = context.time.now();
        let rules = self.rules_with(RuleEvent::QueueOld);
        if rules.is_empty() {
            self.end_unfounded("queue~", &BTreeSet::new(), now, findings);
            return Ok(());
        }
        let mut oldest: BTreeMap<String, Timestamp> = BTreeMap::new();
        for depth in context.store.depths().await? {
            if let Some(at) = depth.oldest_queued {
                let known = oldest.entry(depth.lane.queue().to_owned()).or_insert(at);
                *known = at.min(*known);
            }
        }
        let mut founded = BTreeSet::new();
        for (rule_name, rule) in rules {
            let most = Duration::from_millis(rule.queue_older_than_ms.unwrap_or(u64::MAX));
            for (queue, at) in &oldest {
                if now.since(*at) <= most || !rule.jobs.matches_queue(queue) {
                    continue;
                }
                let name = cut_name(&format!("queue~{rule_name}~{queue}")).into_owned();
                let age = span_text(now.since(*at));
                let text = format!("The oldest execution in the queue {queue} has waited for {age}.");
                let event = NotificationEvent {
                    queue: Some(queue.clone()),
                    since: Some(*at),
                    command: Some(format!("punctual queue show {queue}")),
                    url: self.config.queue_page(queue),
                    ..NotificationEvent::new(format!("{name}:{now}"), EventKind::QueueOld, now, queue, text)
                };
                founded.insert(name.clone());
                self.raise_of_rule(&name, (&rule_name, &rule), event, now, findings);
            }
        }
        self.end_unfounded("queue~", &founded, now, findings);
        Ok(())
    }

    async fn dead_letters(
        &mut self,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let now = context.time.now();
        let rules = self.rules_with(RuleEvent::DeadLetters);
        if rules.is_empty() {
            self.end_unfounded("dead~", &BTreeSet::new(), now, findings);
            return Ok(());
        }
        let total = context.store.job_counts().await?.dead_letters;
        let mut founded = BTreeSet::new();
        for (rule_name, rule) in rules {
            let most = rule.dead_letters_above.unwrap_or(u64::MAX);
            let mut counts = vec![];
            if rule.jobs.queues.is_empty() {
                counts.push((String::new(), total));
            } else if total > most {
                for queue in &rule.jobs.queues {
                    let limit = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1);
                    let queue = queue.as_str().to_owned();
                    let query =
                        DeadLetterQuery { limit, queue: Some(queue.clone()), ..DeadLetterQuery::default() };
                    let found = context.store.dead_letters(query).await?.items.len();
                    counts.push((queue, found as u64));
                }
            }
            for (queue, count) in counts.into_iter().filter(|(_, count)| *count > most) {
                let name = cut_name(&format!("dead~{rule_name}~{queue}")).into_owned();
                let (place, called) = match queue.as_str() {
                    "" => (String::new(), "all queues".to_owned()),
                    queue => (format!(" in the queue {queue}"), queue.to_owned()),
                };
                let text = format!("There are more than {most} dead letters{place}.");
                let page = match queue.as_str() {
                    "" => "dead-letters".to_owned(),
                    queue => format!("dead-letters?queue={}", in_url(queue)),
                };
                let event = NotificationEvent {
                    url: self.config.page(&page),
                    queue: Some(queue).filter(|queue| !queue.is_empty()),
                    occurrences: Some(count),
                    command: Some("punctual dlq list".to_owned()),
                    ..NotificationEvent::new(
                        format!("{name}:{now}"),
                        EventKind::DeadLetters,
                        now,
                        &called,
                        text,
                    )
                };
                founded.insert(name.clone());
                self.raise_of_rule(&name, (&rule_name, &rule), event, now, findings);
            }
        }
        self.end_unfounded("dead~", &founded, now, findings);
        Ok(())
    }

    async fn running(
        &mut self,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let now = context.time.now();
        if !self.used.long {
            // Without a rule, no end of such a run is noticed.
            self.end_unfounded("long~", &BTreeSet::new(), now, findings);
            self.watch.usual.clear();
            return Ok(());
        }
        let (mut after, mut looked_at) = (None, 0);
        loop {
            let page = context.store.running(after, RUNNING_PAGE).await?;
            looked_at += page.items.len();
            for open in page.items {
                let LiveState::Running(lease) = open.live.state else { continue };
                let ran = now.since(lease.claimed_at);
                let execution = open.live.execution();
                let job = execution.occurrence.job;
                let Some(facts) = self.facts(context, job, open.live.job_version).await? else { continue };
                let usual = self.usual_for(context, &facts, ran).await?;
                let is_long = |rule: &NotificationRule| is_longer(rule, ran, usual);
                let kind = EventKind::RunningLong;
                if self.targets_for(&facts, kind, now, is_long).is_empty() {
                    continue;
                }
                let text = long_text("It has been running", ran, usual);
                let event = NotificationEvent {
                    execution_id: Some(execution),
                    scheduled_time: Some(open.live.scheduled_time),
                    started_at: Some(lease.claimed_at),
                    url: self.config.page(&format!("executions/{execution}")),
                    ..facts.event(&self.config, format!("{}:{execution}", kind.word()), kind, now, text)
                };
                let targets = |known: &Self, _| known.targets_for(&facts, kind, now, is_long);
                let name = format!("long~{execution}");
                let raised = RaisedAlert { name: &name, event, occurrences: 1, rule: None, now };
                self.raise(raised, targets, findings);
            }
            after = page.next;
            if after.is_none() || looked_at >= limits::NOTIFY_RUNNING_MAX {
                break;
            }
        }
        self.end_long_without_trace(context, now, findings).await
    }

    /// Ends alerts about long runs of which nothing is left, such as those of deleted jobs. History shows the end of
    /// all others.
    async fn end_long_without_trace(
        &mut self,
        context: &EngineContext,
        now: Timestamp,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let long = self.alerts.range("long~".to_owned().."long~~".to_owned());
        let long: Vec<(String, Option<ExecutionId>)> =
            long.map(|(name, stored)| (name.clone(), stored.alert.event.execution_id)).collect();
        for (name, execution) in long {
            let is_known = match execution {
                Some(execution) => context.store.execution(execution).await?.is_some(),
                None => false,
            };
            if is_known {
                continue;
            }
            if let Some(alert) = self.end_alert(&name, findings) {
                let end = (EndAudience::Notified, "The run is gone.".to_owned());
                self.send_end(&name, alert, end, now, findings);
            }
        }
        Ok(())
    }

    /// How long 95 % of the recent runs of a recurring job took, if a rule compares this run with them. `None` if it
    /// has run too rarely.
    pub(super) async fn usual_for(
        &mut self,
        context: &EngineContext,
        facts: &JobFacts,
        ran: Duration,
    ) -> Result<Option<Duration>, StoreError> {
        let is_compared = |place: &usize| {
            let rule = &self.rules[*place].1;
            rule.has(RuleEvent::RunningLong) && rule.longer_than_usual_percent.is_some()
        };
        if !facts.is_recurring || ran < limits::USUAL_RUN_MIN || !facts.rules.iter().any(is_compared) {
            return Ok(None);
        }
        let now = context.host.clock.monotonic();
        if let Some((at, usual)) = self.watch.usual.get(&facts.id)
            && now.since(*at) < limits::USUAL_REFRESH
        {
            return Ok(*usual);
        }
        let page = context.store.executions_of_job(facts.id, None, limits::USUAL_RUNS_MAX).await?;
        let runs = page.items.into_iter().filter_map(|execution| match execution {
            ExecutionView::Finished(one) if one.status == Status::Succeeded => {
                Some(one.completed_at.since(one.started_at?))
            }
            _ => None,
        });
        let usual = usual_duration(runs.collect());
        if self.watch.usual.len() >= limits::NOTIFY_JOBS_HELD_MAX {
            self.watch.usual.clear();
        }
        self.watch.usual.insert(facts.id, (now, usual));
        Ok(usual)
    }

    /// Queues in which work has waited for a limit for some time.
    async fn limits(
        &mut self,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let now = context.time.now();
        let rules = self.rules_with(RuleEvent::LimitFull);
        if rules.is_empty() {
            self.end_unfounded("limit~", &BTreeSet::new(), now, findings);
            return Ok(());
        }
        let (mut queues, mut after) = (BTreeSet::new(), None);
        loop {
            let page = context.store.waiting_lines(after, limits::LINES_PER_STEP_MAX).await?;
            queues.extend(page.items.into_iter().map(|line| line.queue));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut founded = BTreeSet::new();
        for (rule_name, rule) in rules {
            let most = Duration::from_millis(rule.limit_full_for_ms.unwrap_or(u64::MAX));
            for queue in queues.iter().filter(|queue| rule.jobs.matches_queue(queue)) {
                let name = cut_name(&format!("limit~{rule_name}~{queue}")).into_owned();
                let text = |since: Timestamp| {
                    let span = span_text(now.since(since));
                    format!("Executions of the queue {queue} have waited for its limits for {span}.")
                };
                let event = NotificationEvent {
                    queue: Some(queue.clone()),
                    command: Some(format!("punctual queue show {queue}")),
                    url: self.config.queue_page(queue),
                    ..NotificationEvent::new(
                        format!("{name}:{now}"),
                        EventKind::LimitFull,
                        now,
                        queue,
                        text(now),
                    )
                };
                founded.insert(name.clone());
                let since = self.pend(&name, event.clone(), findings);
                if now.since(since) > most {
                    let event = NotificationEvent { explanation: text(since), ..event };
                    self.raise_of_rule(&name, (&rule_name, &rule), event, now, findings);
                }
            }
        }
        self.end_unfounded("limit~", &founded, now, findings);
        Ok(())
    }

    pub(super) fn rules_with(&self, event: RuleEvent) -> Vec<(String, NotificationRule)> {
        self.rules.iter().filter(|(_, rule)| rule.has(event)).cloned().collect()
    }

    pub(super) fn raise_of_rule(
        &mut self,
        name: &str,
        (rule_name, rule): (&str, &NotificationRule),
        event: NotificationEvent,
        now: Timestamp,
        findings: &mut NotifyFindings,
    ) {
        let mut targets = Targets::default();
        self.add_rule(&mut targets, rule, None, now);
        // A condition that lasts is stored when it is notified, not each time that it is found.
        let is_done = self.alerts.get(name).is_some_and(|stored| {
            let alert = &stored.alert;
            let is_repeated = alert.acknowledged.is_none()
                && alert.notified_at.is_none_or(|at| now.since(at) >= self.config.repeat);
            !is_repeated && targets.channels.keys().all(|label| alert.channels.contains(label))
        });
        if is_done {
            return;
        }
        let raised = RaisedAlert { name, event, occurrences: 1, rule: Some(rule_name), now };
        let targets_at = |known: &Self, _| {
            let mut targets = Targets::default();
            known.add_rule(&mut targets, rule, None, now);
            targets
        };
        self.raise(raised, targets_at, findings);
    }
}

/// The 95th percentile; `None` with too few runs.
fn usual_duration(mut runs: Vec<Duration>) -> Option<Duration> {
    if runs.len() < limits::USUAL_RUNS_MIN {
        return None;
    }
    runs.sort();
    runs.get((runs.len() * 95).div_ceil(100) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_is_the_95th_percentile_of_enough_runs() {
        let runs = |count: u64| (1..=count).rev().map(Duration::from_secs).collect::<Vec<_>>();
        assert_eq!(usual_duration(runs(limits::USUAL_RUNS_MIN as u64 - 1)), None);
        assert_eq!(usual_duration(runs(10)), Some(Duration::from_secs(10)));
        assert_eq!(usual_duration(runs(100)), Some(Duration::from_secs(95)));
    }
}
