//! The requests of each type of channel, as its service receives them.

use crate::http::web::{Answer, Asked, Web};
use crate::notifications::{OPTIONS, body, deliveries, failing, put, server};
use crate::server::{Server, eventually};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

/// Sends a test message over a channel with these fields, and returns what its service received.
async fn sent(server: &Server, web: &Web, channel: Value) -> Asked {
    let before = web.asked().len();
    let (status, answer) = put(server, "/channels/it", channel).await;
    assert!(status.is_success(), "{answer}");
    let (_, tested) = server.post("/api/v1/channels/it/test", "{}").await;
    assert_eq!((&tested["delivered"], web.asked().len()), (&json!(true), before + 1), "{tested}");
    web.asked().remove(before)
}

/// Answers as the services document it: each rejects what its own checks reject.
fn strict(asked: &Asked) -> (String, String) {
    match problem(asked) {
        Some((status, problem)) => (status.to_owned(), problem.to_owned()),
        None => {
            let status = match asked.line.split(' ').nth(1).unwrap() {
                path if path.starts_with("/2010-04-01/") => "201 Created",
                path if path.starts_with("/v2/") || path.starts_with("/teams") => "202 Accepted",
                path if path.starts_with("/discord") => "204 No Content",
                _ => "200 OK",
            };
            (status.to_owned(), String::new())
        }
    }
}

fn problem(asked: &Asked) -> Option<(&'static str, &'static str)> {
    const BAD: &str = "400 Bad Request";
    let path = asked.line.split(' ').nth(1).unwrap();
    let chars = |value: &Value| value.as_str().map(|text| text.chars().count());
    let within = |value: &Value, most: usize| chars(value).is_some_and(|count| (1..=most).contains(&count));
    if path.starts_with("/2010-04-01/") {
        return twilio_problem(asked).map(|problem| (BAD, problem));
    }
    let Ok(sent) = serde_json::from_slice::<Value>(&asked.body) else {
        return Some((BAD, "invalid_payload"));
    };
    if !asked.header("content-type").unwrap_or_default().starts_with("application/json") {
        return Some((BAD, "unsupported media type"));
    }
    let is = |is_right: bool, problem: &'static str| (!is_right).then_some((BAD, problem));
    if path.starts_with("/slack/archived") {
        return Some(("410 Gone", "channel_is_archived"));
    }
    if path.starts_with("/slack") {
        return is(within(&sent["text"], 40_000), "no_text");
    }
    if path.starts_with("/discord") {
        return is(within(&sent["content"], 2_000), "content: Must be between 1 and 2000 in length.");
    }
    if path.starts_with("/teams") {
        let card = &sent["attachments"][0];
        let is_card = sent["type"] == "message"
            && card["contentType"] == "application/vnd.microsoft.card.adaptive"
            && card["content"]["version"].is_string()
            && card["content"]["body"]
                .as_array()
                .is_some_and(|body| body.iter().all(|one| within(&one["text"], 20_000)));
        let is_small = asked.body.len() <= 28 * 1024;
        return is(is_card, "no card").or((!is_small).then_some(("413 Payload Too Large", "too large")));
    }
    if path == "/v2/enqueue" {
        let is_known = matches!(sent["event_action"].as_str(), Some("trigger" | "resolve"));
        let payload = &sent["payload"];
        let severities = ["critical", "error", "warning", "info"];
        let has_payload = within(&payload["summary"], 1_024)
            && within(&payload["source"], 255)
            && payload["severity"].as_str().is_some_and(|severity| severities.contains(&severity));
        return is(chars(&sent["routing_key"]) == Some(32), "Length of 'routing_key' is incorrect")
            .or(is(is_known && within(&sent["dedup_key"], 255), "Event object is invalid"))
            .or(is(sent["event_action"] == "resolve" || has_payload, "Event object is invalid"));
    }
    if path.starts_with("/v2/alerts") {
        let has_key = asked.header("authorization").is_some_and(|value| value.starts_with("GenieKey "));
        let is_close = path.contains("/close?identifierType=alias");
        let is_alert = within(&sent["message"], 130)
            && within(&sent["alias"], 512)
            && within(&sent["description"], 15_000);
        let is_valid = if is_close { within(&sent["note"], 25_000) } else { is_alert };
        return is(has_key && is_valid, "Request body is not processable");
    }
    Some(("404 Not Found", "there is no such path"))
}

/// What Twilio says about a message.
fn twilio_problem(asked: &Asked) -> Option<&'static str> {
    let form = format!("http://form/?{}", String::from_utf8_lossy(&asked.body));
    let form = reqwest::Url::parse(&form).unwrap();
    let field = |name: &str| {
        let value = form.query_pairs().find(|(found, _)| found == name);
        value.map(|(_, value)| value.into_owned()).unwrap_or_default()
    };
    let is_e164 = |number: &str| {
        let digits = number.strip_prefix('+').unwrap_or_default();
        (2..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    if asked.header("content-type") != Some("application/x-www-form-urlencoded") {
        return Some("the body is no form");
    }
    // Twilio knows numbers to which it cannot send, such as this one.
    if !is_e164(&field("To")) || field("To") == "+15005550009" {
        return Some(r#"{"code": 21211, "message": "Invalid 'To' Phone Number", "status": 400}"#);
    }
    let length = field("Body").chars().count();
    (!is_e164(&field("From")) || !(1..=1_600).contains(&length)).then_some("invalid")
}

/// Each service, at a receiver.
fn services(web: &Web) -> Vec<Value> {
    vec![
        json!({"type": "slack", "url": web.url("/slack")}),
        json!({"type": "teams", "url": web.url("/teams")}),
        json!({"type": "discord", "url": web.url("/discord")}),
        json!({"type": "pagerduty", "url": web.url(""), "routing_key": "0123456789abcdef0123456789abcdef"}),
        json!({"type": "opsgenie", "url": web.url(""), "api_key": "K1"}),
        json!({"type": "sms", "url": web.url(""), "account_sid": "AC1", "auth_token": "t", "from": "+15005550006", "to": ["+491701234567"]}),
    ]
}

/// The names and errors are as long as they can be, of characters that take up the most room.
#[tokio::test]
async fn the_largest_messages_are_accepted_by_each_service() {
    let server = server();
    let web = Web::answering(Answer::By(strict)).await;
    for channel in services(&web) {
        let name = channel["type"].as_str().unwrap().to_owned();
        assert_eq!(put(&server, &format!("/channels/{name}"), channel).await.0, StatusCode::CREATED);
    }
    let channels: Vec<Value> = services(&web).iter().map(|channel| channel["type"].clone()).collect();
    let mut jobs = vec![];
    for number in 0..30 {
        let name = format!("{number:02}{}", "<&ü\u{1F514}".repeat(22));
        jobs.push(json!({
            "name": name, "job_type": "no-such-handler", "expires_after": "1s",
            "execute_at": "2026-01-01T00:00:00Z", "notify": {"on_missed": channels},
        }));
    }
    let (status, stored) = server.post("/api/v1/jobs/batch", &json!({"jobs": jobs}).to_string()).await;
    assert!(status.is_success(), "{stored}");
    // One incident per job, one message with a list for all others.
    eventually("each service has all of them", async || {
        let (_, page) = server.get("/api/v1/notifications/deliveries?limit=100").await;
        let waiting = page["items"].as_array().unwrap();
        let refused = waiting.iter().find(|one| one["last_error"].is_string());
        assert!(refused.is_none(), "{refused:?}");
        let has = |channel: &Value| waiting.iter().any(|one| one["channel"] == *channel);
        waiting.len() > 60 && channels.iter().all(has) && waiting.iter().all(|one| one["state"] == "sent")
    })
    .await;
}

#[tokio::test]
async fn an_archived_slack_channel_disables_its_channel() {
    let server = server();
    let web = Web::answering(Answer::By(strict)).await;
    put(&server, "/channels/ops", json!({"type": "slack", "url": web.url("/slack/archived")})).await;
    server.submit(failing("nightly", json!({"on_failure": "ops"}))).await;
    eventually("the channel is disabled", async || {
        let (_, channel) = server.get("/api/v1/channels/ops").await;
        channel["disabled"].as_str().is_some_and(|reason| reason.contains("channel_is_archived"))
    })
    .await;
}

#[tokio::test]
async fn a_wrong_phone_number_costs_the_others_nothing() {
    let server = server();
    let web = Web::answering(Answer::By(strict)).await;
    let numbers = |to: &[&str]| {
        json!({
            "type": "sms", "url": web.url(""), "account_sid": "AC1", "auth_token": "t", "from": "+15005550006",
            "to": to,
        })
    };
    let (status, refused) = put(&server, "/channels/duty", numbers(&["+49170", "0170 1234567"])).await;
    assert_eq!(
        (status, &refused["errors"][0]["field"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("to[1]")),
        "{refused}"
    );
    let to = ["+491701234567", "+15005550009", "+491707654321"];
    assert_eq!(put(&server, "/channels/duty", numbers(&to)).await.0, StatusCode::CREATED);
    server.submit(failing("nightly", json!({"on_failure": "duty"}))).await;
    let asked_for = |number: &str| {
        let encoded = format!("To=%2B{}&", number.trim_start_matches('+'));
        let asked = web.asked();
        asked.iter().filter(|asked| String::from_utf8_lossy(&asked.body).starts_with(&encoded)).count()
    };
    eventually("the wrong number was tried again", async || asked_for(to[1]) >= 2).await;
    assert_eq!((asked_for(to[0]), asked_for(to[2])), (1, 1));
    let waiting = deliveries(&server).await;
    let of = |number: &str| waiting.iter().find(|one| one["to"] == number).unwrap().clone();
    assert_eq!((&of(to[0])["state"], &of(to[1])["state"]), (&json!("sent"), &json!("pending")));
    assert!(of(to[1])["last_error"].as_str().unwrap().contains("21211"), "{waiting:?}");
}

#[tokio::test]
async fn chats_and_text_messages_have_the_form_of_their_services() {
    let server = server();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let is_text = |value: &Value| assert!(value.as_str().unwrap().contains("this is a test"), "{value}");

    let slack = sent(&server, &web, json!({"type": "slack", "url": web.url("/T0/B0")})).await;
    assert_eq!(slack.line, "POST /T0/B0 HTTP/1.1");
    is_text(&body(&slack)["text"]);

    let discord = body(&sent(&server, &web, json!({"type": "discord", "url": web.url("/d")})).await);
    assert_eq!(discord["allowed_mentions"], json!({"parse": []}));
    is_text(&discord["content"]);

    let teams = body(&sent(&server, &web, json!({"type": "teams", "url": web.url("/t")})).await);
    let attachment = &teams["attachments"][0];
    assert_eq!(
        (&teams["type"], &attachment["contentType"], &attachment["content"]["type"]),
        (&json!("message"), &json!("application/vnd.microsoft.card.adaptive"), &json!("AdaptiveCard"))
    );
    is_text(&attachment["content"]["body"][1]["text"]);

    let sms = json!({
        "type": "sms", "url": web.url(""), "account_sid": "AC1", "auth_token": "hunter2", "from": "+15005550006",
        "to": ["+491701234567"],
    });
    let sms = sent(&server, &web, sms).await;
    assert_eq!(sms.line, "POST /2010-04-01/Accounts/AC1/Messages.json HTTP/1.1");
    assert_eq!(sms.header("content-type"), Some("application/x-www-form-urlencoded"));
    // The account and its token, in Base64.
    assert_eq!(sms.header("authorization"), Some("Basic QUMxOmh1bnRlcjI="));
    let form = String::from_utf8(sms.body).unwrap();
    assert!(form.starts_with("To=%2B491701234567&From=%2B15005550006&Body="), "{form}");
}

#[tokio::test]
async fn opsgenie_opens_an_alert_and_closes_it_by_its_alias() {
    let server = server();
    let web = Web::answering(Answer::status("202 Accepted", "{}")).await;
    let channel = json!({"type": "opsgenie", "url": web.url(""), "api_key": "K1"});
    assert_eq!(put(&server, "/channels/duty", channel).await.0, StatusCode::CREATED);
    let mut job = failing("poll", json!({"on_failure": "duty"}));
    job["interval"] = json!("1s");
    let id = server.submit(job).await;
    eventually("the alert is opened", async || web.asked().len() == 1).await;
    let opened = web.asked().remove(0);
    assert_eq!(opened.line, "POST /v2/alerts HTTP/1.1");
    assert_eq!(opened.header("authorization"), Some("GenieKey K1"));
    let alias = body(&opened)["alias"].as_str().unwrap().to_owned();
    let working = json!({"job_type": "noop", "payload": null});
    assert_eq!(server.patch(&format!("/api/v1/jobs/{id}"), &working).await.0, StatusCode::OK);
    eventually("the alert is closed", async || web.asked().len() == 2).await;
    let closed = web.asked().remove(1);
    let letters: String = alias.chars().filter(char::is_ascii_alphanumeric).collect();
    let path = closed.line.strip_prefix("POST /v2/alerts/").unwrap();
    let (path, rest) = path.split_once("/close?identifierType=alias").unwrap();
    assert_eq!(rest, " HTTP/1.1");
    // The rest of the alias is percent-encoded.
    let is_encoded = |text: &str| text.split('%').skip(1).map(|part| &part[2..]).collect::<String>();
    assert!(letters.ends_with(&is_encoded(path)) && path.contains('%'), "{path} is not {alias}");
}

#[tokio::test]
async fn a_command_of_the_configuration_gets_the_message() {
    let folder = tempfile::tempdir().unwrap();
    let (program, file) = (folder.path().join("page"), folder.path().join("message"));
    let script = format!(
        "#!/bin/sh\ncat > {0}.tmp\necho \"$1 $PUNCTUAL_MESSAGE_TYPE\" >> {0}.tmp\nmv {0}.tmp {0}\n",
        file.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let command = format!("pager={} --urgent", program.display());
    let server = Server::start_with(&[&OPTIONS[..], &["--notify-commands", &command]].concat());
    let (_, shown) = server.get("/api/v1/channels/pager").await;
    assert_eq!(shown["configured"], true, "{shown}");
    let job = server.submit(failing("nightly", json!({"on_failure": "pager"}))).await;
    eventually("the command has run", async || file.exists()).await;
    let written = std::fs::read_to_string(&file).unwrap();
    let (message, arguments) = written.trim_end().rsplit_once('}').unwrap();
    let message: Value = serde_json::from_str(&format!("{message}}}")).unwrap();
    assert_eq!((&message["type"], &message["data"]["job_id"]), (&json!("job.failed"), &json!(job)));
    assert_eq!(arguments, "--urgent job.failed");
}

#[tokio::test]
async fn webhooks_do_not_follow_redirects() {
    let server = server();
    let target = Web::answering(Answer::status("200 OK", "")).await;
    let location = format!("location: {}\r\n", target.url("/"));
    let web = Web::answering(Answer::with_headers("302 Found", &location, "")).await;
    put(&server, "/channels/it", json!({"type": "webhook", "url": web.url("/")})).await;
    let (_, tested) = server.post("/api/v1/channels/it/test", "{}").await;
    assert_eq!(tested["delivered"], false, "{tested}");
    assert!(tested["error"].as_str().unwrap().contains("302"), "{tested}");
    assert_eq!((web.asked().len(), target.connections()), (1, 0));
}

#[tokio::test]
async fn a_message_has_the_last_lines_of_the_log_and_the_text_of_its_template_if_the_channel_wants_them() {
    let server = Server::start_with(&[&OPTIONS[..], &["--allow", "shell"]].concat());
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let hook = json!({"type": "webhook", "url": web.url("/hook"), "include_logs": true});
    let chat = json!({
        "type": "slack", "url": web.url("/chat"), "include_logs": true,
        "template": "{{ event.name }} says {{ logs | last }} ({{ type }}, {{ count }})",
    });
    for (name, channel) in [("hook", hook), ("chat", chat)] {
        let (status, answer) = put(&server, &format!("/channels/{name}"), channel).await;
        assert!(status.is_success(), "{answer}");
    }
    let job = json!({
        "name": "nightly", "job_type": "shell", "payload": {"script": "echo begun; echo disk full; exit 3"},
        "max_retries": 0, "notify": {"on_failure": ["hook", "chat"]},
    });
    server.submit(job).await;
    eventually("both are notified", async || web.asked().len() == 2).await;
    let asked = |path: &str| web.asked().into_iter().find(|one| one.line.contains(path)).unwrap();
    let logs = body(&asked("/hook"))["data"]["logs"].clone();
    let lines: Vec<&str> = logs.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert!(lines.len() == 2 && lines[1].contains("disk full"), "{logs}");
    let text = body(&asked("/chat"))["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("nightly says ") && text.ends_with("disk full (job.failed, 1)"), "{text}");
}
