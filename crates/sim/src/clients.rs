//! The clients: they submit the workload through whatever scheduler answers, and remember what they were told.

use crate::auditor::Violation;
use crate::cluster::Cluster;
use crate::lock;
use crate::network::{NoAnswer, Sender};
use crate::random::Rng;
use crate::workload::Submission;
use punctual_core::job::JobSpec;
use punctual_engine::{SubmitError, Submitted};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often a client asks again about jobs of which it knows nothing. Each time may leave one more job.
const TRIES_MAX: u64 = 4;

pub struct Clients {
    cluster: Arc<Cluster>,
    rng: Mutex<Rng>,
    ledger: Mutex<Ledger>,
}

/// What the clients have done.
#[derive(Debug, Default, Clone, Copy)]
struct Ledger {
    /// Requests that are not answered yet, or not made.
    open: usize,
    /// Jobs sent, each time that they were sent.
    sent: usize,
}

impl Clients {
    pub fn new(cluster: Arc<Cluster>, rng: Rng) -> Arc<Self> {
        Arc::new(Clients { cluster, rng: Mutex::new(rng), ledger: Mutex::default() })
    }

    pub fn submit_all(self: &Arc<Self>, submissions: Vec<Submission>) {
        lock(&self.ledger).open = submissions.len();
        for Submission { after, jobs } in submissions {
            let clients = self.clone();
            let executor = self.cluster.world.executor.clone();
            executor.clone().spawn_in_world(async move {
                executor.sleep(after).await;
                clients.submit(jobs).await;
                lock(&clients.ledger).open -= 1;
            });
        }
    }

    pub fn are_done(&self) -> bool {
        lock(&self.ledger).open == 0
    }

    /// How many jobs there can be at most.
    pub fn jobs_max(&self) -> usize {
        lock(&self.ledger).sent
    }

    async fn submit(&self, mut jobs: Vec<JobSpec>) {
        let world = &self.cluster.world;
        let tries = lock(&self.rng).between(1, TRIES_MAX);
        for _ in 0..tries {
            lock(&self.ledger).sent += jobs.len();
            let answers = self.ask(jobs.clone()).await;
            jobs = match answers {
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
            world.count("submits of unknown fate");
            let pause = lock(&self.rng).millis(10, 2_000);
            world.executor.sleep(pause).await;
        }
    }

    async fn ask(&self, jobs: Vec<JobSpec>) -> Result<Vec<Result<Submitted, SubmitError>>, NoAnswer> {
        let network = &self.cluster.network;
        let target = network.any_scheduler(self.cluster.topology.schedulers);
        let ask = Arc::new(move |engine: Arc<punctual_engine::Engine>| {
            let jobs = jobs.clone();
            let task: punctual_core::ports::Task<_> = Box::pin(async move { engine.submit(jobs).await });
            task
        });
        network.ask(Sender::Client, target, Duration::from_secs(5), ask).await
    }

    fn is_unknown(&self, job: &JobSpec, answer: Result<Submitted, SubmitError>) -> bool {
        let world = &self.cluster.world;
        match answer {
            Ok(submitted) => {
                world.note(format_args!("client: job {} is acknowledged", submitted.job));
                world.audit(|auditor| auditor.acknowledged(submitted.job));
                false
            }
            // It reached the server only after its schedule had ended.
            Err(SubmitError::Invalid(problems))
                if problems.iter().all(|problem| problem.field == "end_at") =>
            {
                world.count("submits after their schedule's end");
                false
            }
            Err(SubmitError::Invalid(problems)) => {
                let detail = format!("{job:?} was refused: {problems:?}");
                world.object(Violation { rule: "a valid job is accepted", detail });
                false
            }
            Err(SubmitError::Unavailable(_)) => true,
        }
    }
}
