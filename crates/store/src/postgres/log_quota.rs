//! Keeps the total size of log lines within its limit: drops the oldest partitions completely, then removes
//! the logs of the executions that ended first. One process at a time does so, on its own connection.

use super::guard::{Duty, Guard};
use super::maintenance::{RAISE_MARK, count_rows};
use super::partitions::{Parent, Partition};
use super::rows::{integer, uuid};
use super::tables::Shared;
use super::wire::{Call, OwnWire, Wire, column, value};
use crate::cells::{get, read};
use crate::codecs::{execution_id, limit, time};
use crate::execution_log_quota::RemovedLines;
use crate::fault::Fault;
use crate::log_quota::{
    ENDED_PER_LOOK, EXECUTIONS_PER_STEP, EndedExecution, LINE_OVERHEAD_BYTES, LogQuota, QuotaLook,
};
use crate::stored_numbers::StoredNumber;

const SIZES: &str = "SELECT name, starts, ends, coalesce(pg_total_relation_size(to_regclass(name)), 0)::bigint \
     FROM partitions WHERE parent = 'lines' ORDER BY starts";
const MARK: &str = "SELECT at FROM probe WHERE id = $1";
const ENDED: &str = "SELECT ended.place, ended.job, ended.occurrence, ended.attempt, ended.completed_at, \
     EXISTS (SELECT 1 FROM lines WHERE lines.job = ended.job AND lines.occurrence = ended.occurrence \
       AND lines.attempt = ended.attempt) \
     FROM (SELECT place, job, occurrence, attempt, completed_at FROM history WHERE place > $1 \
       ORDER BY place LIMIT $2) AS ended ORDER BY ended.place";
const REMOVE_LINES: &str = "WITH gone AS (DELETE FROM lines \
       USING unnest($1::uuid[], $2::bigint[], $3::integer[]) AS ended(job, occurrence, attempt) \
       WHERE lines.job = ended.job AND lines.occurrence = ended.occurrence AND lines.attempt = ended.attempt \
       RETURNING octet_length(lines.message) AS bytes) \
     SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM gone";

/// Removes old lines when the limit is exceeded.
pub(crate) struct Remover {
    shared: Shared,
    own: OwnWire,
    pub quota: LogQuota,
}

impl Remover {
    pub fn new(shared: Shared, bytes_max: Option<u64>) -> Self {
        Remover { own: OwnWire::new(shared.target.clone()), shared, quota: LogQuota::new(bytes_max) }
    }

    /// Brings the lines within the limit; `newest` is the number of the newest line.
    pub async fn keep_within(&self, look: QuotaLook, newest: i64) -> Result<(), Fault> {
        let mut used = self.own.take().await?;
        if let Some(freed) = self.remove(&mut used.wire, look, newest).await? {
            self.quota.settle(look, freed);
        }
        used.keep();
        Ok(())
    }

    /// Bytes of executions that were removed; `None` while another process does so.
    async fn remove(&self, wire: &mut Wire, look: QuotaLook, newest: i64) -> Result<Option<u64>, Fault> {
        let mut sizes = sizes(wire).await?;
        let total = |sizes: &[(Partition, u64)]| sizes.iter().map(|(_, bytes)| bytes).sum::<u64>();
        if total(&sizes) <= look.bytes_max {
            return Ok(Some(0));
        }
        let Some(guard) = Guard::take(&self.shared.target, Duty::Retention).await? else { return Ok(None) };
        while total(&sizes) > look.bytes_max && sizes.first().is_some_and(|(oldest, _)| oldest.ends <= newest)
        {
            guard.must_be_held().await?;
            let (oldest, bytes) = sizes.remove(0);
            let lines = count_rows(wire, &oldest).await?;
            self.shared.partitions.remove(wire.client(), &oldest).await?;
            raise(wire, StoredNumber::LogsRemoved, oldest.ends).await?;
            self.quota.note_removed(RemovedLines { lines, bytes });
        }
        let mut freed = 0;
        if total(&sizes) > look.bytes_max {
            freed = self.remove_ended(wire, &guard, look.owed).await?;
        }
        guard.release().await?;
        Ok(Some(freed))
    }

    /// Removes at least this many bytes of the logs of ended executions, in the order of their ends.
    /// Returns how many.
    async fn remove_ended(&self, wire: &mut Wire, guard: &Guard, owed: u64) -> Result<u64, Fault> {
        let mark = wire.run_one(Call::new(MARK, [value(StoredNumber::LogsRemovedPlace.id())])).await?;
        let mut place: i64 = mark.first().map_or(Ok(0), |row| get(row, 0))?;
        let mut freed = 0;
        while freed < owed {
            guard.must_be_held().await?;
            let ended = ended_after(wire, place).await?;
            let Some(last) = ended.last() else { break };
            place = last.place;
            let with_lines: Vec<EndedExecution> = ended.into_iter().filter(|ended| ended.has_lines).collect();
            for step in with_lines.chunks(EXECUTIONS_PER_STEP) {
                let removed = remove_lines(wire, step).await?;
                self.quota.note_removed(removed);
                freed += removed.bytes + removed.lines * LINE_OVERHEAD_BYTES;
                let Some(last) = step.last() else { continue };
                raise(wire, StoredNumber::LogsRemoved, last.completed_at.as_micros()).await?;
                if freed >= owed {
                    place = last.place;
                    break;
                }
            }
            raise(wire, StoredNumber::LogsRemovedPlace, place).await?;
        }
        Ok(freed)
    }
}

async fn sizes(wire: &mut Wire) -> Result<Vec<(Partition, u64)>, Fault> {
    let rows = wire.run_one(Call::new(SIZES, [])).await?;
    let read = |row: &tokio_postgres::Row| {
        let partition =
            Partition { parent: Parent::Lines, name: get(row, 0)?, starts: get(row, 1)?, ends: get(row, 2)? };
        Ok((partition, read(row, 3, "a size")?))
    };
    rows.iter().map(read).collect()
}

async fn ended_after(wire: &mut Wire, place: i64) -> Result<Vec<EndedExecution>, Fault> {
    let rows = wire.run_one(Call::new(ENDED, [value(place), value(limit(ENDED_PER_LOOK))])).await?;
    let read = |row: &tokio_postgres::Row| {
        Ok(EndedExecution {
            place: get(row, 0)?,
            execution: execution_id(row, 1)?,
            completed_at: time(row, 4)?,
            has_lines: get(row, 5)?,
        })
    };
    rows.iter().map(read).collect()
}

async fn remove_lines(wire: &mut Wire, ended: &[EndedExecution]) -> Result<RemovedLines, Fault> {
    let ids = || ended.iter().map(|ended| ended.execution);
    let keys = [
        column(ids().map(|id| uuid(id.occurrence.job))),
        column(ids().map(|id| i64::from(id.occurrence.number))),
        column(ids().map(|id| integer(id.attempt))),
    ];
    let rows = wire.run_one(Call::new(REMOVE_LINES, keys)).await?;
    let row = rows.first().ok_or_else(|| Fault::Missing("a count".to_owned()))?;
    Ok(RemovedLines { lines: read(row, 0, "a count")?, bytes: read(row, 1, "a sum")? })
}

async fn raise(wire: &mut Wire, mark: StoredNumber, to: i64) -> Result<(), Fault> {
    wire.run_one(Call::new(RAISE_MARK, [value(mark.id()), value(to)])).await?;
    Ok(())
}
