//! The primary of a PostgreSQL database dies under load and its standby takes over: everything recovers by
//! itself, nothing that was acknowledged is lost, and nothing runs twice.

use crate::load::{Api, Load};
use crate::private::Private;
use crate::server::{ALLOW_ROOT, BINARY, answer, eventually};
use reqwest::{Method, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process on the database. Killed on drop.
struct Process {
    child: Child,
    address: String,
}

impl Process {
    /// Starts a process and waits until it reports that it is ready.
    fn start(url: &str, directory: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(BINARY)
            .env(ALLOW_ROOT, "true")
            .args(arguments)
            .args(["--log-level", "off", "--data-dir"])
            .arg(directory)
            .env("PUNCTUAL_STORE", url)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("stdout is piped")).read_line(&mut line).expect("a line");
        Process { child, address: line.trim().rsplit("http://").next().unwrap_or_default().to_owned() }
    }

    fn stop(mut self) -> Option<i32> {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_takes_over_under_load_loses_and_doubles_nothing() {
    let mut database = Private::start("replica");
    let url = format!("{}?target_session_attrs=read-write", database.url_of_all());
    let directory = tempfile::tempdir().unwrap();
    // Commands do not see the data directory.
    let data_dir = directory.path().join("data");
    let start = |arguments: &[&str]| Process::start(&url, &data_dir, arguments);
    let server = start(&["api", "--listen", "127.0.0.1:0"]);
    let scheduler = start(&["scheduler", "--health-listen", "127.0.0.1:0"]);
    // A lease that outlasts the failover, so that running executions are not considered lost and retried.
    let worker = start(&["worker", "--lease", "60s", "--allow", "shell"]);
    let token = std::fs::read_to_string(data_dir.join("admin.token")).unwrap().trim().to_owned();
    let api = Api { address: server.address.clone(), token };
    let every =
        json!({"name": "noop", "schedule_type": "RECURRING", "interval": "1s", "overlap_policy": "ALLOW"});
    let (status, schedule) = api.submit(&every).await;
    assert_eq!(status, StatusCode::CREATED, "{schedule}");
    let (load, submitters) = Load::begin(api.clone(), directory.path()).await;
    load.goes_on().await;
    let before = nominal_times(&api, &schedule["job_id"]).await.len();
    database.kill("replica-primary");
    api.puts_everybody_off().await;
    let health = Api { address: scheduler.address.clone(), ..api.clone() };
    assert_eq!(health.ready().await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(database.sql("replica-standby", "SELECT pg_promote()"), "t");
    for process in [&api, &health] {
        eventually("it is ready again", async || process.ready().await.0 == StatusCode::OK).await;
    }
    load.goes_on().await;
    eventually("the schedule goes on", async || {
        nominal_times(&api, &schedule["job_id"]).await.len() > before + 2
    })
    .await;
    load.ends_well(submitters).await;
    let times = nominal_times(&api, &schedule["job_id"]).await;
    assert_eq!(times.iter().collect::<BTreeSet<_>>().len(), times.len(), "each was fired once: {times:?}");
    let stopped = (worker.stop(), scheduler.stop(), server.stop());
    assert_eq!(stopped, (Some(0), Some(0), Some(0)), "they are the processes that were started");
}

/// When the executions of a job were due, for each attempt.
async fn nominal_times(api: &Api, job: &serde_json::Value) -> Vec<String> {
    let job = job.as_str().expect("an id");
    let path = format!("/api/v1/jobs/{job}/executions?limit=1000");
    let (status, page) = answer(api.request(Method::GET, &path)).await;
    assert_eq!(status, StatusCode::OK, "{page}");
    let items = page["items"].as_array().expect("a page").iter();
    items.map(|item| item["scheduled_time"].as_str().expect("a time").to_owned()).collect()
}
