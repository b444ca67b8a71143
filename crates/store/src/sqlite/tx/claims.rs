//! Claimable executions: the lowest ranks of many lanes, merged.

use super::names::lanes_through;
use super::{Tx, hot_statement};
use crate::codecs::{fact_columns, read_facts};
use crate::fault::Fault;
use crate::layout::{LiveColumns, sqlite_live_columns as live_columns};
use crate::rows::{AssignedJob, LiveRow};
use crate::sqlite::active_lanes::{ClaimPosition, FirstQueued};
use crate::sqlite::rows::{bound, job_id, one, read_live, up_to};
use punctual_core::ids::OccurrenceId;
use punctual_core::readmission;
use rusqlite::{Connection, Row, params};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// The minimum number of keys to read from a lane at a time, so that a small claim over many lanes does not
/// read the whole claim from each of them.
const PORTION_MIN: usize = 16;

pub(crate) const FIRST_OF_LANE: &str = "SELECT rank, job, occurrence FROM live WHERE lane = ?1 AND state = 1 ORDER BY rank, job, occurrence LIMIT ?2";
pub(crate) const NEXT_OF_LANE: &str = "SELECT rank, job, occurrence FROM live WHERE lane = ?1 AND state = 1 \
     AND (rank, job, occurrence) > (?3, ?4, ?5) ORDER BY rank, job, occurrence LIMIT ?2";
pub(crate) const LAST_OF_LANE: &str = "SELECT rank, job, occurrence FROM live WHERE lane = ?1 AND state = 1 \
     AND (rank, job, occurrence) < (?3, ?4, ?5) ORDER BY rank DESC, job DESC, occurrence DESC LIMIT ?2";
const CLAIMABLE: &str = concat!(
    "SELECT ",
    live_columns!(),
    ", ",
    fact_columns!(),
    " FROM live JOIN jobs ON jobs.id = live.job WHERE live.job = ?1 AND live.occurrence = ?2"
);

pub(super) fn claimable(tx: &mut Tx<'_>, id: OccurrenceId) -> Result<Option<(LiveRow, AssignedJob)>, Fault> {
    let find = hot_statement(tx.conn, &mut tx.hot.find_claimable, CLAIMABLE)?;
    one(find, params![id.job.as_bytes(), id.number], |row| {
        let found = read_live(row)?;
        let lane = tx.memory.lane(tx.conn, found.lane)?;
        Ok((found, read_facts(row, LiveColumns::COUNT, &lane)?))
    })
}

pub(super) fn lowest(tx: &mut Tx<'_>, lanes: &[i64], count: usize) -> Result<Vec<OccurrenceId>, Fault> {
    if count == 0 {
        // A lane that was not read is not known to be empty.
        return Ok(vec![]);
    }
    let (conn, active) = (tx.conn, tx.memory.active(tx.conn)?);
    let portion = count.div_ceil(lanes.len().max(1)).max(PORTION_MIN).min(count);
    let bounds = lanes.iter().filter_map(|lane| {
        let first = active.first_queued(*lane)?;
        Some(Reverse(LaneHead { first, read: None, lane: *lane }))
    });
    let mut heads: BinaryHeap<Reverse<LaneHead>> = bounds.collect();
    let mut fronts: BTreeMap<i64, LaneFront> = BTreeMap::new();
    let mut keys = Vec::new();
    while keys.len() < count {
        let Some(Reverse(LaneHead { read, lane, .. })) = heads.pop() else { break };
        keys.extend(read);
        if keys.len() == count {
            break;
        }
        let front = fronts.entry(lane).or_insert_with(|| LaneFront::new(lane, portion));
        let next = front.next(conn)?;
        if read.is_none() {
            active.set_first_queued(lane, next);
        }
        if let Some(position) = next {
            let (first, read) = (FirstQueued::NotBefore(position), Some(position.1));
            heads.push(Reverse(LaneHead { first, read, lane }));
        }
    }
    Ok(keys)
}

/// The first execution of a lane that is not taken yet, in the order of claims.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LaneHead {
    first: FirstQueued,
    /// The key of that execution; `None` while only the bound is known because the lane has not been read.
    read: Option<OccurrenceId>,
    lane: i64,
}

pub(super) fn last_queued(
    tx: &mut Tx<'_>,
    queue: &str,
    before: readmission::QueuePosition,
    count: usize,
) -> Result<Vec<readmission::QueuePosition>, Fault> {
    let mut places = Vec::new();
    let key = before.occurrence;
    for (lane, _) in lanes_through(tx, queue)? {
        let bounds = params![lane, bound(count), before.rank, key.job.as_bytes(), key.number];
        places.extend(up_to(count, &mut *tx.conn.prepare_cached(LAST_OF_LANE)?, bounds, read_place)?);
    }
    places.sort_unstable_by(|one, other| other.cmp(one));
    places.truncate(count);
    Ok(places.into_iter().map(|(rank, occurrence)| readmission::QueuePosition { rank, occurrence }).collect())
}

/// The keys read ahead from one lane.
struct LaneFront {
    lane: i64,
    portion: usize,
    places: VecDeque<ClaimPosition>,
    last: Option<ClaimPosition>,
    is_at_end: bool,
}

impl LaneFront {
    fn new(lane: i64, portion: usize) -> Self {
        LaneFront { lane, portion, places: VecDeque::new(), last: None, is_at_end: false }
    }

    fn next(&mut self, conn: &Connection) -> Result<Option<ClaimPosition>, Fault> {
        if self.places.is_empty() && !self.is_at_end {
            self.read_on(conn)?;
        }
        Ok(self.places.pop_front())
    }

    fn read_on(&mut self, conn: &Connection) -> Result<(), Fault> {
        let bound = bound(self.portion);
        let places = match self.last {
            None => up_to(
                self.portion,
                &mut *conn.prepare_cached(FIRST_OF_LANE)?,
                params![self.lane, bound],
                read_place,
            )?,
            Some((rank, key)) => up_to(
                self.portion,
                &mut *conn.prepare_cached(NEXT_OF_LANE)?,
                params![self.lane, bound, rank, key.job.as_bytes(), key.number],
                read_place,
            )?,
        };
        self.is_at_end = places.len() < self.portion;
        self.last = places.last().copied().or(self.last);
        self.places.extend(places);
        Ok(())
    }
}

fn read_place(row: &Row<'_>) -> Result<ClaimPosition, Fault> {
    Ok((row.get(0)?, job_id(row, 1)?.occurrence(row.get(2)?)))
}
