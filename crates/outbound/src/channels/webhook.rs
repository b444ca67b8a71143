//! Webhooks by Standard Webhooks: the body, and the signature by which a receiver verifies it.

use super::{BASE64, ChannelRequest, failed};
use base64::Engine as _;
use hmac::{Hmac, KeyInit, Mac};
use hyper::header::HeaderName;
use punctual_core::notify::OutgoingMessage;
use punctual_core::ports::SendError;
use serde_json::{Value, json};
use sha2::Sha256;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const PREFIX: &str = "whsec_";
const MICROS_PER_SECOND: i64 = 1_000_000;
/// Bytes of a key, by the standard.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

pub(super) fn request(message: &OutgoingMessage) -> Result<ChannelRequest, SendError> {
    let mut request = ChannelRequest::json(message.channel.value("url"), &body(message));
    let seconds = message.sent_at.as_micros().div_euclid(MICROS_PER_SECOND);
    let signature = match message.channel.value("secret") {
        "" => None,
        secret => Some(signature(secret, &message.id, seconds, &request.body).map_err(failed)?),
    };
    request = request.with(ID, message.id.clone()).with(TIMESTAMP, seconds.to_string());
    Ok(match signature {
        Some(signature) => request.with(SIGNATURE, signature),
        None => request,
    })
}

/// The event. Several events of one group are one message: the first one, with a list of the others.
pub(super) fn body(message: &OutgoingMessage) -> Value {
    let first = message.events.first();
    let mut data = first.map_or(Value::Null, |event| json!(event));
    if let Value::Object(fields) = &mut data {
        fields.remove("type");
        fields.insert("count".to_owned(), message.count.into());
        if message.count > 1 {
            fields.insert("events".to_owned(), json!(message.events));
        }
        if !message.logs.is_empty() {
            fields.insert("logs".to_owned(), json!(message.logs));
        }
    }
    json!({
        "type": message.kind().word(),
        "timestamp": first.map(|event| event.at),
        "data": data,
    })
}

/// The value of the header `webhook-signature`.
pub(super) fn signature(secret: &str, id: &str, seconds: i64, body: &[u8]) -> Result<String, String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key(secret)?).map_err(|_| "the secret is not a key")?;
    mac.update(format!("{id}.{seconds}.").as_bytes());
    mac.update(body);
    Ok(format!("v1,{}", BASE64.encode(mac.finalize().into_bytes())))
}

/// What is wrong with a secret.
pub(super) fn problem(secret: &str) -> Option<String> {
    key(secret).err()
}

fn key(secret: &str) -> Result<Vec<u8>, String> {
    let encoded = secret.strip_prefix(PREFIX).unwrap_or(secret);
    let key = BASE64
        .decode(encoded)
        .map_err(|_| "must be whsec_ and a key in Base64, such as from `openssl rand -base64 32`")?;
    if KEY_BYTES.contains(&key.len()) {
        return Ok(key);
    }
    Err(format!("must have a key of {} to {} bytes, not {}", KEY_BYTES.start(), KEY_BYTES.end(), key.len()))
}
