//! Queues: nothing of a paused one is claimed, and one that is full takes in nothing more.

use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::counter;
use punctual_core::job::Job;
use punctual_core::ports::{Begun, Pausing, SubmitOutcome};
use punctual_core::queue::QueueSettings;
use punctual_core::schedule::is_due_at_once;
use punctual_core::time::Timestamp;
use rusqlite::params;

pub(super) fn pause_queue(
    tx: &mut Tx<'_>,
    now: Timestamp,
    queue: &str,
    pausing: Pausing,
) -> Result<Begun, Fault> {
    tx.memory.queues.forget();
    match pausing {
        Pausing::Pause => {
            tx.conn
                .prepare_cached(
                    "INSERT INTO queues (queue, paused_at) VALUES (?1, ?2) \
                     ON CONFLICT (queue) DO UPDATE SET paused_at = ?2 WHERE paused_at IS NULL",
                )?
                .execute(params![queue, now.as_micros()])?;
            Ok(Begun::default())
        }
        Pausing::Resume => {
            tx.conn
                .prepare_cached("UPDATE queues SET paused_at = NULL WHERE queue = ?1")?
                .execute([queue])?;
            forget_unset(tx, queue)?;
            Ok(Begun { queued: tx.memory.lanes.through(tx.conn, queue)?, ..Begun::default() })
        }
    }
}

pub(super) fn set_queue(tx: &mut Tx<'_>, queue: &str, settings: QueueSettings) -> Result<(), Fault> {
    tx.memory.queues.forget();
    tx.conn
        .prepare_cached(
            "INSERT INTO queues (queue, max_depth) VALUES (?1, ?2) \
             ON CONFLICT (queue) DO UPDATE SET max_depth = ?2",
        )?
        .execute(params![queue, settings.max_depth.map(counter)])?;
    forget_unset(tx, queue)
}

/// A queue of which nothing is set needs no row.
fn forget_unset(tx: &Tx<'_>, queue: &str) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("DELETE FROM queues WHERE queue = ?1 AND paused_at IS NULL AND max_depth IS NULL")?
        .execute([queue])?;
    Ok(())
}

/// Refuses a new job that would join a full queue at once. Queues without a limit pay nothing for this.
pub(super) fn admit(tx: &mut Tx<'_>, job: &Job, now: Timestamp) -> Result<Result<(), SubmitOutcome>, Fault> {
    let settings = tx.memory.queues.settings(tx.conn, &job.spec.queue)?;
    if settings.max_depth.is_none() || !is_due_at_once(&job.spec.settings.schedule, now) {
        return Ok(Ok(()));
    }
    let Err(full) = settings.admit(depth(tx, &job.spec.queue)?) else { return Ok(Ok(())) };
    // A repeated submit whose first try was kept is no new job, however full the queue is by now.
    let mut select = tx.conn.prepare_cached("SELECT 1 FROM jobs WHERE id = ?1")?;
    if select.exists([job.id.as_bytes()])? {
        return Ok(Err(SubmitOutcome::AlreadyThere));
    }
    Ok(Err(SubmitOutcome::QueueFull { queue: job.spec.queue.clone(), full }))
}

/// Executions that wait in this queue or are queued.
fn depth(tx: &mut Tx<'_>, queue: &str) -> Result<u64, Fault> {
    let mut depth = 0;
    for lane in tx.memory.lanes.numbers_through(tx.conn, queue)? {
        depth += tx.memory.tally.unstarted(tx.conn, lane)?;
    }
    Ok(depth)
}
