//! The form of requests.

use super::*;
use punctual_core::notify::{ChannelSecret, EventKind, NotificationEvent};
use punctual_core::time::Timestamp;

fn plain(text: &str) -> Option<ChannelSecret> {
    Some(ChannelSecret::Plain(text.to_owned()))
}

fn message(channel: Channel, kind: EventKind) -> OutgoingMessage {
    let event = NotificationEvent {
        error_message: Some("exit code 1".to_owned()),
        ..NotificationEvent::new(
            "failed:1".to_owned(),
            kind,
            Timestamp::from_micros(1_700_000_000_000_000),
            "backup <&>",
            "All 4 attempts failed.".to_owned(),
        )
    };
    OutgoingMessage {
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned(),
        sent_at: Timestamp::from_micros(1_614_265_330_000_000),
        channel,
        dedup_key: "punctual job 7".to_owned(),
        events: vec![event],
        count: 1,
        logs: vec![],
    }
}

fn json_of(request: &ChannelRequest) -> serde_json::Value {
    serde_json::from_slice(&request.body).unwrap()
}

/// The example in the documentation of Standard Webhooks.
#[test]
fn a_webhook_is_signed_by_the_standard() {
    let signature = webhook::signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        br#"{"test": 2432232314}"#,
    );
    assert_eq!(signature.unwrap(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    assert!(webhook::problem("whsec_c2hvcnQ=").is_some_and(|problem| problem.contains("24 to 64 bytes")));
    assert!(webhook::problem("whsec_%%").is_some());
}

#[test]
fn a_webhook_names_the_event_and_has_its_data() {
    let channel = Channel {
        url: plain("https://example.org/hook"),
        secret: plain("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ..Channel::new(ChannelType::Webhook, Timestamp::EPOCH)
    };
    let mut sent = message(channel, EventKind::Failed);
    let request = webhook::request(&sent).unwrap();
    let body = json_of(&request);
    assert_eq!(body["type"], "job.failed");
    assert_eq!(body["timestamp"], "2023-11-14T22:13:20Z");
    assert_eq!(body["data"]["error_message"], "exit code 1");
    assert_eq!(body["data"]["count"], 1);
    let header =
        |name: &str| request.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
    assert_eq!(header("webhook-id"), Some("msg_p5jXN8AQM9LWM0D4loKWxJek"));
    assert_eq!(header("webhook-timestamp"), Some("1614265330"));
    assert!(header("webhook-signature").is_some_and(|value| value.starts_with("v1,")));
    sent.events.push(sent.events[0].clone());
    sent.count = 50;
    let body = json_of(&webhook::request(&sent).unwrap());
    assert_eq!(
        (body["data"]["count"].as_u64(), body["data"]["events"][1]["type"].as_str()),
        (Some(50), Some("job.failed"))
    );
}

#[test]
fn incidents_are_opened_and_closed_by_the_same_key() {
    let channel =
        Channel { routing_key: plain("R1"), ..Channel::new(ChannelType::PagerDuty, Timestamp::EPOCH) };
    let open = json_of(&incident::pagerduty(&message(channel.clone(), EventKind::Failed)));
    assert_eq!((open["event_action"].as_str(), open["routing_key"].as_str()), (Some("trigger"), Some("R1")));
    assert_eq!(open["payload"]["summary"], "backup <&> failed");
    let close = incident::pagerduty(&message(channel, EventKind::Recovered));
    assert_eq!(close.url, "https://events.pagerduty.com/v2/enqueue");
    let close = json_of(&close);
    assert_eq!((close["event_action"].as_str(), &close["dedup_key"]), (Some("resolve"), &open["dedup_key"]));
    let channel = Channel { api_key: plain("K"), ..Channel::new(ChannelType::Opsgenie, Timestamp::EPOCH) };
    let open = incident::opsgenie(&message(channel.clone(), EventKind::Missed));
    assert_eq!(json_of(&open)["alias"], "punctual job 7");
    assert!(open.headers.iter().any(|(_, value)| value == "GenieKey K"));
    let close = incident::opsgenie(&message(channel, EventKind::Resolved));
    assert_eq!(close.url, "https://api.opsgenie.com/v2/alerts/punctual%20job%207/close?identifierType=alias");
}

#[test]
fn chats_get_text_that_nobody_can_turn_into_markup_or_mentions() {
    let channel =
        |kind| Channel { url: plain("https://chat.example"), ..Channel::new(kind, Timestamp::EPOCH) };
    let slack = json_of(&chat::request(&message(channel(ChannelType::Slack), EventKind::Failed)));
    assert!(slack["text"].as_str().unwrap().starts_with("backup &lt;&amp;&gt; failed\nAll 4"), "{slack}");
    let discord = json_of(&chat::request(&message(channel(ChannelType::Discord), EventKind::Failed)));
    assert_eq!(discord["allowed_mentions"]["parse"], serde_json::json!([]));
    let teams = json_of(&chat::request(&message(channel(ChannelType::Teams), EventKind::Failed)));
    assert_eq!(teams["attachments"][0]["content"]["type"], "AdaptiveCard");
}

#[test]
fn text_messages_are_forms_with_a_login() {
    let channel = Channel {
        auth_token: plain("T"),
        account_sid: Some("AC1".to_owned()),
        from: Some("+1".to_owned()),
        ..Channel::new(ChannelType::Sms, Timestamp::EPOCH)
    };
    let request = chat::sms(&message(channel, EventKind::Failed), "+49 1");
    assert_eq!(request.url, "https://api.twilio.com/2010-04-01/Accounts/AC1/Messages.json");
    assert!(String::from_utf8(request.body).unwrap().starts_with("To=%2B49%201&From=%2B1&Body=backup"));
    assert!(request.headers.iter().any(|(_, value)| value == "Basic QUMxOlQ="));
}

#[test]
fn a_template_that_fails_does_not_hide_the_event() {
    let channel = |template: &str| Channel {
        template: Some(template.to_owned()),
        ..Channel::new(ChannelType::Slack, Timestamp::EPOCH)
    };
    let text = |template: &str| template::text(&message(channel(template), EventKind::Failed));
    assert_eq!(
        text("{{ event.name }}: {{ event.error_message }} ({{ count }})"),
        "backup <&>: exit code 1 (1)"
    );
    assert!(text("{{ event.name.nothing.more }}").starts_with("backup <&> failed"));
    assert!(
        text("{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}")
            .starts_with("backup")
    );
    assert!(template::problem("{{ broken").is_some());
}
