//! Repeated `kill -9` under load: every acknowledged job runs, and nothing fires twice.

use crate::server::{BINARY, PATIENCE, Server, eventually};
use punctual_client::{BatchItem, Client, ExecutionBody, ExecutionStatus, JobBody, JobFilter, SubmitJob};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use punctual_core::schedule::OverlapPolicy;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Runs of one interval job.
const RUNS: u32 = 12;
const INTERVAL_US: i64 = 100_000;
/// Connections that read the histories at the end.
const AUDITORS: usize = 8;

/// A number from the environment, or the default.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// SplitMix64: the times of all kills follow from one printed seed.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }
}

/// What the server has acknowledged.
#[derive(Default, Clone)]
pub struct Acknowledged {
    one_shot: HashSet<JobId>,
    interval: HashSet<JobId>,
}

/// Submits until the server is gone.
#[derive(Clone)]
pub struct Load {
    pub client: Client,
    pub names: Arc<AtomicU64>,
    pub acknowledged: Arc<Mutex<Acknowledged>>,
}

impl Load {
    /// All kinds of load at once, until the server is gone.
    pub fn begin(self) -> [JoinHandle<()>; 4] {
        [
            tokio::spawn(self.clone().one_by_one()),
            tokio::spawn(self.clone().one_by_one()),
            tokio::spawn(self.clone().in_batches()),
            tokio::spawn(self.intervals()),
        ]
    }

    fn job(&self, kind: &str) -> SubmitJob {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        // Losing a claimed attempt to a kill is charged: a job may be hit by every kill of the test.
        SubmitJob {
            max_retries: Some(1_000),
            ..SubmitJob::named(format!("{kind}-{number}")).with_type("noop")
        }
    }

    async fn one_by_one(self) {
        loop {
            let Ok(submitted) = self.client.submit(&self.job("single")).await else { return };
            self.acknowledged.lock().unwrap().one_shot.insert(submitted.job_id);
        }
    }

    async fn in_batches(self) {
        loop {
            let jobs: Vec<SubmitJob> = (0..20).map(|_| self.job("batch")).collect();
            let Ok(answer) = self.client.submit_batch(&jobs).await else { return };
            let ids = answer.items.into_iter().filter_map(|item| match item {
                BatchItem::Submitted(submitted) => Some(submitted.job_id),
                BatchItem::Refused { .. } => None,
            });
            self.acknowledged.lock().unwrap().one_shot.extend(ids);
        }
    }

    /// A few jobs of each round: they keep firing through the kills of the next rounds.
    async fn intervals(self) {
        for _ in 0..5 {
            let job = SubmitJob {
                interval: Some(format!("{}ms", INTERVAL_US / 1_000)),
                max_runs: Some(RUNS),
                overlap_policy: Some(OverlapPolicy::Allow),
                ..self.job("interval")
            };
            let Ok(submitted) = self.client.submit(&job).await else { return };
            self.acknowledged.lock().unwrap().interval.insert(submitted.job_id);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_nothing_fires_twice_through_kills() {
    let rounds = setting("PUNCTUAL_KILL_ROUNDS", 5);
    let seed = setting("PUNCTUAL_KILL_SEED", u64::from(std::process::id()));
    println!("PUNCTUAL_KILL_SEED={seed} PUNCTUAL_KILL_ROUNDS={rounds}");
    let mut chance = Chance(seed);
    let directory = tempfile::tempdir().unwrap();
    let acknowledged = Arc::new(Mutex::new(Acknowledged::default()));
    let names = Arc::new(AtomicU64::new(0));
    for _ in 0..rounds {
        let life = Duration::from_millis(50 + chance.below(750));
        round(directory.path(), life, &acknowledged, &names).await;
    }
    let server = Server::start_in(directory.path(), &[]);
    let acknowledged = Arc::into_inner(acknowledged).unwrap().into_inner().unwrap();
    println!("{} one-shot and {} interval jobs", acknowledged.one_shot.len(), acknowledged.interval.len());
    audit(&server.client(), &acknowledged).await;
    assert!(server.stop().success());
    let check = Command::new(BINARY).arg("check").arg("--data-dir").arg(directory.path()).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
}

/// One run of the server: load from start to kill.
async fn round(
    directory: &Path,
    life: Duration,
    acknowledged: &Arc<Mutex<Acknowledged>>,
    names: &Arc<AtomicU64>,
) {
    let server = Server::start_in(directory, &[]);
    let load = Load { client: server.client(), names: names.clone(), acknowledged: acknowledged.clone() };
    let tasks = load.begin();
    // The moment of the kill is the input of this test, not a wait for something.
    tokio::time::sleep(life).await;
    server.kill();
    for task in tasks {
        task.await.unwrap();
    }
}

pub async fn audit(client: &Client, acknowledged: &Acknowledged) {
    let jobs = finished_jobs(client).await;
    let names: HashSet<&str> = jobs.values().map(|job| job.name.as_str()).collect();
    assert_eq!(names.len(), jobs.len(), "a submit made two jobs");
    for id in acknowledged.one_shot.iter().chain(&acknowledged.interval) {
        let job = jobs.get(id).unwrap_or_else(|| panic!("job {id} was acknowledged and is gone"));
        assert_eq!(job.status, JobStatus::Completed, "job {id}: {:?}", job.status_reason);
    }
    let jobs: Vec<JobBody> = jobs.into_values().collect();
    let auditors: Vec<_> = jobs
        .chunks(jobs.len().div_ceil(AUDITORS))
        .map(|share| tokio::spawn(audit_jobs(client.clone(), share.to_vec())))
        .collect();
    for auditor in auditors {
        auditor.await.unwrap();
    }
}

async fn audit_jobs(client: Client, jobs: Vec<JobBody>) {
    for job in jobs {
        let executions = history(&client, job.job_id).await;
        match &job.interval {
            Some(_) => audit_interval(&client, &job, &executions).await,
            None => audit_occurrences(&job, &executions, 1),
        }
    }
}

/// All jobs, once nothing is live any more.
async fn finished_jobs(client: &Client) -> HashMap<JobId, JobBody> {
    eventually("everything has run", async || {
        let active = JobFilter { status: Some(JobStatus::Active), limit: Some(1), ..JobFilter::default() };
        first_of(client, active).await.is_none()
    })
    .await;
    let mut jobs = HashMap::new();
    let mut filter = JobFilter { limit: Some(1_000), ..JobFilter::default() };
    loop {
        let page = client.jobs(&filter).await.unwrap();
        jobs.extend(page.items.into_iter().map(|job| (job.job_id, job)));
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() {
            return jobs;
        }
    }
}

/// The first job of a list whose first pages may be empty.
async fn first_of(client: &Client, mut filter: JobFilter) -> Option<JobBody> {
    let start = Instant::now();
    loop {
        let page = client.jobs(&filter).await.unwrap();
        filter.cursor = page.next_cursor;
        if !page.items.is_empty() || filter.cursor.is_none() {
            return page.items.into_iter().next();
        }
        assert!(start.elapsed() < PATIENCE, "a list without end");
    }
}

async fn history(client: &Client, job: JobId) -> Vec<ExecutionBody> {
    let page = client.executions(job, Some(1_000), None).await.unwrap();
    assert_eq!(page.next_cursor, None, "job {job} has more attempts than the kills explain");
    page.items
}

/// Each occurrence succeeded once, its earlier attempts were lost, and no attempt has two outcomes.
fn audit_occurrences(job: &JobBody, executions: &[ExecutionBody], occurrences: u32) {
    let mut attempts = HashSet::new();
    let mut succeeded = HashSet::new();
    for execution in executions {
        assert!(attempts.insert(execution.execution_id), "{} has two outcomes", execution.execution_id);
        match execution.status {
            ExecutionStatus::Succeeded => {
                let occurrence = execution.execution_id.occurrence;
                assert!(succeeded.insert(occurrence), "{occurrence} ran twice");
            }
            ExecutionStatus::Lost => {}
            other => panic!("{} ended {other}", execution.execution_id),
        }
    }
    assert_eq!(succeeded.len(), occurrences as usize, "job {} ({})", job.job_id, job.name);
}

/// The occurrences are numbered without gaps, and each nominal time was fired or skipped, once.
async fn audit_interval(client: &Client, job: &JobBody, executions: &[ExecutionBody]) {
    audit_occurrences(job, executions, RUNS);
    let times: HashMap<u32, i64> = executions
        .iter()
        .map(|execution| (execution.execution_id.occurrence.number, execution.scheduled_time.as_micros()))
        .collect();
    let numbers: HashSet<u32> = times.keys().copied().collect();
    assert_eq!(numbers, (1..=RUNS).collect(), "job {}", job.job_id);
    let skipped = client.executions(job.job_id, Some(1), None).await.unwrap().skipped;
    let mut seen = HashSet::new();
    for time in times.values() {
        assert!(seen.insert(*time), "job {} fired {time} twice", job.job_id);
    }
    for range in &skipped {
        for step in 0..range.count as i64 {
            let time = range.first.as_micros() + step * INTERVAL_US;
            assert!(seen.insert(time), "job {} both fired and skipped {time}", job.job_id);
        }
    }
    let anchor = seen.iter().min().copied().unwrap();
    let after_submit = anchor - job.created_at.as_micros();
    assert!(after_submit <= INTERVAL_US, "job {} first fired {after_submit} us late", job.job_id);
    let expected: HashSet<i64> = (0..seen.len() as i64).map(|step| anchor + step * INTERVAL_US).collect();
    assert_eq!(seen, expected, "job {} left out a nominal time", job.job_id);
}
