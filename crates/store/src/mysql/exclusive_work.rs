//! Mutual exclusion for work that one process does at a time: DDL statements, and data migrations.
//!
//! On one server it is a lock that ends with its connection. On the nodes of a Galera cluster locks do not
//! extend to other nodes. There it is a lease: a row with the name of its holder, written only if there is
//! none. It expires if it is not renewed, so that a killed process does not block others for long.

use super::connection::Connection;
use super::options::Target;
use crate::cells::get;
use crate::fault::Fault;
use mysql_async::Value;
use std::time::Duration;
use tokio::time::Instant;

const LOCK: &str = "SELECT cluster FROM punctual WHERE id = 1 FOR UPDATE";
/// Another node may be running a step that takes long.
const WAIT_LONG: &str = "SET SESSION innodb_lock_wait_timeout = 3600 /*M!, max_statement_time = 0, idle_transaction_timeout = 0 */";

const TAKE: &str = "UPDATE turns SET holder = ?, held_until = UTC_TIMESTAMP(6) + INTERVAL ? SECOND \
     WHERE name = ? AND (holder IS NULL OR held_until < UTC_TIMESTAMP(6))";
const RENEW: &str =
    "UPDATE turns SET held_until = UTC_TIMESTAMP(6) + INTERVAL ? SECOND WHERE name = ? AND holder = ?";
const END: &str = "UPDATE turns SET holder = NULL WHERE name = ? AND holder = ?";

/// How long a lease lasts without renewal, in seconds. A single DDL statement may take longer: then another
/// process may start the same step, which is why each of its statements can be run again.
const LEASE_S: i64 = 120;
/// The age at which a lease is renewed.
const RENEWED_AFTER: Duration = Duration::from_secs(20);
/// How often a waiting process checks whether it can take the lease.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long to wait for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockWait {
    /// As long as another node migrates.
    Long,
    /// Hardly at all, because the other process is probably doing the same work.
    Short,
}

/// The right to run DDL statements, which one node at a time has. It ends with its connection at the
/// latest, or soon after it.
#[derive(Debug)]
pub(crate) struct DdlLock {
    connection: Connection,
    lease: Option<ClusterLease>,
}

impl DdlLock {
    /// `None` if another node has it and `wait` does not allow waiting.
    pub async fn take(target: &Target, wait: LockWait) -> Result<Option<Self>, Fault> {
        let mut connection = Connection::writing(target).await?;
        if connection.node().is_some() {
            return Self::take_lease(connection, wait).await;
        }
        if wait == LockWait::Long {
            connection.run_text(WAIT_LONG).await?;
            connection.wait_for_ever();
        }
        match connection.all(LOCK, vec![]).await {
            Ok(_) => Ok(Some(DdlLock { connection, lease: None })),
            Err(fault) if fault.is_conflict() && wait == LockWait::Short => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    async fn take_lease(mut connection: Connection, wait: LockWait) -> Result<Option<Self>, Fault> {
        loop {
            let lease = ClusterLease::take(&mut connection, "define").await?;
            if lease.is_some() {
                return Ok(Some(DdlLock { connection, lease }));
            }
            if wait == LockWait::Short {
                connection.close().await;
                return Ok(None);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Must be called before each DDL statement: the lease may have expired.
    pub async fn renew(&mut self) -> Result<(), Fault> {
        match &mut self.lease {
            Some(lease) => lease.renew(&mut self.connection).await,
            None => Ok(()),
        }
    }

    pub async fn end(mut self) {
        if let Some(lease) = self.lease.take() {
            lease.end(&mut self.connection).await;
        }
        self.connection.roll_back().await;
        self.connection.close().await;
    }
}

/// A lease on a cluster, by its name.
#[derive(Debug)]
pub(crate) struct ClusterLease {
    name: &'static str,
    holder: String,
    renewed_at: Instant,
}

impl ClusterLease {
    /// `None` if another process holds it.
    pub async fn take(connection: &mut Connection, name: &'static str) -> Result<Option<Self>, Fault> {
        let row = connection.one("SELECT UUID()", vec![]).await?;
        let holder: String = get(&row.ok_or_else(|| Fault::Missing("a name".to_owned()))?, 0)?;
        let values = vec![holder.as_str().into(), Value::Int(LEASE_S), name.into()];
        match written(connection, TAKE, values).await {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(ClusterLease { name, holder, renewed_at: Instant::now() })),
            // A process on another node was faster.
            Err(fault) if fault.is_conflict() => {
                connection.roll_back().await;
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Renews the lease, unless it was renewed a moment ago. Must not be called within a transaction.
    pub async fn renew(&mut self, connection: &mut Connection) -> Result<(), Fault> {
        if self.renewed_at.elapsed() < RENEWED_AFTER {
            return Ok(());
        }
        let values = vec![Value::Int(LEASE_S), self.name.into(), self.holder.as_str().into()];
        if written(connection, RENEW, values).await? == 0 {
            let reason =
                format!("this process got no answer for {LEASE_S} s, and another one has taken its lease");
            return Err(Fault::Away(reason));
        }
        self.renewed_at = Instant::now();
        Ok(())
    }

    pub async fn end(self, connection: &mut Connection) {
        let values = vec![self.name.into(), self.holder.as_str().into()];
        if let Err(error) = written(connection, END, values).await {
            tracing::debug!(%error, name = self.name, "a lease was not released; it will expire");
        }
    }
}

/// Runs one statement as a transaction. Returns the number of rows it found.
async fn written(connection: &mut Connection, sql: &str, values: Vec<Value>) -> Result<u64, Fault> {
    let found = connection.run(sql, values).await?;
    connection.commit().await?;
    Ok(found)
}
