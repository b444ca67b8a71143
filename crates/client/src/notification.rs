//! Notifications on the wire: channels, rules, silences, alerts and deliveries, and the `notify` of jobs.

use crate::client::{Client, ClientError, segment};
use crate::duration::Span;
use crate::page::Page;
use crate::wire::wire;
use punctual_core::access::NamePattern;
use punctual_core::ids::JobId;
use punctual_core::notify::{
    Channel, ChannelSecret, ChannelType, DeliveryState, Escalation, EventKind, JobSelector, MailTls, Mute,
    MutedThen, NotificationRule, NotifySettings, RuleEvent,
};
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use std::time::Duration;

/// One channel, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChannelNames(pub Vec<String>);

impl Serialize for ChannelNames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [only] => serializer.serialize_str(only),
            all => all.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ChannelNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamesVisitor;
        impl<'de> de::Visitor<'de> for NamesVisitor {
            type Value = ChannelNames;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the name of a channel or a list of names")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<ChannelNames, E> {
                Ok(ChannelNames(vec![name.to_owned()]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut names: A) -> Result<ChannelNames, A::Error> {
                let mut all = vec![];
                while let Some(name) = names.next_element()? {
                    all.push(name);
                }
                Ok(ChannelNames(all))
            }
        }
        deserializer.deserialize_any(NamesVisitor)
    }
}

wire! {
    /// The channels that are notified about a job. Each is the name of a channel, or a list of names. `owner` stands for the
    /// preferred channel of the user who owns the job.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct NotifyBody as "Notify" {
        /// When an occurrence failed and is not retried. For a recurring job once, and again after the repeat interval, until
        /// it recovers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub on_failure: Option<ChannelNames> = the("ChannelNames").example("ops"),
        /// When an occurrence did not start within `misfire_grace`: missed, skipped, paused, or without a worker.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub on_missed: Option<ChannelNames> = the("ChannelNames").example("ops"),
        /// When an execution started more than a minute late.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub on_late: Option<ChannelNames> = the("ChannelNames").example("ops"),
        /// When it succeeded after a failure or a missed run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub on_recovery: Option<ChannelNames> = the("ChannelNames").example("ops"),
        /// Each time that it succeeded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub on_success: Option<ChannelNames> = the("ChannelNames").example("ops"),
    }

    /// Times at which messages are not sent.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct MuteBody as "Mute" {
        /// Messages are held back while one of these calendars excludes the time.
        pub calendars: Vec<String> =
            up_to(limits::MUTE_CALENDARS_MAX, list(name().about("The name of a calendar."))).example(json!(["nights"])),
        /// What happens to the messages: `send` sends them when the time is over, `drop` never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub then: Option<MutedThen> = words::<MutedThen>().otherwise("send"),
    }

    /// A channel that is notified if nobody acknowledges an alert.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct EscalationBody as "Escalation" {
        /// How long after the first notification.
        pub after: Span = the("Duration").example("15m"),
        /// The channel.
        pub to: String = name().example("duty"),
    }

    /// A channel to store. Which fields it needs depends on its type. Values of `secret`, `routing_key`, `api_key`,
    /// `auth_token` and `password`, and URLs of chats, are encrypted and never returned; each may also be a reference
    /// such as `{"$secret": "name"}`. Where a channel with the same name and type exists, those that are omitted stay.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct SetChannel as "SetChannel" {
        /// Its name; only where the path does not have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String> = name().example("ops"),
        /// The protocol.
        #[serde(rename = "type")]
        pub kind: ChannelType = words::<ChannelType>(),
        /// The URL of a webhook, or of a Slack, Teams or Discord channel; another base of PagerDuty, Opsgenie or Twilio.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub url: Option<ChannelSecret> = the("SecretText").example("https://example.org/hooks/punctual"),
        /// The key that signs webhooks: `whsec_` and 24 to 64 bytes in Base64. Without it, they are not signed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub secret: Option<ChannelSecret> = the("SecretText").example(json!({"$secret": "webhook-key"})),
        /// The integration key of a PagerDuty service (Events API v2).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub routing_key: Option<ChannelSecret> = the("SecretText"),
        /// The API key of an Opsgenie integration.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub api_key: Option<ChannelSecret> = the("SecretText"),
        /// The token of the Twilio account.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub auth_token: Option<ChannelSecret> = the("SecretText"),
        /// The password of `username` at the mail server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub password: Option<ChannelSecret> = the("SecretText"),
        /// The id of the Twilio account.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub account_sid: Option<String>,
        /// The user at the mail server; without one, there is no login.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub username: Option<String>,
        /// The sender: a mail address, or a phone number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub from: Option<String> = text().example("punctual@example.org"),
        /// The recipients: mail addresses, or phone numbers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub to: Option<Vec<String>> =
            up_to(limits::CHANNEL_RECIPIENTS_MAX, list(text().about("One of them."))).example(json!(["ops@example.org"])),
        /// The mail server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub host: Option<String> = text().example("mail.example.org"),
        /// Its port; by default 587, 465 with `tls`, 25 with `none`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub port: Option<u16> = whole(1..=65_535),
        /// How the connection to the mail server is encrypted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tls: Option<MailTls> = words::<MailTls>().otherwise("starttls"),
        /// The text for people, as a Jinja template; by default a text that says what happened and what helps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub template: Option<String> =
            text().with("maxLength", limits::CHANNEL_TEMPLATE_BYTES_MAX).example("{{ title }}: {{ event.error_message }}"),
        /// Whether messages contain the last lines of the log, which may have data of jobs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub include_logs: Option<bool> = flag().otherwise(false),
        /// When it is quiet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mute: Option<MuteBody> = the("Mute"),
    }

    /// A channel, without its secret values.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ChannelBody as "Channel" {
        /// Its name.
        pub name: String = text().example("ops"),
        /// The protocol.
        #[serde(rename = "type")]
        pub kind: ChannelType = words::<ChannelType>(),
        /// The URL, if it is not secret.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub url: Option<String>,
        /// Fields with an encrypted value.
        pub hidden: Vec<String> = list(text().about("The name of a field.")),
        /// Fields that refer to a secret, with its name.
        pub references: std::collections::BTreeMap<String, String> =
            Schema::of("object").with("additionalProperties", json!({"type": "string"})),
        /// The id of the Twilio account.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub account_sid: Option<String>,
        /// The user at the mail server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub username: Option<String>,
        /// The sender.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub from: Option<String>,
        /// The recipients.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub to: Vec<String> = list(text().about("One of them.")),
        /// The mail server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub host: Option<String>,
        /// Its port.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub port: Option<u16> = whole(1..=65_535),
        /// How the connection to the mail server is encrypted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tls: Option<MailTls> = words::<MailTls>(),
        /// The template of the text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub template: Option<String>,
        /// Whether messages contain lines of logs.
        pub include_logs: bool,
        /// When it is quiet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mute: Option<MuteBody> = the("Mute"),
        /// Why nothing is sent: the receiver answered 410. Set the channel again to use it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub disabled: Option<String>,
        /// It is in the configuration file of the server, and cannot be changed here.
        pub configured: bool,
        /// When it was first set.
        pub created_at: Timestamp,
        /// When it was last set.
        pub updated_at: Timestamp,
    }

    /// What became of a test message.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ChannelTested as "ChannelTested" {
        /// The receiver accepted it.
        pub delivered: bool,
        /// Why not.
        pub error: Option<String>,
        /// The id of the message.
        pub message_id: String = text().example("msg_fff9a4c2"),
    }

    /// Selects jobs. Each list that is given must match: one of its names, in which `*` stands for any text. Without
    /// lists, all jobs.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct SelectorBody as "JobSelector" {
        /// A tag of the job.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub tags: Vec<String> = up_to(limits::SCOPE_PATTERNS_MAX, list(name().about("A tag, or a pattern."))),
        /// Its queue.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub queues: Vec<String> = up_to(limits::SCOPE_PATTERNS_MAX, list(name().about("A queue, or a pattern."))),
        /// Its owner.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub owners: Vec<String> = up_to(limits::SCOPE_PATTERNS_MAX, list(name().about("An owner, or a pattern."))),
        /// Its type.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub job_types: Vec<String> = up_to(limits::SCOPE_PATTERNS_MAX, list(name().about("A job type, or a pattern."))),
        /// Its name.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub names: Vec<String> = up_to(limits::SCOPE_PATTERNS_MAX, list(name().about("A job name, or a pattern."))),
    }

    /// A rule to store: sends events of the selected jobs to channels.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct SetRule as "SetRule" {
        /// Its name; only where the path does not have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String> = name().example("nightly-backups"),
        /// The events.
        pub events: Vec<RuleEvent> = list(words::<RuleEvent>().about("One of them.")).example(json!(["failed", "missed"])),
        /// The channels that are notified; `owner` stands for the preferred channel of the user who owns the job.
        pub channels: Vec<String> = list(name().about("The name of a channel.")).example(json!(["ops"])),
        /// The jobs; all if omitted.
        #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
        pub jobs: Option<SelectorBody> = the("JobSelector"),
        /// How many failures in a row it takes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub failures: Option<u32> = whole(1..=limits::RULE_FAILURES_MAX.into()).otherwise(1),
        /// How many successes in a row it takes to recover.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub successes: Option<u32> = whole(1..=limits::RULE_FAILURES_MAX.into()).otherwise(1),
        /// For `late`: by more than this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub late_by: Option<Span> = the("Duration").otherwise("60s"),
        /// For `running_long`: longer than this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub longer_than: Option<Span> = the("Duration").example("1h"),
        /// For `running_long`: longer than this percentage of the time within which 95 % of the last 100 executions of
        /// the recurring job succeeded. It needs 10 of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub longer_than_usual_percent: Option<u32> =
            whole(limits::RULE_USUAL_PERCENT_MIN.into()..=limits::RULE_USUAL_PERCENT_MAX.into()).example(200),
        /// For `dead_letters`: more than this number, in each named queue or altogether.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub dead_letters_above: Option<u64> = whole(0..=limits::RULE_DEAD_LETTERS_MAX),
        /// For `queue_old`: the oldest execution of a queue has waited for longer than this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub queue_older_than: Option<Span> = the("Duration").example("10m"),
        /// For `limit_full`: executions of a queue have waited for its limits for longer than this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limit_full_for: Option<Span> = the("Duration").example("10m"),
        /// For `node_not_ready`: also if fewer nodes than this are ready.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ready_nodes_below: Option<u32> = whole(1..=u32::MAX.into()).example(3),
        /// When it is quiet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mute: Option<MuteBody> = the("Mute"),
        /// Who is notified if the alert is not acknowledged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub escalate: Option<EscalationBody> = the("Escalation"),
        /// Whether the rule has no effect.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub disabled: Option<bool> = flag().otherwise(false),
    }

    /// A rule.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct RuleBody as "NotificationRule" {
        /// Its name.
        pub name: String = text().example("nightly-backups"),
        /// The events.
        pub events: Vec<RuleEvent> = list(words::<RuleEvent>().about("One of them.")),
        /// The channels that are notified.
        pub channels: Vec<String> = list(text().about("The name of a channel.")),
        /// The jobs.
        #[serde(rename = "match")]
        pub jobs: SelectorBody = the("JobSelector"),
        /// How many failures in a row it takes.
        pub failures: u32,
        /// How many successes in a row it takes to recover.
        pub successes: u32,
        /// For `late`: by more than this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub late_by: Option<Span> = the("Duration"),
        /// For `running_long`: longer than this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub longer_than: Option<Span> = the("Duration"),
        /// For `running_long`: longer than this percentage of usual.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub longer_than_usual_percent: Option<u32>,
        /// For `dead_letters`: more than this number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub dead_letters_above: Option<u64>,
        /// For `queue_old`: longer than this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub queue_older_than: Option<Span> = the("Duration"),
        /// For `limit_full`: for longer than this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limit_full_for: Option<Span> = the("Duration"),
        /// For `node_not_ready`: also if fewer nodes than this are ready.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ready_nodes_below: Option<u32>,
        /// When it is quiet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mute: Option<MuteBody> = the("Mute"),
        /// Who is notified if the alert is not acknowledged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub escalate: Option<EscalationBody> = the("Escalation"),
        /// Whether the rule has no effect.
        pub disabled: bool,
        /// When it was first set.
        pub created_at: Timestamp,
        /// When it was last set.
        pub updated_at: Timestamp,
    }

    /// A silence to add: notifications about the selected jobs are suppressed for a time.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct AddSilence as "AddSilence" {
        /// The jobs; all if omitted.
        #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
        pub jobs: Option<SelectorBody> = the("JobSelector"),
        /// When it begins; now if omitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub starts_at: Option<Timestamp>,
        /// When it ends; or give `duration`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ends_at: Option<Timestamp>,
        /// How long it lasts; or give `ends_at`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub duration: Option<Span> = the("Duration").example("2h"),
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String> = text().with("maxLength", limits::NAME_BYTES_MAX).example("maintenance of the database"),
    }

    /// A silence.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct SilenceBody as "Silence" {
        /// Its id.
        pub silence_id: String = text().example("fff9a4c2d1e05b7a0c11"),
        /// The jobs.
        #[serde(rename = "match")]
        pub jobs: SelectorBody = the("JobSelector"),
        /// When it begins.
        pub starts_at: Timestamp,
        /// When it ends.
        pub ends_at: Timestamp,
        /// It is in effect now.
        pub active: bool,
        /// Why.
        pub reason: Option<String>,
        /// Who added it.
        pub created_by: String,
        /// When it was added.
        pub created_at: Timestamp,
    }

    /// A problem that lasts: a job that fails or does not run, or a condition of a rule.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct AlertBody as "Alert" {
        /// Its id.
        pub alert_id: String = text().example("failed~0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11"),
        /// `firing`; `acknowledged` if it is not repeated; `pending` while it is below the threshold of every rule, or
        /// silenced.
        pub state: String = one_of(&["pending", "firing", "acknowledged"]),
        /// What happened.
        #[serde(rename = "type")]
        pub kind: EventKind = words::<EventKind>(),
        /// The name of the job or queue.
        pub name: String,
        /// The job.
        pub job_id: Option<JobId>,
        /// What happened and why.
        pub explanation: String,
        /// Since when.
        pub since: Timestamp,
        /// How often it was found: failures in a row, or missed runs.
        pub count: u64,
        /// The channels that were notified, with the recipient if it is the owner of the job.
        pub channels: Vec<String> = list(text().about("The name of a channel.")),
        /// When they were last notified.
        pub notified_at: Option<Timestamp>,
        /// Who has acknowledged it.
        pub acknowledged_by: Option<String>,
        /// When it was acknowledged.
        pub acknowledged_at: Option<Timestamp>,
    }

    /// A message to one channel.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct DeliveryBody as "Delivery" {
        /// Its id. The id of the message is `msg_` and this id, each time that it is sent.
        pub delivery_id: String = text().example("fff9a4c2d1e05b7a0c11"),
        /// The channel.
        pub channel: String,
        /// The recipient, if it is the owner of the job and not those of the channel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub to: Option<String>,
        /// Calendars that hold it back while they exclude the time.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub held_by: Vec<String> = list(text().about("The name of a calendar.")),
        /// Where it stands.
        pub state: DeliveryState = words::<DeliveryState>(),
        /// What happened.
        #[serde(rename = "type")]
        pub kind: EventKind = words::<EventKind>(),
        /// How many events it is about.
        pub count: u64,
        /// The first of them.
        pub events: Vec<Value> = list(Schema::of("object").about("An event, as in the data of webhooks.")),
        /// When the first event was found.
        pub created_at: Timestamp,
        /// When it is tried next; only while it is pending.
        pub due_at: Option<Timestamp>,
        /// How often it was tried.
        pub attempts: u32,
        /// When it was last tried.
        pub last_attempt_at: Option<Timestamp>,
        /// Why the last attempt failed.
        pub last_error: Option<String>,
        /// When it was sent or given up.
        pub finished_at: Option<Timestamp>,
        /// The delivery that it repeats.
        pub replay_of: Option<String>,
    }

    /// The state of notifications.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct NotificationsBody as "Notifications" {
        /// Why nothing is sent, such as in a copy of a store; null if messages are sent.
        pub stopped: Option<String>,
        /// Deliveries that wait.
        pub pending: u64,
        /// Alerts that are not resolved.
        pub alerts: u64,
    }
}

impl SetChannel {
    /// The channel that it describes.
    pub fn channel(self, now: Timestamp) -> Channel {
        Channel {
            url: self.url,
            secret: self.secret,
            routing_key: self.routing_key,
            api_key: self.api_key,
            auth_token: self.auth_token,
            password: self.password,
            account_sid: self.account_sid,
            username: self.username,
            from: self.from,
            to: self.to.unwrap_or_default(),
            host: self.host,
            port: self.port,
            tls: self.tls,
            template: self.template,
            include_logs: self.include_logs.unwrap_or(false),
            mute: self.mute.map(Mute::from),
            ..Channel::new(self.kind, now)
        }
    }
}

impl From<SelectorBody> for JobSelector {
    fn from(body: SelectorBody) -> Self {
        let patterns = |names: Vec<String>| names.into_iter().map(NamePattern::new).collect();
        let SelectorBody { tags, queues, owners, job_types, names } = body;
        JobSelector {
            tags: patterns(tags),
            queues: patterns(queues),
            owners: patterns(owners),
            job_types: patterns(job_types),
            names: patterns(names),
        }
    }
}

fn millis(span: Span) -> u64 {
    u64::try_from(span.get().as_millis()).unwrap_or(u64::MAX)
}

impl From<MuteBody> for Mute {
    fn from(body: MuteBody) -> Self {
        Mute { calendars: body.calendars, then: body.then.unwrap_or(MutedThen::Send) }
    }
}

impl From<Mute> for MuteBody {
    fn from(mute: Mute) -> Self {
        MuteBody { calendars: mute.calendars, then: Some(mute.then) }
    }
}

impl From<EscalationBody> for Escalation {
    fn from(body: EscalationBody) -> Self {
        Escalation { after_ms: millis(body.after), to: body.to }
    }
}

impl From<Escalation> for EscalationBody {
    fn from(escalation: Escalation) -> Self {
        EscalationBody { after: Span::from(Duration::from_millis(escalation.after_ms)), to: escalation.to }
    }
}

impl SetRule {
    /// The rule that it describes.
    pub fn rule(self, now: Timestamp) -> NotificationRule {
        let millis = |span: Option<Span>| span.map(millis);
        NotificationRule {
            events: self.events,
            channels: self.channels,
            jobs: self.jobs.unwrap_or_default().into(),
            failures: self.failures.unwrap_or(1),
            successes: self.successes.unwrap_or(1),
            late_by_ms: millis(self.late_by),
            longer_than_ms: millis(self.longer_than),
            longer_than_usual_percent: self.longer_than_usual_percent,
            dead_letters_above: self.dead_letters_above,
            queue_older_than_ms: millis(self.queue_older_than),
            limit_full_for_ms: millis(self.limit_full_for),
            ready_nodes_below: self.ready_nodes_below,
            mute: self.mute.map(Mute::from),
            escalate: self.escalate.map(Escalation::from),
            disabled: self.disabled.unwrap_or(false),
            created_at: now,
            updated_at: now,
        }
    }
}

impl From<NotifyBody> for NotifySettings {
    fn from(body: NotifyBody) -> Self {
        let names = |names: Option<ChannelNames>| names.map(|names| names.0).unwrap_or_default();
        let NotifyBody { on_failure, on_missed, on_late, on_recovery, on_success } = body;
        NotifySettings {
            on_failure: names(on_failure),
            on_missed: names(on_missed),
            on_late: names(on_late),
            on_recovery: names(on_recovery),
            on_success: names(on_success),
        }
    }
}

impl NotifyBody {
    /// The settings as a user could have written them; `None` if no channel is named.
    pub fn of(settings: &NotifySettings) -> Option<Self> {
        let names =
            |names: &Vec<String>| Some(ChannelNames(names.clone())).filter(|names| !names.0.is_empty());
        let body = NotifyBody {
            on_failure: names(&settings.on_failure),
            on_missed: names(&settings.on_missed),
            on_late: names(&settings.on_late),
            on_recovery: names(&settings.on_recovery),
            on_success: names(&settings.on_success),
        };
        (!settings.is_empty()).then_some(body)
    }
}

impl Client {
    pub async fn channels(&self) -> Result<Page<ChannelBody>, ClientError> {
        self.all_pages("/channels").await
    }

    pub async fn channel(&self, name: &str) -> Result<ChannelBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/channels/{}", segment(name)))).await
    }

    pub async fn set_channel(&self, name: &str, channel: &SetChannel) -> Result<ChannelBody, ClientError> {
        self.send(self.request(Method::PUT, &format!("/channels/{}", segment(name))).json(channel)).await
    }

    /// Removes a channel that nothing uses.
    pub async fn remove_channel(&self, name: &str) -> Result<(), ClientError> {
        self.remove(format!("/channels/{}", segment(name)), false).await
    }

    /// Removes a channel, even if something uses it.
    pub async fn remove_channel_in_use(&self, name: &str) -> Result<(), ClientError> {
        self.remove(format!("/channels/{}", segment(name)), true).await
    }

    /// Sends a test message over a channel.
    pub async fn test_channel(&self, name: &str) -> Result<ChannelTested, ClientError> {
        self.send(self.request(Method::POST, &format!("/channels/{}/test", segment(name)))).await
    }

    pub async fn notification_rules(&self) -> Result<Page<RuleBody>, ClientError> {
        self.all_pages("/notifications/rules").await
    }

    pub async fn set_notification_rule(&self, name: &str, rule: &SetRule) -> Result<RuleBody, ClientError> {
        let path = format!("/notifications/rules/{}", segment(name));
        self.send(self.request(Method::PUT, &path).json(rule)).await
    }

    pub async fn remove_notification_rule(&self, name: &str) -> Result<(), ClientError> {
        let path = format!("/notifications/rules/{}", segment(name));
        self.exchange(self.request(Method::DELETE, &path)).await.map(drop)
    }

    pub async fn silences(&self) -> Result<Page<SilenceBody>, ClientError> {
        self.all_pages("/notifications/silences").await
    }

    pub async fn add_silence(&self, silence: &AddSilence) -> Result<SilenceBody, ClientError> {
        self.send(self.request(Method::POST, "/notifications/silences").json(silence)).await
    }

    pub async fn remove_silence(&self, id: &str) -> Result<(), ClientError> {
        let path = format!("/notifications/silences/{}", segment(id));
        self.exchange(self.request(Method::DELETE, &path)).await.map(drop)
    }

    pub async fn alerts(&self) -> Result<Page<AlertBody>, ClientError> {
        self.all_pages("/notifications/alerts").await
    }

    pub async fn acknowledge_alert(&self, id: &str) -> Result<AlertBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/notifications/alerts/{}/ack", segment(id)))).await
    }

    /// One page of deliveries: those that wait first, then the latest.
    pub async fn deliveries(&self, limit: u32) -> Result<Page<DeliveryBody>, ClientError> {
        let query = [("limit", limit)];
        self.send(self.request(Method::GET, "/notifications/deliveries").query(&query)).await
    }

    pub async fn replay_delivery(&self, id: &str) -> Result<DeliveryBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/notifications/deliveries/{}/replay", segment(id))))
            .await
    }

    pub async fn notifications(&self) -> Result<NotificationsBody, ClientError> {
        self.send(self.request(Method::GET, "/notifications")).await
    }

    /// Sends notifications in a store where they are stopped, such as a copy.
    pub async fn resume_notifications(&self) -> Result<NotificationsBody, ClientError> {
        self.send(self.request(Method::POST, "/notifications/resume")).await
    }
}

#[cfg(test)]
mod tests;
