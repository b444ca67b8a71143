//! Leases that end without an outcome: executions that are returned unstarted.

use super::begin::effects;
use super::missing_rows::each;
use super::settle::{Recorded, record};
use super::wait_lists;
use crate::fault::Fault;
use crate::rows::{JobTerms, LiveRow, Rows};
use punctual_core::ids::SessionId;
use punctual_core::occurrence::GivenBack;
use punctual_core::ports::{CommitEffects, LeaseRef, Resync, ResyncOutcome};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

pub(super) fn give_back<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    session: SessionId,
    leases: &[LeaseRef],
) -> Result<Vec<Option<CommitEffects>>, Fault> {
    each(rows, leases, |rows, lease| {
        let row = rows.live(lease.execution.occurrence)?;
        match row.filter(|row| row.live.held_by(session, lease.execution, lease.epoch).is_some()) {
            Some(row) => return_one(rows, &row, now).map(Some),
            None => Ok(None),
        }
    })
}

pub(super) fn resync<R: Rows>(rows: &mut R, now: Timestamp, resync: &Resync) -> Result<ResyncOutcome, Fault> {
    let Some(place) = rows.session(resync.session)? else { return Ok(ResyncOutcome::SessionLost) };
    if resync.turn <= place.turn {
        return Ok(ResyncOutcome::StaleTurn);
    }
    rows.set_turn(resync.session, resync.turn)?;
    let held: BTreeSet<LeaseRef> = resync.held.iter().copied().collect();
    return_all_but(rows, resync.session, &held, now).map(ResyncOutcome::GivenBack)
}

pub(super) fn close_session<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    session: SessionId,
) -> Result<ResyncOutcome, Fault> {
    if rows.session(session)?.is_none() {
        return Ok(ResyncOutcome::SessionLost);
    }
    let effects = return_all_but(rows, session, &BTreeSet::new(), now)?;
    rows.delete_session(session)?;
    Ok(ResyncOutcome::GivenBack(effects))
}

/// Returns everything that a session holds to its queues, except the named executions. The result contains the commit
/// effects of each.
fn return_all_but<R: Rows>(
    rows: &mut R,
    session: SessionId,
    held: &BTreeSet<LeaseRef>,
    now: Timestamp,
) -> Result<Vec<CommitEffects>, Fault> {
    let mut returned = rows.held_by(session, usize::MAX)?;
    returned
        .retain(|row| !held.contains(&LeaseRef { execution: row.live.execution(), epoch: row.live.epoch }));
    each(rows, &returned, |rows, row| return_one(rows, row, now))
}

/// Returns one execution to its queue.
fn return_one<R: Rows>(rows: &mut R, row: &LiveRow, now: Timestamp) -> Result<CommitEffects, Fault> {
    let terms = rows.terms_of(row.live.id.job)?;
    match row.live.given_back(terms.as_ref().map(JobTerms::terms), now)? {
        GivenBack::Queued(live) => {
            let lane = rows.lane(row.lane)?;
            let key = terms.as_ref().and_then(|terms| terms.settings.concurrency_key.as_deref());
            let live = wait_lists::stay_admitted(rows, live, &lane, key)?;
            let freed = if live.counts_for_queue() { vec![] } else { wait_lists::freed(rows, row)? };
            rows.update_live(row, &live)?;
            Ok(CommitEffects { freed, ..effects(&live, &lane) })
        }
        GivenBack::Closed(settled) => {
            let id = settled.finished.id;
            let Recorded { status, mut effects, .. } = record(rows, row, settled, now)?;
            effects.ended.push((id, status));
            Ok(effects)
        }
    }
}
