//! The requests of each type of channel, as its service receives them.

use crate::http::web::{Answer, Asked, Web};
use crate::notifications::{OPTIONS, body, failing, put, server};
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
