//! Finds and repairs counter mismatches while a cluster is running: see [`crate::counter_mismatch`].

use super::connection::connect;
use super::migrate::{MigrateError, VERSION, version};
use super::options::PostgresOptions;
use super::tables::write_set::calls;
use super::wire::Call;
use crate::cells::get;
use crate::counter_mismatch::{CounterMismatch, CounterTable, LANE_NAMES, MismatchRow, NamesByLane};
use crate::fault::Fault;
use crate::server::changes::repairs;
use punctual_core::limits;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

/// Serializes repairs, so that each reads what the one before has written. No other transaction waits for
/// this row.
const TAKE_TURNS: &str = "SELECT id FROM punctual WHERE id = 1 FOR UPDATE";

/// The counters that differ from their rows. Reads all live rows and all jobs, without blocking other
/// transactions.
pub async fn find(options: &PostgresOptions) -> Result<Vec<CounterMismatch>, MigrateError> {
    let client = patient(options).await?;
    let names = names(&client).await?;
    let mut mismatches = Vec::new();
    for kind in CounterTable::ALL {
        mismatches.extend(names.name(kind, &found(&client, kind).await?));
    }
    Ok(mismatches)
}

/// Repairs them. Returns the changes.
pub async fn repair(options: &PostgresOptions) -> Result<Vec<CounterMismatch>, MigrateError> {
    let client = patient(options).await?;
    let names = names(&client).await?;
    let mut repaired = Vec::new();
    for kind in CounterTable::ALL {
        client.batch_execute("BEGIN").await?;
        client.query_one(TAKE_TURNS, &[]).await?;
        let found = found(&client, kind).await?;
        for Call { sql, parameters } in calls(repairs(kind, &found)) {
            let parameters: Vec<&(dyn ToSql + Sync)> =
                parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect();
            client.execute(sql, &parameters).await?;
        }
        client.batch_execute("COMMIT").await?;
        repaired.extend(names.name(kind, &found));
    }
    Ok(repaired)
}

/// A connection for statements that read whole tables, to a database of a version that this binary
/// supports.
pub(super) async fn patient(options: &PostgresOptions) -> Result<Client, MigrateError> {
    let options = PostgresOptions { statement_timeout: limits::DATABASE_CHECK_TIMEOUT, ..options.clone() };
    let client = connect(&options.target()?).await?;
    match version(&client).await? {
        VERSION => Ok(client),
        found if found > VERSION => Err(MigrateError::Newer { found, known: VERSION }),
        found => Err(MigrateError::Older { found, needed: VERSION }),
    }
}

async fn names(client: &Client) -> Result<NamesByLane, Fault> {
    let rows = client.query(LANE_NAMES, &[]).await?;
    let read = |row: &Row| Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?));
    Ok(NamesByLane::new(rows.iter().map(read).collect::<Result<Vec<_>, Fault>>()?))
}

async fn found(client: &Client, kind: CounterTable) -> Result<Vec<MismatchRow>, Fault> {
    let rows = client.query(&kind.sql("bigint"), &[]).await?;
    rows.iter().map(|row| MismatchRow::read(kind, |column| get(row, column))).collect()
}
