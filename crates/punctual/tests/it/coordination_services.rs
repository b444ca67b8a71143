//! Clusters that coordinate through Redis, etcd and ZooKeeper: the service fails and comes back, and the
//! cluster recovers by itself. And the errors about a wrong address.

use crate::cluster::{Cluster, Process};
use crate::private::Private;
use crate::segments::{go_on, none_is_missed_or_doubled, shared_by};
use crate::server::{BINARY, eventually, http_client};
use reqwest::{Method, StatusCode};
use serde_json::json;
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The shortest TTL that all of them accept.
const TTL: &str = "2s";

/// Whether a process takes part in its cluster, according to its metrics.
async fn is_coordinated(process: &Process, cluster: &Cluster) -> bool {
    let (status, metrics) = process.request(cluster, Method::GET, "/metrics", None).await;
    assert_eq!(status, StatusCode::OK, "{metrics}");
    metrics.as_str().expect("text").contains("punctual_cluster_is_coordinated 1\n")
}

async fn a_cluster_outlives(service: &str) {
    let mut server = Private::start(service);
    let url = server.url(service).to_owned();
    Cluster::with(async |cluster| {
        let through = ["--coordination", &url, "--coordination-ttl", TTL];
        let start = |role: &[&str]| cluster.start(&[role, &through].concat());
        let api = start(&["api", "--listen", "127.0.0.1:0"]);
        let scheduler = || start(&["scheduler", "--health-listen", "127.0.0.1:0"]);
        let (one, two, _worker) = (scheduler(), scheduler(), cluster.worker("one"));
        shared_by(2, &api, cluster).await;
        let job = json!({"name": "noop", "schedule_type": "RECURRING", "interval": "1s", "overlap_policy": "ALLOW"});
        let jobs = [api.submit(cluster, job).await];
        go_on(&api, cluster, &jobs).await;

        server.kill(service);
        for scheduler in [&one, &two] {
            eventually("it notices", async || !is_coordinated(scheduler, cluster).await).await;
        }
        go_on(&api, cluster, &jobs).await;
        server.start_again(service);
        shared_by(2, &api, cluster).await;
        go_on(&api, cluster, &jobs).await;
        none_is_missed_or_doubled(&api, cluster, &jobs, Duration::from_secs(1)).await;
        assert_eq!((one.stop(), two.stop()), (Some(0), Some(0)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_outlives_its_redis_and_shares_again_when_it_is_back() {
    a_cluster_outlives("redis").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_outlives_its_etcd_and_shares_again_when_it_is_back() {
    a_cluster_outlives("etcd").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_outlives_its_zookeeper_and_shares_again_when_it_is_back() {
    a_cluster_outlives("zookeeper").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_on_different_databases_leave_each_other_alone_on_one_service() {
    let server = Private::start("redis");
    let through = ["--coordination", server.url("redis"), "--coordination-ttl", TTL];
    let start = |cluster: &Cluster, role: &[&str]| cluster.start(&[role, &through].concat());
    Cluster::with(async |one| {
        Cluster::with(async |other| {
            let mut running = Vec::new();
            for cluster in [one, other] {
                let api = start(cluster, &["api", "--listen", "127.0.0.1:0"]);
                running.push((api, start(cluster, &["scheduler", "--health-listen", "127.0.0.1:0"])));
            }
            for (cluster, (api, _)) in [one, other].into_iter().zip(&running) {
                shared_by(1, api, cluster).await;
            }
        })
        .await;
    })
    .await;
}

/// `punctual serve` with its log captured. Killed on drop.
struct Talking {
    child: Child,
    address: String,
    token: String,
    log: PathBuf,
}

impl Talking {
    fn start(cluster: &Cluster, options: &[&str]) -> Self {
        let log = cluster.directory.path().join("log");
        let mut child = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--log-level", "warn", "--data-dir"])
            .arg(cluster.directory.path())
            .args(options)
            .env("PUNCTUAL_STORE", &cluster.url)
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("stdout is piped")).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit("http://").next().unwrap_or_default().to_owned();
        Talking { child, address, token: cluster.token(), log }
    }

    async fn metric(&self, name: &str) -> u64 {
        let request = http_client().get(format!("http://{}/metrics", self.address));
        let metrics = request.bearer_auth(&self.token).send().await.expect("an answer");
        let text = metrics.text().await.expect("text");
        let value = text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
    }

    /// The log's messages about coordination, after some attempts.
    async fn complaint(&self) -> String {
        eventually("it was tried some times", async || {
            self.metric("punctual_coordination_errors_total ").await >= 4
        })
        .await;
        let log = std::fs::read_to_string(&self.log).unwrap();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("coordination")).collect();
        let [line] = lines[..] else { panic!("one line is enough: {log}") };
        line.to_owned()
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_wrong_is_named_in_one_line_with_the_setting() {
    Cluster::with(async |cluster| {
        for url in ["redis://127.0.0.1:1", "etcd://127.0.0.1:1", "zookeeper://127.0.0.1:1"] {
            let line = Talking::start(cluster, &["--coordination", url]).complaint().await;
            for words in ["127.0.0.1:1", "check that it runs", "coordination.url"] {
                assert!(line.contains(words), "{words}: {line}");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_is_wrong_is_told_in_one_line_and_one_from_a_file_is_taken() {
    let mut redis = Private::start("redis");
    redis.sql("redis", "CONFIG SET requirepass topsecret");
    let host = redis.url("redis").strip_prefix("redis://").unwrap().to_owned();
    Cluster::with(async |cluster| {
        let line = Talking::start(cluster, &["--coordination", &format!("redis://{host}")]).complaint().await;
        for words in [&host, "requires a password", "coordination.password_file"] {
            assert!(line.contains(words), "{words}: {line}");
        }
        let file = cluster.directory.path().join("password");
        std::fs::write(&file, "bottomsecret\n").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let url = format!("redis://@{host}");
        let options = ["--coordination", &url, "--coordination-password-file", file.to_str().unwrap()];
        let line = Talking::start(cluster, &options).complaint().await;
        assert!(line.contains("rejects the login") && line.contains("coordination.password_file"), "{line}");
        assert!(!line.contains("secret"), "{line}");
        std::fs::write(&file, "topsecret\n").unwrap();
        let right = Talking::start(cluster, &options);
        eventually("it takes part", async || right.metric("punctual_cluster_is_coordinated ").await == 1)
            .await;
    })
    .await;
}
