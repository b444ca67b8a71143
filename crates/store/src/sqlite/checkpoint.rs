//! Moving the write-ahead log into the database file beside the writer, so that no commit waits for it.
//!
//! A checkpoint that runs while the writer appends never reaches the end of the log, so this alone would let it
//! grow. The writer's own checkpoint, at [`super::connection::WRITER_CHECKPOINT_PAGES`], finishes the job: by
//! then little is left to copy, and the log starts over.

use super::connection::open_for_checkpoints;
use super::figures::Figures;
use crate::fault::Fault;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Row changes after which it is worth moving the log. A page holds some ten rows of ours.
const CHANGES: u64 = 10_000;
/// What a commit counts for beside its rows: it writes some pages however few its rows are.
const CHANGES_PER_COMMIT: u64 = 20;

/// The thread that moves the log. Ends when this value is dropped.
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
                    tracing::warn!(%error, "the write-ahead log could not be moved into the database");
                }
                figures.checkpoint_time.observe_duration(started.elapsed());
            }
        });
        let thread = thread.map_err(Fault::Thread)?;
        Ok(Checkpointer { wake: Some(wake), thread: Some(thread), changes_seen: 0, pressure: 0 })
    }

    /// Told after every commit how many rows the writer has changed so far.
    pub fn committed(&mut self, total_changes: u64) {
        let changes = total_changes.saturating_sub(self.changes_seen);
        self.changes_seen = total_changes;
        if changes > 0 {
            self.pressure += changes + CHANGES_PER_COMMIT;
        }
        if self.pressure >= CHANGES {
            self.pressure = 0;
            // A full channel means that it has not even begun with the last one.
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

/// Copies what is committed by now; waits for nobody.
fn checkpoint(conn: &Connection) -> Result<(), Fault> {
    Ok(conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
}
