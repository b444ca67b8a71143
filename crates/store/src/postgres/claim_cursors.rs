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
const WHOLE_SCAN_INTERVAL: Duration = Duration::from_millis(100);
/// Scans from the start take at most one part in this many of the time, however long one takes.
const WHOLE_SCAN_REST: u32 = 10;

/// Lanes whose cursors are remembered. Beyond this, claims scan from the start once.
const LANES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct ClaimCursors {
    known: Mutex<CursorState>,
}

#[derive(Debug, Default)]
struct CursorState {
    /// By lane, the lowest rank that was last found.
    least: BTreeMap<i64, i64>,
    /// `None` means at once.
    next_whole_scan: Option<Instant>,
}

/// The scope of a claim's scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimScan {
    /// From where work was last found.
    Onward,
    /// From the start of each lane.
    Whole,
}

impl ClaimCursors {
    /// The scope of the next claim's scan.
    pub fn next_scan(&self, now: Instant) -> ClaimScan {
        match self.known().next_whole_scan {
            Some(at) if now < at => ClaimScan::Onward,
            _ => ClaimScan::Whole,
        }
    }

    /// The rank at which to start, for each of these lanes.
    pub fn least(&self, scan: ClaimScan, lanes: &[i64]) -> Vec<i64> {
        let known = self.known();
        let least = |lane| known.least.get(lane).copied().filter(|_| scan == ClaimScan::Onward);
        lanes.iter().map(|lane| least(lane).unwrap_or(i64::MIN)).collect()
    }

    /// Whether this scope skips anything in these lanes.
    pub fn leaves_out(&self, scan: ClaimScan, lanes: &[i64]) -> bool {
        let known = self.known();
        scan == ClaimScan::Onward && lanes.iter().any(|lane| known.least.contains_key(lane))
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
    pub fn scanned_whole(&self, began: Instant, ended: Instant) {
        let rest = WHOLE_SCAN_INTERVAL.max(ended.duration_since(began).saturating_mul(WHOLE_SCAN_REST));
        self.known().next_whole_scan = Some(ended + rest);
    }

    /// Records the lanes and ranks of executions that this process has queued.
    pub fn queued(&self, rows: impl IntoIterator<Item = (i64, i64)>) {
        let mut known = self.known();
        for (lane, rank) in rows {
            known.least.entry(lane).and_modify(|least| *least = rank.min(*least));
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, CursorState> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_start_at_the_cursor_and_sometimes_at_the_start() {
        let (cursors, began) = (ClaimCursors::default(), Instant::now());
        assert_eq!(cursors.next_scan(began), ClaimScan::Whole);
        cursors.found([(1, 70), (1, 50), (2, 5)]);
        cursors.scanned_whole(began, began);
        assert_eq!(cursors.next_scan(began), ClaimScan::Onward);
        assert_eq!(cursors.least(ClaimScan::Onward, &[1, 2, 3]), [50, 5, i64::MIN]);
        assert_eq!(cursors.least(ClaimScan::Whole, &[1, 2]), [i64::MIN; 2]);
        assert_eq!(cursors.next_scan(began + WHOLE_SCAN_INTERVAL), ClaimScan::Whole);
    }

    #[test]
    fn long_scans_are_rare() {
        let (cursors, began) = (ClaimCursors::default(), Instant::now());
        let ended = began + Duration::from_secs(2);
        cursors.scanned_whole(began, ended);
        assert_eq!(cursors.next_scan(ended + Duration::from_secs(19)), ClaimScan::Onward);
        assert_eq!(cursors.next_scan(ended + Duration::from_secs(20)), ClaimScan::Whole);
    }

    #[test]
    fn work_that_this_process_queues_before_the_cursor_is_found() {
        let cursors = ClaimCursors::default();
        cursors.found([(1, 50)]);
        cursors.queued([(1, 60), (2, 1)]);
        assert_eq!(
            cursors.least(ClaimScan::Onward, &[1, 2]),
            [50, i64::MIN],
            "the cursor of the second lane is unknown"
        );
        cursors.queued([(1, 40)]);
        assert_eq!(cursors.least(ClaimScan::Onward, &[1]), [40]);
        assert!(
            cursors.leaves_out(ClaimScan::Onward, &[1, 2]) && !cursors.leaves_out(ClaimScan::Onward, &[2])
        );
        assert!(!cursors.leaves_out(ClaimScan::Whole, &[1]));
        cursors.emptied(&[1]);
        assert!(!cursors.leaves_out(ClaimScan::Onward, &[1]));
    }
}
