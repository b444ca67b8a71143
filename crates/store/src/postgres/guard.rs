//! Mutual exclusion for work that spans several transactions: dropping partitions, and data migrations.
//!
//! The process that does the work holds a lock in a transaction that does nothing else, on a separate
//! connection. The work is done on another one. The lock ends with the connection, so no cleanup is needed
//! after a crash. It is a lock on a small table, and does not block readers or writers of that table. A row
//! lock would not do: it assigns a number to the transaction, and readers of history see nothing that comes
//! after an open transaction with a number.

use super::connection::connect;
use super::options::Target;
use crate::fault::Fault;
use tokio_postgres::Client;

/// Work that only one process at a time does on a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    Retention,
    Moving,
}

impl Duty {
    /// The table that is locked for it. Both tables are written once in the life of a version.
    const fn table(self) -> &'static str {
        match self {
            Duty::Retention => "migrations",
            Duty::Moving => "punctual",
        }
    }

    /// How long to wait for another process. Retention runs again later. After an interrupted migration,
    /// the server may take a moment to notice the closed connection.
    const fn lock_timeout(self) -> &'static str {
        match self {
            Duty::Retention => "1ms",
            Duty::Moving => "5s",
        }
    }
}

/// The lock, held as long as its connection lives.
pub(crate) struct WriterGuard {
    client: Client,
}

impl WriterGuard {
    /// `None` if another process holds the lock.
    pub async fn take(target: &Target, duty: Duty) -> Result<Option<Self>, Fault> {
        let client = connect(target).await?;
        // Under another application name than ordinary users of the database, because a migration looks for
        // users other than itself.
        let (table, lock_timeout) = (duty.table(), duty.lock_timeout());
        let lock = format!(
            "SET application_name = 'punctual-guard'; BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; \
             SET LOCAL lock_timeout = '{lock_timeout}'; LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE"
        );
        match client.batch_execute(&lock).await.map_err(Fault::from) {
            Ok(()) => Ok(Some(WriterGuard { client })),
            Err(fault) if fault.is_conflict() => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Must be called before each piece of work: a lost connection has released the lock.
    pub async fn must_be_held(&self) -> Result<(), Fault> {
        Ok(self.client.batch_execute("SELECT 1").await?)
    }

    /// Releases the lock now, rather than when the server notices that the connection is closed.
    pub async fn release(self) -> Result<(), Fault> {
        Ok(self.client.batch_execute("ROLLBACK").await?)
    }
}
