//! PostgreSQL as one side of a data migration.

use super::guard::{Duty, WriterGuard};
use super::migrate;
use super::options::PostgresOptions;
use super::partitions::{PartitionedTable, Partitions};
use super::sql::{arrays, names, type_of};
use super::wire::Wire;
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
use punctual_core::time::Timestamp;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

/// Migrations have no time limit.
const PATIENCE: &str =
    "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0";
/// Connections of other Punctual processes.
const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
     AND pid <> pg_backend_pid() AND application_name = current_setting('application_name')";
/// Sessions that sent a heartbeat within their lease, by the database's clock.
const BEATING: &str = "SELECT count(*) FROM sessions WHERE NOT lost \
     AND beaten_at + lease_us > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
/// Queues to which jobs were ever submitted.
const PAUSE_USED: &str = "INSERT INTO queues (queue, paused_at) SELECT DISTINCT queue, $1::bigint FROM lanes \
     ON CONFLICT (queue) DO NOTHING";
/// Members of the original's cluster are not members of the copy's.
const FORGET_CLUSTER: &str = "DELETE FROM cluster_members; DELETE FROM cluster_leases";
const HAS_NOTES: &str = "SELECT to_regclass($1) IS NOT NULL";
const MAKE_NOTES: &str = "CREATE TABLE IF NOT EXISTS moving (name text PRIMARY KEY, value text NOT NULL)";
const PUT_NOTE: &str = "INSERT INTO moving (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";

const LANE_COUNTERS: &str = concat!(
    "(SELECT lane, ",
    each_lane_count!(", ", "sum(", ")::bigint AS ", ""),
    " FROM lane_tallies GROUP BY lane HAVING ",
    each_lane_count!(" OR ", "sum(", ") <> 0"),
    ") AS given"
);
const JOB_COUNTERS: &str = concat!(
    "(SELECT 1::smallint AS id, ",
    each_job_count!(", ", "coalesce(sum(", "), 0)::bigint AS ", ""),
    " FROM job_tally) AS given"
);
const NUMBERS: &str = "(SELECT 'history_given'::text AS name, greatest(given, retained) AS given FROM history_bounds \
     UNION ALL SELECT 'history_retained', retained FROM history_bounds \
     UNION ALL SELECT 'session', CASE WHEN is_called THEN last_value ELSE 0 END FROM session_numbers) AS given";

/// Tables whose numbers the database assigns.
const NUMBERED: [(&str, &str); 4] =
    [("lanes", "id"), ("workers", "id"), ("dead_letters", "number"), ("skipped", "number")];

pub(crate) struct PostgresSide {
    wire: Wire,
    /// No other migration uses this database.
    guard: WriterGuard,
    partitions: Partitions,
}

pub(crate) async fn open(
    options: &PostgresOptions,
    end: StoreRole,
) -> Result<PostgresSide, DataMigrationError> {
    let unusable =
        |error: &dyn std::fmt::Display| DataMigrationError::Unusable { end, reason: error.to_string() };
    let target = options.target().map_err(|error| unusable(&error))?;
    let wire = Wire::connect(&target).await.map_err(DataMigrationError::at(end))?;
    prepare_tables(wire.client(), end).await?;
    let take = async {
        wire.client().batch_execute(PATIENCE).await?;
        WriterGuard::take(&target, Duty::Moving).await
    };
    let guard = take.await.map_err(DataMigrationError::at(end))?.ok_or(DataMigrationError::Taken { end })?;
    let partitions = Partitions::new(target, options.partition_width);
    Ok(PostgresSide { wire, guard, partitions })
}

/// Creates the tables of an empty target.
async fn prepare_tables(client: &Client, end: StoreRole) -> Result<(), DataMigrationError> {
    let found = migrate::version(client).await.map_err(DataMigrationError::at(end))?;
    if DataMigrationError::check_version(end, found, migrate::VERSION)? {
        migrate::apply(client, migrate::STEPS).await.map_err(DataMigrationError::migrate(end))?;
    }
    Ok(())
}

/// Whether the database must not be opened because it is the target of an unfinished data migration.
pub(crate) async fn is_unfinished(client: &Client) -> Result<bool, Fault> {
    get(&client.query_one(HAS_NOTES, &[&NOTES_TABLE]).await?, 0)
}

/// All tables that are stored, as a list.
fn stored_tables() -> String {
    let names = TABLES.iter().map(|table| table.name).filter(|name| *name != "numbers");
    names.collect::<Vec<_>>().join(", ")
}

impl ExportedTables for Wire {
    const QUOTE: char = '"';
    const INTEGER: &'static str = "bigint";

    fn names(_: &Layout, columns: &[Column]) -> String {
        names(columns)
    }

    fn read_from(table: &Layout) -> &'static str {
        match table.name {
            "lane_tallies" => LANE_COUNTERS,
            "job_tally" => JOB_COUNTERS,
            "numbers" => NUMBERS,
            name => name,
        }
    }

    fn behind<'a>(table: &Layout, after: Option<&[Cell<'a>]>, limit: usize) -> (String, Vec<Cell<'a>>) {
        let key = names(table.key_columns());
        let mut values = after.unwrap_or_default().to_vec();
        let condition = after.map(|_| {
            let columns = table.key_columns().iter().zip(1..);
            let types = columns.map(|(column, n)| format!("${n}::{}", type_of(column.kind)));
            format!("WHERE ({key}) > ({})", types.collect::<Vec<_>>().join(", "))
        });
        values.push(limit.into_cell());
        (format!("{} ORDER BY {key} LIMIT ${}::bigint", condition.unwrap_or_default(), values.len()), values)
    }
}

/// The statement that writes rows of a table, with an array for each column.
fn insertion(table: &Layout) -> String {
    let count = table.columns.len();
    let names = names(table.columns);
    // Counters go to a single shard; it does not matter which.
    let (names, shard) = match table.name {
        "lane_tallies" => (format!("{names}, shard"), ", 0"),
        "job_tally" => (names.replace("\"id\"", "shard"), ""),
        _ => (names, ""),
    };
    let given = (1..=count).map(|n| format!("c{n}")).collect::<Vec<_>>().join(", ");
    format!(
        "INSERT INTO {} ({names}) OVERRIDING SYSTEM VALUE SELECT {given}{shard} FROM {} AS given({given})",
        table.name,
        arrays(table.columns)
    )
}

impl PostgresSide {
    async fn counted(&mut self, sql: &str) -> Result<i64, Fault> {
        get(&self.wire.client().query_one(sql, &[]).await?, 0)
    }

    async fn write(&mut self, portion: &Portion<'_>) -> Result<(), Fault> {
        let Portion { table, rows, note: (name, value) } = portion;
        if table.name == "numbers" {
            self.set_numbers(rows).await?;
        } else {
            let array = |place: usize| rows.iter().map(|row| &row[place]).collect::<Vec<_>>();
            let arrays: Vec<Vec<&Cell<'_>>> = (0..table.columns.len()).map(array).collect();
            let arrays: Vec<&(dyn ToSql + Sync)> = arrays.iter().map(|array| array as _).collect();
            self.wire.query_text(&insertion(table), &arrays).await?;
        }
        self.wire.client().execute(PUT_NOTE, &[name, value]).await?;
        Ok(())
    }

    async fn set_numbers(&mut self, rows: &[Cells]) -> Result<(), Fault> {
        for row in rows {
            let [Cell::Text(name), Cell::Number(given)] = row.as_slice() else {
                return Err(Fault::damaged("numbers", format!("{row:?}")));
            };
            let sql = match &**name {
                "history_given" => "UPDATE history_bounds SET given = $1::bigint",
                "history_retained" => "UPDATE history_bounds SET retained = $1::bigint",
                "session" => "SELECT setval('session_numbers', greatest($1::bigint, 1), $1::bigint > 0)",
                other => return Err(Fault::damaged("numbers.name", other)),
            };
            self.wire.client().execute(sql, &[given]).await?;
        }
        Ok(())
    }

    /// Creates the partitions for these rows.
    async fn make_partitions(&mut self, table: &Layout, rows: &[Cells]) -> Result<(), Fault> {
        let (parent, by) = match table.name {
            "history" => (PartitionedTable::History, "completed_at"),
            "lines" => (PartitionedTable::Lines, "number"),
            _ => return Ok(()),
        };
        let Some(place) = table.position(by) else { return Ok(()) };
        let times = rows.iter().map(|row| row[place].number(by)).collect::<Result<Vec<_>, _>>()?;
        self.partitions.ensure(parent, times).await
    }
}

#[async_trait]
impl MigrationSide for PostgresSide {
    async fn identity(&mut self) -> Result<String, Fault> {
        let row =
            self.wire.client().query_one("SELECT cluster::text FROM punctual WHERE id = 1", &[]).await?;
        Ok(format!("postgres:{}", get::<String>(&row, 0)?))
    }

    async fn users(&mut self) -> Result<Option<String>, Fault> {
        let others = self.counted(OTHERS).await?;
        if others > 0 {
            return Ok(Some(format!("{others} connections of Punctual are open to its database")));
        }
        let beating = self.counted(BEATING).await?;
        Ok((beating > 0).then(|| {
            format!("{beating} worker sessions sent a heartbeat within their lease; leases expire soon after the last server has stopped")
        }))
    }

    async fn count(&mut self, table: &'static Layout) -> Result<u64, Fault> {
        let sql = format!("SELECT count(*) FROM {}", Wire::read_from(table));
        Ok(self.counted(&sql).await?.unsigned_abs())
    }

    async fn page(
        &mut self,
        table: &'static Layout,
        after: Option<&[Cell<'_>]>,
    ) -> Result<Vec<Cells>, Fault> {
        let limit = rows_of_page(&mut self.wire, table, after).await?;
        page(&mut self.wire, table, after, limit).await
    }

    async fn notes(&mut self) -> Result<Notes, Fault> {
        if !is_unfinished(self.wire.client()).await? {
            return Ok(Notes::new());
        }
        let rows = self.wire.client().query("SELECT name, value FROM moving", &[]).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
    }

    async fn note(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        self.wire.client().batch_execute(MAKE_NOTES).await?;
        self.wire.client().execute(PUT_NOTE, &[&name, &value]).await?;
        Ok(())
    }

    async fn empty(&mut self, about_tables: &str) -> Result<(), Fault> {
        let tables = stored_tables();
        let sql = format!(
            "BEGIN; TRUNCATE {tables} RESTART IDENTITY; UPDATE history_bounds SET given = 0, retained = 0; \
             SELECT setval('session_numbers', 1, false); COMMIT"
        );
        self.wire.client().batch_execute(&sql).await?;
        self.wire
            .client()
            .execute("DELETE FROM moving WHERE starts_with(name, $1)", &[&about_tables])
            .await?;
        Ok(())
    }

    async fn put(&mut self, portion: Portion<'_>) -> Result<(), Fault> {
        self.guard.must_be_held().await?;
        self.make_partitions(portion.table, portion.rows).await?;
        self.wire.client().batch_execute("BEGIN").await?;
        let written = self.write(&portion).await;
        let ending = if written.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.wire.client().batch_execute(ending).await;
        written?;
        Ok(ended?)
    }

    async fn settle(&mut self) -> Result<(), Fault> {
        for (table, column) in NUMBERED {
            let sql = format!(
                "SELECT setval(pg_get_serial_sequence('{table}', '{column}'), greatest(coalesce(max({column}), 0), 1), \
                 count(*) > 0) FROM {table}"
            );
            self.wire.client().execute(&sql, &[]).await?;
        }
        // The planner needs the table sizes for the first statements of the new store.
        Ok(self.wire.client().batch_execute(&format!("ANALYZE {}", stored_tables())).await?)
    }

    async fn release(&mut self) -> Result<(), Fault> {
        Ok(self.wire.client().batch_execute("DROP TABLE IF EXISTS moving").await?)
    }

    async fn fork(&mut self, now: Timestamp) -> Result<Forked, Fault> {
        let at = now.as_micros();
        self.wire.client().batch_execute("BEGIN").await?;
        let sessions =
            self.wire.client().execute("UPDATE sessions SET lost = true WHERE NOT lost", &[]).await?;
        self.wire.client().batch_execute(FORGET_CLUSTER).await?;
        self.wire.client().batch_execute(&STOP_NOTIFICATIONS.join(";")).await?;
        self.wire.client().execute(PAUSE_USED, &[&at]).await?;
        let others = "UPDATE queues SET paused_at = $1 WHERE paused_at IS NULL";
        self.wire.client().execute(others, &[&at]).await?;
        self.wire
            .client()
            .execute("UPDATE punctual SET cluster = gen_random_uuid() WHERE id = 1", &[])
            .await?;
        let queues = self.wire.client().query("SELECT queue FROM queues ORDER BY queue", &[]).await?;
        let queues = queues.iter().map(|row| get(row, 0)).collect::<Result<Vec<String>, _>>()?;
        self.wire.client().batch_execute("COMMIT").await?;
        Ok(Forked { queues, sessions })
    }
}
