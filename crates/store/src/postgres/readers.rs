//! Connections for reads: a pool on the primary, and one on a replica for lists if there is one.
//!
//! A replica lags behind. So no decision depends on it: it serves only views and lists for users. While it is
//! unreachable or too far behind, the primary serves them.

use super::connection;
use super::options::Target;
use super::standby::Replica;
use crate::fault::Fault;
use crate::reads::ReaderLanes;
use deadpool_postgres::{Client, Object, Pool, Transaction};
use punctual_core::limits;
use punctual_core::ports::StoreError;
use tokio_postgres::IsolationLevel;

/// Reads from the primary: each statement sees what was committed before it.
macro_rules! read {
    ($readers:expr, $reads:ident => $verb:expr) => {
        crate::postgres::readers::read_from!($readers.primary(), $readers.lanes(), $reads => $verb)
    };
}
pub(super) use read;

/// Reads from the primary in one snapshot.
macro_rules! read_at_once {
    ($readers:expr, $reads:ident => $verb:expr) => {
        crate::postgres::readers::snapshot_of!($readers.primary(), $readers.lanes(), $reads => $verb)
    };
}
pub(super) use read_at_once;

/// Reads in one snapshot, from the replica if there is one that can be used.
macro_rules! list {
    ($readers:expr, $reads:ident => $verb:expr) => {{
        if let Some(pool) = $readers.replica().await {
            let seen = async { crate::postgres::readers::snapshot_of!(pool, $readers.lanes(), $reads => $verb) };
            match seen.await {
                Err(StoreError::Unavailable(reason)) => $readers.rest_replica(&reason),
                seen => return seen,
            }
        }
        crate::postgres::readers::read_at_once!($readers, $reads => $verb)
    }};
}
pub(super) use list;

macro_rules! read_from {
    ($pool:expr, $lanes:expr, $reads:ident => $verb:expr) => {{
        let client = crate::postgres::readers::connection_of($pool).await?;
        let seen = {
            let mut connection = crate::postgres::reads::PostgresReading::new(&client);
            let mut $reads = crate::reads::Reads::new(&mut connection, $lanes);
            tokio::time::timeout(punctual_core::limits::DATABASE_READ_TIME_MAX, $verb).await
        };
        crate::postgres::readers::in_time(seen, client)
    }};
}
pub(super) use read_from;

macro_rules! snapshot_of {
    ($pool:expr, $lanes:expr, $reads:ident => $verb:expr) => {{
        let mut client = crate::postgres::readers::connection_of($pool).await?;
        let seen = tokio::time::timeout(punctual_core::limits::DATABASE_READ_TIME_MAX, async {
            let transaction = crate::postgres::readers::snapshot(&mut client).await?;
            let mut connection = crate::postgres::reads::PostgresReading::at_once(&transaction);
            let mut $reads = crate::reads::Reads::new(&mut connection, $lanes);
            $verb.await
        })
        .await;
        crate::postgres::readers::in_time(seen, client)
    }};
}
pub(super) use snapshot_of;

/// All connections for reads, and the names that they have cached.
pub(super) struct Readers {
    primary: Pool,
    replica: Option<Replica>,
    lanes: ReaderLanes,
}

impl Readers {
    /// Connections are opened on demand.
    pub fn new(primary: &Target, replica: Option<&Target>, count: usize) -> Result<Self, Fault> {
        let replica = match replica {
            Some(target) => Some(Replica::new(reading_pool(target, count)?)),
            None => None,
        };
        Ok(Readers { primary: reading_pool(primary, count)?, replica, lanes: ReaderLanes::default() })
    }

    pub fn primary(&self) -> &Pool {
        &self.primary
    }

    pub fn lanes(&self) -> &ReaderLanes {
        &self.lanes
    }

    /// The replica, unless there is none, it is too far behind, or it failed a moment ago.
    pub async fn replica(&self) -> Option<&Pool> {
        self.replica.as_ref()?.near(&self.primary).await
    }

    /// Does not use the replica for a while.
    pub fn rest_replica(&self, reason: &str) {
        if let Some(replica) = &self.replica {
            replica.rest(reason);
        }
    }
}

/// A pool whose statements are planned for their actual values: how much of a table a list reads depends on
/// its cursor, and a generic plan would expect a third of the table.
fn reading_pool(target: &Target, count: usize) -> Result<Pool, Fault> {
    let target = target.clone().with_setting("plan_cache_mode=force_custom_plan");
    connection::pool(&target, count)
}

pub(super) async fn connection_of(pool: &Pool) -> Result<Client, StoreError> {
    Ok(pool.get().await.map_err(Fault::from)?)
}

/// A transaction with one snapshot. It needs no commit: dropping it releases the snapshot.
pub(super) async fn snapshot(client: &mut Client) -> Result<Transaction<'_>, Fault> {
    let begin = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    Ok(begin.start().await?)
}

/// The result, if it took no longer than allowed. Otherwise the state of the connection is unknown, and it
/// is closed.
pub(super) fn in_time<T>(
    seen: Result<Result<T, Fault>, tokio::time::error::Elapsed>,
    client: Client,
) -> Result<T, StoreError> {
    if let Ok(seen) = seen {
        return Ok(seen?);
    }
    drop(Object::take(client));
    let seconds = limits::DATABASE_READ_TIME_MAX.as_secs();
    Err(StoreError::Unavailable(format!("the database has not answered within {seconds} s")))
}
