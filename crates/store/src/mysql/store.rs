//! The store on MariaDB or MySQL: writers, readers and maintenance behind the `Store` port. It must not
//! know any rule or table.

use super::connection::Connection;
use super::logs::MySqlLogs;
use super::maintenance::{MySqlMaintenance, SharedMaintenance};
use super::membership::MySqlMembership;
use super::migrate::{self, MigrateError};
use super::options::{MySqlOptions, OptionsError};
use super::readers::{Readers, list, list as read_logs, read, read_at_once};
use super::tables::MySqlConnect;
use crate::audit::AuditCall;
use crate::directory::{DirectoryCall, DirectoryReply};
use crate::fault::Fault;
use crate::membership::{MembershipCall, MembershipReply, serve_membership};
use crate::server::connection::OwnConnection;
use crate::store_port::{seed, serve_store};
use crate::tokio_host::tokio_host;
use crate::unit_of_work::Writers;
use std::sync::Arc;

/// A store that several processes may share. Dropping it releases its connections; [`Self::close`] also waits until
/// all calls that were sent are complete.
pub struct MySqlStore {
    writers: Writers,
    readers: Readers,
    maintenance: MySqlMaintenance,
    audit: OwnConnection<Connection>,
    logs: MySqlLogs,
    membership: MySqlMembership,
}

/// A store cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error("the database cannot be used")]
    Migrate(#[source] MigrateError),
}

impl From<MigrateError> for OpenError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Options(error) => OpenError::Options(error),
            error => OpenError::Migrate(error),
        }
    }
}

impl MySqlStore {
    /// Opens a database. An empty one is migrated to this binary's version. Other versions are rejected,
    /// because running nodes may still use that version.
    pub async fn open(options: &MySqlOptions) -> Result<Self, OpenError> {
        let seed = if options.seed == 0 { seed() } else { options.seed };
        let options = &MySqlOptions { seed, ..options.clone() };
        let (primary, replica) = (options.target()?, options.replica()?);
        let is_node = migrate::prepare(options).await?;
        let primary = primary.of_nodes(is_node);
        let connect = Arc::new(MySqlConnect::new(options)?);
        let shared = SharedMaintenance::new(options)?;
        Ok(MySqlStore {
            writers: Writers::start(options.writers, connect, &tokio_host(seed)),
            readers: Readers::new(
                primary.clone().reading(),
                replica.map(|target| target.reading()),
                options.readers,
            ),
            maintenance: MySqlMaintenance::new(shared.clone(), &shared.target),
            audit: OwnConnection::new(shared.target.clone()),
            logs: MySqlLogs::new(shared.clone(), &shared.target, options.log_bytes_max),
            membership: MySqlMembership::new(primary),
        })
    }

    /// Waits until everything that was sent is done, and closes all connections.
    pub async fn close(self) {
        self.writers.close().await;
        self.readers.close().await;
        if let Some(connection) = self.membership.into_connection() {
            connection.close().await;
        }
    }
}

serve_store!(MySqlStore);
serve_membership!(MySqlStore);
