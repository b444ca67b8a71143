//! The pause of the whole cluster: nothing starts, as if every queue were paused.
//!
//! A stored document says why, and until when. What holds executions back is the row of a queue with a reserved name,
//! which claims read anyway. The leader makes the rows follow the document.

use crate::job::InvalidField;
use crate::names::line_problem;
use crate::ports::PausedQueue;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The queue that stands for all queues while it is paused. No queue of a user can have such a name.
pub const EVERY_QUEUE: &str = "\tqueues";
/// The queue that stands for all recurring schedules: while it is paused, their occurrences are skipped.
pub const EVERY_SCHEDULE: &str = "\tschedules";

/// The name of the document.
pub const CLUSTER_PAUSE: &str = "cluster";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterPause {
    pub reason: String,
    pub paused_at: Timestamp,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Whether recurring occurrences are skipped instead of waiting.
    #[serde(default)]
    pub skips: bool,
    /// The name of the token or user that has paused it.
    pub paused_by: String,
}

impl ClusterPause {
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// What is wrong with a new one.
    pub fn problem(&self, now: Timestamp) -> Option<InvalidField> {
        if let Some(fix) = line_problem(&self.reason) {
            return Some(InvalidField::new("reason", fix));
        }
        self.is_over(now)
            .then(|| InvalidField::new("until", format!("must be after the current time, {now}")))
    }

    /// The reserved queues, and whether each is to be paused.
    pub fn rows(pause: Option<&ClusterPause>) -> [(&'static str, bool); 2] {
        [(EVERY_QUEUE, pause.is_some()), (EVERY_SCHEDULE, pause.is_some_and(|pause| pause.skips))]
    }
}

/// Whether the name belongs to the cluster and not to a user's queue.
pub fn is_reserved(queue: &str) -> bool {
    queue == EVERY_QUEUE || queue == EVERY_SCHEDULE
}

/// Whether the queue hands out no work, because it or the whole cluster is paused.
pub fn is_paused(paused: &[PausedQueue], queue: &str) -> bool {
    paused.iter().any(|paused| paused.queue == queue || paused.queue == EVERY_QUEUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::path_name_problem;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn pause(reason: &str, until: Option<Timestamp>) -> ClusterPause {
        let (reason, paused_by) = (reason.to_owned(), "ops".to_owned());
        ClusterPause { reason, paused_at: at(5), until, skips: false, paused_by }
    }

    #[test]
    fn no_queue_of_a_user_has_a_reserved_name() {
        assert!([EVERY_QUEUE, EVERY_SCHEDULE].iter().all(|name| path_name_problem(name).is_some()));
    }

    #[test]
    fn a_pause_needs_a_reason_and_an_end_in_the_future() {
        assert_eq!(pause("", None).problem(at(5)).unwrap().field, "reason");
        assert_eq!(pause("move", Some(at(5))).problem(at(5)).unwrap().field, "until");
        assert_eq!(pause("move", Some(at(6))).problem(at(5)), None);
        assert!(pause("move", Some(at(6))).is_over(at(6)) && !pause("move", None).is_over(at(6)));
    }

    #[test]
    fn a_paused_cluster_pauses_every_queue() {
        let row = |queue: &str| PausedQueue { queue: queue.to_owned(), paused_at: at(1) };
        assert!(is_paused(&[row("mail")], "mail") && !is_paused(&[row("mail")], "work"));
        assert!(is_paused(&[row(EVERY_QUEUE)], "work") && !is_paused(&[row(EVERY_SCHEDULE)], "work"));
    }
}
