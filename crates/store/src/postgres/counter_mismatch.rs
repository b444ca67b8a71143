//! Finds and repairs counter mismatches while a cluster is running: see [`crate::counter_mismatch`].

use super::connection::connect;
use super::migrate::{MigrateError, VERSION, version};
use super::options::PostgresOptions;
use super::rows::get;
use crate::counter_mismatch::{CounterMismatch, CounterTable, LANE_NAMES, MismatchRow, NamesByLane};
use crate::fault::Fault;
use punctual_core::limits;
use tokio_postgres::{Client, Row};

/// Serializes repairs, so that each reads what the one before has written. No other transaction waits for
/// this row.
const TAKE_TURNS: &str = "SELECT id FROM punctual WHERE id = 1 FOR UPDATE";
const ADD_TO_LANE: &str = "INSERT INTO lane_tallies (lane, shard, waiting, queued, running) VALUES ($1, 0, $2, $3, $4) \
     ON CONFLICT (lane, shard) DO UPDATE SET waiting = lane_tallies.waiting + excluded.waiting, \
     queued = lane_tallies.queued + excluded.queued, running = lane_tallies.running + excluded.running";
const ADD_TO_LIMITER: &str = "INSERT INTO limiter_tallies (limiter, waiting, in_use) VALUES ($1, $2, $3) \
     ON CONFLICT (limiter) DO UPDATE SET waiting = limiter_tallies.waiting + excluded.waiting, \
     in_use = limiter_tallies.in_use + excluded.in_use";
const FORGET_LIMITER: &str = "DELETE FROM limiter_tallies WHERE limiter = $1 AND waiting = 0 AND in_use = 0";
const ADD_TO_JOBS: &str = "INSERT INTO job_tally (shard, active, paused, completed, failed, cancelled, dead_letters) \
     VALUES (0, $1, $2, $3, $4, $5, $6) ON CONFLICT (shard) DO UPDATE SET active = job_tally.active + excluded.active, \
     paused = job_tally.paused + excluded.paused, completed = job_tally.completed + excluded.completed, \
     failed = job_tally.failed + excluded.failed, cancelled = job_tally.cancelled + excluded.cancelled, \
     dead_letters = job_tally.dead_letters + excluded.dead_letters";

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
        for mismatch in &found {
            add(&client, kind, mismatch).await?;
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

async fn add(client: &Client, kind: CounterTable, mismatch: &MismatchRow) -> Result<(), Fault> {
    let (key, missing) = (mismatch.key, mismatch.missing());
    match (kind, missing.as_slice()) {
        (CounterTable::Lanes, [waiting, queued, running]) => {
            client.execute(ADD_TO_LANE, &[&key, waiting, queued, running]).await?;
        }
        (CounterTable::Limiters, [waiting, in_use]) => {
            client.execute(ADD_TO_LIMITER, &[&key, waiting, in_use]).await?;
            client.execute(FORGET_LIMITER, &[&key]).await?;
        }
        (_, [active, paused, completed, failed, cancelled, dead_letters]) => {
            let missing = [active, paused, completed, failed, cancelled, dead_letters];
            let missing = missing.map(|count| count as &(dyn tokio_postgres::types::ToSql + Sync));
            client.execute(ADD_TO_JOBS, &missing).await?;
        }
        (kind, missing) => unreachable!("{} counts of {kind:?}", missing.len()),
    }
    Ok(())
}
