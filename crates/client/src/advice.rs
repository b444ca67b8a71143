//! Advice as data: the sentences next to it are for people, and each program presents the actions in its own
//! way.

use crate::wire::wire;
use punctual_core::ids::{JobId, OccurrenceId};
use serde::{Deserialize, Serialize};

wire! {
    /// An action that may help, for programs. The other members say what it applies to; those that do not
    /// belong to the action are omitted.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Advice as "Advice" {
        /// What to do. Later versions may add actions: ignore those you do not know.
        pub action: AdvisedAction = one_of(&AdvisedAction::KNOWN.map(AdvisedAction::as_str)),
        /// For `*_job`: the job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub job_id: Option<JobId>,
        /// For `*_queue`: the queue.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub queue: Option<String>,
        /// For `resume_worker`: the worker's name, or its session id if other sessions have the same name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub worker_id: Option<String>,
        /// For `redrive_dead_letter`: its occurrence.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub occurrence_id: Option<OccurrenceId>,
        /// For `trigger_job`: run beside open occurrences, whatever the overlap policy.
        #[serde(rename = "override", default, skip_serializing_if = "std::ops::Not::not")]
        pub despite_overlap: bool,
        /// For `change_version`: the version to name in `If-Match`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub version: Option<u32> = whole(1..=u32::MAX.into()),
    }
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdvisedAction {
    ResumeJob,
    RetryJob,
    TriggerJob,
    CancelJob,
    WaitForJob,
    ResumeQueue,
    ResumeWorker,
    SetQueue,
    RedriveDeadLetter,
    ChangeVersion,
    /// An action that a later version of the server has added.
    #[serde(other)]
    Unknown,
}

impl AdvisedAction {
    /// All actions of this version.
    pub const KNOWN: [AdvisedAction; 10] = [
        AdvisedAction::ResumeJob,
        AdvisedAction::RetryJob,
        AdvisedAction::TriggerJob,
        AdvisedAction::CancelJob,
        AdvisedAction::WaitForJob,
        AdvisedAction::ResumeQueue,
        AdvisedAction::ResumeWorker,
        AdvisedAction::SetQueue,
        AdvisedAction::RedriveDeadLetter,
        AdvisedAction::ChangeVersion,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            AdvisedAction::ResumeJob => "resume_job",
            AdvisedAction::RetryJob => "retry_job",
            AdvisedAction::TriggerJob => "trigger_job",
            AdvisedAction::CancelJob => "cancel_job",
            AdvisedAction::WaitForJob => "wait_for_job",
            AdvisedAction::ResumeQueue => "resume_queue",
            AdvisedAction::ResumeWorker => "resume_worker",
            AdvisedAction::SetQueue => "set_queue",
            AdvisedAction::RedriveDeadLetter => "redrive_dead_letter",
            AdvisedAction::ChangeVersion => "change_version",
            AdvisedAction::Unknown => "unknown",
        }
    }
}

impl Advice {
    const fn bare(action: AdvisedAction) -> Self {
        Advice {
            action,
            job_id: None,
            queue: None,
            worker_id: None,
            occurrence_id: None,
            despite_overlap: false,
            version: None,
        }
    }

    fn on_job(action: AdvisedAction, job: JobId) -> Self {
        Advice { job_id: Some(job), ..Advice::bare(action) }
    }

    pub fn resume_job(job: JobId) -> Self {
        Advice::on_job(AdvisedAction::ResumeJob, job)
    }

    /// Gives the latest dead occurrence of the job another attempt.
    pub fn retry_job(job: JobId) -> Self {
        Advice::on_job(AdvisedAction::RetryJob, job)
    }

    pub fn trigger_job(job: JobId) -> Self {
        Advice::on_job(AdvisedAction::TriggerJob, job)
    }

    /// Triggers it in addition to open executions.
    pub fn trigger_job_despite_overlap(job: JobId) -> Self {
        Advice { despite_overlap: true, ..Advice::trigger_job(job) }
    }

    pub fn cancel_job(job: JobId) -> Self {
        Advice::on_job(AdvisedAction::CancelJob, job)
    }

    pub fn wait_for_job(job: JobId) -> Self {
        Advice::on_job(AdvisedAction::WaitForJob, job)
    }

    pub fn resume_queue(queue: impl Into<String>) -> Self {
        Advice { queue: Some(queue.into()), ..Advice::bare(AdvisedAction::ResumeQueue) }
    }

    pub fn resume_worker(worker: impl Into<String>) -> Self {
        Advice { worker_id: Some(worker.into()), ..Advice::bare(AdvisedAction::ResumeWorker) }
    }

    /// Changes the limits of the queue.
    pub fn set_queue(queue: impl Into<String>) -> Self {
        Advice { queue: Some(queue.into()), ..Advice::bare(AdvisedAction::SetQueue) }
    }

    pub fn redrive(occurrence: OccurrenceId) -> Self {
        Advice { occurrence_id: Some(occurrence), ..Advice::bare(AdvisedAction::RedriveDeadLetter) }
    }

    pub fn change_version(version: u32) -> Self {
        Advice { version: Some(version), ..Advice::bare(AdvisedAction::ChangeVersion) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_written_as_they_are_called() {
        for action in AdvisedAction::KNOWN {
            assert_eq!(serde_json::to_string(&action).unwrap(), format!("\"{}\"", action.as_str()));
        }
    }

    #[test]
    fn advice_of_a_later_version_is_taken_and_not_known() {
        let advice: Advice = serde_json::from_str(r#"{"action": "water_plants", "plant": 3}"#).unwrap();
        assert_eq!(advice, Advice::bare(AdvisedAction::Unknown));
        assert_eq!(
            serde_json::to_string(&Advice::resume_queue("mail")).unwrap(),
            r#"{"action":"resume_queue","queue":"mail"}"#
        );
    }
}
