//! Re-admission: queued executions are checked again when the limits of their queue become tighter. It
//! proceeds in steps, from the last rank to the first, so that executions at the front continue to start
//! meanwhile. Its progress is stored with the queue (decision 0023).

use crate::defects::{Defect, planted};
use crate::ids::{JobId, OccurrenceId};
use crate::limiter::QueueLimits;
use serde::{Deserialize, Serialize};

/// The position of an execution in the order of claims. Equal ranks are ordered by key, so that all nodes
/// agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueuePosition {
    pub rank: i64,
    pub occurrence: OccurrenceId,
}

impl QueuePosition {
    /// After all other positions.
    pub const LAST: QueuePosition =
        QueuePosition { rank: i64::MAX, occurrence: JobId::from_bytes([0xFF; 16]).occurrence(u32::MAX) };
}

/// A re-admission of queued executions, and its progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Readmission {
    /// Executions with a key return to the wait list of their key.
    pub keys: bool,
    /// All other executions return to the wait list of their queue. If false, only those over the concurrency
    /// limit do.
    pub all: bool,
    /// Executions at this position or later have been checked; `None` if none has been.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<QueuePosition>,
}

impl Readmission {
    /// The re-admission to do after limits have changed. A limit that is raised or removed does not hold back
    /// any queued execution.
    pub fn after(was: Option<Readmission>, had: &QueueLimits, limits: &QueueLimits) -> Option<Readmission> {
        if planted(Defect::ForgetBacklog) || !limits.hold_anything() {
            return None;
        }
        let (of_queue, of_key) = (limits.of_queue(), limits.of_key());
        let all = of_queue.is_slower_than(&had.of_queue());
        let keys = of_key.is_slower_than(&had.of_key()) || of_key.is_narrower_than(&had.of_key());
        if !all && !keys && !of_queue.is_narrower_than(&had.of_queue()) {
            return was;
        }
        let was = was.unwrap_or_default();
        Some(Readmission { keys: keys || was.keys, all: all || was.all, reached: None })
    }

    /// Whether every queued execution must be checked, regardless of how many are over the concurrency limit.
    pub fn is_for_all(&self) -> bool {
        self.keys || self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Rate;

    fn none() -> QueueLimits {
        QueueLimits::default()
    }

    fn at_once(concurrency: u32) -> QueueLimits {
        QueueLimits { concurrency: Some(concurrency), ..none() }
    }

    fn paced(count: u32) -> QueueLimits {
        QueueLimits { rate: Some(Rate { count, per_ms: 1_000 }), ..none() }
    }

    fn of_keys(concurrency: u32) -> QueueLimits {
        QueueLimits { key_concurrency: Some(concurrency), ..none() }
    }

    #[test]
    fn only_limits_that_are_tighter_reach_what_is_queued() {
        let few = Some(Readmission::default());
        let all = Some(Readmission { all: true, ..Readmission::default() });
        let keys = Some(Readmission { keys: true, ..Readmission::default() });
        for (had, limits, readmission) in [
            (none(), none(), None),
            (none(), at_once(3), few),
            (at_once(3), at_once(2), few),
            (at_once(3), at_once(3), None),
            (at_once(3), at_once(4), None),
            (at_once(3), none(), None),
            (none(), paced(5), all),
            (paced(5), paced(4), all),
            (paced(5), paced(6), None),
            (at_once(3), QueueLimits { concurrency: Some(9), ..paced(5) }, all),
            (none(), of_keys(2), keys),
            (of_keys(2), of_keys(1), keys),
            (of_keys(2), of_keys(3), None),
            (paced(5), QueueLimits { key_rate: paced(5).rate, ..paced(5) }, keys),
        ] {
            assert_eq!(Readmission::after(None, &had, &limits), readmission, "{had:?} {limits:?}");
        }
    }

    #[test]
    fn a_change_on_the_way_adds_to_what_is_to_be_done_and_begins_again() {
        let reached = Some(QueuePosition { rank: 7, ..QueuePosition::LAST });
        let was = Some(Readmission { keys: true, all: false, reached });
        let both = QueueLimits { key_concurrency: Some(1), ..paced(5) };
        let added = Readmission { keys: true, all: true, reached: None };
        assert_eq!(Readmission::after(was, &of_keys(1), &both), Some(added));
        assert_eq!(
            Readmission::after(was, &of_keys(1), &of_keys(2)),
            was,
            "what is not tighter changes nothing"
        );
        assert_eq!(Readmission::after(was, &of_keys(1), &none()), None);
    }

    #[test]
    fn places_go_by_rank_and_then_by_key() {
        let place = |rank, byte, number| QueuePosition {
            rank,
            occurrence: JobId::from_bytes([byte; 16]).occurrence(number),
        };
        let places = [place(1, 9, 9), place(2, 1, 2), place(2, 1, 3), place(2, 2, 1), QueuePosition::LAST];
        assert!(places.is_sorted());
        let text = serde_json::to_string(&places).unwrap();
        assert_eq!(serde_json::from_str::<[QueuePosition; 5]>(&text).unwrap(), places);
    }
}
