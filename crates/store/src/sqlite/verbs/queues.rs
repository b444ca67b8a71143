//! Pausing queues: nothing of a paused one is claimed.

use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use punctual_core::ports::{Begun, Pausing};
use punctual_core::time::Timestamp;
use rusqlite::params;

pub(super) fn pause_queue(
    tx: &mut Tx<'_>,
    now: Timestamp,
    queue: &str,
    pausing: Pausing,
) -> Result<Begun, Fault> {
    tx.memory.paused.forget();
    match pausing {
        Pausing::Pause => {
            tx.conn
                .prepare_cached(
                    "INSERT INTO paused_queues (queue, paused_at) VALUES (?1, ?2) ON CONFLICT (queue) DO NOTHING",
                )?
                .execute(params![queue, now.as_micros()])?;
            Ok(Begun::default())
        }
        Pausing::Resume => {
            tx.conn.prepare_cached("DELETE FROM paused_queues WHERE queue = ?1")?.execute([queue])?;
            Ok(Begun { queued: tx.memory.lanes.through(tx.conn, queue)?, ..Begun::default() })
        }
    }
}
