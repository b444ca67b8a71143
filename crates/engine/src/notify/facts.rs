//! What notifications need to know about jobs, and the sentences about their events.

use super::NotificationConfig;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::Job;
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::notify::{EventKind, NotificationEvent, NotifySettings, SelectedJob};
use punctual_core::occurrence::Finished;
use punctual_core::ports::{Store, StoreError};
use punctual_core::schedule::{Schedule, SkipReason};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A job, as far as notifications depend on it.
#[derive(Debug, Clone)]
pub(crate) struct JobFacts {
    pub id: JobId,
    pub version: u32,
    pub name: String,
    pub owner: String,
    pub queue: String,
    pub job_type: String,
    pub tags: Vec<String>,
    pub notify: NotifySettings,
    pub is_recurring: bool,
    /// It starts when it is submitted.
    pub is_immediate: bool,
    pub max_retries: u32,
    /// The rules that select it, by their place.
    pub rules: Arc<[usize]>,
}

/// Facts about jobs that were read lately.
#[derive(Debug, Default)]
pub(crate) struct KnownJobs(BTreeMap<JobId, JobFacts>);

impl KnownJobs {
    /// The facts about a job with this version. A job that is gone has none.
    pub async fn facts(
        &mut self,
        store: &dyn Store,
        id: JobId,
        version: u32,
    ) -> Result<Option<JobFacts>, StoreError> {
        if let Some(facts) = self.0.get(&id).filter(|facts| facts.version >= version) {
            return Ok(Some(facts.clone()));
        }
        let Some(view) = store.job(id).await? else { return Ok(None) };
        let facts = JobFacts::of(&view.job);
        self.remember(facts.clone());
        Ok(Some(facts))
    }

    fn remember(&mut self, facts: JobFacts) {
        self.0.insert(facts.id, facts);
        if self.0.len() > limits::NOTIFY_JOBS_HELD_MAX {
            self.0.pop_first();
        }
    }
}

impl JobFacts {
    pub fn of(job: &Job) -> Self {
        let spec = &job.spec;
        JobFacts {
            id: job.id,
            version: job.version,
            name: spec.name.clone(),
            owner: spec.owner.clone(),
            queue: spec.queue.clone(),
            job_type: spec.job_type.clone(),
            tags: spec.settings.tags.clone(),
            notify: spec.settings.notify.clone(),
            is_recurring: matches!(spec.settings.schedule, Schedule::Recurring(_)),
            is_immediate: matches!(spec.settings.schedule, Schedule::Immediate),
            max_retries: spec.settings.max_retries,
            rules: Arc::default(),
        }
    }

    pub fn selected(&self) -> SelectedJob<'_> {
        SelectedJob {
            name: &self.name,
            owner: &self.owner,
            queue: &self.queue,
            job_type: &self.job_type,
            tags: &self.tags,
        }
    }

    /// The name of its alert about an event. Failures of jobs that run once share the alert of their name.
    pub fn alert(&self, kind: EventKind) -> String {
        match kind {
            EventKind::Missed => format!("missed~{}", self.id),
            EventKind::Late => format!("late~{}", self.id),
            _ if self.is_recurring => format!("failed~{}", self.id),
            _ => format!("failed~{}~{}", self.owner, self.name),
        }
    }

    /// An event about this job.
    pub fn event(
        &self,
        config: &NotificationConfig,
        id: String,
        kind: EventKind,
        at: Timestamp,
        explanation: String,
    ) -> NotificationEvent {
        let command = match kind {
            EventKind::Failed if self.is_recurring => format!("punctual job logs {}", self.id),
            EventKind::Failed => format!("punctual job retry {}", self.id),
            _ => format!("punctual job explain {}", self.id),
        };
        NotificationEvent {
            job_id: Some(self.id),
            job_type: Some(self.job_type.clone()),
            queue: Some(self.queue.clone()),
            owner_id: Some(self.owner.clone()),
            tags: self.tags.clone(),
            url: config.page(&format!("jobs/{}", self.id)),
            command: (!kind.is_good()).then_some(command),
            ..NotificationEvent::new(id, kind, at, &self.name, explanation)
        }
    }

    /// An event about a finished execution of this job.
    pub fn finished_event(
        &self,
        config: &NotificationConfig,
        kind: EventKind,
        finished: &Finished,
        explanation: String,
    ) -> NotificationEvent {
        let id = format!("{}:{}", kind.word(), finished.id);
        NotificationEvent {
            execution_id: Some(finished.id),
            scheduled_time: Some(finished.scheduled_time),
            started_at: finished.started_at,
            completed_at: Some(finished.completed_at),
            error_message: finished.error.as_deref().map(cut_error),
            url: config.page(&format!("executions/{}", finished.id)),
            ..self.event(config, id, kind, finished.completed_at, explanation)
        }
    }
}

pub(crate) fn cut_error(error: &str) -> String {
    let mut end = error.len().min(limits::EVENT_ERROR_BYTES_MAX);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    if end == error.len() { error.to_owned() } else { format!("{}…", &error[..end]) }
}

/// Why an execution that ended finally counts as a failure.
pub(super) fn of_failure(finished: &Finished) -> String {
    let attempt = finished.id.attempt;
    let attempts =
        if attempt == 1 { "The only attempt".to_owned() } else { format!("The last of {attempt} attempts") };
    let ended = match finished.status {
        Status::TimedOut => "timed out",
        Status::Lost => "was lost with its worker",
        _ => "failed",
    };
    let error = finished.error.as_deref().map(cut_error).unwrap_or_default();
    let first_line = error.lines().next().unwrap_or_default();
    if first_line.is_empty() {
        format!("{attempts} {ended}.")
    } else {
        format!("{attempts} {ended}: {first_line}")
    }
}

/// Why an execution that never started ended.
pub(super) fn of_unstarted(finished: &Finished) -> String {
    match (finished.status, finished.reason) {
        (Status::Expired, _) => "It expired before it could start.".to_owned(),
        (_, Some(reason)) => skipped(reason).to_owned(),
        _ => "It was skipped.".to_owned(),
    }
}

pub(super) fn skipped(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Overlap => "It was skipped, because an earlier run was still open (overlap_policy SKIP).",
        SkipReason::Misfire => "It was missed: no scheduler was running at that time.",
        SkipReason::Paused => "It was skipped, because the job was paused.",
        SkipReason::Calendar => "It was excluded by a calendar.",
        SkipReason::Dependency => "It was skipped, because a job that it depends on failed.",
        SkipReason::Requested => "It was skipped, because somebody asked for that.",
        SkipReason::Backlog => "It was skipped, because too many runs of the job were open (max_open).",
    }
}

pub(super) fn span_text(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

/// The execution after this one, if the occurrence is retried.
pub(crate) fn next_attempt(id: ExecutionId) -> ExecutionId {
    id.occurrence.attempt(id.attempt + 1)
}
