//! Chat services and text messages.

use super::{ChannelRequest, template};
use hyper::header;
use punctual_core::job::InvalidField;
use punctual_core::notify::{Channel, ChannelType, OutgoingMessage, default_title};
use serde_json::json;

/// Characters that services accept in one message.
const DISCORD_CHARS_MAX: usize = 2_000;
/// Slack cuts a text after 40,000 characters, and each of ours may become five of them (`&amp;`).
const SLACK_CHARS_MAX: usize = 7_900;
/// Teams rejects requests of more than about 28 KB. Bytes of the text in JSON; the rest of the card needs some too.
const TEAMS_BYTES_MAX: usize = 20_000;
const TEAMS_TITLE_CHARS_MAX: usize = 500;
const SMS_CHARS_MAX: usize = 480;
const TWILIO: &str = "https://api.twilio.com";

pub(super) fn request(message: &OutgoingMessage) -> ChannelRequest {
    let url = message.channel.value("url");
    let text = template::text(message);
    let body = match message.channel.kind {
        ChannelType::Teams => {
            let title = default_title(&message.events, message.count);
            let title = cut(&title, TEAMS_TITLE_CHARS_MAX);
            let title = json!({"type": "TextBlock", "text": title, "weight": "Bolder", "wrap": true});
            let text = cut_in_json(&text, TEAMS_BYTES_MAX);
            let text = json!({"type": "TextBlock", "text": text, "wrap": true});
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
    let mut request = ChannelRequest::json(url, &body);
    if message.channel.kind == ChannelType::Teams {
        // Without it, Teams counts two bytes for each character.
        request.headers = vec![(header::CONTENT_TYPE, "application/json; charset=utf-8".to_owned())];
    }
    request
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

/// Numbers that no service would send a text message to.
pub(super) fn sms_problems(channel: &Channel) -> Vec<InvalidField> {
    let wrong = channel.to.iter().enumerate().filter(|(_, to)| !is_e164(to));
    let fix = "must be a phone number in the form E.164, such as +491701234567";
    wrong.map(|(place, _)| InvalidField::new(format!("to[{place}]"), fix)).collect()
}

/// A plus sign and up to 15 digits, the first of which is not 0.
fn is_e164(number: &str) -> bool {
    let digits = number.strip_prefix('+').unwrap_or_default();
    (2..=15).contains(&digits.len())
        && digits.bytes().all(|digit| digit.is_ascii_digit())
        && !digits.starts_with('0')
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

/// The beginning of a text that takes at most this many bytes in JSON.
fn cut_in_json(text: &str, bytes_max: usize) -> String {
    let bytes_of = |char: char| match char {
        '"' | '\\' | '\n' => 2,
        char if char.is_control() => 6,
        char => char.len_utf8(),
    };
    let mut left = bytes_max.saturating_sub('…'.len_utf8());
    let end = text.char_indices().find(|(_, char)| match left.checked_sub(bytes_of(*char)) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    });
    end.map_or_else(|| text.to_owned(), |(end, _)| format!("{}…", &text[..end]))
}
