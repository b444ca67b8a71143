//! A webhook receiver on the loopback interface. It verifies the signature of every message by Standard Webhooks, as a program of
//! a user would.

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const KEY_BYTES: usize = 32;
/// How far the time of a message may be off, by the standard's advice.
const CLOCK_TOLERANCE_SECONDS: u64 = 300;

pub struct WebhookReceiver {
    pub url: String,
    /// What the sender signs with.
    pub secret: String,
    pub messages: UnboundedReceiver<ReceivedMessage>,
}

/// A message as it arrived.
#[derive(Debug, Clone)]
pub struct ReceivedMessage {
    pub is_verified: bool,
    pub body: Value,
}

#[derive(Clone)]
struct ReceiverState {
    key: [u8; KEY_BYTES],
    arrived: UnboundedSender<ReceivedMessage>,
}

impl WebhookReceiver {
    /// Listens with a new key until the process ends.
    pub async fn start() -> anyhow::Result<Self> {
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).context("cannot read randomness")?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
        let url = format!("http://{}/", listener.local_addr()?);
        let (arrived, messages) = unbounded_channel();
        let router = Router::new().route("/", post(receive)).with_state(ReceiverState { key, arrived });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(WebhookReceiver { url, secret: format!("whsec_{}", BASE64.encode(key)), messages })
    }
}

async fn receive(State(state): State<ReceiverState>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let is_verified = is_signed(&state.key, &headers, &body, now);
    let body = serde_json::from_slice(&body).unwrap_or_default();
    // No receiver is left when the demo ends.
    let _ = state.arrived.send(ReceivedMessage { is_verified, body });
    if is_verified { StatusCode::NO_CONTENT } else { StatusCode::UNAUTHORIZED }
}

/// Whether one of the signatures is that of this key, and the message is recent.
fn is_signed(key: &[u8], headers: &HeaderMap, body: &[u8], now_seconds: u64) -> bool {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(id), Some(time), Some(signatures)) =
        (header("webhook-id"), header("webhook-timestamp"), header("webhook-signature"))
    else {
        return false;
    };
    let is_recent =
        time.parse::<u64>().is_ok_and(|sent| sent.abs_diff(now_seconds) <= CLOCK_TOLERANCE_SECONDS);
    let is_of_key = |signature: &str| {
        let encoded = signature.strip_prefix("v1,").and_then(|encoded| BASE64.decode(encoded).ok());
        let (Some(signature), Ok(mut mac)) = (encoded, Hmac::<Sha256>::new_from_slice(key)) else {
            return false;
        };
        mac.update(format!("{id}.{time}.").as_bytes());
        mac.update(body);
        mac.verify_slice(&signature).is_ok()
    };
    is_recent && signatures.split(' ').any(is_of_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the standard's own libraries.
    const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const BODY: &[u8] = b"{\"test\": 2432232314}";
    const SENT: u64 = 1_614_265_330;

    fn headers(signature: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", signature),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_recent_messages_with_the_right_signature_are_verified() {
        let key = BASE64.decode(SECRET).unwrap();
        let right = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert!(is_signed(&key, &headers(right), BODY, SENT));
        assert!(is_signed(&key, &headers(&format!("v1,AAAA {right}")), BODY, SENT + 299));
        assert!(!is_signed(&key, &headers(right), BODY, SENT + 301), "an old one");
        assert!(!is_signed(&key, &headers(right), b"{}", SENT), "another body");
        assert!(!is_signed(&[7; KEY_BYTES], &headers(right), BODY, SENT), "another key");
        assert!(!is_signed(&key, &HeaderMap::new(), BODY, SENT), "none");
    }
}
