//! What a process remembers of the logs that it writes.
//!
//! A line's number is its time, so that partitions and cursors use the same number. Lines with the same
//! time, or out of order, get the number after the previous line. The lines of an execution come from one
//! worker, one call after the other, so that numbers only grow for readers.

use super::asks;
use super::list::{List, row};
use crate::cells::{RowCells, get};
use crate::codecs::execution_id;
use crate::execution_log_quota::ExecutionLogSize;
use crate::fault::Fault;
use punctual_core::ids::ExecutionId;
use punctual_core::ports::LogLine;
use std::collections::{BTreeMap, BTreeSet};

/// Executions whose log size is remembered. Beyond this, all are discarded and counted again on their next
/// write.
const EXECUTIONS_REMEMBERED_MAX: usize = 10_000;

/// The logs of executions as this process knows them.
#[derive(Debug, Default)]
pub(crate) struct KnownLogs(BTreeMap<ExecutionId, ExecutionLogState>);

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
        asks::executions(unknown)
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
