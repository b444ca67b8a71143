//! Channels: where notifications go, and which fields each type of channel has.

use super::{Mute, OWNER_CHANNEL};
use crate::access::words;
use crate::job::InvalidField;
use crate::limits;
use crate::names::{line_problem, path_name_problem};
use crate::secrets::secret_name_problem;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// The protocol of a channel.
    ChannelType ("channel type") {
        /// A signed POST to any URL, by Standard Webhooks.
        Webhook = "webhook",
        Slack = "slack",
        /// A workflow of Microsoft Teams.
        Teams = "teams",
        Discord = "discord",
        PagerDuty = "pagerduty",
        Opsgenie = "opsgenie",
        /// Twilio, or a service with the same API.
        Sms = "sms",
        Email = "email",
        /// A program on the machine of the server. Only in the configuration file.
        Command = "command",
    }
}

words! {
    /// How a connection to a mail server is encrypted.
    MailTls ("kind of TLS") {
        StartTls = "starttls",
        Tls = "tls",
        None = "none",
    }
}

/// A value that may be secret: in plain text, the name of a secret, or encrypted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ChannelSecret {
    Plain(String),
    Reference {
        #[serde(rename = "$secret")]
        name: String,
    },
    Sealed {
        #[serde(rename = "$sealed")]
        text: String,
        key_id: String,
    },
}

impl ChannelSecret {
    /// The text, if it is neither a reference nor encrypted.
    pub fn plain(&self) -> Option<&str> {
        match self {
            ChannelSecret::Plain(text) => Some(text),
            ChannelSecret::Reference { .. } | ChannelSecret::Sealed { .. } => None,
        }
    }
}

/// Without the value.
impl fmt::Debug for ChannelSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelSecret::Reference { name } => write!(f, "Reference({name})"),
            ChannelSecret::Plain(_) | ChannelSecret::Sealed { .. } => f.write_str("ChannelSecret(…)"),
        }
    }
}

/// A channel. Which fields it needs depends on its type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    #[serde(rename = "type")]
    pub kind: ChannelType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<ChannelSecret>,
    /// Signs webhooks: `whsec_` and Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<ChannelSecret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_key: Option<ChannelSecret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ChannelSecret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_token: Option<ChannelSecret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<ChannelSecret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_sid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<MailTls>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The text for people, instead of the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Whether messages contain the last lines of logs, which may have data of jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_logs: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mute: Option<Mute>,
    /// Why nothing is sent; `None` while it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<String>,
    /// The owner of the caller that set it: it may use secrets of jobs of this owner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The fields of each type, without `template`, `include_logs`, `mute` and `disabled`, which all have.
struct ChannelFields {
    needed: &'static [&'static str],
    optional: &'static [&'static str],
}

impl ChannelType {
    /// Whether its messages open and close incidents, one for each alert.
    pub fn has_incidents(self) -> bool {
        matches!(self, ChannelType::PagerDuty | ChannelType::Opsgenie)
    }

    fn fields(self) -> ChannelFields {
        let (needed, optional): (&'static [&'static str], &'static [&'static str]) = match self {
            ChannelType::Webhook => (&["url"], &["secret"]),
            ChannelType::Slack | ChannelType::Teams | ChannelType::Discord => (&["url"], &[]),
            ChannelType::PagerDuty => (&["routing_key"], &["url"]),
            ChannelType::Opsgenie => (&["api_key"], &["url"]),
            ChannelType::Sms => (&["account_sid", "auth_token", "from", "to"], &["url"]),
            ChannelType::Email => (&["host", "from", "to"], &["port", "tls", "username", "password"]),
            ChannelType::Command => (&["command"], &[]),
        };
        ChannelFields { needed, optional }
    }

    /// Whether everybody who has the URL can send to the channel, so that it is never shown.
    pub fn has_secret_url(self) -> bool {
        matches!(self, ChannelType::Slack | ChannelType::Teams | ChannelType::Discord)
    }
}

impl Channel {
    pub fn new(kind: ChannelType, now: Timestamp) -> Self {
        Channel {
            kind,
            url: None,
            secret: None,
            routing_key: None,
            api_key: None,
            auth_token: None,
            password: None,
            account_sid: None,
            username: None,
            from: None,
            to: vec![],
            host: None,
            port: None,
            tls: None,
            command: vec![],
            template: None,
            include_logs: false,
            mute: None,
            disabled: None,
            owner: String::new(),
            created_at: now,
            updated_at: now,
        }
    }

    /// Its values that may be secret, by field.
    pub fn secrets(&self) -> [(&'static str, Option<&ChannelSecret>); 6] {
        [
            ("url", self.url.as_ref()),
            ("secret", self.secret.as_ref()),
            ("routing_key", self.routing_key.as_ref()),
            ("api_key", self.api_key.as_ref()),
            ("auth_token", self.auth_token.as_ref()),
            ("password", self.password.as_ref()),
        ]
    }

    pub fn secrets_mut(&mut self) -> [(&'static str, &mut Option<ChannelSecret>); 6] {
        [
            ("url", &mut self.url),
            ("secret", &mut self.secret),
            ("routing_key", &mut self.routing_key),
            ("api_key", &mut self.api_key),
            ("auth_token", &mut self.auth_token),
            ("password", &mut self.password),
        ]
    }

    /// Whether messages go to another place, or with another login, than those of `before`. Stored secrets that are sent
    /// along must not follow them, because a caller who moves a channel may not know them.
    pub fn is_moved_from(&self, before: &Channel) -> bool {
        let place = |channel: &Channel| {
            let Channel { url, host, port, tls, username, account_sid, .. } = channel.clone();
            (url, host, port, tls, username, account_sid)
        };
        place(self) != place(before)
    }

    /// Whether the plain text of a field must not be stored or shown.
    pub fn is_hidden(&self, field: &str) -> bool {
        field != "url" || self.kind.has_secret_url()
    }

    /// The value of a field after secrets were resolved.
    pub fn value(&self, field: &str) -> &str {
        let all = self.secrets();
        let found = all.iter().find(|(name, _)| *name == field).and_then(|(_, value)| *value);
        found.and_then(ChannelSecret::plain).unwrap_or_default()
    }

    /// The invalid fields and what they must be.
    pub fn problems(&self, name: &str) -> Vec<InvalidField> {
        let mut problems: Vec<InvalidField> =
            path_name_problem(name).into_iter().map(|fix| InvalidField::new("name", fix)).collect();
        if name == OWNER_CHANNEL {
            let fix = "must not be owner, which stands for the preferred channel of the owner of a job";
            problems.push(InvalidField::new("name", fix));
        }
        problems.extend(self.mute.iter().flat_map(Mute::problems));
        let ChannelFields { needed, optional } = self.kind.fields();
        let plain = [
            ("account_sid", self.account_sid.is_some()),
            ("username", self.username.is_some()),
            ("from", self.from.is_some()),
            ("to", !self.to.is_empty()),
            ("host", self.host.is_some()),
            ("port", self.port.is_some()),
            ("tls", self.tls.is_some()),
            ("command", !self.command.is_empty()),
        ];
        let given = self.secrets().map(|(field, value)| (field, value.is_some())).into_iter().chain(plain);
        for (field, is_given) in given {
            let kind = self.kind;
            if is_given && !needed.contains(&field) && !optional.contains(&field) {
                let fix = format!("does not belong to a channel of type {kind}: leave it out");
                problems.push(InvalidField::new(field, fix));
            }
            if !is_given && needed.contains(&field) {
                problems.push(InvalidField::new(field, format!("is needed for a channel of type {kind}")));
            }
        }
        problems.extend(self.value_problems());
        problems
    }

    fn value_problems(&self) -> Vec<InvalidField> {
        let mut problems = vec![];
        let mut refuse = |field: &str, fix: String| problems.push(InvalidField::new(field, fix));
        for (field, value) in self.secrets() {
            match value {
                Some(ChannelSecret::Plain(text)) if text.is_empty() => {
                    refuse(field, "must not be empty".to_owned());
                }
                Some(ChannelSecret::Plain(text)) if text.len() > limits::CHANNEL_VALUE_BYTES_MAX => {
                    refuse(field, format!("must be at most {} bytes", limits::CHANNEL_VALUE_BYTES_MAX));
                }
                Some(ChannelSecret::Plain(text)) if field == "url" && !is_web_address(text) => {
                    refuse(field, "must begin with https:// or http://, and have a host".to_owned());
                }
                Some(ChannelSecret::Plain(text)) if field == "url" && has_login(text) => {
                    let fix = "must not contain a user or password, because others can read it: refer to a secret that \
                               holds the whole URL, {\"$secret\": NAME}";
                    refuse(field, fix.to_owned());
                }
                Some(ChannelSecret::Plain(text)) if field == "secret" && !text.starts_with("whsec_") => {
                    refuse(field, "must begin with whsec_, followed by 24 to 64 bytes in Base64".to_owned());
                }
                Some(ChannelSecret::Reference { name }) => {
                    if let Some(problem) = secret_name_problem(name) {
                        refuse(&format!("{field}.$secret"), problem);
                    }
                }
                _ => {}
            }
        }
        if self.to.len() > limits::CHANNEL_RECIPIENTS_MAX {
            refuse("to", format!("must be at most {} recipients", limits::CHANNEL_RECIPIENTS_MAX));
        }
        let lines = [("from", &self.from), ("host", &self.host), ("username", &self.username)];
        for (field, text) in lines.into_iter().filter_map(|(field, text)| Some((field, text.as_ref()?))) {
            if let Some(problem) = line_problem(text) {
                refuse(field, problem);
            }
        }
        for (place, to) in self.to.iter().enumerate() {
            let is_address = self.kind != ChannelType::Email || to.contains('@');
            if line_problem(to).is_some() || !is_address {
                refuse(&format!("to[{place}]"), "must be an address such as ops@example.org".to_owned());
            }
        }
        let is_local =
            self.host.as_deref().is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "::1"));
        if self.tls == Some(MailTls::None) && self.password.is_some() && !is_local {
            refuse("tls", "must be starttls or tls, because a password is sent".to_owned());
        }
        if self.kind == ChannelType::Email && self.password.is_some() != self.username.is_some() {
            refuse("password", "needs username, and username needs password".to_owned());
        }
        if self.template.as_ref().is_some_and(|text| text.len() > limits::CHANNEL_TEMPLATE_BYTES_MAX) {
            refuse("template", format!("must be at most {} bytes", limits::CHANNEL_TEMPLATE_BYTES_MAX));
        }
        problems
    }
}

/// Whether the part before the path has a user.
fn has_login(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

fn is_web_address(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && line_problem(text).is_none())
}
