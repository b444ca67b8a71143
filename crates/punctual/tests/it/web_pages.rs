//! Browsers: hosts that the server answers to, headers of all responses, and pages of other origins.

use crate::certificates::Certificates;
use crate::raw::{HERE, Raw};
use crate::server::{Server, answer};
use hyper::Request;
use reqwest::{Method, StatusCode};
use serde_json::Value;

/// The status of a request with these lines after its first one.
async fn status(server: &Server, path: &str, lines: &str) -> Option<u16> {
    let mut raw = Raw::open(&server.address, HERE).await;
    let authorization = format!("Authorization: Bearer {}", server.token);
    raw.send(format!("GET {path} HTTP/1.1\r\n{lines}{authorization}\r\n\r\n").as_bytes()).await;
    raw.status().await
}

#[tokio::test]
async fn a_request_for_an_unknown_host_is_refused() {
    let server = Server::start_with(&["--allowed-hosts", "jobs.example.org,*.apps.example.org"]);
    let stats = "/api/v1/stats";
    for host in [
        "localhost",
        "LOCALHOST:80",
        "127.0.0.1",
        "10.1.2.3:7070",
        "[::1]:7070",
        "jobs.example.org",
        "Jobs.Example.org.:443",
        "a.apps.example.org",
    ] {
        assert_eq!(status(&server, stats, &format!("Host: {host}\r\n")).await, Some(200), "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "example.org",
        "a.b.apps.example.org",
        "2130706433",
    ] {
        let line = format!("Host: {host}\r\n");
        assert_eq!(status(&server, stats, &line).await, Some(421), "{host}");
        assert_eq!(status(&server, "/docs", &line).await, Some(421), "{host}");
        assert_eq!(status(&server, "/livez", &line).await, Some(200), "{host}");
        assert_eq!(status(&server, "/readyz", &line).await, Some(200), "{host}");
        assert_eq!(status(&server, "/livez/", &line).await, Some(421), "only these paths are exempt");
    }
    for lines in [
        "",
        "Host: localhost\r\nHost: localhost\r\n",
        "Host: localhost\r\nHost: evil.example\r\n",
        "Host: \r\n",
        "Host: evil.example@localhost\r\n",
        "Host: localhost/evil.example\r\n",
    ] {
        assert_eq!(status(&server, stats, lines).await, Some(400), "{lines:?}");
    }
    let absolute = "http://evil.example/api/v1/stats";
    assert_eq!(status(&server, absolute, "Host: evil.example\r\n").await, Some(421));
    assert_eq!(status(&server, absolute, "Host: localhost\r\n").await, Some(400));

    let request = server.request(Method::GET, stats).header("host", "evil.example");
    let (status, problem) = answer(request).await;
    assert_eq!(status, StatusCode::MISDIRECTED_REQUEST);
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("\"evil.example\"") && detail.contains("allowed_hosts"), "{detail}");
}

#[tokio::test]
async fn the_names_of_the_certificate_are_allowed_in_both_protocols() {
    let certificates = Certificates::new();
    certificates.replace(&certificates.authority.issue(&["localhost", "jobs.example.org"]));
    let server = certificates.serve(&[]);
    let mut http2 = certificates.http2(&server).await;
    for (host, path, expected) in [
        ("localhost", "/api/v1/stats", 200),
        ("jobs.example.org:7070", "/api/v1/stats", 200),
        ("evil.example", "/api/v1/stats", 421),
        ("evil.example", "/readyz", 200),
    ] {
        let request = Request::get(format!("https://{host}{path}"))
            .header("authorization", format!("Bearer {}", server.token))
            .body(String::new())
            .unwrap();
        let response = http2.send_request(request).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{host}{path}");
        let strict = response.headers().get("strict-transport-security").map(|value| value.to_str().unwrap());
        // Browsers would apply it to every server on this machine.
        assert_eq!(strict, (host != "localhost").then_some("max-age=31536000"), "{host}");
    }
    let both = Request::get("https://localhost/api/v1/stats").header("host", "evil.example");
    let response = http2.send_request(both.body(String::new()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 400, "two hosts");
}

#[tokio::test]
async fn all_responses_carry_security_headers() {
    let server = Server::start();
    let long = format!("/{}", "x".repeat(10_000));
    for (method, path) in [
        (Method::GET, "/"),
        (Method::GET, "/livez"),
        (Method::GET, "/docs"),
        (Method::GET, "/openapi.json"),
        (Method::GET, "/metrics"),
        (Method::GET, "/api/v1/jobs"),
        (Method::GET, "/nowhere"),
        (Method::DELETE, "/api/v1/jobs"),
        (Method::POST, "/api/v1/jobs"),
        (Method::GET, long.as_str()),
    ] {
        for request in [server.request(method.clone(), path), server.anonymous(method.clone(), path)] {
            let response = request.send().await.unwrap();
            let header =
                |name: &str| response.headers().get(name).map_or("", |value| value.to_str().unwrap());
            assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
            assert_eq!(header("x-frame-options"), "DENY", "{path}");
            assert_eq!(header("referrer-policy"), "no-referrer", "{path}");
            let policy = header("content-security-policy");
            assert!(
                policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
                "{path}"
            );
            assert!(header("cache-control").starts_with("no-"), "{path}");
            assert_eq!(header("strict-transport-security"), "", "{path}: only over TLS");
            assert_eq!(header("access-control-allow-origin"), "", "{path}");
        }
    }
    let jobs = server.request(Method::GET, "/api/v1/jobs").send().await.unwrap();
    assert_eq!(jobs.headers()["cache-control"], "no-store");
}

#[tokio::test]
async fn only_named_origins_may_use_the_api_from_a_browser() {
    let origin = "https://intranet.example.org";
    let server = Server::start_with(&["--cors-origins", origin]);
    let preflight = |server: &Server, origin: &str| {
        server
            .anonymous(Method::OPTIONS, "/api/v1/jobs")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,content-type")
    };
    let allowed = preflight(&server, origin).send().await.unwrap();
    assert_eq!(allowed.status(), StatusCode::NO_CONTENT);
    let header = |name: &str| allowed.headers()[name].to_str().unwrap();
    assert_eq!(header("access-control-allow-origin"), origin);
    assert!(header("access-control-allow-methods").contains("POST"));
    assert!(header("access-control-allow-headers").contains("authorization"));
    assert!(allowed.headers().get("access-control-allow-credentials").is_none());
    // Refusals can be read as well.
    for (request, status) in [
        (server.request(Method::GET, "/api/v1/jobs"), 200),
        (server.anonymous(Method::GET, "/api/v1/jobs"), 401),
        (server.request(Method::PUT, "/api/v1/jobs"), 405),
        (server.request(Method::GET, "/api/v1/jobs").header("host", "other.example"), 421),
    ] {
        let response = request.header("origin", origin).send().await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["access-control-allow-origin"], origin);
        assert_eq!(response.headers()["vary"], "origin");
        assert!(response.headers().contains_key("access-control-expose-headers"));
    }
    let quiet = Server::start();
    for (server, origin) in [
        (&server, "https://evil.example"),
        (&server, "https://intranet.example.org.evil.example"),
        (&server, "http://intranet.example.org"),
        (&server, "null"),
        (&quiet, origin),
    ] {
        let refused = preflight(server, origin).send().await.unwrap();
        assert_ne!(refused.status(), StatusCode::NO_CONTENT, "{origin}");
        assert!(refused.headers().get("access-control-allow-origin").is_none(), "{origin}");
        let read = server.request(Method::GET, "/api/v1/jobs").header("origin", origin).send().await.unwrap();
        assert_eq!(read.status(), StatusCode::OK);
        assert!(read.headers().get("access-control-allow-origin").is_none(), "{origin}");
    }
    let text = quiet.anonymous(Method::GET, "/livez").send().await.unwrap().text().await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["status"], "live");
}
