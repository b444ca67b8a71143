//! The handlers of the simulated jobs. A handler's behaviour is in its payload, so that every attempt on
//! every node behaves the same; the auditor observes each physical run.

use crate::auditor::{RunEnd, Saved};
use crate::world::World;
use punctual_core::notes::{Checkpoint, Percent, Progress};
use punctual_core::ports::{Assignment, ExecutionContext, Executor, NoteSink, Outcome, Task};
use punctual_core::retry::ChosenTime;
use std::sync::Arc;
use std::time::Duration;

/// The delay that handlers choose before they run again.
const CHOSEN_DELAY: Duration = Duration::from_secs(2);

/// The behaviour of a job's handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandlerBehaviour {
    /// Attempts that fail before one succeeds.
    pub failures: u32,
    pub failing: Failing,
    pub lasts_ms: u64,
    /// Checkpoints that it saves during a run, each with progress.
    pub notes: u32,
}

/// How an attempt fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// With a retryable error.
    Retryable,
    /// With a permanent error.
    ForGood,
    /// By never ending.
    Hanging,
}

impl HandlerBehaviour {
    /// The JSON payload of a job.
    pub fn payload(self) -> String {
        let failing = match self.failing {
            Failing::Retryable => 'r',
            Failing::ForGood => 'g',
            Failing::Hanging => 'h',
        };
        format!("\"{failing}:{}:{}:{}\"", self.failures, self.lasts_ms, self.notes)
    }

    fn read(payload: &str) -> Option<Self> {
        let mut parts = payload.trim_matches('"').split(':');
        let failing = match parts.next()? {
            "r" => Failing::Retryable,
            "g" => Failing::ForGood,
            "h" => Failing::Hanging,
            _ => return None,
        };
        let (failures, lasts_ms) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let notes = parts.next()?.parse().ok()?;
        Some(HandlerBehaviour { failures, failing, lasts_ms, notes })
    }
}

/// The handlers of one node.
pub struct Handlers {
    pub world: Arc<World>,
    pub node: usize,
    pub job_types: Vec<String>,
    pub slots: usize,
}

impl Executor for Handlers {
    fn job_types(&self) -> Vec<String> {
        self.job_types.clone()
    }

    fn execute(&self, context: ExecutionContext) -> Task<Outcome> {
        let (world, node) = (self.world.clone(), self.node);
        let ExecutionContext { assignment, notes, .. } = context;
        let slots = self.slots;
        world.audit(|auditor| auditor.run_decided(node, slots, &assignment));
        Box::pin(async move {
            let behaviour =
                HandlerBehaviour::read(&assignment.payload).expect("the workload wrote the payload");
            let attempt = assignment.execution.attempt;
            let executor = world.executor.clone();
            let mut run = HandlerRun::start(world, node, assignment);
            let fails = attempt <= behaviour.failures;
            let leg = Duration::from_millis(behaviour.lasts_ms) / (behaviour.notes + 1);
            for number in 1..=behaviour.notes {
                executor.sleep(leg).await;
                run.note(&*notes, number).await;
            }
            if fails && behaviour.failing == Failing::Hanging {
                std::future::pending::<()>().await;
            }
            executor.sleep(leg).await;
            if fails && attempt == 1 && behaviour.failures > 1 && behaviour.failing == Failing::Retryable {
                run.end = RunEnd::Snoozed;
                return Outcome::Snoozed { until: ChosenTime::After(CHOSEN_DELAY) };
            }
            if fails {
                run.end = RunEnd::Failed;
                let retryable = behaviour.failing == Failing::Retryable;
                // Some handlers of each kind choose when they run again.
                let retry_at = (attempt == 3).then_some(ChosenTime::After(CHOSEN_DELAY));
                return Outcome::Failed { error: format!("attempt {attempt} fails"), retryable, retry_at };
            }
            run.end = RunEnd::Succeeded;
            Outcome::Succeeded { result: Some(attempt.to_string()) }
        })
    }
}

/// One physical run; dropping it reports its end, whatever the reason.
struct HandlerRun {
    world: Arc<World>,
    node: usize,
    assignment: Assignment,
    end: RunEnd,
}

impl HandlerRun {
    fn start(world: Arc<World>, node: usize, assignment: Assignment) -> Self {
        let (execution, epoch) = (assignment.execution, assignment.epoch.0);
        world.note(format_args!("node {node} runs {execution} epoch {epoch}"));
        world.audit(|auditor| auditor.run_started(node, &assignment));
        HandlerRun { world, node, assignment, end: RunEnd::Dropped }
    }
}

impl HandlerRun {
    /// Reports progress and saves a checkpoint that no other run has saved.
    async fn note(&self, notes: &dyn NoteSink, number: u32) {
        let (execution, epoch) = (self.assignment.execution, self.assignment.epoch);
        let message = Some(format!("step {number}"));
        notes.progress(Progress { percent: Percent::new(f64::from(number)), message });
        let checkpoint =
            Checkpoint::new(format!("\"{execution} {} {number}\"", epoch.0)).expect("it is small");
        let saved = match notes.checkpoint(checkpoint.clone()).await {
            Ok(()) => Saved::Kept,
            Err(_) => Saved::Doubtful,
        };
        self.world.note(format_args!("node {} saved {checkpoint:?}: {saved:?}", self.node));
        self.world.audit(|auditor| auditor.checkpoint_answered(execution, epoch, &checkpoint, saved));
    }
}

impl Drop for HandlerRun {
    fn drop(&mut self) {
        let (execution, epoch, end) = (self.assignment.execution, self.assignment.epoch.0, self.end);
        self.world.note(format_args!("node {} ends {execution} epoch {epoch} {end:?}", self.node));
        self.world.audit(|auditor| auditor.run_ended(&self.assignment, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_parsed_as_it_was_written() {
        for failing in [Failing::Retryable, Failing::ForGood, Failing::Hanging] {
            let behaviour = HandlerBehaviour { failures: 3, failing, lasts_ms: 250, notes: 2 };
            assert_eq!(HandlerBehaviour::read(&behaviour.payload()), Some(behaviour));
        }
    }
}
