//! Queues with a size limit: a submit that would enter a full queue at once is rejected, and only then. Nothing else
//! may be rejected for that reason, because the other models require it to happen.

use super::{AuditResult, AuditViolation, Auditor, rule};
use punctual_core::job::JobSpec;
use punctual_core::ports::{QueueRow, SubmitOutcome};
use punctual_core::queue::{QueueFull, QueueSettings};
use punctual_core::schedule::Schedule;

impl Auditor {
    pub fn queue_set(&mut self, queue: &str, settings: QueueSettings) -> AuditResult {
        let limits = &settings.limits;
        let had = self.limits_of(queue).cloned().unwrap_or_default();
        let coverage = [
            (settings.max_depth.is_some(), "queues limited"),
            (settings.max_depth.is_none(), "limits of queues removed"),
            (limits.concurrency < had.concurrency && limits.concurrency.is_some(), "limits lowered"),
            (limits.concurrency > had.concurrency && had.concurrency.is_some(), "limits raised"),
            (limits.rate != had.rate && limits.rate.is_some() && had.rate.is_some(), "rates changed"),
            (!limits.hold_anything() && had.hold_anything(), "limits removed"),
        ];
        coverage.into_iter().filter(|(happens, _)| *happens).for_each(|(_, what)| self.count(what));
        self.limits_set(queue, &had, limits)?;
        if settings == QueueSettings::default() {
            self.queue_settings.remove(queue);
        } else {
            self.queue_settings.insert(queue.to_owned(), settings);
        }
        Ok(())
    }

    /// The settings of all queues that have any.
    pub fn queue_settings(&self) -> Vec<(String, QueueSettings)> {
        self.queue_settings.iter().map(|(queue, settings)| (queue.clone(), settings.clone())).collect()
    }

    /// Why a new job is rejected, if the queue that it would enter now is full.
    pub(super) fn depth_refusal(&mut self, spec: &JobSpec) -> Result<Option<SubmitOutcome>, AuditViolation> {
        let settings = self.queue_settings.get(&spec.queue);
        let Some(max_depth) = settings.and_then(|settings| settings.max_depth) else { return Ok(None) };
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

    /// A transaction found the queue full. Others may have changed that before its commit.
    pub(super) fn was_full(&mut self, spec: &JobSpec, queue: &str, full: QueueFull) -> AuditResult {
        rule!(
            queue == spec.queue && full.depth >= full.max_depth,
            "only a full queue rejects a submit",
            "a job for {} was rejected by {queue}: {full:?}",
            spec.queue
        );
        self.count("submits refused by a full queue");
        self.refusals.insert((queue.to_owned(), full.depth, full.max_depth));
        Ok(())
    }

    /// Executions of a queue that have not started.
    fn unstarted_in(&self, queue: &str) -> u64 {
        let of_queue = self.jobs.values().filter(|job| job.spec().queue == queue);
        let unstarted = of_queue
            .map(|job| job.open.iter().filter(|number| !job.occurrences[number].is_running()).count() as u64);
        unstarted.sum()
    }

    /// A client got the response that a queue is full.
    pub fn saw_full_queue(&mut self, queue: &str, full: QueueFull) -> AuditResult {
        rule!(
            self.refusals.contains(&(queue.to_owned(), full.depth, full.max_depth)),
            "a client sees only rejections that the store has made",
            "queue {queue}: {full:?} is none of {:?}",
            self.refusals
        );
        Ok(())
    }

    pub(super) fn compare_queues(&self, rows: &[QueueRow]) -> AuditResult {
        let got: Vec<_> = rows
            .iter()
            .map(|row| (&row.queue, row.paused_at.is_some(), row.settings.clone(), row.readmission.is_some()))
            .collect();
        let names = self.paused_queues.iter().chain(self.queue_settings.keys());
        let names: std::collections::BTreeSet<&String> = names.collect();
        let expected: Vec<_> = names
            .into_iter()
            .map(|name| {
                let settings = self.queue_settings.get(name).cloned().unwrap_or_default();
                let is_readmitting = self.limiters.readmission.contains_key(name);
                (name, self.paused_queues.contains(name), settings, is_readmitting)
            })
            .collect();
        rule!(got == expected, "queue settings are stored", "expected {expected:?}, got {got:?}");
        Ok(())
    }
}
