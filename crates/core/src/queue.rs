//! The settings of a queue, and what they mean for a submit.

use crate::defects::{Defect, planted};
use crate::job::InvalidField;
use crate::limiter::{QueueLimits, Rate};
use crate::limits;
use std::collections::BTreeMap;

/// All settings of a queue, except its pause.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueSettings {
    /// How many executions may wait or be queued before submits are rejected; `None` for no limit.
    pub max_depth: Option<u64>,
    /// How many of its executions may run at once and start within a period, and how owners share the queue.
    pub limits: QueueLimits,
}

/// A change of settings; those that it does not name stay. It is applied in the transaction that stores the settings, so
/// that two changes at the same time both take effect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueuePatch {
    pub max_depth: Option<Option<u64>>,
    pub concurrency: Option<Option<u32>>,
    pub rate: Option<Option<Rate>>,
    pub key_concurrency: Option<Option<u32>>,
    pub key_rate: Option<Option<Rate>>,
    /// The weights of these owners; `None` removes one.
    pub weights: BTreeMap<String, Option<u32>>,
}

/// New settings, or a change of the stored ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueChange {
    Replace(QueueSettings),
    Patch(Box<QueuePatch>),
}

impl QueueChange {
    pub fn applied_to(&self, stored: &QueueSettings) -> QueueSettings {
        let patch = match self {
            QueueChange::Replace(settings) => return settings.clone(),
            QueueChange::Patch(patch) => patch,
        };
        let QueueSettings { max_depth, limits } = stored.clone();
        let mut weights = limits.weights;
        for (owner, weight) in &patch.weights {
            match weight {
                Some(weight) => weights.insert(owner.clone(), *weight),
                None => weights.remove(owner),
            };
        }
        QueueSettings {
            max_depth: patch.max_depth.unwrap_or(max_depth),
            limits: QueueLimits {
                concurrency: patch.concurrency.unwrap_or(limits.concurrency),
                rate: patch.rate.unwrap_or(limits.rate),
                key_concurrency: patch.key_concurrency.unwrap_or(limits.key_concurrency),
                key_rate: patch.key_rate.unwrap_or(limits.key_rate),
                weights,
            },
        }
    }
}

/// Why a submit was rejected: the queue is at its maximum depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull {
    /// Executions that are waiting or queued.
    pub depth: u64,
    pub max_depth: u64,
}

impl QueueSettings {
    /// All invalid settings.
    pub fn problems(&self) -> Vec<InvalidField> {
        let max = limits::QUEUE_DEPTH_MAX;
        let is_too_deep = self.max_depth.is_some_and(|depth| depth > max);
        let depth = is_too_deep
            .then(|| InvalidField::new("max_depth", format!("must be a number from 0 to {max}, or null")));
        depth.into_iter().chain(self.limits.problems()).collect()
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
    fn a_change_keeps_what_it_does_not_name() {
        let mut stored = QueueSettings::holding(Some(7));
        stored.limits.concurrency = Some(2);
        stored.limits.weights = BTreeMap::from([("ann".to_owned(), 3), ("bob".to_owned(), 2)]);
        let patch = QueuePatch {
            max_depth: Some(None),
            key_concurrency: Some(Some(1)),
            weights: BTreeMap::from([("ann".to_owned(), None), ("eve".to_owned(), Some(5))]),
            ..QueuePatch::default()
        };
        let changed = QueueChange::Patch(Box::new(patch)).applied_to(&stored);
        assert_eq!((changed.max_depth, changed.limits.concurrency), (None, Some(2)));
        assert_eq!(changed.limits.key_concurrency, Some(1));
        assert_eq!(changed.limits.weights, BTreeMap::from([("bob".to_owned(), 2), ("eve".to_owned(), 5)]));
        assert_eq!(
            QueueChange::Replace(QueueSettings::default()).applied_to(&stored),
            QueueSettings::default()
        );
    }

    #[test]
    fn a_limit_that_nobody_can_mean_is_a_problem() {
        assert_eq!(QueueSettings::holding(Some(limits::QUEUE_DEPTH_MAX)).problems(), []);
        let problems = QueueSettings::holding(Some(limits::QUEUE_DEPTH_MAX + 1)).problems();
        assert_eq!(problems[0].field, "max_depth");
    }
}
