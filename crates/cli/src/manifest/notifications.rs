//! Channels, rules and silences of a file.

use super::RawObject;
use super::substitution::{self, ReferenceSources};
use crate::import::now;
use punctual_client::{AddSilence, SetChannel, SetRule};
use punctual_config::output::{one_line, time};
use punctual_core::job::InvalidField;
use punctual_core::notify::{ChannelSecret, ChannelType, Silence};
use punctual_core::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NotificationType {
    Channel,
    Rule,
    Silence,
}

impl NotificationType {
    pub const ALL: [Self; 3] = [NotificationType::Channel, NotificationType::Rule, NotificationType::Silence];

    pub fn word(self) -> &'static str {
        match self {
            NotificationType::Channel => "channel",
            NotificationType::Rule => "rule",
            NotificationType::Silence => "silence",
        }
    }

    /// The key of the list in a file.
    pub fn list(self) -> &'static str {
        match self {
            NotificationType::Channel => "channels",
            NotificationType::Rule => "rules",
            NotificationType::Silence => "silences",
        }
    }
}

/// A channel, rule or silence of a file.
pub struct ManifestNotification {
    /// A silence is shown by its reason, or its end.
    pub name: String,
    pub place: String,
    pub body: NotificationBody,
}

pub enum NotificationBody {
    Channel(Box<SetChannel>),
    Rule(Box<SetRule>),
    Silence(AddSilence),
}

impl ManifestNotification {
    pub fn of(
        kind: NotificationType,
        fields: &RawValue,
        place: &str,
        directory: &Path,
    ) -> Result<Self, Vec<String>> {
        let mut fields: RawObject =
            serde_json::from_str(fields.get()).map_err(|error| vec![format!("{place}: {error}")])?;
        let place = match fields.read::<String>("name") {
            Some(name) => format!("{place} ({})", one_line(&name)),
            None => place.to_owned(),
        };
        let at_place = |error: String| vec![format!("{place}: {error}")];
        let sources = ReferenceSources { variable: &substitution::variable, directory };
        for (name, value) in fields.iter_mut() {
            *value = substitution::substituted(value, &sources)
                .map_err(|error| at_place(format!("{name}: {error}")))?;
        }
        let (name, body) = match kind {
            NotificationType::Channel => {
                let mut channel: SetChannel = parsed(&fields).map_err(at_place)?;
                let name = channel.name.take().unwrap_or_default();
                (name, NotificationBody::Channel(Box::new(channel)))
            }
            NotificationType::Rule => {
                let mut rule: SetRule = parsed(&fields).map_err(at_place)?;
                let name = rule.name.take().unwrap_or_default();
                (name, NotificationBody::Rule(Box::new(rule)))
            }
            NotificationType::Silence => {
                let silence: AddSilence = parsed(&fields).map_err(at_place)?;
                let until = silence.ends_at.map(|at| format!("until {}", time(at)));
                let name = silence.reason.clone().or(until).unwrap_or_default();
                (name, NotificationBody::Silence(silence))
            }
        };
        let found = ManifestNotification { name, place, body };
        let problems = found.problems();
        if problems.is_empty() {
            return Ok(found);
        }
        let told =
            problems.iter().map(|problem| format!("{}: {} {}", found.place, problem.field, problem.fix));
        Err(told.collect())
    }

    pub fn kind(&self) -> NotificationType {
        match self.body {
            NotificationBody::Channel(_) => NotificationType::Channel,
            NotificationBody::Rule(_) => NotificationType::Rule,
            NotificationBody::Silence(_) => NotificationType::Silence,
        }
    }

    /// What is wrong with it. Values that the server may have are not missed here.
    fn problems(&self) -> Vec<InvalidField> {
        if self.name.is_empty() && self.kind() != NotificationType::Silence {
            return vec![InvalidField::new("name", "is required")];
        }
        match &self.body {
            NotificationBody::Channel(body) => {
                if body.kind == ChannelType::Command {
                    let fix =
                        "must not be command: only the punctual.toml of the server can have such a channel";
                    return vec![InvalidField::new("type", fix)];
                }
                let channel = (**body).clone().channel(Timestamp::EPOCH);
                let mut problems = channel.problems(&self.name);
                // The server keeps secret values that a request leaves out.
                let is_kept = |field: &str| {
                    let mut secrets = channel.secrets().into_iter();
                    secrets.any(|(name, value)| name == field && value.is_none() && channel.is_hidden(field))
                };
                problems.retain(|problem| !is_kept(&problem.field));
                for (field, value) in channel.secrets() {
                    if matches!(value, Some(ChannelSecret::Plain(_))) && channel.is_hidden(field) {
                        let fix = "must be a reference such as {$secret: NAME}: set the value with `punctual secret set NAME`";
                        problems.push(InvalidField::new(field, fix));
                    }
                }
                problems
            }
            NotificationBody::Rule(rule) => (**rule).clone().rule(Timestamp::EPOCH).problems(&self.name),
            NotificationBody::Silence(silence) => match (silence.ends_at, silence.duration) {
                // One that has ended is ignored, so that a file can keep it.
                (Some(ends_at), None) if ends_at <= now() => vec![],
                (Some(ends_at), None) => silence_of(silence, ends_at).problems(),
                _ => {
                    let fix = "is required, and duration is not allowed: a file can be applied at any time";
                    vec![InvalidField::new("ends_at", fix)]
                }
            },
        }
    }
}

fn parsed<T: DeserializeOwned>(fields: &RawObject) -> Result<T, String> {
    let text = serde_json::to_string(fields).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| {
        let error = error.to_string();
        error.split(" at line ").next().unwrap_or_default().to_owned()
    })
}

/// Errors for channels or rules with the same name.
pub fn namesakes(all: &[ManifestNotification]) -> Vec<String> {
    let mut places: BTreeMap<(NotificationType, &str), &str> = BTreeMap::new();
    let mut errors = vec![];
    for one in all.iter().filter(|one| one.kind() != NotificationType::Silence) {
        if let Some(first) = places.insert((one.kind(), &one.name), &one.place) {
            errors.push(format!("{} has the same name as {first}: rename one of them", one.place));
        }
    }
    errors
}

/// The silence that a request would add now, for the checks of the server.
fn silence_of(silence: &AddSilence, ends_at: Timestamp) -> Silence {
    let now = now();
    Silence {
        jobs: silence.jobs.clone().unwrap_or_default().into(),
        starts_at: silence.starts_at.unwrap_or(now),
        ends_at,
        reason: silence.reason.clone(),
        created_by: String::new(),
        created_at: now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: NotificationType, json: &str) -> Vec<String> {
        let fields = RawValue::from_string(json.to_owned()).unwrap();
        ManifestNotification::of(kind, &fields, "file", Path::new("")).err().unwrap_or_default()
    }

    #[test]
    fn errors_name_the_field_and_the_fix() {
        use NotificationType::{Channel, Rule, Silence};
        for (kind, json, error) in [
            (Channel, r#"{"type": "slack"}"#, "file: name is required"),
            (Channel, r#"{"name": "a", "type": "command"}"#, "file (a): type must not be command"),
            (
                Channel,
                r#"{"name": "a", "type": "slack", "url": "https://x.example/"}"#,
                "file (a): url must be a reference",
            ),
            (Channel, r#"{"name": "a", "type": "webhook", "host": "x"}"#, "file (a): host does not belong"),
            (Channel, r#"{"name": "a", "type": "webhook", "uri": "x"}"#, "file (a): unknown field `uri`"),
            (Rule, r#"{"name": "a", "events": [], "channels": ["x"]}"#, "file (a): events must name"),
            (Silence, r#"{"duration": "1h"}"#, "file: ends_at is required"),
            (Silence, r#"{"ends_at": "2199-01-01T00:00:00Z"}"#, "file: ends_at must be within a year"),
        ] {
            let errors = told(kind, json);
            assert!(errors.iter().any(|one| one.starts_with(error)), "{json}: {errors:?}");
        }
        // The server may have the secret value.
        assert!(told(Channel, r#"{"name": "a", "type": "slack"}"#).is_empty());
        assert!(told(Channel, r#"{"name": "a", "type": "slack", "url": {"$secret": "x"}}"#).is_empty());
        assert!(told(Silence, r#"{"ends_at": "2020-01-01T00:00:00Z"}"#).is_empty());
    }
}
