//! Which events go to which channels: the `notify` of a job, rules, and silences.

use super::EventKind;
use crate::access::{NamePattern, is_any, problem_of, words};
use crate::job::{InvalidField, JobSpec};
use crate::limits;
use crate::names::path_name_problem;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// In place of a channel: the preferred channel of each user who is the owner of the job.
pub const OWNER_CHANNEL: &str = "owner";

/// The channels that a job names for its own events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NotifySettings {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_failure: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_missed: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_late: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_recovery: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_success: Vec<String>,
}

impl NotifySettings {
    pub fn lists(&self) -> [(&'static str, &Vec<String>); 5] {
        [
            ("on_failure", &self.on_failure),
            ("on_missed", &self.on_missed),
            ("on_late", &self.on_late),
            ("on_recovery", &self.on_recovery),
            ("on_success", &self.on_success),
        ]
    }

    pub fn is_empty(&self) -> bool {
        self.lists().iter().all(|(_, channels)| channels.is_empty())
    }

    /// The channels for an event.
    pub fn channels(&self, kind: EventKind) -> &[String] {
        match kind {
            EventKind::Failed => &self.on_failure,
            EventKind::Missed => &self.on_missed,
            EventKind::Late => &self.on_late,
            EventKind::Recovered => &self.on_recovery,
            EventKind::Succeeded => &self.on_success,
            EventKind::RunningLong
            | EventKind::DeadLetters
            | EventKind::QueueOld
            | EventKind::LimitFull
            | EventKind::WorkerLost
            | EventKind::NodeNotReady
            | EventKind::Resolved
            | EventKind::Test => &[],
        }
    }

    pub fn problems(&self) -> Vec<InvalidField> {
        let problem = |(field, channels): (&str, &Vec<String>)| {
            let too_many = channels.len() > limits::CHANNELS_PER_EVENT_MAX;
            let fix = if too_many {
                Some(format!("must be at most {} channels", limits::CHANNELS_PER_EVENT_MAX))
            } else {
                channels.iter().find_map(|channel| path_name_problem(channel))
            };
            Some(InvalidField::new(format!("notify.{field}"), fix?))
        };
        self.lists().into_iter().filter_map(problem).collect()
    }
}

words! {
    /// An event that rules select.
    RuleEvent ("event of rules") {
        Failed = "failed",
        Recovered = "recovered",
        Succeeded = "succeeded",
        Missed = "missed",
        Late = "late",
        RunningLong = "running_long",
        DeadLetters = "dead_letters",
        QueueOld = "queue_old",
        LimitFull = "limit_full",
        WorkerLost = "worker_lost",
        NodeNotReady = "node_not_ready",
    }
}

impl RuleEvent {
    pub fn of(kind: EventKind) -> Option<Self> {
        match kind {
            EventKind::Failed => Some(RuleEvent::Failed),
            EventKind::Recovered => Some(RuleEvent::Recovered),
            EventKind::Succeeded => Some(RuleEvent::Succeeded),
            EventKind::Missed => Some(RuleEvent::Missed),
            EventKind::Late => Some(RuleEvent::Late),
            EventKind::RunningLong => Some(RuleEvent::RunningLong),
            EventKind::DeadLetters => Some(RuleEvent::DeadLetters),
            EventKind::QueueOld => Some(RuleEvent::QueueOld),
            EventKind::LimitFull => Some(RuleEvent::LimitFull),
            EventKind::WorkerLost => Some(RuleEvent::WorkerLost),
            EventKind::NodeNotReady => Some(RuleEvent::NodeNotReady),
            EventKind::Resolved | EventKind::Test => None,
        }
    }

    /// Whether it is about one job, so that the job has an owner.
    pub fn is_of_job(self) -> bool {
        match self {
            RuleEvent::Failed
            | RuleEvent::Recovered
            | RuleEvent::Succeeded
            | RuleEvent::Missed
            | RuleEvent::Late
            | RuleEvent::RunningLong => true,
            RuleEvent::DeadLetters
            | RuleEvent::QueueOld
            | RuleEvent::LimitFull
            | RuleEvent::WorkerLost
            | RuleEvent::NodeNotReady => false,
        }
    }
}

/// The facts about a job by which it is selected.
#[derive(Debug, Clone, Copy)]
pub struct SelectedJob<'a> {
    pub name: &'a str,
    pub owner: &'a str,
    pub queue: &'a str,
    pub job_type: &'a str,
    pub tags: &'a [String],
}

impl<'a> SelectedJob<'a> {
    pub fn of(spec: &'a JobSpec) -> Self {
        SelectedJob {
            name: &spec.name,
            owner: &spec.owner,
            queue: &spec.queue,
            job_type: &spec.job_type,
            tags: &spec.settings.tags,
        }
    }
}

/// What an event is about, as silences select it.
#[derive(Debug, Clone, Copy)]
pub enum EventSubject<'a> {
    Job(SelectedJob<'a>),
    Queue(&'a str),
    /// A worker, a node, or all queues.
    Other,
}

/// Selects jobs: each list that is not empty must have a pattern that matches. Without lists, all jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobSelector {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<NamePattern>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<NamePattern>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<NamePattern>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub job_types: Vec<NamePattern>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<NamePattern>,
}

impl JobSelector {
    pub fn matches(&self, job: SelectedJob<'_>) -> bool {
        let has_tag =
            self.tags.is_empty() || job.tags.iter().any(|tag| self.tags.iter().any(|one| one.matches(tag)));
        has_tag
            && is_any(&self.queues, job.queue)
            && is_any(&self.owners, job.owner)
            && is_any(&self.job_types, job.job_type)
            && is_any(&self.names, job.name)
    }

    pub fn matches_queue(&self, queue: &str) -> bool {
        is_any(&self.queues, queue)
    }

    /// Whether it selects everything in a queue, and not only some of its jobs.
    pub fn has_whole_queue(&self, queue: &str) -> bool {
        let others = [&self.tags, &self.owners, &self.job_types, &self.names];
        others.iter().all(|patterns| patterns.is_empty()) && self.matches_queue(queue)
    }

    pub fn is_everything(&self) -> bool {
        *self == JobSelector::default()
    }

    pub fn problems(&self, within: &str) -> Vec<InvalidField> {
        let lists = [
            ("tags", &self.tags),
            ("queues", &self.queues),
            ("owners", &self.owners),
            ("job_types", &self.job_types),
            ("names", &self.names),
        ];
        let problem = |(field, patterns): (&str, &Vec<NamePattern>)| {
            Some(InvalidField::new(format!("{within}{field}"), problem_of(patterns)?))
        };
        lists.into_iter().filter_map(problem).collect()
    }
}

words! {
    /// What happens to messages that a mute holds back.
    MutedThen ("choice for muted messages") {
        /// They are sent when the mute ends.
        Send = "send",
        Drop = "drop",
    }
}

/// Times at which messages are not sent: while one of the calendars excludes the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mute {
    pub calendars: Vec<String>,
    pub then: MutedThen,
}

impl Mute {
    pub fn problems(&self) -> Vec<InvalidField> {
        let mut problems = vec![];
        let most = limits::MUTE_CALENDARS_MAX;
        if self.calendars.is_empty() || self.calendars.len() > most {
            let fix = format!("must name 1 to {most} calendars");
            problems.push(InvalidField::new("mute.calendars", fix));
        }
        problems
    }
}

/// A channel that is notified if an alert has not been acknowledged after this time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalation {
    pub after_ms: u64,
    pub to: String,
}

/// Sends events of the selected jobs to channels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationRule {
    pub events: Vec<RuleEvent>,
    pub channels: Vec<String>,
    #[serde(default)]
    pub jobs: JobSelector,
    /// How many failures in a row it takes.
    #[serde(default = "one")]
    pub failures: u32,
    /// How many successes in a row end an alert about failures or missed runs.
    #[serde(default = "one")]
    pub successes: u32,
    #[serde(default)]
    pub late_by_ms: Option<u64>,
    #[serde(default)]
    pub longer_than_ms: Option<u64>,
    /// Percent of the 95th percentile of recent runs.
    #[serde(default)]
    pub longer_than_usual_percent: Option<u32>,
    #[serde(default)]
    pub dead_letters_above: Option<u64>,
    #[serde(default)]
    pub queue_older_than_ms: Option<u64>,
    #[serde(default)]
    pub limit_full_for_ms: Option<u64>,
    #[serde(default)]
    pub ready_nodes_below: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mute: Option<Mute>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalate: Option<Escalation>,
    #[serde(default)]
    pub disabled: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

fn one() -> u32 {
    1
}

impl NotificationRule {
    pub fn has(&self, event: RuleEvent) -> bool {
        !self.disabled && self.events.contains(&event)
    }

    pub fn late_by(&self) -> Duration {
        self.late_by_ms.map_or(limits::NOTIFY_LATE_DEFAULT, Duration::from_millis)
    }

    pub fn problems(&self, name: &str) -> Vec<InvalidField> {
        let mut problems: Vec<InvalidField> =
            path_name_problem(name).into_iter().map(|fix| InvalidField::new("name", fix)).collect();
        let mut refuse = |field: &str, fix: &str| problems.push(InvalidField::new(field, fix));
        if self.events.is_empty() {
            let words: Vec<&str> = RuleEvent::ALL.iter().map(|event| event.word()).collect();
            refuse("events", &format!("must name at least one of {}", words.join(", ")));
        }
        if self.channels.is_empty() {
            refuse("channels", "must name at least one channel");
        }
        if self.channels.len() > limits::CHANNELS_PER_EVENT_MAX {
            refuse("channels", &format!("must be at most {}", limits::CHANNELS_PER_EVENT_MAX));
        }
        if self.failures == 0 || self.failures > limits::RULE_FAILURES_MAX {
            refuse("failures", &format!("must be from 1 to {}", limits::RULE_FAILURES_MAX));
        }
        if self.successes == 0 || self.successes > limits::RULE_FAILURES_MAX {
            refuse("successes", &format!("must be from 1 to {}", limits::RULE_FAILURES_MAX));
        }
        let has_long = self.longer_than_ms.is_some() || self.longer_than_usual_percent.is_some();
        let needs = [
            (RuleEvent::RunningLong, "longer_than", "or longer_than_usual_percent ", has_long),
            (RuleEvent::DeadLetters, "dead_letters_above", "", self.dead_letters_above.is_some()),
            (RuleEvent::QueueOld, "queue_older_than", "", self.queue_older_than_ms.is_some()),
            (RuleEvent::LimitFull, "limit_full_for", "", self.limit_full_for_ms.is_some()),
        ];
        for (event, field, other, is_given) in needs {
            if self.events.contains(&event) && !is_given {
                refuse(field, &format!("{other}is needed for the event {event}"));
            }
        }
        let percents = limits::RULE_USUAL_PERCENT_MIN..=limits::RULE_USUAL_PERCENT_MAX;
        if self.longer_than_usual_percent.is_some_and(|percent| !percents.contains(&percent)) {
            let (least, most) = (percents.start(), percents.end());
            refuse("longer_than_usual_percent", &format!("must be from {least} to {most}"));
        }
        if self.dead_letters_above.is_some_and(|above| above > limits::RULE_DEAD_LETTERS_MAX) {
            refuse("dead_letters_above", &format!("must be at most {}", limits::RULE_DEAD_LETTERS_MAX));
        }
        if self.ready_nodes_below == Some(0) {
            refuse("ready_nodes_below", "must be at least 1");
        }
        let is_owner = |channel: &String| channel == OWNER_CHANNEL;
        if self.channels.iter().any(is_owner) && !self.events.iter().any(|event| event.is_of_job()) {
            refuse("channels", "must not be owner: none of the events is about a job, so there is no owner");
        }
        if let Some(escalate) = &self.escalate {
            if escalate.after_ms == 0 {
                refuse("escalate.after", "must be longer than 0s, such as 15m");
            }
            if is_owner(&escalate.to) {
                refuse("escalate.to", "must be the name of a channel, not owner");
            }
        }
        problems.extend(self.mute.iter().flat_map(Mute::problems));
        problems.extend(self.jobs.problems("match."));
        problems
    }
}

/// Suppresses notifications about the selected jobs, and about queues that it selects completely, for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    #[serde(default)]
    pub jobs: JobSelector,
    pub starts_at: Timestamp,
    pub ends_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub created_by: String,
    pub created_at: Timestamp,
}

impl Silence {
    /// What is wrong with a new silence.
    pub fn problems(&self) -> Vec<InvalidField> {
        let Silence { jobs, starts_at, ends_at, reason, created_by: _, created_at: now } = self;
        let mut problems = jobs.problems("match.");
        if ends_at <= now || ends_at <= starts_at {
            problems.push(InvalidField::new("ends_at", "must be in the future, and after starts_at"));
        }
        if ends_at.since(*now) > limits::SILENCE_MAX {
            problems.push(InvalidField::new("ends_at", "must be within a year"));
        }
        let max = limits::NAME_BYTES_MAX;
        if reason.as_ref().is_some_and(|reason| reason.len() > max) {
            problems.push(InvalidField::new("reason", format!("must be at most {max} bytes")));
        }
        problems
    }

    pub fn is_active(&self, now: Timestamp) -> bool {
        self.starts_at <= now && now < self.ends_at
    }

    pub fn covers(&self, subject: EventSubject<'_>) -> bool {
        match subject {
            EventSubject::Job(job) => self.jobs.matches(job),
            EventSubject::Queue(queue) => self.jobs.has_whole_queue(queue),
            EventSubject::Other => self.jobs.is_everything(),
        }
    }
}
