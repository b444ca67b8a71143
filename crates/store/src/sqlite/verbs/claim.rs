//! Claiming: the lowest ranks across all lanes that a worker serves.

use super::begin::{JobFacts, assignment, job_facts_columns, place_of, use_turn};
use super::notes::checkpoint_of;
use super::report::{JobTerms, Settling, terms_of};
use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{
    LIVE_COLUMNS, LiveRow, UPDATE_LIVE, all, job_id, limit, live_columns, one, settings_columns, update_live,
};
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::OccurrenceId;
use punctual_core::limits;
use punctual_core::ports::{Assignment, Begun, Claim, ClaimOutcome, Offer};
use punctual_core::time::Timestamp;
use rusqlite::{Connection, Row, params};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::VecDeque;

/// Keys are read from a lane in portions of at least this many, so that a small claim over many lanes does not
/// read the whole claim from each of them.
const PORTION_MIN: usize = 16;

/// Times that a claim looks again because something it found had expired.
const EXPIRED_ROUNDS_MAX: usize = 8;

/// Lanes that are asked one by one; of more, those with work are looked for first.
const LANES_ASKED_MAX: usize = 64;

pub(crate) const NEXT_LANE_WITH_WORK: &str =
    "SELECT lane FROM live WHERE state = 1 AND lane > ?1 ORDER BY lane LIMIT 1";
pub(crate) const FIRST_OF_LANE: &str = "SELECT rank, job, occurrence FROM live WHERE lane = ?1 AND state = 1 ORDER BY rank, job, occurrence LIMIT ?2";
pub(crate) const NEXT_OF_LANE: &str = "SELECT rank, job, occurrence FROM live WHERE lane = ?1 AND state = 1 \
     AND (rank, job, occurrence) > (?3, ?4, ?5) ORDER BY rank, job, occurrence LIMIT ?2";
const EXECUTION: &str = concat!(
    "SELECT ",
    live_columns!(),
    ", ",
    job_facts_columns!(),
    " FROM live JOIN jobs ON jobs.id = live.job WHERE live.job = ?1 AND live.occurrence = ?2"
);

pub(super) fn claim(tx: &mut Tx<'_>, now: Timestamp, claims: Vec<Claim>) -> Result<Vec<ClaimOutcome>, Fault> {
    claims.into_iter().map(|claim| claim_one(tx, now, claim)).collect()
}

fn claim_one(tx: &mut Tx<'_>, now: Timestamp, claim: Claim) -> Result<ClaimOutcome, Fault> {
    let Some((turn, mode)) = place_of(tx.conn, claim.session)? else { return Ok(ClaimOutcome::SessionLost) };
    if claim.turn <= turn && !planted(Defect::DropTurn) {
        return Ok(ClaimOutcome::StaleTurn);
    }
    if !mode.gets_work() && !planted(Defect::ClaimWhilePaused) {
        return Ok(ClaimOutcome::Claimed { assignments: vec![], begun: Begun::default() });
    }
    let mut lanes = tx.memory.lanes.matching(tx.conn, &claim.queues, &claim.job_types)?;
    if lanes.len() > LANES_ASKED_MAX {
        lanes = with_work(tx.conn, &lanes)?;
    }
    let lanes = without_paused(tx, lanes)?;
    let limit = claim.limit.min(limits::POLL_CAPACITY_MAX);
    let mut taken = Taken::default();
    // What has expired makes room for what comes after it.
    let mut expired = 0;
    for _ in 0..EXPIRED_ROUNDS_MAX {
        let wanted = limit - taken.assignments.len();
        let keys = lowest(tx.conn, &lanes, wanted)?;
        expired = lease(tx, now, &claim, &keys, &mut taken)?;
        if expired == 0 {
            break;
        }
    }
    if expired > 0 {
        // There may be more behind what has expired: whoever asked is to ask again.
        for lane in &lanes {
            taken.begun.queued.push(tx.memory.lanes.lane(tx.conn, *lane)?);
        }
    }
    if !taken.assignments.is_empty() {
        use_turn(tx.conn, Offer { session: claim.session, turn: claim.turn })?;
    }
    Ok(ClaimOutcome::Claimed { assignments: taken.assignments, begun: taken.begun })
}

/// What a claim has brought so far.
#[derive(Default)]
struct Taken {
    assignments: Vec<Assignment>,
    begun: Begun,
}

fn without_paused(tx: &mut Tx<'_>, lanes: Vec<i64>) -> Result<Vec<i64>, Fault> {
    let mut open = Vec::with_capacity(lanes.len());
    for id in lanes {
        let lane = tx.memory.lanes.lane(tx.conn, id)?;
        if !tx.memory.queues.is_paused(tx.conn, lane.queue())? {
            open.push(id);
        }
    }
    Ok(open)
}

/// Those of the lanes that have anything queued, found by leaping through the claim index from lane to lane: what
/// is empty costs nothing, however many lanes have ever been used.
fn with_work(conn: &Connection, lanes: &[i64]) -> Result<Vec<i64>, Fault> {
    let mut select = conn.prepare_cached(NEXT_LANE_WITH_WORK)?;
    let mut found = Vec::new();
    let mut last = i64::MIN;
    while let Some(lane) = one(&mut select, [last], |row| Ok(row.get::<_, i64>(0)?))? {
        if lanes.binary_search(&lane).is_ok() {
            found.push(lane);
        }
        last = lane;
    }
    Ok(found)
}

/// Leases these executions, but for those that have expired: they end here, and how many they were is returned.
fn lease(
    tx: &mut Tx<'_>,
    now: Timestamp,
    claim: &Claim,
    keys: &[OccurrenceId],
    taken: &mut Taken,
) -> Result<usize, Fault> {
    let mut expired = 0;
    let mut select = tx.conn.prepare_cached(EXECUTION)?;
    let mut update = tx.conn.prepare_cached(UPDATE_LIVE)?;
    taken.assignments.reserve(keys.len());
    for key in keys {
        let read = |row: &Row<'_>| {
            let found = LiveRow::read(row)?;
            let lane = tx.memory.lanes.lane(tx.conn, found.lane)?;
            let facts = JobFacts::read(row, LIVE_COLUMNS, &lane)?;
            Ok((found, lane, facts))
        };
        let found = one(&mut select, params![key.job.as_bytes(), key.number], read)?;
        let (row, lane, facts) = found.ok_or_else(|| Fault::Missing(format!("job of {key}")))?;
        if row.live.is_expired(now) && !planted(Defect::ClaimExpired) {
            let terms = terms_of(tx.conn, key.job)?;
            let settled = row.live.expired(terms.as_ref().map(JobTerms::terms), now)?;
            taken.begun.add(Settling::prepare(tx.conn)?.record(tx.memory, &row, settled, now)?.begun);
            expired += 1;
            continue;
        }
        let claimed = row.live.claimed(claim.session, facts.version, now)?;
        update_live(&mut update, &mut tx.memory.tally, &row, &claimed)?;
        let checkpoint = checkpoint_of(tx.conn, &claimed)?;
        taken.assignments.push(assignment(&claimed, &lane, facts, checkpoint));
    }
    Ok(expired)
}

/// The place of an execution in the claim order. Equal ranks go by key, so that every run agrees.
type Place = (i64, OccurrenceId);

/// The first `count` executions in claim order over all these lanes.
fn lowest(conn: &Connection, lanes: &[i64], count: usize) -> Result<Vec<OccurrenceId>, Fault> {
    let portion = count.div_ceil(lanes.len().max(1)).max(PORTION_MIN).min(count);
    let mut fronts = Vec::with_capacity(lanes.len());
    let mut heads = BinaryHeap::with_capacity(lanes.len());
    for lane in lanes {
        let mut front =
            LaneFront { lane: *lane, portion, places: VecDeque::new(), last: None, is_at_end: false };
        if let Some(place) = front.next(conn)? {
            heads.push(Reverse((place, fronts.len())));
        }
        fronts.push(front);
    }
    let mut keys = Vec::new();
    while keys.len() < count {
        let Some(Reverse(((_, key), at))) = heads.pop() else { break };
        keys.push(key);
        if keys.len() < count
            && let Some(place) = fronts[at].next(conn)?
        {
            heads.push(Reverse((place, at)));
        }
    }
    Ok(keys)
}

/// What has been read ahead of one lane.
struct LaneFront {
    lane: i64,
    portion: usize,
    places: VecDeque<Place>,
    last: Option<Place>,
    is_at_end: bool,
}

impl LaneFront {
    fn next(&mut self, conn: &Connection) -> Result<Option<Place>, Fault> {
        if self.places.is_empty() && !self.is_at_end {
            self.read_on(conn)?;
        }
        Ok(self.places.pop_front())
    }

    fn read_on(&mut self, conn: &Connection) -> Result<(), Fault> {
        let bound = limit(self.portion);
        let places = match self.last {
            None => all(&mut *conn.prepare_cached(FIRST_OF_LANE)?, params![self.lane, bound], read_place)?,
            Some((rank, key)) => all(
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

fn read_place(row: &Row<'_>) -> Result<Place, Fault> {
    Ok((row.get(0)?, job_id(row, 1)?.occurrence(row.get(2)?)))
}
