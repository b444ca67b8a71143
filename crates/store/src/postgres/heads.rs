//! Claim cursors: where claims start to scan each lane.
//!
//! Claimed rows stay in the claim index until they are vacuumed, which may take a minute, or as long as any
//! transaction is open. A claim that started at the head of its lane would scan all of them, so it starts
//! where the last one found work. That is only a guess: another process may have queued an execution before
//! that position, or released a lock on one. So from time to time, and whenever fewer rows are found than
//! requested, claims scan from the start.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long executions that other processes queue before the cursor may go unseen while there is enough to
/// claim.
const WHOLE_LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Scans from the start take at most one part in this many of the time, however long one takes.
const WHOLE_LOOK_REST: u32 = 10;

/// Lanes whose cursors are remembered. Beyond this, claims scan from the start once.
const LANES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Heads {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By lane, the lowest rank that was last found.
    least: BTreeMap<i64, i64>,
    /// `None` means at once.
    next_whole_look: Option<Instant>,
}

/// The scope of a claim's scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// From where work was last found.
    Onward,
    /// From the start of each lane.
    Whole,
}

impl Heads {
    /// The scope of the next claim's scan.
    pub fn next_look(&self, now: Instant) -> Look {
        match self.known().next_whole_look {
            Some(at) if now < at => Look::Onward,
            _ => Look::Whole,
        }
    }

    /// The rank at which to start, for each of these lanes.
    pub fn least(&self, look: Look, lanes: &[i64]) -> Vec<i64> {
        let known = self.known();
        let least = |lane| known.least.get(lane).copied().filter(|_| look == Look::Onward);
        lanes.iter().map(|lane| least(lane).unwrap_or(i64::MIN)).collect()
    }

    /// Whether this scope skips anything in these lanes.
    pub fn leaves_out(&self, look: Look, lanes: &[i64]) -> bool {
        let known = self.known();
        look == Look::Onward && lanes.iter().any(|lane| known.least.contains_key(lane))
    }

    /// Records that these lanes are empty: the next scan starts at the beginning.
    pub fn emptied(&self, lanes: &[i64]) {
        let mut known = self.known();
        for lane in lanes {
            known.least.remove(lane);
        }
    }

    /// Records the lanes and ranks of claimable executions that were found.
    pub fn found(&self, rows: impl IntoIterator<Item = (i64, i64)>) {
        let mut found: BTreeMap<i64, i64> = BTreeMap::new();
        for (lane, rank) in rows {
            found.entry(lane).and_modify(|least| *least = rank.min(*least)).or_insert(rank);
        }
        let mut known = self.known();
        if known.least.len() >= LANES_MAX {
            known.least.clear();
        }
        known.least.extend(found);
    }

    /// Records a complete scan.
    pub fn looked_whole(&self, began: Instant, ended: Instant) {
        let rest = WHOLE_LOOK_INTERVAL.max(ended.duration_since(began).saturating_mul(WHOLE_LOOK_REST));
        self.known().next_whole_look = Some(ended + rest);
    }

    /// Records the lanes and ranks of executions that this process has queued.
    pub fn queued(&self, rows: impl IntoIterator<Item = (i64, i64)>) {
        let mut known = self.known();
        for (lane, rank) in rows {
            known.least.entry(lane).and_modify(|least| *least = rank.min(*least));
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_begin_where_work_was_found_and_now_and_then_at_the_beginning() {
        let (heads, began) = (Heads::default(), Instant::now());
        assert_eq!(heads.next_look(began), Look::Whole);
        heads.found([(1, 70), (1, 50), (2, 5)]);
        heads.looked_whole(began, began);
        assert_eq!(heads.next_look(began), Look::Onward);
        assert_eq!(heads.least(Look::Onward, &[1, 2, 3]), [50, 5, i64::MIN]);
        assert_eq!(heads.least(Look::Whole, &[1, 2]), [i64::MIN; 2]);
        assert_eq!(heads.next_look(began + WHOLE_LOOK_INTERVAL), Look::Whole);
    }

    #[test]
    fn looks_that_take_long_are_rare() {
        let (heads, began) = (Heads::default(), Instant::now());
        let ended = began + Duration::from_secs(2);
        heads.looked_whole(began, ended);
        assert_eq!(heads.next_look(ended + Duration::from_secs(19)), Look::Onward);
        assert_eq!(heads.next_look(ended + Duration::from_secs(20)), Look::Whole);
    }

    #[test]
    fn what_this_process_queues_before_the_rest_is_seen() {
        let heads = Heads::default();
        heads.found([(1, 50)]);
        heads.queued([(1, 60), (2, 1)]);
        assert_eq!(heads.least(Look::Onward, &[1, 2]), [50, i64::MIN], "nothing is known of the second");
        heads.queued([(1, 40)]);
        assert_eq!(heads.least(Look::Onward, &[1]), [40]);
        assert!(heads.leaves_out(Look::Onward, &[1, 2]) && !heads.leaves_out(Look::Onward, &[2]));
        assert!(!heads.leaves_out(Look::Whole, &[1]));
        heads.emptied(&[1]);
        assert!(!heads.leaves_out(Look::Onward, &[1]));
    }
}
