//! Chat services and text messages.

use super::{ChannelRequest, template};
use punctual_core::notify::{ChannelType, OutgoingMessage, default_title};
use serde_json::json;

/// Characters that services accept in one message.
const DISCORD_CHARS_MAX: usize = 2_000;
const SLACK_CHARS_MAX: usize = 12_000;
const TEAMS_CHARS_MAX: usize = 12_000;
const SMS_CHARS_MAX: usize = 480;
const TWILIO: &str = "https://api.twilio.com";

pub(super) fn request(message: &OutgoingMessage) -> ChannelRequest {
    let url = message.channel.value("url");
    let text = template::text(message);
    let body = match message.channel.kind {
        ChannelType::Teams => {
            let title = default_title(&message.events, message.count);
            let title = json!({"type": "TextBlock", "text": title, "weight": "Bolder", "wrap": true});
            let text = json!({"type": "TextBlock", "text": cut(&text, TEAMS_CHARS_MAX), "wrap": true});
            json!({
                "type": "message",
                "attachments": [{
                    "contentType": "application/vnd.microsoft.card.adaptive",
                    "content": {
                        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                        "type": "AdaptiveCard",
                        "version": "1.4",
                        "body": [title, text],
                    },
                }],
            })
        }
        // The name of a job cannot mention a person.
        ChannelType::Discord => {
            json!({"content": cut(&text, DISCORD_CHARS_MAX), "allowed_mentions": {"parse": []}})
        }
        _ => json!({"text": escaped(&cut(&text, SLACK_CHARS_MAX))}),
    };
    ChannelRequest::json(url, &body)
}

pub(super) fn sms(message: &OutgoingMessage, to: &str) -> ChannelRequest {
    let channel = &message.channel;
    let base = match channel.value("url") {
        "" => TWILIO,
        url => url.trim_end_matches('/'),
    };
    let account = channel.account_sid.as_deref().unwrap_or_default();
    let url = format!("{base}/2010-04-01/Accounts/{account}/Messages.json");
    let text = cut(&template::text(message), SMS_CHARS_MAX);
    let fields = [("To", to), ("From", channel.from.as_deref().unwrap_or_default()), ("Body", text.as_str())];
    ChannelRequest::form(url, &fields).login(account, channel.value("auth_token"))
}

/// Slack reads these three characters as markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

pub(super) fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(chars_max - 1).collect();
    cut.push('…');
    cut
}
