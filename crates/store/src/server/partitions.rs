//! When partitions of history and log lines are dropped. Each dialect knows how to create and drop them.

use super::connection::{ServerCall, ServerConnection, value};
use crate::fault::Fault;
use async_trait::async_trait;
use punctual_core::time::Timestamp;

/// A table that has partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PartitionedTable {
    History,
    Lines,
}

impl PartitionedTable {
    pub const ALL: [PartitionedTable; 2] = [PartitionedTable::History, PartitionedTable::Lines];
}

/// A connection to a database with partitions.
#[async_trait]
pub(crate) trait PartitionedTables: ServerConnection {
    /// Shared by all connections of a process.
    type Shared: Send + Sync;
    type Partition: Send + Sync;
    /// Held while partitions are dropped.
    type Dropping: Send + Sync;
    /// Tells readers of history up to where it is deleted.
    const KEEP_RETAINED: &'static str;

    /// Creates the partitions of the near future.
    async fn make_ahead(&mut self, shared: &Self::Shared) -> Result<(), Fault>;

    /// The partitions that are completely older than this, in microseconds, oldest first.
    async fn older_than(
        &mut self,
        parent: PartitionedTable,
        before: i64,
    ) -> Result<Vec<Self::Partition>, Fault>;

    /// `None` if another process drops partitions now.
    async fn begin_dropping(shared: &Self::Shared) -> Result<Option<Self::Dropping>, Fault>;

    /// Must be called before each piece of work.
    async fn must_be_held(dropping: &Self::Dropping) -> Result<(), Fault>;

    /// How many rows are dropped with a partition; an estimate of the server if there are very many.
    async fn count_rows(&mut self, partition: &Self::Partition) -> Result<u64, Fault>;

    /// The last position in a partition of history.
    async fn highest_place(&mut self, partition: &Self::Partition) -> Result<i64, Fault>;

    /// Returns whether it could be dropped. Completes what another node or an earlier attempt has begun.
    async fn drop_partition(
        &mut self,
        shared: &Self::Shared,
        dropping: &mut Self::Dropping,
        partition: &Self::Partition,
    ) -> Result<bool, Fault>;

    async fn end_dropping(dropping: Self::Dropping) -> Result<(), Fault>;
}

/// Partitions that were dropped.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Dropped {
    pub rows: u64,
    /// Whether older ones are left.
    pub more: bool,
}

/// Drops the partitions of each parent that are completely older, until this many rows are gone. Leaves it
/// to another node that does so now: two nodes that drop the same partition could mistake each other's
/// work, or a partition that was created again meanwhile, for their own.
pub(crate) async fn drop_older<C: PartitionedTables>(
    connection: &mut C,
    shared: &C::Shared,
    before: Timestamp,
    count: usize,
) -> Result<[Dropped; PartitionedTable::ALL.len()], Fault> {
    let mut dropped = [Dropped::default(); PartitionedTable::ALL.len()];
    let is_needed = has_older(connection, before).await?;
    connection.settle().await?;
    if !is_needed {
        return Ok(dropped);
    }
    let Some(mut dropping) = C::begin_dropping(shared).await? else { return Ok(dropped) };
    for (dropped, parent) in dropped.iter_mut().zip(PartitionedTable::ALL) {
        for partition in connection.older_than(parent, before.as_micros()).await? {
            if dropped.rows >= count as u64 {
                dropped.more = true;
                break;
            }
            C::must_be_held(&dropping).await?;
            let rows = connection.count_rows(&partition).await?;
            if parent == PartitionedTable::History {
                let place = connection.highest_place(&partition).await?;
                connection.send_alone(ServerCall::new(C::KEEP_RETAINED, [value(place)])).await?;
            }
            // Dropping must not wait for this very transaction.
            connection.settle().await?;
            match connection.drop_partition(shared, &mut dropping, &partition).await {
                Ok(true) => dropped.rows += rows,
                Ok(false) => break,
                // A backup, for example, reads for hours. The partition is no longer visible; the rest
                // waits.
                Err(fault) if fault.is_conflict() => {
                    tracing::info!(?parent, %fault, "an old partition is still being read");
                    break;
                }
                Err(fault) => return Err(fault),
            }
        }
    }
    C::end_dropping(dropping).await?;
    Ok(dropped)
}

async fn has_older<C: PartitionedTables>(connection: &mut C, before: Timestamp) -> Result<bool, Fault> {
    for parent in PartitionedTable::ALL {
        if !connection.older_than(parent, before.as_micros()).await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
