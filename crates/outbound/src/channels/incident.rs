//! Services for people on call: an incident is opened by the first message with a key, and closed by the last one.

use super::chat::cut;
use super::{ChannelRequest, template};
use hyper::header;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use punctual_core::notify::{OutgoingMessage, default_title};
use serde_json::json;

const PAGERDUTY: &str = "https://events.pagerduty.com";
const OPSGENIE: &str = "https://api.opsgenie.com";
const SUMMARY_CHARS_MAX: usize = 1_024;
const OPSGENIE_MESSAGE_CHARS_MAX: usize = 130;
const OPSGENIE_TEXT_CHARS_MAX: usize = 15_000;

fn base<'a>(message: &'a OutgoingMessage, usual: &'a str) -> &'a str {
    match message.channel.value("url") {
        "" => usual,
        url => url.trim_end_matches('/'),
    }
}

/// The Events API v2.
pub(super) fn pagerduty(message: &OutgoingMessage) -> ChannelRequest {
    let action = if message.kind().is_resolution() { "resolve" } else { "trigger" };
    let mut body = json!({
        "routing_key": message.channel.value("routing_key"),
        "event_action": action,
        "dedup_key": message.dedup_key,
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
        let alias = utf8_percent_encode(&message.dedup_key, NON_ALPHANUMERIC);
        let body = json!({"source": "punctual", "note": template::text(message)});
        ChannelRequest::json(format!("{base}/v2/alerts/{alias}/close?identifierType=alias"), &body)
    } else {
        let title = default_title(&message.events, message.count);
        let body = json!({
            "message": cut(&title, OPSGENIE_MESSAGE_CHARS_MAX),
            "alias": message.dedup_key,
            "description": cut(&template::text(message), OPSGENIE_TEXT_CHARS_MAX),
            "source": "punctual",
        });
        ChannelRequest::json(format!("{base}/v2/alerts"), &body)
    };
    request.with(header::AUTHORIZATION, format!("GenieKey {}", message.channel.value("api_key")))
}
