//! A server whose database becomes unavailable and comes back, under load: the server
//! acknowledges only jobs that it stored, runs each of them once, and needs no restart.

use crate::server::{Server, eventually};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::JobStatus;
use punctual_store::postgres::{PostgresOptions, create_database, drop_database};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Environment variable with the server: a URL of a user who may create databases.
const SERVER: &str = "PUNCTUAL_TEST_POSTGRES";
/// Concurrent submitters.
const SUBMITTERS: usize = 3;
/// Jobs that are acknowledged between two events.
const JOBS_BETWEEN: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_away_under_load_loses_and_doubles_nothing() {
    on_a_database(async |url| {
        let directory = tempfile::tempdir().unwrap();
        let link = Link::to(url).await;
        let server =
            Server::start_in(&directory.path().join("data"), &["--store", &link.url, "--allow", "shell"]);
        let server = Arc::new(server);
        let load = Arc::new(Load::new(directory.path()));
        let submitters: Vec<_> =
            (0..SUBMITTERS).map(|index| tokio::spawn(load.clone().submit(server.clone(), index))).collect();
        for network_fault in [NetworkFault::Away, NetworkFault::Held, NetworkFault::Away] {
            load.goes_on().await;
            link.network_fault.send_replace(network_fault);
            is_told(&server).await;
            if network_fault == NetworkFault::Away {
                is_put_off(&server).await;
            }
            link.network_fault.send_replace(NetworkFault::Fair);
            eventually("it is ready again", async || ready(&server).await.0 == StatusCode::OK).await;
        }
        load.goes_on().await;
        load.is_ending.store(true, Ordering::Relaxed);
        for submitter in submitters {
            submitter.await.unwrap();
        }
        all_ran_once(&server, &load).await;
        let server = Arc::into_inner(server).expect("no other client is left");
        assert!(server.stop().success(), "it is the process that was started");
    })
    .await;
}

/// Readiness reports that the database is unavailable, with the known details; the process stays alive.
async fn is_told(server: &Server) {
    eventually("it is not ready", async || ready(server).await.0 == StatusCode::SERVICE_UNAVAILABLE).await;
    let (status, body) = ready(server).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let detail = body["detail"].as_str().unwrap_or_default();
    let reasons = ["the store is unavailable: ", "the store did not answer within "];
    assert!(reasons.iter().any(|reason| detail.starts_with(reason)), "{body}");
    assert!(!detail.contains("took effect"), "no change was requested: {body}");
    let live = server.anonymous(Method::GET, "/livez").send().await.unwrap();
    assert_eq!(live.status(), StatusCode::OK);
}

/// Reads and writes are answered with a request to retry.
async fn is_put_off(server: &Server) {
    let submit = server.request(Method::POST, "/api/v1/jobs").json(&json!({"name": "noop"}));
    let list = server.request(Method::GET, "/api/v1/jobs");
    for request in [submit, list] {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(response.headers().contains_key("retry-after"));
        assert_eq!(response.headers()["content-type"], "application/problem+json");
    }
}

async fn ready(server: &Server) -> (StatusCode, Value) {
    crate::server::answer(server.anonymous(Method::GET, "/readyz")).await
}

/// All acknowledged jobs are done, and no handler was called twice for one execution.
async fn all_ran_once(server: &Server, load: &Load) {
    let acknowledged = load.acknowledged.lock().unwrap().clone();
    for job in &acknowledged {
        eventually("what was acknowledged is done", async || {
            server.client().job(*job).await.is_ok_and(|job| job.status == JobStatus::Completed)
        })
        .await;
    }
    let mut runs: BTreeMap<String, u32> = BTreeMap::new();
    for execution in load.runs() {
        *runs.entry(execution).or_default() += 1;
    }
    let twice: Vec<_> = runs.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let job_of = |execution: &String| execution.parse::<ExecutionId>().expect("an id").occurrence.job;
    let ran: BTreeSet<JobId> = runs.keys().map(job_of).collect();
    for job in acknowledged {
        assert!(ran.contains(&job), "job {job} never ran");
    }
}

/// Jobs that record their execution.
struct Load {
    file: PathBuf,
    acknowledged: Mutex<Vec<JobId>>,
    is_ending: AtomicBool,
}

impl Load {
    fn new(directory: &Path) -> Self {
        let file = directory.join("runs");
        std::fs::write(&file, "").unwrap();
        Load { file, acknowledged: Mutex::default(), is_ending: AtomicBool::new(false) }
    }

    /// Submits one job after the other, whatever the server answers.
    async fn submit(self: Arc<Self>, server: Arc<Server>, index: usize) {
        let script = format!("echo $PUNCTUAL_EXECUTION_ID >> '{}'", self.file.display());
        for number in 0.. {
            if self.is_ending.load(Ordering::Relaxed) {
                return;
            }
            let name = format!("count-{index}-{number}");
            let job = json!({"name": name, "job_type": "shell", "payload": {"script": script}});
            let (status, body) = server.post("/api/v1/jobs", &job.to_string()).await;
            if status == StatusCode::CREATED {
                let id = body["job_id"].as_str().expect("an id").parse().expect("the id of a job");
                self.acknowledged.lock().unwrap().push(id);
            } else {
                assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
            }
            // A pace that the machine can keep up with, not a wait for something.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until more jobs are acknowledged, and more have run.
    async fn goes_on(&self) {
        let acknowledged = || self.acknowledged.lock().unwrap().len();
        let (before, ran) = (acknowledged(), self.runs().len());
        eventually("all goes on", async || {
            acknowledged() >= before + JOBS_BETWEEN && self.runs().len() >= ran + JOBS_BETWEEN
        })
        .await;
    }

    /// The executions that have run, as recorded by the jobs.
    fn runs(&self) -> Vec<String> {
        std::fs::read_to_string(&self.file).unwrap().lines().map(str::to_owned).collect()
    }
}

/// The network faults on the way to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NetworkFault {
    Fair,
    /// Nothing passes, and connections stay open.
    Held,
    /// Connections are closed, and new ones are refused.
    Away,
}

/// A fault proxy to the database.
struct Link {
    url: String,
    network_fault: watch::Sender<NetworkFault>,
}

impl Link {
    async fn to(url: &str) -> Self {
        let authority = url.split("://").nth(1).and_then(|rest| rest.split('/').next());
        let target = authority.and_then(|authority| authority.rsplit('@').next()).expect("a host").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let through = url.replace(&target, &listener.local_addr().unwrap().to_string());
        let network_fault = watch::Sender::new(NetworkFault::Fair);
        let seen = network_fault.subscribe();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, target.clone(), seen.clone()));
            }
        });
        Link { url: through, network_fault }
    }
}

async fn pass(client: TcpStream, target: String, mut network_fault: watch::Receiver<NetworkFault>) {
    if *network_fault.borrow() == NetworkFault::Away {
        return;
    }
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (held, held_too) = (network_fault.clone(), network_fault.clone());
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = pass_on(from_client, to_server, held) => {}
        () = pass_on(from_server, to_client, held_too) => {}
        _ = network_fault.wait_for(|network_fault| *network_fault == NetworkFault::Away) => {}
    }
}

async fn pass_on(
    mut source: impl AsyncRead + Unpin,
    mut sink: impl AsyncWrite + Unpin,
    mut network_fault: watch::Receiver<NetworkFault>,
) {
    let mut bytes = vec![0; 8 * 1024];
    loop {
        let Ok(read @ 1..) = source.read(&mut bytes).await else { return };
        if network_fault.wait_for(|network_fault| *network_fault != NetworkFault::Held).await.is_err()
            || sink.write_all(&bytes[..read]).await.is_err()
        {
            return;
        }
    }
}

/// Runs a test on an empty database, which is dropped in any case.
async fn on_a_database(test: impl AsyncFnOnce(&str)) {
    let server = std::env::var(SERVER).unwrap_or_else(|_| {
        panic!("{SERVER} is not set: run `cargo xtask test`, which starts a PostgreSQL server for the tests")
    });
    let mut random = [0; 8];
    getrandom::fill(&mut random).unwrap();
    let name = format!("away_{:016x}", u64::from_le_bytes(random));
    let options = PostgresOptions::new(&server);
    create_database(&options, &name).await.unwrap();
    let base = &server[..server.rfind('/').expect("a URL with a database")];
    let outcome =
        futures_util::FutureExt::catch_unwind(AssertUnwindSafe(test(&format!("{base}/{name}")))).await;
    drop_database(&options, &name).await.unwrap();
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}
