//! Jobs that depend on others. The end of a job on which others depend leaves a row in `resolutions`; its
//! children are told in the same transaction, as many as fit, and the rest by whoever resolves next.

use super::begin::begun;
use super::fire::SCHEDULE_OF_JOB;
use super::keys::is_unfinished;
use super::lease::first_behind;
use super::report::{JobTerms, Settling, open_next_in_line, terms_of};
use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{
    LiveRow, ScheduleRow, TIE_AWAITED, UPDATE_LIVE, all, decode, job_id, limit, one, schedule_type,
    update_live,
};
use crate::sqlite::tally;
use punctual_core::defects::{Defect, planted};
use punctual_core::dependencies::{self, Parent, Parents};
use punctual_core::gates::Gate;
use punctual_core::ids::JobId;
use punctual_core::occurrence::Ties;
use punctual_core::ports::{Begun, ParentProblem, Resolved};
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use rusqlite::{Connection, params};

pub(crate) const CHILDREN: &str = "SELECT child FROM dependencies WHERE parent = ?1 LIMIT ?2";
pub(crate) const HAS_PARENT: &str = "SELECT 1 FROM dependencies WHERE child = ?1";
pub(crate) const FORGET_PARENTS: &str = "DELETE FROM dependencies WHERE child = ?1";

pub(super) fn parents_of(
    conn: &Connection,
    depends_on: &[JobId],
) -> Result<Result<Parents, (JobId, ParentProblem)>, Fault> {
    let mut found = Vec::with_capacity(depends_on.len());
    for id in depends_on {
        let mut select = conn.prepare_cached("SELECT mark, schedule_type FROM jobs WHERE id = ?1")?;
        let parent = one(&mut select, [id.as_bytes()], |row| {
            Ok(Parent {
                id: *id,
                mark: decode(row, 0, "jobs.mark")?,
                is_one_shot: row.get::<_, i64>(1)? != schedule_type::RECURRING,
                is_unfinished: is_unfinished(conn, *id)?,
            })
        })?;
        found.push(parent.ok_or(*id));
    }
    Ok(dependencies::parents(found))
}

/// Lets a child wait for its unfinished parents, and the parents know.
pub(super) fn tie(conn: &Connection, child: JobId, parents: &[JobId]) -> Result<(), Fault> {
    for parent in parents {
        conn.prepare_cached("INSERT INTO dependencies (parent, child) VALUES (?1, ?2)")?
            .execute(params![parent.as_bytes(), child.as_bytes()])?;
        conn.prepare_cached("UPDATE schedules SET ties = ties | ?2 WHERE job = ?1")?
            .execute(params![parent.as_bytes(), TIE_AWAITED])?;
        // Whichever of its occurrences ends last will tell.
        let awaited = Ties { awaited: true, ..Ties::default() };
        conn.prepare_cached("UPDATE live SET ties = ties | ?2 WHERE job = ?1")?
            .execute(params![parent.as_bytes(), awaited.bits()])?;
    }
    Ok(())
}

/// Whether a job that this one depends on is unfinished, or its end has not been told yet.
pub(super) fn waits_for_parents(conn: &Connection, child: JobId) -> Result<bool, Fault> {
    Ok(conn.prepare_cached(HAS_PARENT)?.exists([child.as_bytes()])?)
}

/// Notes that an occurrence of a job on which others depend has ended.
pub(super) fn ended(conn: &Connection, parent: JobId, succeeded: bool) -> Result<(), Fault> {
    if dependencies::is_told(succeeded, is_unfinished(conn, parent)?) {
        conn.prepare_cached(
            "INSERT INTO resolutions (parent, succeeded) VALUES (?1, ?2) ON CONFLICT (parent) DO NOTHING",
        )?
        .execute(params![parent.as_bytes(), succeeded])?;
    }
    Ok(())
}

/// Tells up to `count` children of finished jobs, and theirs in turn.
pub(super) fn resolve(tx: &mut Tx<'_>, now: Timestamp, count: usize) -> Result<Resolved, Fault> {
    let mut resolved = Resolved::default();
    while let Some((parent, succeeded)) = next_resolution(tx.conn)? {
        let left = count - resolved.dependents;
        let children = children(tx.conn, parent, left.saturating_add(1))?;
        for child in children.iter().take(left) {
            tell(tx, parent, *child, succeeded, now, &mut resolved.begun)?;
        }
        resolved.dependents += children.len().min(left);
        if children.len() > left {
            resolved.more = true;
            break;
        }
        tx.conn.prepare_cached("DELETE FROM resolutions WHERE parent = ?1")?.execute([parent.as_bytes()])?;
    }
    Ok(resolved)
}

fn next_resolution(conn: &Connection) -> Result<Option<(JobId, bool)>, Fault> {
    let mut select = conn.prepare_cached("SELECT parent, succeeded FROM resolutions LIMIT 1")?;
    one(&mut select, [], |row| Ok((job_id(row, 0)?, row.get(1)?)))
}

fn children(conn: &Connection, parent: JobId, count: usize) -> Result<Vec<JobId>, Fault> {
    let mut select = conn.prepare_cached(CHILDREN)?;
    all(&mut select, params![parent.as_bytes(), limit(count)], |row| job_id(row, 0))
}

fn tell(
    tx: &mut Tx<'_>,
    parent: JobId,
    child: JobId,
    succeeded: bool,
    now: Timestamp,
    all_begun: &mut Begun,
) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("DELETE FROM dependencies WHERE parent = ?1 AND child = ?2")?
        .execute(params![parent.as_bytes(), child.as_bytes()])?;
    if !succeeded {
        return skip(tx, child, parent, now, all_begun);
    }
    if waits_for_parents(tx.conn, child)? && !planted(Defect::ReleaseByAnyParent) {
        return Ok(());
    }
    // A child that is not due yet finds out when it is fired.
    let Some(row) = first_behind(tx.conn, child, Gate::Dependency)? else { return Ok(()) };
    let opened = row.live.gate_opened(Gate::Dependency, now)?;
    update_live(&mut *tx.conn.prepare_cached(UPDATE_LIVE)?, &mut tx.memory.tally, &row, &opened)?;
    all_begun.add(begun(&opened, &tx.memory.lanes.lane(tx.conn, row.lane)?));
    Ok(())
}

/// A child of a job that did not succeed will not run.
pub(super) fn skip(
    tx: &mut Tx<'_>,
    child: JobId,
    parent: JobId,
    now: Timestamp,
    begun: &mut Begun,
) -> Result<(), Fault> {
    tx.conn.prepare_cached(FORGET_PARENTS)?.execute([child.as_bytes()])?;
    let before = tally::status_of(tx.conn, child)?;
    let Some(row) = unstarted(tx, child, now)? else { return Ok(()) };
    let terms = terms_of(tx.conn, child)?;
    let why = format!("job {parent}, on which it depended, did not succeed");
    let terms = terms.as_ref().map(JobTerms::terms);
    let settled = row.live.skipped(SkipReason::Dependency, why, terms, now)?;
    begun.ended.push((settled.finished.id, settled.finished.status));
    Settling::prepare(tx.conn)?.write(tx.memory, &row, settled, now)?;
    tx.memory.tally.job(before, tally::status_of(tx.conn, child)?);
    if row.live.ties.followed {
        begun.add(open_next_in_line(tx, child, now)?);
    }
    if row.live.ties.awaited {
        ended(tx.conn, child, false)?;
    }
    Ok(())
}

/// The one occurrence of a child, be it open or still to come; in the latter case its schedule goes.
fn unstarted(tx: &mut Tx<'_>, child: JobId, now: Timestamp) -> Result<Option<LiveRow>, Fault> {
    if let Some(row) = first_behind(tx.conn, child, Gate::Dependency)? {
        return Ok(Some(row));
    }
    let mut select = tx.conn.prepare_cached(SCHEDULE_OF_JOB)?;
    let Some(row) = one(&mut select, [child.as_bytes()], ScheduleRow::read)? else { return Ok(None) };
    let lane_id = row.lane;
    let lane = tx.memory.lanes.lane(tx.conn, lane_id)?;
    let live = row.named(&lane).unfired(now);
    tx.conn.prepare_cached("DELETE FROM schedules WHERE job = ?1")?.execute([child.as_bytes()])?;
    if live.id.number > 1 {
        tx.conn
            .prepare_cached("UPDATE jobs SET numbered = ?2 WHERE id = ?1")?
            .execute(params![child.as_bytes(), live.id.number])?;
    }
    Ok(Some(LiveRow { live, lane: lane_id, is_sole: false }))
}
