//! Where claims begin to look in each lane.
//!
//! What was claimed stays in the claim index until it is vacuumed, which may be a minute, or for as long as somebody's
//! transaction lasts. A claim that began at the head of its lane would walk over all of it, so it begins where the last one
//! found work. That is only a guess: another process may have queued something before it, and what another one had locked
//! may be free again. So now and then, and whenever less is found than was wanted, claims look from the very beginning.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long what other processes have queued before the rest may go unseen while there is enough to claim.
const WHOLE_LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Looks from the beginning take at most one part of so many of the time, however long one takes.
const WHOLE_LOOK_REST: u32 = 10;

/// Lanes of which it is remembered. Beyond, claims look from the beginning once.
const LANES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Heads {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By lane, the lowest rank that was last found.
    least: BTreeMap<i64, i64>,
    /// `None`: at once.
    next_whole_look: Option<Instant>,
}

/// How a claim looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// From where work was last found.
    Onward,
    /// From the beginning of each lane.
    Whole,
}

impl Heads {
    /// How the next claim is to look.
    pub fn next_look(&self, now: Instant) -> Look {
        match self.known().next_whole_look {
            Some(at) if now < at => Look::Onward,
            _ => Look::Whole,
        }
    }

    /// The rank from which to look, for each of these lanes.
    pub fn least(&self, look: Look, lanes: &[i64]) -> Vec<i64> {
        let known = self.known();
        let least = |lane| known.least.get(lane).copied().filter(|_| look == Look::Onward);
        lanes.iter().map(|lane| least(lane).unwrap_or(i64::MIN)).collect()
    }

    /// Whether looking so leaves anything out of these lanes.
    pub fn leaves_out(&self, look: Look, lanes: &[i64]) -> bool {
        let known = self.known();
        look == Look::Onward && lanes.iter().any(|lane| known.least.contains_key(lane))
    }

    /// Notes that nothing is left in these lanes: what comes next is found from the beginning.
    pub fn emptied(&self, lanes: &[i64]) {
        let mut known = self.known();
        for lane in lanes {
            known.least.remove(lane);
        }
    }

    /// Notes what was found to be claimed: lanes and ranks.
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

    /// Notes that everything was looked at.
    pub fn looked_whole(&self, began: Instant, ended: Instant) {
        let rest = WHOLE_LOOK_INTERVAL.max(ended.duration_since(began).saturating_mul(WHOLE_LOOK_REST));
        self.known().next_whole_look = Some(ended + rest);
    }

    /// Notes what this process has queued: lanes and ranks.
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
