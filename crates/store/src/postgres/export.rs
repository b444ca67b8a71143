//! PostgreSQL as one side of a data migration.

use super::guard::{Duty, WriterGuard};
use super::migrate;
use super::options::PostgresOptions;
use super::partitions::{PartitionedTable, Partitions};
use super::sql::{arrays, names, type_of};
use super::wire::Wire;
use crate::cells::{CellValue, get};
use crate::data_migration::{Cell, Cells, Column, DataMigrationError, Layout, StoreRole, TABLES};
use crate::fault::Fault;
use crate::layout::{each_job_count, each_lane_count};
use crate::server::export::{CopiedDatabase, ExportedTables, ServerSide};
use crate::unfinished::NOTES_TABLE;
use async_trait::async_trait;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

/// Migrations have no time limit.
const PATIENCE: &str =
    "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0";
/// Connections of other Punctual processes.
const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
     AND pid <> pg_backend_pid() AND application_name = current_setting('application_name')";
const HAS_NOTES: &str = "SELECT to_regclass($1) IS NOT NULL";

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

pub(crate) struct PostgresCopy {
    wire: Wire,
    /// No other migration uses this database.
    guard: WriterGuard,
    partitions: Partitions,
}

pub(crate) async fn open(
    options: &PostgresOptions,
    end: StoreRole,
) -> Result<ServerSide<PostgresCopy>, DataMigrationError> {
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
    Ok(ServerSide(PostgresCopy { wire, guard, partitions }))
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

#[async_trait]
impl CopiedDatabase for PostgresCopy {
    type Connection = Wire;
    const IDENTITY: &'static str = "SELECT 'postgres:' || cluster::text FROM punctual WHERE id = 1";
    const BEATING: &'static str = "SELECT count(*) FROM sessions WHERE NOT lost \
         AND beaten_at + lease_us > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    const MAKE_NOTES: &'static str =
        "CREATE TABLE IF NOT EXISTS moving (name text PRIMARY KEY, value text NOT NULL)";
    const PUT_NOTE: &'static str = "INSERT INTO moving (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    const CHANGE_STORE_ID: &'static str = "UPDATE punctual SET cluster = gen_random_uuid() WHERE id = 1";

    fn connection(&mut self) -> &mut Wire {
        &mut self.wire
    }

    async fn run(&mut self, sql: &str) -> Result<(), Fault> {
        Ok(self.wire.client().batch_execute(sql).await?)
    }

    async fn stay_alone(&mut self) -> Result<(), Fault> {
        self.guard.must_be_held().await
    }

    async fn others(&mut self) -> Result<Option<String>, Fault> {
        let others: i64 = get(&self.wire.client().query_one(OTHERS, &[]).await?, 0)?;
        Ok((others > 0).then(|| format!("{others} connections of Punctual are open to its database")))
    }

    async fn has_notes(&mut self) -> Result<bool, Fault> {
        is_unfinished(self.wire.client()).await
    }

    /// Creates the partitions for these rows.
    async fn make_room(&mut self, table: &Layout, rows: &[Cells]) -> Result<(), Fault> {
        let (parent, by) = match table.name {
            "history" => (PartitionedTable::History, "completed_at"),
            "lines" => (PartitionedTable::Lines, "number"),
            _ => return Ok(()),
        };
        let Some(place) = table.position(by) else { return Ok(()) };
        let times = rows.iter().map(|row| row[place].number(by)).collect::<Result<Vec<_>, _>>()?;
        self.partitions.ensure(parent, times).await
    }

    async fn insert(&mut self, table: &Layout, rows: &[Cells]) -> Result<(), Fault> {
        let array = |place: usize| rows.iter().map(|row| &row[place]).collect::<Vec<_>>();
        let arrays: Vec<Vec<&Cell<'_>>> = (0..table.columns.len()).map(array).collect();
        let arrays: Vec<&(dyn ToSql + Sync)> = arrays.iter().map(|array| array as _).collect();
        self.wire.query_text(&insertion(table), &arrays).await.map(drop)
    }

    fn set_session_number(number: i64) -> String {
        format!("SELECT setval('session_numbers', greatest({number}, 1), {number} > 0)")
    }

    async fn empty_tables(&mut self) -> Result<(), Fault> {
        let sql = format!(
            "BEGIN; TRUNCATE {} RESTART IDENTITY; UPDATE history_bounds SET given = 0, retained = 0; \
             SELECT setval('session_numbers', 1, false); COMMIT",
            stored_tables()
        );
        self.run(&sql).await
    }

    async fn settle(&mut self) -> Result<(), Fault> {
        for (table, column) in NUMBERED {
            let sql = format!(
                "SELECT setval(pg_get_serial_sequence('{table}', '{column}'), greatest(coalesce(max({column}), 0), 1), \
                 count(*) > 0) FROM {table}"
            );
            self.run(&sql).await?;
        }
        // The planner needs the table sizes for the first statements of the new store.
        self.run(&format!("ANALYZE {}", stored_tables())).await
    }
}
