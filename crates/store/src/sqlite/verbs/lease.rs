//! Leases that end without an outcome: work that goes back unstarted.

use super::begin::{begun, turn_of, use_turn};
use super::report::{JobTerms, Settling, terms_of};
use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{LiveRow, UPDATE_LIVE, all, limit, live_columns, one, update_live};
use punctual_core::gates::Gate;
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use punctual_core::occurrence::GivenBack;
use punctual_core::ports::{Begun, LeaseRef, Offer, Resync, ResyncOutcome};
use punctual_core::time::Timestamp;
use rusqlite::{Connection, params};
use std::collections::BTreeSet;

pub(super) const FIND_LIVE: &str =
    concat!("SELECT ", live_columns!(), " FROM live WHERE live.job = ?1 AND live.occurrence = ?2");
pub(crate) const FIRST_BEHIND: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live WHERE live.job = ?1 AND live.state = 0 AND (live.gates & ?2) = ?2 \
     ORDER BY live.occurrence LIMIT 1"
);
pub(crate) const LIVE_OF_SESSION: &str =
    concat!("SELECT ", live_columns!(), " FROM live WHERE live.session = ?1 AND live.state = 2 LIMIT ?2");

/// The open occurrence with this id.
pub(super) fn find_live(conn: &Connection, id: OccurrenceId) -> Result<Option<LiveRow>, Fault> {
    let mut select = conn.prepare_cached(FIND_LIVE)?;
    one(&mut select, params![id.job.as_bytes(), id.number], LiveRow::read)
}

/// The first occurrence of a job that waits behind this gate.
pub(super) fn first_behind(conn: &Connection, job: JobId, gate: Gate) -> Result<Option<LiveRow>, Fault> {
    let mut select = conn.prepare_cached(FIRST_BEHIND)?;
    one(&mut select, params![job.as_bytes(), gate as u8], LiveRow::read)
}

/// Up to `count` executions that a session holds.
pub(super) fn live_of_session(
    conn: &Connection,
    session: SessionId,
    count: usize,
) -> Result<Vec<LiveRow>, Fault> {
    all(&mut *conn.prepare_cached(LIVE_OF_SESSION)?, params![session.0, limit(count)], LiveRow::read)
}

pub(super) fn give_back(
    tx: &mut Tx<'_>,
    now: Timestamp,
    session: SessionId,
    leases: Vec<LeaseRef>,
) -> Result<Vec<Option<Begun>>, Fault> {
    let mut returned = Vec::with_capacity(leases.len());
    for lease in leases {
        let row = find_live(tx.conn, lease.execution.occurrence)?
            .filter(|row| row.live.held_by(session, lease.execution, lease.epoch).is_some());
        returned.push(match row {
            Some(row) => Some(return_one(tx, &row, now)?),
            None => None,
        });
    }
    Ok(returned)
}

pub(super) fn resync(tx: &mut Tx<'_>, now: Timestamp, resync: Resync) -> Result<ResyncOutcome, Fault> {
    let Some(turn) = turn_of(tx.conn, resync.session)? else { return Ok(ResyncOutcome::SessionLost) };
    if resync.turn <= turn {
        return Ok(ResyncOutcome::StaleTurn);
    }
    use_turn(tx.conn, Offer { session: resync.session, turn: resync.turn })?;
    let held: BTreeSet<LeaseRef> = resync.held.into_iter().collect();
    return_all_but(tx, resync.session, &held, now).map(ResyncOutcome::GivenBack)
}

pub(super) fn close_session(
    tx: &mut Tx<'_>,
    now: Timestamp,
    session: SessionId,
) -> Result<ResyncOutcome, Fault> {
    if turn_of(tx.conn, session)?.is_none() {
        return Ok(ResyncOutcome::SessionLost);
    }
    let begun = return_all_but(tx, session, &BTreeSet::new(), now)?;
    remove_session(tx, session)?;
    Ok(ResyncOutcome::GivenBack(begun))
}

/// Deletes the row of a session that holds nothing any more.
pub(super) fn remove_session(tx: &mut Tx<'_>, session: SessionId) -> Result<(), Fault> {
    tx.conn.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([session.0])?;
    tx.memory.workers.remove(session);
    Ok(())
}

/// Returns all that a session holds but what is named; answers with what follows from each.
fn return_all_but(
    tx: &mut Tx<'_>,
    session: SessionId,
    held: &BTreeSet<LeaseRef>,
    now: Timestamp,
) -> Result<Vec<Begun>, Fault> {
    let mut returned = Vec::new();
    for row in live_of_session(tx.conn, session, usize::MAX)? {
        let lease = LeaseRef { execution: row.live.execution(), epoch: row.live.epoch };
        if !held.contains(&lease) {
            returned.push(return_one(tx, &row, now)?);
        }
    }
    Ok(returned)
}

/// Returns one execution.
fn return_one(tx: &mut Tx<'_>, row: &LiveRow, now: Timestamp) -> Result<Begun, Fault> {
    let terms = terms_of(tx.conn, row.live.id.job)?;
    match row.live.given_back(terms.as_ref().map(JobTerms::terms), now)? {
        GivenBack::Queued(live) => {
            update_live(&mut *tx.conn.prepare_cached(UPDATE_LIVE)?, &mut tx.memory.tally, row, &live)?;
            Ok(begun(&live, &tx.memory.lanes.lane(tx.conn, row.lane)?))
        }
        GivenBack::Closed(settled) => {
            Ok(Settling::prepare(tx.conn)?.record(tx.memory, row, settled, now)?.begun)
        }
    }
}
