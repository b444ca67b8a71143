//! Services for people on call: an incident is opened by the first message with a key, and closed by the last one.

use super::chat::cut;
use super::{ChannelRequest, template};
use hyper::header;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use punctual_core::notify::{OutgoingMessage, default_title};
use serde_json::json;
use sha2::{Digest, Sha256};

const PAGERDUTY: &str = "https://events.pagerduty.com";
const OPSGENIE: &str = "https://api.opsgenie.com";
const SUMMARY_CHARS_MAX: usize = 1_024;
const OPSGENIE_MESSAGE_CHARS_MAX: usize = 130;
const OPSGENIE_TEXT_CHARS_MAX: usize = 15_000;
/// Characters that services accept as the key of an incident.
const KEY_CHARS_MAX: usize = 255;
/// Characters of a longer key that stay; a hash follows.
const KEY_CHARS_KEPT: usize = 200;

fn base<'a>(message: &'a OutgoingMessage, usual: &'a str) -> &'a str {
    match message.channel.value("url") {
        "" => usual,
        url => url.trim_end_matches('/'),
    }
}

/// The key of the incident: the same in all messages about it.
fn key(message: &OutgoingMessage) -> String {
    let key = &message.dedup_key;
    if key.chars().count() <= KEY_CHARS_MAX {
        return key.clone();
    }
    let kept: String = key.chars().take(KEY_CHARS_KEPT).collect();
    let hash = Sha256::digest(key);
    hash[..16].iter().fold(kept + "#", |key, byte| format!("{key}{byte:02x}"))
}

/// The Events API v2.
pub(super) fn pagerduty(message: &OutgoingMessage) -> ChannelRequest {
    let action = if message.kind().is_resolution() { "resolve" } else { "trigger" };
    let mut body = json!({
        "routing_key": message.channel.value("routing_key"),
        "event_action": action,
        "dedup_key": key(message),
    });
    if action == "trigger" {
        let severity = if message.kind().is_good() { "info" } else { "error" };
        body["payload"] = json!({
            "summary": cut(&default_title(&message.events, message.count), SUMMARY_CHARS_MAX),
            "source": "punctual",
            "severity": severity,
            "timestamp": message.events.first().map(|event| event.at),
            "custom_details": {"text": template::text(message), "events": message.events},
        });
    }
    ChannelRequest::json(format!("{}/v2/enqueue", base(message, PAGERDUTY)), &body)
}

/// The Alert API.
pub(super) fn opsgenie(message: &OutgoingMessage) -> ChannelRequest {
    let base = base(message, OPSGENIE);
    let request = if message.kind().is_resolution() {
        let alias = key(message);
        let alias = utf8_percent_encode(&alias, NON_ALPHANUMERIC);
        let body =
            json!({"source": "punctual", "note": cut(&template::text(message), OPSGENIE_TEXT_CHARS_MAX)});
        ChannelRequest::json(format!("{base}/v2/alerts/{alias}/close?identifierType=alias"), &body)
    } else {
        let title = default_title(&message.events, message.count);
        let body = json!({
            "message": cut(&title, OPSGENIE_MESSAGE_CHARS_MAX),
            "alias": key(message),
            "description": cut(&template::text(message), OPSGENIE_TEXT_CHARS_MAX),
            "source": "punctual",
        });
        ChannelRequest::json(format!("{base}/v2/alerts"), &body)
    };
    request.with(header::AUTHORIZATION, format!("GenieKey {}", message.channel.value("api_key")))
}
