//! The store behind the port: writers that share transactions, connections for reads, and maintenance. It
//! must not know any rule or table.

use super::listen::PostgresReadyQueue;
use super::logs::PostgresLogs;
use super::maintenance::PostgresMaintenance;
use super::membership::PostgresMembership;
use super::migrate::{self, MigrateError};
use super::options::{OptionsError, PostgresOptions, Target};
use super::readers::{Readers, list, list as read_logs, read, read_at_once};
use super::tables::SharedDatabase;
use super::wire::OwnWire;
use crate::audit::AuditCall;
use crate::directory::{DirectoryCall, DirectoryReply};
use crate::fault::Fault;
use crate::membership::{MembershipCall, MembershipReply, serve_membership};
use crate::store_port::{seed, serve_store};
use crate::tokio_host::tokio_host;
use crate::unit_of_work::Writers;
use punctual_core::ports::{ReadyQueue, StoreError};
use std::sync::Arc;

/// A store that several nodes share. Dropping it completes all calls that were sent.
pub struct PostgresStore {
    writers: Writers,
    readers: Readers,
    maintenance: PostgresMaintenance,
    audit: OwnWire,
    logs: PostgresLogs,
    ready_queue: Arc<PostgresReadyQueue>,
    membership: PostgresMembership,
}

/// A store cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// It has another version, or cannot be migrated to this one.
    #[error("the database {database} cannot be used")]
    Schema { database: String, source: MigrateError },
    #[error("the database {database} cannot be opened")]
    Database { database: String, source: StoreError },
}

impl PostgresStore {
    /// Opens a database. An empty one is migrated to this binary's version. Other versions are rejected,
    /// because running nodes may still use that version.
    pub async fn open(options: &PostgresOptions) -> Result<Self, OpenError> {
        let shared = SharedDatabase::new(options)?;
        let replica = options.replica()?;
        let database = shared.target.name();
        migrate::prepare(&shared.target).await.map_err(|source| match source {
            MigrateError::Store(source) => OpenError::Database { database: database.clone(), source },
            source => OpenError::Schema { database: database.clone(), source },
        })?;
        let opened = Self::opened(options, shared, replica.as_ref()).await;
        opened.map_err(|fault| OpenError::Database { database, source: fault.into() })
    }

    async fn opened(
        options: &PostgresOptions,
        shared: SharedDatabase,
        replica: Option<&Target>,
    ) -> Result<Self, Fault> {
        let maintenance = PostgresMaintenance::new(shared.clone(), &shared.target);
        maintenance.open().await?;
        Ok(PostgresStore {
            readers: Readers::new(&shared.target, replica, options.readers)?,
            writers: Writers::start(options.writers, Arc::new(shared.clone()), &tokio_host(seed())),
            maintenance,
            audit: OwnWire::new(shared.target.clone()),
            logs: PostgresLogs::new(shared.clone(), &shared.target, options.log_bytes_max),
            ready_queue: Arc::new(PostgresReadyQueue::new(&shared.target)),
            membership: PostgresMembership::new(shared.target.clone()),
        })
    }

    /// The notifications between the nodes that share this store.
    pub fn ready_queue(&self) -> Arc<dyn ReadyQueue> {
        self.ready_queue.clone()
    }

    /// Waits until everything that was sent is written.
    pub async fn close(self) {
        self.writers.close().await;
    }
}

serve_store!(PostgresStore);
serve_membership!(PostgresStore);
