//! Data migration through the binary: from the embedded store to PostgreSQL, where jobs then run.

use crate::http::web::{Answer, Web};
use crate::notifications::{OPTIONS, deliveries, failing, put};
use crate::server::{BINARY, Server, eventually};
use punctual_client::{DeadLetterFilter, ExecutionStatus};
use punctual_core::job::JobStatus;
use punctual_store::postgres::{PostgresOptions, create_database, drop_database};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::process::{Command, Output};
use tokio::net::TcpListener;

/// Environment variable with the server: a URL of a user who may create databases.
const SERVER: &str = "PUNCTUAL_TEST_POSTGRES";

/// Runs a test with the URL of an empty database, which is dropped in any case.
async fn with_database(test: impl AsyncFnOnce(&str)) {
    let server = std::env::var(SERVER).unwrap_or_else(|_| {
        panic!("{SERVER} is not set: run `cargo xtask test`, which starts a PostgreSQL server for the tests")
    });
    let mut random = [0; 8];
    getrandom::fill(&mut random).unwrap();
    let name = format!("moving_{:016x}", u64::from_le_bytes(random));
    let options = PostgresOptions::new(&server);
    create_database(&options, &name).await.unwrap();
    let base = &server[..server.rfind('/').expect("a URL with a database")];
    let url = format!("{base}/{name}");
    let outcome = futures_util::FutureExt::catch_unwind(AssertUnwindSafe(test(&url))).await;
    drop_database(&options, &name).await.unwrap();
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

fn migrate(from: &str, to: &str) -> Output {
    Command::new(BINARY).args(["migrate-data", "--from", from, "--to", to, "-o", "json"]).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_moves_to_postgres_and_its_jobs_run_there() {
    with_database(async |url| {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let from = format!("sqlite:{}", data.display());
        let server = Server::start_in(&data, &[]);
        let done = server.submit(json!({"name": "done", "job_type": "noop"})).await;
        let dead = json!({"name": "dead", "job_type": "sleep", "payload": {"minutes": 1}, "max_retries": 0});
        let dead = server.submit(dead).await;
        let later =
            server.submit(json!({"name": "later", "job_type": "noop", "delay": "1h", "tags": ["a"]})).await;
        let hourly = server.submit(json!({"name": "hourly", "job_type": "noop", "interval": "1h"})).await;
        for finished in [done, dead] {
            server.client().wait(finished).await.unwrap();
        }
        let running =
            json!({"name": "running", "job_type": "sleep", "payload": {"ms": 3_600_000}, "timeout_secs": 3_600});
        let running = server.submit(running).await;
        let execution = async || server.client().executions(running, None, None).await.unwrap().items.pop();
        eventually("it runs", async || {
            execution().await.is_some_and(|execution| execution.status == ExecutionStatus::Running)
        })
        .await;

        let refused = migrate(&from, url);
        assert_eq!(refused.status.code(), Some(7), "{}", said(&refused));
        assert!(said(&refused).contains("stop all servers"), "{}", said(&refused));
        server.kill();

        let moved = migrate(&from, url);
        assert!(moved.status.success(), "{}", said(&moved));
        let told: Value = serde_json::from_slice(&moved.stdout).unwrap();
        assert_eq!(told["beginning"], "new");
        let jobs = told["tables"].as_array().unwrap().iter().find(|table| table["name"] == "jobs").unwrap();
        assert_eq!(jobs["rows"], 5);

        // As if its last answer had been lost.
        let again = migrate(&from, url);
        assert!(again.status.success(), "{}", said(&again));
        let told: Value = serde_json::from_slice(&again.stdout).unwrap();
        assert_eq!(told["beginning"], "resumed");

        // The same data directory has the token; its embedded store is unchanged.
        let server = Server::start_in(&data, &["--store", url]);
        let client = server.client();
        assert_eq!(client.job(done).await.unwrap().status, JobStatus::Completed);
        for active in [later, hourly] {
            assert_eq!(client.job(active).await.unwrap().status, JobStatus::Active);
        }
        let letters = client.dead_letters(&DeadLetterFilter::default(), None, None).await.unwrap().items;
        assert_eq!(letters.iter().map(|letter| letter.job_id).collect::<Vec<_>>(), [dead]);
        eventually("what ran is lost and runs again", async || {
            let executions = client.executions(running, None, None).await.unwrap().items;
            let is = |status| executions.iter().any(|execution| execution.status == status);
            is(ExecutionStatus::Lost) && is(ExecutionStatus::Running)
        })
        .await;
        server.said(&["job", "submit", "after", "--type", "noop", "--wait"]);
        server.said(&["job", "trigger", "hourly", "--wait"]);
        let ran = client.executions(hourly, None, None).await.unwrap().items;
        assert_eq!(ran[0].status, ExecutionStatus::Succeeded);
        server.kill();
        eventually("the target has served, and is refused", async || {
            let again = migrate(&from, url);
            assert_eq!(again.status.code(), Some(7), "{}", said(&again));
            said(&again).contains("the target is not empty")
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_database_as_the_source_is_told_as_what_it_is() {
    with_database(async |url| {
        let directory = tempfile::tempdir().unwrap();
        let refused = migrate(url, &format!("sqlite:{}", directory.path().join("new").display()));
        assert_eq!(refused.status.code(), Some(5), "{}", said(&refused));
        let told = "the source is a database without a store in it: is it the right database? --from and --to may be swapped";
        assert!(said(&refused).contains(told), "{}", said(&refused));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_not_sent_moves_to_postgres_and_is_sent_from_there() {
    with_database(async |url| {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let server = Server::start_in(&data, &OPTIONS);
        let away: SocketAddr = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let channel = json!({"type": "webhook", "url": format!("http://{away}/")});
        assert!(put(&server, "/channels/ops", channel).await.0.is_success());
        let job = server.submit(failing("nightly", json!({"on_failure": "ops"}))).await;
        eventually("a message waits", async || !deliveries(&server).await.is_empty()).await;
        let id = deliveries(&server).await.remove(0)["delivery_id"].as_str().unwrap().to_owned();
        server.kill();
        let moved = migrate(&format!("sqlite:{}", data.display()), url);
        assert!(moved.status.success(), "{}", said(&moved));
        let web = Web::answering_at(away, Answer::status("200 OK", "")).await;
        let _server = Server::start_in(&data, &[&["--store", url], &OPTIONS[..]].concat());
        eventually("it is sent", async || web.asked().len() == 1).await;
        let asked = web.asked().remove(0);
        assert_eq!(asked.header("webhook-id"), Some(format!("msg_{id}").as_str()));
        let body: Value = serde_json::from_slice(&asked.body).unwrap();
        assert_eq!(body["data"]["job_id"], json!(job));
    })
    .await;
}

#[test]
fn ends_that_cannot_be_are_refused_without_a_word_of_their_passwords() {
    for (from, to, code, told) in [
        ("sqlite:a", "sqlite:b", 2, "`punctual backup` copies one"),
        ("oracle://me:hunter2@h/d", "sqlite:b", 2, "--from must be sqlite:DIRECTORY"),
        ("sqlite:a", "postgres://me:hunter2@h", 2, "--to must be postgres://USER@HOST/DATABASE"),
        (
            "sqlite:nowhere/at/all",
            "postgres://me:hunter2@127.0.0.1:1/d",
            5,
            "there is no store in nowhere/at/all",
        ),
        ("postgres://me:hunter2@127.0.0.1:1/d", "sqlite:b", 6, "the source"),
    ] {
        let output = migrate(from, to);
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert!(said(&output).contains(told) && !said(&output).contains("hunter2"), "{}", said(&output));
    }
}
