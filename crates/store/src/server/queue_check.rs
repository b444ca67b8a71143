//! Detects that the settings of a queue changed between a transaction's read and its write, because nothing
//! locks them.

use crate::fault::Fault;
use crate::unit_of_work::{LoadedRows, ReadSet, WriteSet};
use punctual_core::ports::QueueRow;
use std::collections::{BTreeMap, BTreeSet};

/// The settings that one transaction has read.
#[derive(Debug, Default)]
pub(crate) struct QueueCheck {
    /// The settings of queues as this transaction read them.
    read: Option<BTreeMap<String, QueueRow>>,
    /// The queues whose rows were locked at that time.
    held: BTreeSet<String>,
}

impl QueueCheck {
    /// Records what a fetch has read and locked.
    pub fn note(&mut self, read_set: &ReadSet, found: &LoadedRows) {
        if read_set.queues {
            self.read = Some(by_name(found.queues.iter().cloned()));
            let is_there = |queue: &&String| found.queues.iter().any(|row| row.queue == **queue);
            self.held = read_set.limited_queues.iter().filter(is_there).cloned().collect();
        }
    }

    /// Whether all queues that are written are locked already.
    pub fn is_unneeded(&self, write_set: &WriteSet) -> bool {
        write_set.queues_deleted.is_empty()
            && write_set.queues_put.iter().all(|row| self.held.contains(&row.queue))
    }

    /// Whether the settings that this transaction has read are still valid, now that they are locked.
    pub fn check(&self, write_set: &WriteSet, now: Vec<QueueRow>) -> Result<(), Fault> {
        let now = by_name(now);
        let mut named = write_set.queues_put.iter().map(|row| &row.queue).chain(&write_set.queues_deleted);
        match &self.read {
            Some(read) if named.any(|queue| read.get(queue) != now.get(queue)) => {
                Err(Fault::Conflict("another transaction changed the settings of a queue".to_owned()))
            }
            _ => Ok(()),
        }
    }
}

fn by_name(rows: impl IntoIterator<Item = QueueRow>) -> BTreeMap<String, QueueRow> {
    rows.into_iter().map(|row| (row.queue.clone(), row)).collect()
}
