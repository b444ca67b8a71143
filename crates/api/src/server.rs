//! Connections: how many, how slow, and how they end.

use crate::metrics::Traffic;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use punctual_core::ports::{Clock, Spawn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_io_timeout::TimeoutStream;

/// What one server takes on.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Connections at once; further ones wait in the listener's backlog.
    pub connections_max: u32,
    /// How long a request's head may take to arrive, and how long a connection may stay idle.
    pub header_timeout: Duration,
    /// How long a client may take to read what it was sent before its connection is cut.
    pub write_timeout: Duration,
    /// How long open requests may take to finish once the server stops.
    pub shutdown_grace: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            connections_max: 4_096,
            header_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

/// Pause after an accept failed for want of descriptors or memory: trying at once would only burn the time in
/// which connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves one listener until told to stop.
pub struct Server {
    pub listener: TcpListener,
    pub limits: ServerLimits,
    pub clock: Arc<dyn Clock>,
    pub spawn: Arc<dyn Spawn>,
    /// Where connections are counted; the API's own, for its metrics.
    pub traffic: Arc<Traffic>,
}

impl Server {
    /// Answers requests until `stop` turns true; then accepts no more, lets open requests finish within the
    /// grace, and returns.
    pub async fn run(self, router: Router, mut stop: watch::Receiver<bool>) {
        let places = Arc::new(Semaphore::new(self.limits.connections_max as usize));
        while !*stop.borrow() {
            let next = async {
                let place = places.clone().acquire_owned().await.ok()?;
                Some((self.listener.accept().await, place))
            };
            let accepted = tokio::select! {
                accepted = next => accepted,
                _ = stop.changed() => None,
            };
            match accepted {
                Some((Ok((stream, _)), place)) => self.serve(stream, place, router.clone(), stop.clone()),
                Some((Err(error), _)) => self.pause_after(error).await,
                None => break,
            }
        }
        drop(self.listener);
        let all = places.acquire_many(self.limits.connections_max);
        if tokio::time::timeout(self.limits.shutdown_grace, all).await.is_err() {
            tracing::warn!("some requests did not finish in time and were cut off");
        }
    }

    fn serve(
        &self,
        stream: TcpStream,
        place: OwnedSemaphorePermit,
        router: Router,
        mut stop: watch::Receiver<bool>,
    ) {
        let open = self.traffic.accepted();
        // Answers are small and written whole: waiting to fill a packet would only delay them.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.limits.write_timeout));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_timeout)
            .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
        self.spawn.spawn(Box::pin(async move {
            let _place = (place, open);
            let mut connection = pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
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

    async fn pause_after(&self, error: io::Error) {
        tracing::warn!(%error, "a connection could not be accepted");
        self.traffic.failed();
        self.clock.sleep(ACCEPT_PAUSE).await;
    }
}

/// Waits until the server is told to stop, or nobody is left who could tell it.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stopping| *stopping).await;
}
