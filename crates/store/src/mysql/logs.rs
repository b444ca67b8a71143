//! Writes log lines. They have their own connection.
//!
//! A line's number is its time, so that partitions and cursors use the same number. Lines with the same
//! time, or out of order, get the number after the previous line. The lines of an execution come from one
//! worker, one call after the other, so that numbers only grow for readers.

use super::connection::{Connection, OwnConnection};
use super::lists::{Insertion, documents, list};
use super::log_quota::Remover;
use super::options::Target;
use super::rows::{execution_id, get, integer};
use crate::codes::Code;
use crate::execution_log_quota::{ExecutionLogSize, RemovedLines};
use crate::fault::Fault;
use mysql_async::Value;
use punctual_core::ids::ExecutionId;
use punctual_core::ports::LogLine;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::Mutex;

/// Executions whose log size is remembered. Beyond this, all are discarded and counted again on their next
/// write.
const EXECUTIONS_REMEMBERED_MAX: usize = 10_000;
/// How often lines are renumbered because another node has written lines of the same execution.
const TRIES: usize = 3;

pub(crate) const COUNT_LINES: &str = concat!(
    "SELECT log_lines.job, log_lines.occurrence, log_lines.attempt, COUNT(*), \
     CAST(SUM(LENGTH(log_lines.message)) AS SIGNED), MAX(log_lines.number) FROM ",
    list!(0 job id, 1 occurrence int, 2 attempt int),
    " STRAIGHT_JOIN log_lines FORCE INDEX (PRIMARY) ON log_lines.job = UNHEX(given.job) \
     AND log_lines.occurrence = given.occurrence AND log_lines.attempt = given.attempt \
     GROUP BY log_lines.job, log_lines.occurrence, log_lines.attempt"
);
const INSERT_LINES: Insertion = Insertion {
    head: "INSERT INTO log_lines (job, occurrence, attempt, number, timestamp, stream, message)",
    columns: 7,
    tail: "",
};

/// Appends log lines.
#[derive(Debug)]
pub(crate) struct Logs {
    own: OwnConnection,
    known: Mutex<BTreeMap<ExecutionId, ExecutionLogState>>,
    remover: Remover,
}

/// The log size of an execution, and the number of its last line.
#[derive(Debug, Clone, Copy, Default)]
struct ExecutionLogState {
    kept: ExecutionLogSize,
    last: i64,
}

impl Logs {
    pub fn new(target: Target, bytes_max: Option<u64>) -> Self {
        let remover = Remover::new(target.clone(), bytes_max);
        Logs { own: OwnConnection::new(target), known: Mutex::default(), remover }
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
                Err(fault) if fault.is_conflict() && tries < TRIES => tries += 1,
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Appending waits for it, so lines are not written faster than old ones are removed. The lines are
    /// stored; if old ones cannot be removed now, the next append tries again.
    async fn keep_within_limit(&self, lines: &[LogLine], known: &BTreeMap<ExecutionId, ExecutionLogState>) {
        let Some(look) = self.remover.quota.appended(lines) else { return };
        let newest =
            lines.iter().filter_map(|line| known.get(&line.execution)).map(|numbered| numbered.last).max();
        if let Err(fault) = self.remover.keep_within(look, newest.unwrap_or(i64::MIN)).await {
            tracing::warn!(%fault, "old log lines could not be removed; the next append tries again");
        }
    }

    async fn try_append(
        &self,
        lines: &[LogLine],
        mut known: BTreeMap<ExecutionId, ExecutionLogState>,
    ) -> Result<BTreeMap<ExecutionId, ExecutionLogState>, Fault> {
        if known.len() > EXECUTIONS_REMEMBERED_MAX {
            known.clear();
        }
        let mut used = self.own.take().await?;
        count_unknown(&mut used.connection, lines, &mut known).await?;
        let mut rows = Vec::with_capacity(lines.len());
        for line in lines {
            let numbered = known.entry(line.execution).or_default();
            if let Some(line) = numbered.kept.admit(line) {
                numbered.last = number_after(numbered.last, &line);
                rows.push(line_row(numbered.last, &line));
            }
        }
        for statement in INSERT_LINES.of(rows) {
            used.connection.run(&statement.sql, statement.values).await?;
        }
        used.connection.commit().await?;
        used.keep();
        Ok(known)
    }
}

/// The line's time, but not before its job was created: a worker's clock must not produce lines that
/// retention deletes at once.
fn number_after(last: i64, line: &LogLine) -> i64 {
    let made_at = line.execution.occurrence.job.made_at();
    line.timestamp.max(made_at).as_micros().max(last.saturating_add(1))
}

async fn count_unknown(
    connection: &mut Connection,
    lines: &[LogLine],
    known: &mut BTreeMap<ExecutionId, ExecutionLogState>,
) -> Result<(), Fault> {
    let unknown: BTreeSet<ExecutionId> =
        lines.iter().map(|line| line.execution).filter(|id| !known.contains_key(id)).collect();
    let lists = documents(&unknown, |row, id| {
        row.occurrence(id.occurrence).int(integer(id.attempt));
    });
    let counted = |value: i64| usize::try_from(value).unwrap_or(0);
    for list in lists {
        for row in connection.all(COUNT_LINES, vec![list]).await? {
            let kept = ExecutionLogSize { lines: counted(get(&row, 3)?), bytes: counted(get(&row, 4)?) };
            known.insert(execution_id(&row, 0)?, ExecutionLogState { kept, last: get(&row, 5)? });
        }
    }
    Ok(())
}

fn line_row(number: i64, line: &LogLine) -> Vec<Value> {
    let occurrence = line.execution.occurrence;
    vec![
        occurrence.job.as_bytes().into(),
        occurrence.number.into(),
        Value::Int(integer(line.execution.attempt)),
        Value::Int(number),
        Value::Int(line.timestamp.as_micros()),
        Value::Int(line.stream.code()),
        line.message.as_str().into(),
    ]
}
