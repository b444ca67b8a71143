//! Notifications: channels, rules, silences, alerts and deliveries. No use case returns a secret value.

use super::uses::UsedThing;
use super::{Forbidden, Removal, UseCase, UseCaseError, UseCases};
use crate::NotificationConfig;
use crate::notify::{
    DONE, InDocument, NOT_FOR_CHANNELS, PENDING, STOPPED, StoredAs, add, all, bound_to, is_usable,
    message_of, read, read_channel, read_delivery, remove, replace, resolved,
};
use punctual_core::access::Permission;
use punctual_core::job::{InvalidField, JobSpec};
use punctual_core::limits;
use punctual_core::names::path_name_problem;
use punctual_core::notify::{
    Acknowledgement, Alert, Channel, ChannelSecret, ChannelType, Delivery, DeliveryKey, EventKind,
    JobSelector, Mute, NotificationEvent, NotificationRule, OWNER_CHANNEL, Silence, delivery_id,
};
use punctual_core::ports::{
    CipherError, DirectoryChange, DirectoryOutcome, DocumentChange, Page, StoreError,
};
use punctual_core::time::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;

/// How often a change is computed again because the document was changed concurrently.
const CHANGE_TRIES_MAX: usize = 20;

/// A channel with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelView {
    pub name: String,
    pub channel: Channel,
    /// Whether it is in the configuration file.
    pub is_configured: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedRule {
    pub name: String,
    pub rule: NotificationRule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSilence {
    pub id: String,
    pub silence: Silence,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAlert {
    pub id: String,
    pub alert: Alert,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedDelivery {
    pub id: String,
    pub delivery: Delivery,
}

/// What became of a test message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelTry {
    pub message_id: String,
    pub result: Result<(), String>,
}

/// The state of notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationsView {
    pub stopped: Option<String>,
    pub pending: usize,
    pub alerts: usize,
}

/// Keeps the secrets that the caller left out: they are never returned, so a caller cannot repeat them. A moved channel
/// would send them elsewhere, so they must be given again. A signature does not reveal its key.
fn keep_secrets(channel: &mut Channel, before: &Channel) -> Vec<InvalidField> {
    if before.kind != channel.kind {
        return vec![];
    }
    if channel.url.is_none() && before.kind.has_secret_url() {
        channel.url.clone_from(&before.url);
    }
    let is_moved = channel.is_moved_from(before);
    let mut problems = vec![];
    for ((field, value), (_, kept)) in channel.secrets_mut().into_iter().zip(before.secrets()) {
        if value.is_some() || kept.is_none() || field == "url" {
            continue;
        }
        if is_moved && field != "secret" {
            let fix = "must be given again, because messages go to another place or with another login";
            problems.push(InvalidField::new(field, fix));
        }
        *value = kept.cloned();
    }
    problems
}

impl UseCases {
    /// All channels by name. Those of the configuration file are on the first page.
    pub async fn channels(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<ChannelView, String>, UseCaseError> {
        self.permit(UseCase::ReadChannels)?;
        let (stored, next) = self.page::<Channel>(after, limit).await?;
        let configured = self.configured().iter().filter(|_| after.is_none());
        let configured = configured.map(|(name, channel)| ChannelView {
            name: name.clone(),
            channel: channel.clone(),
            is_configured: true,
        });
        let stored = stored.into_iter().map(|StoredAs { name, value, .. }| ChannelView {
            name,
            channel: value,
            is_configured: false,
        });
        Ok(Page { items: configured.chain(stored).collect(), next })
    }

    pub async fn channel(&self, name: &str) -> Result<ChannelView, UseCaseError> {
        self.permit(UseCase::ReadChannels)?;
        let stored = self.stored_channel(name).await?;
        Ok(ChannelView { is_configured: stored.version == 0, name: stored.name, channel: stored.value })
    }

    /// Stores a channel with plain values, which are encrypted. Returns whether it is new. With `must_be_new`, an
    /// existing one is left unchanged.
    pub async fn set_channel(
        &self,
        name: &str,
        given: Channel,
        must_be_new: bool,
    ) -> Result<(ChannelView, bool), UseCaseError> {
        let object = format!("channel {name}");
        self.permit_on(UseCase::SetChannel, &object)?;
        if given.kind == ChannelType::Command {
            let fix = "must not be command: such a channel runs programs on the server, so only its configuration \
                       file can have one";
            return Err(UseCaseError::invalid("type", fix));
        }
        if self.configured().iter().any(|(configured, _)| configured == name) {
            return Err(UseCaseError::DocumentExists {
                what: "channel of the configuration file",
                name: name.to_owned(),
            });
        }
        for _ in 0..CHANGE_TRIES_MAX {
            let stored = self.document::<Channel>(name).await?;
            if must_be_new && stored.is_some() {
                return Err(UseCaseError::DocumentExists { what: "channel", name: name.to_owned() });
            }
            let mut channel = given.clone();
            channel.owner = self.caller.grant.owner.clone();
            let mut problems = vec![];
            if let Some(StoredAs { value: before, .. }) = &stored {
                channel.created_at = before.created_at;
                problems = keep_secrets(&mut channel, before);
            }
            let has_logs =
                channel.include_logs || stored.as_ref().is_some_and(|stored| stored.value.include_logs);
            self.check_logs(has_logs)?;
            if problems.is_empty() {
                problems = channel.problems(name);
            }
            if let Some(config) = self.notification_config() {
                problems.extend(config.notifier.problems(&channel));
            }
            problems.extend(self.reference_problems(&channel).await?);
            problems.extend(self.mute_problem(channel.mute.as_ref()).await?);
            if !problems.is_empty() {
                return Err(UseCaseError::Invalid(problems));
            }
            if stored.is_none() {
                self.check_room::<Channel>("channels", limits::CHANNELS_MAX).await?;
            }
            self.seal_channel(name, &mut channel)?;
            let details = json!({ "type": channel.kind });
            let entry = self.audited_with(UseCase::SetChannel, &object, &details);
            let is_new = stored.is_none();
            if self.put(name, stored, channel.clone(), entry).await? {
                self.engine.context.notify.changed();
                return Ok((ChannelView { name: name.to_owned(), channel, is_configured: false }, is_new));
            }
        }
        Err(UseCaseError::Busy)
    }

    /// Messages with lines of logs show data of jobs.
    fn check_logs(&self, has_logs: bool) -> Result<(), Forbidden> {
        if has_logs { self.caller.check_permission(Permission::PayloadRead) } else { Ok(()) }
    }

    /// Removes a channel. One in use stays, unless the removal is forced.
    pub async fn remove_channel(&self, name: &str, removal: Removal) -> Result<(), UseCaseError> {
        self.permit_on(UseCase::RemoveChannel, format_args!("channel {name}"))?;
        self.existing::<Channel>("channel", name).await?;
        self.check_unused(UsedThing::Channel(name), removal).await?;
        self.remove_document::<Channel>(UseCase::RemoveChannel, "channel", name).await
    }

    /// Sends a test message at once.
    pub async fn test_channel(&self, name: &str) -> Result<ChannelTry, UseCaseError> {
        self.permit_on(UseCase::TestChannel, format_args!("channel {name}"))?;
        let stored = self.stored_channel(name).await?;
        let context = &self.engine.context;
        let now = self.now();
        let text = format!("A test of the channel {name}, requested by {}.", self.caller.name);
        let event =
            NotificationEvent::new(format!("test:{name}:{now}"), EventKind::Test, now, "punctual", text);
        let id = delivery_id(now, context.host.random.next_u64());
        let message_id = format!("msg_{id}");
        let Some(config) = self.notification_config() else {
            return Ok(ChannelTry {
                message_id,
                result: Err("this server sends no notifications".to_owned()),
            });
        };
        let result = match resolved(context, &stored).await? {
            Ok(channel) => {
                let key = DeliveryKey {
                    channel: name.to_owned(),
                    to: None,
                    group: "test".to_owned(),
                    kind: event.kind,
                    held_by: vec![],
                };
                let delivery = Delivery::new(key, vec![event], 1, now);
                let message = message_of(context, &id, &delivery, channel).await?;
                config.notifier.send(message).await.map_err(|error| error.to_string())
            }
            Err(problem) => Err(problem),
        };
        let details = json!({ "delivered": result.is_ok() });
        self.record(UseCase::TestChannel, format!("channel {name}"), Some(&details)).await;
        Ok(ChannelTry { message_id, result })
    }

    pub async fn notification_rules(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<NamedRule, String>, UseCaseError> {
        self.permit(UseCase::ReadNotifications)?;
        let (rules, next) = self.page::<NotificationRule>(after, limit).await?;
        let items = rules.into_iter().map(|stored| NamedRule { name: stored.name, rule: stored.value });
        Ok(Page { items: items.collect(), next })
    }

    pub async fn notification_rule(&self, name: &str) -> Result<NamedRule, UseCaseError> {
        self.permit(UseCase::ReadNotifications)?;
        let stored = self.existing::<NotificationRule>("rule", name).await?;
        Ok(NamedRule { name: stored.name, rule: stored.value })
    }

    pub async fn set_notification_rule(
        &self,
        name: &str,
        rule: NotificationRule,
        must_be_new: bool,
    ) -> Result<(NamedRule, bool), UseCaseError> {
        let object = format!("rule {name}");
        self.permit_on(UseCase::SetNotificationRule, &object)?;
        let mut problems = rule.problems(name);
        for channel in rule.channels.iter().chain(rule.escalate.iter().map(|escalate| &escalate.to)) {
            if path_name_problem(channel).is_none() {
                let stored = read_channel(&self.engine.context, channel).await?;
                self.check_logs(stored.is_some_and(|stored| stored.value.include_logs))?;
            }
        }
        for (place, channel) in rule.channels.iter().enumerate() {
            problems.extend(self.channel_problem(&format!("channels[{place}]"), channel).await?);
        }
        if let Some(escalate) = &rule.escalate {
            problems.extend(self.channel_problem("escalate.to", &escalate.to).await?);
        }
        problems.extend(self.mute_problem(rule.mute.as_ref()).await?);
        if !problems.is_empty() {
            return Err(UseCaseError::Invalid(problems));
        }
        self.engine.context.begin_notifying().await?;
        for _ in 0..CHANGE_TRIES_MAX {
            let stored = self.document::<NotificationRule>(name).await?;
            if must_be_new && stored.is_some() {
                return Err(UseCaseError::DocumentExists { what: "rule", name: name.to_owned() });
            }
            if stored.is_none() {
                self.check_room::<NotificationRule>("rules", limits::NOTIFICATION_RULES_MAX).await?;
            }
            let mut rule = rule.clone();
            let before = stored.as_ref().map(|stored| stored.value.clone());
            rule.created_at = before.as_ref().map_or(rule.created_at, |before| before.created_at);
            let details = json!({ "before": before, "after": rule });
            let entry = self.audited_with(UseCase::SetNotificationRule, &object, &details);
            let is_new = stored.is_none();
            if self.put(name, stored, rule.clone(), entry).await? {
                self.engine.context.notify.changed();
                return Ok((NamedRule { name: name.to_owned(), rule }, is_new));
            }
        }
        Err(UseCaseError::Busy)
    }

    pub async fn remove_notification_rule(&self, name: &str) -> Result<(), UseCaseError> {
        self.remove_document::<NotificationRule>(UseCase::RemoveNotificationRule, "rule", name).await
    }

    pub async fn silences(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<NamedSilence, String>, UseCaseError> {
        self.permit(UseCase::ReadNotifications)?;
        let (silences, next) = self.page::<Silence>(after, limit).await?;
        let items =
            silences.into_iter().map(|stored| NamedSilence { id: stored.name, silence: stored.value });
        Ok(Page { items: items.collect(), next })
    }

    pub async fn add_silence(
        &self,
        jobs: JobSelector,
        starts_at: Option<Timestamp>,
        ends_at: Timestamp,
        reason: Option<String>,
    ) -> Result<NamedSilence, UseCaseError> {
        self.permit(UseCase::AddSilence)?;
        let now = self.now();
        let starts_at = starts_at.unwrap_or(now);
        let created_by = self.caller.name.clone();
        let silence = Silence { jobs, starts_at, ends_at, reason, created_by, created_at: now };
        let problems = silence.problems();
        if !problems.is_empty() {
            return Err(UseCaseError::Invalid(problems));
        }
        self.check_room::<Silence>("silences", limits::SILENCES_MAX).await?;
        let id = delivery_id(now, self.engine.context.host.random.next_u64());
        let details = json!({ "after": silence });
        let entry = self.audited_with(UseCase::AddSilence, format_args!("silence {id}"), &details);
        if !self.put(&id, None, silence.clone(), entry).await? {
            return Err(UseCaseError::Busy);
        }
        self.engine.context.notify.changed();
        Ok(NamedSilence { id, silence })
    }

    pub async fn remove_silence(&self, id: &str) -> Result<(), UseCaseError> {
        self.remove_document::<Silence>(UseCase::RemoveSilence, "silence", id).await
    }

    pub async fn alerts(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<NamedAlert, String>, UseCaseError> {
        self.permit(UseCase::ReadNotifications)?;
        let (alerts, next) = self.page::<Alert>(after, limit).await?;
        let items = alerts.into_iter().map(|stored| NamedAlert { id: stored.name, alert: stored.value });
        Ok(Page { items: items.collect(), next })
    }

    /// Somebody takes care of an alert: it is not repeated.
    pub async fn acknowledge_alert(&self, id: &str) -> Result<NamedAlert, UseCaseError> {
        let object = format!("alert {id}");
        self.permit_on(UseCase::AcknowledgeAlert, &object)?;
        for _ in 0..CHANGE_TRIES_MAX {
            let mut stored = self.existing::<Alert>("alert", id).await?;
            if stored.value.acknowledged.is_none() {
                let by = self.caller.name.clone();
                stored.value.acknowledged = Some(Acknowledgement { by, at: self.now() });
                let entry = self.audited(UseCase::AcknowledgeAlert, &object);
                let change = DirectoryChange::Documents(vec![replace(&stored)?]);
                if self.store().change_directory(change, entry).await? != DirectoryOutcome::Done {
                    continue;
                }
            }
            return Ok(NamedAlert { id: stored.name, alert: stored.value });
        }
        Err(UseCaseError::Busy)
    }

    /// Deliveries: those that wait first, then the others, latest first.
    pub async fn deliveries(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<NamedDelivery, String>, UseCaseError> {
        self.permit(UseCase::ReadNotifications)?;
        let store = self.store();
        let is_done = after.is_some_and(|after| after.starts_with(DONE));
        let mut items = vec![];
        if !is_done {
            let after = after.unwrap_or(PENDING);
            items = all::<Delivery>(store, Some(after), limit).await?;
            if items.len() == limit {
                let next = items.last().map(|last| last.name.clone());
                return Ok(Page { items: items.into_iter().map(named_delivery).collect(), next });
            }
        }
        let after = if is_done { after.unwrap_or(DONE) } else { DONE };
        let mut done = all::<Delivery>(store, Some(after), limit - items.len()).await?;
        done.retain(|delivery| delivery.name.starts_with(DONE));
        let next =
            (items.len() + done.len() == limit).then(|| done.last().map(|last| last.name.clone())).flatten();
        Ok(Page { items: items.into_iter().chain(done).map(named_delivery).collect(), next })
    }

    pub async fn delivery(&self, id: &str) -> Result<NamedDelivery, UseCaseError> {
        self.permit(UseCase::ReadNotifications)?;
        Ok(named_delivery(self.stored_delivery(id).await?))
    }

    /// Sends a message once more, as a new delivery.
    pub async fn replay_delivery(&self, id: &str) -> Result<NamedDelivery, UseCaseError> {
        let object = format!("delivery {id}");
        self.permit_on(UseCase::ReplayDelivery, &object)?;
        let before = self.stored_delivery(id).await?.value;
        let now = self.engine.context.delivery_now();
        let key = DeliveryKey { held_by: vec![], ..before.key() };
        let replayed = Delivery {
            replay_of: Some(id.to_owned()),
            ..Delivery::new(key, before.events, before.count, now)
        };
        let new = delivery_id(now, self.engine.context.host.random.next_u64());
        let details = json!({ "delivery": new });
        let entry = self.audited_with(UseCase::ReplayDelivery, &object, &details);
        if !self.put(&format!("{PENDING}{new}"), None, replayed.clone(), entry).await? {
            return Err(UseCaseError::Busy);
        }
        Ok(NamedDelivery { id: new, delivery: replayed })
    }

    pub async fn notifications(&self) -> Result<NotificationsView, UseCaseError> {
        self.permit(UseCase::ReadNotifications)?;
        self.notifications_view().await
    }

    /// Sends notifications from a copy of a store, too.
    pub async fn resume_notifications(&self) -> Result<NotificationsView, UseCaseError> {
        self.permit(UseCase::ResumeNotifications)?;
        if let Some(stored) = read::<serde_json::Value>(self.store(), STOPPED).await? {
            let (kind, name) = STOPPED;
            let removed = DocumentChange::Remove { kind, name: name.to_owned(), version: stored.version };
            let entry = self.audited(UseCase::ResumeNotifications, "notifications");
            // Events from before are not sent.
            self.engine.context.begin_notifying().await?;
            self.store().change_directory(DirectoryChange::Documents(vec![removed]), entry).await?;
        }
        self.notifications_view().await
    }

    async fn notifications_view(&self) -> Result<NotificationsView, UseCaseError> {
        let store = self.store();
        let stopped = read::<serde_json::Value>(store, STOPPED).await?;
        let pending = all::<Delivery>(store, Some(PENDING), limits::DELIVERIES_COUNTED_MAX).await?.len();
        let alerts = all::<Alert>(store, None, limits::NOTIFY_JOBS_HELD_MAX).await?.len();
        let reason = "this is a copy of a store (`punctual migrate fork`), which must not notify the people of the \
                      original; `punctual notify resume` starts it";
        Ok(NotificationsView { stopped: stopped.map(|_| reason.to_owned()), pending, alerts })
    }

    /// What is wrong with the `notify` of a job. If nothing is, its events are looked for from now on.
    pub(super) async fn notify_problem(&self, spec: &JobSpec) -> Result<Option<InvalidField>, StoreError> {
        let notify = &spec.settings.notify;
        if notify.is_empty() {
            return Ok(None);
        }
        let mut known: BTreeMap<&str, bool> = BTreeMap::new();
        for (field, channels) in notify.lists() {
            for channel in channels {
                let is_known = match known.get(channel.as_str()) {
                    Some(is_known) => *is_known,
                    None => self.channel_problem(field, channel).await?.is_none(),
                };
                known.insert(channel, is_known);
                if !is_known {
                    return self.channel_problem(&format!("notify.{field}"), channel).await;
                }
            }
        }
        self.engine.context.begin_notifying_of(notify).await?;
        Ok(None)
    }

    async fn channel_problem(&self, field: &str, name: &str) -> Result<Option<InvalidField>, StoreError> {
        let is_known = name == OWNER_CHANNEL
            || path_name_problem(name).is_none() && read_channel(&self.engine.context, name).await?.is_some();
        let fix = || {
            format!(
                "must be the name of a channel, and there is none named {name}: create it with `punctual channel set`"
            )
        };
        Ok((!is_known).then(|| InvalidField::new(field, fix())))
    }

    /// A mute must name calendars that exist.
    async fn mute_problem(&self, mute: Option<&Mute>) -> Result<Option<InvalidField>, StoreError> {
        let Some(mute) = mute else { return Ok(None) };
        let known = self.engine.context.calendars_named(&mute.calendars).await?;
        let missing = mute.calendars.iter().enumerate().find(|(_, name)| known.get(name).is_none());
        Ok(missing.map(|(place, name)| {
            let fix = format!("must name a calendar that exists, and there is none named {name}: create it with `punctual calendar set`");
            InvalidField::new(format!("mute.calendars[{place}]"), fix)
        }))
    }

    async fn reference_problems(&self, channel: &Channel) -> Result<Vec<InvalidField>, StoreError> {
        let mut problems = vec![];
        for (field, value) in channel.secrets() {
            match value {
                Some(ChannelSecret::Reference { name })
                    if punctual_core::secrets::secret_name_problem(name).is_none() =>
                {
                    let secret = self.store().secret(name).await?;
                    if !secret.is_some_and(|secret| is_usable(&secret.about.rule, &channel.owner)) {
                        let fix = format!(
                            "must be a secret that the channel may use, not {name}: {NOT_FOR_CHANNELS}"
                        );
                        problems.push(InvalidField::new(format!("{field}.$secret"), fix));
                    }
                }
                _ => {}
            }
        }
        Ok(problems)
    }

    fn seal_channel(&self, name: &str, channel: &mut Channel) -> Result<(), UseCaseError> {
        let hidden: Vec<&str> = channel
            .secrets()
            .into_iter()
            .map(|(field, _)| field)
            .filter(|field| channel.is_hidden(field))
            .collect();
        for (field, value) in channel.secrets_mut() {
            if let Some(ChannelSecret::Plain(text)) = value
                && hidden.contains(&field)
            {
                let cipher = self.engine.context.config.secret_cipher.as_deref().ok_or(CipherError::NoKey)?;
                let sealed = cipher.seal(text, &bound_to(name, field))?;
                *value = Some(ChannelSecret::Sealed { text: sealed.text, key_id: sealed.key_id });
            }
        }
        Ok(())
    }

    /// Encrypts the values of all channels with the current key. Returns how many channels were changed, and problems.
    pub(super) async fn rotate_channels(&self) -> Result<(usize, Vec<String>), UseCaseError> {
        let context = &self.engine.context;
        let Some(current) = context.config.secret_cipher.as_deref().and_then(|cipher| cipher.current_key())
        else {
            return Ok((0, vec![]));
        };
        let (mut rotated, mut problems) = (0, vec![]);
        for mut stored in all::<Channel>(self.store(), None, limits::CHANNELS_MAX).await? {
            let is_old = |value: Option<&ChannelSecret>| matches!(value, Some(ChannelSecret::Sealed { key_id, .. }) if *key_id != current);
            if !stored.value.secrets().into_iter().any(|(_, value)| is_old(value)) {
                continue;
            }
            let sealed_only = StoredAs { value: without_references(&stored.value), ..stored.clone() };
            match resolved(context, &sealed_only).await? {
                Ok(plain) => {
                    for ((_, value), (_, opened)) in
                        stored.value.secrets_mut().into_iter().zip(plain.channel.secrets())
                    {
                        if matches!(value, Some(ChannelSecret::Sealed { .. })) {
                            *value = opened.cloned();
                        }
                    }
                    self.seal_channel(&stored.name.clone(), &mut stored.value)?;
                    let change = DirectoryChange::Documents(vec![replace(&stored)?]);
                    if self.store().change_directory(change, None).await? == DirectoryOutcome::Done {
                        rotated += 1;
                    }
                }
                Err(problem) => problems.push(format!("channel {}: {problem}", stored.name)),
            }
        }
        Ok((rotated, problems))
    }

    fn notification_config(&self) -> Option<&NotificationConfig> {
        self.engine.context.config.notifications.as_ref()
    }

    pub(super) fn configured(&self) -> &[(String, Channel)] {
        self.notification_config().map_or(&[], |config| config.notifier.configured())
    }

    async fn stored_channel(&self, name: &str) -> Result<StoredAs<Channel>, UseCaseError> {
        let found = match path_name_problem(name) {
            Some(_) => None,
            None => read_channel(&self.engine.context, name).await?,
        };
        found.ok_or_else(|| UseCaseError::NoSuchDocument { what: "channel", name: name.to_owned() })
    }

    async fn stored_delivery(&self, id: &str) -> Result<StoredAs<Delivery>, UseCaseError> {
        let is_id = id.len() < limits::NAME_BYTES_MAX && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let found = if is_id { read_delivery(&self.engine.context, id).await? } else { None };
        found.ok_or_else(|| UseCaseError::NoSuchDocument { what: "delivery", name: id.to_owned() })
    }

    /// The document with this name. One with an invalid name does not exist.
    async fn document<T: InDocument>(&self, name: &str) -> Result<Option<StoredAs<T>>, StoreError> {
        let is_name = name.len() <= limits::DOCUMENT_NAME_BYTES_MAX && path_name_problem(name).is_none();
        if is_name { read(self.store(), (T::KIND, name)).await } else { Ok(None) }
    }

    async fn existing<T: InDocument>(
        &self,
        what: &'static str,
        name: &str,
    ) -> Result<StoredAs<T>, UseCaseError> {
        let found = self.document::<T>(name).await?;
        found.ok_or_else(|| UseCaseError::NoSuchDocument { what, name: name.to_owned() })
    }

    async fn page<T: InDocument>(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<StoredAs<T>>, Option<String>), StoreError> {
        let items = all::<T>(self.store(), after, limit).await?;
        let next = (items.len() == limit).then(|| items.last().map(|last| last.name.clone())).flatten();
        Ok((items, next))
    }

    /// Stores a document in place of the stored one. False if it has changed meanwhile.
    async fn put<T: InDocument>(
        &self,
        name: &str,
        stored: Option<StoredAs<T>>,
        value: T,
        entry: Option<punctual_core::ports::AuditEntry>,
    ) -> Result<bool, StoreError> {
        let change = match stored {
            Some(stored) => replace(&StoredAs { value, ..stored })?,
            None => add(name, &value)?,
        };
        let outcome = self.store().change_directory(DirectoryChange::Documents(vec![change]), entry).await?;
        Ok(outcome == DirectoryOutcome::Done)
    }

    async fn remove_document<T: InDocument>(
        &self,
        case: UseCase,
        what: &'static str,
        name: &str,
    ) -> Result<(), UseCaseError> {
        let object = format!("{what} {name}");
        self.permit_on(case, &object)?;
        for _ in 0..CHANGE_TRIES_MAX {
            let stored = self.existing::<T>(what, name).await?;
            let change = DirectoryChange::Documents(vec![remove(&stored)]);
            let entry = self.audited(case, &object);
            if self.store().change_directory(change, entry).await? == DirectoryOutcome::Done {
                self.engine.context.notify.changed();
                return Ok(());
            }
        }
        Err(UseCaseError::Busy)
    }

    async fn check_room<T: InDocument>(&self, what: &'static str, max: usize) -> Result<(), UseCaseError> {
        let count = all::<T>(self.store(), None, max).await?.len();
        if count >= max { Err(UseCaseError::DirectoryFull { what, max }) } else { Ok(()) }
    }
}

fn without_references(channel: &Channel) -> Channel {
    let mut channel = channel.clone();
    for (_, value) in channel.secrets_mut() {
        if matches!(value, Some(ChannelSecret::Reference { .. })) {
            *value = None;
        }
    }
    channel
}

fn named_delivery(stored: StoredAs<Delivery>) -> NamedDelivery {
    let id =
        stored.name.strip_prefix(PENDING).or_else(|| stored.name.strip_prefix(DONE)).unwrap_or(&stored.name);
    NamedDelivery { id: id.to_owned(), delivery: stored.value }
}
