//! The partitions of history and log lines: created ahead of time, created immediately if a row needs a
//! missing one, and dropped as a whole when everything in them is old.
//!
//! Neither operation blocks readers and writers: a new partition is attached, an old one is detached
//! concurrently. The table `partitions` lists the existing ones; the process that creates one holds a lock
//! on it.
//!
//! A session of PostgreSQL caches the list of a table's partitions. A session that reads the list while a
//! partition is attached may keep the list without it: the notice that the list has changed arrives before
//! the old list is stored (seen with PostgreSQL 15.18, 4 of 1,000 partitions with ten busy readers). So
//! after a partition is attached, and before it is used, the statements that may be reading the list are
//! awaited, and then the notice is sent once more.

use super::connection::connect;
use super::guard::{Duty, WriterGuard};
use super::maintenance::clock;
use super::options::Target;
use super::tables::SharedDatabase;
use super::wire::Wire;
use crate::cells::get;
use crate::fault::Fault;
pub(crate) use crate::server::partitions::PartitionedTable;
use crate::server::partitions::PartitionedTables;
use async_trait::async_trait;
use punctual_core::limits;
use punctual_core::time::{Timestamp, duration_micros};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Row};

/// The name of a table that has partitions.
const fn table(parent: PartitionedTable) -> &'static str {
    match parent {
        PartitionedTable::History => "history",
        PartitionedTable::Lines => "lines",
    }
}

/// The known partitions, shared by all connections of a process.
pub(crate) struct Partitions {
    target: Target,
    width_us: i64,
    /// By parent and first microsecond: the end, exclusive.
    known: Mutex<BTreeMap<(PartitionedTable, i64), i64>>,
}

/// The advisory lock of the process that creates partitions: "parts" in ASCII.
const CREATION_LOCK: i64 = 0x70_6172_7473;
/// How long a new partition waits for statements that may be reading the list of partitions. They read it
/// before they begin, so one that takes longer has read it.
const LIST_READ_TIME_MAX: Duration = Duration::from_secs(2);
const LIST_READ_PAUSE: Duration = Duration::from_millis(1);

/// The partitions of a parent.
struct KnownPartitions {
    /// First microseconds, and ends, exclusive.
    existing: BTreeMap<i64, i64>,
    has_new: bool,
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partition {
    pub parent: PartitionedTable,
    pub name: String,
    pub starts: i64,
    pub ends: i64,
}

impl Partition {
    /// Reads its name, start and end.
    pub fn read(parent: PartitionedTable, row: &Row) -> Result<Self, Fault> {
        Ok(Partition { parent, name: get(row, 0)?, starts: get(row, 1)?, ends: get(row, 2)? })
    }

    async fn is_gone(&self, client: &Client) -> Result<bool, Fault> {
        Ok(client.query_one("SELECT to_regclass($1) IS NULL", &[&self.name]).await?.try_get(0)?)
    }
}

impl Partitions {
    pub fn new(target: Target, width: Duration) -> Self {
        let width_us = duration_micros(width.max(Duration::from_secs(1)));
        Partitions { target, width_us, known: Mutex::default() }
    }

    /// Makes sure that rows with these times have a partition. Known partitions cost nothing.
    pub async fn ensure(
        &self,
        parent: PartitionedTable,
        times: impl IntoIterator<Item = i64>,
    ) -> Result<(), Fault> {
        let missing: Vec<i64> = times.into_iter().filter(|time| !self.is_known(parent, *time)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        // Not on a connection with an open transaction: others must see the partition at once.
        let client = connect(&self.target).await?;
        self.make(&client, parent, missing).await
    }

    /// Creates the partitions of the near future.
    pub async fn make_ahead(&self, client: &Client, now: Timestamp) -> Result<(), Fault> {
        for parent in PartitionedTable::ALL {
            let ahead =
                (0..=limits::PARTITIONS_AHEAD).map(|n| now.as_micros().saturating_add(n * self.width_us));
            let missing: Vec<i64> = ahead.filter(|time| !self.is_known(parent, *time)).collect();
            if !missing.is_empty() {
                self.make(client, parent, missing).await?;
            }
        }
        Ok(())
    }

    /// Discards the known partitions: a row found no partition, so one of them was dropped.
    pub fn forget(&self) {
        self.known().clear();
    }

    /// Drops one. Completes what another node or an earlier attempt has begun.
    pub async fn remove(&self, client: &Client, partition: &Partition) -> Result<(), Fault> {
        self.known().remove(&(partition.parent, partition.starts));
        client.execute("UPDATE partitions SET leaves = true WHERE name = $1", &[&partition.name]).await?;
        let (parent, name) = (table(partition.parent), &partition.name);
        let detachment = "SELECT inhdetachpending FROM pg_inherits \
             WHERE inhrelid = to_regclass($1) AND inhparent = to_regclass($2)";
        match client.query_opt(detachment, &[name, &parent]).await? {
            Some(row) => {
                let way = if get(&row, 0)? { "FINALIZE" } else { "CONCURRENTLY" };
                client.batch_execute(&format!("ALTER TABLE {parent} DETACH PARTITION {name} {way}")).await?;
            }
            None => tracing::debug!(name, "the partition was detached before"),
        }
        client.batch_execute(&format!("DROP TABLE IF EXISTS {name}")).await?;
        client.execute("DELETE FROM partitions WHERE name = $1", &[name]).await?;
        Ok(())
    }

    fn is_known(&self, parent: PartitionedTable, time: i64) -> bool {
        let known = self.known();
        let below = known.range((parent, i64::MIN)..=(parent, time)).next_back();
        below.is_some_and(|(_, ends)| time < *ends)
    }

    async fn make(&self, client: &Client, parent: PartitionedTable, times: Vec<i64>) -> Result<(), Fault> {
        // Another process may use a new partition only after all sessions know it.
        client.execute("SELECT pg_advisory_lock($1)", &[&CREATION_LOCK]).await?;
        let made = self.make_known(client, parent, times).await;
        // Also those of a call that was cancelled on this connection.
        client.execute("SELECT pg_advisory_unlock_all()", &[]).await?;
        let existing = made?;
        self.known().extend(existing.into_iter().map(|(starts, ends)| ((parent, starts), ends)));
        Ok(())
    }

    /// Creates the missing partitions, so that all sessions know them. Returns all existing ones.
    async fn make_known(
        &self,
        client: &Client,
        parent: PartitionedTable,
        times: Vec<i64>,
    ) -> Result<BTreeMap<i64, i64>, Fault> {
        client.batch_execute("BEGIN").await?;
        let made = self.make_locked(client, parent, times).await;
        let ending = if made.is_ok() { "COMMIT" } else { "ROLLBACK" };
        client.batch_execute(ending).await?;
        let KnownPartitions { existing, has_new } = made?;
        if has_new {
            await_readers_of_list(client, parent).await?;
            client.batch_execute(&notice_of_change(parent)).await?;
        }
        Ok(existing)
    }

    async fn make_locked(
        &self,
        client: &Client,
        parent: PartitionedTable,
        times: Vec<i64>,
    ) -> Result<KnownPartitions, Fault> {
        client.batch_execute("LOCK TABLE partitions IN EXCLUSIVE MODE").await?;
        let rows = client
            .query("SELECT starts, ends, leaves FROM partitions WHERE parent = $1", &[&table(parent)])
            .await?;
        let (mut taken, mut leaving) = (BTreeMap::new(), BTreeMap::new());
        for row in &rows {
            let into = if get(row, 2)? { &mut leaving } else { &mut taken };
            into.insert(get(row, 0)?, get(row, 1)?);
        }
        let mut has_new = false;
        for time in times {
            if covering(&leaving, time).is_some() {
                return Err(Fault::Conflict("the partition for this time is being dropped".to_owned()));
            }
            if covering(&taken, time).is_none() {
                let all = taken.iter().chain(&leaving).map(|(starts, ends)| (*starts, *ends));
                let (starts, ends) = gap_around(time, self.width_us, all);
                attach(client, parent, starts, ends).await?;
                taken.insert(starts, ends);
                has_new = true;
            }
        }
        Ok(KnownPartitions { existing: taken, has_new })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<(PartitionedTable, i64), i64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl PartitionedTables for Wire {
    type Shared = SharedDatabase;
    type Partition = Partition;
    type Dropping = WriterGuard;
    const KEEP_RETAINED: &'static str =
        "UPDATE history_bounds SET retained = greatest(retained, $1) WHERE id = 1 AND retained < $1";

    async fn make_ahead(&mut self, shared: &SharedDatabase) -> Result<(), Fault> {
        let now = clock(self).await?;
        shared.partitions.make_ahead(self.client(), now).await
    }

    async fn older_than(&mut self, parent: PartitionedTable, before: i64) -> Result<Vec<Partition>, Fault> {
        let sql =
            "SELECT name, starts, ends FROM partitions WHERE parent = $1 AND ends <= $2 ORDER BY starts";
        let rows = self.client().query(sql, &[&table(parent), &before]).await?;
        rows.iter().map(|row| Partition::read(parent, row)).collect()
    }

    async fn begin_dropping(shared: &SharedDatabase) -> Result<Option<WriterGuard>, Fault> {
        WriterGuard::take(&shared.target, Duty::Retention).await
    }

    async fn must_be_held(guard: &WriterGuard) -> Result<(), Fault> {
        guard.must_be_held().await
    }

    async fn count_rows(&mut self, partition: &Partition) -> Result<u64, Fault> {
        let (client, name) = (self.client(), &partition.name);
        if partition.is_gone(client).await? {
            return Ok(0);
        }
        let most = limits::PARTITION_ROWS_COUNTED_MAX;
        let counted = format!("SELECT count(*) FROM (SELECT 1 FROM {name} LIMIT {most}) AS counted");
        let rows: i64 = client.query_one(&counted, &[]).await?.try_get(0)?;
        if rows < most {
            return Ok(rows.unsigned_abs());
        }
        let guessed = "SELECT greatest(reltuples, $2)::bigint FROM pg_class WHERE oid = to_regclass($1)";
        let rows: i64 = client.query_one(guessed, &[name, &(most as f32)]).await?.try_get(0)?;
        Ok(rows.unsigned_abs())
    }

    async fn highest_place(&mut self, partition: &Partition) -> Result<i64, Fault> {
        if partition.is_gone(self.client()).await? {
            return Ok(0);
        }
        let highest = format!("SELECT coalesce(max(place), 0) FROM {}", partition.name);
        Ok(self.client().query_one(&highest, &[]).await?.try_get(0)?)
    }

    async fn drop_partition(
        &mut self,
        shared: &SharedDatabase,
        _: &mut WriterGuard,
        partition: &Partition,
    ) -> Result<bool, Fault> {
        shared.partitions.remove(self.client(), partition).await?;
        Ok(true)
    }

    async fn end_dropping(guard: WriterGuard) -> Result<(), Fault> {
        guard.release().await
    }
}

/// Waits until the statements that use this table now have ended. A statement that waits for a lock is not
/// reading the list.
async fn await_readers_of_list(client: &Client, parent: PartitionedTable) -> Result<(), Fault> {
    let running = "SELECT array_agg(activity.pid || ' ' || activity.query_start) \
         FROM pg_locks JOIN pg_stat_activity AS activity ON activity.pid = pg_locks.pid \
         WHERE pg_locks.relation = to_regclass($1) AND activity.pid <> pg_backend_pid() \
         AND activity.state = 'active' AND activity.wait_event_type IS DISTINCT FROM 'Lock'";
    let still_running = "SELECT array_agg(pid || ' ' || query_start) FROM pg_stat_activity \
         WHERE state = 'active' AND pid || ' ' || query_start = ANY($1)";
    let until = Instant::now() + LIST_READ_TIME_MAX;
    let mut statements: Option<Vec<String>> =
        client.query_one(running, &[&table(parent)]).await?.try_get(0)?;
    while let Some(running) = statements.take_if(|_| Instant::now() < until) {
        tokio::time::sleep(LIST_READ_PAUSE).await;
        statements = client.query_one(still_running, &[&running]).await?.try_get(0)?;
    }
    Ok(())
}

/// Changes nothing, but makes all sessions read the list of partitions again. Does not block readers and
/// writers.
fn notice_of_change(parent: PartitionedTable) -> String {
    format!("ALTER TABLE ONLY {} ALTER COLUMN job SET STATISTICS -1", table(parent))
}

fn covering(ranges: &BTreeMap<i64, i64>, time: i64) -> Option<(i64, i64)> {
    let (starts, ends) = ranges.range(..=time).next_back()?;
    (time < *ends).then_some((*starts, *ends))
}

/// The range of this width that contains a time, cut where other partitions begin: the width may change
/// over the years.
fn gap_around(time: i64, width: i64, taken: impl Iterator<Item = (i64, i64)>) -> (i64, i64) {
    let aligned = time - time.rem_euclid(width);
    taken.fold((aligned, aligned.saturating_add(width)), |(starts, ends), (other_starts, other_ends)| {
        (
            if other_ends <= time { starts.max(other_ends) } else { starts },
            if other_starts > time { ends.min(other_starts) } else { ends },
        )
    })
}

/// Creates a table like its parent and attaches it: unlike `PARTITION OF`, this does not block users of the
/// parent.
async fn attach(client: &Client, parent: PartitionedTable, starts: i64, ends: i64) -> Result<(), Fault> {
    let table = table(parent);
    let named =
        "SELECT $1 || to_char(timestamp 'epoch' + $2 * interval '1 microsecond', '_YYYYMMDD_HH24MISSUS')";
    let name: String = get(&client.query_one(named, &[&table, &(starts as f64)]).await?, 0)?;
    let name = name.trim_end_matches("_000000000000");
    client
        .batch_execute(&format!(
            "CREATE TABLE {name} (LIKE {table} INCLUDING ALL); \
             ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({starts}) TO ({ends})"
        ))
        .await?;
    let insert = "INSERT INTO partitions (parent, starts, ends, name, leaves) VALUES ($1, $2, $3, $4, false)";
    client.execute(insert, &[&table, &starts, &ends, &name]).await?;
    Ok(())
}
