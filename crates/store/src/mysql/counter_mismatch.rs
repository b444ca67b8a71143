//! Finds and repairs counter mismatches while a cluster is running: see [`crate::counter_mismatch`].

use super::connection::Connection;
use super::migrate::{MigrateError, VERSION, version};
use super::options::MySqlOptions;
use super::rows::get;
use crate::counter_mismatch::{CounterMismatch, CounterTable, LANE_NAMES, MismatchRow, NamesByLane};
use crate::fault::Fault;
use mysql_async::{Row, Value};
use punctual_core::limits;

/// Serializes repairs, so that each reads what the one before has written. No other transaction waits for
/// this row. It does not exclude repairs on other Galera nodes, but of two transactions that change the
/// same counters only one commits.
const TAKE_TURNS: &str = "SELECT id FROM punctual WHERE id = 1 FOR UPDATE";
const ADD_TO_LANE: &str = "INSERT INTO lane_tallies (lane, shard, waiting, queued, running) VALUES (?, 0, ?, ?, ?) \
     ON DUPLICATE KEY UPDATE waiting = waiting + ?, queued = queued + ?, running = running + ?";
const ADD_TO_LIMITER: &str = "INSERT INTO limiter_tallies (limiter, waiting, in_use) VALUES (?, ?, ?) \
     ON DUPLICATE KEY UPDATE waiting = waiting + ?, in_use = in_use + ?";
const FORGET_LIMITER: &str = "DELETE FROM limiter_tallies WHERE limiter = ? AND waiting = 0 AND in_use = 0";
const ADD_TO_JOBS: &str = "INSERT INTO job_tally (shard, active, paused, completed, failed, cancelled, dead_letters) \
     VALUES (0, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE active = active + ?, paused = paused + ?, \
     completed = completed + ?, failed = failed + ?, cancelled = cancelled + ?, dead_letters = dead_letters + ?";

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
        for mismatch in &found {
            add(&mut connection, kind, mismatch).await?;
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

async fn add(connection: &mut Connection, kind: CounterTable, mismatch: &MismatchRow) -> Result<(), Fault> {
    let missing = || mismatch.missing().into_iter().map(Value::Int);
    let key = [Value::Int(mismatch.key)];
    let keyed = || key.clone().into_iter().chain(missing()).chain(missing()).collect();
    match kind {
        CounterTable::Lanes => connection.run(ADD_TO_LANE, keyed()).await?,
        CounterTable::Limiters => {
            connection.run(ADD_TO_LIMITER, keyed()).await?;
            connection.run(FORGET_LIMITER, key.to_vec()).await?
        }
        CounterTable::Jobs => connection.run(ADD_TO_JOBS, missing().chain(missing()).collect()).await?,
    };
    Ok(())
}
