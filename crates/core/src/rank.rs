//! The order of claims. The rank of an execution is computed once, when it becomes ready. One index orders
//! claims by rank: lower goes first.
//!
//! A rank is a time: when the execution became ready, moved earlier by its priority and later by its owner's
//! share. A high priority therefore moves an execution ahead by a fixed number of seconds, and executions
//! that have waited longer than that still go first. An owner that submits a flood of jobs is delayed by its
//! own backlog.

use crate::job::Priority;
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// How far one step of priority moves an execution ahead. With ten priorities, an execution of the lowest one
/// goes before newly arriving work of the highest after 90 seconds at the latest.
pub const AGING_STEP: Duration = Duration::from_secs(10);
/// The cost of one execution to its owner's share: an owner with a backlog of n executions ranks its next one
/// n quanta later than an owner without a backlog.
pub const SHARE_QUANTUM: Duration = Duration::from_millis(2);
/// The most that a share may delay an execution, and so the bound on how long it can be overtaken.
pub const SHARE_LAG_MAX: Duration = Duration::from_secs(60);
/// How long executions that become ready later can overtake an execution, whatever its priority and its
/// owner's backlog. Executions that become ready after that rank after it.
pub const PASSED_OVER_MAX: Duration = Duration::from_secs(9 * AGING_STEP.as_secs() + SHARE_LAG_MAX.as_secs());
/// Maximum number of owners whose shares are remembered. Owners without a backlog are dropped.
const OWNERS_MAX: usize = 10_000;
/// Number of owners at which those without a backlog are first removed. After that, removal starts when there
/// are twice as many owners as had a backlog.
const OWNERS_PRUNED_FROM: usize = 128;

/// The rank of an execution that becomes ready at `available_at`.
pub fn rank(available_at: Timestamp, priority: Priority, share_lag: Duration) -> i64 {
    let head_start = AGING_STEP.as_micros() as i64 * i64::from(priority.get());
    available_at.plus(share_lag).as_micros().saturating_sub(head_start)
}

/// The shares of owners within their queues, as seen by one process: for each owner, the virtual time up to
/// which its submitted work reaches. Held in memory only; losing it makes scheduling less fair for a moment,
/// nothing else.
#[derive(Debug, Clone, Default)]
pub struct Shares {
    reach: BTreeMap<(String, String), Timestamp>,
    /// Weights, for queues whose owners do not all have the same share.
    weights: BTreeMap<String, BTreeMap<String, u32>>,
    /// How many owners had a backlog at the last removal, and when that was.
    pruned: Option<(usize, Timestamp)>,
}

impl Shares {
    /// Sets the weights by which owners share a queue. An owner without an entry has weight 1.
    pub fn weigh(&mut self, queue: &str, weights: BTreeMap<String, u32>) {
        if !weights.is_empty() {
            self.weights.insert(queue.to_owned(), weights);
        } else if !self.weights.is_empty() {
            self.weights.remove(queue);
        }
    }

    /// How much later the owner's next execution in this queue ranks because of its backlog. Also counts that
    /// execution.
    pub fn lag(&mut self, queue: &str, owner: &str, now: Timestamp) -> Duration {
        self.prune(now);
        if self.reach.len() >= OWNERS_MAX {
            return Duration::ZERO;
        }
        let weight = self.weights.get(queue).and_then(|weights| weights.get(owner)).copied().unwrap_or(1);
        let quantum = SHARE_QUANTUM / weight.max(1);
        let reach = self.reach.entry((queue.to_owned(), owner.to_owned())).or_insert(now);
        let start = (*reach).max(now);
        let lag = start.since(now).min(SHARE_LAG_MAX);
        *reach = now.plus(lag).plus(quantum);
        lag
    }

    /// Removes owners whose virtual time has passed: they rank like owners that were never seen. The size of
    /// the map, and the cost of copying it, thus depends on the owners with a backlog, not on all owners that
    /// ever submitted a job.
    fn prune(&mut self, now: Timestamp) {
        let (backlogged, at) = self.pruned.map_or((0, None), |(count, at)| (count, Some(at)));
        let from = backlogged.saturating_mul(2).clamp(OWNERS_PRUNED_FROM, OWNERS_MAX);
        if self.reach.len() >= from && at != Some(now) {
            self.reach.retain(|_, reach| *reach > now);
            self.pruned = Some((self.reach.len(), now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(1_763_195_400_000_000 + seconds * 1_000_000)
    }

    #[test]
    fn high_priority_goes_first_and_low_always_gets_there() {
        let low = rank(at(0), Priority::MIN, Duration::ZERO);
        assert!(rank(at(0), Priority::MAX, Duration::ZERO) < low);
        assert!(rank(at(89), Priority::MAX, Duration::ZERO) < low);
        assert!(rank(at(91), Priority::MAX, Duration::ZERO) > low);
    }

    #[test]
    fn a_flood_of_one_owner_lets_another_through() {
        let mut shares = Shares::default();
        let flood: Vec<i64> =
            (0..1_000).map(|_| rank(at(0), Priority::DEFAULT, shares.lag("q", "flood", at(0)))).collect();
        let other = rank(at(0), Priority::DEFAULT, shares.lag("q", "other", at(0)));
        assert!(flood[1] > other, "only the flood's first goes before the other owner's");
        assert!(flood.is_sorted());
    }

    #[test]
    fn a_share_is_bounded_and_recovers_with_time() {
        let mut shares = Shares::default();
        let worst = (0..100_000).map(|_| shares.lag("q", "flood", at(0))).max().unwrap();
        assert_eq!(worst, SHARE_LAG_MAX);
        assert_eq!(shares.lag("q", "flood", at(120)), Duration::ZERO);
    }

    #[test]
    fn owners_share_a_queue_by_their_weights() {
        let mut shares = Shares::default();
        shares.weigh("q", [("heavy".to_owned(), 3)].into());
        let mut ranked: Vec<(i64, &str)> = Vec::new();
        for owner in ["light", "heavy"] {
            for _ in 0..1_000 {
                ranked.push((rank(at(0), Priority::DEFAULT, shares.lag("q", owner, at(0))), owner));
            }
        }
        ranked.sort_unstable();
        let heavy = ranked[..1_000].iter().filter(|(_, owner)| *owner == "heavy").count();
        assert!((740..=760).contains(&heavy), "{heavy} of the first thousand, where three of four are due");
        shares.weigh("q", BTreeMap::new());
        let (light, heavy) = (shares.lag("q", "a", at(0)), shares.lag("q", "b", at(0)));
        assert_eq!((light, heavy), (shares.lag("p", "a", at(0)), shares.lag("p", "b", at(0))));
    }

    #[test]
    fn nothing_is_passed_over_for_longer_than_the_bound() {
        // The worst case: the lowest priority and the largest backlog of its owner.
        let worst = rank(at(0), Priority::MIN, SHARE_LAG_MAX);
        let bound = PASSED_OVER_MAX.as_secs() as i64;
        assert_eq!(bound, 150);
        assert!(rank(at(bound - 1), Priority::MAX, Duration::ZERO) < worst);
        assert!(rank(at(bound + 1), Priority::MAX, Duration::ZERO) > worst);
    }

    #[test]
    fn shares_forget_idle_owners_instead_of_growing() {
        let mut shares = Shares::default();
        for n in 0..OWNERS_MAX as i64 * 3 {
            shares.lag("q", &format!("owner-{n}"), at(n));
        }
        assert!(shares.reach.len() <= OWNERS_PRUNED_FROM);
    }
}
