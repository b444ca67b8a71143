//! Events that history cannot show: runs that did not happen, queues with old work or a full limit, many dead letters,
//! long runs, lost workers, and nodes that are not ready.

use super::facts::{JobFacts, skipped, span_text};
use super::history::{is_longer, long_text};
use super::reconciler::{NotifyFindings, RaisedAlert, Reconciler, cut_name};
use super::targets::Targets;
use crate::EngineContext;
use punctual_core::cluster::Card;
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::notify::{EventKind, NotificationEvent, NotificationRule, RuleEvent};
use punctual_core::occurrence::{Live, LiveState, Origin};
use punctual_core::ports::{
    DeadLetterQuery, ExecutionView, JobQuery, JobView, ScheduleKind, SessionRow, StoreError,
};
use punctual_core::schedule::{Recurring, Schedule, SkipRange, SkipReason};
use punctual_core::time::{Monotonic, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Occurrences that are looked up one by one. A message names only the number of further ones.
const OCCURRENCES_MAX: usize = 50;
/// Skipped ranges that are read.
const SKIPPED_MAX: usize = 10;
/// Jobs that one read returns.
const JOBS_PAGE: usize = 100;

/// The places of walks that take several steps.
#[derive(Default)]
pub(super) struct WatchState {
    looked_at: Option<Monotonic>,
    sweep: Option<Sweep>,
    /// The scheduled time of the run that ended the last alert about missed runs of a job.
    pub(super) recovered: BTreeMap<JobId, Timestamp>,
    sessions: BTreeMap<SessionId, SessionSeen>,
    /// Since when work has waited for the limits of queues.
    full_limits: BTreeMap<String, Timestamp>,
    /// Since when nodes have not been ready, by name; the empty name stands for too few nodes.
    unready_nodes: BTreeMap<String, Timestamp>,
    /// How long runs of jobs usually take, and when that was computed.
    usual: BTreeMap<JobId, (Monotonic, Option<Duration>)>,
}

/// A walk through all recurring jobs, for the missed runs of one span of time.
#[derive(Debug, Clone, Copy)]
struct Sweep {
    until: Timestamp,
    before: Option<JobId>,
}

/// A session when it was last seen.
struct SessionSeen {
    worker: String,
    /// Whether it had been silent for a large part of its lease.
    is_silent: bool,
}

impl Reconciler {
    /// Looks at everything, at most every few seconds. Returns until when missed runs are now known, if that changed.
    pub(super) async fn look_around(
        &mut self,
        context: &EngineContext,
        missed_until: Timestamp,
        findings: &mut NotifyFindings,
    ) -> Result<Option<Timestamp>, StoreError> {
        self.workers(context, findings).await?;
        let now = context.host.clock.monotonic();
        let is_recent = self.watch.looked_at.is_some_and(|at| now.since(at) < limits::NOTIFY_WATCH_INTERVAL);
        if is_recent {
            return Ok(None);
        }
        self.watch.looked_at = Some(now);
        self.queues(context, findings).await?;
        self.dead_letters(context, findings).await?;
        self.limits(context, findings).await?;
        self.nodes(context, findings).await?;
        self.running(context, findings).await?;
        self.escalate(context.time.now(), findings);
        if !self.used.missed {
            self.watch.sweep = None;
            return Ok(Some(context.time.now()));
        }
        self.sweep(context, missed_until, findings).await
    }

    /// Continues the walk through recurring jobs; returns its end when it is complete.
    async fn sweep(
        &mut self,
        context: &EngineContext,
        since: Timestamp,
        findings: &mut NotifyFindings,
    ) -> Result<Option<Timestamp>, StoreError> {
        let mut sweep = self.watch.sweep.take().unwrap_or(Sweep { until: context.time.now(), before: None });
        let mut looked_at = 0;
        while looked_at < limits::NOTIFY_JOBS_MAX && findings.len() < limits::NOTIFY_CHANGES_MAX {
            let query = JobQuery {
                before: sweep.before,
                limit: JOBS_PAGE,
                schedule: Some(ScheduleKind::Recurring),
                ..JobQuery::default()
            };
            let page = context.store.jobs(query).await?;
            looked_at += page.items.len().max(1);
            for view in &page.items {
                self.missed(context, view, since, sweep.until, findings).await?;
            }
            sweep.before = page.next;
            if sweep.before.is_none() {
                return Ok(Some(sweep.until));
            }
        }
        self.watch.sweep = Some(sweep);
        Ok(None)
    }

    /// Occurrences whose grace ended in this span without a start.
    async fn missed(
        &mut self,
        context: &EngineContext,
        view: &JobView,
        since: Timestamp,
        until: Timestamp,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let is_unfinished = matches!(view.status(), JobStatus::Active | JobStatus::Paused);
        let (true, Schedule::Recurring(recurring)) = (is_unfinished, &view.job.spec.settings.schedule) else {
            return Ok(());
        };
        let facts = self.completed(context, JobFacts::of(&view.job)).await?;
        let kind = EventKind::Missed;
        let is_wanted = |place: &usize| self.rules[*place].1.has(RuleEvent::Missed);
        if facts.notify.on_missed.is_empty() && !facts.rules.iter().any(is_wanted) {
            return Ok(());
        }
        let Some(found) = unstarted(context, view, recurring, since, until).await? else { return Ok(()) };
        // Earlier runs belong to the alert that this run has ended.
        if self.watch.recovered.get(&facts.id).is_some_and(|recovered| found.last < *recovered) {
            return Ok(());
        }
        let text = found.sentence(view, context).await?;
        let id = format!("{}:{}:{}", kind.word(), facts.id, found.last);
        let event = NotificationEvent {
            scheduled_time: Some(found.last),
            occurrences: Some(found.count),
            ..facts.event(&self.config, id, kind, found.first, text)
        };
        let name = facts.alert(kind);
        let raised =
            RaisedAlert { name: &name, event, occurrences: found.count, job: Some(&facts), now: until };
        self.raise(raised, |known, _| known.targets_for(&facts, kind, until, |_| true), findings);
        Ok(())
    }

    async fn queues(
        &mut self,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let rules = self.rules_with(RuleEvent::QueueOld);
        if rules.is_empty() {
            return self.end_unfounded("queue~", &BTreeSet::new(), context, findings);
        }
        let now = context.time.now();
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
                    ..NotificationEvent::new(format!("{name}:{now}"), EventKind::QueueOld, now, queue, text)
                };
                founded.insert(name.clone());
                self.raise_of_rule(&name, &rule, event, now, findings);
            }
        }
        self.end_unfounded("queue~", &founded, context, findings)
    }

    async fn dead_letters(
        &mut self,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let rules = self.rules_with(RuleEvent::DeadLetters);
        if rules.is_empty() {
            return self.end_unfounded("dead~", &BTreeSet::new(), context, findings);
        }
        let now = context.time.now();
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
                let event = NotificationEvent {
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
                self.raise_of_rule(&name, &rule, event, now, findings);
            }
        }
        self.end_unfounded("dead~", &founded, context, findings)
    }

    async fn running(
        &mut self,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        if !self.used.long {
            // Without a rule, no end of such a run is noticed.
            let old: Vec<String> =
                self.alerts.keys().filter(|name| name.starts_with("long~")).cloned().collect();
            old.iter().for_each(|name| drop(self.end_alert(name, findings)));
            self.watch.usual.clear();
            return Ok(());
        }
        let now = context.time.now();
        let (mut after, mut looked_at) = (None, 0);
        loop {
            let page = context.store.running(after, JOBS_PAGE).await?;
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
                    ..facts.event(&self.config, format!("{}:{execution}", kind.word()), kind, now, text)
                };
                let targets = |known: &Self, _| known.targets_for(&facts, kind, now, is_long);
                let name = format!("long~{execution}");
                let raised = RaisedAlert { name: &name, event, occurrences: 1, job: Some(&facts), now };
                self.raise(raised, targets, findings);
            }
            after = page.next;
            if after.is_none() || looked_at >= limits::NOTIFY_RUNNING_MAX {
                return Ok(());
            }
        }
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
        let rules = self.rules_with(RuleEvent::LimitFull);
        if rules.is_empty() {
            self.watch.full_limits.clear();
            return self.end_unfounded("limit~", &BTreeSet::new(), context, findings);
        }
        let now = context.time.now();
        let (mut queues, mut after) = (BTreeSet::new(), None);
        loop {
            let page = context.store.waiting_lines(after, limits::LINES_PER_STEP_MAX).await?;
            queues.extend(page.items.into_iter().map(|line| line.queue));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.watch.full_limits.retain(|queue, _| queues.contains(queue));
        for queue in queues {
            self.watch.full_limits.entry(queue).or_insert(now);
        }
        let full = self.watch.full_limits.clone();
        let mut founded = BTreeSet::new();
        for (rule_name, rule) in rules {
            let most = Duration::from_millis(rule.limit_full_for_ms.unwrap_or(u64::MAX));
            for (queue, since) in &full {
                if now.since(*since) <= most || !rule.jobs.matches_queue(queue) {
                    continue;
                }
                let name = cut_name(&format!("limit~{rule_name}~{queue}")).into_owned();
                let text = format!(
                    "Executions of the queue {queue} have waited for its limits for {}.",
                    span_text(now.since(*since))
                );
                let event = NotificationEvent {
                    queue: Some(queue.clone()),
                    since: Some(*since),
                    command: Some(format!("punctual queue show {queue}")),
                    ..NotificationEvent::new(format!("{name}:{now}"), EventKind::LimitFull, now, queue, text)
                };
                founded.insert(name.clone());
                self.raise_of_rule(&name, &rule, event, now, findings);
            }
        }
        self.end_unfounded("limit~", &founded, context, findings)
    }

    /// Schedulers that fire nothing, because their clock is off or they do not reach the store; and too few nodes.
    async fn nodes(
        &mut self,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let rules = self.rules_with(RuleEvent::NodeNotReady);
        let participation = context.cluster.participation.as_ref().filter(|_| !rules.is_empty());
        let Some(participation) = participation else {
            self.watch.unready_nodes.clear();
            return self.end_unfounded("node~", &BTreeSet::new(), context, findings);
        };
        let roster = match context.ask(participation.coordination.look()).await {
            Ok(roster) => roster,
            Err(error) => {
                tracing::debug!(%error, "nodes could not be checked");
                return Ok(());
            }
        };
        let now = context.time.now();
        let cards: Vec<Card> = roster.members.iter().filter_map(|member| Card::read(&member.card)).collect();
        let is_ready = |card: &&Card| card.stands || !card.roles.iter().any(|role| role == "scheduler");
        let ready = cards.iter().filter(is_ready).count();
        let unready = cards.iter().filter(|card| !is_ready(card)).map(|card| card.node_id.clone());
        let mut unready: BTreeSet<String> = unready.collect();
        let least = rules.iter().filter_map(|(_, rule)| rule.ready_nodes_below).max().unwrap_or(0);
        if ready < least as usize {
            unready.insert(String::new());
        }
        self.watch.unready_nodes.retain(|node, _| unready.contains(node));
        for node in unready {
            self.watch.unready_nodes.entry(node).or_insert(now);
        }
        let unready = self.watch.unready_nodes.clone();
        let mut founded = BTreeSet::new();
        for (rule_name, rule) in rules {
            for (node, since) in &unready {
                let is_short = rule.ready_nodes_below.is_some_and(|least| ready < least as usize);
                if now.since(*since) < limits::NODE_NOT_READY_AFTER || (node.is_empty() && !is_short) {
                    continue;
                }
                let name = cut_name(&format!("node~{rule_name}~{node}")).into_owned();
                let (called, text) = match node.as_str() {
                    "" => {
                        let least = rule.ready_nodes_below.unwrap_or(0);
                        let nodes = if ready == 1 { "node is" } else { "nodes are" };
                        ("cluster".to_owned(), format!("{ready} {nodes} ready, fewer than {least}."))
                    }
                    node => {
                        let text = "It fires nothing: its clock is off, it does not reach the store, or it shuts down.";
                        (node.to_owned(), text.to_owned())
                    }
                };
                let event = NotificationEvent {
                    since: Some(*since),
                    command: Some("punctual nodes".to_owned()),
                    ..NotificationEvent::new(
                        format!("{name}:{now}"),
                        EventKind::NodeNotReady,
                        now,
                        &called,
                        text,
                    )
                };
                founded.insert(name.clone());
                self.raise_of_rule(&name, &rule, event, now, findings);
            }
        }
        self.end_unfounded("node~", &founded, context, findings)
    }

    /// Sessions that have disappeared after a silence. One that was closed was not silent before.
    async fn workers(
        &mut self,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let rules = self.rules_with(RuleEvent::WorkerLost);
        if rules.is_empty() {
            self.watch.sessions.clear();
            return Ok(());
        }
        let now = context.time.now();
        let rows = context.store.sessions().await?;
        let seen = |row: &SessionRow| SessionSeen {
            worker: row.worker.clone(),
            is_silent: now.since(row.beaten_at) * 2 >= row.pulse.lease,
        };
        let current: BTreeMap<SessionId, SessionSeen> =
            rows.iter().map(|row| (row.pulse.session, seen(row))).collect();
        let before = std::mem::replace(&mut self.watch.sessions, current);
        for (session, gone) in before {
            if self.watch.sessions.contains_key(&session) || !gone.is_silent || self.is_silenced(None, now) {
                continue;
            }
            let text = format!("Session {session} of the worker {} stopped sending heartbeats.", gone.worker);
            let event = NotificationEvent {
                command: Some("punctual workers list".to_owned()),
                ..NotificationEvent::new(
                    format!("worker.lost:{session}"),
                    EventKind::WorkerLost,
                    now,
                    &gone.worker,
                    text,
                )
            };
            let mut targets = Targets::default();
            rules.iter().for_each(|(_, rule)| self.add_rule(&mut targets, rule, None, now));
            let alert = format!("worker~{}", gone.worker);
            self.send(now, targets.channels.into_values(), &alert, &event, findings);
        }
        Ok(())
    }

    fn rules_with(&self, event: RuleEvent) -> Vec<(String, NotificationRule)> {
        self.rules.iter().filter(|(_, rule)| rule.has(event)).cloned().collect()
    }

    fn raise_of_rule(
        &mut self,
        name: &str,
        rule: &NotificationRule,
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
        let raised = RaisedAlert { name, event, occurrences: 1, job: None, now };
        let targets_at = |known: &Self, _| {
            let mut targets = Targets::default();
            known.add_rule(&mut targets, rule, None, now);
            targets
        };
        self.raise(raised, targets_at, findings);
    }

    /// Ends the alerts of this kind whose condition no longer holds.
    fn end_unfounded(
        &mut self,
        prefix: &str,
        founded: &BTreeSet<String>,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let now = context.time.now();
        let unfounded: Vec<String> = self
            .alerts
            .keys()
            .filter(|name| name.starts_with(prefix) && !founded.contains(*name))
            .cloned()
            .collect();
        for name in unfounded {
            let Some(alert) = self.end_alert(&name, findings) else { continue };
            let event = NotificationEvent {
                event_id: format!("{name}:resolved:{now}"),
                kind: EventKind::Resolved,
                at: now,
                explanation: format!("The alert {} has ended.", alert.kind),
                since: Some(alert.since),
                command: None,
                ..alert.event
            };
            let mut targets = Targets::default();
            for channel in &alert.channels {
                self.add_target(&mut targets, channel, None, None, now);
            }
            self.send(now, targets.channels.into_values(), &name, &event, findings);
        }
        Ok(())
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

/// Occurrences that did not start.
struct Unstarted {
    first: Timestamp,
    last: Timestamp,
    count: u64,
    skipped: Option<SkipReason>,
    /// The last one that is open and has not started.
    open: Option<Live>,
}

/// The occurrences of a job whose grace ended in this span without a start; `None` if there are none.
async fn unstarted(
    context: &EngineContext,
    view: &JobView,
    recurring: &Recurring,
    since: Timestamp,
    until: Timestamp,
) -> Result<Option<Unstarted>, StoreError> {
    let grace = Duration::from_millis(recurring.misfire.grace_ms.saturating_add(recurring.jitter_ms));
    // Times before a change belong to another schedule.
    let since = since.minus(grace).max(view.job.created_at).max(view.job.updated_at);
    let until = until.minus(grace);
    let recurrence = &recurring.recurrence;
    let mut times = vec![];
    let mut after = since;
    while times.len() < OCCURRENCES_MAX
        && let Some(next) = recurrence.next_time_after(after).filter(|next| *next <= until)
    {
        times.push(next);
        after = next;
    }
    let Some(latest) = times.last().copied() else { return Ok(None) };
    let latest = recurrence.last_time_at_or_before(until).unwrap_or(latest);
    let store = &context.store;
    let page = store.executions_of_job(view.job.id, None, OCCURRENCES_MAX * 2).await?;
    let (mut started, mut open) = (BTreeSet::new(), BTreeMap::new());
    for execution in page.items {
        match execution {
            ExecutionView::Finished(one) if one.origin == Origin::Schedule && one.started_at.is_some() => {
                started.insert(one.scheduled_time);
            }
            ExecutionView::Live { live, .. } if live.origin == Origin::Schedule => {
                // A later attempt waits for its retry: it has started before. Users have asked for those that moved.
                let is_moved = live.input.as_ref().is_some_and(|input| input.moved);
                if matches!(live.state, LiveState::Running(_)) || live.attempt > 1 || is_moved {
                    started.insert(live.scheduled_time);
                } else {
                    open.insert(live.scheduled_time, live);
                }
            }
            _ => {}
        }
    }
    let skips = store.skipped(view.job.id, SKIPPED_MAX).await?;
    let range = |at: Timestamp| skips.iter().find(|range: &&SkipRange| range.first <= at && at <= range.last);
    let is_missing = |at: &&Timestamp| {
        !started.contains(*at) && range(**at).is_none_or(|range| !is_intended(range.reason))
    };
    let missing: Vec<Timestamp> = times.iter().filter(is_missing).copied().collect();
    let (Some(first), Some(last)) = (missing.first().copied(), missing.last().copied()) else {
        return Ok(None);
    };
    let is_all = times.len() < OCCURRENCES_MAX;
    let last = if is_all { last } else { latest };
    let count = if is_all { missing.len() as u64 } else { recurrence.count_between(since, until) };
    // If others were skipped because one waits, the reason is why that one waits.
    let open = open.into_values().next_back();
    let skipped = range(last).filter(|_| open.is_none()).map(|range| range.reason);
    Ok(Some(Unstarted { first, last, count, skipped, open }))
}

/// Whether users have asked for skips of this kind.
const fn is_intended(reason: SkipReason) -> bool {
    matches!(reason, SkipReason::Calendar | SkipReason::Requested)
}

impl Unstarted {
    async fn sentence(&self, view: &JobView, context: &EngineContext) -> Result<String, StoreError> {
        let spec = &view.job.spec;
        let why = if let Some(reason) = self.skipped {
            skipped(reason).to_owned()
        } else if view.status() == JobStatus::Paused {
            "The job is paused.".to_owned()
        } else if self.open.is_some() {
            let paused = context.store.paused_queues().await?;
            let sessions = context.store.sessions().await?;
            let has_worker = sessions.iter().any(|row| row.job_types.contains(&spec.job_type));
            if paused.iter().any(|queue| queue.queue == spec.queue) {
                format!("It waits: the queue {} is paused.", spec.queue)
            } else if has_worker {
                "It waits: no worker had a free slot for it, or a limit or another job holds it back."
                    .to_owned()
            } else {
                format!("It waits: no connected worker runs the job type {}.", spec.job_type)
            }
        } else {
            "No scheduler fired it in time.".to_owned()
        };
        Ok(match self.count {
            1 => format!("The run of {} did not start. {why}", self.last),
            count => format!("{count} runs did not start, the first of {}. {why}", self.first),
        })
    }
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
