//! TLS below the AMQP connections of lapin: a reactor whose TCP streams are TLS streams. lapin's own TLS reads
//! certificates in other ways than everything else here.

use async_compat::{Compat, CompatExt};
use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures_util::{AsyncRead, AsyncWrite, Stream};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Connects over TLS to one host.
#[derive(Clone)]
pub(crate) struct TlsReactor {
    tokio: Tokio,
    connector: TlsConnector,
    /// The name that the server's certificate must have.
    host: ServerName<'static>,
}

impl std::fmt::Debug for TlsReactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsReactor").field("host", &self.host).finish_non_exhaustive()
    }
}

/// The runtime of this task, with TLS to a host.
pub(crate) fn runtime(
    config: &Arc<ClientConfig>,
    host: &str,
) -> io::Result<Runtime<RuntimeParts<Tokio, TlsReactor>>> {
    let host = ServerName::try_from(host.to_owned())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{host} is no host name")))?;
    let tokio = Tokio::current();
    let reactor =
        TlsReactor { tokio: tokio.clone(), connector: TlsConnector::from(Arc::clone(config)), host };
    Ok(Runtime::new(RuntimeParts::new(tokio, reactor)))
}

impl Reactor for TlsReactor {
    type TcpStream = Compat<TlsStream<TcpStream>>;
    type Sleep = <Tokio as Reactor>::Sleep;

    /// For sockets that the caller has opened, which lapin does not do.
    fn register<H: Read + Write + Send + 'static>(
        &self,
        _: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Err::<Self::TcpStream, _>(io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.tokio.sleep(duration)
    }

    fn interval(&self, duration: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.tokio.interval(duration)
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let (connector, host) = (self.connector.clone(), self.host.clone());
        async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(connector.connect(host, stream).await?.compat())
        }
    }
}
