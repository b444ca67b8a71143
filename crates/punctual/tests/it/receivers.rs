//! Messages to receivers that others have written: the mail server aiosmtpd, the verifier of Standard Webhooks, and the
//! messages of OTLP.

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

#[tokio::test]
async fn spans_are_read_by_the_messages_of_opentelemetry() {
    let url = receivers();
    let server = Server::start_with(&["--tracing-endpoint", &url, "--tracing-service", "it"]);
    let job = json!({"name": "noop", "max_retries": 0}).to_string();
    let request =
        server.request(reqwest::Method::POST, "/api/v1/jobs").header("content-type", "application/json");
    let request = request.header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let body: Value =
        request.header("tracestate", "a=1").body(job).send().await.unwrap().json().await.unwrap();
    let mut spans = vec![];
    eventually("all spans of the job arrive", async || {
        let own = |span: &Value| span["attributes"].to_string().contains(body["job_id"].as_str().unwrap());
        spans = received(&url).await["traces"].as_array().unwrap().clone();
        spans.retain(own);
        spans.len() == 4
    })
    .await;
    // The library writes bytes in Base64.
    let trace = json!("CvdlGRbNQ92ESOshHIAxnA==");
    assert!(spans.iter().all(|span| span["traceId"] == trace && span["exact"] == true), "{spans:#?}");
    let submit = spans.iter().find(|span| span["name"] == "submit default").unwrap();
    let attempt = spans.iter().find(|span| span["name"] == "attempt default").unwrap();
    assert_eq!(
        (&submit["parentSpanId"], &submit["kind"]),
        (&json!("t61rcWkgMzE="), &json!("SPAN_KIND_PRODUCER"))
    );
    assert_eq!(
        (&attempt["parentSpanId"], &attempt["kind"]),
        (&submit["spanId"], &json!("SPAN_KIND_CONSUMER"))
    );
    assert_eq!((&attempt["traceState"], &attempt["flags"]), (&json!("a=1"), &json!(1)));
    let number = json!({"key": "punctual.attempt", "value": {"intValue": "1"}});
    assert!(attempt["attributes"].as_array().unwrap().contains(&number), "{attempt:#}");
}
