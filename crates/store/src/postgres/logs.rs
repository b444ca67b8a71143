//! Writes log lines. They have their own connection, and their commits do not wait for the disk: a crash of
//! the database may lose the lines of the last moment, a crash of a node does not.

use super::log_quota::Remover;
use super::partitions::Parent;
use super::sql::{arrays, names};
use super::tables::Shared;
use super::tables::read_set::columns;
use super::wire::{Call, Frame, OwnWire};
use crate::execution_log_quota::RemovedLines;
use crate::fault::Fault;
use crate::layout::LINES;
use crate::server::logs::{KnownLogs, line_rows};
use punctual_core::ports::LogLine;
use std::sync::LazyLock;
use tokio::sync::Mutex;

/// How often lines are renumbered because another node has written lines of the same execution.
const TRIES: usize = 3;

const COUNT_LINES: &str = "SELECT lines.job, lines.occurrence, lines.attempt, count(*), \
     sum(octet_length(lines.message))::bigint, max(lines.number) \
     FROM unnest($1::uuid[], $2::bigint[], $3::integer[]) AS wanted(job, occurrence, attempt) JOIN lines \
     ON lines.job = wanted.job AND lines.occurrence = wanted.occurrence AND lines.attempt = wanted.attempt \
     GROUP BY lines.job, lines.occurrence, lines.attempt";
const DO_NOT_WAIT: &str = "SET LOCAL synchronous_commit = off";
static INSERT_LINES: LazyLock<String> = LazyLock::new(|| {
    format!("INSERT INTO lines ({}) SELECT * FROM {}", names(LINES.columns), arrays(LINES.columns))
});

/// Appends log lines.
pub(crate) struct Logs {
    shared: Shared,
    own: OwnWire,
    known: Mutex<KnownLogs>,
    remover: Remover,
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
    async fn keep_within_limit(&self, lines: &[LogLine], known: &KnownLogs) {
        let Some(look) = self.remover.quota.appended(lines) else { return };
        if let Err(fault) = self.remover.keep_within(look, known.newest(lines)).await {
            tracing::warn!(%fault, "old log lines could not be removed; the next append tries again");
        }
    }

    async fn try_append(&self, lines: &[LogLine], mut known: KnownLogs) -> Result<KnownLogs, Fault> {
        let mut used = self.own.take().await?;
        let unknown = known.unknown(lines);
        if !unknown.is_empty() {
            let call = Call { sql: COUNT_LINES, parameters: columns(unknown) };
            known.learn(&used.wire.run_one(call).await?)?;
        }
        let admitted = known.admit(lines);
        if !admitted.is_empty() {
            let numbers = admitted.iter().map(|(number, _)| *number);
            self.shared.partitions.ensure(Parent::Lines, numbers).await?;
            let insert = Call { sql: &INSERT_LINES, parameters: columns(line_rows(&admitted)) };
            used.wire.run(Frame::BeginAndCommit, vec![Call::new(DO_NOT_WAIT, []), insert]).await?;
        }
        used.keep();
        Ok(known)
    }
}
