//! What uses a channel, a secret or a calendar, so that one in use is not removed by mistake.
//!
//! Rules, channels and users are few and all of them are read. Of unfinished jobs, a bounded number is read. If there
//! are more, it is not known whether one of them uses the thing, and the caller has to decide.

use super::{UseCaseError, UseCases};
use crate::notify::all;
use punctual_core::job::JobStatus;
use punctual_core::limits;
use punctual_core::notify::{Channel, ChannelSecret, Mute, NotificationRule};
use punctual_core::ports::{JobQuery, JobView, StoreError};
use punctual_core::schedule::Schedule;
use punctual_core::sealed::is_sealed;
use punctual_core::secrets::references;

/// Whether a thing that is in use may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Only if nothing uses it.
    Unused,
    /// Also if something uses it.
    Forced,
}

/// A thing that rules, channels, users and jobs name.
#[derive(Debug, Clone, Copy)]
pub(super) enum UsedThing<'a> {
    Channel(&'a str),
    Secret(&'a str),
    Calendar(&'a str),
}

/// What uses a thing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsesFound {
    /// The first ones.
    pub named: Vec<String>,
    pub count: usize,
    pub jobs_read: usize,
    /// Whether there are unfinished jobs that were not read.
    pub has_unread_jobs: bool,
}

impl UsesFound {
    fn add(&mut self, user: String) {
        self.count += 1;
        if self.named.len() < limits::USES_NAMED_MAX {
            self.named.push(user);
        }
    }
}

impl UseCases {
    /// Refuses to remove a thing that something uses, unless the removal is forced.
    pub(super) async fn check_unused(
        &self,
        thing: UsedThing<'_>,
        removal: Removal,
    ) -> Result<(), UseCaseError> {
        if removal == Removal::Forced {
            return Ok(());
        }
        let mut found = UsesFound::default();
        self.find_rules_and_channels(thing, &mut found).await?;
        self.find_jobs(thing, &mut found).await?;
        if found.count == 0 && !found.has_unread_jobs {
            return Ok(());
        }
        let (what, name) = match thing {
            UsedThing::Channel(name) => ("channel", name),
            UsedThing::Secret(name) => ("secret", name),
            UsedThing::Calendar(name) => ("calendar", name),
        };
        Err(UseCaseError::InUse { what, name: name.to_owned(), found })
    }

    async fn find_rules_and_channels(
        &self,
        thing: UsedThing<'_>,
        found: &mut UsesFound,
    ) -> Result<(), StoreError> {
        let store = self.store();
        if !matches!(thing, UsedThing::Secret(_)) {
            for rule in all::<NotificationRule>(store, None, limits::NOTIFICATION_RULES_MAX).await? {
                if is_in_rule(thing, &rule.value) {
                    found.add(format!("rule {}", rule.name));
                }
            }
        }
        if let UsedThing::Channel(channel) = thing {
            return self.find_users(channel, found).await;
        }
        for channel in all::<Channel>(store, None, limits::CHANNELS_MAX).await? {
            if is_in_channel(thing, &channel.value) {
                found.add(format!("channel {}", channel.name));
            }
        }
        let configured = self.configured().iter().filter(|(_, channel)| is_in_channel(thing, channel));
        configured.for_each(|(name, _)| found.add(format!("channel {name} of the configuration file")));
        Ok(())
    }

    /// Not every caller may see their email addresses.
    async fn find_users(&self, channel: &str, found: &mut UsesFound) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = self.store().users(after.as_deref(), limits::PAGE_ITEMS_MAX).await?;
            for user in page.items {
                if user.about.notification_channel.as_deref() == Some(channel) {
                    found.add(format!("user {}", user.id));
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn find_jobs(&self, thing: UsedThing<'_>, found: &mut UsesFound) -> Result<(), StoreError> {
        let mut pages = 0;
        for status in [JobStatus::Active, JobStatus::Paused] {
            let mut query =
                JobQuery { status: Some(status), limit: limits::PAGE_ITEMS_MAX, ..JobQuery::default() };
            loop {
                if pages == limits::USES_PAGES_MAX {
                    found.has_unread_jobs = true;
                    return Ok(());
                }
                pages += 1;
                let page = self.store().jobs(query.clone()).await?;
                found.jobs_read += page.items.len();
                for view in page.items.iter().filter(|view| is_in_job(thing, view)) {
                    found.add(format!("job {} ({})", self.name_of(view), view.job.id));
                }
                query.before = page.next;
                if query.before.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn is_in_mute(thing: UsedThing<'_>, mute: Option<&Mute>) -> bool {
    let UsedThing::Calendar(calendar) = thing else { return false };
    mute.is_some_and(|mute| mute.calendars.iter().any(|name| name == calendar))
}

fn is_in_rule(thing: UsedThing<'_>, rule: &NotificationRule) -> bool {
    let is_channel = |name: &String| matches!(thing, UsedThing::Channel(channel) if channel == name);
    let escalates = rule.escalate.as_ref().is_some_and(|escalate| is_channel(&escalate.to));
    escalates || rule.channels.iter().any(is_channel) || is_in_mute(thing, rule.mute.as_ref())
}

fn is_in_channel(thing: UsedThing<'_>, channel: &Channel) -> bool {
    let refers = |value: Option<&ChannelSecret>| match (thing, value) {
        (UsedThing::Secret(secret), Some(ChannelSecret::Reference { name })) => name == secret,
        _ => false,
    };
    channel.secrets().into_iter().any(|(_, value)| refers(value)) || is_in_mute(thing, channel.mute.as_ref())
}

/// Whether a job uses it. A payload that this node cannot decrypt may refer to any secret.
fn is_in_job(thing: UsedThing<'_>, view: &JobView) -> bool {
    let spec = &view.job.spec;
    match thing {
        UsedThing::Channel(channel) => {
            let lists = spec.settings.notify.lists();
            lists.iter().any(|(_, names)| names.iter().any(|name| name == channel))
        }
        UsedThing::Secret(secret) => {
            let refers = |payload: &str| {
                references(payload).is_ok_and(|found| found.iter().any(|one| one.name == secret))
            };
            is_sealed(&spec.payload) || refers(&spec.payload)
        }
        UsedThing::Calendar(calendar) => match &spec.settings.schedule {
            Schedule::Recurring(recurring) => recurring.calendars.iter().any(|name| name == calendar),
            Schedule::Immediate | Schedule::OneTime { .. } => false,
        },
    }
}
