//! Events, and the messages that tell people about them.

use super::{Channel, EventSubject, SelectedJob};
use crate::access::words;
use crate::ids::{ExecutionId, JobId};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

words! {
    /// What happened; the `type` of webhooks.
    EventKind ("type of event") {
        /// An occurrence failed and is not retried.
        Failed = "job.failed",
        /// An occurrence did not start within its grace.
        Missed = "job.missed",
        Late = "job.late",
        Recovered = "job.recovered",
        Succeeded = "job.succeeded",
        RunningLong = "job.running_long",
        DeadLetters = "queue.dead_letters",
        QueueOld = "queue.old",
        /// Work has waited for a limit of the queue.
        LimitFull = "queue.limit_full",
        WorkerLost = "worker.lost",
        NodeNotReady = "node.not_ready",
        /// A condition that is not about a single job has ended.
        Resolved = "alert.resolved",
        Test = "test",
    }
}

impl EventKind {
    /// Whether it ends an alert.
    pub fn is_resolution(self) -> bool {
        matches!(self, EventKind::Recovered | EventKind::Resolved)
    }

    /// Whether it is good news, or nothing at all.
    pub fn is_good(self) -> bool {
        self.is_resolution() || matches!(self, EventKind::Succeeded | EventKind::Test)
    }

    fn phrase(self) -> &'static str {
        match self {
            EventKind::Failed => "failed",
            EventKind::Missed => "did not run",
            EventKind::Late => "started late",
            EventKind::Recovered => "recovered",
            EventKind::Succeeded => "succeeded",
            EventKind::RunningLong => "runs longer than expected",
            EventKind::DeadLetters => "has many dead letters",
            EventKind::QueueOld => "has work that waits too long",
            EventKind::LimitFull => "has work that waits for its limit",
            EventKind::WorkerLost => "was lost",
            EventKind::NodeNotReady => "is not ready",
            EventKind::Resolved => "needs no more attention",
            EventKind::Test => "this is a test",
        }
    }
}

/// One event, as it is stored with its delivery and sent as the `data` of webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationEvent {
    /// The same for the same event, however often it is found.
    pub event_id: String,
    #[serde(rename = "type")]
    pub kind: EventKind,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// The name of the job, queue or worker.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// What happened and why, in a sentence.
    pub explanation: String,
    /// Since when the alert has been firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How many occurrences it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrences: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The command that helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The alert that it belongs to, which can be acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert_id: Option<String>,
    /// The page that acknowledges the alert. Added when the message is sent, and not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_url: Option<String>,
}

impl NotificationEvent {
    pub fn new(event_id: String, kind: EventKind, at: Timestamp, name: &str, explanation: String) -> Self {
        NotificationEvent {
            event_id,
            kind,
            at,
            job_id: None,
            name: name.to_owned(),
            job_type: None,
            queue: None,
            owner_id: None,
            tags: vec![],
            execution_id: None,
            scheduled_time: None,
            started_at: None,
            completed_at: None,
            error_message: None,
            explanation,
            since: None,
            occurrences: None,
            url: None,
            command: None,
            alert_id: None,
            ack_url: None,
        }
    }

    pub fn subject(&self) -> EventSubject<'_> {
        let job = || {
            self.job_id?;
            Some(SelectedJob {
                name: &self.name,
                owner: self.owner_id.as_deref()?,
                queue: self.queue.as_deref()?,
                job_type: self.job_type.as_deref()?,
                tags: &self.tags,
            })
        };
        match (job(), &self.queue) {
            (Some(job), _) => EventSubject::Job(job),
            (None, Some(queue)) => EventSubject::Queue(queue),
            (None, None) => EventSubject::Other,
        }
    }

    fn headline(&self) -> String {
        format!("{} {}", self.name, self.kind.phrase())
    }
}

/// A message for one channel.
#[derive(Debug, Clone)]
pub struct OutgoingMessage {
    /// The same each time that the message is sent.
    pub id: String,
    /// When this attempt is made, by the clock of the machine: receivers compare it with theirs.
    pub sent_at: Timestamp,
    /// With plain values in place of secrets.
    pub channel: Channel,
    /// Whether the operator has configured the channel, so that it may call private addresses.
    pub is_trusted: bool,
    /// Names the alert at services that join messages about one problem.
    pub dedup_key: String,
    pub events: Vec<NotificationEvent>,
    /// How many events there are; the list may have fewer.
    pub count: u64,
    /// The last lines of the log of the first event, if the channel includes them.
    pub logs: Vec<String>,
}

impl OutgoingMessage {
    pub fn kind(&self) -> EventKind {
        self.events.first().map_or(EventKind::Test, |event| event.kind)
    }
}

/// One line about all events.
pub fn default_title(events: &[NotificationEvent], count: u64) -> String {
    match events {
        [] => "Punctual".to_owned(),
        [only] if count <= 1 => only.headline(),
        [first, ..] => {
            let is_same = events.iter().all(|event| event.kind == first.kind);
            let what = if is_same { first.kind.phrase() } else { "and others" };
            format!("{count} events: {} {what}, and more", first.name)
        }
    }
}

/// The text for people: what happened, since when, why, and what helps.
pub fn default_text(message: &OutgoingMessage) -> String {
    let mut text = default_title(&message.events, message.count);
    let is_single = message.count <= 1;
    for event in &message.events {
        if is_single {
            let _ = write!(text, "\n{}", event.explanation);
            if let Some(since) = event.since {
                let _ = write!(text, "\nSince: {since}");
            }
            if let Some(at) = event.scheduled_time {
                let _ = write!(text, "\nScheduled: {at}");
            }
            if let Some(execution) = event.execution_id {
                let _ = write!(text, "\nExecution: {execution}");
            }
        } else {
            let _ = write!(text, "\n- {}: {}", event.headline(), event.explanation);
        }
    }
    if message.count > message.events.len() as u64 {
        let _ = write!(text, "\n… and {} more", message.count - message.events.len() as u64);
    }
    if !message.logs.is_empty() {
        let _ = write!(text, "\nLog:\n{}", message.logs.join("\n"));
    }
    let first = message.events.first();
    if let Some(command) = first.and_then(|event| event.command.as_ref()) {
        let _ = write!(text, "\nTry: {command}");
    }
    if let Some(url) = first.and_then(|event| event.url.as_ref()) {
        let _ = write!(text, "\n{url}");
    }
    if let Some(url) = first.and_then(|event| event.ack_url.as_ref()).filter(|_| is_single) {
        let _ = write!(text, "\nAcknowledge: {url}");
    }
    text
}
