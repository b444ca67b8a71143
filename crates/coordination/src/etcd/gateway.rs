//! The connection to etcd: its JSON gateway over HTTP, at any of the configured hosts that answers, with a
//! token if it requires a login.
//!
//! Every call can be repeated, so a call that one host did not answer is sent to the next. TLS works as for
//! the `http` job type: the cryptography is a value, and nothing is installed for the whole process.

use super::wire::{self, EtcdTransaction, TransactionResult};
use crate::open::CoordinationOpenError;
use crate::options::{EtcdOptions, SETTING};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use punctual_core::causes::in_full;
use punctual_core::limits::COORDINATION_ANSWER_BYTES_MAX;
use punctual_core::ports::CoordinationError;
use punctual_core::service_url::{Login, advice, listed};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub struct Gateway {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// `http://host:port` of each host.
    hosts: Vec<String>,
    /// The index of the host that answered last.
    preferred: AtomicUsize,
    login: Option<Login>,
    token: Mutex<Option<String>>,
    /// How long a host may take to answer.
    answer_max: Duration,
    /// For messages.
    address: String,
}

/// A call that waits for a host. If it is dropped, the next call starts with the next host, because it might
/// wait as long for this one.
struct WaitingForHost<'a> {
    gateway: &'a Gateway,
    place: usize,
    is_answered: bool,
}

impl Drop for WaitingForHost<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let next = (self.place + 1) % self.gateway.hosts.len();
            // Fails if another call was faster and has done the same.
            let _ = self.gateway.preferred.compare_exchange(
                self.place,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }
}

/// Why etcd did not execute a call.
#[derive(Debug)]
pub enum EtcdRefusal {
    NoSuchLease,
    LeaseExists,
    /// The user or the password is wrong, or the user lacks a permission.
    Denied(String),
    /// No host has executed it; the error of each.
    Unavailable(String),
    /// The answer was malformed.
    Malformed(String),
}

/// gRPC status codes.
const NOT_FOUND: i64 = 5;
const PERMISSION_DENIED: i64 = 7;
const FAILED_PRECONDITION: i64 = 9;
const UNAUTHENTICATED: i64 = 16;

/// The answer of one host. After a refusal, another host may still accept the call.
enum Answered {
    Done(Bytes),
    Refused { said: String, code: i64 },
}

impl Gateway {
    pub fn new(options: &EtcdOptions) -> Result<Self, CoordinationOpenError> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(options.answer_max));
        connector.set_nodelay(true);
        let tls = punctual_tls::client_config(&options.tls.clone().unwrap_or_default())?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        Ok(Gateway {
            http: Client::builder(TokioExecutor::new()).build(connector),
            hosts: options.hosts.iter().map(|host| format!("{scheme}://{host}")).collect(),
            preferred: AtomicUsize::new(0),
            login: options.login.clone(),
            token: Mutex::default(),
            answer_max: options.answer_max,
            address: listed(&options.hosts),
        })
    }

    pub async fn transact(&self, transaction: &EtcdTransaction) -> Result<TransactionResult, EtcdRefusal> {
        let body = self.call("/v3/kv/txn", &transaction.body()).await?;
        wire::answer(&body).ok_or_else(|| EtcdRefusal::Malformed("to a transaction".to_owned()))
    }

    pub async fn grant(&self, lease: i64, seconds: i64) -> Result<(), EtcdRefusal> {
        let body = json!({"ID": lease.to_string(), "TTL": seconds.to_string()});
        self.call("/v3/lease/grant", &body).await.map(drop)
    }

    /// Whether the lease exists.
    pub async fn keep_alive(&self, lease: i64) -> Result<bool, EtcdRefusal> {
        match self.call("/v3/lease/keepalive", &json!({"ID": lease.to_string()})).await {
            Ok(body) => {
                let left = wire::seconds_left(&body);
                left.map(|seconds| seconds > 0)
                    .ok_or_else(|| EtcdRefusal::Malformed("to a heartbeat".to_owned()))
            }
            Err(EtcdRefusal::NoSuchLease) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    pub async fn revoke(&self, lease: i64) -> Result<(), EtcdRefusal> {
        self.call("/v3/lease/revoke", &json!({"ID": lease.to_string()})).await.map(drop)
    }

    /// Asks one host after the other, starting with the one that answered last. An expired token is renewed
    /// once.
    async fn call(&self, path: &str, body: &Value) -> Result<Bytes, EtcdRefusal> {
        let mut reasons = Vec::new();
        let first = self.preferred.load(Ordering::Relaxed);
        for place in (0..self.hosts.len()).map(|step| (first + step) % self.hosts.len()) {
            let mut waiting = WaitingForHost { gateway: self, place, is_answered: false };
            let mut answered = self.ask_with_token(place, path, body).await;
            if matches!(&answered, Ok(Answered::Refused { said, code }) if is_token_refused(said, *code)) {
                self.forget_token();
                answered = self.ask_with_token(place, path, body).await;
            }
            match answered {
                Ok(Answered::Done(bytes)) => {
                    waiting.is_answered = true;
                    self.preferred.store(place, Ordering::Relaxed);
                    return Ok(bytes);
                }
                Ok(Answered::Refused { said, code }) => match refusal(said, code) {
                    Ok(refusal) => {
                        waiting.is_answered = true;
                        return Err(refusal);
                    }
                    Err(said) => reasons.push(format!("{}: {said}", self.hosts[place])),
                },
                Err(said) => reasons.push(format!("{}: {said}", self.hosts[place])),
            }
        }
        Err(EtcdRefusal::Unavailable(reasons.join("; ")))
    }

    async fn ask_with_token(&self, place: usize, path: &str, body: &Value) -> Result<Answered, String> {
        let token = match (&self.login, self.known_token()) {
            (None, _) => None,
            (Some(_), Some(token)) => Some(token),
            (Some(login), None) => {
                let body = json!({"name": login.user, "password": login.password.0});
                match self.ask(place, "/v3/auth/authenticate", &body, None).await? {
                    Answered::Done(bytes) => {
                        let token = wire::token(&bytes).ok_or("no token was given")?;
                        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
                        Some(token)
                    }
                    refused => return Ok(refused),
                }
            }
        };
        self.ask(place, path, body, token.as_deref()).await
    }

    /// The error says why there is no answer.
    async fn ask(
        &self,
        place: usize,
        path: &str,
        body: &Value,
        token: Option<&str>,
    ) -> Result<Answered, String> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.hosts[place]))
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let request =
            request.body(Full::new(Bytes::from(body.to_string()))).map_err(|error| error.to_string())?;
        let answered = async {
            let response = self.http.request(request).await.map_err(|error| in_full(&error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), COORDINATION_ANSWER_BYTES_MAX).collect().await;
            let bytes = body.map_err(|error| in_full(&*error))?.to_bytes();
            Ok::<_, String>((status, bytes))
        };
        let late = || format!("no answer within {:?}", self.answer_max);
        let (status, bytes) = tokio::time::timeout(self.answer_max, answered).await.map_err(|_| late())??;
        // A streamed answer starts with status 200 even if it fails.
        let is_error = status != StatusCode::OK || bytes.starts_with(b"{\"error\"");
        if !is_error {
            return Ok(Answered::Done(bytes));
        }
        let (said, code) = wire::error(&bytes);
        if status == StatusCode::NOT_FOUND && code == 0 {
            return Err("this address is not the gateway of etcd 3.4 or later".to_owned());
        }
        Ok(Answered::Refused { said, code })
    }

    fn known_token(&self) -> Option<String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn forget_token(&self) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The error for the caller, with the address and what to do.
    pub fn failed(&self, refusal: EtcdRefusal) -> CoordinationError {
        let address = &self.address;
        match refusal {
            EtcdRefusal::Unavailable(reasons) => CoordinationError::Unavailable(format!(
                "etcd cannot be reached ({reasons}): {}",
                advice(&reasons, SETTING)
            )),
            EtcdRefusal::Denied(said) => CoordinationError::Broken(format!(
                "etcd at {address} denies access: {said}; check user and password (coordination.url, \
                 coordination.password_file), and that the user may read and write the prefix"
            )),
            EtcdRefusal::NoSuchLease | EtcdRefusal::LeaseExists => {
                CoordinationError::Unavailable(format!("etcd at {address} has evicted the member"))
            }
            EtcdRefusal::Malformed(what) => CoordinationError::Broken(format!(
                "etcd at {address} sent an unexpected response {what}: check that the address in \
                 coordination.url is that of etcd 3.4 or later"
            )),
        }
    }
}

fn is_token_refused(said: &str, code: i64) -> bool {
    code == UNAUTHENTICATED || said.contains("invalid auth token")
}

/// A permanent rejection by a host; `Err` if another host may succeed.
fn refusal(said: String, code: i64) -> Result<EtcdRefusal, String> {
    if said.contains("lease not found") || (code == NOT_FOUND && said.contains("lease")) {
        Ok(EtcdRefusal::NoSuchLease)
    } else if code == FAILED_PRECONDITION && said.contains("lease already exists") {
        Ok(EtcdRefusal::LeaseExists)
    } else if [UNAUTHENTICATED, PERMISSION_DENIED].contains(&code)
        || said.contains("authentication failed")
        || said.contains("user name is empty")
    {
        Ok(EtcdRefusal::Denied(said))
    } else {
        Err(said)
    }
}
