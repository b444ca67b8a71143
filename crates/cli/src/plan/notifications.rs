//! Compares the channels, rules and silences of files with those of the server.

use super::PlannedAction;
use super::diff::{self, FieldChange};
use crate::import::now;
use crate::manifest::{Manifest, ManifestNotification, NotificationBody, NotificationType, fields_of};
use punctual_client::{AddSilence, ChannelBody, Client, RuleBody, SilenceBody};
use punctual_config::exit::CliError;
use serde::Serialize;
use serde_json::Value;

/// What is to be done with a channel, rule or silence.
#[derive(Serialize)]
pub struct PlannedNotification {
    pub kind: NotificationType,
    pub name: String,
    pub action: PlannedAction,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
}

/// What is to be done with each, in the order of the manifest.
pub async fn planned(client: &Client, manifest: &Manifest) -> anyhow::Result<Vec<PlannedNotification>> {
    let has = |kind| manifest.notifications.iter().any(|one| one.kind() == kind);
    let channels = if has(NotificationType::Channel) { client.channels().await?.items } else { vec![] };
    let rules = if has(NotificationType::Rule) { client.notification_rules().await?.items } else { vec![] };
    let silences = if has(NotificationType::Silence) { client.silences().await?.items } else { vec![] };
    let stored = StoredNotifications { channels, rules, silences };
    manifest.notifications.iter().map(|one| stored.planned(one)).collect()
}

struct StoredNotifications {
    channels: Vec<ChannelBody>,
    rules: Vec<RuleBody>,
    silences: Vec<SilenceBody>,
}

impl StoredNotifications {
    fn planned(&self, one: &ManifestNotification) -> anyhow::Result<PlannedNotification> {
        let (before, after) = match &one.body {
            NotificationBody::Channel(channel) => {
                let before = self.channels.iter().find(|stored| stored.name == one.name);
                if before.is_some_and(|stored| stored.configured) {
                    let (place, name) = (&one.place, &one.name);
                    let message = format!(
                        "{place}: the channel {name} is in the punctual.toml of the server: rename this one"
                    );
                    return Err(CliError::refused(message).into());
                }
                let mut after = fields_of::channel(channel);
                // The server keeps secret values that a file leaves out.
                if let Some(stored) = before.filter(|stored| stored.kind == channel.kind) {
                    let kept = stored.hidden.iter().chain(stored.references.keys());
                    for field in kept.filter(|field| field.as_str() != "url" || stored.kind.has_secret_url())
                    {
                        let value = fields_of::stored_channel(stored).remove(field).unwrap_or_default();
                        after.entry(field.clone()).or_insert(value);
                    }
                }
                (before.map(fields_of::stored_channel), after)
            }
            NotificationBody::Rule(rule) => {
                let before = self.rules.iter().find(|stored| stored.name == one.name);
                (before.map(fields_of::stored_rule), fields_of::rule(rule))
            }
            NotificationBody::Silence(silence) => {
                let is_ended = silence.ends_at.is_some_and(|at| at <= now());
                let is_stored = self.silences.iter().any(|stored| is_same(stored, silence));
                let action = if is_ended || is_stored { PlannedAction::None } else { PlannedAction::Create };
                return Ok(PlannedNotification {
                    kind: one.kind(),
                    name: one.name.clone(),
                    action,
                    changes: vec![],
                });
            }
        };
        let changes = before.as_ref().map(|before| diff::of_fields(before, &after)).unwrap_or_default();
        let action = match before {
            None => PlannedAction::Create,
            Some(_) if changes.is_empty() => PlannedAction::None,
            Some(_) => PlannedAction::Update,
        };
        Ok(PlannedNotification { kind: one.kind(), name: one.name.clone(), action, changes })
    }
}

/// A silence has no name: it is the same if it says the same.
fn is_same(stored: &SilenceBody, silence: &AddSilence) -> bool {
    let AddSilence { jobs, starts_at, ends_at, reason, duration: _ } = silence;
    stored.jobs == jobs.clone().unwrap_or_default()
        && Some(stored.ends_at) == *ends_at
        && starts_at.is_none_or(|at| at == stored.starts_at)
        && stored.reason == *reason
}

/// Channels of the files that do not exist yet, so that the server refuses jobs that name them.
pub fn new_channels(planned: &[PlannedNotification]) -> std::collections::BTreeSet<&str> {
    let is_new = |one: &&PlannedNotification| {
        one.kind == NotificationType::Channel && one.action == PlannedAction::Create
    };
    planned.iter().filter(is_new).map(|one| one.name.as_str()).collect()
}

/// A line about the `notify` of a job that names such channels.
pub fn new_notify(names: &std::collections::BTreeSet<String>) -> Option<FieldChange> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let after = format!("{} (to be created)", names.join(", "));
    let change = FieldChange { field: "notify".to_owned(), before: Value::Null, after: after.into() };
    (!names.is_empty()).then_some(change)
}
