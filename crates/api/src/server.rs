//! The HTTP server: its connections, their limits and timeouts, and shutdown.

use crate::connections::{ConnectionSlot, ConnectionState, Connections, Phase};
use crate::error::ApiError;
use crate::extract::BodyTimeout;
use crate::metrics::Traffic;
use crate::routes::with_allowed_methods;
use axum::Router;
use axum::body::Body;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use punctual_core::ports::{Clock, Spawn};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_io_timeout::TimeoutStream;
use tower::Service;

/// The limits of one server.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Concurrent connections. A further one displaces one that waits for its client; if all are processing
    /// requests, it is answered 503 and closed.
    pub connections_max: u32,
    /// How long a request head may take to arrive, and how long a connection may stay idle, before it is
    /// closed.
    pub header_timeout: Duration,
    /// How long a request body may take to arrive before it is answered 408 and its connection closed.
    pub body_timeout: Duration,
    /// How long a client may take to read a response before its connection is cut.
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
/// The response that it gets.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\
    Content-Length: 0\r\n\r\n";

/// Serves one listener until it is stopped.
pub struct Server {
    pub listener: TcpListener,
    pub limits: ServerLimits,
    pub clock: Arc<dyn Clock>,
    pub spawn: Arc<dyn Spawn>,
    /// Where connections are counted: the API's own counters, for its metrics.
    pub traffic: Arc<Traffic>,
}

impl Server {
    /// Serves requests until `stop` turns true; then accepts no more connections, lets open requests finish
    /// within the grace period, and returns.
    pub async fn run(self, router: Router, mut stop: watch::Receiver<bool>) {
        let connections = Arc::new(Connections::new(self.limits.connections_max as usize));
        let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
        while !*stop.borrow() {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stop.changed() => break,
            };
            match accepted {
                Ok((stream, from)) => match connections.enter(from.ip()) {
                    Some(slot) => self.serve(stream, slot, router.clone(), stop.clone()),
                    None => self.refuse(stream, from, &refusals),
                },
                Err(error) => {
                    connections.displace();
                    self.pause_after(error).await;
                }
            }
        }
        drop(self.listener);
        if tokio::time::timeout(self.limits.shutdown_grace, connections.all_ended()).await.is_err() {
            tracing::warn!("some requests did not finish in time and were aborted");
        }
    }

    fn serve(
        &self,
        stream: TcpStream,
        slot: ConnectionSlot,
        router: Router,
        mut stop: watch::Receiver<bool>,
    ) {
        let open = self.traffic.accepted();
        // Responses are small and written in one piece: waiting to fill a packet would only delay them.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.limits.write_timeout));
        let place = slot.place.clone();
        let admission = Admission {
            place: place.clone(),
            router,
            uri_bytes_max: self.limits.uri_bytes_max,
            body_timeout: BodyTimeout(self.limits.body_timeout),
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_timeout)
            .max_header_size(self.limits.head_bytes_max)
            .serve_connection(
                TokioIo::new(Box::pin(stream)),
                service_fn(move |request| admission.clone().answer(request)),
            );
        self.spawn.spawn(Box::pin(async move {
            let _seat = (slot, open);
            let mut connection = pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = place.displaced() => {
                    tracing::debug!("an idle connection was closed to make room for another one");
                    return;
                }
                () = stopped(&mut stop) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            }
        }));
    }

    /// Sends the 503, and reads what the client has sent meanwhile: otherwise the response would be lost.
    fn refuse(&self, mut stream: TcpStream, from: SocketAddr, refusals: &Arc<Semaphore>) {
        tracing::debug!(%from, "all connections are busy: another one was refused");
        let Ok(place) = refusals.clone().try_acquire_owned() else { return };
        self.spawn.spawn(Box::pin(async move {
            let _place = place;
            let said = async {
                stream.writable().await?;
                stream.try_write(REFUSAL)?;
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
        }));
    }

    async fn pause_after(&self, error: io::Error) {
        tracing::warn!(%error, "a connection could not be accepted");
        self.traffic.failed();
        self.clock.sleep(ACCEPT_PAUSE).await;
    }
}

/// Waits until the server is stopped, or the sender of the stop signal is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stopping| *stopping).await;
}

/// Passes the requests of one connection to the router and tracks their phase.
#[derive(Clone)]
struct Admission {
    place: Arc<ConnectionState>,
    router: Router,
    uri_bytes_max: usize,
    body_timeout: BodyTimeout,
}

impl Admission {
    async fn answer(mut self, request: Request<Incoming>) -> Result<Response, Infallible> {
        use hyper::body::Body as _;
        let is_whole = request.body().is_end_stream();
        if !self.place.turn_to(if is_whole { Phase::Working } else { Phase::Receiving }) {
            return Ok(closing(ApiError::Overloaded));
        }
        let uri = request.uri();
        if uri.path_and_query().map_or(0, |target| target.as_str().len()) > self.uri_bytes_max {
            return Ok(closing(ApiError::UriTooLong { limit_bytes: self.uri_bytes_max }));
        }
        let place = self.place.clone();
        let mut request = request.map(|body| Body::new(Received { body, place }));
        request.extensions_mut().insert(self.body_timeout);
        let response = with_allowed_methods(self.router.call(request).await?);
        let answered = Answered(self.place);
        answered.0.turn_to(Phase::Working);
        Ok(response.map(|body| Body::new(Sent { body, _answered: answered })))
    }
}

fn closing(error: ApiError) -> Response {
    let mut response = error.into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A request body that signals when it has arrived.
struct Received {
    body: Incoming,
    place: Arc<ConnectionState>,
}

impl hyper::body::Body for Received {
    type Data = <Incoming as hyper::body::Body>::Data;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.place.turn_to(Phase::Working);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response body that signals when it has been sent.
struct Sent {
    body: Body,
    _answered: Answered,
}

/// Dropped with the response: the connection waits for its client again.
struct Answered(Arc<ConnectionState>);

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.turn_to(Phase::Waiting);
    }
}

impl hyper::body::Body for Sent {
    type Data = <Body as hyper::body::Body>::Data;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
