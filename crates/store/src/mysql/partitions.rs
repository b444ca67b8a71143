//! The partitions of history and log lines: created ahead of time, and dropped as a whole when everything
//! in them is old.
//!
//! Every time has a partition. `p_first` covers everything before the first day that was created ahead,
//! `p_rest` everything after the last one. With regular maintenance both stay empty; rows in them are
//! deleted one by one.
//!
//! A DDL statement waits for all users of the table and blocks all later ones. So it gives up after a
//! moment, and the next round tries again. One node at a time runs DDL statements.

use super::connection::Connection;
use super::exclusive_work::{DdlLock, LockWait};
use super::maintenance::SharedMaintenance;
use super::options::Target;
use crate::cells::get;
use crate::fault::Fault;
pub(crate) use crate::server::partitions::PartitionedTable;
use crate::server::partitions::PartitionedTables;
use async_trait::async_trait;
use mysql_async::Row;
use punctual_core::limits;
use punctual_core::time::duration_micros;
use std::time::Duration;

/// The name of a table that has partitions.
pub(super) const fn table(parent: PartitionedTable) -> &'static str {
    match parent {
        PartitionedTable::History => "history",
        PartitionedTable::Lines => "log_lines",
    }
}

/// A daily partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partition {
    pub parent: PartitionedTable,
    pub name: String,
    /// Its end in microseconds, exclusive.
    pub ends: i64,
    /// The server's estimate of its rows.
    pub rows_guessed: u64,
}

/// Everything before the first partition that was created ahead.
pub(crate) const FIRST: &str = "p_first";
/// Everything after the last one.
pub(crate) const REST: &str = "p_rest";

const CLOCK: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
const PARTITIONS: &str = "SELECT partition_name, partition_description, table_rows FROM information_schema.partitions \
     WHERE table_schema = DATABASE() AND table_name = ? AND partition_name IS NOT NULL \
     ORDER BY partition_ordinal_position";
/// The highest position that was ever assigned, according to rows and bounds.
pub(crate) const LAST_PLACE: &str = "SELECT GREATEST(COALESCE((SELECT MAX(place) FROM history), 0), given, retained) \
     FROM history_bounds WHERE id = 1";

/// Creates the partitions of the near future. It is not an error if another process does so, or uses the
/// table.
pub(crate) async fn make_ahead(target: &Target, width: Duration) -> Result<(), Fault> {
    let mut connection = Connection::defining(target).await?;
    let made = make_missing(target, &mut connection, width_us(width)).await;
    connection.close().await;
    made
}

async fn make_missing(target: &Target, connection: &mut Connection, width_us: i64) -> Result<(), Fault> {
    let now = clock(connection).await?;
    let wanted = Ahead { now, width_us };
    let mut is_complete = true;
    for parent in PartitionedTable::ALL {
        is_complete &= wanted.missing(&bounds(connection, parent).await?).is_empty();
    }
    if is_complete {
        return Ok(());
    }
    let Some(ddl_lock) = DdlLock::take(target, LockWait::Short).await? else { return Ok(()) };
    let made = make(connection, &wanted).await;
    ddl_lock.end().await;
    made
}

async fn make(connection: &mut Connection, wanted: &Ahead) -> Result<(), Fault> {
    for parent in PartitionedTable::ALL {
        let missing = wanted.missing(&bounds(connection, parent).await?);
        if missing.is_empty() {
            continue;
        }
        let parts: Vec<String> = missing
            .iter()
            .map(|(name, ends)| format!("PARTITION {name} VALUES LESS THAN ({ends}), "))
            .collect();
        let table = table(parent);
        let define = format!(
            "ALTER TABLE {table} REORGANIZE PARTITION {REST} INTO ({}PARTITION {REST} VALUES LESS THAN MAXVALUE)",
            parts.concat()
        );
        if !connection.define(&define).await? {
            tracing::debug!(table, "partitions could not be created now: the table is in use");
        }
    }
    Ok(())
}

/// The partitions that must exist.
struct Ahead {
    now: i64,
    width_us: i64,
}

impl Ahead {
    /// Names and ends of the missing partitions, given the ends of the existing ones.
    fn missing(&self, ends: &[i64]) -> Vec<(String, i64)> {
        let today = self.now.div_euclid(self.width_us) * self.width_us;
        let mut missing = Vec::new();
        if ends.is_empty() {
            missing.push((FIRST.to_owned(), today));
        }
        let last = ends.last().copied().unwrap_or(today);
        // After a long pause, the time that has passed becomes one partition.
        if last < today {
            missing.push((name_of(last), today));
        }
        let first = last.max(today);
        let until = today.saturating_add((limits::PARTITIONS_AHEAD + 1) * self.width_us);
        let mut starts = first;
        while starts < until {
            let ends = starts.saturating_add(self.width_us);
            missing.push((name_of(starts), ends));
            starts = ends;
        }
        missing
    }
}

fn name_of(starts: i64) -> String {
    format!("p_{starts}")
}

pub(crate) fn width_us(width: Duration) -> i64 {
    duration_micros(width.max(Duration::from_secs(1)))
}

/// Drops a partition. Returns whether it could.
///
/// The server stores the last assigned number with each partition. Before a partition of history is
/// dropped, the number is set on all others: a position must never be reused, even if the server restarts
/// when no other rows are left.
async fn remove(target: &Target, connection: &mut Connection, partition: &Partition) -> Result<bool, Fault> {
    let Some(ddl_lock) = DdlLock::take(target, LockWait::Short).await? else { return Ok(false) };
    let removed = remove_in_turn(connection, partition).await;
    ddl_lock.end().await;
    removed
}

async fn remove_in_turn(connection: &mut Connection, partition: &Partition) -> Result<bool, Fault> {
    let table = table(partition.parent);
    if !all(connection, partition.parent).await?.iter().any(|found| found.name == partition.name) {
        return Ok(true);
    }
    if partition.parent == PartitionedTable::History {
        let row = connection.one(LAST_PLACE, vec![]).await?;
        let last: i64 = get(&row.ok_or_else(|| Fault::Missing("history_bounds".to_owned()))?, 0)?;
        let next = last.saturating_add(1);
        if !connection.define(&format!("ALTER TABLE history AUTO_INCREMENT = {next}")).await? {
            return Ok(false);
        }
    }
    connection.define(&format!("ALTER TABLE {table} DROP PARTITION {}", partition.name)).await
}

async fn bounds(connection: &mut Connection, parent: PartitionedTable) -> Result<Vec<i64>, Fault> {
    Ok(all(connection, parent).await?.into_iter().map(|partition| partition.ends).collect())
}

/// All partitions that have an end, in order.
pub(crate) async fn all(
    connection: &mut Connection,
    parent: PartitionedTable,
) -> Result<Vec<Partition>, Fault> {
    let rows = connection.all(PARTITIONS, vec![table(parent).into()]).await?;
    let mut partitions = Vec::with_capacity(rows.len());
    for row in &rows {
        if get::<&str>(row, 0)? != REST {
            partitions.push(Partition::read(parent, row)?);
        }
    }
    Ok(partitions)
}

impl Partition {
    /// Reads its name, end and number of rows.
    pub fn read(parent: PartitionedTable, row: &Row) -> Result<Self, Fault> {
        let described: &str = get(row, 1)?;
        let ends = described.parse().map_err(|_| Fault::damaged("the end of a partition", described))?;
        let rows_guessed = get::<Option<u64>>(row, 2)?.unwrap_or(0);
        Ok(Partition { parent, name: get(row, 0)?, ends, rows_guessed })
    }
}

#[async_trait]
impl PartitionedTables for Connection {
    type Shared = SharedMaintenance;
    type Partition = Partition;
    /// A connection for DDL statements, opened on demand.
    type Dropping = Option<Connection>;
    const KEEP_RETAINED: &'static str =
        "UPDATE history_bounds SET retained = GREATEST(retained, ?) WHERE id = 1";

    async fn make_ahead(&mut self, shared: &SharedMaintenance) -> Result<(), Fault> {
        make_ahead(&shared.target, shared.partition_width).await
    }

    async fn older_than(&mut self, parent: PartitionedTable, before: i64) -> Result<Vec<Partition>, Fault> {
        let all = all(self, parent).await?;
        Ok(all.into_iter().filter(|partition| partition.ends <= before && partition.name != FIRST).collect())
    }

    async fn begin_dropping(_: &SharedMaintenance) -> Result<Option<Self::Dropping>, Fault> {
        Ok(Some(None))
    }

    /// One node at a time drops a partition, and other nodes find that it is gone.
    async fn must_be_held(_: &Self::Dropping) -> Result<(), Fault> {
        Ok(())
    }

    async fn count_rows(&mut self, partition: &Partition) -> Result<u64, Fault> {
        let (table, name) = (table(partition.parent), &partition.name);
        let most = limits::PARTITION_ROWS_COUNTED_MAX;
        let counted = format!(
            "SELECT COUNT(*) FROM (SELECT 1 FROM {table} PARTITION ({name}) LIMIT {most}) AS counted"
        );
        let rows = self.all_of_text(&counted).await?;
        let rows: i64 = get(rows.first().ok_or_else(|| Fault::Missing("a count".to_owned()))?, 0)?;
        Ok(if rows < most { rows.unsigned_abs() } else { partition.rows_guessed.max(most.unsigned_abs()) })
    }

    async fn highest_place(&mut self, partition: &Partition) -> Result<i64, Fault> {
        let highest = format!("SELECT COALESCE(MAX(place), 0) FROM history PARTITION ({})", partition.name);
        let rows = self.all_of_text(&highest).await?;
        get(rows.first().ok_or_else(|| Fault::Missing("a place".to_owned()))?, 0)
    }

    async fn drop_partition(
        &mut self,
        shared: &SharedMaintenance,
        dropping: &mut Self::Dropping,
        partition: &Partition,
    ) -> Result<bool, Fault> {
        let defining = match dropping {
            Some(defining) => defining,
            None => dropping.insert(Connection::defining(&shared.target).await?),
        };
        let is_dropped = remove(&shared.target, defining, partition).await?;
        if !is_dropped {
            let table = table(partition.parent);
            tracing::debug!(table, "a partition could not be dropped now: the table is in use");
        }
        Ok(is_dropped)
    }

    async fn end_dropping(dropping: Self::Dropping) -> Result<(), Fault> {
        if let Some(defining) = dropping {
            defining.close().await;
        }
        Ok(())
    }
}

async fn clock(connection: &mut Connection) -> Result<i64, Fault> {
    let row = connection.one(CLOCK, vec![]).await?;
    get(&row.ok_or_else(|| Fault::Missing("the time".to_owned()))?, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_created_ahead_without_gaps() {
        let ahead = Ahead { now: 1_050, width_us: 100 };
        let ends =
            |missing: Vec<(String, i64)>| missing.into_iter().map(|(_, ends)| ends).collect::<Vec<_>>();
        let first = ahead.missing(&[]);
        assert_eq!((first[0].0.as_str(), first[0].1), (FIRST, 1_000));
        assert_eq!(ends(first), [1_000, 1_100, 1_200, 1_300, 1_400]);
        assert!(ahead.missing(&[1_000, 1_100, 1_200, 1_300, 1_400]).is_empty());
        assert_eq!(ends(ahead.missing(&[900, 1_300])), [1_400]);
        assert_eq!(ends(ahead.missing(&[500])), [1_000, 1_100, 1_200, 1_300, 1_400], "after a long pause");
        assert_eq!(
            ends(ahead.missing(&[1_070])),
            [1_170, 1_270, 1_370, 1_470],
            "the width was different before"
        );
    }
}
