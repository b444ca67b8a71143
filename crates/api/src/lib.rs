//! The HTTP API: routes, authentication, and the translation between wire types and the engine.
//!
//! It owns all of HTTP and nothing else: core decides what a valid job is, and the engine what happens to it
//! and what its caller may do. It reaches data only through the engine's use cases and must not know a store.
//! All routes except those in [`auth::PUBLIC_PATHS`] need a token; a new route is closed until it is listed
//! there.

mod auth;
mod body_check;
mod browser;
mod compat;
mod conditional;
mod connections;
mod credential_cache;
mod cursors;
mod dashboard;
mod error;
mod explain;
mod extract;
mod headers;
mod hosts;
mod idempotency;
mod intake;
mod json;
mod listeners;
mod login_link;
mod metrics;
mod oidc;
mod openapi;
mod patch;
mod query;
mod rate_limit;
mod reasons;
mod requests;
mod routes;
mod scripts;
mod secrets;
mod server;
mod stream;
mod submission;
mod suggest;
mod tls;
mod token_uses;
mod trace_headers;
mod views;

pub use dashboard::HOME as DASHBOARD_PATH;
pub use hosts::WebPolicy;
pub use intake::MessageJobs;
pub use listeners::Listeners;
pub use login_link::LoginLink;
pub use metrics::Traffic;
pub use oidc::{OidcClient, OidcConfig, RoleRules};
pub use rate_limit::RateLimits;
pub use routes::MergePatches;
pub use secrets::{new_id, new_secret, secret_sha256};
pub use server::{Server, ServerLimits};
pub use tls::ServerTls;

use auth::Verified;
use axum::Router;
use cursors::CursorKey;
use extract::BodyShares;
use metrics::KnownLanes;
use oidc::Oidc;
use punctual_client::SettingsBody;
use punctual_core::ports::{Clock, DrivenClock};
use punctual_core::time::Timestamp;
use punctual_engine::{Access, Engine};
use rate_limit::RateLimiter;
use std::sync::Arc;
use stream::StreamPlaces;
use token_uses::TokenUses;
use tokio::sync::watch;

/// The description of a node.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    pub id: String,
    pub version: String,
    pub started_at: Timestamp,
    pub roles: Vec<String>,
    /// The address it listens on.
    pub address: String,
    /// The kind of its store, and the version of its tables.
    pub store: String,
    pub schema_version: usize,
    /// Whether the store lives in this process.
    pub embedded_store: bool,
    /// The coordination backend that it shares with other nodes on its store; empty on a single node.
    pub coordination: String,
    /// The machine and the process.
    pub host: String,
    pub pid: u32,
}

/// The state that handlers share.
#[derive(Clone)]
pub struct Api {
    access: Access,
    clock: Arc<dyn Clock>,
    verified: Arc<Verified>,
    uses: Arc<TokenUses>,
    /// The identity provider that it trusts, if any.
    oidc: Option<Arc<Oidc>>,
    bodies: Arc<BodyShares>,
    streams: StreamPlaces,
    traffic: Arc<Traffic>,
    limiter: Arc<RateLimiter>,
    lanes: Arc<KnownLanes>,
    cursor_key: CursorKey,
    started_at: Timestamp,
    /// Which hosts requests may name, and which web pages may use the API.
    web: Arc<WebPolicy>,
    /// The description of this node; absent where no route needs it.
    node: Option<Arc<NodeInfo>>,
    /// Warnings about processes on the same store that are unknown to this node's coordination.
    apart: Option<watch::Receiver<Vec<String>>>,
    /// The certificate of its listener; absent where that has none.
    tls: Option<watch::Receiver<Arc<ServerTls>>>,
    /// The link that logs the first browser in; absent where none was made.
    login_link: Option<Arc<LoginLink>>,
    /// The effective settings of this process; absent where none were given.
    settings: Option<Arc<SettingsBody>>,
    /// The clock that requests may drive; absent where time is the system's.
    driven: Option<Arc<dyn DrivenClock>>,
    /// Turns true when the server is about to stop; absent where nothing depends on it.
    stopping: Option<watch::Receiver<bool>>,
    /// Turns true when open streams are to end; absent where nothing depends on it.
    ending: Option<watch::Receiver<bool>>,
}

impl Api {
    pub fn new(engine: Arc<Engine>, clock: Arc<dyn Clock>) -> Self {
        let traffic = Arc::<Traffic>::default();
        Api {
            access: Access::new(engine),
            limiter: RateLimiter::new(RateLimits::default(), clock.clone(), traffic.clone()),
            traffic,
            lanes: Arc::default(),
            cursor_key: CursorKey::default(),
            started_at: clock.wall(),
            clock,
            verified: Arc::default(),
            uses: Arc::default(),
            oidc: None,
            bodies: Arc::default(),
            streams: StreamPlaces::default(),
            web: Arc::default(),
            node: None,
            apart: None,
            tls: None,
            login_link: None,
            settings: None,
            driven: None,
            stopping: None,
            ending: None,
        }
    }

    /// Sets the description of the node that it runs on.
    pub fn on_node(self, node: NodeInfo) -> Self {
        Api { node: Some(Arc::new(node)), ..self }
    }

    /// Sets the hosts that requests may name, and the web pages that may use the API. By default, requests may
    /// name `localhost` and IP addresses, and no page of another origin may use it.
    pub fn open_to(self, web: WebPolicy) -> Self {
        Api { web: Arc::new(web), ..self }
    }

    /// Sets the limits on the pace of requests.
    pub fn limited_to(self, limits: RateLimits) -> Self {
        let limiter = RateLimiter::new(limits, self.clock.clone(), self.traffic.clone());
        Api { limiter, ..self }
    }

    /// Accepts the users of an identity provider.
    pub fn trusting(self, provider: OidcConfig) -> Result<Self, String> {
        let oidc = Oidc::new(provider, self.clock.clone())?;
        Ok(Api { oidc: Some(Arc::new(oidc)), ..self })
    }

    /// Sets the source of warnings about processes on the same store that use another coordination backend.
    pub fn noticing(self, apart: watch::Receiver<Vec<String>>) -> Self {
        Api { apart: Some(apart), ..self }
    }

    /// Sets the certificate of its listener, to warn of its end.
    pub fn presenting(self, tls: Option<watch::Receiver<Arc<ServerTls>>>) -> Self {
        Api { tls, ..self }
    }

    /// Observes the identity provider, so that [`Self::warnings`] tell of its problems. Never ends.
    pub fn follow_provider(&self) -> impl Future<Output = ()> + Send + use<> {
        let oidc = self.oidc.clone();
        async move {
            if let Some(oidc) = oidc {
                oidc.follow().await;
            }
        }
    }

    /// Problems of this server's certificate and of its identity provider.
    fn warnings(&self) -> Vec<String> {
        let now = self.clock.wall();
        let certificate = self.tls.as_ref().and_then(|tls| tls.borrow().warning(now));
        let provider = self.oidc.as_ref().and_then(|oidc| oidc.warning());
        certificate.into_iter().chain(provider).collect()
    }

    /// Accepts the code of this link once in place of a token.
    pub fn greeting(self, link: LoginLink) -> Self {
        Api { login_link: Some(Arc::new(link)), ..self }
    }

    /// Sets the effective settings that operators may see.
    pub fn configured_by(self, settings: SettingsBody) -> Self {
        Api { settings: Some(Arc::new(settings)), ..self }
    }

    /// Lets requests drive this clock, which must be the engine's calendar.
    pub fn driving(self, clock: Arc<dyn DrivenClock>) -> Self {
        Api { driven: Some(clock), ..self }
    }

    /// Reports "not ready" once `stopping` turns true, but keeps serving: load balancers send new requests
    /// elsewhere, and requests that still arrive are answered.
    pub fn ready_until(self, stopping: watch::Receiver<bool>) -> Self {
        Api { stopping: Some(stopping), ..self }
    }

    /// Ends open streams of events once `ending` turns true, so that the server need not wait for them.
    pub fn streaming_until(self, ending: watch::Receiver<bool>) -> Self {
        Api { ending: Some(ending), ..self }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.as_ref().is_some_and(|stopping| *stopping.borrow())
    }

    /// Waits until the server is about to stop.
    async fn stopping(&self) {
        turned_true(self.stopping.clone()).await;
    }

    /// Waits until open streams are to end.
    async fn ending(&self) {
        turned_true(self.ending.clone()).await;
    }

    /// The request counters, in which the server also counts its connections.
    pub fn traffic(&self) -> Arc<Traffic> {
        self.traffic.clone()
    }

    pub fn router(self) -> Router {
        routes::router(self)
    }

    /// Only liveness, readiness and metrics, for processes that serve no requests about jobs.
    pub fn health_router(self) -> Router {
        routes::health_router(self)
    }
}

async fn turned_true(signal: Option<watch::Receiver<bool>>) {
    let Some(mut signal) = signal else { return std::future::pending().await };
    if signal.wait_for(|is_on| *is_on).await.is_err() {
        // The sender is gone, so the signal can never come.
        std::future::pending().await
    }
}
