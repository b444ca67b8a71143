//! Keeps the total size of log lines within its limit: drops the oldest partitions completely, then removes
//! the logs of the executions that ended first. It has its own connection.

use super::connection::{Argument, OwnConnection, ServerCall, TransactionFrame, value};
use super::logs::{LogTables, SizedPartition};
use crate::cells::{RowCells, get, read};
use crate::codecs::{execution_id, limit};
use crate::execution_log_quota::RemovedLines;
use crate::fault::Fault;
use crate::log_quota::{
    ENDED_PER_LOOK, EXECUTIONS_PER_STEP, EndedExecution, LINE_OVERHEAD_BYTES, LogQuota, QuotaLook,
};
use crate::malformed::readable;
use crate::row_list;
use crate::stored_numbers::StoredNumber;

/// Removes old lines when the limit is exceeded.
pub(crate) struct Remover<C: LogTables> {
    pub shared: C::Shared,
    pub own: OwnConnection<C>,
    pub quota: LogQuota,
}

impl<C: LogTables> Remover<C> {
    /// Brings the lines within the limit; `newest` is the number of the newest line.
    pub async fn keep_within(&self, look: QuotaLook, newest: i64) -> Result<(), Fault> {
        let mut used = self.own.take().await?;
        if let Some(freed) = self.remove(&mut used.connection, look, newest).await? {
            self.quota.settle(look, freed);
        }
        used.keep();
        Ok(())
    }

    /// Bytes of executions that were removed; `None` while another process does so.
    async fn remove(&self, connection: &mut C, look: QuotaLook, newest: i64) -> Result<Option<u64>, Fault> {
        let (total, oldest) = connection.sizes().await?;
        connection.settle().await?;
        let mut excess = total.saturating_sub(look.bytes_max);
        if excess == 0 {
            return Ok(Some(0));
        }
        let Some(mut dropping) = C::begin_dropping(&self.shared).await? else { return Ok(None) };
        for SizedPartition { partition, ends, bytes } in oldest {
            if excess == 0 || ends > newest {
                break;
            }
            C::must_be_held(&dropping).await?;
            let lines = connection.count_rows(&partition).await?;
            // Dropping must not wait for this very transaction.
            connection.settle().await?;
            if !connection.drop_partition(&self.shared, &mut dropping, &partition).await? {
                // The table is in use: the next check tries again.
                C::end_dropping(dropping).await?;
                return Ok(Some(0));
            }
            raise(connection, StoredNumber::LogsRemoved, ends).await?;
            self.quota.note_removed(RemovedLines { lines, bytes });
            excess = excess.saturating_sub(bytes);
        }
        let freed = if excess == 0 { 0 } else { self.remove_ended(connection, &dropping, look.owed).await? };
        C::end_dropping(dropping).await?;
        Ok(Some(freed))
    }

    /// Removes at least this many bytes of the logs of ended executions, in the order of their ends.
    /// Returns how many.
    async fn remove_ended(
        &self,
        connection: &mut C,
        dropping: &C::Dropping,
        owed: u64,
    ) -> Result<u64, Fault> {
        let number = ServerCall::new(C::NUMBER, [value(StoredNumber::LogsRemovedPlace.id())]);
        let number = connection.send_one(TransactionFrame::None, number).await?;
        let mut place: i64 = number.rows.first().map_or(Ok(0), |row| get(row, 0))?;
        let mut freed = 0;
        while freed < owed {
            C::must_be_held(dropping).await?;
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
        connection.settle().await?;
        Ok(freed)
    }
}

async fn ended_after<C: LogTables>(connection: &mut C, place: i64) -> Result<Vec<EndedExecution>, Fault> {
    let after = ServerCall::new(C::ENDED, [value(place), value(limit(ENDED_PER_LOOK))]);
    readable(connection.send_alone(after).await?.rows.iter().map(read_ended))
}

fn read_ended(row: &impl RowCells) -> Result<EndedExecution, Fault> {
    Ok(EndedExecution {
        place: get(row, 0)?,
        execution: execution_id(row, 1)?,
        completed_at: read(row, 4, "history.completed_at")?,
        has_lines: get(row, 5)?,
    })
}

/// Removes the lines of these executions in one transaction.
async fn remove_lines<C: LogTables>(
    connection: &mut C,
    ended: &[EndedExecution],
) -> Result<RemovedLines, Fault> {
    let keys = || Argument::Rows(row_list::executions(ended.iter().map(|ended| ended.execution)));
    let calls = C::REMOVE_LINES.iter().map(|sql| ServerCall::new(sql, [keys()])).collect();
    let answers = connection.send(TransactionFrame::None, calls).await?;
    connection.settle().await?;
    let mut removed = RemovedLines::default();
    for row in answers.iter().flat_map(|answer| &answer.rows) {
        removed.lines += read::<u64>(row, 3, "a count")?;
        removed.bytes += read::<u64>(row, 4, "a sum")?;
    }
    Ok(removed)
}

async fn raise<C: LogTables>(connection: &mut C, number: StoredNumber, to: i64) -> Result<(), Fault> {
    let call = ServerCall::new(C::RAISE_NUMBER, [value(number.id()), value(to)]);
    connection.send_alone(call).await.map(drop)
}
