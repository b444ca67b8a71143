//! Several processes on one PostgreSQL database: separate roles, some of them killed, and the database
//! unavailable for a while.

use crate::certificates::Certificates;
use crate::server::{ALLOW_ROOT, BINARY, PATIENCE, answer, eventually, http_client};
use punctual_client::{Client, ClientTls, SubmitJob};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use punctual_store::postgres::{PostgresOptions, create_database, drop_database};
use reqwest::{Method, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Environment variable with the server: a URL of a user who may create databases.
const SERVER: &str = "PUNCTUAL_TEST_POSTGRES";

/// A dedicated database for one test, and the processes on it.
pub struct Cluster {
    pub url: String,
    pub directory: TempDir,
}

impl Cluster {
    /// Runs a test on an empty database, which is dropped in any case.
    pub async fn with(test: impl AsyncFnOnce(&Cluster)) {
        let server = std::env::var(SERVER).unwrap_or_else(|_| {
            panic!(
                "{SERVER} is not set: run `cargo xtask test`, which starts a PostgreSQL server for the tests"
            )
        });
        let mut random = [0; 8];
        getrandom::fill(&mut random).unwrap();
        let name = format!("cluster_{:016x}", u64::from_le_bytes(random));
        let options = PostgresOptions::new(&server);
        create_database(&options, &name).await.unwrap();
        let base = &server[..server.rfind('/').expect("a URL with a database")];
        let cluster = Cluster { url: format!("{base}/{name}"), directory: tempfile::tempdir().unwrap() };
        let outcome = futures_util::FutureExt::catch_unwind(AssertUnwindSafe(test(&cluster))).await;
        drop_database(&options, &name).await.unwrap();
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
    }

    /// Starts a process and waits until it reports that it is ready.
    pub fn start(&self, arguments: &[&str]) -> Process {
        self.start_at(&self.url, arguments)
    }

    /// The same with another address of the database.
    fn start_at(&self, url: &str, arguments: &[&str]) -> Process {
        let mut child = Command::new(BINARY)
            .env(ALLOW_ROOT, "true")
            .args(arguments)
            .args(["--log-level", "off", "--data-dir"])
            .arg(self.directory.path())
            .env("PUNCTUAL_STORE", url)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("stdout is piped")).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit("://").next().unwrap_or_default().to_owned();
        Process { child, address, said: line }
    }

    pub fn api(&self) -> Process {
        self.start(&["api", "--listen", "127.0.0.1:0"])
    }

    pub fn scheduler(&self) -> Process {
        self.start(&["scheduler", "--health-listen", "127.0.0.1:0"])
    }

    /// With a short lease, so that its executions are soon found lost.
    pub fn worker(&self, name: &str) -> Process {
        self.start(&["worker", "--worker-name", name, "--lease", "1s", "--allow", "shell"])
    }

    pub fn token(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("admin.token")).expect("a token").trim().to_owned()
    }
}

/// Killed on drop.
pub struct Process {
    pub child: Child,
    pub address: String,
    said: String,
}

impl Process {
    pub fn client(&self, cluster: &Cluster) -> Client {
        Client::new(&self.address, cluster.token()).expect("a good address").without_retries()
    }

    pub async fn request(
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

    pub async fn submit(&self, cluster: &Cluster, job: Value) -> JobId {
        let (status, body) = self.request(cluster, Method::POST, "/api/v1/jobs", Some(job)).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
        body["job_id"].as_str().expect("an id").parse().expect("the id of a job")
    }

    pub async fn completes(&self, cluster: &Cluster, job: JobId) {
        let client = self.client(cluster);
        eventually("the job is done", async || {
            client.job(job).await.is_ok_and(|job| job.status == JobStatus::Completed)
        })
        .await;
    }

    pub async fn executions(&self, cluster: &Cluster, job: JobId) -> Vec<Value> {
        let path = format!("/api/v1/jobs/{job}/executions?limit=1000");
        let (_, page) = self.request(cluster, Method::GET, &path, None).await;
        page["items"].as_array().cloned().unwrap_or_default()
    }

    pub fn kill(mut self) {
        self.child.kill().expect("it still runs");
        self.child.wait().expect("it is gone");
    }

    pub fn stop(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it still runs");
        self.child.wait().expect("it is gone").code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn every_role_of_a_cluster_can_use_tls() {
    Cluster::with(async |cluster| {
        let certificates = Certificates::new();
        let tls = certificates.server_options();
        let start = |arguments: &[&str]| {
            cluster
                .start(&arguments.iter().copied().chain(tls.iter().map(String::as_str)).collect::<Vec<_>>())
        };
        let api = start(&["api", "--listen", "127.0.0.1:0"]);
        let scheduler = start(&["scheduler", "--health-listen", "127.0.0.1:0"]);
        let worker = start(&["worker", "--worker-name", "one", "--health-listen", "127.0.0.1:0"]);
        let trusting = ClientTls::new(Some(certificates.authority.pem.as_bytes()), None).unwrap();
        let http = trusting.http().build().unwrap();
        for process in [&api, &scheduler, &worker] {
            assert!(process.said.contains(&format!("https://{}", process.address)), "{}", process.said);
            let ready = http.get(format!("https://{}/readyz", process.address)).send().await.unwrap();
            assert_eq!(ready.status(), StatusCode::OK, "{}", process.said);
        }
        let server = format!("https://{}", api.address);
        let client = Client::with_tls(&server, cluster.token(), &trusting).unwrap();
        let job = client.submit(&SubmitJob::named("noop")).await.unwrap().job_id;
        assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Completed);
    })
    .await;
}

#[tokio::test]
async fn commands_turn_to_the_first_server_in_a_directory_until_it_ends() {
    Cluster::with(async |cluster| {
        let (first, second) = (cluster.api(), cluster.api());
        let file = cluster.directory.path().join("server.address");
        let told = || std::fs::read_to_string(&file).unwrap().trim().to_owned();
        assert_eq!(told(), first.address);
        let list = || {
            let mut command = Command::new(BINARY);
            command.args(["job", "list", "--data-dir"]).arg(cluster.directory.path()).output().unwrap()
        };
        assert!(list().status.success());
        first.kill();
        eventually("the second takes its place", async || told() == second.address).await;
        let output = list();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_in_processes_of_their_own_do_together_what_one_process_does() {
    Cluster::with(async |cluster| {
        let (api, scheduler, worker) = (cluster.api(), cluster.scheduler(), cluster.worker("one"));
        let job = api.submit(cluster, json!({"name": "shell", "payload": {"script": "echo 7"}})).await;
        api.completes(cluster, job).await;
        let run = &api.executions(cluster, job).await[0];
        assert_eq!((&run["worker_id"], &run["result"]), (&json!("one"), &json!(7)));
        // Due beyond the API's look-ahead: the scheduler fires it.
        let later = api.submit(cluster, json!({"name": "noop", "delay": "2500ms"})).await;
        api.completes(cluster, later).await;
        let (_, nodes) = api.request(cluster, Method::GET, "/api/v1/nodes", None).await;
        let node = &nodes["items"][0];
        assert_eq!(
            (&node["roles"], &node["store"], &node["embedded_store"]),
            (&json!(["api"]), &json!("postgres"), &json!(false))
        );
        let (status, _) = scheduler.request(cluster, Method::GET, "/readyz", None).await;
        assert_eq!(status, StatusCode::OK);
        let (status, body) = scheduler.request(cluster, Method::GET, "/api/v1/jobs", None).await;
        assert!(
            status == StatusCode::NOT_FOUND && body["detail"].as_str().unwrap().contains("punctual api"),
            "{body}"
        );
        for process in [&api, &scheduler, &worker] {
            assert!(!process.said.contains(":punctual@"), "{}", process.said);
        }
        assert_eq!((worker.stop(), scheduler.stop(), api.stop()), (Some(0), Some(0), Some(0)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_and_a_killed_scheduler_are_made_up_for_by_others() {
    Cluster::with(async |cluster| {
        let api = cluster.api();
        let (first, _second) = (cluster.scheduler(), cluster.scheduler());
        let doomed = cluster.worker("doomed");
        let every = json!({"name": "noop", "schedule_type": "RECURRING", "interval": "200ms", "overlap_policy": "ALLOW"});
        let recurring = api.submit(cluster, every).await;
        let held = api.submit(cluster, json!({"name": "shell", "payload": {"script": "sleep 600"}, "timeout_secs": 900})).await;
        eventually("it runs", async || {
            api.executions(cluster, held).await.first().is_some_and(|run| run["status"] == "RUNNING")
        })
        .await;
        doomed.kill();
        first.kill();
        let _other = cluster.worker("other");
        eventually("the lost execution runs elsewhere", async || {
            let runs = api.executions(cluster, held).await;
            runs.iter().any(|run| run["status"] == "RUNNING" && run["worker_id"] == "other")
                && runs.iter().any(|run| run["status"] == "LOST" && run["worker_id"] == "doomed")
        })
        .await;
        let before = api.executions(cluster, recurring).await.len();
        eventually("the other scheduler goes on", async || {
            api.executions(cluster, recurring).await.len() > before + 5
        })
        .await;
        let runs = api.executions(cluster, recurring).await;
        let attempts: BTreeSet<(String, u64)> = runs
            .iter()
            .map(|run| (run["scheduled_time"].to_string(), run["attempt_number"].as_u64().unwrap()))
            .collect();
        assert_eq!(attempts.len(), runs.len(), "each occurrence was fired once");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_coordinate_through_different_services_are_noticed() {
    Cluster::with(async |cluster| {
        let api = cluster.api();
        // Nothing answers there: the scheduler continues without, and is visible in the store.
        let elsewhere =
            ["scheduler", "--health-listen", "127.0.0.1:0", "--coordination", "redis://127.0.0.1:1"];
        let other = cluster.start(&elsewhere);
        let client = api.client(cluster);
        let told = "coordinates through redis, but this process through the store";
        let warns = async || {
            let nodes = client.nodes().await.unwrap().items;
            assert_eq!((nodes[0].answering, nodes[0].coordination.as_str()), (true, "store"));
            nodes[0].warnings.iter().any(|warning| warning.contains(told))
        };
        eventually("the API notices", warns).await;
        let doctor = Command::new(BINARY)
            .args(["doctor", "--server", &api.address, "--data-dir"])
            .arg(cluster.directory.path())
            .env("PUNCTUAL_STORE", &cluster.url)
            .output()
            .expect("the binary starts");
        let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(said.contains(told), "{said}");
        other.kill();
        eventually("it is forgotten once it is gone", async || !warns().await).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_database_is_checked_while_servers_work_on_it() {
    Cluster::with(async |cluster| {
        let api = cluster.api();
        api.submit(cluster, json!({"name": "noop"})).await;
        for more in [&[][..], &["--repair"]] {
            let mut check = Command::new(BINARY);
            check.arg("check").args(more).arg("--data-dir").arg(cluster.directory.path());
            let output = check.env("PUNCTUAL_STORE", &cluster.url).output().expect("the binary starts");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && said.ends_with(" is intact\n"), "{said}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_a_scheduler_is_noticed() {
    Cluster::with(async |cluster| {
        let api = cluster.api();
        let schedules = || {
            let mut doctor = Command::new(BINARY);
            doctor.args(["doctor", "-o", "json", "--data-dir"]).arg(cluster.directory.path());
            let output = doctor.env("PUNCTUAL_STORE", &cluster.url).output().expect("the binary starts");
            let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
            let findings = report["findings"].as_array().expect("findings").iter();
            findings.filter(|finding| finding["check"] == "schedules").cloned().collect::<Vec<_>>().remove(0)
        };
        // Beyond what the API fires by itself.
        let later = api.submit(cluster, json!({"name": "noop", "delay": "3s"})).await;
        assert_eq!(schedules()["level"], "good");
        eventually("the doctor finds schedules without a scheduler", async || {
            schedules()["level"] == "failed"
        })
        .await;
        let path = format!("/api/v1/jobs/{later}/explain");
        let (_, explained) = api.request(cluster, Method::GET, &path, None).await;
        assert!(
            explained["summary"].as_str().unwrap().contains("no scheduler has fired it yet"),
            "{explained}"
        );
        let _scheduler = cluster.scheduler();
        eventually("a scheduler fires it", async || schedules()["level"] == "good").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_leaves_the_admin_token_of_the_first_alone() {
    Cluster::with(async |cluster| {
        let first = cluster.api();
        let job = first.submit(cluster, json!({"name": "noop"})).await;
        let elsewhere = tempfile::tempdir().unwrap();
        let mut second = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--log-level", "off", "--data-dir"])
            .arg(elsewhere.path())
            .env("PUNCTUAL_STORE", &cluster.url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(second.stdout.as_mut().unwrap()).lines();
        let token = said.map(Result::unwrap).find(|line| line.contains("token")).unwrap();
        assert!(token.contains("another server of this store created the token"), "{token}");
        first.completes(cluster, job).await;
        let _ = second.kill();
        let _ = second.wait();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_servers_that_start_together_on_an_empty_database_one_makes_the_admin_token() {
    Cluster::with(async |cluster| {
        let directories = [(); 4].map(|()| tempfile::tempdir().unwrap());
        let start = |directory: &TempDir| {
            let child = Command::new(BINARY)
                .args(["api", "--listen", "127.0.0.1:0", "--log-level", "off", "--data-dir"])
                .arg(directory.path())
                .env("PUNCTUAL_STORE", &cluster.url)
                .stdout(Stdio::piped())
                .spawn();
            Process { child: child.unwrap(), address: String::new(), said: String::new() }
        };
        let mut servers: Vec<Process> = directories.iter().map(start).collect();
        for server in &mut servers {
            let said = BufReader::new(server.child.stdout.as_mut().unwrap()).lines();
            let line = said.map(Result::unwrap).find(|line| line.contains("http://")).unwrap();
            server.address = line.trim().rsplit("http://").next().unwrap_or_default().to_owned();
        }
        let token = |directory: &TempDir| std::fs::read_to_string(directory.path().join("admin.token")).ok();
        let tokens: Vec<String> = directories.iter().filter_map(token).collect();
        let [token] = tokens.as_slice() else { panic!("{} tokens were made", tokens.len()) };
        for server in &servers {
            let client = Client::new(&server.address, token.trim()).unwrap();
            client.me().await.expect("it counts at every server");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_restored_copy_runs_after_it_was_forked() {
    Cluster::with(async |cluster| {
        let api = cluster.api();
        let waiting = api.submit(cluster, json!({"name": "noop"})).await;
        let fork = || {
            let mut command = Command::new(BINARY);
            command.args(["migrate", "fork", "--this-is-a-copy"]).env("PUNCTUAL_STORE", &cluster.url);
            command.output().unwrap()
        };
        let in_use = fork();
        assert_eq!(in_use.status.code(), Some(7));
        let told = String::from_utf8(in_use.stderr).unwrap();
        assert!(told.contains("the copy is in use"), "{told}");
        drop(api);
        let forked = fork();
        let told = String::from_utf8(forked.stdout).unwrap();
        assert!(forked.status.success() && told.contains("its queues are paused: default"), "{told}");
        let (api, _scheduler, _worker) = (cluster.api(), cluster.scheduler(), cluster.worker("one"));
        let other = api.submit(cluster, json!({"name": "noop", "queue": "other"})).await;
        api.completes(cluster, other).await;
        assert_eq!(api.executions(cluster, waiting).await[0]["status"], "QUEUED");
        let resume = "/api/v1/queues/default/resume";
        assert_eq!(api.request(cluster, Method::POST, resume, None).await.0, StatusCode::OK);
        api.completes(cluster, waiting).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_away_requests_are_put_off_and_all_goes_on_by_itself() {
    Cluster::with(async |cluster| {
        let gate = Gate::before(&cluster.url).await;
        let api = cluster.start_at(&gate.url, &["api", "--listen", "127.0.0.1:0"]);
        let _scheduler = cluster.start_at(&gate.url, &["scheduler", "--health-listen", "127.0.0.1:0"]);
        let _worker = cluster.start_at(&gate.url, &["worker", "--lease", "1s"]);
        let job = api.submit(cluster, json!({"name": "noop"})).await;
        api.completes(cluster, job).await;
        let every = json!({"name": "noop", "schedule_type": "RECURRING", "interval": "200ms", "overlap_policy": "ALLOW"});
        let recurring = api.submit(cluster, every).await;
        gate.is_open.send_replace(false);
        eventually("it is not ready", async || {
            let (status, _) = api.request(cluster, Method::GET, "/readyz", None).await;
            status == StatusCode::SERVICE_UNAVAILABLE
        })
        .await;
        let url = format!("http://{}/api/v1/jobs", api.address);
        let refused = http_client().post(url).bearer_auth(cluster.token()).json(&json!({"name": "noop"}));
        let refused = refused.send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key("retry-after"));
        let (status, _) = api.request(cluster, Method::GET, "/livez", None).await;
        assert_eq!(status, StatusCode::OK);
        gate.is_open.send_replace(true);
        eventually("it is ready again", async || {
            let (status, _) = api.request(cluster, Method::GET, "/readyz", None).await;
            status == StatusCode::OK
        })
        .await;
        let job = api.submit(cluster, json!({"name": "noop"})).await;
        api.completes(cluster, job).await;
        let before = api.executions(cluster, recurring).await.len();
        eventually("schedules are fired again", async || {
            api.executions(cluster, recurring).await.len() > before
        })
        .await;
    })
    .await;
}

/// A proxy to the database that can be closed: its connections break, and new ones fail.
struct Gate {
    url: String,
    is_open: watch::Sender<bool>,
}

impl Gate {
    async fn before(url: &str) -> Self {
        let authority = url.split("://").nth(1).and_then(|rest| rest.split('/').next()).expect("a host");
        let target = authority.rsplit('@').next().expect("a host").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().to_string();
        let is_open = watch::Sender::new(true);
        let (open, through) = (is_open.subscribe(), url.replace(&target, &here));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, target.clone(), open.clone()));
            }
        });
        Gate { url: through, is_open }
    }
}

async fn pass(mut client: TcpStream, target: String, mut open: watch::Receiver<bool>) {
    if !*open.borrow() {
        return;
    }
    let Ok(Ok(mut server)) = tokio::time::timeout(PATIENCE, TcpStream::connect(target)).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = open.wait_for(|is_open| !*is_open) => {}
    }
}
