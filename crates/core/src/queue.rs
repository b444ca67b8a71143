//! The settings of a queue, and what they mean for a submit.

use crate::defects::{Defect, planted};
use crate::job::InvalidField;
use crate::limiter::QueueLimits;
use crate::limits;

/// All settings of a queue, except its pause.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueSettings {
    /// How many executions may wait or be queued before submits are rejected; `None` for no limit.
    pub max_depth: Option<u64>,
    /// How many of its executions may run at once and start within a period, and how owners share the queue.
    pub limits: QueueLimits,
}

/// Why a submit was rejected: the queue is at its maximum depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull {
    /// Executions that are waiting or queued.
    pub depth: u64,
    pub max_depth: u64,
}

impl QueueSettings {
    /// The first invalid setting, if any.
    pub fn problem(&self) -> Option<InvalidField> {
        let max = limits::QUEUE_DEPTH_MAX;
        if self.max_depth.is_some_and(|depth| depth > max) {
            return Some(InvalidField::new(
                "max_depth",
                format!("must be a number from 0 to {max}, or null"),
            ));
        }
        self.limits.problem()
    }

    /// A queue with this maximum depth and no other limit.
    pub fn holding(max_depth: Option<u64>) -> Self {
        QueueSettings { max_depth, ..QueueSettings::default() }
    }

    /// Whether one more execution may join a queue that holds `depth` executions that have not started.
    /// Applies only to executions that join at once: an execution that was accepted for later is never
    /// rejected (decision 0014).
    pub fn admit(&self, depth: u64) -> Result<(), QueueFull> {
        match self.max_depth {
            Some(max_depth) if depth >= max_depth + u64::from(planted(Defect::ExceedMaxDepth)) => {
                Err(QueueFull { depth, max_depth })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_takes_in_as_many_as_its_limit_says() {
        let settings = QueueSettings::holding(Some(2));
        assert_eq!([0, 1].map(|depth| settings.admit(depth)), [Ok(()); 2]);
        for depth in [2, 3] {
            assert_eq!(settings.admit(depth), Err(QueueFull { depth, max_depth: 2 }));
        }
        assert_eq!(QueueSettings::holding(Some(0)).admit(0), Err(QueueFull { depth: 0, max_depth: 0 }));
        assert_eq!(QueueSettings::default().admit(u64::MAX), Ok(()));
    }

    #[test]
    fn a_limit_that_nobody_can_mean_is_a_problem() {
        assert_eq!(QueueSettings::holding(Some(limits::QUEUE_DEPTH_MAX)).problem(), None);
        let problem = QueueSettings::holding(Some(limits::QUEUE_DEPTH_MAX + 1)).problem();
        assert_eq!(problem.unwrap().field, "max_depth");
    }
}
