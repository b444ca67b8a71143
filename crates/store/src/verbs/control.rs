//! Control verbs on jobs: read the current state, ask the rules for the changes, and write them.

use super::begin::{effects, schedule_due};
use super::fire::record_skips;
use super::missing_rows::each;
use super::settle::{self, follow, record};
use super::{keys, wait_lists};
use crate::fault::Fault;
use crate::rows::{JobTerms, LiveRow, Rows};
use punctual_core::control::{Change, LiveChange, LoadedJob, Refusal, ScheduleChange, Verb};
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};
use punctual_core::job::{Job, StoredStatus};
use punctual_core::occurrence::{Cancelled, Live, LiveState, OccurrenceFlags};
use punctual_core::ports::{CancelOutcome, CommitEffects, Control, ControlOutcome, Controlled, Lane};
use punctual_core::time::Timestamp;

pub(super) fn control<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    controls: &[Control],
) -> Result<Vec<ControlOutcome>, Fault> {
    each(rows, controls, |rows, control| control_one(rows, now, control))
}

fn control_one<R: Rows>(rows: &mut R, now: Timestamp, control: &Control) -> Result<ControlOutcome, Fault> {
    let Some((standing, lane)) = standing(rows, control.job)? else { return Ok(ControlOutcome::NotThere) };
    let dead = match control.verb {
        Verb::Retry => rows.latest_dead_letter(control.job)?,
        _ => None,
    };
    let change = standing.apply(&control.verb, dead.as_ref(), now);
    let outcome = carry_out(rows, &standing, lane, change, now)?;
    if let ControlOutcome::Done(_) = outcome {
        match (&control.verb, dead) {
            (Verb::Retry, Some(dead)) => {
                rows.delete_dead_letter(dead.occurrence)?;
            }
            (Verb::Delete, _) => forget(rows, control.job)?,
            _ => {}
        }
    }
    Ok(outcome)
}

pub(super) fn redrive<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    dead: &[OccurrenceId],
) -> Result<Vec<ControlOutcome>, Fault> {
    each(rows, dead, |rows, id| redrive_one(rows, now, *id))
}

fn redrive_one<R: Rows>(rows: &mut R, now: Timestamp, id: OccurrenceId) -> Result<ControlOutcome, Fault> {
    let Some(dead) = rows.dead_letter(id)? else { return Ok(ControlOutcome::NotThere) };
    let Some((standing, lane)) = standing(rows, id.job)? else { return Ok(ControlOutcome::NotThere) };
    let outcome = carry_out(rows, &standing, lane, standing.redriven(&dead, now), now)?;
    if let ControlOutcome::Done(_) = outcome {
        rows.delete_dead_letter(id)?;
    }
    Ok(outcome)
}

pub(super) fn discard<R: Rows>(rows: &mut R, dead: &[OccurrenceId]) -> Result<Vec<bool>, Fault> {
    each(rows, dead, |rows, id| {
        let was_there = rows.delete_dead_letter(*id)?;
        if was_there {
            rows.forget_notes(*id)?;
        }
        Ok(was_there)
    })
}

pub(super) fn cancel<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    executions: &[ExecutionId],
) -> Result<Vec<CancelOutcome>, Fault> {
    each(rows, executions, |rows, execution| cancel_one(rows, now, *execution))
}

fn cancel_one<R: Rows>(rows: &mut R, now: Timestamp, execution: ExecutionId) -> Result<CancelOutcome, Fault> {
    let id = execution.occurrence;
    if rows.mark_of(id.job)? == Some(StoredStatus::Deleted) {
        return Ok(CancelOutcome::NotThere);
    }
    let Some(row) = rows.live(id)?.filter(|row| row.live.attempt == execution.attempt) else {
        let has_ended = rows.ended(execution)?.is_some();
        return Ok(if has_ended { CancelOutcome::Finished } else { CancelOutcome::NotThere });
    };
    let terms = rows.terms_of(id.job)?;
    Ok(match row.live.cancelled(terms.as_ref().map(JobTerms::terms), now) {
        // The cancel was requested before.
        Err(_) => CancelOutcome::Asked,
        Ok(Cancelled::Requested(live)) => {
            ask_to_stop(rows, &live)?;
            CancelOutcome::Asked
        }
        Ok(Cancelled::Closed(settled)) => CancelOutcome::Cancelled(record(rows, &row, settled, now)?.effects),
    })
}

/// Writes the cancel request, and sets the session's attention so that its next heartbeat finds the
/// request.
pub(super) fn ask_to_stop<R: Rows>(rows: &mut R, live: &Live) -> Result<(), Fault> {
    rows.update_live_in_state(live)?;
    if let LiveState::Running(lease) = live.state {
        rows.set_attention(lease.session, true)?;
    }
    Ok(())
}

/// The job with everything that belongs to it, and the number of its lane.
fn standing<R: Rows>(rows: &mut R, id: JobId) -> Result<Option<(LoadedJob, i64)>, Fault> {
    let found = rows.job(id)?.filter(|row| row.job.mark != StoredStatus::Deleted);
    let Some(row) = found else { return Ok(None) };
    let schedule = rows.schedule(id)?.map(|row| row.state);
    let open = rows.open_of_job(id)?.into_iter().map(|row| row.live).collect();
    Ok(Some((LoadedJob { job: row.job, schedule, open }, row.lane)))
}

fn carry_out<R: Rows>(
    rows: &mut R,
    standing: &LoadedJob,
    lane: i64,
    change: Result<Change, Refusal>,
    now: Timestamp,
) -> Result<ControlOutcome, Fault> {
    let change = match change {
        Ok(change) => change,
        Err(refusal) => return Ok(ControlOutcome::Refused(refusal)),
    };
    let (is_revived, job) = (is_revived(standing, &change), change.job.as_ref().unwrap_or(&standing.job));
    let is_named = job.spec.settings.by_name && !standing.job.spec.settings.by_name;
    if is_revived && let Some(rival) = keys::rival(rows, job)? {
        return Ok(ControlOutcome::Refused(Refusal::KeyTaken(rival)));
    }
    if is_named && let Some(namesake) = keys::namesake(rows, job)? {
        return Ok(ControlOutcome::Refused(Refusal::NameTaken(namesake)));
    }
    if is_revived || is_named {
        keys::hold(rows, job)?;
    }
    write(rows, standing, lane, change, now).map(ControlOutcome::Done)
}

/// Whether a finished job becomes unfinished.
fn is_revived(standing: &LoadedJob, change: &Change) -> bool {
    let was_finished = standing.schedule.is_none() && standing.open.is_empty();
    let adds = change.live.iter().any(|change| matches!(change, LiveChange::Add(_)));
    was_finished && (adds || matches!(change.schedule, ScheduleChange::Put(_)))
}

fn write<R: Rows>(
    rows: &mut R,
    standing: &LoadedJob,
    old_lane: i64,
    change: Change,
    now: Timestamp,
) -> Result<Controlled, Fault> {
    let id = standing.job.id;
    rows.forget_sole(id)?;
    let mut freed = Vec::new();
    for live in &standing.open {
        freed.extend(wait_lists::freed(
            rows,
            &LiveRow { live: live.clone(), lane: old_lane, is_sole: false },
        )?);
    }
    let job = change.job.as_ref().unwrap_or(&standing.job);
    let was = (&standing.job.spec.queue, &standing.job.spec.job_type);
    let (lane_id, lane) = if was == (&job.spec.queue, &job.spec.job_type) {
        (old_lane, rows.lane(old_lane)?)
    } else {
        rows.intern_lane(&job.spec.queue, &job.spec.job_type)?
    };
    let mut controlled = Controlled {
        effects: CommitEffects { freed, ..CommitEffects::default() },
        version: job.version,
        added: None,
        asked: vec![],
        skipped: change.skipped.iter().map(|range| range.count).sum(),
    };
    if let Some(job) = &change.job {
        write_job(rows, &standing.job, job, lane_id)?;
    }
    if let Some(schedule) = &standing.schedule {
        record_skips(rows, schedule, &change.skipped)?;
    }
    match &change.schedule {
        ScheduleChange::Keep => {}
        ScheduleChange::Put(state) => {
            rows.put_schedule(state, lane_id)?;
            controlled.effects.due.extend(schedule_due(state, &lane));
        }
        ScheduleChange::Remove => rows.delete_schedule(id)?,
    }
    if lane_id != old_lane {
        let any_moved = rows.move_open_of_job(id, lane_id)?;
        controlled.effects.queued.extend(any_moved.then(|| lane.clone()));
    }
    // No later occurrence will resolve the jobs that depend on a removed schedule.
    let is_gone = change.schedule == ScheduleChange::Remove;
    let awaited = is_gone && standing.schedule.as_ref().is_some_and(|schedule| schedule.awaited);
    let mut flags = OccurrenceFlags { awaited, ..OccurrenceFlags::default() };
    for one in change.live {
        if let LiveChange::Close(live, _) = &one {
            flags.followed |= live.flags.followed;
            flags.awaited |= live.flags.awaited;
        }
        write_live(rows, (standing, job), one, (lane_id, &lane), now, &mut controlled)?;
    }
    let key = |job: &Job| job.spec.settings.concurrency_key.clone();
    if lane_id != old_lane || key(job) != key(&standing.job) {
        controlled.effects.add(wait_lists::readmit_job(rows, job, &lane, now)?);
    }
    let status = rows.status_of(id)?;
    rows.counters().job(Some(standing.status()), status);
    controlled.effects.add(follow(rows, id, flags, false, now)?);
    Ok(controlled)
}

fn write_job<R: Rows>(rows: &mut R, was: &Job, job: &Job, lane: i64) -> Result<(), Fault> {
    rows.update_job(job, lane)?;
    let tags = &job.spec.settings.tags;
    if *tags != was.spec.settings.tags {
        rows.forget_tags(job.id)?;
        rows.put_tags(job.id, tags)?;
    }
    Ok(())
}

fn write_live<R: Rows>(
    rows: &mut R,
    (standing, job): (&LoadedJob, &Job),
    change: LiveChange,
    (lane_id, lane): (i64, &Lane),
    now: Timestamp,
    controlled: &mut Controlled,
) -> Result<(), Fault> {
    let in_lane = |live| LiveRow { live, lane: lane_id, is_sole: false };
    let key = |_: &mut R| Ok(job.spec.settings.concurrency_key.clone());
    match change {
        LiveChange::Add(live) => {
            let row = in_lane(wait_lists::pass(rows, live, lane, now, key)?);
            rows.insert_live(&row)?;
            controlled.added = Some(row.live.execution());
            controlled.effects.add(effects(&row.live, lane));
        }
        LiveChange::Put(live) => {
            let was = standing.open.iter().find(|open| open.id == live.id);
            let was = was.ok_or_else(|| Fault::Missing(format!("live row of {}", live.id)))?;
            let has_opened = !was.counts_for_queue();
            let live = if has_opened { wait_lists::pass(rows, live, lane, now, key)? } else { live };
            let row = in_lane(live);
            rows.replace_live(was, &row)?;
            controlled.effects.add(effects(&row.live, lane));
            if let LiveState::Running(lease) = row.live.state
                && lease.cancel_requested
            {
                ask_to_stop(rows, &row.live)?;
                controlled.asked.push(row.live.execution());
            }
        }
        LiveChange::Close(live, settled) => {
            controlled.effects.ended.push((settled.finished.id, settled.finished.status));
            settle::write(rows, &in_lane(live), settled, now)?;
        }
    }
    Ok(())
}

/// Releases everything of a deleted job that others use: its keys, its dead letters with their notes, its
/// dependencies on parents.
pub(crate) fn forget<R: Rows>(rows: &mut R, job: JobId) -> Result<(), Fault> {
    rows.free_keys(job)?;
    rows.forget_dead_letters(job)?;
    rows.forget_parents(job)?;
    rows.forget_notes_of_job(job)
}
