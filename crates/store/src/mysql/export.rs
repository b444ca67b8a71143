//! MariaDB and MySQL as one side of a data migration.

use super::connection::Connection;
use super::exclusive_work::ClusterLease;
use super::migrate;
use super::options::MySqlOptions;
use super::partitions;
use super::sql::{column_name, names};
use super::tables::queued_lane;
use crate::cells::{CellValue, get};
use crate::data_migration::{
    Cell, Cells, Column, DataMigrationError, Forked, Layout, MigrationSide, Notes, Portion,
    STOP_NOTIFICATIONS, StoreRole, TABLES,
};
use crate::fault::Fault;
use crate::layout::{each_job_count, each_lane_count};
use crate::server::export::{ExportedTables, page, rows_of_page};
use crate::unfinished::NOTES_TABLE;
use async_trait::async_trait;
use mysql_async::Value;
use punctual_core::limits::DATABASE_PACKET_BYTES_MAX;
use punctual_core::time::Timestamp;

/// A migration holds this lock, which is global to the server. On nodes of a cluster it takes a lease
/// instead.
const LOCK: &str = "SELECT GET_LOCK(CONCAT('punctual_moving_', LEFT(SHA2(DATABASE(), 256), 40)), 5)";
const HERE: &str = "SELECT DATABASE(), CONNECTION_ID()";
/// Connections that this user may see. Not read from the table of this name: on MySQL it cannot be read
/// while any statement with bytes that are not valid text is running, in any database.
const CONNECTIONS: &str = "SHOW PROCESSLIST";
/// Sessions that sent a heartbeat within their lease, by the database's clock.
const BEATING: &str = "SELECT COUNT(*) FROM sessions WHERE lost = 0 \
     AND beaten_at + lease_us > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
/// Members of the original's cluster are not members of the copy's.
const FORGET_CLUSTER: [&str; 2] = ["DELETE FROM cluster_members", "DELETE FROM cluster_leases"];
/// Queues to which jobs were ever submitted.
const PAUSE_USED: &str = "INSERT INTO queues (queue, paused_at) SELECT DISTINCT queue, ? FROM lanes \
     ON DUPLICATE KEY UPDATE queues.queue = queues.queue";
const HAS_NOTES: &str =
    "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?";
const MAKE_NOTES: &str = "CREATE TABLE IF NOT EXISTS moving (name VARCHAR(100) NOT NULL, value MEDIUMTEXT NOT NULL, \
     PRIMARY KEY (name)) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 \
     COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */";
const PUT_NOTE: &str =
    "INSERT INTO moving (name, value) VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)";

const LANE_COUNTERS: &str = concat!(
    "(SELECT lane, ",
    each_lane_count!(", ", "CAST(SUM(", ") AS SIGNED) AS ", ""),
    " FROM lane_tallies GROUP BY lane HAVING ",
    each_lane_count!(" OR ", "SUM(", ") <> 0"),
    ") AS counted"
);
const JOB_COUNTERS: &str = concat!(
    "(SELECT 1 AS id, ",
    each_job_count!(", ", "CAST(COALESCE(SUM(", "), 0) AS SIGNED) AS ", ""),
    " FROM job_tally) AS counted"
);
const NUMBERS: &str = "(SELECT 'history_given' AS name, GREATEST(given, retained) AS given FROM history_bounds \
     UNION ALL SELECT 'history_retained', retained FROM history_bounds \
     UNION ALL SELECT 'session', given FROM numbers WHERE numbers.name = 'session') AS counted";

/// Rows per statement; each size is prepared once.
const SIZES: [usize; 5] = [256, 64, 16, 4, 1];

pub(crate) struct MySqlSide {
    connection: Connection,
    lease: Option<ClusterLease>,
}

pub(crate) async fn open(options: &MySqlOptions, end: StoreRole) -> Result<MySqlSide, DataMigrationError> {
    let unusable =
        |error: &dyn std::fmt::Display| DataMigrationError::Unusable { end, reason: error.to_string() };
    let target = options.target().map_err(|error| unusable(&error))?;
    prepare_tables(options, end).await?;
    let mut connection = Connection::defining(&target).await.map_err(DataMigrationError::at(end))?;
    connection.wait_for_ever();
    if connection.node().is_some() {
        let lease = ClusterLease::take(&mut connection, "move").await.map_err(DataMigrationError::at(end))?;
        return match lease {
            Some(lease) => Ok(MySqlSide { connection, lease: Some(lease) }),
            None => Err(DataMigrationError::Taken { end }),
        };
    }
    let taken = connection.one(LOCK, vec![]).await.map_err(DataMigrationError::at(end))?;
    let taken = taken
        .as_ref()
        .map(|row| get::<Option<i64>>(row, 0))
        .transpose()
        .map_err(DataMigrationError::at(end))?;
    if taken.flatten() != Some(1) {
        return Err(DataMigrationError::Taken { end });
    }
    Ok(MySqlSide { connection, lease: None })
}

/// Creates the tables of an empty target, and the partitions of any target.
async fn prepare_tables(options: &MySqlOptions, end: StoreRole) -> Result<(), DataMigrationError> {
    let failed = DataMigrationError::migrate(end);
    let found = migrate::status(options).await.map_err(&failed)?.version;
    if DataMigrationError::check_version(end, found, migrate::VERSION)? || end == StoreRole::Target {
        migrate::up(options).await.map_err(failed)?;
    }
    Ok(())
}

/// Whether the database must not be opened because it is the target of an unfinished data migration.
pub(crate) async fn is_unfinished(connection: &mut Connection) -> Result<bool, Fault> {
    Ok(connection.one(HAS_NOTES, vec![NOTES_TABLE.into()]).await?.is_some())
}

fn stored_in(table: &Layout) -> &'static str {
    match table.name {
        "lines" => "log_lines",
        name => name,
    }
}

impl ExportedTables for Connection {
    const QUOTE: char = '`';
    const INTEGER: &'static str = "SIGNED";

    fn names(table: &Layout, columns: &[Column]) -> String {
        names(table, columns)
    }

    fn read_from(table: &Layout) -> &'static str {
        match table.name {
            "lane_tallies" => LANE_COUNTERS,
            "job_tally" => JOB_COUNTERS,
            "numbers" => NUMBERS,
            _ => stored_in(table),
        }
    }

    /// The condition is spelled out, because these servers do not use an index for a row comparison.
    fn behind<'a>(table: &Layout, after: Option<&[Cell<'a>]>, limit: usize) -> (String, Vec<Cell<'a>>) {
        let (mut ways, mut values) = (Vec::new(), Vec::new());
        let after = after.unwrap_or_default();
        for place in (0..after.len()).rev() {
            let equal =
                table.key_columns()[..place].iter().map(|each| format!("{} = ?", column_name(table, each)));
            let greater = format!("{} > ?", column_name(table, &table.columns[place]));
            ways.push(format!("({})", equal.chain([greater]).collect::<Vec<_>>().join(" AND ")));
            values.extend_from_slice(&after[..=place]);
        }
        let condition = if ways.is_empty() { String::new() } else { format!("WHERE {} ", ways.join(" OR ")) };
        values.push(limit.into_cell());
        (format!("{condition}ORDER BY {} LIMIT ?", names(table, table.key_columns())), values)
    }
}

/// The columns of a table and the rows' values for them, including columns that only this database has.
fn stored(table: &Layout, rows: &[Cells]) -> (String, Vec<Vec<Value>>) {
    let names = names(table, table.columns);
    let plain = |row: &Cells| row.iter().cloned().map(Value::from).collect::<Vec<_>>();
    let with = |more: &dyn Fn(&Cells) -> Value| {
        rows.iter().map(|row| plain(row).into_iter().chain([more(row)]).collect()).collect()
    };
    match table.name {
        "live" => (format!("{names}, queued_lane"), with(&|row| queued_lane(row).into())),
        // Counters go to a single shard; it does not matter which.
        "lane_tallies" => (format!("{names}, shard"), with(&|_| Value::Int(0))),
        "job_tally" => (names.replace("`id`", "shard"), rows.iter().map(plain).collect()),
        _ => (names, rows.iter().map(plain).collect()),
    }
}

/// How many of the next rows share a statement.
fn sharing(rows: &[Vec<Value>]) -> usize {
    let bytes = |row: &Vec<Value>| -> usize { row.iter().map(|value| value.bin_len() as usize + 9).sum() };
    let fits = |size: &usize| {
        rows.get(..*size)
            .is_some_and(|rows| rows.iter().map(bytes).sum::<usize>() <= DATABASE_PACKET_BYTES_MAX)
    };
    SIZES.into_iter().find(fits).unwrap_or(1)
}

impl MySqlSide {
    /// Renews the lease from time to time while the migration runs.
    async fn renew(&mut self) -> Result<(), Fault> {
        match &mut self.lease {
            Some(lease) => lease.renew(&mut self.connection).await,
            None => Ok(()),
        }
    }

    async fn counted(&mut self, sql: &str) -> Result<i64, Fault> {
        let row = self.connection.all_of_text(sql).await?.into_iter().next();
        get(&row.ok_or_else(|| Fault::Missing("a count".to_owned()))?, 0)
    }

    /// How many other connections to this database there are.
    async fn others(&mut self) -> Result<usize, Fault> {
        let here = self.connection.one(HERE, vec![]).await?;
        let here = here.ok_or_else(|| Fault::Missing("the name of the database".to_owned()))?;
        let (database, ours): (String, u64) = (get(&here, 0)?, get(&here, 1)?);
        let mut others = 0;
        for row in self.connection.all_of_text(CONNECTIONS).await? {
            let (id, used): (u64, Option<String>) = (get(&row, 0)?, get(&row, 3)?);
            others += usize::from(id != ours && used.as_deref() == Some(&database));
        }
        Ok(others)
    }

    async fn write(&mut self, portion: &Portion<'_>) -> Result<(), Fault> {
        let Portion { table, rows, note: (name, value) } = portion;
        if table.name == "numbers" {
            self.set_numbers(rows).await?;
        } else {
            let (names, rows) = stored(table, rows);
            let mut rest = &rows[..];
            while let Some(first) = rest.first() {
                let (now, later) = rest.split_at(sharing(rest));
                let row = format!("({})", vec!["?"; first.len()].join(", "));
                let all = vec![row; now.len()].join(", ");
                let sql = format!("INSERT INTO {} ({names}) VALUES {all}", stored_in(table));
                self.connection.run(&sql, now.iter().flatten().cloned().collect()).await?;
                rest = later;
            }
        }
        self.connection.run(PUT_NOTE, vec![(*name).into(), (*value).into()]).await?;
        Ok(())
    }

    async fn set_numbers(&mut self, rows: &[Cells]) -> Result<(), Fault> {
        for row in rows {
            let [Cell::Text(name), given] = row.as_slice() else {
                return Err(Fault::damaged("numbers", format!("{row:?}")));
            };
            let sql = match &**name {
                "history_given" => "UPDATE history_bounds SET given = ?",
                "history_retained" => "UPDATE history_bounds SET retained = ?",
                "session" => "UPDATE numbers SET given = ? WHERE name = 'session'",
                other => return Err(Fault::damaged("numbers.name", other)),
            };
            self.connection.run(sql, vec![given.clone().into()]).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl MigrationSide for MySqlSide {
    async fn identity(&mut self) -> Result<String, Fault> {
        let row =
            self.connection.one("SELECT LOWER(HEX(cluster)) FROM punctual WHERE id = 1", vec![]).await?;
        let row = row.ok_or_else(|| Fault::Missing("the row of punctual".to_owned()))?;
        Ok(format!("mysql:{}", get::<String>(&row, 0)?))
    }

    async fn users(&mut self) -> Result<Option<String>, Fault> {
        let others = self.others().await?;
        if others > 0 {
            return Ok(Some(format!("{others} other connections are open to its database")));
        }
        let beating = self.counted(BEATING).await?;
        Ok((beating > 0).then(|| {
            format!("{beating} worker sessions sent a heartbeat within their lease; leases expire soon after the last server has stopped")
        }))
    }

    async fn count(&mut self, table: &'static Layout) -> Result<u64, Fault> {
        let sql = format!("SELECT COUNT(*) FROM {}", Connection::read_from(table));
        Ok(self.counted(&sql).await?.unsigned_abs())
    }

    async fn page(
        &mut self,
        table: &'static Layout,
        after: Option<&[Cell<'_>]>,
    ) -> Result<Vec<Cells>, Fault> {
        self.renew().await?;
        let limit = rows_of_page(&mut self.connection, table, after).await?;
        page(&mut self.connection, table, after, limit).await
    }

    async fn notes(&mut self) -> Result<Notes, Fault> {
        if !is_unfinished(&mut self.connection).await? {
            return Ok(Notes::new());
        }
        let rows = self.connection.all("SELECT name, value FROM moving", vec![]).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
    }

    async fn note(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        self.connection.run_text(MAKE_NOTES).await?;
        self.connection.run(PUT_NOTE, vec![name.into(), value.into()]).await?;
        Ok(())
    }

    async fn empty(&mut self, about_tables: &str) -> Result<(), Fault> {
        for table in TABLES.iter().filter(|table| table.name != "numbers") {
            self.connection.run_text(&format!("TRUNCATE TABLE {}", stored_in(table))).await?;
        }
        self.connection.run_text("UPDATE numbers SET given = 0").await?;
        self.connection.run_text("UPDATE history_bounds SET given = 0, retained = 0").await?;
        let sql = "DELETE FROM moving WHERE LEFT(name, CHAR_LENGTH(?)) = ?";
        self.connection.run(sql, vec![about_tables.into(), about_tables.into()]).await?;
        Ok(())
    }

    async fn put(&mut self, portion: Portion<'_>) -> Result<(), Fault> {
        self.renew().await?;
        self.connection.run_text("START TRANSACTION").await?;
        match self.write(&portion).await {
            Ok(()) => self.connection.commit().await,
            Err(fault) => {
                self.connection.roll_back().await;
                Err(fault)
            }
        }
    }

    async fn settle(&mut self) -> Result<(), Fault> {
        for (name, table) in [("lane", "lanes"), ("worker", "workers")] {
            let sql = format!(
                "UPDATE numbers SET given = (SELECT COALESCE(MAX(id), 0) FROM {table}) WHERE name = '{name}'"
            );
            self.connection.run_text(&sql).await?;
        }
        let next = self.counted(partitions::LAST_PLACE).await?.saturating_add(1);
        self.connection.run_text(&format!("ALTER TABLE history AUTO_INCREMENT = {next}")).await
    }

    async fn release(&mut self) -> Result<(), Fault> {
        self.connection.run_text("DROP TABLE IF EXISTS moving").await?;
        if let Some(lease) = self.lease.take() {
            lease.end(&mut self.connection).await;
        }
        Ok(())
    }

    async fn fork(&mut self, now: Timestamp) -> Result<Forked, Fault> {
        let at = || vec![Value::Int(now.as_micros())];
        self.connection.run_text("START TRANSACTION").await?;
        let sessions = self.connection.run("UPDATE sessions SET lost = 1 WHERE lost = 0", vec![]).await?;
        for forget in FORGET_CLUSTER.iter().chain(&STOP_NOTIFICATIONS) {
            self.connection.run_text(forget).await?;
        }
        self.connection.run(PAUSE_USED, at()).await?;
        self.connection.run("UPDATE queues SET paused_at = ? WHERE paused_at IS NULL", at()).await?;
        let renamed = "UPDATE punctual SET cluster = UNHEX(REPLACE(UUID(), '-', '')) WHERE id = 1";
        self.connection.run_text(renamed).await?;
        let queues = self.connection.all("SELECT queue FROM queues ORDER BY queue", vec![]).await?;
        let queues = queues.iter().map(|row| get(row, 0)).collect::<Result<Vec<String>, _>>()?;
        self.connection.commit().await?;
        Ok(Forked { queues, sessions })
    }
}
