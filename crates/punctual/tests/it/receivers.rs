//! Notifications to receivers that others have written: the mail server aiosmtpd, and the verifier of Standard Webhooks.

use crate::certificates::Certificates;
use crate::notifications::{failing, put, webhook};
use crate::server::{Server, eventually, http_client};
use serde_json::{Value, json};

fn receivers() -> String {
    std::env::var("PUNCTUAL_TEST_RECEIVERS").expect(
        "PUNCTUAL_TEST_RECEIVERS: use `cargo xtask services run receivers -- cargo nextest run`, or `cargo xtask test`",
    )
}

/// Everything that has arrived.
async fn received(url: &str) -> Value {
    http_client().get(format!("{url}/received")).send().await.unwrap().json().await.unwrap()
}

/// The port of a new mail server that demands TLS and a login.
async fn mail_server(url: &str, certificates: &Certificates, mode: &str) -> Value {
    let order = json!({
        "cert": certificates.text("server.pem"), "key": certificates.text("server.key"), "mode": mode,
        "user": "punctual", "password": "hunter2",
    });
    let started = http_client().post(format!("{url}/smtp")).json(&order).send().await.unwrap();
    started.json::<Value>().await.unwrap()["port"].clone()
}

#[tokio::test]
async fn the_signatures_of_webhooks_are_those_of_standard_webhooks() {
    let url = receivers();
    let server = Server::start_with(&["--notify-allow", "127.0.0.1/32", "--notify-window", "1s"]);
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    webhook(&server, "ops", &format!("{url}/hook/{secret}")).await;
    let job = server.submit(failing("signed", json!({"on_failure": "ops"}))).await;
    let mut found = Value::Null;
    eventually("the webhook is verified", async || {
        let hooks = received(&url).await["hooks"].as_array().unwrap().clone();
        let own = hooks.into_iter().find(|hook| hook["payload"]["data"]["job_id"] == json!(job));
        found = own.unwrap_or_default();
        !found.is_null()
    })
    .await;
    assert_eq!(
        (&found["verified"], &found["payload"]["type"]),
        (&json!(true), &json!("job.failed")),
        "{found}"
    );
    // The verifier refuses a message with another key, and that is a failed delivery.
    let other = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    let channel = json!({"type": "webhook", "url": format!("{url}/hook/{other}"), "secret": secret});
    put(&server, "/channels/wrong", channel).await;
    let (_, tested) = server.post("/api/v1/channels/wrong/test", "{}").await;
    assert_eq!(tested["delivered"], false, "{tested}");
}

#[tokio::test]
async fn mails_are_sent_with_tls_and_a_login() {
    let url = receivers();
    let certificates = Certificates::new();
    let ca = certificates.text("ca.pem");
    let server = Server::start_with(&["--notify-allow", "127.0.0.1/32", "--notify-ca-file", &ca]);
    for mode in ["tls", "starttls"] {
        let port = mail_server(&url, &certificates, mode).await;
        let to = format!("{mode}-{port}@example.org");
        let mut mail = json!({
            "type": "email", "host": "localhost", "port": port, "tls": mode, "username": "punctual",
            "password": "hunter2", "from": "punctual@example.org", "to": [to],
        });
        put(&server, "/channels/mail", mail.clone()).await;
        let (_, tested) = server.post("/api/v1/channels/mail/test", "{}").await;
        assert_eq!(tested["delivered"], true, "{mode}: {tested}");
        let mails = received(&url).await["mails"].as_array().unwrap().clone();
        let own = mails.iter().find(|one| one["to"] == json!([to])).expect("the mail");
        assert_eq!((&own["user"], &own["encrypted"]), (&json!("punctual"), &json!(true)), "{own}");
        assert!(own["text"].as_str().unwrap().contains("A test of the channel mail"), "{own}");
        mail["password"] = json!("wrong");
        put(&server, "/channels/mail", mail).await;
        let (_, refused) = server.post("/api/v1/channels/mail/test", "{}").await;
        assert_eq!(refused["delivered"], false, "{mode}: {refused}");
    }
    // A certificate of an unknown authority is not accepted.
    let stranger = Server::start_with(&["--notify-allow", "127.0.0.1/32"]);
    let port = mail_server(&url, &certificates, "tls").await;
    let mail = json!({
        "type": "email", "host": "localhost", "port": port, "tls": "tls", "from": "punctual@example.org",
        "to": ["ops@example.org"],
    });
    put(&stranger, "/channels/mail", mail).await;
    let (_, refused) = stranger.post("/api/v1/channels/mail/test", "{}").await;
    assert_eq!(refused["delivered"], false, "{refused}");
}
