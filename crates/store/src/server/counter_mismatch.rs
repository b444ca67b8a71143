//! Finds and repairs counter mismatches while a cluster is running: see [`crate::counter_mismatch`].

use super::changes::repairs;
use super::connection::{ServerCall, ServerConnection, TransactionFrame};
use crate::cells::get;
use crate::counter_mismatch::{CounterMismatch, CounterTable, LANE_NAMES, MismatchRow, NamesByLane};
use crate::fault::Fault;

/// Serializes repairs, so that each reads what the one before has written. No other transaction waits for
/// this row. It does not exclude repairs on other Galera nodes, but of two transactions that change the
/// same counters only one commits.
const TAKE_TURNS: &str = "SELECT id FROM punctual WHERE id = 1 FOR UPDATE";

/// The counters that differ from their rows. Reads all live rows and all jobs, without blocking other
/// transactions. `sum` is the sum of a column, see [`CounterTable::sql`].
pub(crate) async fn find<C: ServerConnection>(
    connection: &mut C,
    sum: &str,
) -> Result<Vec<CounterMismatch>, Fault> {
    let names = names(connection).await?;
    let mut mismatches = Vec::new();
    for kind in CounterTable::ALL {
        mismatches.extend(names.name(kind, &found(connection, kind, sum).await?));
        connection.settle().await?;
    }
    Ok(mismatches)
}

/// Repairs them. Returns the changes.
pub(crate) async fn repair<C: ServerConnection>(
    connection: &mut C,
    sum: &str,
) -> Result<Vec<CounterMismatch>, Fault> {
    let names = names(connection).await?;
    let mut repaired = Vec::new();
    for kind in CounterTable::ALL {
        connection.send_one(TransactionFrame::Begin, ServerCall::new(TAKE_TURNS, [])).await?;
        let found = found(connection, kind, sum).await?;
        connection.commit_changes(vec![], repairs(kind, &found)).await?;
        repaired.extend(names.name(kind, &found));
    }
    Ok(repaired)
}

async fn names<C: ServerConnection>(connection: &mut C) -> Result<NamesByLane, Fault> {
    let rows = connection.send_alone(ServerCall::new(LANE_NAMES, [])).await?.rows;
    let read = |row: &C::Row| Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?));
    Ok(NamesByLane::new(rows.iter().map(read).collect::<Result<Vec<_>, Fault>>()?))
}

async fn found<C: ServerConnection>(
    connection: &mut C,
    kind: CounterTable,
    sum: &str,
) -> Result<Vec<MismatchRow>, Fault> {
    let rows = connection.query(&kind.sql(sum), vec![]).await?.rows;
    rows.iter().map(|row| MismatchRow::read(kind, |column| get(row, column))).collect()
}
