//! Issuers that change their keys, fail, or publish what is not their own.

use super::super::OidcError;
use super::super::keys::{Algorithm, Keys};
use super::super::provider::Provider;
use super::Signer;
use axum::Router;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use punctual_client::ClientTls;
use punctual_core::ports::{Clock, Task};
use punctual_core::time::{Monotonic, Timestamp};
use reqwest::redirect::Policy;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A clock that a test moves.
#[derive(Default)]
struct Driven(AtomicU64);

impl Driven {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_micros()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for Driven {
    fn wall(&self) -> Timestamp {
        Timestamp::EPOCH
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn sleep(&self, _: Duration) -> Task {
        Box::pin(std::future::pending())
    }
}

/// What an issuer publishes.
#[derive(Clone, Default)]
struct Issuer {
    address: Arc<Mutex<String>>,
    keys: Arc<Mutex<Value>>,
    mood: Arc<Mutex<Mood>>,
    reads: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Mood {
    #[default]
    Right,
    Broken,
    NamesAnother,
    Redirects,
    Endless,
}

impl Issuer {
    async fn start() -> Self {
        let issuer = Issuer::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        *issuer.address.lock().unwrap() = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(publish).with_state(issuer.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        issuer
    }

    fn address(&self) -> String {
        self.address.lock().unwrap().clone()
    }

    fn provider(&self, clock: &Arc<Driven>) -> Provider {
        let http = ClientTls::default().http().redirect(Policy::none()).build().unwrap();
        Provider::new(self.address(), true, http, clock.clone())
    }

    fn publish(&self, keys: Value) {
        *self.keys.lock().unwrap() = keys;
    }

    fn turn(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

async fn publish(State(issuer): State<Issuer>, uri: Uri) -> Response {
    let (address, mood) = (issuer.address(), *issuer.mood.lock().unwrap());
    if uri.path() == "/keys" {
        issuer.reads.fetch_add(1, Ordering::Relaxed);
        return axum::Json(issuer.keys.lock().unwrap().clone()).into_response();
    }
    let named = if mood == Mood::NamesAnother { "https://evil.example" } else { &address };
    let document = json!({"issuer": named, "jwks_uri": format!("{address}/keys")});
    match mood {
        Mood::Broken => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Mood::Endless => "x".repeat(1024 * 1024).into_response(),
        Mood::Redirects if uri.path() != "/moved" => {
            (StatusCode::FOUND, [(LOCATION, format!("{address}/moved"))]).into_response()
        }
        _ => axum::Json(document).into_response(),
    }
}

async fn has(provider: &Provider, id: &str) -> Result<bool, OidcError> {
    let find = |keys: &Keys| keys.find(Algorithm::Es256, Some(id)).is_some();
    provider.keys(find).await.map(|keys| find(&keys))
}

fn one_key(id: &str) -> Value {
    let mut key = Signer::new().jwks()["keys"][1].clone();
    key["kid"] = json!(id);
    json!({"keys": [key]})
}

#[tokio::test]
async fn keys_are_fetched_when_one_is_unknown_but_not_too_often() {
    let (issuer, clock) = (Issuer::start().await, Arc::new(Driven::default()));
    let provider = issuer.provider(&clock);
    issuer.publish(one_key("first"));
    assert!(has(&provider, "first").await.unwrap());
    assert!(has(&provider, "first").await.unwrap());
    assert_eq!(issuer.reads(), 1);
    issuer.publish(one_key("second"));
    assert!(!has(&provider, "second").await.unwrap(), "the last attempt was just now");
    assert_eq!(issuer.reads(), 1);
    clock.pass(Duration::from_secs(10));
    assert!(has(&provider, "second").await.unwrap());
    assert!(!has(&provider, "first").await.unwrap(), "the issuer has withdrawn it");
    assert_eq!(issuer.reads(), 2);
}

#[tokio::test]
async fn withdrawn_keys_stop_working_after_minutes_and_all_of_them_when_the_issuer_is_gone_for_long() {
    let (issuer, clock) = (Issuer::start().await, Arc::new(Driven::default()));
    let provider = issuer.provider(&clock);
    issuer.publish(one_key("first"));
    assert!(has(&provider, "first").await.unwrap());
    issuer.publish(one_key("second"));
    clock.pass(Duration::from_secs(5 * 60));
    assert!(!has(&provider, "first").await.unwrap());
    issuer.turn(Mood::Broken);
    clock.pass(Duration::from_secs(50 * 60));
    assert!(has(&provider, "second").await.unwrap(), "a short outage of the issuer does no harm");
    clock.pass(Duration::from_secs(10 * 60));
    assert!(matches!(has(&provider, "second").await, Err(OidcError::Unavailable)));
    issuer.turn(Mood::Right);
    clock.pass(Duration::from_secs(10));
    assert!(has(&provider, "second").await.unwrap());
}

#[tokio::test]
async fn documents_that_are_not_the_issuers_own_are_refused() {
    let (issuer, clock) = (Issuer::start().await, Arc::new(Driven::default()));
    issuer.publish(one_key("first"));
    for mood in [Mood::NamesAnother, Mood::Redirects, Mood::Endless, Mood::Broken] {
        issuer.turn(mood);
        assert!(matches!(has(&issuer.provider(&clock), "first").await, Err(OidcError::Unavailable)));
    }
    issuer.turn(Mood::Right);
    let mut strict = issuer.provider(&clock);
    strict.allows_http = false;
    assert!(matches!(has(&strict, "first").await, Err(OidcError::Unavailable)), "plain HTTP");
    assert!(has(&issuer.provider(&clock), "first").await.unwrap());
}
