//! The clients: they submit the workload to any scheduler that answers, act on existing objects, and record
//! the responses.

use crate::auditor::AuditViolation;
use crate::cluster::SimCluster;
use crate::lock;
use crate::network::{NoAnswer, Sender};
use crate::random::Rng;
use crate::workload::{Submission, UP_AND_RUNNING, Workload, WorkloadSetting};
use punctual_core::ids::JobId;
use punctual_core::job::JobSpec;
use punctual_core::ports::{NewRequest, RequestKey, RequestState, StoredAnswer, Task};
use punctual_engine::{Engine, IdSource, SubmitError, SubmitRequest, Submitted};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often a client resubmits jobs whose outcome it does not know. Each retry may create one more job.
const TRIES_MAX: u64 = 4;
/// The latest known jobs from which a new one draws its dependencies.
const PARENTS_AMONG: usize = 6;

pub struct Clients {
    pub(crate) cluster: Arc<SimCluster>,
    pub(crate) rng: Mutex<Rng>,
    pub(crate) ledger: Mutex<ClientLedger>,
    pub(crate) setting: WorkloadSetting,
}

/// The clients' progress, and the jobs that they know.
#[derive(Debug, Default)]
pub(crate) struct ClientLedger {
    /// Requests that are not answered or not sent yet.
    open: usize,
    /// Jobs sent, counting repeats.
    sent: usize,
    /// Requests with a key.
    keyed: u64,
    is_all_resumed: bool,
    pub(crate) jobs: Vec<KnownJob>,
}

/// A job that a client knows from a response.
#[derive(Debug, Clone)]
pub(crate) struct KnownJob {
    pub id: JobId,
    /// As the client last described it.
    pub spec: JobSpec,
    pub version: u32,
}

impl ClientLedger {
    pub(crate) fn updated(&mut self, id: JobId, spec: JobSpec, version: u32) {
        if let Some(known) = self.jobs.iter_mut().find(|known| known.id == id) {
            *known = KnownJob { id, spec, version };
        }
    }
}

impl Clients {
    pub fn new(cluster: Arc<SimCluster>, rng: Rng, setting: WorkloadSetting) -> Arc<Self> {
        Arc::new(Clients { cluster, rng: Mutex::new(rng), ledger: Mutex::default(), setting })
    }

    pub fn begin(self: &Arc<Self>, workload: Workload) {
        let Workload { submissions, actions, limits } = workload;
        lock(&self.ledger).open = submissions.len() + actions.len() + limits.len();
        let executor = &self.cluster.world.executor;
        for (queue, settings) in limits {
            let clients = self.clone();
            executor.spawn_in_world(async move {
                clients.cluster.world.executor.sleep(UP_AND_RUNNING).await;
                clients.limit(queue, settings).await;
                lock(&clients.ledger).open -= 1;
            });
        }
        for submission in submissions {
            let clients = self.clone();
            executor.spawn_in_world(async move {
                clients.cluster.world.executor.sleep(submission.after).await;
                clients.submit(submission).await;
                lock(&clients.ledger).open -= 1;
            });
        }
        for after in actions {
            let clients = self.clone();
            executor.spawn_in_world(async move {
                clients.cluster.world.executor.sleep(after).await;
                clients.act().await;
                lock(&clients.ledger).open -= 1;
            });
        }
    }

    /// From now on clients only resume jobs and queues that they have left paused.
    pub fn tidy_up(self: &Arc<Self>) {
        let clients = self.clone();
        self.cluster.world.executor.spawn_in_world(async move {
            while lock(&clients.ledger).open > 0 {
                clients.cluster.world.executor.sleep(Duration::from_millis(100)).await;
            }
            loop {
                clients.speed_up().await;
                clients.resume_all().await;
                lock(&clients.ledger).is_all_resumed = true;
                // A request that its client has abandoned may still be in flight.
                clients.cluster.world.executor.sleep(Duration::from_secs(1)).await;
            }
        });
    }

    pub fn are_done(&self) -> bool {
        let ledger = lock(&self.ledger);
        ledger.open == 0 && ledger.is_all_resumed
    }

    /// The maximum number of jobs that can exist.
    pub fn jobs_max(&self) -> usize {
        lock(&self.ledger).sent
    }

    async fn submit(&self, submission: Submission) {
        let Submission { mut jobs, parents, is_keyed, .. } = submission;
        jobs.iter_mut().for_each(|job| self.depend(job, parents));
        if is_keyed {
            return self.submit_keyed(jobs).await;
        }
        let tries = lock(&self.rng).between(1, TRIES_MAX);
        for _ in 0..tries {
            lock(&self.ledger).sent += jobs.len();
            let sent = jobs.clone();
            let answer = self.ask(Duration::from_secs(5), move |engine| {
                let jobs = sent.clone();
                Box::pin(async move { engine.submit(jobs).await })
            });
            jobs = match answer.await {
                Ok(answers) => jobs
                    .into_iter()
                    .zip(answers)
                    .filter_map(|(job, answer)| self.is_unknown(&job, answer).then_some(job))
                    .collect(),
                Err(NoAnswer) => jobs,
            };
            if jobs.is_empty() {
                return;
            }
            self.pause_before_retry().await;
        }
    }

    /// Submits under a key: the same jobs get the same ids in every try, and a stored response is repeated.
    async fn submit_keyed(&self, jobs: Vec<JobSpec>) {
        let (key, seed, tries) = {
            let mut ledger = lock(&self.ledger);
            ledger.sent += jobs.len();
            ledger.keyed += 1;
            let mut rng = lock(&self.rng);
            (ledger.keyed, rng.next(), rng.between(1, TRIES_MAX))
        };
        let request = RequestKey { token: "clients".to_owned(), key: key.to_string() };
        for round in 0..tries {
            let new = NewRequest { request: request.clone(), fingerprint: [7; 32], seed: seed ^ round };
            let sent = jobs.clone();
            let answer = self.ask(Duration::from_secs(5), move |engine| {
                let (jobs, new) = (sent.clone(), new.clone());
                Box::pin(async move { submit_once(&engine, jobs, new).await })
            });
            match answer.await {
                Ok(Some(answers)) => {
                    for (job, answer) in jobs.iter().zip(answers) {
                        self.is_unknown(job, answer);
                    }
                    return;
                }
                Ok(None) if round > 0 => return,
                Ok(None) | Err(NoAnswer) => self.pause_before_retry().await,
            }
        }
    }

    async fn pause_before_retry(&self) {
        let world = &self.cluster.world;
        world.count("submits with unknown outcome");
        let pause = lock(&self.rng).millis(10, 2_000);
        world.executor.sleep(pause).await;
    }

    /// Makes a one-time job depend on some of the latest known ones.
    fn depend(&self, job: &mut JobSpec, parents: usize) {
        if !job.settings.schedule.is_one_shot() {
            return;
        }
        let ledger = lock(&self.ledger);
        let latest = &ledger.jobs[ledger.jobs.len().saturating_sub(PARENTS_AMONG)..];
        let mut rng = lock(&self.rng);
        for _ in 0..parents {
            let one_shots = latest.iter().filter(|known| known.spec.settings.schedule.is_one_shot());
            let one_shots: Vec<JobId> = one_shots.map(|known| known.id).collect();
            if !one_shots.is_empty() {
                job.settings.depends_on.push(*rng.pick(&one_shots));
            }
        }
        job.settings.depends_on.sort_unstable();
        job.settings.depends_on.dedup();
    }

    /// Sends a request to any scheduler.
    pub(crate) async fn ask<R: Send + 'static>(
        &self,
        wait: Duration,
        ask: impl Fn(Arc<Engine>) -> Task<R> + Send + Sync + 'static,
    ) -> Result<R, NoAnswer> {
        let network = &self.cluster.network;
        let target = network.any_scheduler(self.cluster.topology.schedulers);
        network.ask(Sender::Client, target, wait, Arc::new(ask)).await
    }

    fn is_unknown(&self, job: &JobSpec, answer: Result<Submitted, SubmitError>) -> bool {
        let world = &self.cluster.world;
        match answer {
            Ok(submitted) => {
                let id = submitted.job;
                world.note(format_args!("client: job {id} is acknowledged"));
                world.audit(|auditor| auditor.acknowledged(id));
                let mut ledger = lock(&self.ledger);
                if ledger.jobs.iter().all(|known| known.id != id) {
                    ledger.jobs.push(KnownJob { id, spec: job.clone(), version: 1 });
                }
                false
            }
            // It reached the server only after its schedule had ended or its expiry had passed.
            Err(SubmitError::Invalid(problems))
                if problems.iter().all(|problem| ["end_at", "expires_at"].contains(&&*problem.field)) =>
            {
                world.count("submits after their schedule's end");
                false
            }
            Err(SubmitError::Invalid(problems))
                if !job.settings.depends_on.is_empty()
                    && problems.iter().all(|problem| problem.field == "depends_on") =>
            {
                false
            }
            Err(SubmitError::Invalid(problems)) => {
                let detail = format!("{job:?} was refused: {problems:?}");
                world.object(AuditViolation { rule: "a valid job is accepted", detail });
                false
            }
            Err(error @ (SubmitError::Forbidden(_) | SubmitError::QuotaReached { .. })) => {
                let detail = format!("{job:?} was refused: {error}");
                world.object(AuditViolation { rule: "a valid job is accepted", detail });
                false
            }
            Err(SubmitError::KeyTaken(_)) => false,
            Err(SubmitError::QueueFull { queue, full }) => {
                world.audit(|auditor| auditor.saw_full_queue(&queue, full));
                false
            }
            Err(SubmitError::Unreadable(reason)) => {
                world.object(AuditViolation { rule: "all rows can be read", detail: reason });
                false
            }
            Err(SubmitError::Unavailable(_)) => true,
        }
    }
}

/// Runs a request with a key as the API does; `None` if it was answered before or could not be.
async fn submit_once(
    engine: &Engine,
    jobs: Vec<JobSpec>,
    new: NewRequest,
) -> Option<Vec<Result<Submitted, SubmitError>>> {
    let request = new.request.clone();
    let RequestState::Begun { at, seed, .. } = engine.store().begin_request(engine.now(), new).await.ok()?
    else {
        return None;
    };
    let submit = SubmitRequest { ids: Some(IdSource { at, seed }), ..SubmitRequest::default() };
    let answers = engine.submit_from(jobs.into_iter().map(Ok).collect(), submit).await;
    if answers.iter().all(|answer| !matches!(answer, Err(SubmitError::Unavailable(_)))) {
        let answer = StoredAnswer { status: 201, location: None, body: format!("{}", answers.len()) };
        engine.store().answer_request(request, answer).await.ok()?;
    }
    Some(answers)
}
