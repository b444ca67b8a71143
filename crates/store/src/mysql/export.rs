//! MariaDB and MySQL as one side of a data migration.

use super::connection::Connection;
use super::exclusive_work::ClusterLease;
use super::lists::{Insertion, Statement};
use super::migrate;
use super::options::MySqlOptions;
use super::partitions;
use super::sql::{column_name, names};
use super::tables::queued_lane;
use crate::cells::{CellValue, get};
use crate::data_migration::{Cell, Cells, Column, DataMigrationError, Layout, StoreRole, TABLES};
use crate::fault::Fault;
use crate::layout::{each_job_count, each_lane_count};
use crate::server::connection::ServerConnection;
use crate::server::export::{CopiedDatabase, ExportedTables, ServerSide};
use crate::unfinished::NOTES_TABLE;
use async_trait::async_trait;
use mysql_async::Value;

/// A migration holds this lock, which is global to the server. On nodes of a cluster it takes a lease
/// instead.
const LOCK: &str = "SELECT GET_LOCK(CONCAT('punctual_moving_', LEFT(SHA2(DATABASE(), 256), 40)), 5)";
const HERE: &str = "SELECT DATABASE(), CONNECTION_ID()";
/// Connections that this user may see. Not read from the table of this name: on MySQL it cannot be read
/// while any statement with bytes that are not valid text is running, in any database.
const CONNECTIONS: &str = "SHOW PROCESSLIST";
const HAS_NOTES: &str =
    "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?";

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

pub(crate) struct MySqlCopy {
    connection: Connection,
    lease: Option<ClusterLease>,
}

pub(crate) async fn open(
    options: &MySqlOptions,
    end: StoreRole,
) -> Result<ServerSide<MySqlCopy>, DataMigrationError> {
    let unusable =
        |error: &dyn std::fmt::Display| DataMigrationError::Unusable { end, reason: error.to_string() };
    let target = options.target().map_err(|error| unusable(&error))?;
    prepare_tables(options, end).await?;
    let mut connection = Connection::defining(&target).await.map_err(DataMigrationError::at(end))?;
    connection.wait_for_ever();
    if connection.node().is_some() {
        let lease = ClusterLease::take(&mut connection, "move").await.map_err(DataMigrationError::at(end))?;
        return match lease {
            Some(lease) => Ok(ServerSide(MySqlCopy { connection, lease: Some(lease) })),
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
    Ok(ServerSide(MySqlCopy { connection, lease: None }))
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

impl MySqlCopy {
    /// How many other connections to this database there are.
    async fn count_others(&mut self) -> Result<usize, Fault> {
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
}

#[async_trait]
impl CopiedDatabase for MySqlCopy {
    type Connection = Connection;
    const IDENTITY: &'static str = "SELECT CONCAT('mysql:', LOWER(HEX(cluster))) FROM punctual WHERE id = 1";
    const BEATING: &'static str = "SELECT COUNT(*) FROM sessions WHERE lost = 0 \
         AND beaten_at + lease_us > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const MAKE_NOTES: &'static str = "CREATE TABLE IF NOT EXISTS moving (name VARCHAR(100) NOT NULL, value MEDIUMTEXT NOT NULL, \
         PRIMARY KEY (name)) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 \
         COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */";
    const PUT_NOTE: &'static str =
        "INSERT INTO moving (name, value) VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)";
    const CHANGE_STORE_ID: &'static str =
        "UPDATE punctual SET cluster = UNHEX(REPLACE(UUID(), '-', '')) WHERE id = 1";

    fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    async fn run(&mut self, sql: &str) -> Result<(), Fault> {
        self.connection.run_text(sql).await
    }

    /// Renews the lease from time to time while the migration runs.
    async fn stay_alone(&mut self) -> Result<(), Fault> {
        match &mut self.lease {
            Some(lease) => lease.renew(&mut self.connection).await,
            None => Ok(()),
        }
    }

    async fn others(&mut self) -> Result<Option<String>, Fault> {
        let others = self.count_others().await?;
        Ok((others > 0).then(|| format!("{others} other connections are open to its database")))
    }

    async fn has_notes(&mut self) -> Result<bool, Fault> {
        is_unfinished(&mut self.connection).await
    }

    async fn insert(&mut self, table: &Layout, rows: &[Cells]) -> Result<(), Fault> {
        let (names, rows) = stored(table, rows);
        let insertion = Insertion {
            head: format!("INSERT INTO {} ({names})", stored_in(table)),
            columns: rows.first().map_or(0, Vec::len),
            tail: String::new(),
        };
        for Statement { sql, values } in insertion.of(rows) {
            self.connection.run(&sql, values).await?;
        }
        Ok(())
    }

    fn set_session_number(number: i64) -> String {
        format!("UPDATE numbers SET given = {number} WHERE name = 'session'")
    }

    async fn empty_tables(&mut self) -> Result<(), Fault> {
        for table in TABLES.iter().filter(|table| table.name != "numbers") {
            self.run(&format!("TRUNCATE TABLE {}", stored_in(table))).await?;
        }
        self.run("UPDATE numbers SET given = 0").await?;
        self.run("UPDATE history_bounds SET given = 0, retained = 0").await
    }

    async fn settle(&mut self) -> Result<(), Fault> {
        for (name, table) in [("lane", "lanes"), ("worker", "workers")] {
            let sql = format!(
                "UPDATE numbers SET given = (SELECT COALESCE(MAX(id), 0) FROM {table}) WHERE name = '{name}'"
            );
            self.run(&sql).await?;
        }
        let last = self.connection.query(partitions::LAST_PLACE, vec![]).await?;
        let next = last.single::<i64>("the last position of history")?.saturating_add(1);
        self.run(&format!("ALTER TABLE history AUTO_INCREMENT = {next}")).await
    }

    async fn leave(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.end(&mut self.connection).await;
        }
    }
}
