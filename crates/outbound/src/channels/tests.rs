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
        is_trusted: false,
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
fn requests_stay_within_the_sizes_that_services_accept() {
    let channel = |kind| Channel {
        url: plain("https://chat.example"),
        template: Some("{{ event.error_message }}".to_owned()),
        ..Channel::new(kind, Timestamp::EPOCH)
    };
    for character in ["&", "\u{1}", "ü", "\u{1F514}", "\""] {
        let long = |kind| {
            let mut message = message(channel(kind), EventKind::Failed);
            message.events[0].error_message = Some(character.repeat(60_000 / character.len()));
            message
        };
        let teams = chat::request(&long(ChannelType::Teams));
        assert!(teams.body.len() <= 28 * 1024, "{} bytes of {character:?}", teams.body.len());
        assert!(teams.headers.iter().any(|(_, value)| value == "application/json; charset=utf-8"));
        let slack = json_of(&chat::request(&long(ChannelType::Slack)));
        assert!(slack["text"].as_str().unwrap().chars().count() <= 40_000);
        let discord = json_of(&chat::request(&long(ChannelType::Discord)));
        assert!(discord["content"].as_str().unwrap().chars().count() <= 2_000);
    }
}

#[test]
fn long_keys_of_incidents_are_cut_and_stay_different() {
    let key = |end: &str| {
        let mut message = message(Channel::new(ChannelType::PagerDuty, Timestamp::EPOCH), EventKind::Failed);
        message.dedup_key = format!("punctual/{}{end}", "x".repeat(250));
        json_of(&incident::pagerduty(&message))["dedup_key"].as_str().unwrap().to_owned()
    };
    assert!(key("a").len() <= 255 && key("a") != key("b") && key("a") == key("a"), "{}", key("a"));
}

#[test]
fn phone_numbers_have_the_form_of_e_164() {
    let problems = |to: &str| {
        let to = vec![to.to_owned()];
        chat::sms_problems(&Channel { to, ..Channel::new(ChannelType::Sms, Timestamp::EPOCH) }).len()
    };
    assert_eq!((problems("+491701234567"), problems("+15005550006")), (0, 0));
    for wrong in ["0170", "+0170123", "+49 170", "+1234567890123456", "+", "duty"] {
        assert_eq!(problems(wrong), 1, "{wrong}");
    }
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
    // Too many steps, and too long a text.
    let each = |body: &str, depth: usize| {
        format!("{}{body}{}", "{% for a in event.name %}".repeat(depth), "{% endfor %}".repeat(depth))
    };
    assert!(text(&each("x", 2)).starts_with("xxx"));
    assert!(text(&each("{{ a }}", 8)).starts_with("backup <&> failed"));
    assert!(text(&each(&"x".repeat(8_000), 1)).starts_with("backup <&> failed"));
    assert!(text(&"{{ text }}".repeat(1_500)).starts_with("backup <&> failed"));
    let grown = format!("{{{{ event.name{} }}}}", r#"|replace("", "xxxxxxxxxxxxxxxx")"#.repeat(10));
    assert!(text(&grown).starts_with("backup <&> failed"));
    assert!(template::problem("{{ broken").is_some());
}

#[test]
fn templates_cannot_make_texts_grow() {
    for template in [
        r#"{% if event.error_message is defined and count > 1 %}{{ count - 1 }} more{% elif logs %}!{% endif %}"#,
        "{% for one in events if one.name != 'x' %}{{ loop.index }}. {{ one.name|upper }}{% else %}-{% endfor %}",
        r#"{{ logs|join("\n")|default("no log") }} {{ text[:200]|replace("\n", " ")|trim }} {{ events[0]['name'] }}"#,
    ] {
        assert_eq!(template::problem(template), None, "{template}");
    }
    for (template, said) in [
        (r#"{% set ns=namespace(x="x") %}{% set ns.x = ns.x ~ ns.x %}"#, "uses {% set %}"),
        ("{% set x %}{{ text }}{% endset %}", "uses {% set %}"),
        ("{% with x = text %}{{ x }}{% endwith %}", "uses {% with %}"),
        ("{% filter upper %}x{% endfilter %}", "uses {% filter %}"),
        ("{% for i in range(40) %}x{% endfor %}", "uses a call of a function"),
        ("{% for a, b in events %}x{% endfor %}", "uses a loop with several variables"),
        ("{% for x in events recursive %}x{% endfor %}", "uses a recursive loop"),
        ("{{ [1] * 100000000 }}", "uses the operator *"),
        (r#"{{ "x" * 300000000 }}"#, "uses the operator *"),
        ("{{ 9 ** 9 }}", "uses the operator **"),
        ("{{ text ~ text }}", "uses the operator ~"),
        ("{% if count == (text + text) %}x{% endif %}", "uses the operator +"),
        (r#"{{ "a\nb"|indent(300000000) }}"#, "uses the filter indent"),
        (r#"{{ "%300000000d"|format(1) }}"#, "uses the filter format"),
        (r#"{{ events|map("indent", 9)|join }}"#, "uses the filter map"),
        ("{{ text|default([text, text]) }}", "uses a list"),
        ("{{ text[{'a': text}] }}", "uses a map"),
        ("{{ text if 1 is divisibleby(2) else '' }}", "uses the test divisibleby"),
        ("{% include 'x' %}", "is not a template"),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "is not a template"),
    ] {
        let problem = template::problem(template).unwrap_or_default();
        assert!(problem.starts_with(said), "{template}: {problem}");
        // An earlier release may have saved it.
        let channel = Channel {
            template: Some(template.to_owned()),
            ..Channel::new(ChannelType::Slack, Timestamp::EPOCH)
        };
        let text = template::text(&message(channel, EventKind::Failed));
        assert!(text.starts_with("backup <&> failed"), "{template}: {text}");
    }
}

#[test]
fn deep_templates_do_not_use_up_the_stack() {
    for template in [
        format!("{{{{ text{} }}}}", "|d".repeat(8_000)),
        format!("{{{{ text{} }}}}", ".b".repeat(8_000)),
        format!("{{{{ 1{} }}}}", "-1".repeat(8_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(16_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(4_000)),
        format!("{{{{ {}1{} }}}}", "(".repeat(8_000), ")".repeat(8_000)),
        format!("{{% if 1 %}}{}{{% endif %}}", "{%elif 1%}".repeat(1_600)),
        format!("{}{}", "{%if 1%}".repeat(800), "{%endif%}".repeat(800)),
    ] {
        let problem = template::problem(&template).unwrap_or_default();
        assert!(problem.starts_with("must have at most"), "{}: {problem}", &template[..30]);
    }
    let deepest = format!("{{% if 1 %}}{}{{% endif %}}", "{%elif 1%}".repeat(190));
    assert_eq!(template::problem(&deepest), None);
}
