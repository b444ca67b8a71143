//! What is stored about messages and alerts.

use super::{EventKind, NotificationEvent};
use crate::access::words;
use crate::limits;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

words! {
    /// Where a delivery stands.
    DeliveryState ("state of a delivery") {
        Pending = "pending",
        Sent = "sent",
        /// Given up.
        Failed = "failed",
    }
}

/// A message to one channel, stored before it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    pub channel: String,
    /// The recipient, in place of those of the channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    pub state: DeliveryState,
    /// Events with the same group join a delivery that has not been sent yet.
    pub group: String,
    pub events: Vec<NotificationEvent>,
    /// How many events there were; only the first are listed.
    pub count: u64,
    pub created_at: Timestamp,
    /// When it is tried next.
    pub due_at: Timestamp,
    /// It is not sent while one of these calendars excludes the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<String>,
    #[serde(default)]
    pub attempts: u32,
    /// Attempts since the last one that had an outcome. An attempt is counted before it begins.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_attempt_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// The delivery that it repeats by request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<String>,
}

/// Events with the same key join one delivery that has not been tried yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeliveryKey {
    pub channel: String,
    pub to: Option<String>,
    pub group: String,
    pub kind: EventKind,
    pub held_by: Vec<String>,
}

impl DeliveryKey {
    /// The same for all groups.
    pub fn of_target(&self) -> DeliveryKey {
        DeliveryKey { group: String::new(), ..self.clone() }
    }
}

impl Delivery {
    /// A delivery of these events that is due at once.
    pub fn new(key: DeliveryKey, events: Vec<NotificationEvent>, count: u64, now: Timestamp) -> Self {
        let DeliveryKey { channel, to, group, kind: _, held_by } = key;
        Delivery {
            channel,
            to,
            state: DeliveryState::Pending,
            group,
            events,
            count,
            created_at: now,
            due_at: now,
            held_by,
            attempts: 0,
            unfinished: 0,
            first_attempt_at: None,
            last_attempt_at: None,
            last_error: None,
            finished_at: None,
            replay_of: None,
        }
    }

    pub fn kind(&self) -> EventKind {
        self.events.first().map_or(EventKind::Test, |event| event.kind)
    }

    pub fn key(&self) -> DeliveryKey {
        DeliveryKey {
            channel: self.channel.clone(),
            to: self.to.clone(),
            group: self.group.clone(),
            kind: self.kind(),
            held_by: self.held_by.clone(),
        }
    }

    /// For how long it has been tried.
    pub fn tried_for(&self, now: Timestamp) -> Duration {
        match (self.attempts, self.first_attempt_at) {
            (0, _) => Duration::ZERO,
            (_, first) => now.since(first.unwrap_or(self.created_at)),
        }
    }

    pub fn add(&mut self, event: NotificationEvent) {
        self.count += 1;
        if self.events.len() < limits::DELIVERY_EVENTS_MAX {
            self.events.push(event);
        }
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The pause before the next attempt of a delivery, after this many; `None` if it is given up.
pub fn retry_after(attempts: u32, age: Duration) -> Option<Duration> {
    if age >= limits::DELIVERY_TRIED_FOR {
        return None;
    }
    let factor = 2_u32.saturating_pow(attempts.saturating_sub(1).min(20));
    Some(limits::DELIVERY_RETRY_MIN.saturating_mul(factor).min(limits::DELIVERY_RETRY_MAX))
}

/// The id of a delivery. Later ones are first in the order of bytes.
pub fn delivery_id(at: Timestamp, entropy: u64) -> String {
    let micros = u64::try_from(at.as_micros()).unwrap_or(0);
    format!("{:016x}{:08x}", u64::MAX - micros, entropy as u32)
}

/// When the delivery with this id was made.
pub fn delivery_time(id: &str) -> Option<Timestamp> {
    let inverted = u64::from_str_radix(id.get(..16)?, 16).ok()?;
    Some(Timestamp::from_micros(i64::try_from(u64::MAX - inverted).ok()?))
}

/// A condition that holds: a job that fails or does not run, or a rule about a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    pub kind: EventKind,
    pub since: Timestamp,
    /// How often the condition was found: failures in a row, or missed occurrences.
    pub count: u64,
    /// The channels that were notified, and when; none while the condition is below the threshold of every rule.
    #[serde(default)]
    pub channels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notified_at: Option<Timestamp>,
    /// The latest event.
    pub event: NotificationEvent,
    /// Successes since the last failure or missed run.
    #[serde(default)]
    pub successes: u32,
    /// Channels that are notified at a time, unless the alert is acknowledged before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalations: Vec<PlannedEscalation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledgement>,
    /// The rule whose condition it is, if it is not about a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

impl Alert {
    /// A condition that was not notified yet.
    pub fn pending(event: NotificationEvent) -> Self {
        Alert {
            kind: event.kind,
            since: event.since.unwrap_or(event.at),
            count: 0,
            channels: vec![],
            notified_at: None,
            event,
            successes: 0,
            escalations: vec![],
            acknowledged: None,
            rule: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedEscalation {
    pub at: Timestamp,
    pub to: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {
    pub by: String,
    pub at: Timestamp,
}
