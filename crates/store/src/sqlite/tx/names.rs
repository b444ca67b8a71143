//! Names of lanes and workers, and queues. Most of them are cached, see `names.rs` next to the core.

use super::Tx;
use crate::counters::shown;
use crate::fault::Fault;
use crate::new_rows::queue_cells;
use crate::server::changes::TableChange;
use crate::sqlite::rows::{insertion, write_row};
use punctual_core::ids::SessionId;
use punctual_core::ports::{Lane, QueueRow};
use std::sync::LazyLock;

static PUT_QUEUE: LazyLock<String> = LazyLock::new(|| insertion(TableChange::PutQueues));

pub(super) fn intern_lane(tx: &mut Tx<'_>, queue: &str, job_type: &str) -> Result<(i64, Lane), Fault> {
    tx.memory.lanes.intern(tx.conn, queue, job_type)
}

pub(super) fn lane(tx: &mut Tx<'_>, number: i64) -> Result<Lane, Fault> {
    tx.memory.lane(tx.conn, number)
}

pub(super) fn lanes_matching(
    tx: &mut Tx<'_>,
    queues: &[String],
    job_types: &[String],
) -> Result<Vec<i64>, Fault> {
    Ok(tx.memory.active(tx.conn)?.matching(queues, job_types))
}

/// The lanes of a queue that have live executions.
pub(super) fn lanes_through(tx: &mut Tx<'_>, queue: &str) -> Result<Vec<(i64, Lane)>, Fault> {
    Ok(tx.memory.active(tx.conn)?.through(queue))
}

pub(super) fn queued_lanes_of(tx: &mut Tx<'_>, queue: &str) -> Result<Vec<Lane>, Fault> {
    let mut lanes = Vec::new();
    for (id, lane) in lanes_through(tx, queue)? {
        if tx.memory.active(tx.conn)?.has_work(tx.conn, id)? {
            lanes.push(lane);
        }
    }
    lanes.sort_unstable();
    Ok(lanes)
}

pub(super) fn worker_of(tx: &mut Tx<'_>, session: SessionId) -> Result<Option<i64>, Fault> {
    tx.memory.workers.worker(tx.conn, session)
}

pub(super) fn queue(tx: &mut Tx<'_>, queue: &str) -> Result<Option<QueueRow>, Fault> {
    Ok(tx.memory.queues.find(tx.conn, queue)?.cloned())
}

pub(super) fn put_queue(tx: &mut Tx<'_>, row: &QueueRow) -> Result<(), Fault> {
    tx.memory.queues.forget();
    write_row(tx.conn, &PUT_QUEUE, &queue_cells(row)?)
}

pub(super) fn delete_queue(tx: &mut Tx<'_>, queue: &str) -> Result<(), Fault> {
    tx.memory.queues.forget();
    tx.conn.prepare_cached("DELETE FROM queues WHERE queue = ?1")?.execute([queue])?;
    Ok(())
}

pub(super) fn queue_as_seen(tx: &mut Tx<'_>, name: &str) -> Result<Option<QueueRow>, Fault> {
    queue(tx, name)
}

pub(super) fn unstarted_of(tx: &mut Tx<'_>, queue: &str) -> Result<u64, Fault> {
    let mut unstarted = 0;
    for (lane, _) in lanes_through(tx, queue)? {
        let written = tx.memory.active(tx.conn)?.counts(lane).unstarted();
        unstarted =
            [written, tx.memory.counters.unstarted(lane)].into_iter().fold(unstarted, i64::saturating_add);
    }
    Ok(shown(unstarted))
}
