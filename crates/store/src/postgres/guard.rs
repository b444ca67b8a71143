//! Being the only one at something that is more than one transaction: dropping partitions, and moving house.
//!
//! Whoever is at it holds a lock in a transaction that does nothing else, on a connection of its own; the work is done on
//! another one. The lock goes with the connection, so nobody has to clean up after one who died. It is on a small table and
//! in the way of nobody who reads or writes that table. A lock on a row would not do: it gives the transaction a number, and
//! whoever follows history is shown nothing that comes after an open transaction with a number.

use super::connection::connect;
use super::options::Target;
use crate::fault::Fault;
use tokio_postgres::Client;

/// What only one at a time does with a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    Retention,
    Moving,
}

impl Duty {
    /// The table whose lock stands for it. Both are written once in the life of a version.
    const fn table(self) -> &'static str {
        match self {
            Duty::Retention => "migrations",
            Duty::Moving => "punctual",
        }
    }

    /// How long somebody else is waited for. Retention comes round again; of a move that broke off, the server may take a
    /// moment to notice that it is gone.
    const fn patience(self) -> &'static str {
        match self {
            Duty::Retention => "1ms",
            Duty::Moving => "5s",
        }
    }
}

/// The lock, as long as its connection lives.
pub(crate) struct Guard {
    client: Client,
}

impl Guard {
    /// `None`, if somebody else is at it.
    pub async fn take(target: &Target, duty: Duty) -> Result<Option<Self>, Fault> {
        let client = connect(target).await?;
        // Under another name than those who use the database, among whom a move looks for others than itself.
        let (table, patience) = (duty.table(), duty.patience());
        let lock = format!(
            "SET application_name = 'punctual-guard'; BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; \
             SET LOCAL lock_timeout = '{patience}'; LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE"
        );
        match client.batch_execute(&lock).await.map_err(Fault::from) {
            Ok(()) => Ok(Some(Guard { client })),
            Err(fault) if fault.is_conflict() => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// To be asked before each piece of work: a connection that is gone has taken the lock with it.
    pub async fn must_be_held(&self) -> Result<(), Fault> {
        Ok(self.client.batch_execute("SELECT 1").await?)
    }

    /// Lets the next one have it now, rather than when the server notices that the connection is closed.
    pub async fn release(self) -> Result<(), Fault> {
        Ok(self.client.batch_execute("ROLLBACK").await?)
    }
}
