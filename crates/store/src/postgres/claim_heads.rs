//! Claim heads: how the claims of all processes share a lane that has more work than a claim takes.
//!
//! Claims that all began at the beginning of a lane would step over the rows that others hold in flight, and over
//! dead rows, which stay in the claim index until they are vacuumed. So each claim first reserves the next window of
//! the lane behind its head, a row in the database. The head is a hint: it may be lost, stale or wrong. This is what
//! the process itself knows of heads: which lanes need them, and when a claim must look before them.

use punctual_core::readmission::QueuePosition;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Looks take at most one part in this many of the time, however long one takes.
const LOOK_REST: u32 = 10;
/// No look puts off the next one of all processes for longer. A look may have waited for locks of other writes.
const LOOK_REST_MAX: Duration = Duration::from_secs(1);
/// Lanes that are remembered as crowded. Beyond this, claims scan from the beginning once.
const LANES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct ClaimHeads {
    known: Mutex<KnownHeads>,
}

#[derive(Debug, Default)]
struct KnownHeads {
    /// Lanes that had enough for the last claim.
    crowded: BTreeMap<i64, CrowdedLane>,
    /// The rest after the last look of this process, until the database knows.
    look_rest: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
struct CrowdedLane {
    /// The highest rank of the last window that this process has reserved.
    end: Option<i64>,
    /// Whether this process knows of work before the head.
    looks: bool,
    /// Everything up to this place was claimed or locked, and work after it may be before the head.
    back: Option<QueuePosition>,
}

/// What a reservation needs to know, for each of its lanes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeadsToMove {
    /// Whether the lane has a head.
    pub crowded: Vec<bool>,
    /// Where the head goes back to first, if it is behind that.
    pub back: Vec<Option<QueuePosition>>,
    /// The rest until the next look; zero if this process has not looked.
    pub look_rest: Duration,
}

impl ClaimHeads {
    /// How to move the heads of these lanes. `None` if the claim has to scan: none of them is crowded, or there is
    /// work before a head.
    pub fn to_move(&self, lanes: &[i64]) -> Option<HeadsToMove> {
        let mut known = self.known();
        let mut is_any_crowded = false;
        let mut looks = false;
        for lane in lanes {
            if let Some(lane) = known.crowded.get_mut(lane) {
                is_any_crowded = true;
                looks |= std::mem::take(&mut lane.looks);
            }
        }
        if looks || !is_any_crowded {
            return None;
        }
        let look_rest = std::mem::take(&mut known.look_rest);
        let mut heads = HeadsToMove { crowded: vec![], back: vec![], look_rest };
        for lane in lanes {
            let lane = known.crowded.get_mut(lane);
            heads.crowded.push(lane.is_some());
            heads.back.push(lane.and_then(|lane| lane.back.take()));
        }
        Some(heads)
    }

    /// Records the lanes of reserved windows and the rank of each one's end.
    pub fn reserved(&self, windows: Vec<(i64, i64)>) {
        let mut known = self.known();
        for (lane, end) in windows {
            known.crowded.entry(lane).and_modify(|lane| lane.end = Some(end));
        }
    }

    /// Records how long a claim took that looked.
    pub fn looked(&self, took: Duration) {
        self.known().look_rest = took.saturating_mul(LOOK_REST).min(LOOK_REST_MAX);
    }

    /// Records that these lanes had enough for a claim.
    pub fn crowded(&self, lanes: impl IntoIterator<Item = i64>) {
        let mut known = self.known();
        for lane in lanes {
            if known.crowded.len() >= LANES_MAX {
                known.crowded.clear();
            }
            known.crowded.entry(lane).or_default();
        }
    }

    /// Records that a claim which began at the beginning of these lanes has taken as much as it can, at these places.
    /// The heads go back to the last one if they are behind it.
    pub fn scanned(&self, lanes: &[i64], places: impl Iterator<Item = (i64, QueuePosition)>) {
        let places: Vec<(i64, QueuePosition)> = places.collect();
        let Some(last) = places.iter().map(|(_, place)| *place).max() else { return };
        self.crowded(places.into_iter().map(|(lane, _)| lane));
        let mut known = self.known();
        for lane in lanes {
            let back =
                |lane: &mut CrowdedLane| lane.back = Some(lane.back.map_or(last, |back| back.min(last)));
            known.crowded.entry(*lane).and_modify(back);
        }
    }

    /// Records that these lanes have less than a claim takes: the next claim scans them from the beginning.
    pub fn emptied(&self, lanes: &[i64]) {
        let mut known = self.known();
        for lane in lanes {
            known.crowded.remove(lane);
        }
    }

    /// Records that a claim has left alone what it had reserved or locked in these lanes.
    pub fn look(&self, lanes: &[i64]) {
        let mut known = self.known();
        for lane in lanes {
            known.crowded.entry(*lane).and_modify(|lane| lane.looks = true);
        }
    }

    /// Records the lanes and ranks of executions that this process has queued.
    pub fn queued(&self, rows: impl IntoIterator<Item = (i64, i64)>) {
        let mut known = self.known();
        for (lane, rank) in rows {
            known.crowded.entry(lane).and_modify(|lane| lane.looks |= lane.end.is_none_or(|end| rank <= end));
        }
    }

    fn known(&self) -> MutexGuard<'_, KnownHeads> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ids::JobId;

    fn place(rank: i64) -> QueuePosition {
        QueuePosition { rank, occurrence: JobId::from_bytes([7; 16]).occurrence(1) }
    }

    fn heads() -> ClaimHeads {
        let heads = ClaimHeads::default();
        heads.crowded([1, 2]);
        heads.reserved(vec![(1, 50), (2, 70)]);
        heads
    }

    /// Whether the next claim scans.
    fn looks(heads: &ClaimHeads) -> bool {
        heads.to_move(&[1, 2]).is_none()
    }

    #[test]
    fn only_lanes_with_enough_for_a_claim_have_heads() {
        let heads = heads();
        assert_eq!(heads.to_move(&[3]), None);
        assert_eq!(heads.to_move(&[1, 3]).unwrap().crowded, [true, false]);
        heads.emptied(&[1]);
        assert_eq!(heads.to_move(&[1, 3]), None);
    }

    #[test]
    fn work_that_this_process_queues_before_the_end_of_its_window_is_looked_for_once() {
        let heads = heads();
        heads.queued([(1, 51), (3, 1)]);
        assert!(!looks(&heads), "it comes after the window");
        heads.queued([(1, 50)]);
        assert!(looks(&heads) && !looks(&heads));
    }

    #[test]
    fn windows_that_were_left_alone_are_looked_for_once() {
        let heads = heads();
        heads.look(&[2, 3]);
        assert!(looks(&heads) && !looks(&heads));
    }

    #[test]
    fn heads_go_back_once_to_the_last_place_of_a_scan() {
        let heads = heads();
        heads.scanned(&[1, 2, 3], [(1, place(20)), (4, place(30))].into_iter());
        let moved = heads.to_move(&[1, 2, 3, 4]).unwrap();
        assert_eq!(moved.back, [Some(place(30)), Some(place(30)), None, None]);
        assert_eq!(moved.crowded, [true, true, false, true]);
        assert_eq!(heads.to_move(&[1, 2]).unwrap().back, [None, None]);
    }

    #[test]
    fn long_looks_are_rare() {
        let heads = heads();
        heads.looked(Duration::from_millis(20));
        assert_eq!(heads.to_move(&[1]).unwrap().look_rest, Duration::from_millis(200));
        heads.looked(Duration::from_secs(60));
        assert_eq!(heads.to_move(&[1]).unwrap().look_rest, LOOK_REST_MAX);
        assert_eq!(heads.to_move(&[1]).unwrap().look_rest, Duration::ZERO, "the database knows");
    }
}
