//! What people do to jobs: what stands is read, the rules say what changes, and that is written.

use super::begin::{begun, schedule_due};
use super::dependents::FORGET_PARENTS;
use super::fire::{SCHEDULE_OF_JOB, record_skips};
use super::keys;
use super::lease::find_live;
use super::notes;
use super::report::{JobTerms, Settling, follow, terms_of};
use super::tags;
use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::reads::{DEAD_LETTER, IS_DELETED, JOB, LATEST_DEAD_LETTER, OPEN_OF_JOB, read_dead_letter};
use crate::sqlite::rows::{
    FORGET_SOLE, INSERT_LIVE, JobRow, LiveRow, PUT_SCHEDULE, REPLACE_LIVE, ScheduleRow, UPDATE_JOB,
    UPDATE_LIVE, all, insert_live, limit, one, put_schedule, replace_live, update_in_state, write_job,
};
use crate::sqlite::tally;
use punctual_core::control::{Change, LiveChange, Refusal, ScheduleChange, Standing, Verb};
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};
use punctual_core::job::JobMark;
use punctual_core::limits;
use punctual_core::occurrence::{Cancelled, Live, LiveState, Ties};
use punctual_core::ports::{Begun, CancelOutcome, Control, ControlOutcome, Controlled, DeadLetter};
use punctual_core::time::Timestamp;
use rusqlite::{Connection, params};

pub(super) fn control(
    tx: &mut Tx<'_>,
    now: Timestamp,
    controls: Vec<Control>,
) -> Result<Vec<ControlOutcome>, Fault> {
    controls.into_iter().map(|control| control_one(tx, now, control)).collect()
}

fn control_one(tx: &mut Tx<'_>, now: Timestamp, control: Control) -> Result<ControlOutcome, Fault> {
    let Some((standing, lane)) = standing(tx, control.job)? else { return Ok(ControlOutcome::NotThere) };
    let dead = match control.verb {
        Verb::Retry => latest_dead_letter(tx, control.job)?,
        _ => None,
    };
    let change = standing.apply(&control.verb, dead.as_ref(), now);
    let outcome = carry_out(tx, &standing, lane, change, now)?;
    if let ControlOutcome::Done(_) = outcome {
        match (&control.verb, dead) {
            (Verb::Retry, Some(dead)) => {
                unbury(tx, dead.occurrence)?;
            }
            (Verb::Delete, _) => forget(tx, control.job)?,
            _ => {}
        }
    }
    Ok(outcome)
}

pub(super) fn redrive(
    tx: &mut Tx<'_>,
    now: Timestamp,
    dead: Vec<OccurrenceId>,
) -> Result<Vec<ControlOutcome>, Fault> {
    dead.into_iter().map(|id| redrive_one(tx, now, id)).collect()
}

fn redrive_one(tx: &mut Tx<'_>, now: Timestamp, id: OccurrenceId) -> Result<ControlOutcome, Fault> {
    let Some(dead) = dead_letter(tx, id)? else { return Ok(ControlOutcome::NotThere) };
    let Some((standing, lane)) = standing(tx, id.job)? else { return Ok(ControlOutcome::NotThere) };
    let outcome = carry_out(tx, &standing, lane, standing.redriven(&dead, now), now)?;
    if let ControlOutcome::Done(_) = outcome {
        unbury(tx, id)?;
    }
    Ok(outcome)
}

pub(super) fn discard(tx: &mut Tx<'_>, dead: Vec<OccurrenceId>) -> Result<Vec<bool>, Fault> {
    let mut discard_one = |id: OccurrenceId| {
        let was_there = unbury(tx, id)?;
        if was_there {
            notes::forget(tx.conn, id)?;
        }
        Ok(was_there)
    };
    dead.into_iter().map(&mut discard_one).collect()
}

pub(super) fn cancel(
    tx: &mut Tx<'_>,
    now: Timestamp,
    executions: Vec<ExecutionId>,
) -> Result<Vec<CancelOutcome>, Fault> {
    executions.into_iter().map(|execution| cancel_one(tx, now, execution)).collect()
}

fn cancel_one(tx: &mut Tx<'_>, now: Timestamp, execution: ExecutionId) -> Result<CancelOutcome, Fault> {
    let id = execution.occurrence;
    if tx.conn.prepare_cached(IS_DELETED)?.exists([id.job.as_bytes()])? {
        return Ok(CancelOutcome::NotThere);
    }
    let Some(row) = find_live(tx.conn, id)?.filter(|row| row.live.attempt == execution.attempt) else {
        let mut select = tx
            .conn
            .prepare_cached("SELECT 1 FROM history WHERE job = ?1 AND occurrence = ?2 AND attempt = ?3")?;
        let is_there = select.exists(params![id.job.as_bytes(), id.number, execution.attempt])?;
        return Ok(if is_there { CancelOutcome::Finished } else { CancelOutcome::NotThere });
    };
    let terms = terms_of(tx.conn, id.job)?;
    Ok(match row.live.cancelled(terms.as_ref().map(JobTerms::terms), now) {
        // It was asked before.
        Err(_) => CancelOutcome::Asked,
        Ok(Cancelled::Requested(live)) => {
            ask_to_stop(tx.conn, &live)?;
            CancelOutcome::Asked
        }
        Ok(Cancelled::Closed(settled)) => {
            let recorded = Settling::prepare(tx.conn)?.record(tx.memory, &row, settled, now)?;
            CancelOutcome::Cancelled(recorded.begun)
        }
    })
}

/// Writes the request to stop, and lets the session's next beat look for it.
pub(super) fn ask_to_stop(conn: &Connection, live: &Live) -> Result<(), Fault> {
    update_in_state(&mut *conn.prepare_cached(UPDATE_LIVE)?, live)?;
    if let LiveState::Running(lease) = live.state {
        conn.prepare_cached("UPDATE sessions SET attention = 1 WHERE id = ?1")?.execute([lease.session.0])?;
    }
    Ok(())
}

/// All that is open of a job, in the order of the occurrences' numbers.
pub(super) fn open_of_job(conn: &Connection, job: JobId) -> Result<Vec<LiveRow>, Fault> {
    let bounds = params![job.as_bytes(), limit(limits::MAX_OPEN_MAX as usize + 1)];
    let mut open = all(&mut *conn.prepare_cached(OPEN_OF_JOB)?, bounds, LiveRow::read)?;
    open.reverse();
    Ok(open)
}

/// The job with all that belongs to it, and the number of its lane.
fn standing(tx: &mut Tx<'_>, id: JobId) -> Result<Option<(Standing, i64)>, Fault> {
    let key = [id.as_bytes()];
    let Some(row) = one(&mut *tx.conn.prepare_cached(JOB)?, key, JobRow::read)? else { return Ok(None) };
    let lane_id = row.lane;
    let lane = tx.memory.lanes.lane(tx.conn, lane_id)?;
    let job = row.named(&lane);
    if job.mark == JobMark::Deleted {
        return Ok(None);
    }
    let schedule = one(&mut *tx.conn.prepare_cached(SCHEDULE_OF_JOB)?, key, ScheduleRow::read)?;
    let open = open_of_job(tx.conn, id)?.into_iter().map(|row| row.live).collect();
    Ok(Some((Standing { job, schedule: schedule.map(|row| row.named(&lane)), open }, lane_id)))
}

fn carry_out(
    tx: &mut Tx<'_>,
    standing: &Standing,
    lane: i64,
    change: Result<Change, Refusal>,
    now: Timestamp,
) -> Result<ControlOutcome, Fault> {
    let change = match change {
        Ok(change) => change,
        Err(refusal) => return Ok(ControlOutcome::Refused(refusal)),
    };
    if is_revived(standing, &change) {
        if let Some(rival) = keys::rival(tx.conn, &standing.job)? {
            return Ok(ControlOutcome::Refused(Refusal::KeyTaken(rival)));
        }
        keys::hold(tx.conn, &standing.job)?;
    }
    write(tx, standing, lane, change, now).map(ControlOutcome::Done)
}

/// Whether a finished job becomes unfinished.
fn is_revived(standing: &Standing, change: &Change) -> bool {
    let was_finished = standing.schedule.is_none() && standing.open.is_empty();
    let adds = change.live.iter().any(|change| matches!(change, LiveChange::Add(_)));
    was_finished && (adds || matches!(change.schedule, ScheduleChange::Put(_)))
}

fn write(
    tx: &mut Tx<'_>,
    standing: &Standing,
    old_lane: i64,
    change: Change,
    now: Timestamp,
) -> Result<Controlled, Fault> {
    let id = standing.job.id;
    tx.conn.prepare_cached(FORGET_SOLE)?.execute([id.as_bytes()])?;
    let job = change.job.as_ref().unwrap_or(&standing.job);
    let (lane_id, lane) = tx.memory.lanes.intern(tx.conn, &job.spec.queue, &job.spec.job_type)?;
    let mut controlled = Controlled {
        begun: Begun::default(),
        version: job.version,
        added: None,
        asked: vec![],
        skipped: change.skipped.map_or(0, |range| range.count),
    };
    if let Some(job) = &change.job {
        write_job(&mut *tx.conn.prepare_cached(UPDATE_JOB)?, job, lane_id)?;
        if job.spec.settings.tags != standing.job.spec.settings.tags {
            tags::replace(tx.conn, job.id, &job.spec.settings.tags)?;
        }
    }
    if let (Some(range), Some(schedule)) = (change.skipped, &standing.schedule) {
        record_skips(tx.conn, schedule, &[range])?;
    }
    match &change.schedule {
        ScheduleChange::Keep => {}
        ScheduleChange::Put(state) => {
            put_schedule(&mut *tx.conn.prepare_cached(PUT_SCHEDULE)?, state, lane_id)?;
            controlled.begun.due.extend(schedule_due(state, &lane));
        }
        ScheduleChange::Remove => {
            tx.conn.prepare_cached("DELETE FROM schedules WHERE job = ?1")?.execute([id.as_bytes()])?;
        }
    }
    if lane_id != old_lane {
        let moved = tx
            .conn
            .prepare_cached("UPDATE live SET lane = ?2 WHERE job = ?1")?
            .execute(params![id.as_bytes(), lane_id])?;
        controlled.begun.queued.extend((moved > 0).then(|| lane.clone()));
        for live in &standing.open {
            tx.memory.tally.moved((old_lane, live.state), (lane_id, live.state));
        }
    }
    // What a schedule that goes was awaited for, nobody will bring about.
    let is_gone = change.schedule == ScheduleChange::Remove;
    let awaited = is_gone && standing.schedule.as_ref().is_some_and(|schedule| schedule.awaited);
    let mut ties = Ties { awaited, ..Ties::default() };
    for one in change.live {
        match one {
            LiveChange::Add(live) => {
                let row = LiveRow { live, lane: lane_id, is_sole: false };
                insert_live(&mut *tx.conn.prepare_cached(INSERT_LIVE)?, &mut tx.memory.tally, &row)?;
                let live = row.live;
                controlled.added = Some(live.execution());
                controlled.begun.add(begun(&live, &lane));
            }
            LiveChange::Put(live) => {
                let was = standing.open.iter().find(|open| open.id == live.id);
                let was = was.ok_or_else(|| Fault::Missing(format!("live row of {}", live.id)))?.state;
                let row = LiveRow { live, lane: lane_id, is_sole: false };
                replace_live(&mut *tx.conn.prepare_cached(REPLACE_LIVE)?, &mut tx.memory.tally, was, &row)?;
                let live = row.live;
                controlled.begun.add(begun(&live, &lane));
                if let LiveState::Running(lease) = live.state
                    && lease.cancel_requested
                {
                    ask_to_stop(tx.conn, &live)?;
                    controlled.asked.push(live.execution());
                }
            }
            LiveChange::Close(live, settled) => {
                controlled.begun.ended.push((settled.finished.id, settled.finished.status));
                ties.followed |= live.ties.followed;
                ties.awaited |= live.ties.awaited;
                let row = LiveRow { live, lane: lane_id, is_sole: false };
                Settling::prepare(tx.conn)?.write(tx.memory, &row, settled, now)?;
            }
        }
    }
    tx.memory.tally.job(Some(standing.status()), tally::status_of(tx.conn, id)?);
    controlled.begun.add(follow(tx, id, ties, false, now)?);
    Ok(controlled)
}

/// Deletes a dead letter; whether it was there.
fn unbury(tx: &mut Tx<'_>, id: OccurrenceId) -> Result<bool, Fault> {
    let mut delete = tx.conn.prepare_cached("DELETE FROM dead_letters WHERE job = ?1 AND occurrence = ?2")?;
    let gone = delete.execute(params![id.job.as_bytes(), id.number])?;
    tx.memory.tally.dead_letters(-(gone as i64));
    Ok(gone > 0)
}

/// What a deleted job leaves to others at once: its keys, its dead letters with their notes, its place among the
/// waiting.
pub(super) fn forget(tx: &mut Tx<'_>, job: JobId) -> Result<(), Fault> {
    keys::free(tx.conn, job)?;
    let dead =
        tx.conn.prepare_cached("DELETE FROM dead_letters WHERE job = ?1")?.execute([job.as_bytes()])?;
    tx.memory.tally.dead_letters(-(dead as i64));
    tx.conn.prepare_cached(FORGET_PARENTS)?.execute([job.as_bytes()])?;
    notes::forget_job(tx.conn, job)
}

fn dead_letter(tx: &mut Tx<'_>, id: OccurrenceId) -> Result<Option<DeadLetter>, Fault> {
    let mut select = tx.conn.prepare_cached(DEAD_LETTER)?;
    one(&mut select, params![id.job.as_bytes(), id.number], |row| {
        read_dead_letter(row, tx.conn, &mut tx.memory.lanes)
    })
}

fn latest_dead_letter(tx: &mut Tx<'_>, job: JobId) -> Result<Option<DeadLetter>, Fault> {
    let mut select = tx.conn.prepare_cached(LATEST_DEAD_LETTER)?;
    one(&mut select, [job.as_bytes()], |row| read_dead_letter(row, tx.conn, &mut tx.memory.lanes))
}
