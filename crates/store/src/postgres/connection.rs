//! Connections: one by one for those who write and listen, and a pool for those who read.

use super::options::Target;
use crate::fault::Fault;
use deadpool_postgres::{Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use punctual_core::limits;
use tokio::time::timeout;
use tokio_postgres::{Client, Connection, Socket};

/// A connection that is served until its client is dropped or the server goes.
pub(crate) async fn connect(target: &Target) -> Result<Client, Fault> {
    let (client, connection) = handshake(target).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the database ended");
        }
    });
    Ok(client)
}

/// A connection whose messages the caller reads itself; it does nothing unless it is polled.
pub(crate) async fn handshake(target: &Target) -> Result<(Client, Connection<Socket, TlsStream>), Fault> {
    match timeout(target.connect_timeout, target.config.connect(target.tls.clone())).await {
        Ok(connected) => Ok(connected?),
        Err(_) => {
            let (name, seconds) = (target.name(), target.connect_timeout.as_secs_f64());
            Err(Fault::Away(format!("{name} has not answered within {seconds} s")))
        }
    }
}

pub(crate) type TlsStream =
    <tokio_postgres_rustls::MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream;

/// Up to so many connections, which are made when they are needed.
pub(crate) fn pool(target: &Target, size: usize) -> Result<Pool, Fault> {
    let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(target.config.clone(), target.tls.clone(), manager_config);
    Pool::builder(manager)
        .max_size(size.max(1))
        .create_timeout(Some(target.connect_timeout))
        .wait_timeout(Some(limits::DATABASE_POOL_WAIT_MAX))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| Fault::Away(error.to_string()))
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            other => Fault::Away(format!("no connection to the database is free: {other}")),
        }
    }
}
