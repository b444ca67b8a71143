//! Checkpoints the write-ahead log into the database file on a separate thread, so that no commit waits for
//! it.
//!
//! A checkpoint that runs while the writer appends never reaches the end of the log, so the log would grow
//! without bound. The writer's own checkpoint, at [`super::connection::WRITER_CHECKPOINT_PAGES`], completes
//! it: by then little is left to copy, and the log restarts.

use super::connection::open_for_checkpoints;
use super::figures::Figures;
use crate::fault::Fault;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Row changes after which a checkpoint is worthwhile. A page holds about ten of our rows.
const CHANGES: u64 = 10_000;
/// The cost of a commit in addition to its rows: it writes some pages even if it has few rows.
const CHANGES_PER_COMMIT: u64 = 20;

/// The checkpoint thread. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    changes_seen: u64,
    pressure: u64,
}

impl Checkpointer {
    pub fn spawn(database: &Path, figures: Arc<Figures>) -> Result<Self, Fault> {
        let conn = open_for_checkpoints(database)?;
        let (wake, woken) = sync_channel::<()>(1);
        let thread = thread::Builder::new().name("store-checkpoint".to_owned()).spawn(move || {
            while woken.recv().is_ok() {
                let started = Instant::now();
                if let Err(error) = checkpoint(&conn) {
                    tracing::warn!(%error, "a checkpoint of the write-ahead log failed");
                }
                figures.checkpoint_time.observe_duration(started.elapsed());
            }
        });
        let thread = thread.map_err(Fault::Thread)?;
        Ok(Checkpointer { wake: Some(wake), thread: Some(thread), changes_seen: 0, pressure: 0 })
    }

    /// Called after every commit with the total number of rows that the writer has changed.
    pub fn committed(&mut self, total_changes: u64) {
        let changes = total_changes.saturating_sub(self.changes_seen);
        self.changes_seen = total_changes;
        if changes > 0 {
            self.pressure += changes + CHANGES_PER_COMMIT;
        }
        if self.pressure >= CHANGES {
            self.pressure = 0;
            // If the channel is full, the thread has not started the last request yet.
            let _ = self.wake.as_ref().map(|wake| wake.try_send(()));
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread has panicked");
        }
    }
}

/// Copies everything committed so far; waits for no reader or writer.
fn checkpoint(conn: &Connection) -> Result<(), Fault> {
    Ok(conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
}
