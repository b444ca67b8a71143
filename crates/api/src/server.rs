//! The HTTP server: its connections, their limits and timeouts, and shutdown.

use crate::auth::Peer;
use crate::connections::{ConnectionSlot, ConnectionState, Connections};
use crate::extract::BodyTimeout;
use crate::listeners::{AcceptedStream, Listeners};
use crate::metrics::Traffic;
use crate::requests::{Admission, CUT_SIGNAL, CutSignal, OpenRequests};
use crate::tls::{self, Accepted, HANDSHAKE_BYTE, Secured, ServerTls};
use axum::Router;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use punctual_core::ports::{Clock, Spawn};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio_io_timeout::TimeoutStream;

/// The limits of one server.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Concurrent connections. A further one displaces one that waits for its client; if all are processing
    /// requests, it is answered 503 and closed.
    pub connections_max: u32,
    /// How long a TLS handshake and each request head may take, and how long a connection may stay idle,
    /// before it is closed.
    pub header_timeout: Duration,
    /// How long a request body may take to arrive before it is answered 408 and its connection closed.
    pub body_timeout: Duration,
    /// How long a client may take to read a response before its connection is cut; with HTTP/2, only that request.
    pub write_timeout: Duration,
    /// Bytes of a request head. A longer one is answered 431. There may be at most a hundred headers in any
    /// case.
    pub head_bytes_max: usize,
    /// Bytes of a request's path and query. Longer ones are answered 414.
    pub uri_bytes_max: usize,
    /// How long open requests may take to finish during shutdown.
    pub shutdown_grace: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            connections_max: 4_096,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            head_bytes_max: 32 * 1024,
            uri_bytes_max: 8 * 1024,
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

/// Pause after an accept failed for lack of descriptors or memory: retrying at once would only waste CPU
/// until connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Concurrent 503 responses to connections over the limit. Further connections are closed without a response.
const REFUSALS_MAX: usize = 64;
/// How long such a client may take to read the response.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// The response that it gets over plain HTTP.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\
    Content-Length: 0\r\n\r\n";
/// The response to plain HTTP on a listener with TLS.
const NOT_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: application/problem+json\r\n\
    Content-Length: 89\r\n\r\n\
    {\"status\":400,\"title\":\"this server uses TLS: use an address that begins with https://\"}\r\n";

/// Concurrent requests of one HTTP/2 connection. Further ones wait at the client.
const STREAMS_MAX: u32 = 128;
/// Bytes of a response that may wait for an HTTP/2 client to make room, per request.
const STREAM_BUFFER_BYTES_MAX: usize = 64 * 1024;
/// How long an HTTP/2 client without open requests may take to read the last bytes and to agree to the end of
/// the connection.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves its listeners until it is stopped.
pub struct Server {
    pub listeners: Listeners,
    /// The certificate for new connections of the port; `None` for plain HTTP.
    pub tls: Option<watch::Receiver<Arc<ServerTls>>>,
    pub limits: ServerLimits,
    pub clock: Arc<dyn Clock>,
    pub spawn: Arc<dyn Spawn>,
    /// Where connections are counted: the API's own counters, for its metrics.
    pub traffic: Arc<Traffic>,
}

impl Server {
    /// Serves requests until `stop` turns true; then accepts no more connections, lets open requests finish
    /// within the grace period, and returns.
    pub async fn run(mut self, router: Router, mut stop: watch::Receiver<bool>) {
        let connections = Arc::new(Connections::new(self.limits.connections_max as usize));
        let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
        while !*stop.borrow() {
            let accepted = tokio::select! {
                accepted = self.listeners.accept() => accepted,
                _ = stop.changed() => break,
            };
            match accepted {
                Ok((stream, from)) => match connections.enter(from.ip()) {
                    Some(slot) => self.serve(stream, Peer(from), slot, router.clone(), stop.clone()),
                    None => self.refuse(stream, from, &refusals),
                },
                Err(error) => {
                    connections.displace();
                    self.pause_after(error).await;
                }
            }
        }
        drop(self.listeners);
        if tokio::time::timeout(self.limits.shutdown_grace, connections.all_ended()).await.is_err() {
            tracing::warn!("some requests did not finish in time and were aborted");
        }
    }

    fn serve(
        &self,
        stream: AcceptedStream,
        peer: Peer,
        slot: ConnectionSlot,
        router: Router,
        stop: watch::Receiver<bool>,
    ) {
        let open = self.traffic.accepted();
        if let AcceptedStream::Network(stream) = &stream {
            // Responses are small and written in one piece: waiting to fill a packet would only delay them.
            let _ = stream.set_nodelay(true);
        }
        let place = slot.place.clone();
        let connection = ClientConnection {
            place: place.clone(),
            peer,
            router,
            limits: self.limits.clone(),
            spawn: self.spawn.clone(),
            traffic: self.traffic.clone(),
            stop,
        };
        let tls = self.tls.as_ref().map(|tls| tls.borrow().clone());
        self.spawn.spawn(Box::pin(async move {
            let _seat = (slot, open);
            tokio::select! {
                () = connection.run(stream, tls) => {}
                () = place.displaced() => {
                    tracing::debug!("an idle connection was closed to make room for another one");
                }
            }
        }));
    }

    fn refuse(&self, stream: AcceptedStream, from: SocketAddr, refusals: &Arc<Semaphore>) {
        tracing::debug!(%from, "all connections are busy: another one was refused");
        // A client that begins a handshake could not read the response: it sees a closed connection.
        let (AcceptedStream::Network(stream), None) = (stream, &self.tls) else { return };
        let Ok(place) = refusals.clone().try_acquire_owned() else { return };
        self.spawn.spawn(Box::pin(async move {
            let _place = place;
            say(stream, REFUSAL).await;
        }));
    }

    async fn pause_after(&self, error: io::Error) {
        tracing::warn!(%error, "a connection could not be accepted");
        self.traffic.failed();
        self.clock.sleep(ACCEPT_PAUSE).await;
    }
}

/// Sends a response, and reads what the client has sent meanwhile: otherwise the response would be lost.
async fn say(mut stream: TcpStream, response: &[u8]) {
    let said = async {
        stream.writable().await?;
        stream.try_write(response)?;
        poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await?;
        let mut unread = [0; 1024];
        loop {
            stream.readable().await?;
            match stream.try_read(&mut unread) {
                Ok(0) => return Ok::<(), io::Error>(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    };
    let _ = tokio::time::timeout(REFUSAL_TIMEOUT, said).await;
}

/// Waits until the server is stopped, or the sender of the stop signal is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stopping| *stopping).await;
}

/// One connection, from its first byte to its end.
struct ClientConnection {
    place: Arc<ConnectionState>,
    peer: Peer,
    router: Router,
    limits: ServerLimits,
    spawn: Arc<dyn Spawn>,
    traffic: Arc<Traffic>,
    stop: watch::Receiver<bool>,
}

impl ClientConnection {
    async fn run(mut self, stream: AcceptedStream, tls: Option<Arc<ServerTls>>) {
        let ended = match (stream, tls) {
            (AcceptedStream::Socket(stream), _) => {
                let stream = self.with_write_timeout(stream);
                self.serve_http1(stream, None).await
            }
            (AcceptedStream::Network(stream), None) => {
                let stream = self.with_write_timeout(stream);
                self.serve_http1(stream, None).await
            }
            (AcceptedStream::Network(stream), Some(tls)) => {
                let mut stop = self.stop.clone();
                let accepted = tokio::select! {
                    accepted = self.accept(stream, tls) => accepted,
                    () = stopped(&mut stop) => None,
                };
                match accepted {
                    None => Ok(()),
                    Some(Accepted { stream, secured, is_http2: true }) => {
                        self.serve_http2(stream, secured).await
                    }
                    Some(Accepted { stream, secured, is_http2: false }) => {
                        self.serve_http1(stream, Some(secured)).await
                    }
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    fn with_write_timeout<T: AsyncRead + AsyncWrite>(&self, stream: T) -> Pin<Box<TimeoutStream<T>>> {
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.limits.write_timeout));
        Box::pin(stream)
    }

    /// The handshake. `None` if it failed or took too long.
    async fn accept(
        &self,
        stream: TcpStream,
        tls: Arc<ServerTls>,
    ) -> Option<Accepted<TimeoutStream<TcpStream>>> {
        let handshake = async {
            let mut first = [0];
            match stream.peek(&mut first).await {
                // Closed without a byte, as health checks of load balancers do.
                Ok(0) => return None,
                Ok(_) if first[0] != HANDSHAKE_BYTE => {
                    say(stream, NOT_TLS).await;
                    return Some(Err(io::Error::other("the client does not use TLS")));
                }
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
            Some(tls::accept(tls, self.with_write_timeout(stream)).await)
        };
        let late = || Some(Err(io::ErrorKind::TimedOut.into()));
        let result = tokio::time::timeout(self.limits.header_timeout, handshake).await;
        match result.unwrap_or_else(|_| late())? {
            Ok(accepted) => Some(accepted),
            Err(error) => {
                self.traffic.handshake_failed();
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
        }
    }

    fn admission(&self, requests: &Arc<OpenRequests>, secured: Option<Secured>) -> Admission {
        Admission {
            requests: requests.clone(),
            peer: self.peer,
            router: self.router.clone(),
            uri_bytes_max: self.limits.uri_bytes_max,
            body_timeout: BodyTimeout(self.limits.body_timeout),
            secured,
        }
    }

    async fn serve_http1<T>(&mut self, stream: T, secured: Option<Secured>) -> hyper::Result<()>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let admission = self.admission(&OpenRequests::new(self.place.clone()), secured);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_timeout)
            .max_header_size(self.limits.head_bytes_max)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| admission.clone().answer(request)),
            );
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut self.stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    }

    /// HTTP/2 has no timeouts of its own: connections without requests are closed after the same time as with
    /// HTTP/1, and so are requests whose clients do not read the response.
    async fn serve_http2<T>(&mut self, stream: T, secured: Secured) -> hyper::Result<()>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let requests = OpenRequests::new(self.place.clone());
        let admission = self.admission(&requests, Some(secured));
        let connection = http2::Builder::new(OnSpawnPort(self.spawn.clone()))
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(self.limits.head_bytes_max).unwrap_or(u32::MAX))
            .max_concurrent_streams(STREAMS_MAX)
            .max_send_buf_size(STREAM_BUFFER_BYTES_MAX)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| admission.clone().answer(request)),
            );
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => return ended,
            never = requests.cut_stalled(self.limits.write_timeout) => match never {},
            () = requests.idle_for(self.limits.header_timeout) => {}
            () = stopped(&mut self.stop) => {}
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            ended = connection => ended,
            never = requests.cut_stalled(self.limits.write_timeout) => match never {},
            () = requests.idle_for(GOODBYE_TIMEOUT) => Ok(()),
        }
    }
}

/// Runs the requests of HTTP/2 connections on the port for spawning.
#[derive(Clone)]
struct OnSpawnPort(Arc<dyn Spawn>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for OnSpawnPort {
    fn execute(&self, request: F) {
        let cut = CutSignal::default();
        let is_cut = cut.clone();
        self.0.spawn(Box::pin(async move {
            tokio::select! {
                biased;
                () = CUT_SIGNAL.scope(cut, request) => {}
                // Without its task, a request is reset.
                () = is_cut.notified() => {}
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_to_plain_http_has_the_announced_length() {
        let text = std::str::from_utf8(NOT_TLS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
        serde_json::from_str::<serde_json::Value>(body).unwrap();
    }
}
