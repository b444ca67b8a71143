//! Separate roles on the three nodes of a Galera cluster, each preferring another node, while nodes are
//! killed under load: what was acknowledged runs once, no occurrence is fired twice, and everything recovers
//! by itself.

use crate::private::Private;
use crate::server::{ALLOW_ROOT, BINARY, answer, eventually, http_client};
use punctual_client::Client;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::JobStatus;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const NODES: [&str; 3] = ["galera-1", "galera-2", "galera-3"];
/// Concurrent submitters.
const SUBMITTERS: usize = 3;
/// Jobs that are acknowledged between two events.
const JOBS_BETWEEN: usize = 20;
/// Longer than the cluster waits for a silent node, so that no work is found lost meanwhile.
const LEASE: &str = "60s";

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_killed_under_load_lose_and_double_nothing() {
    let mut nodes = Private::start("galera");
    let cluster = Arc::new(Cluster::on(&nodes));
    let api = Arc::new(cluster.start(&["api", "--listen", "127.0.0.1:0"], [0, 1, 2]));
    let _scheduler = cluster.start(&["scheduler", "--health-listen", "127.0.0.1:0"], [1, 2, 0]);
    let worker = |name| ["worker", "--worker-name", name, "--lease", LEASE, "--allow", "shell"];
    let _one = cluster.start(&worker("one"), [2, 0, 1]);
    let _two = cluster.start(&worker("two"), [1, 0, 2]);
    let every =
        json!({"name": "noop", "schedule_type": "RECURRING", "interval": "500ms", "overlap_policy": "ALLOW"});
    let recurring = api.submit(&cluster, every).await.expect("nothing is away yet");
    let load = Arc::new(Load::new());
    let submitters: Vec<_> =
        (0..SUBMITTERS).map(|_| tokio::spawn(load.clone().submit(cluster.clone(), api.clone()))).collect();
    load.goes_on().await;
    // The API is on it, and other roles may follow.
    nodes.kill("galera-1");
    load.goes_on().await;
    nodes.start_again("galera-1");
    load.goes_on().await;
    nodes.kill("galera-2");
    load.goes_on().await;
    load.is_ending.store(true, Ordering::Relaxed);
    for submitter in submitters {
        submitter.await.unwrap();
    }
    load.all_ran_once(&cluster, &api).await;
    let fired = api.executions(&cluster, recurring).await;
    let times: BTreeSet<String> = fired.iter().map(|run| run["scheduled_time"].to_string()).collect();
    assert!(!fired.is_empty() && times.len() == fired.len(), "each occurrence was fired once: {fired:?}");
}

/// A database on the nodes, and the processes on it.
struct Cluster {
    /// Hosts with ports.
    hosts: Vec<String>,
    /// The part of the URL before the hosts.
    who: String,
    database: String,
    directory: TempDir,
}

impl Cluster {
    fn on(nodes: &Private) -> Self {
        let parts = |url: &str| {
            let (who, rest) = url.rsplit_once('@').expect("a user");
            let (host, database) = rest.split_once('/').expect("a database");
            (who.to_owned(), host.to_owned(), database.to_owned())
        };
        let (who, _, database) = parts(nodes.url(NODES[0]));
        let hosts = NODES.iter().map(|node| parts(nodes.url(node)).1).collect();
        Cluster { hosts, who, database, directory: tempfile::tempdir().unwrap() }
    }

    /// Starts a process that tries the nodes in this order, and waits until it reports that it is ready.
    fn start(&self, arguments: &[&str], order: [usize; 3]) -> Process {
        let hosts = order.map(|node| self.hosts[node].as_str()).join(",");
        let mut child = Command::new(BINARY)
            .env(ALLOW_ROOT, "true")
            .args(arguments)
            .args(["--log-level", "off", "--data-dir"])
            .arg(self.directory.path())
            .env("PUNCTUAL_STORE", format!("{}@{hosts}/{}", self.who, self.database))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("stdout is piped")).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit("http://").next().unwrap_or_default().to_owned();
        Process { child, address }
    }

    fn token(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("admin.token")).expect("a token").trim().to_owned()
    }
}

/// Killed on drop.
struct Process {
    child: Child,
    address: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    async fn request(
        &self,
        cluster: &Cluster,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let request = http_client().request(method, format!("http://{}{path}", self.address));
        let request = request.bearer_auth(cluster.token());
        answer(match body {
            Some(body) => request.json(&body),
            None => request,
        })
        .await
    }

    /// The job, if it is acknowledged; otherwise the store was unavailable.
    async fn submit(&self, cluster: &Cluster, job: Value) -> Option<JobId> {
        let (status, body) = self.request(cluster, Method::POST, "/api/v1/jobs", Some(job)).await;
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return None;
        }
        assert_eq!(status, StatusCode::CREATED, "{body}");
        Some(body["job_id"].as_str().expect("an id").parse().expect("the id of a job"))
    }

    async fn executions(&self, cluster: &Cluster, job: JobId) -> Vec<Value> {
        let path = format!("/api/v1/jobs/{job}/executions?limit=1000");
        let (_, page) = self.request(cluster, Method::GET, &path, None).await;
        page["items"].as_array().cloned().unwrap_or_default()
    }
}

/// Jobs that record their execution. There is no listener for events here: it may miss executions that were
/// delayed while a node was found to be lost.
struct Load {
    /// Not the data directory: commands cannot see it.
    directory: TempDir,
    acknowledged: Mutex<Vec<JobId>>,
    is_ending: AtomicBool,
}

impl Load {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("runs"), "").unwrap();
        Load { directory, acknowledged: Mutex::default(), is_ending: AtomicBool::new(false) }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("runs")
    }

    /// Submits one job after the other, whatever happens to the nodes.
    async fn submit(self: Arc<Self>, cluster: Arc<Cluster>, api: Arc<Process>) {
        let script = format!("echo $PUNCTUAL_EXECUTION_ID >> '{}'", self.file().display());
        while !self.is_ending.load(Ordering::Relaxed) {
            let job = json!({"name": "count", "job_type": "shell", "payload": {"script": script}});
            let id = api.submit(&cluster, job).await;
            self.acknowledged.lock().unwrap().extend(id);
            // A pace that the machine can keep up with, not a wait for something.
            tokio::time::sleep(Duration::from_millis(50)).await;
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
    fn runs(&self) -> Vec<ExecutionId> {
        let text = std::fs::read_to_string(self.file()).unwrap();
        text.lines().map(|line| line.parse().expect("an id")).collect()
    }

    /// All acknowledged jobs are done, each once.
    async fn all_ran_once(&self, cluster: &Cluster, api: &Process) {
        let acknowledged = self.acknowledged.lock().unwrap().clone();
        let client = Client::new(&api.address, cluster.token()).expect("a good address");
        for job in &acknowledged {
            eventually("what was acknowledged is done", async || {
                client.job(*job).await.is_ok_and(|job| job.status == JobStatus::Completed)
            })
            .await;
        }
        let mut runs: BTreeMap<JobId, u32> = BTreeMap::new();
        for execution in self.runs() {
            *runs.entry(execution.occurrence.job).or_default() += 1;
        }
        let twice: Vec<_> = runs.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
        for job in acknowledged {
            assert!(runs.contains_key(&job), "job {job} never ran");
        }
    }
}
