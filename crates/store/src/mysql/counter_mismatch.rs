//! Finds and repairs counter mismatches while a cluster is running: see [`crate::counter_mismatch`].

use super::connection::Connection;
use super::lists::Statement;
use super::migrate::{MigrateError, VERSION, version};
use super::options::MySqlOptions;
use super::tables::statements;
use crate::cells::get;
use crate::counter_mismatch::{CounterMismatch, CounterTable, LANE_NAMES, MismatchRow, NamesByLane};
use crate::fault::Fault;
use crate::server::changes::repairs;
use mysql_async::Row;
use punctual_core::limits;

/// Serializes repairs, so that each reads what the one before has written. No other transaction waits for
/// this row. It does not exclude repairs on other Galera nodes, but of two transactions that change the
/// same counters only one commits.
const TAKE_TURNS: &str = "SELECT id FROM punctual WHERE id = 1 FOR UPDATE";

/// The counters that differ from their rows. Reads all live rows and all jobs, without blocking other
/// transactions.
pub async fn find(options: &MySqlOptions) -> Result<Vec<CounterMismatch>, MigrateError> {
    let mut connection = patient(options).await?;
    let names = names(&mut connection).await?;
    let mut mismatches = Vec::new();
    for kind in CounterTable::ALL {
        mismatches.extend(names.name(kind, &found(&mut connection, kind).await?));
        connection.commit().await?;
    }
    connection.close().await;
    Ok(mismatches)
}

/// Repairs them. Returns the changes.
pub async fn repair(options: &MySqlOptions) -> Result<Vec<CounterMismatch>, MigrateError> {
    let mut connection = patient(options).await?;
    let names = names(&mut connection).await?;
    connection.commit().await?;
    let mut repaired = Vec::new();
    for kind in CounterTable::ALL {
        connection.begin().await?;
        connection.all(TAKE_TURNS, vec![]).await?;
        let found = found(&mut connection, kind).await?;
        for Statement { sql, values } in statements(repairs(kind, &found)) {
            connection.run(&sql, values).await?;
        }
        connection.commit().await?;
        repaired.extend(names.name(kind, &found));
    }
    connection.close().await;
    Ok(repaired)
}

/// A connection for statements that read whole tables, to a database of a version that this binary
/// supports.
pub(super) async fn patient(options: &MySqlOptions) -> Result<Connection, MigrateError> {
    let options = MySqlOptions { statement_timeout: limits::DATABASE_CHECK_TIMEOUT, ..options.clone() };
    let mut connection = Connection::writing(&options.target()?).await?;
    match version(&mut connection).await? {
        VERSION => Ok(connection),
        found if found > VERSION => Err(MigrateError::Newer { found, known: VERSION }),
        found => Err(MigrateError::Older { found, needed: VERSION }),
    }
}

async fn names(connection: &mut Connection) -> Result<NamesByLane, Fault> {
    let rows = connection.all(LANE_NAMES, vec![]).await?;
    let read = |row: &Row| Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?));
    Ok(NamesByLane::new(rows.iter().map(read).collect::<Result<Vec<_>, Fault>>()?))
}

async fn found(connection: &mut Connection, kind: CounterTable) -> Result<Vec<MismatchRow>, Fault> {
    let rows = connection.all(&kind.sql("SIGNED"), vec![]).await?;
    rows.iter().map(|row| MismatchRow::read(kind, |column| get(row, column))).collect()
}
