//! The HTTP API: routes, identity, and the translation between the wire and the engine.
//!
//! It owns everything that HTTP is about and nothing else: what a job may be is decided in core, what happens
//! to it in the engine. It must not know SQL or any concrete store. All routes but the few in
//! [`auth::PUBLIC_PATHS`] need a token; a new route is closed until it is listed there.

mod auth;
mod conditional;
mod connections;
mod described;
mod error;
mod explain;
mod extract;
mod idempotency;
mod json;
mod metrics;
mod nesting;
mod openapi;
mod patch;
mod query;
mod reasons;
mod routes;
mod server;
mod submission;
mod suggest;
mod views;

pub use server::{Server, ServerLimits};

use auth::TokenCache;
use axum::Router;
use extract::BodyShares;
use punctual_core::ports::{Clock, DrivenClock, Store};
use punctual_engine::Engine;
use std::sync::Arc;
use tokio::sync::watch;

/// What the handlers share.
#[derive(Clone)]
pub struct Api {
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    tokens: Arc<TokenCache>,
    bodies: Arc<BodyShares>,
    /// The clock that requests may drive; absent where time is the machine's.
    driven: Option<Arc<dyn DrivenClock>>,
    /// Turns true when the server is about to stop; absent where that is never asked.
    stopping: Option<watch::Receiver<bool>>,
}

impl Api {
    pub fn new(engine: Arc<Engine>, clock: Arc<dyn Clock>) -> Self {
        Api { engine, clock, tokens: Arc::default(), bodies: Arc::default(), driven: None, stopping: None }
    }

    /// Lets requests drive this clock, which must be the engine's calendar.
    pub fn driving(self, clock: Arc<dyn DrivenClock>) -> Self {
        Api { driven: Some(clock), ..self }
    }

    /// Calls itself not ready once `stopping` turns true, and goes on answering: load balancers send their
    /// requests elsewhere, and those that still come are served.
    pub fn ready_until(self, stopping: watch::Receiver<bool>) -> Self {
        Api { stopping: Some(stopping), ..self }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.as_ref().is_some_and(|stopping| *stopping.borrow())
    }

    /// Waits until the server is about to stop.
    async fn stopping(&self) {
        let Some(mut stopping) = self.stopping.clone() else { return std::future::pending().await };
        if stopping.wait_for(|stopping| *stopping).await.is_err() {
            // Nobody is left who could say so.
            std::future::pending().await
        }
    }

    pub fn router(self) -> Router {
        routes::router(self)
    }

    fn store(&self) -> &dyn Store {
        &**self.engine.store()
    }
}

/// The SHA-256 of a token's secret, which is all that a store may keep of it.
pub fn secret_sha256(secret: &str) -> [u8; 32] {
    use sha2::{Digest, Sha256};
    Sha256::digest(secret.as_bytes()).into()
}
