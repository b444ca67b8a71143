//! Turns the server's advice into commands.

use crate::output::quoted;
use punctual_client::{Advice, AdvisedAction};

/// The commands, each on its own line, to follow the server's message. Empty without advice, or if this
/// version knows none of the advised actions.
pub fn lines(advice: &[Advice]) -> String {
    advice.iter().filter_map(told).map(|told| format!("\n  → {told}")).collect()
}

fn told(advice: &Advice) -> Option<String> {
    let on_job = |verb: &str| advice.job_id.map(|id| format!("`punctual job {verb} {id}`"));
    let queue = || advice.queue.as_deref().map(quoted);
    match advice.action {
        AdvisedAction::ResumeJob => on_job("resume"),
        AdvisedAction::RetryJob => on_job("retry"),
        AdvisedAction::TriggerJob if advice.despite_overlap => on_job("trigger --override"),
        AdvisedAction::TriggerJob => on_job("trigger"),
        AdvisedAction::CancelJob => on_job("cancel"),
        AdvisedAction::WaitForJob => on_job("wait"),
        AdvisedAction::ResumeQueue => Some(format!("`punctual queue resume {}`", queue()?)),
        AdvisedAction::ResumeWorker => {
            Some(format!("`punctual workers resume {}`", quoted(advice.worker_id.as_deref()?)))
        }
        AdvisedAction::SetQueue => Some(format!("`punctual queue set {} --max-depth N`", queue()?)),
        AdvisedAction::RedriveDeadLetter => Some(format!("`punctual dlq redrive {}`", advice.occurrence_id?)),
        AdvisedAction::ChangeVersion => Some(format!("repeat with --if-version {}", advice.version?)),
        AdvisedAction::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ids::JobId;
    use punctual_core::time::Timestamp;

    #[test]
    fn every_action_that_is_known_has_its_command() {
        let id = JobId::new(Timestamp::EPOCH, 1);
        let all = [
            Advice::resume_job(id),
            Advice::retry_job(id),
            Advice::trigger_job(id),
            Advice::trigger_job_despite_overlap(id),
            Advice::cancel_job(id),
            Advice::wait_for_job(id),
            Advice::resume_queue("night mail"),
            Advice::resume_worker("w1"),
            Advice::set_queue("mail"),
            Advice::redrive(id.occurrence(2)),
            Advice::change_version(3),
        ];
        for action in AdvisedAction::KNOWN {
            assert!(all.iter().any(|advice| advice.action == action), "{action:?} is not tried");
        }
        insta::assert_snapshot!(lines(&all).replace(&id.to_string(), "[job]"));
        let later: Advice = serde_json::from_str(r#"{"action": "water_plants"}"#).unwrap();
        assert_eq!(lines(&[later]), "");
    }
}
