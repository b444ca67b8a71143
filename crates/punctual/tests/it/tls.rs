//! Servers with TLS: protocols, certificates that change or cannot be used, slow clients, and addresses that
//! need it.

use crate::certificates::{Authority, Certificates, HERE, certificate_in};
use crate::server::{BINARY, PATIENCE, Server, eventually, http_client};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Request, Response, StatusCode, Version};
use punctual_client::{Distrust, SubmitJob};
use punctual_core::job::JobStatus;
use serde_json::Value;
use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

fn get(server: &Server, path: &str) -> Request<String> {
    Request::get(format!("https://{}{path}", server.address))
        .header("authorization", format!("Bearer {}", server.token))
        .body(String::new())
        .unwrap()
}

async fn json(response: Response<hyper::body::Incoming>) -> Value {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn requests_travel_over_tls_in_both_protocols_and_versions() {
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let client = certificates.client(&server, None);
    let job = client.submit(&SubmitJob::named("noop")).await.unwrap().job_id;
    assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Completed);

    let mut http2 = certificates.http2(&server).await;
    let response = http2.send_request(get(&server, &format!("/api/v1/jobs/{job}"))).await.unwrap();
    assert_eq!((response.version(), response.status()), (Version::HTTP_2, StatusCode::OK));
    assert_eq!(json(response).await["job_id"], job.to_string());

    for (protocols, version) in [
        (&["http/1.1"][..], &rustls::version::TLS13),
        (&["http/1.1", "h2"], &rustls::version::TLS12),
        (&[], &rustls::version::TLS12),
    ] {
        let mut stream = certificates.connect_with(&server, protocols, &[version]).await.unwrap();
        let chosen = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        if protocols.len() == 2 {
            assert_eq!(chosen.as_deref(), Some(&b"h2"[..]), "HTTP/2 is preferred");
            continue;
        }
        assert_eq!(chosen.is_some(), !protocols.is_empty());
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    }
    stop(server).await;
}

/// Otherwise HTTP/2 resets the request, and some clients lose the response.
#[tokio::test]
async fn a_response_that_needs_no_body_waits_for_a_small_one() {
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let mut http2 = certificates.http2_with_window::<UnsyncBoxBody<Bytes, Infallible>>(&server, 65_535).await;
    let request = |body| Request::post(format!("https://{}/api/v1/jobs", server.address)).body(body).unwrap();
    let (send, sent) = tokio::sync::oneshot::channel::<()>();
    let late = futures_util::stream::once(async {
        let _ = sent.await;
        Ok(Frame::data(Bytes::from("{}")))
    });
    let without_token = tokio::spawn(http2.send_request(request(StreamBody::new(late).boxed_unsync())));
    let other = http2.send_request(request(Empty::new().boxed_unsync())).await.unwrap();
    assert_eq!(other.status(), StatusCode::UNAUTHORIZED);
    assert!(!without_token.is_finished());
    send.send(()).unwrap();
    let response = without_token.await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(json(response).await["status"], 401);
}

/// The client's connections must be able to end meanwhile.
async fn stop(server: Server) {
    assert!(tokio::task::spawn_blocking(|| server.stop()).await.unwrap().success());
}

#[tokio::test]
async fn one_http2_connection_carries_many_streams() {
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let mut http2 = certificates.http2(&server).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let stream = http2.send_request(get(&server, "/api/v1/events")).await.unwrap();
        assert_eq!(stream.status(), StatusCode::OK);
        streams.push(stream);
    }
    let stats = http2.send_request(get(&server, "/api/v1/stats")).await.unwrap();
    assert_eq!(stats.status(), StatusCode::OK);
    // A server that stops ends streams and connections.
    stop(server).await;
    for stream in streams {
        let _ = timeout(PATIENCE, stream.into_body().collect()).await.expect("the stream ends");
    }
}

#[tokio::test]
async fn plain_http_is_told_to_use_tls() {
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let answer = http_client().get(format!("http://{}/livez", server.address)).send().await.unwrap();
    assert_eq!(answer.status(), 400);
    let problem: Value = answer.json().await.unwrap();
    assert_eq!(problem["title"], "this server uses TLS: use an address that begins with https://");
}

#[tokio::test]
async fn a_client_trusts_only_the_authority_that_it_knows() {
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let other = Certificates::new();
    let refused = other.client(&server, None).version().await.unwrap_err();
    assert_eq!(refused.distrust(), Some(Distrust::OfServer), "{refused:?}");

    certificates.replace(&certificates.authority.issue(&["elsewhere.example"]));
    let elsewhere = certificates.serve(&[]);
    let refused = certificates.client(&elsewhere, None).version().await.unwrap_err();
    assert_eq!(refused.distrust(), Some(Distrust::OfServer), "{refused:?}");

    let plain = Server::start();
    let refused = certificates.client(&plain, None).version().await.unwrap_err();
    assert_eq!(refused.distrust(), Some(Distrust::NoTls), "{refused:?}");
}

#[tokio::test]
async fn a_changed_certificate_is_used_without_a_restart() {
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    // A connection keeps the certificate that it began with.
    let mut kept = certificates.http2(&server).await;
    let first = certificate_in(&certificates.path("server.pem"));
    assert_eq!(certificates.presented(&server).await, Some(first.clone()));
    certificates.replace(&certificates.authority.issue(&HERE));
    let second = certificate_in(&certificates.path("server.pem"));
    assert_ne!(first, second);
    eventually("the new certificate is used", async || {
        certificates.presented(&server).await.as_ref() == Some(&second)
    })
    .await;
    assert_eq!(kept.send_request(get(&server, "/api/v1/stats")).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_changes_nothing_and_is_reported() {
    let certificates = Certificates::new();
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("log");
    let script = format!(
        "export PUNCTUAL_TLS_CERT='{}' PUNCTUAL_TLS_KEY='{}'; exec \"$0\" \"$@\" 2>'{}'",
        certificates.text("server.pem"),
        certificates.text("server.key"),
        log.display()
    );
    let server = Server::start_through(&["sh", "-c", &script, BINARY], &data.path().join("data"));
    let first = certificates.presented(&server).await;
    let said = || std::fs::read_to_string(&log).unwrap();
    certificates.write("server.pem", "no certificate");
    eventually("it is reported", async || said().contains("contains no certificate")).await;
    assert!(said().contains("the server keeps the previous one"), "{}", said());
    certificates.write("server.pem", &Authority::new("another").issue(&HERE).certificate);
    eventually("it is reported", async || said().contains("is not the key of the first certificate")).await;
    assert_eq!(certificates.presented(&server).await, first);
    let metrics = certificates.client(&server, None).metrics().await.unwrap();
    assert!(metrics.contains("\npunctual_http_tls_reload_errors_total 2\n"), "{metrics}");
    certificates.replace(&certificates.authority.issue(&HERE));
    let last = Some(certificate_in(&certificates.path("server.pem")));
    eventually("the right one is used", async || certificates.presented(&server).await == last).await;
}

#[test]
fn files_that_cannot_be_used_are_told_at_the_start() {
    let certificates = Certificates::new();
    let other = Authority::new("another").issue(&HERE);
    certificates.give("other", &other);
    certificates.write("empty.pem", "");
    certificates.write(
        "locked.key",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    let [cert, key] = ["server.pem", "server.key"].map(|name| certificates.text(name));
    let [empty, locked, alien] = ["empty.pem", "locked.key", "other.key"].map(|name| certificates.text(name));
    for (options, code, told) in [
        (vec!["--tls-cert", &cert], 2, "--tls-cert needs tls_key as well"),
        (vec!["--tls-key", &key], 2, "--tls-key needs tls_cert as well"),
        (vec!["--tls-client-ca", &cert], 2, "--tls-client-ca needs tls_cert and tls_key as well"),
        (vec!["--tls-client-auth", "workers"], 2, "--tls-client-auth needs tls_client_ca as well"),
        (
            vec!["--tls-cert", "/nonexistent", "--tls-key", &key],
            7,
            "--tls-cert /nonexistent: cannot be read: No such file",
        ),
        (vec!["--tls-cert", &empty, "--tls-key", &key], 7, "contains no certificate: it must be PEM"),
        (vec!["--tls-cert", "/dev/null", "--tls-key", &key], 7, "/dev/null: is not a regular file"),
        (
            vec!["--tls-cert", &cert, "--tls-key", &locked],
            7,
            "contains no private key as PEM without a passphrase",
        ),
        (vec!["--tls-cert", &cert, "--tls-key", &alien], 7, "is not the key of the first certificate in"),
        (
            vec!["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &empty],
            7,
            "empty.pem: contains no certificate",
        ),
    ] {
        let data = tempfile::tempdir().unwrap();
        let output = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data.path())
            .args(&options)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {said}");
        assert!(said.contains(told), "{options:?}: {said}");
        assert!(!data.path().join("punctual.db").exists(), "nothing was started");
    }
}

#[test]
fn a_key_that_others_can_read_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let certificates = Certificates::new();
    let key = certificates.path("server.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    // The key is read before the data directory, which cannot be used.
    let output = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir", "/dev/null/data"])
        .args(certificates.server_options())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("other users can read the secret in") && said.contains("server.key (mode 0644)"),
        "{said}"
    );
}

/// Starts a server, and returns its first line or its exit code and error.
fn first_words(role: &str, options: &[&str]) -> Result<String, (Option<i32>, String)> {
    let data = tempfile::tempdir().unwrap();
    let mut child = Command::new(BINARY)
        .args([role, "--log-level", "error", "--data-dir"])
        .arg(data.path())
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let output = child.wait_with_output().unwrap();
        assert!(!data.path().join("punctual.db").exists(), "nothing was created");
        return Err((output.status.code(), String::from_utf8(output.stderr).unwrap()));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    Ok(line)
}

#[test]
fn an_address_that_other_machines_can_reach_needs_tls_or_consent() {
    for address in ["0.0.0.0:0", "[::]:0", "0:0"] {
        let (code, said) = first_words("serve", &["--listen", address]).unwrap_err();
        assert_eq!(code, Some(2), "{said}");
        let told =
            format!("error: other machines can reach {address}, and connections would not be encrypted");
        assert!(said.starts_with(&told), "{said}");
        assert!(
            said.contains("--tls-cert FILE --tls-key FILE") && said.contains("--insecure-http"),
            "{said}"
        );
    }
    let consents = first_words("serve", &["--listen", "0.0.0.0:0", "--insecure-http"]).unwrap();
    assert!(consents.contains(" http://0.0.0.0:"), "{consents}");
    let certificates = Certificates::new();
    let options = certificates.server_options();
    let options: Vec<&str> = options.iter().map(String::as_str).chain(["--listen", "0.0.0.0:0"]).collect();
    let secure = first_words("serve", &options).unwrap();
    assert!(secure.contains(" https://0.0.0.0:"), "{secure}");
    // Roles that only report their health follow the same rule; the store is not asked first.
    for role in ["scheduler", "worker"] {
        let options = ["--store", "postgres://127.0.0.1:1/none", "--health-listen", "0.0.0.0:0"];
        let (code, said) = first_words(role, &options).unwrap_err();
        assert!(code == Some(2) && said.contains("other machines can reach 0.0.0.0:0"), "{role}: {said}");
    }
    let (code, said) = first_words("serve", &["--insecure-http=perhaps"]).unwrap_err();
    assert!(code == Some(2) && said.contains("--insecure-http: must be true or false"), "{said}");
}

/// Reads until the server closes.
async fn is_closed(mut stream: impl tokio::io::AsyncRead + Unpin) -> bool {
    let mut rest = Vec::new();
    // A reset is an end as well.
    timeout(PATIENCE, async {
        let _ = stream.read_to_end(&mut rest).await;
    })
    .await
    .is_ok()
}

#[tokio::test]
async fn slow_handshakes_and_idle_connections_are_closed() {
    let certificates = Certificates::new();
    let server = certificates.serve(&["--header-timeout", "1s"]);
    let silent = TcpStream::connect(&server.address).await.unwrap();
    let mut partial = TcpStream::connect(&server.address).await.unwrap();
    // The beginning of a handshake record that never ends.
    partial.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00]).await.unwrap();
    let idle = certificates.connect(&server, &["http/1.1"]).await.unwrap();
    let idle_http2 = certificates.connect(&server, &["h2"]).await.unwrap();
    assert!(is_closed(silent).await && is_closed(partial).await, "handshakes");
    assert!(is_closed(idle).await && is_closed(idle_http2).await, "idle connections");
    // A client that works on is not idle.
    let mut http2 = certificates.http2(&server).await;
    let stream = http2.send_request(get(&server, "/api/v1/events")).await.unwrap();
    let slow = http2.send_request(get(&server, "/api/v1/stats")).await.unwrap();
    assert_eq!((stream.status(), slow.status()), (StatusCode::OK, StatusCode::OK));
}

#[tokio::test]
async fn a_response_that_is_not_read_is_cut_and_others_of_the_connection_continue() {
    let certificates = Certificates::new();
    let server = certificates.serve(&["--write-timeout", "1s"]);
    let mut http2 = certificates.http2_with_window(&server, 1_024).await;
    let mut pause = Duration::from_secs(1);
    eventually("the rest is not sent", async || {
        let unread = http2.send_request(get(&server, "/openapi.json")).await.unwrap();
        assert_eq!(unread.status(), StatusCode::OK);
        pause *= 2;
        // It is not a wait: for so long, the client reads nothing. A busy server may notice it late.
        tokio::time::sleep(pause).await;
        unread.into_body().collect().await.is_err()
    })
    .await;
    let later = http2.send_request(get(&server, "/livez")).await.unwrap();
    assert_eq!(json(later).await["status"], "live", "the connection continues");
}

#[tokio::test]
async fn handshakes_count_as_connections_and_give_way() {
    let certificates = Certificates::new();
    let server = certificates.serve(&["--connections-max", "2", "--header-timeout", "1h"]);
    let first = TcpStream::connect(&server.address).await.unwrap();
    let second = TcpStream::connect(&server.address).await.unwrap();
    let mut http2 = certificates.http2(&server).await;
    let events = http2.send_request(get(&server, "/api/v1/events")).await.unwrap();
    assert_eq!(events.status(), StatusCode::OK);
    assert!(is_closed(first).await, "the oldest one lost its slot");
    // The open stream keeps its connection: the other silent one goes next.
    let client = certificates.client(&server, None);
    client.version().await.unwrap();
    assert!(is_closed(second).await);
    assert_eq!(http2.send_request(get(&server, "/api/v1/stats")).await.unwrap().status(), StatusCode::OK);
}
