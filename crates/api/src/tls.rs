//! TLS of a listener: the handshake, and what later steps need to know about the connection.
//!
//! Reading certificates from files is not its business: it gets a finished configuration, and a new one when
//! the certificate changes.

use punctual_core::time::Timestamp;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// The first byte of a TLS connection. Plain HTTP begins with a letter.
pub const HANDSHAKE_BYTE: u8 = 0x16;

/// The protocol name of HTTP/2 in a handshake.
const HTTP2: &[u8] = b"h2";

/// How long before its end a certificate is reported.
const RENEWAL_TIME: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// What new connections of a listener use.
#[derive(Debug)]
pub struct ServerTls {
    pub config: Arc<ServerConfig>,
    /// The DNS names of the certificate. Requests may use them as their host.
    pub names: Vec<String>,
    /// Whether the worker protocol needs a client certificate. For use with a configuration that accepts
    /// connections without one.
    pub workers_need_certificate: bool,
    /// The setting that names the certificate and its file, for warnings.
    pub named_by: String,
    /// When the certificate ends; `None` if it does not say.
    pub expires_at: Option<Timestamp>,
}

impl ServerTls {
    /// A warning if the certificate has ended, or is about to.
    pub fn warning(&self, now: Timestamp) -> Option<String> {
        let (named_by, expires_at) = (&self.named_by, self.expires_at?);
        let what = if expires_at <= now {
            "has expired: clients do not trust this server"
        } else if expires_at.since(now) <= RENEWAL_TIME {
            "expires soon"
        } else {
            return None;
        };
        Some(format!(
            "{named_by}: the certificate {what} (valid until {expires_at}): renew it, and replace the file"
        ))
    }
}

/// The TLS of one connection. Attached to each of its requests; plain connections have none.
#[derive(Debug, Clone)]
pub struct Secured {
    pub tls: Arc<ServerTls>,
    pub has_client_certificate: bool,
}

/// A connection after its handshake.
pub struct Accepted<T> {
    pub stream: TlsStream<Pin<Box<T>>>,
    pub secured: Secured,
    pub is_http2: bool,
}

pub async fn accept<T: AsyncRead + AsyncWrite>(
    tls: Arc<ServerTls>,
    stream: Pin<Box<T>>,
) -> io::Result<Accepted<T>> {
    let stream = TlsAcceptor::from(tls.config.clone()).accept(stream).await?;
    let session = stream.get_ref().1;
    // A certificate that is there was verified by the handshake.
    let has_client_certificate = session.peer_certificates().is_some_and(|chain| !chain.is_empty());
    let is_http2 = session.alpn_protocol() == Some(HTTP2);
    Ok(Accepted { stream, secured: Secured { tls, has_client_certificate }, is_http2 })
}
