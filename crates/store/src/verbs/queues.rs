//! Queues: executions of a paused queue are neither claimed nor admitted through its limits, and a full
//! queue rejects new jobs.

use crate::fault::Fault;
use crate::rows::Rows;
use punctual_core::cluster_pause::{EVERY_QUEUE, EVERY_SCHEDULE};
use punctual_core::job::Job;
use punctual_core::limiter::WaitList;
use punctual_core::ports::{CommitEffects, Pausing, QueueRow, SubmitOutcome};
use punctual_core::queue::{QueueChange, QueueSettings};
use punctual_core::readmission::Readmission;
use punctual_core::schedule::is_due_at_once;
use punctual_core::time::Timestamp;

pub(super) fn pause_queue<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    queue: &str,
    pausing: Pausing,
) -> Result<CommitEffects, Fault> {
    let row = found_or_unset(rows, queue)?;
    if let Some(reason) = row.unreadable {
        // Writing the row would lose the limits that a user has set.
        return Err(Fault::damaged(format!("the settings of the queue {queue}"), reason));
    }
    match pausing {
        Pausing::Pause => {
            let paused_at = row.paused_at.or(Some(now));
            keep(rows, QueueRow { paused_at, ..row })?;
            Ok(CommitEffects::default())
        }
        Pausing::Resume => {
            keep(rows, QueueRow { paused_at: None, ..row })?;
            Ok(CommitEffects { queued: rows.queued_lanes_of(queue)?, ..CommitEffects::default() })
        }
    }
}

pub(super) fn set_queue<R: Rows>(rows: &mut R, queue: &str, change: &QueueChange) -> Result<(), Fault> {
    let row = found_or_unset(rows, queue)?;
    let settings = change.applied_to(&row.settings);
    let mut readmission = Readmission::after(row.readmission, &row.settings.limits, &settings.limits);
    if readmission.is_some() && rows.limiter(&WaitList::of_queue(queue))?.in_use == 0 {
        // No execution is admitted.
        readmission = None;
    }
    keep(rows, QueueRow { settings, readmission, unreadable: None, ..row })
}

fn found_or_unset<R: Rows>(rows: &mut R, queue: &str) -> Result<QueueRow, Fault> {
    Ok(rows.queue(queue)?.unwrap_or_else(|| QueueRow::unset(queue)))
}

/// A queue without settings needs no row.
fn keep<R: Rows>(rows: &mut R, row: QueueRow) -> Result<(), Fault> {
    if row.paused_at.is_none() && row.settings == QueueSettings::default() {
        rows.delete_queue(&row.queue)
    } else {
        rows.put_queue(&row)
    }
}

pub(super) fn is_paused<R: Rows>(rows: &mut R, queue: &str) -> Result<bool, Fault> {
    Ok(is_held(rows, EVERY_QUEUE)? || is_held(rows, queue)?)
}

/// Whether the cluster is paused, and recurring occurrences are skipped meanwhile.
pub(super) fn skips_schedules<R: Rows>(rows: &mut R) -> Result<bool, Fault> {
    is_held(rows, EVERY_SCHEDULE)
}

/// Whether the whole cluster is paused.
pub(super) fn is_cluster_paused<R: Rows>(rows: &mut R) -> Result<bool, Fault> {
    is_held(rows, EVERY_QUEUE)
}

fn is_held<R: Rows>(rows: &mut R, queue: &str) -> Result<bool, Fault> {
    Ok(rows.queue(queue)?.is_some_and(|row| row.is_held()))
}

/// Rejects a new job that would be queued at once in a full queue. Queues without a limit pay nothing for
/// this.
pub(super) fn admit<R: Rows>(
    rows: &mut R,
    job: &Job,
    now: Timestamp,
) -> Result<Result<(), SubmitOutcome>, Fault> {
    let Some(row) = rows.queue(&job.spec.queue)? else { return Ok(Ok(())) };
    if row.settings.max_depth.is_none() || !is_due_at_once(&job.spec.settings.schedule, now) {
        return Ok(Ok(()));
    }
    let Err(full) = row.settings.admit(rows.unstarted_of(&job.spec.queue)?) else { return Ok(Ok(())) };
    // A repeated submit whose first try was stored is not a new job, even if the queue is full by now.
    if rows.is_job_there(job.id)? {
        return Ok(Err(SubmitOutcome::AlreadyThere));
    }
    Ok(Err(SubmitOutcome::QueueFull { queue: job.spec.queue.clone(), full }))
}

/// Applies the owners' weights to the fair shares of a queue.
pub(super) fn weigh<R: Rows>(rows: &mut R, queue: &str) -> Result<(), Fault> {
    let weights = rows.queue(queue)?.map(|row| row.settings.limits.weights).unwrap_or_default();
    rows.shares().weigh(queue, weights);
    Ok(())
}
