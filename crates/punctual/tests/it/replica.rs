//! A PostgreSQL standby next to the primary: what is read from it, what never is, and what happens to lists
//! when it stops or fails. And a standby in place of the primary.

use crate::private::Private;
use crate::server::{BINARY, Server, eventually};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::process::Command;

/// A server that reads lists from the standby.
fn server(database: &Private, directory: &tempfile::TempDir) -> Server {
    let (primary, standby) = (database.url("replica-primary"), database.url("replica-standby"));
    let options = ["--store", primary, "--store-replica", standby];
    Server::start_in(&directory.path().join("data"), &options)
}

async fn is_listed(server: &Server, job: JobId) -> bool {
    let (status, page) = server.get("/api/v1/jobs?limit=1000").await;
    assert_eq!(status, StatusCode::OK, "{page}");
    let items = page["items"].as_array().expect("a page");
    items.iter().any(|item| item["job_id"] == json!(job.to_string()))
}

/// Stops replay on the standby as soon as it is read from, and waits for a list that is therefore outdated.
/// Returns the job that is missing in it.
async fn falls_behind(database: &mut Private, server: &Server) -> JobId {
    let before = server.submit(json!({"name": "noop"})).await;
    let since = database.sql("replica-standby", "SELECT clock_timestamp()");
    // A query of the replication position is not a read of a list.
    let is_read = format!(
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'punctual' AND state_change > '{since}' \
         AND query NOT LIKE '%replay_lsn%'"
    );
    eventually("lists are read from the standby", async || {
        is_listed(server, before).await && database.sql("replica-standby", &is_read) == "t"
    })
    .await;
    database.sql("replica-standby", "SELECT pg_wal_replay_pause()");
    let mut lacking = before;
    eventually("a list is behind", async || {
        lacking = server.submit(json!({"name": "noop"})).await;
        !is_listed(server, lacking).await
    })
    .await;
    lacking
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_read_from_the_standby_and_nothing_is_decided_by_it() {
    let (mut database, directory) = (Private::start("replica"), tempfile::tempdir().unwrap());
    let server = server(&database, &directory);
    falls_behind(&mut database, &server).await;
    let named = json!({"name": "noop", "idempotency_key": "once", "delay": "1h"});
    let job = server.submit(named.clone()).await;
    let (status, again) = server.post("/api/v1/jobs", &named.to_string()).await;
    assert_eq!((status, &again["job_id"]), (StatusCode::OK, &json!(job.to_string())), "{again}");
    for (version, expected) in [("\"1\"", StatusCode::OK), ("\"1\"", StatusCode::PRECONDITION_FAILED)] {
        let update =
            server.request(Method::PATCH, &format!("/api/v1/jobs/{job}")).header("if-match", version);
        let update = update.json(&json!({"priority": 7})).send().await.unwrap();
        assert_eq!(update.status(), expected);
    }
    // Fired, claimed, reported and shown, although the standby does not have it.
    let fired = server.submit(json!({"name": "noop", "delay": "100ms"})).await;
    eventually("it has run", async || {
        server.client().job(fired).await.is_ok_and(|job| job.status == JobStatus::Completed)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_is_far_behind_or_away_is_made_up_for_by_the_primary() {
    let (mut database, directory) = (Private::start("replica"), tempfile::tempdir().unwrap());
    // Commits do not wait for the standby, because it will be stopped.
    database.sql("replica-primary", "ALTER DATABASE punctual SET synchronous_commit = local");
    let server = server(&database, &directory);
    let lacking = falls_behind(&mut database, &server).await;
    eventually("the list is whole, because the primary is read", async || is_listed(&server, lacking).await)
        .await;
    let stands_still = database.sql("replica-standby", "SELECT pg_is_wal_replay_paused()");
    assert_eq!(stands_still, "t", "the standby has not caught up");
    database.sql("replica-standby", "SELECT pg_wal_replay_resume()");
    falls_behind(&mut database, &server).await;
    // It is being read from at this moment.
    database.kill("replica-standby");
    let alone = server.submit(json!({"name": "noop"})).await;
    assert!(is_listed(&server, alone).await, "the primary is read at once");
    database.start_again("replica-standby");
    falls_behind(&mut database, &server).await;
    assert!(server.stop().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_in_the_place_of_the_primary_is_told_with_what_to_do() {
    let (database, directory) = (Private::start("replica"), tempfile::tempdir().unwrap());
    let (primary, standby) = (database.url("replica-primary"), database.url("replica-standby"));
    let said = |url: &str, arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(arguments).args(["--data-dir"]).arg(directory.path()).env("PUNCTUAL_STORE", url);
        let output = command.output().expect("the binary starts");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.code(), text.concat())
    };
    assert_eq!(said(primary, &["migrate", "up"]).0, Some(0));
    for command in
        [&["serve", "--listen", "127.0.0.1:0"][..], &["worker"], &["migrate", "status"], &["doctor"]]
    {
        let (code, text) = said(standby, command);
        assert_ne!(code, Some(0), "{command:?}");
        assert!(text.contains("store.url postgres://punctual@127.0.0.1"), "{command:?}: {text}");
        assert!(
            text.contains("it is a standby or set to read only: give the address of the primary"),
            "{text}"
        );
        assert!(!text.contains("user and password"), "{text}");
    }
    let attributed = format!("{standby}?target_session_attrs=standby");
    let (_, text) = said(&attributed, &["migrate", "status"]);
    assert!(text.contains("target_session_attrs must be read-write or omitted"), "{text}");
    // The primary is found at any position among several hosts.
    let host = |url: &str| url.split(['@', '/']).nth(3).unwrap().to_owned();
    let both = standby.replace(&host(standby), &format!("{},{}", host(standby), host(primary)));
    let (code, text) = said(&both, &["migrate", "status", "-o", "json"]);
    assert_eq!(code, Some(0), "{text}");
    let status: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(status["pending"], json!([]), "{status}");
    let (code, text) = said(&both, &["doctor"]);
    assert!(text.contains(&format!("{},{}", host(standby), host(primary))), "{code:?} {text}");
    let server = Server::start_in(&directory.path().join("data"), &["--store", &both]);
    server.submit(json!({"name": "noop"})).await;
}
