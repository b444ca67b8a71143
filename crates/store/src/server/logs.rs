//! Writes log lines. They have their own connection. A process remembers the logs that it writes.
//!
//! A line's number is its time, so that partitions and cursors use the same number. Lines with the same
//! time, or out of order, get the number after the previous line. The lines of an execution come from one
//! worker, one call after the other, so that numbers only grow for readers.

use super::connection::{Argument, OwnConnection, ServerCall, TransactionFrame};
use super::log_quota::Remover;
use super::partitions::PartitionedTables;
use crate::cells::{RowCells, get};
use crate::codecs::execution_id;
use crate::execution_log_quota::{ExecutionLogSize, RemovedLines};
use crate::fault::Fault;
use crate::log_quota::LogQuota;
use crate::row_list::{self, List, row};
use async_trait::async_trait;
use punctual_core::ids::ExecutionId;
use punctual_core::ports::LogLine;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::Mutex;

/// How often lines are renumbered because another node has written lines of the same execution.
const TRIES: usize = 3;

/// The tables of log lines, and the statements about them.
#[async_trait]
pub(crate) trait LogTables: PartitionedTables {
    /// The execution, the number of its lines, their bytes, and the number of the last line.
    const COUNT_LINES: &'static str;
    /// Remove the lines of executions; the first returns them in the columns of `COUNT_LINES`.
    const REMOVE_LINES: &'static [&'static str];
    /// Executions that ended after a position of history, up to a limit: the position, the execution, the
    /// time of its end, and whether it has lines.
    const ENDED: &'static str;
    const NUMBER: &'static str;
    /// For numbers that never decrease.
    const RAISE_NUMBER: &'static str;

    /// Inserts lines and commits.
    async fn insert_lines(&mut self, shared: &Self::Shared, lines: &[(i64, LogLine)]) -> Result<(), Fault>;

    /// Discards the cached partitions after a conflict.
    fn forget_partitions(shared: &Self::Shared);

    /// The size of all lines, and the partitions that can be dropped with their ends and sizes, oldest
    /// first.
    async fn sizes(&mut self) -> Result<(u64, Vec<SizedPartition<Self::Partition>>), Fault>;
}

/// A partition of log lines.
pub(crate) struct SizedPartition<P> {
    pub partition: P,
    /// In microseconds, exclusive.
    pub ends: i64,
    pub bytes: u64,
}

/// Appends log lines.
pub(crate) struct Logs<C: LogTables> {
    own: OwnConnection<C>,
    known: Mutex<KnownLogs>,
    remover: Remover<C>,
}

impl<C: LogTables> Logs<C> {
    pub fn new(shared: C::Shared, target: &C::Target, bytes_max: Option<u64>) -> Self {
        let [own, removing] = [(); 2].map(|()| OwnConnection::new(target.clone()));
        let remover = Remover { shared, own: removing, quota: LogQuota::new(bytes_max) };
        Logs { own, known: Mutex::default(), remover }
    }

    /// Lines that were removed to keep within the limit.
    pub fn removed(&self) -> RemovedLines {
        self.remover.quota.removed()
    }

    /// Appends lines in one transaction and numbers them.
    pub async fn append(&self, lines: &[LogLine]) -> Result<(), Fault> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut known = self.known.lock().await;
        let mut tries = 1;
        loop {
            // The counts of a transaction that did not commit are wrong, so they are discarded unless it
            // succeeds.
            let before = std::mem::take(&mut *known);
            match self.try_append(lines, before).await {
                Ok(after) => {
                    *known = after;
                    self.keep_within_limit(lines, &known).await;
                    return Ok(());
                }
                Err(fault) if fault.is_conflict() && tries < TRIES => {
                    C::forget_partitions(&self.remover.shared);
                    tries += 1;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Appending waits for it, so lines are not written faster than old ones are removed. The lines are
    /// stored; if old ones cannot be removed now, the next append tries again.
    async fn keep_within_limit(&self, lines: &[LogLine], known: &KnownLogs) {
        let Some(look) = self.remover.quota.appended(lines) else { return };
        if let Err(fault) = self.remover.keep_within(look, known.newest(lines)).await {
            tracing::warn!(%fault, "old log lines could not be removed; the next append tries again");
        }
    }

    async fn try_append(&self, lines: &[LogLine], mut known: KnownLogs) -> Result<KnownLogs, Fault> {
        let mut used = self.own.take().await?;
        let count = ServerCall::new(C::COUNT_LINES, [Argument::Rows(known.unknown(lines))]);
        known.learn(&used.connection.send_one(TransactionFrame::None, count).await?.rows)?;
        let admitted = known.admit(lines);
        used.connection.insert_lines(&self.remover.shared, &admitted).await?;
        used.keep();
        Ok(known)
    }
}

/// Executions whose log size is remembered. Beyond this, all are discarded and counted again on their next
/// write.
const EXECUTIONS_REMEMBERED_MAX: usize = 10_000;

/// The logs of executions as this process knows them.
#[derive(Debug, Default)]
struct KnownLogs(BTreeMap<ExecutionId, ExecutionLogState>);

/// The log size of an execution, and the number of its last line.
#[derive(Debug, Clone, Copy, Default)]
struct ExecutionLogState {
    kept: ExecutionLogSize,
    last: i64,
}

impl KnownLogs {
    /// The executions of these lines whose logs must be counted first.
    pub fn unknown(&mut self, lines: &[LogLine]) -> List<'static> {
        if self.0.len() > EXECUTIONS_REMEMBERED_MAX {
            self.0.clear();
        }
        let unknown: BTreeSet<ExecutionId> =
            lines.iter().map(|line| line.execution).filter(|id| !self.0.contains_key(id)).collect();
        row_list::executions(unknown)
    }

    /// Reads the execution, the number of its lines and bytes, and the number of the last line.
    pub fn learn(&mut self, rows: &[impl RowCells]) -> Result<(), Fault> {
        let counted = |value: i64| usize::try_from(value).unwrap_or(0);
        for row in rows {
            let kept = ExecutionLogSize { lines: counted(get(row, 3)?), bytes: counted(get(row, 4)?) };
            self.0.insert(execution_id(row, 0)?, ExecutionLogState { kept, last: get(row, 5)? });
        }
        Ok(())
    }

    /// The lines to store, with their numbers.
    pub fn admit(&mut self, lines: &[LogLine]) -> Vec<(i64, LogLine)> {
        let mut admitted = Vec::with_capacity(lines.len());
        for line in lines {
            let numbered = self.0.entry(line.execution).or_default();
            if let Some(line) = numbered.kept.admit(line) {
                numbered.last = number_after(numbered.last, &line);
                admitted.push((numbered.last, line));
            }
        }
        admitted
    }

    /// The number of the newest of these lines.
    pub fn newest(&self, lines: &[LogLine]) -> i64 {
        let known = lines.iter().filter_map(|line| self.0.get(&line.execution));
        known.map(|numbered| numbered.last).max().unwrap_or(i64::MIN)
    }
}

/// The line's time, but not before its job was created: a worker's clock must not create partitions in the
/// distant past, or lines that retention deletes at once.
fn number_after(last: i64, line: &LogLine) -> i64 {
    let made_at = line.execution.occurrence.job.made_at();
    line.timestamp.max(made_at).as_micros().max(last.saturating_add(1))
}

/// All columns of log lines.
pub(crate) fn line_rows(lines: &[(i64, LogLine)]) -> List<'_> {
    List::of(lines.iter().map(|(number, line)| {
        let id = line.execution;
        row![
            id.occurrence.job,
            id.occurrence.number,
            id.attempt,
            *number,
            line.timestamp,
            line.stream,
            line.message.as_str(),
        ]
    }))
}
