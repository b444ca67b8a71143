//! Where messages may go: private addresses are for the operator, and secrets stay in the store.

use crate::cluster::Cluster;
use crate::http::web::{Answer, Web};
use crate::notifications::{OPTIONS, body, mail_server, put, webhook};
use crate::server::{Server, answer, eventually};
use reqwest::{Method, StatusCode};
use serde_json::json;

#[tokio::test]
async fn channels_of_the_configuration_file_send_and_cannot_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    std::fs::write(folder.path().join("slack-url"), format!("{}\n", web.url("/chat"))).unwrap();
    let file = folder.path().join("punctual.toml");
    let (mail_host, said) = mail_server().await;
    // The operator has named the targets, so they may be on this machine.
    let text = format!(
        "[[notify.channels]]\nname = \"chat\"\ntype = \"slack\"\nurl_file = \"slack-url\"\n\
         [[notify.channels]]\nname = \"mail\"\ntype = \"email\"\nhost = \"127.0.0.1\"\nport = {}\ntls = \"none\"\n\
         from = \"punctual@example.org\"\nto = [\"ops@example.org\"]\n",
        mail_host.port()
    );
    std::fs::write(&file, text).unwrap();
    let server = Server::start_with(&["--config", file.to_str().unwrap()]);
    let (_, shown) = server.get("/api/v1/channels/chat").await;
    assert_eq!((shown["configured"].as_bool(), &shown["hidden"]), (Some(true), &json!(["url"])), "{shown}");
    let (_, tested) = server.post("/api/v1/channels/chat/test", "{}").await;
    assert_eq!((tested["delivered"].as_bool(), web.asked().len()), (Some(true), 1), "{tested}");
    let (_, tested) = server.post("/api/v1/channels/mail/test", "{}").await;
    assert_eq!(tested["delivered"], true, "{tested}");
    assert!(said.lock().unwrap().iter().any(|line| line == "RCPT TO:<ops@example.org>"));
    // A channel of a user does not get this trust.
    webhook(&server, "ops", &web.url("/")).await;
    let (_, tested) = server.post("/api/v1/channels/ops/test", "{}").await;
    assert_eq!((tested["delivered"].as_bool(), web.asked().len()), (Some(false), 1), "{tested}");
    let (status, _) =
        put(&server, "/channels/chat", json!({"type": "slack", "url": "https://x.example/"})).await;
    assert_eq!(status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn private_addresses_are_refused_unless_the_operator_allows_them() {
    let server = Server::start();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    webhook(&server, "ops", &web.url("/")).await;
    let (status, tested) = server.post("/api/v1/channels/ops/test", "{}").await;
    assert_eq!((status, tested["delivered"].as_bool()), (StatusCode::OK, Some(false)));
    assert!(tested["error"].as_str().unwrap().contains("127.0.0.1 is a loopback address"), "{tested}");
    // A name is as good as its addresses.
    let port = web.port();
    webhook(&server, "named", &format!("http://localhost:{port}/")).await;
    let mail = json!({
        "type": "email", "host": "localhost", "port": port, "tls": "none", "from": "a@example.org",
        "to": ["b@example.org"],
    });
    assert_eq!(put(&server, "/channels/mail", mail).await.0, StatusCode::CREATED);
    for name in ["named", "mail"] {
        let (_, tested) = server.post(&format!("/api/v1/channels/{name}/test"), "{}").await;
        let error = tested["error"].as_str().unwrap_or_default();
        assert!(error.contains("is a loopback address") && error.contains("notify.allow"), "{tested}");
    }
    assert_eq!(web.connections(), 0);
}

#[tokio::test]
async fn a_channel_sends_with_the_value_of_a_secret() {
    let server = crate::notifications::server();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let url = json!({"value": web.url("/hidden-path")});
    let (status, answered) =
        answer(server.request(Method::PUT, "/api/v1/secrets/slack-url").json(&url)).await;
    assert!(status.is_success(), "{answered}");
    let channel = json!({"type": "slack", "url": {"$secret": "slack-url"}});
    assert_eq!(put(&server, "/channels/chat", channel).await.0, StatusCode::CREATED);
    let (_, tested) = server.post("/api/v1/channels/chat/test", "{}").await;
    assert_eq!(tested["delivered"], true, "{tested}");
    assert_eq!(web.asked()[0].line, "POST /hidden-path HTTP/1.1");
}

/// An address is permitted by its network, and a host by its name.
#[tokio::test]
async fn a_host_that_the_operator_allows_may_be_private() {
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let host = format!("localhost:{}", web.port());
    let server = Server::start_with(&["--notify-allow", &host]);
    for (name, url, is_allowed) in
        [("named", format!("http://{host}/"), true), ("numbered", web.url("/"), false)]
    {
        webhook(&server, name, &url).await;
        let (_, tested) = server.post(&format!("/api/v1/channels/{name}/test"), "{}").await;
        assert_eq!(tested["delivered"], is_allowed, "{tested}");
    }
}

/// Schedulers send the messages, and have no address for browsers of their own.
#[tokio::test]
async fn links_of_schedulers_lead_to_the_public_url() {
    Cluster::with(async |cluster| {
        let api = cluster.api();
        let options =
            ["scheduler", "--health-listen", "127.0.0.1:0", "--public-url", "https://jobs.example.org"];
        let _scheduler = cluster.start(&[&options[..], &OPTIONS].concat());
        let _worker = cluster.worker("one");
        let web = Web::answering(Answer::status("200 OK", "")).await;
        // Without a secret: there is no key that would encrypt it.
        let channel = json!({"name": "ops", "type": "webhook", "url": web.url("/")});
        let (status, answered) = api.request(cluster, Method::POST, "/api/v1/channels", Some(channel)).await;
        assert_eq!(status, StatusCode::CREATED, "{answered}");
        let job = json!({
            "name": "import", "job_type": "shell", "payload": {"script": "exit 3"}, "max_retries": 0,
            "notify": {"on_failure": "ops"},
        });
        let job = api.submit(cluster, job).await;
        eventually("it is notified", async || !web.asked().is_empty()).await;
        // A worker that stalls loses the first attempt.
        let link = format!("https://jobs.example.org/ui/executions/{job}.1.");
        let url = body(&web.asked()[0])["data"]["url"].clone();
        assert!(url.as_str().is_some_and(|url| url.starts_with(&link)), "{url}");
    })
    .await;
}
