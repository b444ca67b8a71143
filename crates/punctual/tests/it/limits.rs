//! Requests that are too large, too deep, too long or too slow: rejected with the reason, and without memory
//! growth.

use crate::raw::{HERE, Raw, head};
use crate::server::{Server, answer};
use reqwest::{Method, StatusCode};
use serde_json::Value;

const MIB: usize = 1024 * 1024;

async fn send(server: &Server, method: Method, path: &str, body: Vec<u8>) -> (StatusCode, Value) {
    answer(server.request(method, path).header("content-type", "application/json").body(body)).await
}

fn said(body: &Value) -> String {
    format!("{} {}", body["title"], body["detail"])
}

/// A job whose payload is this many nested arrays.
fn nested(depth: usize) -> Vec<u8> {
    format!(r#"{{"name":"deep","job_type":"noop","payload":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))
        .into_bytes()
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_with_the_limit() {
    let server = Server::start();
    let (status, body) = send(&server, Method::POST, "/api/v1/jobs", vec![b' '; MIB + 1]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{body}");
    assert!(said(&body).contains("1048576"), "{body}");
    let (status, _) = send(&server, Method::POST, "/api/v1/jobs/batch", vec![b' '; 8 * MIB + 1]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    // A body without a length is detected while it arrives.
    let mut raw = Raw::open(&server.address, HERE).await;
    let chunked = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert!(raw.send((head(&server, "POST", "/api/v1/jobs") + chunked).as_bytes()).await);
    let chunk = [&b"10000\r\n"[..], &[b' '; 0x10000], b"\r\n"].concat();
    for _ in 0..17 {
        assert!(raw.send(&chunk).await);
    }
    // The rest is still read, so that the client gets the response.
    assert!(raw.send(b"0\r\n\r\n").await);
    assert_eq!(raw.status().await, Some(413));
}

#[tokio::test]
async fn json_that_is_nested_too_deeply_is_refused_wherever_it_is() {
    let server = Server::start();
    let (status, body) = send(&server, Method::POST, "/api/v1/jobs", nested(99)).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let job = body["job_id"].as_str().expect("an id").to_owned();
    let (status, shown) = server.get("/api/v1/jobs").await;
    assert_eq!((status, shown["items"][0]["job_id"].as_str()), (StatusCode::OK, Some(job.as_str())));
    for depth in [100, 1_000, 100_000] {
        for (method, path) in [
            (Method::POST, "/api/v1/jobs".to_owned()),
            (Method::PUT, format!("/api/v1/jobs/{job}")),
            (Method::PATCH, format!("/api/v1/jobs/{job}")),
            (Method::POST, "/api/v1/jobs/batch".to_owned()),
            (Method::POST, format!("/api/v1/jobs/{job}/trigger")),
            (Method::POST, "/api/v1/worker/poll".to_owned()),
        ] {
            let (status, body) = send(&server, method.clone(), &path, nested(depth)).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{method} {path} {depth}: {body}");
            assert!(said(&body).contains("at most 100 deep"), "{body}");
        }
    }
}

#[tokio::test]
async fn a_body_that_is_not_utf8_is_refused_wherever_it_is() {
    let server = Server::start();
    for body in
        [&b"{\"name\": \"caf\xe9\"}"[..], b"{\"name\": \"x\", \"payload\": \"\xff\xfe\"}", b"\xff\xfe{\0}\0"]
    {
        for path in ["/api/v1/jobs", "/api/v1/jobs/batch", "/api/v1/worker/logs"] {
            let (status, problem) = send(&server, Method::POST, path, body.to_vec()).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{problem}");
            assert!(said(&problem).contains("UTF-8"), "{problem}");
        }
    }
}

#[tokio::test]
async fn an_address_that_is_too_long_is_refused() {
    let server = Server::start();
    let (status, _) = server.get(&format!("/api/v1/jobs?name={}", "x".repeat(8_000))).await;
    assert_eq!(status, StatusCode::OK);
    let (status, body) = server.get(&format!("/api/v1/jobs?name={}", "x".repeat(8_192))).await;
    assert_eq!(status, StatusCode::URI_TOO_LONG);
    assert!(said(&body).contains("8192 bytes"), "{body}");
}

#[tokio::test]
async fn headers_that_are_too_many_or_too_long_are_refused() {
    let server = Server::start();
    let get = head(&server, "GET", "/api/v1/stats");
    let many: String = (0..200).map(|number| format!("x-{number}: y\r\n")).collect();
    for headers in [many, format!("x-long: {}\r\n", "y".repeat(40_000))] {
        let mut raw = Raw::open(&server.address, HERE).await;
        assert!(raw.send(format!("{get}{headers}\r\n").as_bytes()).await);
        assert_eq!(raw.status().await, Some(431));
    }
    // A head without an end is rejected at its limit, not when all of it has arrived.
    let mut raw = Raw::open(&server.address, HERE).await;
    assert!(raw.send(format!("{get}x-endless: {}", "y".repeat(40_000)).as_bytes()).await);
    assert_eq!(raw.status().await, Some(431));
}

/// The server's current and peak memory, in kilobytes.
fn memory(server: &Server) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("a line");
        line.split_whitespace().nth(1).expect("a number").parse().expect("kilobytes")
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// Rejected bodies leave nothing behind: a hundred times eight megabytes pass through, and the server's peak
/// memory is what it may hold at once.
#[tokio::test]
async fn refused_bodies_do_not_make_the_server_grow() {
    let server = Server::start();
    let (status, _) = send(&server, Method::POST, "/api/v1/jobs", nested(10)).await;
    assert_eq!(status, StatusCode::CREATED);
    let (before, _) = memory(&server);
    let deep = vec![b'['; 8 * MIB];
    for _ in 0..50 {
        let (status, _) = send(&server, Method::POST, "/api/v1/jobs/batch", deep.clone()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let (status, _) = send(&server, Method::POST, "/api/v1/jobs/batch", vec![0xff; 8 * MIB]).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }
    let (_, most) = memory(&server);
    let grown = most.saturating_sub(before);
    assert!(grown < 128 * 1024, "the server grew by {grown} kB while it refused 800 MB");
}
