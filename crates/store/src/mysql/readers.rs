//! Connections for reads: a pool on the primary, and one on a replica for lists if there is one.
//!
//! A replica lags behind by an unknown time. So no decision depends on it: it serves only views and lists for users.
//! While it is unreachable, the primary serves them.
//!
//! A connection returns to its pool only after a verb is complete. A caller that gives up in the middle
//! leaves an unread reply, and the next verb would take it for its own: such a connection is closed.

use super::hosts::Hosts;
use super::reads::MySqlReading;
use crate::fault::Fault;
use crate::reads::ReaderLanes;
use mysql_async::{Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts};
use punctual_core::limits;
use punctual_core::ports::StoreError;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Reads from the primary: if it has several hosts, from the first usable one.
macro_rules! read {
    ($readers:expr, $reads:ident => $verb:expr) => {{
        let mut hosts_tried = 1;
        loop {
            let (host, pool) = $readers.primary.current();
            match crate::mysql::readers::read_from!($readers, pool, $reads => $verb) {
                Err(StoreError::Unavailable(reason)) if hosts_tried < $readers.primary.all().len() => {
                    hosts_tried += 1;
                    $readers.pass_on(host, &reason);
                }
                seen => break seen,
            }
        }
    }};
}
pub(super) use read;
pub(super) use read as read_at_once;

/// Reads from the replica if there is one that can be used, and from the primary otherwise.
macro_rules! list {
    ($readers:expr, $reads:ident => $verb:expr) => {{
        if let Some(pool) = $readers.replica() {
            match crate::mysql::readers::read_from!($readers, pool, $reads => $verb) {
                Err(StoreError::Unavailable(reason)) => $readers.rest_replica(&reason),
                seen => return seen,
            }
        }
        crate::mysql::readers::read!($readers, $reads => $verb)
    }};
}
pub(super) use list;

macro_rules! read_from {
    ($readers:expr, $pool:expr, $reads:ident => $verb:expr) => {
        async {
            let mut conflicts = 0;
            loop {
                let mut connection = $readers.connection_of($pool).await?;
                let seen = {
                    let mut $reads = crate::reads::Reads::new(&mut connection, $readers.lanes());
                    crate::mysql::readers::in_time($verb).await
                };
                match seen {
                    Ok(seen) => {
                        connection.give_back();
                        break Ok::<_, StoreError>(seen);
                    }
                    Err(fault) if fault.is_conflict() && conflicts < crate::mysql::readers::CONFLICTS_MAX => {
                        conflicts += 1;
                    }
                    Err(fault) => break Err(StoreError::from(fault)),
                }
            }
        }
        .await
    };
}
pub(super) use read_from;

/// How often a verb restarts because a table was redefined during its snapshot, for example when partitions
/// are created or dropped.
pub(super) const CONFLICTS_MAX: u32 = 3;
/// How long idle connections are kept, except the first one.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// Sent to a connection before its first statement: all statements of a verb must see the same snapshot.
const SNAPSHOTS_HOLD: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";

/// All connections for reads, and the names that they have cached.
#[derive(Debug)]
pub(super) struct Readers {
    pub primary: Hosts<Pool>,
    replica: Option<Replica>,
    lanes: ReaderLanes,
    /// How long a verb waits for a connection.
    pub time_limit: Duration,
}

#[derive(Debug)]
struct Replica {
    pools: Hosts<Pool>,
    /// The replica is not tried before this time.
    rests_until: Mutex<Option<Instant>>,
}

impl Readers {
    /// Connections are opened on demand, up to this many on each server.
    pub fn new(primary: Vec<Opts>, replica: Option<Vec<Opts>>, count: usize) -> Self {
        let pools = |hosts: Vec<Opts>| Hosts::new(hosts.into_iter().map(|opts| pool(opts, count)).collect());
        Readers {
            primary: pools(primary),
            replica: replica.map(|hosts| Replica { pools: pools(hosts), rests_until: Mutex::new(None) }),
            lanes: ReaderLanes::default(),
            time_limit: limits::DATABASE_POOL_WAIT_MAX,
        }
    }

    pub fn lanes(&self) -> &ReaderLanes {
        &self.lanes
    }

    /// Switches from an unusable host to the next one.
    pub fn pass_on(&self, host: usize, reason: &str) {
        tracing::warn!(reason, "a database host cannot be read: trying the next one");
        self.primary.pass_on(host);
    }

    /// The replica, unless there is none or it failed a moment ago.
    pub fn replica(&self) -> Option<&Pool> {
        let replica = self.replica.as_ref()?;
        let rests_until = *replica.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        rests_until.is_none_or(|until| until <= Instant::now()).then(|| replica.pools.current().1)
    }

    /// Does not use the replica for a while.
    pub fn rest_replica(&self, reason: &str) {
        let Some(replica) = &self.replica else { return };
        tracing::warn!(reason, "the replica cannot be read: lists are read from the primary for now");
        replica.pools.pass_on(replica.pools.current().0);
        let mut rests_until = replica.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        *rests_until = Some(Instant::now() + limits::REPLICA_REST);
    }

    /// A connection for one verb.
    pub async fn connection_of(&self, pool: &Pool) -> Result<MySqlReading, StoreError> {
        match timeout(self.time_limit, pool.get_conn()).await {
            Ok(conn) => Ok(MySqlReading::new(conn.map_err(Fault::from)?)),
            Err(_) => Err(late("no connection was free", self.time_limit).into()),
        }
    }

    /// Closes all connections; no further reads are possible.
    pub async fn close(self) {
        let replica = self.replica.iter().flat_map(|replica| replica.pools.all());
        for pool in self.primary.all().iter().chain(replica).cloned() {
            if let Err(error) = pool.disconnect().await {
                tracing::debug!(%error, "connections for reads were not closed properly");
            }
        }
    }
}

fn pool(opts: Opts, count: usize) -> Pool {
    // The bounds are valid for any input.
    let constraints = PoolConstraints::new(1, count.max(1)).unwrap_or_default();
    // Prepared statements and settings of a connection are kept for the next verb.
    let pool_opts = PoolOpts::new()
        .with_constraints(constraints)
        .with_inactive_connection_ttl(IDLE_MAX)
        .with_reset_connection(false);
    let mut setup = opts.setup().to_vec();
    setup.push(SNAPSHOTS_HOLD.to_owned());
    Pool::new(OptsBuilder::from_opts(opts).setup(setup).pool_opts(pool_opts))
}

/// The reply of a verb, if it arrives in time.
pub(super) async fn in_time<T>(verb: impl Future<Output = Result<T, Fault>> + Send) -> Result<T, Fault> {
    let wait = limits::DATABASE_READ_TIME_MAX;
    timeout(wait, verb).await.unwrap_or_else(|_| Err(late("it has not answered", wait)))
}

fn late(what: &str, wait: Duration) -> Fault {
    Fault::Away(format!("{what} within {} s", wait.as_secs_f64()))
}
