//! Queues with a limit: a submit that would join one at once is refused if it is full and only then. Nothing else is
//! ever refused for that: the other models demand that it happens.

use super::{Auditor, Verdict, Violation, rule};
use punctual_core::job::JobSpec;
use punctual_core::ports::{QueueRow, SubmitOutcome};
use punctual_core::queue::{QueueFull, QueueSettings};
use punctual_core::schedule::Schedule;

impl Auditor {
    pub fn queue_set(&mut self, queue: &str, settings: QueueSettings) -> Verdict {
        match settings.max_depth {
            Some(max_depth) => {
                self.depth_limits.insert(queue.to_owned(), max_depth);
                self.count("queues limited");
            }
            None => {
                self.depth_limits.remove(queue);
                self.count("limits of queues taken away");
            }
        }
        Ok(())
    }

    /// Why a new job is not kept, if the queue that it would join now is full.
    pub(super) fn depth_refusal(&mut self, spec: &JobSpec) -> Result<Option<SubmitOutcome>, Violation> {
        let Some(max_depth) = self.depth_limits.get(&spec.queue).copied() else { return Ok(None) };
        let joins_now = match &spec.settings.schedule {
            Schedule::Immediate => true,
            Schedule::OneTime { at } => *at <= self.at,
            Schedule::Recurring(_) => false,
        };
        let depth = self.unstarted_in(&spec.queue);
        if !joins_now || depth < max_depth {
            self.count("submits to a queue with room");
            return Ok(None);
        }
        self.count("submits refused by a full queue");
        let full = QueueFull { depth, max_depth };
        self.refusals.insert((spec.queue.clone(), depth, max_depth));
        Ok(Some(SubmitOutcome::QueueFull { queue: spec.queue.clone(), full }))
    }

    /// Executions of a queue that have not started.
    fn unstarted_in(&self, queue: &str) -> u64 {
        let of_queue = self.jobs.values().filter(|job| job.spec().queue == queue);
        let unstarted = of_queue
            .map(|job| job.open.iter().filter(|number| !job.occurrences[number].is_running()).count() as u64);
        unstarted.sum()
    }

    /// A client was told that a queue is full.
    pub fn told_full(&mut self, queue: &str, full: QueueFull) -> Verdict {
        rule!(
            self.refusals.contains(&(queue.to_owned(), full.depth, full.max_depth)),
            "a client is refused only what the store has refused",
            "queue {queue}: {full:?} is none of {:?}",
            self.refusals
        );
        Ok(())
    }

    pub(super) fn compare_queues(&self, rows: &[QueueRow]) -> Verdict {
        let got: Vec<_> =
            rows.iter().map(|row| (&row.queue, row.paused_at.is_some(), row.settings.max_depth)).collect();
        let names = self.paused_queues.iter().chain(self.depth_limits.keys());
        let names: std::collections::BTreeSet<&String> = names.collect();
        let expected: Vec<_> = names
            .into_iter()
            .map(|name| (name, self.paused_queues.contains(name), self.depth_limits.get(name).copied()))
            .collect();
        rule!(got == expected, "queues are as they were left", "expected {expected:?}, got {got:?}");
        Ok(())
    }
}
