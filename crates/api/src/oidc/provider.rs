//! The issuer's documents: its description of itself, and its current keys.
//!
//! Keys are fetched again when a JWT names an unknown one, and every few minutes, so that a key that the
//! issuer has withdrawn stops working. Requests with known keys do not wait for that.

use super::OidcError;
use super::keys::Keys;
use punctual_core::ports::Clock;
use punctual_core::time::Monotonic;
use reqwest::{RequestBuilder, Url};
use serde::Deserialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;

/// The time between two attempts to fetch something.
const FETCH_INTERVAL: Duration = Duration::from_secs(10);
/// The age at which keys are fetched again.
const KEYS_FRESH_TIME: Duration = Duration::from_secs(5 * 60);
/// The age at which keys are no longer used, if the issuer cannot be reached.
const KEYS_AGE_MAX: Duration = Duration::from_secs(60 * 60);
/// How soon documents are fetched again without a request that needs them, after a failure.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(60);
/// How long a request to the issuer may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a document.
const DOCUMENT_BYTES_MAX: usize = 512 * 1024;

const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

/// Where the issuer's documents and endpoints are.
#[derive(Debug, Clone, Deserialize)]
pub struct ProviderMetadata {
    issuer: String,
    jwks_uri: String,
    #[serde(default)]
    pub authorization_endpoint: Option<String>,
    #[serde(default)]
    pub token_endpoint: Option<String>,
    #[serde(default)]
    pub token_endpoint_auth_methods_supported: Vec<String>,
}

pub struct Provider {
    pub issuer: String,
    /// Whether plain HTTP is allowed, on this machine.
    pub allows_http: bool,
    pub http: reqwest::Client,
    pub clock: Arc<dyn Clock>,
    fetched: Mutex<FetchedDocuments>,
    /// Held during a fetch, so that there is one at a time.
    fetching: AsyncMutex<()>,
}

#[derive(Default)]
struct FetchedDocuments {
    tried_at: Option<Monotonic>,
    latest: Option<ProviderDocuments>,
    /// Why the last attempt failed, if it did.
    problem: Option<String>,
}

/// What the issuer has published.
#[derive(Clone)]
struct ProviderDocuments {
    metadata: Arc<ProviderMetadata>,
    keys: Arc<Keys>,
    since: Monotonic,
}

impl Provider {
    pub fn new(issuer: String, allows_http: bool, http: reqwest::Client, clock: Arc<dyn Clock>) -> Self {
        let (fetched, fetching) = (Mutex::default(), AsyncMutex::default());
        Provider { issuer, allows_http, http, clock, fetched, fetching }
    }

    /// The issuer's keys. If the ones at hand do not suffice, they are fetched again, unless that was tried
    /// just now.
    pub async fn keys(&self, suffice: impl Fn(&Keys) -> bool) -> Result<Arc<Keys>, OidcError> {
        self.documents(|documents| suffice(&documents.keys)).await.map(|documents| documents.keys)
    }

    pub async fn metadata(&self) -> Result<Arc<ProviderMetadata>, OidcError> {
        self.documents(|_| true).await.map(|documents| documents.metadata)
    }

    /// Keeps the documents fresh without requests that need them, so that a problem is known before users notice it.
    pub async fn follow(&self) {
        loop {
            let _ = self.documents(|_| true).await;
            let has_problem = self.problem().is_some();
            self.clock.sleep(if has_problem { FOLLOW_INTERVAL } else { KEYS_FRESH_TIME }).await;
        }
    }

    /// Why the documents could not be fetched at the last attempt; `None` if they could.
    pub fn problem(&self) -> Option<String> {
        self.fetched().problem.clone()
    }

    async fn documents(
        &self,
        suffice: impl Fn(&ProviderDocuments) -> bool,
    ) -> Result<ProviderDocuments, OidcError> {
        let fetching = match self.usable().filter(&suffice) {
            Some(documents) if self.age(&documents) < KEYS_FRESH_TIME => return Ok(documents),
            // One request fetches them again, and the others continue with what is there.
            Some(documents) => match self.fetching.try_lock() {
                Ok(fetching) => fetching,
                Err(_) => return Ok(documents),
            },
            None => self.fetching.lock().await,
        };
        // Another request may have fetched them meanwhile.
        let has_news =
            |documents: &ProviderDocuments| self.age(documents) < KEYS_FRESH_TIME && suffice(documents);
        if !self.usable().is_some_and(|documents| has_news(&documents)) && self.may_try() {
            match self.fetch().await {
                Ok(documents) => {
                    let mut fetched = self.fetched();
                    (fetched.latest, fetched.problem) = (Some(documents), None);
                }
                Err(error) => {
                    tracing::warn!(issuer = self.issuer, error, "cannot fetch the keys of the issuer");
                    self.fetched().problem = Some(error);
                }
            }
        }
        drop(fetching);
        self.usable().ok_or(OidcError::Unavailable)
    }

    fn usable(&self) -> Option<ProviderDocuments> {
        self.fetched().latest.clone().filter(|documents| self.age(documents) < KEYS_AGE_MAX)
    }

    fn age(&self, documents: &ProviderDocuments) -> Duration {
        self.clock.monotonic().since(documents.since)
    }

    fn may_try(&self) -> bool {
        let now = self.clock.monotonic();
        let mut fetched = self.fetched();
        let is_due = fetched.tried_at.is_none_or(|tried| now.since(tried) >= FETCH_INTERVAL);
        if is_due {
            fetched.tried_at = Some(now);
        }
        is_due
    }

    fn fetched(&self) -> MutexGuard<'_, FetchedDocuments> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fetch(&self) -> Result<ProviderDocuments, String> {
        let address = format!("{}{DISCOVERY_PATH}", self.issuer.trim_end_matches('/'));
        let text = self.read(self.http.get(self.endpoint(&address)?)).await?;
        let metadata: ProviderMetadata =
            serde_json::from_slice(&text).map_err(|error| format!("{address}: {error}"))?;
        if metadata.issuer != self.issuer {
            return Err(format!("{address} names another issuer: {:?}", metadata.issuer));
        }
        let text = self.read(self.http.get(self.endpoint(&metadata.jwks_uri)?)).await?;
        let keys = Keys::parse(&text).map_err(|error| format!("{}: {error}", metadata.jwks_uri))?;
        Ok(ProviderDocuments { metadata: metadata.into(), keys: keys.into(), since: self.clock.monotonic() })
    }

    /// An address that the issuer has published. The secret of this server and the codes of its users go
    /// there.
    pub fn endpoint(&self, address: &str) -> Result<Url, String> {
        let url = Url::parse(address).map_err(|error| format!("{address:?} is no address: {error}"))?;
        if url.scheme() == "https" || (self.allows_http && is_plain_here(&url)) {
            return Ok(url);
        }
        Err(format!("{address} must begin with https://"))
    }

    /// The body of a successful response.
    pub async fn read(&self, request: RequestBuilder) -> Result<Vec<u8>, String> {
        let failed = |error: reqwest::Error| {
            let mut reason = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                reason = format!("{reason}: {cause}");
                source = cause.source();
            }
            reason
        };
        let mut response = request.timeout(FETCH_TIMEOUT).send().await.map_err(failed)?;
        let (status, url) = (response.status(), response.url().clone());
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(failed)? {
            if body.len() + part.len() > DOCUMENT_BYTES_MAX {
                return Err(format!("{url} has more than {DOCUMENT_BYTES_MAX} bytes"));
            }
            body.extend_from_slice(&part);
        }
        match status.is_success() {
            true => Ok(body),
            false => {
                let said: String = String::from_utf8_lossy(&body).chars().take(200).collect();
                Err(format!("{url} answered {status}: {said:?}"))
            }
        }
    }
}

/// Plain HTTP to this machine.
pub fn is_plain_here(url: &Url) -> bool {
    url.scheme() == "http" && url.host_str().is_some_and(crate::hosts::is_this_machine)
}
