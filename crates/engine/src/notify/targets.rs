//! Where events go: the channels that a job names, those of rules that select it, and the users who own it.

use super::facts::JobFacts;
use super::reconciler::Reconciler;
use punctual_core::access::GrantTerms;
use punctual_core::limits;
use punctual_core::notify::{
    ChannelType, EventKind, Mute, MutedThen, NotificationRule, OWNER_CHANNEL, RuleEvent, SelectedJob,
};
use punctual_core::ports::{Directory, StoreError, User};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Where an event goes.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// By the label that alerts remember: the channel, and the recipient if it is a user.
    pub channels: BTreeMap<String, MessageTarget>,
    /// The channels that are notified later unless somebody acknowledges the alert.
    pub escalations: BTreeMap<String, Duration>,
}

impl Targets {
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }
}

/// One channel of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MessageTarget {
    pub channel: String,
    /// The recipient, in place of those of the channel.
    pub to: Option<String>,
    /// Calendars that hold the message back now.
    pub held_by: Vec<String>,
}

/// A user who wants notifications about the jobs of these owners.
#[derive(Debug, Clone)]
pub(super) struct NotifiedUser {
    owners: BTreeSet<String>,
    email: String,
    channel: String,
}

impl NotifiedUser {
    fn of(user: User) -> Option<Self> {
        let GrantTerms { owner, scope, .. } = user.about.terms;
        let channel = user.about.notification_channel.filter(|_| !user.about.is_disabled)?;
        let owners = [owner, scope.owner, Some(user.email.clone()), Some(user.id)].into_iter().flatten();
        Some(NotifiedUser { owners: owners.collect(), email: user.email, channel })
    }
}

/// All users who have a preferred channel.
pub(super) async fn notified_users(store: &dyn Directory) -> Result<Vec<NotifiedUser>, StoreError> {
    let (mut users, mut after) = (vec![], None);
    loop {
        let page = store.users(after.as_deref(), limits::PAGE_ITEMS_MAX).await?;
        users.extend(page.items.into_iter().filter_map(NotifiedUser::of));
        after = page.next;
        if after.is_none() {
            return Ok(users);
        }
    }
}

/// The facts by which rules select a job.
pub(super) type SelectedKey = (String, String, String, String, Vec<String>);

impl Reconciler {
    /// The rules that select a job. Jobs with the same facts are looked up once for as long as the rules stay.
    pub(super) fn rules_of(&mut self, job: SelectedJob<'_>) -> Arc<[usize]> {
        let text = str::to_owned;
        let key: SelectedKey =
            (text(job.name), text(job.owner), text(job.queue), text(job.job_type), job.tags.to_vec());
        if let Some(known) = self.selected.get(&key) {
            return known.clone();
        }
        let is_selected = |rule: &NotificationRule| {
            !rule.disabled && rule.jobs.matches(job) && rule.events.iter().any(|event| event.is_of_job())
        };
        let found: Arc<[usize]> =
            (0..self.rules.len()).filter(|place| is_selected(&self.rules[*place].1)).collect();
        if self.selected.len() >= limits::NOTIFY_JOBS_HELD_MAX {
            self.selected.clear();
        }
        self.selected.insert(key, found.clone());
        found
    }

    /// The targets of an event of a job: the channels that the job names, and those of rules that select it.
    pub(super) fn targets_for(
        &self,
        job: &JobFacts,
        kind: EventKind,
        now: Timestamp,
        is_selected: impl Fn(&NotificationRule) -> bool,
    ) -> Targets {
        let mut targets = Targets::default();
        for channel in job.notify.channels(kind) {
            self.add_target(&mut targets, channel, None, Some(job), now);
        }
        self.add_rules(&mut targets, job, kind, now, is_selected);
        targets
    }

    /// Adds the channels of rules that select a job.
    pub(super) fn add_rules(
        &self,
        targets: &mut Targets,
        job: &JobFacts,
        kind: EventKind,
        now: Timestamp,
        is_selected: impl Fn(&NotificationRule) -> bool,
    ) {
        let Some(event) = RuleEvent::of(kind) else { return };
        let rules = job.rules.iter().filter_map(|place| self.rules.get(*place)).map(|(_, rule)| rule);
        for rule in rules.filter(|rule| rule.has(event) && is_selected(rule)) {
            self.add_rule(targets, rule, Some(job), now);
        }
    }

    pub(super) fn add_rule(
        &self,
        targets: &mut Targets,
        rule: &NotificationRule,
        job: Option<&JobFacts>,
        now: Timestamp,
    ) {
        for channel in &rule.channels {
            self.add_target(targets, channel, rule.mute.as_ref(), job, now);
        }
        if let Some(escalate) = &rule.escalate {
            let after = Duration::from_millis(escalate.after_ms);
            let known = targets.escalations.entry(escalate.to.clone()).or_insert(after);
            *known = after.min(*known);
        }
    }

    /// Adds a channel, unless its times or those of the rule say that the message is dropped now.
    pub(super) fn add_target(
        &self,
        targets: &mut Targets,
        name: &str,
        mute: Option<&Mute>,
        job: Option<&JobFacts>,
        now: Timestamp,
    ) {
        if name == OWNER_CHANNEL {
            let Some(job) = job else { return };
            for user in self.users.iter().flatten().filter(|user| user.owners.contains(&job.owner)) {
                let is_mail =
                    self.channels.get(&user.channel).is_some_and(|one| one.kind == ChannelType::Email);
                let to = is_mail.then(|| user.email.clone());
                self.add_channel(targets, &user.channel, to, mute, now);
            }
            return;
        }
        self.add_channel(targets, name, None, mute, now);
    }

    /// Adds a channel by the label that an alert remembers.
    pub(super) fn add_label(&self, targets: &mut Targets, label: &str, mute: Option<&Mute>, now: Timestamp) {
        let user = label.strip_suffix('>').and_then(|label| label.split_once(" <"));
        match user {
            Some((channel, to)) => self.add_channel(targets, channel, Some(to.to_owned()), mute, now),
            None => self.add_channel(targets, label, None, mute, now),
        }
    }

    fn add_channel(
        &self,
        targets: &mut Targets,
        channel: &str,
        to: Option<String>,
        mute: Option<&Mute>,
        now: Timestamp,
    ) {
        let Some(held_by) = self.held_by(channel, mute, now) else { return };
        let label = match &to {
            Some(to) => format!("{channel} <{to}>"),
            None => channel.to_owned(),
        };
        let target = MessageTarget { channel: channel.to_owned(), to, held_by };
        let known = targets.channels.entry(label).or_insert_with(|| target.clone());
        // One that is not held back goes first.
        if target.held_by.len() < known.held_by.len() {
            *known = target;
        }
    }

    /// The calendars that hold a message of this channel back now; `None` if it is dropped.
    fn held_by(&self, channel: &str, mute: Option<&Mute>, now: Timestamp) -> Option<Vec<String>> {
        let mut held_by: Vec<String> = vec![];
        let own = self.channels.get(channel).and_then(|one| one.mute.as_ref());
        for mute in [mute, own].into_iter().flatten().filter(|mute| self.is_muted(mute, now)) {
            match mute.then {
                MutedThen::Drop => return None,
                MutedThen::Send => held_by.extend(mute.calendars.iter().cloned()),
            }
        }
        held_by.sort();
        held_by.dedup();
        Some(held_by)
    }

    fn is_muted(&self, mute: &Mute, now: Timestamp) -> bool {
        let known = mute.calendars.iter().filter_map(|name| self.calendars.get(name));
        known.into_iter().any(|calendar| calendar.excludes(now))
    }
}
