//! Slow clients, by the thousand: they are closed, and other clients are not affected.

use crate::raw::{ELSEWHERE, HERE, Raw, head};
use crate::server::{PATIENCE, Server, eventually};
use punctual_client::ClientTls;
use reqwest::{Method, StatusCode};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use serde_json::json;
use std::net::IpAddr;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// What a slow client does until it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slow {
    /// Connects and sends nothing.
    Silent,
    /// Sends a head that never ends, byte by byte.
    Head,
    /// Sends a body that never ends, byte by byte.
    Body,
}

/// How long a slow client pauses between two bytes.
const PACE: Duration = Duration::from_millis(500);
/// Longer than the server lets any of them continue.
const ALL_ENDED_MAX: Duration = Duration::from_secs(180);

impl Slow {
    async fn begin(self, server: &Server) -> Raw {
        let mut raw = Raw::open(&server.address, HERE).await;
        let begun = match self {
            Slow::Silent => String::new(),
            Slow::Head => head(server, "GET", "/api/v1/stats") + "x-slow: ",
            Slow::Body => {
                head(server, "POST", "/api/v1/jobs")
                    + "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
            }
        };
        raw.send(begun.as_bytes()).await;
        raw
    }

    /// Continues until the server closes, and returns the status it got.
    async fn go_on(self, raw: Raw) -> (Slow, Option<u16>) {
        let (mut reader, mut writer) = raw.0.into_split();
        let dribble = async {
            use tokio::io::AsyncWriteExt;
            while self != Slow::Silent && writer.write_all(b" ").await.is_ok() {
                // How slow the client is, is the input of this test, not a wait for something.
                tokio::time::sleep(PACE).await;
            }
            std::future::pending::<()>().await
        };
        let told = async {
            use tokio::io::AsyncReadExt;
            let mut bytes = Vec::new();
            let _ = reader.read_to_end(&mut bytes).await;
            String::from_utf8_lossy(&bytes).split(' ').nth(1).and_then(|status| status.parse().ok())
        };
        tokio::select! {
            status = told => (self, status),
            () = dribble => unreachable!("a client that may not write any more waits for its end"),
        }
    }
}

/// The usual limit on open files is less than the connections of these tests.
fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("more open files");
}

fn open_files(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("the server runs").count()
}

fn memory_kb(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("kilobytes")
}

/// A well-behaved client: on new connections, and on one that it keeps.
async fn behave(server: &Server, from: IpAddr, rounds: usize) {
    let kept = ClientTls::default().http().local_address(from).build().expect("a client");
    let url = format!("http://{}/api/v1/jobs", server.address);
    for round in 0..rounds {
        let job = json!({"name": format!("normal-{round}"), "job_type": "noop"});
        let answer = kept.post(&url).bearer_auth(&server.token).json(&job).send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::CREATED);
        let fresh = ClientTls::default().http().local_address(from).build().expect("a client");
        let answer = fresh.get(&url).query(&[("limit", "1")]).bearer_auth(&server.token).send().await;
        assert_eq!(answer.expect("an answer").status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_thousand_slow_connections_end_and_hurt_nobody() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can count the open files of a server");
        return;
    }
    raise_open_files_limit();
    let server = Server::start_with(&["--header-timeout", "10s"]);
    behave(&server, HERE.into(), 20).await;
    let (files, before) = (open_files(&server), memory_kb(&server));
    let mut slow = JoinSet::new();
    for number in 0..1_000 {
        let kind = [Slow::Head, Slow::Head, Slow::Body, Slow::Silent][number % 4];
        slow.spawn(kind.go_on(kind.begin(&server).await));
    }
    eventually("the server holds all of them", async || open_files(&server) >= files + 900).await;
    let per_connection = memory_kb(&server).saturating_sub(before) / 1_000;
    assert!(per_connection < 64, "{per_connection} kB for each slow connection");
    tokio::join!(behave(&server, HERE.into(), 100), behave(&server, ELSEWHERE.into(), 100));
    let ended = timeout(ALL_ENDED_MAX, slow.join_all()).await.expect("the slow ones are ended");
    for (kind, status) in ended {
        // Without a whole head there is no request to answer.
        let expected = if kind == Slow::Body { Some(408) } else { None };
        assert_eq!(status, expected, "{kind:?}");
    }
    behave(&server, HERE.into(), 5).await;
    eventually("their places are free", async || open_files(&server) < files + 50).await;
}

#[tokio::test]
async fn one_address_with_too_many_connections_displaces_its_own() {
    raise_open_files_limit();
    let server = Server::start_with(&["--connections-max", "64"]);
    let mut kept = Raw::open(&server.address, ELSEWHERE).await;
    assert!(kept.is_answered().await);
    let mut slow = JoinSet::new();
    for number in 0..500 {
        let kind = [Slow::Head, Slow::Body, Slow::Silent][number % 3];
        slow.spawn(kind.go_on(kind.begin(&server).await));
    }
    // Neither the existing connection nor new ones from elsewhere have to wait.
    assert!(kept.is_answered().await);
    behave(&server, ELSEWHERE.into(), 50).await;
    let displaced = async {
        for _ in 0..500 - 64 {
            let (_, status) = slow.join_next().await.expect("one of them").expect("it does not break");
            // A client whose request arrived just then gets a response; the others have sent nothing to be
            // answered.
            assert!(matches!(status, None | Some(429)), "{status:?}");
        }
    };
    timeout(PATIENCE, displaced).await.expect("those beyond the limit are closed");
}

#[tokio::test]
async fn when_all_connections_are_at_work_a_further_one_is_told_to_come_back() {
    let server = Server::start_with(&["--connections-max", "1"]);
    let session = json!({"worker": "w", "job_types": ["rare"], "lease_secs": 600}).to_string();
    let (status, opened) = server.post("/api/v1/worker/sessions", &session).await;
    assert_eq!(status, StatusCode::CREATED, "{opened}");
    let mut turn = 0;
    eventually("a poll has the only place", async || {
        turn += 1;
        let poll = json!({"session": opened["session"], "turn": turn, "job_types": ["rare"], "wait_secs": 30, "held": []});
        let poll = poll.to_string();
        let mut parked = Raw::open(&server.address, HERE).await;
        let headers = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", poll.len());
        parked.send((head(&server, "POST", "/api/v1/worker/poll") + &headers + &poll).as_bytes()).await;
        // If the server has not read the poll yet, its connection is displaced, and it is retried.
        let mut further = Raw::open(&server.address, ELSEWHERE).await;
        further.send(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        let told = further.rest().await;
        told.starts_with("HTTP/1.1 503 ") && told.contains("Retry-After: 1")
    })
    .await;
    eventually("the place is free again", async || {
        server
            .anonymous(Method::GET, "/livez")
            .send()
            .await
            .is_ok_and(|answer| answer.status() == StatusCode::OK)
    })
    .await;
}
