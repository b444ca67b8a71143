//! Writes log lines. They have their own connection, and their commits do not wait for the disk: a crash of
//! the database may lose the lines of the last moment, a crash of a node does not.
//!
//! A line's number is its time, so that partitions and cursors use the same number. Lines with the same
//! time, or out of order, get the number after the previous line. The lines of an execution come from one
//! worker, one call after the other, so that numbers only grow for readers.

use super::log_quota::Remover;
use super::partitions::Parent;
use super::rows::{clean, code, execution_id, get, integer, uuid};
use super::tables::Shared;
use super::wire::{Call, Frame, OwnWire, Wire, column};
use crate::execution_log_quota::{ExecutionLogSize, RemovedLines};
use crate::fault::Fault;
use punctual_core::ids::ExecutionId;
use punctual_core::ports::LogLine;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::Mutex;

/// Executions whose log size is remembered. Beyond this, all are discarded and counted again on their next
/// write.
const EXECUTIONS_REMEMBERED_MAX: usize = 10_000;
/// How often lines are renumbered because another node has written lines of the same execution.
const TRIES: usize = 3;

const COUNT_LINES: &str = "SELECT lines.job, lines.occurrence, lines.attempt, count(*), \
     sum(octet_length(lines.message))::bigint, max(lines.number) \
     FROM unnest($1::uuid[], $2::bigint[], $3::integer[]) AS wanted(job, occurrence, attempt) JOIN lines \
     ON lines.job = wanted.job AND lines.occurrence = wanted.occurrence AND lines.attempt = wanted.attempt \
     GROUP BY lines.job, lines.occurrence, lines.attempt";
const DO_NOT_WAIT: &str = "SET LOCAL synchronous_commit = off";
const INSERT_LINES: &str = "INSERT INTO lines (job, occurrence, attempt, number, timestamp, stream, message) \
     SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::bigint[], $5::bigint[], $6::smallint[], $7::text[])";

/// Appends log lines.
pub(crate) struct Logs {
    shared: Shared,
    own: OwnWire,
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
    pub fn new(shared: Shared, bytes_max: Option<u64>) -> Self {
        let own = OwnWire::new(shared.target.clone());
        Logs { own, known: Mutex::default(), remover: Remover::new(shared.clone(), bytes_max), shared }
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
                    self.shared.partitions.forget();
                    tries += 1;
                }
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
        count_unknown(&mut used.wire, lines, &mut known).await?;
        let mut admitted = Vec::with_capacity(lines.len());
        for line in lines {
            let numbered = known.entry(line.execution).or_default();
            if let Some(line) = numbered.kept.admit(line) {
                numbered.last = number_after(numbered.last, &line);
                admitted.push((numbered.last, line));
            }
        }
        if !admitted.is_empty() {
            let numbers = admitted.iter().map(|(number, _)| *number);
            self.shared.partitions.ensure(Parent::Lines, numbers).await?;
            insert(&mut used.wire, &admitted).await?;
        }
        used.keep();
        Ok(known)
    }
}

/// The line's time, but not before its job was created: a worker's clock must not create partitions in the
/// distant past.
fn number_after(last: i64, line: &LogLine) -> i64 {
    let made_at = line.execution.occurrence.job.made_at();
    line.timestamp.max(made_at).as_micros().max(last.saturating_add(1))
}

async fn count_unknown(
    wire: &mut Wire,
    lines: &[LogLine],
    known: &mut BTreeMap<ExecutionId, ExecutionLogState>,
) -> Result<(), Fault> {
    let unknown: BTreeSet<ExecutionId> =
        lines.iter().map(|line| line.execution).filter(|id| !known.contains_key(id)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let keys = [
        column(unknown.iter().map(|id| uuid(id.occurrence.job))),
        column(unknown.iter().map(|id| i64::from(id.occurrence.number))),
        column(unknown.iter().map(|id| integer(id.attempt))),
    ];
    let counted = |value: i64| usize::try_from(value).unwrap_or(0);
    for row in wire.run_one(Call::new(COUNT_LINES, keys)).await? {
        let kept = ExecutionLogSize { lines: counted(get(&row, 3)?), bytes: counted(get(&row, 4)?) };
        known.insert(execution_id(&row, 0)?, ExecutionLogState { kept, last: get(&row, 5)? });
    }
    Ok(())
}

async fn insert(wire: &mut Wire, lines: &[(i64, LogLine)]) -> Result<(), Fault> {
    let said = || lines.iter().map(|(_, line)| line);
    let rows = [
        column(said().map(|line| uuid(line.execution.occurrence.job))),
        column(said().map(|line| i64::from(line.execution.occurrence.number))),
        column(said().map(|line| integer(line.execution.attempt))),
        column(lines.iter().map(|(number, _)| *number)),
        column(said().map(|line| line.timestamp.as_micros())),
        column(said().map(|line| code(line.stream))),
        column(said().map(|line| clean(&line.message))),
    ];
    let calls = vec![Call::new(DO_NOT_WAIT, []), Call::new(INSERT_LINES, rows)];
    wire.run(Frame::BeginAndCommit, calls).await?;
    Ok(())
}
