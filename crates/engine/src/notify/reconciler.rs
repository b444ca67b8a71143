//! What a leader remembers between two steps, and how it commits what it has found: deliveries, alerts and the
//! cursor in one transaction. Everything here can be read again from the store.

use super::NotificationConfig;
use super::deliver::{PENDING, group_of};
use super::facts::{JobFacts, KnownJobs, span_text};
use super::stored::{NotifyCursor, StoredAs, Used, add, all, commit, is_used, moved, remove, replace};
use super::targets::{MessageTarget, NotifiedUser, SelectedKey, Targets, notified_users};
use super::watch::WatchState;
use crate::EngineContext;
use crate::history_reader::{HistoryReader, PAGES_MAX};
use punctual_core::calendar::Calendars;
use punctual_core::ids::JobId;
use punctual_core::limits;
use punctual_core::notify::{
    Alert, Channel, ChannelType, Delivery, DeliveryKey, EventSubject, NotificationEvent, NotificationRule,
    OWNER_CHANNEL, PlannedEscalation, RuleEvent, Silence, delivery_id,
};
use punctual_core::ports::{DocumentChange, StoreError};
use punctual_core::time::{Monotonic, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) struct Reconciler {
    pub(super) config: NotificationConfig,
    pub(super) rules: Vec<(String, NotificationRule)>,
    /// The rules that select jobs with these facts, by their place.
    pub(super) selected: BTreeMap<SelectedKey, Arc<[usize]>>,
    silences: Vec<Silence>,
    pub(super) channels: BTreeMap<String, Channel>,
    /// The calendars of mutes.
    pub(super) calendars: Arc<Calendars>,
    /// Users with a preferred channel; `None` if they were not needed since the last refresh.
    pub(super) users: Option<Vec<NotifiedUser>>,
    pub(super) used: Interest,
    /// The stored alerts, and those of the current step.
    pub(super) alerts: BTreeMap<String, StoredAlert>,
    jobs: KnownJobs,
    pub(super) watch: WatchState,
    read_at: Option<Monotonic>,
    history: HistoryReader,
}

/// What any job or rule wants to be looked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Interest {
    pub successes: bool,
    pub late: bool,
    pub missed: bool,
    pub long: bool,
    /// Whether a rule names the owner of jobs.
    pub owners: bool,
}

/// An alert with its stored version; 0 if it is not stored yet.
#[derive(Debug, Clone)]
pub(super) struct StoredAlert {
    pub version: u64,
    pub alert: Alert,
}

/// What a step has found and has not committed yet.
#[derive(Default)]
pub(super) struct NotifyFindings {
    deliveries: BTreeMap<DeliveryKey, Delivery>,
    /// The alerts before they were changed, to write the difference.
    before: BTreeMap<String, Option<StoredAlert>>,
}

impl NotifyFindings {
    pub fn len(&self) -> usize {
        self.deliveries.len() + self.before.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Reconciler {
    pub async fn load(context: &EngineContext, config: &NotificationConfig) -> Result<Self, StoreError> {
        Ok(Reconciler {
            config: config.clone(),
            rules: vec![],
            selected: BTreeMap::new(),
            silences: vec![],
            channels: BTreeMap::new(),
            calendars: Arc::default(),
            users: None,
            used: Interest::default(),
            alerts: stored_alerts(context).await?,
            jobs: KnownJobs::default(),
            watch: WatchState::default(),
            read_at: None,
            history: HistoryReader::default(),
        })
    }

    /// Reads the next part of history, and looks at what history cannot show.
    pub async fn step(
        &mut self,
        context: &EngineContext,
        mut cursor: StoredAs<NotifyCursor>,
    ) -> Result<(), StoreError> {
        self.refresh(context).await?;
        let unread = self.history.resume(&*context.store, cursor.value.history).await?;
        if unread > 0 {
            tracing::error!(
                unread,
                "retention has deleted finished executions before notifications read them: there are no messages \
                 about those; retain history for longer"
            );
        }
        let mut is_read = false;
        for _ in 0..PAGES_MAX {
            let page = self.history.page(&*context.store, limits::NOTIFY_HISTORY_MAX).await?;
            let mut findings = NotifyFindings::default();
            for event in &page.items {
                self.look_at(context, &event.finished, &mut findings).await?;
            }
            if !self.save(context, findings, &mut cursor, page.looked_to).await? {
                return Err(lost_race());
            }
            if !page.more {
                is_read = true;
                break;
            }
        }
        let mut findings = NotifyFindings::default();
        if is_read {
            self.end_of_over_jobs(context, &mut findings).await?;
        }
        let swept = self.look_around(context, cursor.value.missed_until, &mut findings).await?;
        if let Some(until) = swept {
            cursor.value.missed_until = until;
        }
        let read_to = self.history.read_to();
        if self.save(context, findings, &mut cursor, read_to).await? { Ok(()) } else { Err(lost_race()) }
    }

    /// Reads alerts, rules, silences and channels again when they may have changed.
    async fn refresh(&mut self, context: &EngineContext) -> Result<(), StoreError> {
        let now = context.host.clock.monotonic();
        let is_recent = self.read_at.is_some_and(|at| now.since(at) < limits::NOTIFY_WATCH_INTERVAL);
        if !context.notify.take_changed() && is_recent {
            return Ok(());
        }
        // Users acknowledge alerts on any node.
        self.alerts = stored_alerts(context).await?;
        let store = &*context.store;
        let rules = all::<NotificationRule>(store, None, limits::NOTIFICATION_RULES_MAX).await?;
        let rules: Vec<(String, NotificationRule)> =
            rules.into_iter().map(|rule| (rule.name, rule.value)).collect();
        if rules != self.rules {
            self.selected.clear();
            self.rules = rules;
        }
        let silences = all::<Silence>(store, None, limits::SILENCES_MAX).await?;
        self.silences = silences.into_iter().map(|silence| silence.value).collect();
        let channels = all::<Channel>(store, None, limits::CHANNELS_MAX).await?;
        self.channels = channels.into_iter().map(|channel| (channel.name, channel.value)).collect();
        self.channels.extend(self.config.notifier.configured().iter().cloned());
        let mutes = self.rules.iter().filter_map(|(_, rule)| rule.mute.as_ref());
        let mutes = mutes.chain(self.channels.values().filter_map(|channel| channel.mute.as_ref()));
        let calendars: BTreeSet<String> = mutes.flat_map(|mute| mute.calendars.iter().cloned()).collect();
        if !calendars.is_empty() {
            let calendars: Vec<String> = calendars.into_iter().collect();
            self.calendars = context.calendars_named(&calendars).await?;
        }
        self.users = None;
        let wants = |event| self.rules.iter().any(|(_, rule)| rule.has(event));
        self.used = Interest {
            successes: wants(RuleEvent::Succeeded) || is_used(store, Used::Successes).await?,
            late: wants(RuleEvent::Late) || is_used(store, Used::Late).await?,
            missed: wants(RuleEvent::Missed) || is_used(store, Used::Missed).await?,
            long: wants(RuleEvent::RunningLong),
            owners: self.rules.iter().any(|(_, rule)| rule.channels.iter().any(|one| one == OWNER_CHANNEL)),
        };
        // The other lists may have changed as well.
        self.read_at = Some(now);
        Ok(())
    }

    /// The facts about a job with this version. A job that is gone has none.
    pub(super) async fn facts(
        &mut self,
        context: &EngineContext,
        id: JobId,
        version: u32,
    ) -> Result<Option<JobFacts>, StoreError> {
        let Some(facts) = self.jobs.facts(&*context.store, id, version).await? else { return Ok(None) };
        self.completed(context, facts).await.map(Some)
    }

    /// The facts with the rules that select the job. If the owner is notified, the users are known afterwards.
    pub(super) async fn completed(
        &mut self,
        context: &EngineContext,
        mut facts: JobFacts,
    ) -> Result<JobFacts, StoreError> {
        facts.rules = self.rules_of(facts.selected());
        let names_owner =
            || facts.notify.lists().iter().any(|(_, names)| names.iter().any(|one| one == OWNER_CHANNEL));
        if self.users.is_none() && (self.used.owners || names_owner()) {
            self.users = Some(notified_users(&*context.store).await?);
        }
        Ok(facts)
    }

    /// Whether a job or rule wants to know of failures, recoveries or missed runs of this job, so that its alert is
    /// kept.
    pub(super) fn is_watched(&self, job: &JobFacts) -> bool {
        let is_wanted = |rule: &NotificationRule| {
            [RuleEvent::Failed, RuleEvent::Recovered, RuleEvent::Missed]
                .into_iter()
                .any(|event| rule.has(event))
        };
        !job.notify.is_empty() || job.rules.iter().any(|place| is_wanted(&self.rules[*place].1))
    }

    pub(super) fn is_silenced(&self, subject: EventSubject<'_>, now: Timestamp) -> bool {
        let mut active = self.silences.iter().filter(|silence| silence.is_active(now));
        active.any(|silence| silence.covers(subject))
    }

    pub(super) fn has_incidents(&self, channel: &str) -> bool {
        self.channels.get(channel).is_some_and(|channel| channel.kind.has_incidents())
    }

    /// Adds an event to the messages for these channels.
    pub(super) fn send(
        &self,
        now: Timestamp,
        targets: impl IntoIterator<Item = MessageTarget>,
        alert: &str,
        event: &NotificationEvent,
        findings: &mut NotifyFindings,
    ) {
        for MessageTarget { channel, to, held_by } in
            targets.into_iter().flat_map(|one| self.each_number(one))
        {
            let group = group_of(event.kind, self.channels.get(&channel), alert, &event.name);
            let key = DeliveryKey { channel, to, group, kind: event.kind, held_by };
            match findings.deliveries.get_mut(&key) {
                Some(delivery) => delivery.add(event.clone()),
                None => {
                    let delivery = Delivery::new(key.clone(), vec![event.clone()], 1, now);
                    findings.deliveries.insert(key, delivery);
                }
            }
        }
    }

    /// Each number gets a delivery of its own: after an error, only the number that it is about is tried again.
    fn each_number(&self, target: MessageTarget) -> Vec<MessageTarget> {
        let sms = self.channels.get(&target.channel).filter(|channel| channel.kind == ChannelType::Sms);
        match sms.filter(|_| target.to.is_none()) {
            Some(sms) => {
                let numbers = sms.to.iter().map(|to| Some(to.clone()));
                numbers.map(|to| MessageTarget { to, ..target.clone() }).collect()
            }
            None => vec![target],
        }
    }

    /// Raises an alert about an event, or counts it again. Channels are notified once, and again after the repeat
    /// interval unless the alert is acknowledged.
    pub(super) fn raise(
        &mut self,
        raised: RaisedAlert<'_>,
        targets_at: impl Fn(&Self, u64) -> Targets,
        findings: &mut NotifyFindings,
    ) {
        let RaisedAlert { name, mut event, occurrences, rule, now } = raised;
        let name = &*cut_name(name);
        let before = self.alerts.get(name).cloned();
        let is_counted = before.as_ref().is_some_and(|stored| stored.alert.event.event_id == event.event_id);
        // A silence may have kept it from the channels so far.
        if is_counted && before.as_ref().is_some_and(|stored| stored.alert.notified_at.is_some()) {
            return;
        }
        event.alert_id = Some(name.to_owned());
        let mut alert = match &before {
            Some(stored) => stored.alert.clone(),
            None => Alert { since: event.at, ..Alert::pending(event.clone()) },
        };
        if !is_counted {
            alert.count += occurrences;
        }
        alert.successes = 0;
        alert.rule = rule.map(str::to_owned);
        event.since = Some(alert.since);
        let Targets { mut channels, escalations } = targets_at(self, alert.count);
        let is_due_again = alert.acknowledged.is_none()
            && alert.notified_at.is_some_and(|at| now.since(at) >= self.config.repeat);
        channels.retain(|label, _| is_due_again || !alert.channels.contains(label));
        if !channels.is_empty() && !self.is_silenced(event.subject(), now) {
            let labels: Vec<String> = channels.keys().cloned().collect();
            self.send(now, channels.into_values(), name, &event, findings);
            alert.notified_at = Some(now);
            let known: BTreeSet<String> = alert.channels.drain(..).chain(labels).collect();
            alert.channels = known.into_iter().collect();
            for (to, after) in escalations {
                let is_known =
                    alert.escalations.iter().any(|one| one.to == to) || alert.channels.contains(&to);
                if alert.acknowledged.is_none() && !is_known {
                    alert.escalations.push(PlannedEscalation { at: now.plus(after), to });
                }
            }
        }
        alert.event = event;
        self.set_alert(name, before, alert, findings);
    }

    /// Stores since when a condition has held, so that a failover does not begin to count again. Returns that time.
    pub(super) fn pend(
        &mut self,
        name: &str,
        event: NotificationEvent,
        findings: &mut NotifyFindings,
    ) -> Timestamp {
        if let Some(known) = self.alerts.get(name) {
            return known.alert.since;
        }
        let alert = Alert::pending(NotificationEvent { alert_id: Some(name.to_owned()), ..event });
        let since = alert.since;
        self.set_alert(name, None, alert, findings);
        since
    }

    fn set_alert(
        &mut self,
        name: &str,
        before: Option<StoredAlert>,
        alert: Alert,
        findings: &mut NotifyFindings,
    ) {
        if before.as_ref().is_some_and(|stored| stored.alert == alert) {
            return;
        }
        // An alert that has ended in this step, and is raised again, replaces the stored one.
        let stored = findings.before.entry(name.to_owned()).or_insert(before);
        let version = stored.as_ref().map_or(0, |stored| stored.version);
        self.alerts.insert(name.to_owned(), StoredAlert { version, alert });
    }

    /// Counts a success of a job whose alert needs several to end.
    pub(super) fn count_success(&mut self, name: &str, findings: &mut NotifyFindings) {
        let Some(before) = self.alerts.get(name).cloned() else { return };
        let mut alert = before.alert.clone();
        alert.successes += 1;
        self.set_alert(name, Some(before), alert, findings);
    }

    /// Notifies the channels of escalations whose time has come. Acknowledged alerts are not escalated.
    pub(super) fn escalate(&mut self, now: Timestamp, findings: &mut NotifyFindings) {
        let is_due =
            |alert: &Alert| alert.escalations.iter().any(|one| one.at <= now || alert.acknowledged.is_some());
        let due: Vec<(String, StoredAlert)> = self
            .alerts
            .iter()
            .filter(|(_, stored)| is_due(&stored.alert))
            .map(|(name, stored)| (name.clone(), stored.clone()))
            .collect();
        for (name, before) in due {
            let mut alert = before.alert.clone();
            if alert.acknowledged.is_some() {
                alert.escalations.clear();
                self.set_alert(&name, Some(before), alert, findings);
                continue;
            }
            if self.is_silenced(alert.event.subject(), now) {
                continue;
            }
            let open = span_text(now.since(alert.notified_at.unwrap_or(alert.since)));
            let event = NotificationEvent {
                event_id: format!("{}:escalated", alert.event.event_id),
                explanation: format!("Not acknowledged for {open}. {}", alert.event.explanation),
                ..alert.event.clone()
            };
            let (reached, later) =
                std::mem::take(&mut alert.escalations).into_iter().partition(|one| one.at <= now);
            alert.escalations = later;
            let mut targets = Targets::default();
            for PlannedEscalation { to, .. } in reached {
                self.add_target(&mut targets, &to, None, None, now);
                alert.channels.push(to);
            }
            self.send(now, targets.channels.into_values(), &name, &event, findings);
            self.set_alert(&name, Some(before), alert, findings);
        }
    }

    /// Ends an alert; returns it if there was one.
    pub(super) fn end_alert(&mut self, name: &str, findings: &mut NotifyFindings) -> Option<Alert> {
        let stored = self.alerts.remove(name)?;
        findings.before.entry(name.to_owned()).or_insert(Some(stored.clone()));
        Some(stored.alert)
    }

    /// Stores what was found together with the cursor. False if another process was faster.
    async fn save(
        &mut self,
        context: &EngineContext,
        findings: NotifyFindings,
        cursor: &mut StoredAs<NotifyCursor>,
        read_to: u64,
    ) -> Result<bool, StoreError> {
        let now = context.host.clock.monotonic();
        let is_due = self.history.done(read_to, now);
        if findings.is_empty() && !is_due {
            return Ok(true);
        }
        cursor.value.history = read_to;
        let mut changes = vec![moved(cursor)?];
        changes.extend(self.delivery_changes(context, findings.deliveries).await?);
        for (name, before) in &findings.before {
            let stored = before.as_ref().filter(|stored| stored.version > 0);
            let change = match (stored, self.alerts.get_mut(name)) {
                (None, Some(alert)) => {
                    alert.version = 1;
                    add(name, &alert.alert)?
                }
                (Some(_), Some(alert)) => {
                    let document =
                        StoredAs { name: name.clone(), version: alert.version, value: alert.alert.clone() };
                    alert.version += 1;
                    replace(&document)?
                }
                (Some(stored), None) => {
                    let value = stored.alert.clone();
                    remove(&StoredAs { name: name.clone(), version: stored.version, value })
                }
                (None, None) => continue,
            };
            changes.push(change);
        }
        if !commit(&*context.store, changes).await? {
            return Ok(false);
        }
        cursor.version += 1;
        self.history.saved(now);
        Ok(true)
    }

    /// New deliveries, and those that wait and take more events.
    async fn delivery_changes(
        &self,
        context: &EngineContext,
        found: BTreeMap<DeliveryKey, Delivery>,
    ) -> Result<Vec<DocumentChange>, StoreError> {
        if found.is_empty() {
            return Ok(vec![]);
        }
        let mut waiting = all::<Delivery>(&*context.store, Some(PENDING), usize::MAX).await?;
        let mut places: BTreeMap<DeliveryKey, usize> = BTreeMap::new();
        let mut targets: BTreeMap<DeliveryKey, WaitingForTarget> = BTreeMap::new();
        for (place, one) in waiting.iter().enumerate() {
            let key = one.value.key();
            let target = targets.entry(key.of_target()).or_default();
            target.count += 1;
            if one.value.attempts == 0 {
                target.untried = Some(place);
                places.insert(key, place);
            }
        }
        // With too many, a message of another group takes the event, but not one about another incident.
        let crowded = |key: &DeliveryKey| {
            let is_incident =
                self.channels.get(&key.channel).is_some_and(|channel| channel.kind.has_incidents());
            let target = targets.get(&key.of_target()).filter(|_| !is_incident)?;
            target.untried.filter(|_| target.count >= limits::DELIVERIES_PER_TARGET_MAX)
        };
        let mut joined: BTreeSet<usize> = BTreeSet::new();
        let mut changes = vec![];
        let now = context.delivery_now();
        for (key, mut delivery) in found {
            (delivery.created_at, delivery.due_at) = (now, now.plus(self.config.window));
            match places.get(&key).copied().or_else(|| crowded(&key)) {
                Some(place) => {
                    let more = delivery.count - delivery.events.len() as u64;
                    delivery.events.into_iter().for_each(|event| waiting[place].value.add(event));
                    waiting[place].value.count += more;
                    joined.insert(place);
                }
                None => {
                    let id = delivery_id(delivery.created_at, context.host.random.next_u64());
                    changes.push(add(&format!("{PENDING}{id}"), &delivery)?);
                }
            }
        }
        for place in joined {
            changes.push(replace(&waiting[place])?);
        }
        Ok(changes)
    }
}

/// The deliveries that wait for one target.
#[derive(Default)]
struct WaitingForTarget {
    count: usize,
    /// The place of one that was not tried yet.
    untried: Option<usize>,
}

/// A name that fits into the store.
pub(super) fn cut_name(name: &str) -> std::borrow::Cow<'_, str> {
    if name.len() <= limits::DOCUMENT_NAME_BYTES_MAX {
        return name.into();
    }
    let mut end = limits::DOCUMENT_NAME_BYTES_MAX;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].into()
}

/// An alert that an event raises.
pub(super) struct RaisedAlert<'a> {
    pub name: &'a str,
    pub event: NotificationEvent,
    pub occurrences: u64,
    /// The rule whose condition it is, if it is not about a job.
    pub rule: Option<&'a str>,
    pub now: Timestamp,
}

async fn stored_alerts(context: &EngineContext) -> Result<BTreeMap<String, StoredAlert>, StoreError> {
    let stored = all::<Alert>(&*context.store, None, usize::MAX).await?;
    let alert = |version, alert| StoredAlert { version, alert };
    Ok(stored.into_iter().map(|one| (one.name, alert(one.version, one.value))).collect())
}

/// Another leader or a request has changed a document: everything is read again.
fn lost_race() -> StoreError {
    StoreError::Unavailable("another process has changed the same alerts or deliveries".to_owned())
}
