//! Load on an API whose database is not always available: jobs that record their runs, and a listener for
//! everything that finishes.

use crate::server::{answer, eventually, http_client};
use punctual_client::{Client, EventFilter, ExecutionStatus, StreamedEvent};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::JobStatus;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Concurrent submitters.
const SUBMITTERS: usize = 3;
/// Jobs that are acknowledged between two events.
const JOBS_BETWEEN: usize = 20;

/// The address and the token of an API.
#[derive(Clone)]
pub struct Api {
    pub address: String,
    pub token: String,
}

impl Api {
    pub fn client(&self) -> Client {
        Client::new(&self.address, self.token.clone()).expect("a good address")
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        http_client().request(method, format!("http://{}{path}", self.address)).bearer_auth(&self.token)
    }

    pub async fn submit(&self, job: &Value) -> (StatusCode, Value) {
        answer(self.request(Method::POST, "/api/v1/jobs").json(job)).await
    }

    pub async fn ready(&self) -> (StatusCode, Value) {
        answer(self.request(Method::GET, "/readyz")).await
    }

    /// Readiness reports that the database is unavailable, reads and writes are asked to retry, and the
    /// process stays alive.
    pub async fn puts_everybody_off(&self) {
        eventually("it is not ready", async || self.ready().await.0 == StatusCode::SERVICE_UNAVAILABLE).await;
        let (_, body) = self.ready().await;
        assert!(body["detail"].as_str().is_some_and(|detail| detail.contains("the store")), "{body}");
        let submit = self.request(Method::POST, "/api/v1/jobs").json(&json!({"name": "noop"}));
        for request in [submit, self.request(Method::GET, "/api/v1/jobs")] {
            let response = request.send().await.expect("an answer");
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert!(response.headers().contains_key("retry-after"));
            assert_eq!(response.headers()["content-type"], "application/problem+json");
        }
        let (status, _) = answer(self.request(Method::GET, "/livez")).await;
        assert_eq!(status, StatusCode::OK);
    }
}

/// Submissions that continue until they are stopped.
pub struct Load {
    api: Api,
    file: PathBuf,
    acknowledged: Mutex<Vec<JobId>>,
    heard: Mutex<Vec<ExecutionId>>,
    is_ending: AtomicBool,
}

impl Load {
    /// Starts the load and the listener. Jobs write to a file in this directory.
    pub async fn begin(api: Api, directory: &Path) -> (Arc<Self>, Vec<tokio::task::JoinHandle<()>>) {
        let file = directory.join("runs");
        std::fs::write(&file, "").expect("a file for the jobs");
        let (acknowledged, heard, is_ending) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        let load = Arc::new(Load { api, file, acknowledged, heard, is_ending });
        let filter = EventFilter { status: Some(ExecutionStatus::Succeeded), ..EventFilter::default() };
        // From before the first job on.
        let events = load.api.client().events(&filter, None).await.expect("a stream");
        tokio::spawn(load.clone().listen(filter, events));
        let submitters = (0..SUBMITTERS).map(|index| tokio::spawn(load.clone().submit(index))).collect();
        (load, submitters)
    }

    /// Submits one job after the other, whatever the server answers.
    async fn submit(self: Arc<Self>, index: usize) {
        let script = format!("echo $PUNCTUAL_EXECUTION_ID >> '{}'", self.file.display());
        for number in 0.. {
            if self.is_ending.load(Ordering::Relaxed) {
                return;
            }
            let name = format!("count-{index}-{number}");
            let job = json!({"name": name, "job_type": "shell", "payload": {"script": script}});
            let (status, body) = self.api.submit(&job).await;
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

    /// Listens for successes, and resumes from its position whenever the stream breaks.
    async fn listen(self: Arc<Self>, filter: EventFilter, mut events: punctual_client::Events) {
        let mut cursor = None;
        loop {
            while let Ok(Some(event)) = events.next().await {
                match event {
                    StreamedEvent::Execution(body) => self.heard.lock().unwrap().push(body.execution_id),
                    StreamedEvent::Gap => panic!("something that finished was missed"),
                    StreamedEvent::Stop => {}
                }
            }
            cursor = events.cursor().map(str::to_owned).or(cursor);
            let mut stream = self.api.client().events(&filter, cursor.as_deref()).await;
            while stream.is_err() {
                // A pace for asking again, not a wait for something.
                tokio::time::sleep(Duration::from_millis(100)).await;
                stream = self.api.client().events(&filter, cursor.as_deref()).await;
            }
            events = stream.expect("it was asked until there was one");
        }
    }

    /// Waits until more jobs are acknowledged, more have run, and more events have arrived.
    pub async fn goes_on(&self) {
        let acknowledged = || self.acknowledged.lock().unwrap().len();
        let heard = || self.heard.lock().unwrap().len();
        let before = (acknowledged(), self.runs().len(), heard());
        eventually("all goes on", async || {
            acknowledged() >= before.0 + JOBS_BETWEEN
                && self.runs().len() >= before.1 + JOBS_BETWEEN
                && heard() >= before.2 + JOBS_BETWEEN
        })
        .await;
    }

    /// Ends the load. All acknowledged jobs have then run once, with one event each.
    pub async fn ends_well(&self, submitters: Vec<tokio::task::JoinHandle<()>>) {
        self.is_ending.store(true, Ordering::Relaxed);
        for submitter in submitters {
            submitter.await.expect("every submit was answered");
        }
        let (acknowledged, client) = (self.acknowledged.lock().unwrap().clone(), self.api.client());
        for job in &acknowledged {
            eventually("what was acknowledged is done", async || {
                client.job(*job).await.is_ok_and(|job| job.status == JobStatus::Completed)
            })
            .await;
            let executions = client.executions(*job, None, None).await.expect("a list").items;
            let ended: Vec<ExecutionStatus> = executions.iter().map(|execution| execution.status).collect();
            assert_eq!(ended, [ExecutionStatus::Succeeded], "job {job}");
        }
        let runs = self.runs();
        each_once(runs.iter().map(|run| run.parse().expect("an id")), &acknowledged, "ran");
        eventually("all that ran was heard of", async || {
            let heard: BTreeSet<JobId> = jobs(self.heard.lock().unwrap().iter());
            acknowledged.iter().all(|job| heard.contains(job))
        })
        .await;
        each_once(self.heard.lock().unwrap().iter().copied(), &acknowledged, "was heard of");
    }

    /// The executions that have run, as recorded by the jobs.
    fn runs(&self) -> Vec<String> {
        std::fs::read_to_string(&self.file).expect("the file").lines().map(str::to_owned).collect()
    }
}

fn jobs<'a>(executions: impl Iterator<Item = &'a ExecutionId>) -> BTreeSet<JobId> {
    executions.map(|execution| execution.occurrence.job).collect()
}

/// Each of these jobs occurs once, and no other one more than once.
fn each_once(executions: impl Iterator<Item = ExecutionId>, acknowledged: &[JobId], what: &str) {
    let mut counts: BTreeMap<JobId, u32> = BTreeMap::new();
    let mut distinct = BTreeSet::new();
    for execution in executions {
        assert!(distinct.insert(execution), "{execution} {what} twice");
        *counts.entry(execution.occurrence.job).or_default() += 1;
    }
    for job in acknowledged {
        assert_eq!(counts.get(job), Some(&1), "how often job {job} {what}");
    }
}
