//! Writes log lines. They have their own connection.

use super::connection::OwnConnection;
use super::lists::{Insertion, documents, list};
use super::log_quota::Remover;
use super::options::Target;
use super::sql::names;
use crate::execution_log_quota::RemovedLines;
use crate::fault::Fault;
use crate::layout::LINES;
use crate::server::logs::{KnownLogs, line_rows};
use mysql_async::Value;
use punctual_core::ports::LogLine;
use std::sync::LazyLock;
use tokio::sync::Mutex;

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
static INSERT_LINES: LazyLock<Insertion> = LazyLock::new(|| Insertion {
    head: format!("INSERT INTO log_lines ({})", names(&LINES, LINES.columns)),
    columns: LINES.columns.len(),
    tail: String::new(),
});

/// Appends log lines.
#[derive(Debug)]
pub(crate) struct Logs {
    own: OwnConnection,
    known: Mutex<KnownLogs>,
    remover: Remover,
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
    async fn keep_within_limit(&self, lines: &[LogLine], known: &KnownLogs) {
        let Some(look) = self.remover.quota.appended(lines) else { return };
        if let Err(fault) = self.remover.keep_within(look, known.newest(lines)).await {
            tracing::warn!(%fault, "old log lines could not be removed; the next append tries again");
        }
    }

    async fn try_append(&self, lines: &[LogLine], mut known: KnownLogs) -> Result<KnownLogs, Fault> {
        let mut used = self.own.take().await?;
        for list in documents(&known.unknown(lines)) {
            known.learn(&used.connection.all(COUNT_LINES, vec![list]).await?)?;
        }
        let admitted = known.admit(lines);
        let rows = line_rows(&admitted);
        let rows = rows.rows().map(|row| row.iter().cloned().map(Value::from).collect()).collect();
        for statement in INSERT_LINES.of(rows) {
            used.connection.run(&statement.sql, statement.values).await?;
        }
        used.connection.commit().await?;
        used.keep();
        Ok(known)
    }
}
