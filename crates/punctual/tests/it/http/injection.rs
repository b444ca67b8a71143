//! Texts of users that try to add a header or a request to calls and messages: they are refused, or stay inside the
//! value that they belong to.

use super::web::{Answer, Asked, Web};
use super::{allowed, failure, result, run};
use crate::notifications::{self, deliveries, put};
use crate::raw::{HERE, Raw};
use crate::server::{Server, answer, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// Ends of lines and of texts, as receivers may read them, and then a header.
const ENDS: [&str; 5] =
    ["\r\nX-Injected: 1", "\nX-Injected: 1", "\rX-Injected: 1", "\0X-Injected: 1", "\r\n\r\nGET / HTTP/1.1"];

/// The field of a job that is refused.
async fn refused_field(server: &Server, payload: &Value) -> String {
    let job = json!({"name": "call", "job_type": "http", "payload": payload}).to_string();
    let (status, body) = server.post("/api/v1/jobs", &job).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{payload}: {body}");
    body["errors"][0]["field"].as_str().expect("a field").to_owned()
}

fn is_whole(asked: &Asked) -> bool {
    asked.header("x-injected").is_none() && asked.line.ends_with(" HTTP/1.1") && asked.body.is_empty()
}

#[tokio::test]
async fn a_job_adds_no_line_to_the_head_of_its_call() {
    let server = allowed();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let url = web.url("/");
    for end in ENDS {
        let name = format!("X-A{end}");
        let field = refused_field(&server, &json!({"url": url, "headers": {&name: "b"}})).await;
        assert_eq!(field, format!("payload.headers.{name}"));
        let value = json!({"url": url, "headers": {"X-A": format!("b{end}")}});
        assert_eq!(refused_field(&server, &value).await, "payload.headers.X-A");
        let key = json!({"url": url, "headers": {"Idempotency-Key": format!("b{end}")}});
        assert_eq!(refused_field(&server, &key).await, "payload.headers.Idempotency-Key");
        let method = json!({"url": url, "method": format!("GET{end}")});
        assert_eq!(refused_field(&server, &method).await, "payload.method");
        let host = json!({"url": format!("http://a\0{end}/")});
        assert_eq!(refused_field(&server, &host).await, "payload.url");
    }
    assert!(web.asked().is_empty());
    // A URL has no line breaks: they are removed, and a NUL is escaped.
    for end in ENDS {
        let attempts = run(&server, json!({"url": format!("{url}{end}?a=b{end}")})).await;
        result(&attempts[0]);
    }
    assert_eq!(web.asked().len(), ENDS.len());
    assert!(web.asked().iter().all(is_whole), "{:?}", web.asked());
}

/// They frame the message or select its receiver, or vouch for the sender.
#[tokio::test]
async fn headers_that_http_itself_needs_are_refused_by_name() {
    let server = allowed();
    for name in [
        "Host",
        "hOST",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Upgrade",
        "TE",
        "Trailer",
        "Expect",
        "Keep-Alive",
        "Proxy-Connection",
        "Punctual-Job-Id",
        "punctual-signature",
    ] {
        let field = refused_field(&server, &json!({"url": "http://a/", "headers": {name: "1"}})).await;
        assert_eq!(field, format!("payload.headers.{name}"));
    }
}

#[tokio::test]
async fn a_secret_adds_no_line_either() {
    let server = allowed();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let reference = json!({"$secret": "evil"});
    for end in ENDS {
        let secret = json!({"value": format!("hunter2{end}"), "owners": ["*"]});
        let set = answer(server.request(Method::PUT, "/api/v1/secrets/evil").json(&secret)).await;
        assert!(set.0.is_success(), "{}", set.1);
        for payload in [
            json!({"url": web.url("/"), "headers": {"X-Api-Key": reference}}),
            json!({"url": web.url("/"), "method": reference}),
        ] {
            let (error, attempts) = failure(&run(&server, payload).await);
            assert_eq!(attempts, 1, "{error}");
            assert!(!error.contains("hunter2") && !error.contains("Injected"), "{error}");
        }
    }
    assert!(web.asked().is_empty(), "{:?}", web.asked());
}

#[tokio::test]
async fn the_headers_of_a_submit_do_not_reach_the_call_unless_they_are_valid() {
    let server = allowed();
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let body = json!({"name": "call", "job_type": "http", "payload": {"url": web.url("/")}}).to_string();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut accepted = 0;
    for (state, is_accepted) in [
        ("a=b\0X-Injected: 1", false),
        ("a=b\rX-Injected: 1", false),
        ("a=b\u{1}", false),
        // A line that is folded, as old servers read it.
        ("a=b\r\n X-Injected: 1", false),
        ("a=\u{e9}", true),
        ("a=b=c", true),
    ] {
        let mut raw = Raw::open(&server.address, HERE).await;
        let head = format!(
            "POST /api/v1/jobs HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nTraceparent: {parent}\r\n\
             Tracestate: {state}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            server.address,
            server.token,
            body.len()
        );
        raw.send(head.as_bytes()).await;
        raw.send(body.as_bytes()).await;
        let status = raw.status().await;
        assert_eq!(status, Some(if is_accepted { 201 } else { 400 }), "{state:?}");
        accepted += usize::from(is_accepted);
    }
    for end in ENDS {
        let key = json!({"name": "call", "job_type": "http", "idempotency_key": format!("k{end}"),
            "payload": {"url": web.url("/")}});
        let (status, problem) = server.post("/api/v1/jobs", &key.to_string()).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        assert_eq!(problem["errors"][0]["field"], "idempotency_key", "{problem}");
    }
    eventually("the accepted jobs have called", async || web.asked().len() == accepted).await;
    for asked in web.asked() {
        assert!(is_whole(&asked) && asked.header("tracestate").is_none(), "{asked:?}");
        assert!(asked.header("traceparent").is_some_and(|parent| parent.starts_with("00-0af7")), "{asked:?}");
    }
}

#[tokio::test]
async fn a_channel_adds_no_line_to_the_head_of_its_messages() {
    let server = notifications::server();
    let web = Web::answering(Answer::status("200 OK", "{}")).await;
    let mut channels = vec![];
    for (number, end) in ENDS.into_iter().enumerate() {
        for (kind, channel) in [
            ("key", json!({"type": "opsgenie", "url": web.url("/opsgenie"), "api_key": format!("k{end}")})),
            ("url", json!({"type": "webhook", "url": format!("{}{end}", web.url("/hook"))})),
        ] {
            let name = format!("{kind}{number}");
            let (status, body) = put(&server, &format!("/channels/{name}"), channel).await;
            match status {
                StatusCode::CREATED => channels.push(name),
                _ => assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}"),
            }
        }
    }
    for name in &channels {
        server.submit(notifications::failing("fails", json!({"on_failure": name}))).await;
    }
    eventually("every message was sent or has failed", async || {
        let all = deliveries(&server).await;
        all.len() == channels.len() && all.iter().all(|one| one["state"] == "sent" || one["attempts"] != 0)
    })
    .await;
    for asked in web.asked() {
        assert!(asked.header("x-injected").is_none(), "{asked:?}");
        assert!(asked.line.starts_with("POST ") && asked.line.ends_with(" HTTP/1.1"), "{asked:?}");
    }
}
