//! Keeps the total size of log lines within its limit: drops the oldest partitions completely, then removes
//! the logs of the executions that ended first. It has its own connection.

use super::connection::{Connection, OwnConnection};
use super::lists::{documents, list};
use super::logs::COUNT_LINES;
use super::maintenance::{RAISE_MARK, count_rows};
use super::options::Target;
use super::partitions::{self, FIRST, Parent};
use crate::cells::{get, read};
use crate::codecs::{execution_id, limit, time};
use crate::execution_log_quota::RemovedLines;
use crate::fault::Fault;
use crate::log_quota::{
    ENDED_PER_LOOK, EXECUTIONS_PER_STEP, EndedExecution, LINE_OVERHEAD_BYTES, LogQuota, QuotaLook,
};
use crate::server::asks;
use crate::stored_numbers::StoredNumber;
use mysql_async::Value;

/// MySQL would return cached sizes that may be a day old.
const FRESH_SIZES: &str = "SET @sizes = 'fresh' /*!80000 , SESSION information_schema_stats_expiry = 0 */";
/// The result is as old as the server's statistics, which are updated after a tenth of the rows has
/// changed.
const SIZES: &str = "SELECT partition_name, CAST(COALESCE(data_length + index_length, 0) AS SIGNED) \
     FROM information_schema.partitions WHERE table_schema = DATABASE() AND table_name = 'log_lines' \
     AND partition_name IS NOT NULL";
const MARK: &str = "SELECT at FROM probe WHERE id = ?";
const ENDED: &str = "SELECT ended.place, ended.job, ended.occurrence, ended.attempt, ended.completed_at, \
     EXISTS (SELECT 1 FROM log_lines FORCE INDEX (PRIMARY) WHERE log_lines.job = ended.job \
       AND log_lines.occurrence = ended.occurrence AND log_lines.attempt = ended.attempt) \
     FROM (SELECT place, job, occurrence, attempt, completed_at FROM history FORCE INDEX (PRIMARY) WHERE place > ? \
       ORDER BY place LIMIT ?) AS ended ORDER BY ended.place";
const REMOVE_LINES: &str = concat!(
    "DELETE log_lines FROM ",
    list!(0 job id, 1 occurrence int, 2 attempt int),
    " STRAIGHT_JOIN log_lines FORCE INDEX (PRIMARY) ON log_lines.job = UNHEX(given.job) \
     AND log_lines.occurrence = given.occurrence AND log_lines.attempt = given.attempt"
);

/// Removes old lines when the limit is exceeded.
#[derive(Debug)]
pub(crate) struct Remover {
    target: Target,
    own: OwnConnection,
    pub quota: LogQuota,
}

impl Remover {
    pub fn new(target: Target, bytes_max: Option<u64>) -> Self {
        Remover { own: OwnConnection::new(target.clone()), target, quota: LogQuota::new(bytes_max) }
    }

    /// Brings the lines within the limit; `newest` is the number of the newest line.
    pub async fn keep_within(&self, look: QuotaLook, newest: i64) -> Result<(), Fault> {
        let mut used = self.own.take().await?;
        let freed = self.remove(&mut used.connection, look, newest).await?;
        self.quota.settle(look, freed);
        used.keep();
        Ok(())
    }

    /// Bytes of executions that were removed.
    async fn remove(&self, connection: &mut Connection, look: QuotaLook, newest: i64) -> Result<u64, Fault> {
        connection.run_text(FRESH_SIZES).await?;
        let mut excess = size(connection).await?.saturating_sub(look.bytes_max);
        if excess == 0 {
            return Ok(0);
        }
        let old = partitions::older_than(connection, Parent::Lines, newest).await?;
        connection.commit().await?;
        for partition in old.into_iter().filter(|partition| partition.name != FIRST) {
            if excess == 0 {
                break;
            }
            let bytes = size_of(connection, &partition.name).await?;
            let lines = count_rows(connection, &partition).await?;
            // The DDL statement must not wait for this very transaction.
            connection.commit().await?;
            let mut defining = Connection::defining(&self.target).await?;
            let is_removed = partitions::remove(&self.target, &mut defining, &partition).await;
            defining.close().await;
            if !is_removed? {
                // The table is in use: the next check tries again.
                return Ok(0);
            }
            raise(connection, StoredNumber::LogsRemoved, partition.ends).await?;
            self.quota.note_removed(RemovedLines { lines, bytes });
            excess = excess.saturating_sub(bytes);
        }
        if excess == 0 { Ok(0) } else { self.remove_ended(connection, look.owed).await }
    }

    /// Removes at least this many bytes of the logs of ended executions, in the order of their ends.
    /// Returns how many.
    async fn remove_ended(&self, connection: &mut Connection, owed: u64) -> Result<u64, Fault> {
        let mark = connection.one(MARK, vec![StoredNumber::LogsRemovedPlace.id().into()]).await?;
        let mut place: i64 = mark.map_or(Ok(0), |row| get(&row, 0))?;
        let mut freed = 0;
        while freed < owed {
            let ended = ended_after(connection, place).await?;
            let Some(last) = ended.last() else { break };
            place = last.place;
            let with_lines: Vec<EndedExecution> = ended.into_iter().filter(|ended| ended.has_lines).collect();
            for step in with_lines.chunks(EXECUTIONS_PER_STEP) {
                let removed = remove_lines(connection, step).await?;
                self.quota.note_removed(removed);
                freed += removed.bytes + removed.lines * LINE_OVERHEAD_BYTES;
                let Some(last) = step.last() else { continue };
                raise(connection, StoredNumber::LogsRemoved, last.completed_at.as_micros()).await?;
                if freed >= owed {
                    place = last.place;
                    break;
                }
            }
            raise(connection, StoredNumber::LogsRemovedPlace, place).await?;
        }
        connection.commit().await?;
        Ok(freed)
    }
}

async fn size(connection: &mut Connection) -> Result<u64, Fault> {
    let rows = connection.all(SIZES, vec![]).await?;
    rows.iter().map(|row| read::<u64>(row, 1, "a size")).sum()
}

async fn size_of(connection: &mut Connection, partition: &str) -> Result<u64, Fault> {
    for row in connection.all(SIZES, vec![]).await? {
        if get::<String>(&row, 0)? == partition {
            return read(&row, 1, "a size");
        }
    }
    Ok(0)
}

async fn ended_after(connection: &mut Connection, place: i64) -> Result<Vec<EndedExecution>, Fault> {
    let rows = connection.all(ENDED, vec![Value::Int(place), limit(ENDED_PER_LOOK).into()]).await?;
    connection.commit().await?;
    let read = |row: &mysql_async::Row| {
        Ok(EndedExecution {
            place: get(row, 0)?,
            execution: execution_id(row, 1)?,
            completed_at: time(row, 4)?,
            has_lines: get::<i64>(row, 5)? != 0,
        })
    };
    rows.iter().map(read).collect()
}

/// Removes the lines of these executions in one transaction.
async fn remove_lines(connection: &mut Connection, ended: &[EndedExecution]) -> Result<RemovedLines, Fault> {
    let mut removed = RemovedLines::default();
    let ids = ended.iter().map(|ended| ended.execution);
    for list in documents(&asks::executions(ids)) {
        for row in connection.all(COUNT_LINES, vec![list.clone()]).await? {
            removed.lines += read::<u64>(&row, 3, "a count")?;
            removed.bytes += read::<u64>(&row, 4, "a sum")?;
        }
        connection.run(REMOVE_LINES, vec![list]).await?;
    }
    connection.commit().await?;
    Ok(removed)
}

async fn raise(connection: &mut Connection, mark: StoredNumber, to: i64) -> Result<(), Fault> {
    connection.run(RAISE_MARK, vec![mark.id().into(), Value::Int(to)]).await?;
    connection.commit().await
}
