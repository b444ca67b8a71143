//! Connections: single ones for writers and listeners, and a pool for readers.

use super::errors::{denial, described};
use super::options::Target;
use crate::fault::Fault;
use deadpool_postgres::{Connect, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use punctual_core::limits;
use punctual_core::ports::Denial;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, Connection, Error, Socket};

/// A connection that is driven until its client is dropped or the server closes it.
pub(crate) async fn connect(target: &Target) -> Result<Client, Fault> {
    let (client, connection) = handshake(target).await?;
    tokio::spawn(serve(connection));
    Ok(client)
}

async fn serve(connection: Connection<Socket, TlsStream>) {
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to the database ended");
    }
}

/// A connection whose messages the caller reads; it makes no progress unless it is polled.
pub(crate) async fn handshake(target: &Target) -> Result<Connected, Fault> {
    match timeout(target.connect_timeout, first_of(target)).await {
        Ok(connected) => connected.map_err(|refusals| refused(target, refusals)),
        Err(_) => {
            let (name, seconds) = (target.name(), target.connect_timeout.as_secs_f64());
            Err(Fault::Away(format!("{name} has not answered within {seconds} s")))
        }
    }
}

pub(crate) type Connected = (Client, Connection<Socket, TlsStream>);

/// Why each host that was tried could not be used, by its index.
type HostRefusals = Vec<(usize, Error)>;

/// Connects to the first usable host, starting with the one that was used last. A host that does not answer may only
/// be slow, so it is not abandoned at once; meanwhile the next hosts are tried.
async fn first_of(target: &Target) -> Result<Connected, HostRefusals> {
    let (mut untried, mut tried, mut refusals) = (target.places(), FuturesUnordered::new(), Vec::new());
    loop {
        match untried.next() {
            Some(place) => tried.push(async move {
                let (host, _) = target.host(place);
                (place, host.connect(target.tls.clone()).await)
            }),
            None if tried.is_empty() => return Err(refusals),
            None => {}
        }
        let time_limit = if untried.len() == 0 { Duration::MAX } else { limits::DATABASE_HOST_TIMEOUT };
        match timeout(time_limit, tried.next()).await {
            Ok(Some((place, Ok(connected)))) => {
                target.prefer(place);
                return Ok(connected);
            }
            Ok(Some((place, Err(error)))) => refusals.push((place, error)),
            Ok(None) | Err(_) => {}
        }
    }
}

/// The error if no host is usable; with several hosts it contains the reason for each.
fn refused(target: &Target, mut refusals: HostRefusals) -> Fault {
    if refusals.len() == 1
        && let Some((_, error)) = refusals.pop()
    {
        return error.into();
    }
    refusals.sort_by_key(|(place, _)| *place);
    let reasons: Vec<String> = refusals
        .iter()
        .map(|(place, error)| format!("{}: {}", target.host(*place).1, described(error)))
        .collect();
    let said = format!("no usable host: {}", reasons.join("; "));
    match Denial::shared(refusals.iter().map(|(_, error)| denial(error))) {
        Some(denial) => Fault::Denied(denial, said),
        None => Fault::Away(said),
    }
}

pub(crate) type TlsStream =
    <tokio_postgres_rustls::MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream;

/// A pool of up to this many connections, which are opened on demand.
pub(crate) fn pool(target: &Target, size: usize) -> Result<Pool, Fault> {
    let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_connect(Config::new(), AnyHost(target.clone()), manager_config);
    Pool::builder(manager)
        .max_size(size.max(1))
        .create_timeout(Some(target.connect_timeout))
        .wait_timeout(Some(limits::DATABASE_POOL_WAIT_MAX))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| Fault::Away(error.to_string()))
}

/// Connects a pool the same way as single connections.
struct AnyHost(Target);

impl Connect for AnyHost {
    fn connect(&self, _: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        Box::pin(async {
            match first_of(&self.0).await {
                Ok((client, connection)) => Ok((client, tokio::spawn(serve(connection)))),
                // A pool can report only one reason.
                Err(mut refusals) => match refusals.pop() {
                    Some((_, error)) => Err(error),
                    // There was no host to try; the driver returns that error.
                    None => {
                        let (client, connection) = Config::new().connect(self.0.tls.clone()).await?;
                        Ok((client, tokio::spawn(serve(connection))))
                    }
                },
            }
        })
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            other => Fault::Away(format!("no connection to the database is free: {other}")),
        }
    }
}
