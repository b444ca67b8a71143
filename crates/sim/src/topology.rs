//! The nodes of a run, with settings drawn from the seed.

use crate::random::Rng;
use crate::workload::{JOB_TYPES, QUEUES};
use punctual_engine::EngineConfig;
use punctual_worker::WorkerConfig;
use std::time::Duration;

/// How long the store's clock must run steadily after a jump. Longer than a jump lasts.
const RETENTION_HOLD: Duration = Duration::from_secs(20);

/// The nodes of a run. The first ones are schedulers, the others have only a worker.
#[derive(Debug, Clone)]
pub struct NodeTopology {
    pub schedulers: usize,
    pub engine: EngineConfig,
    /// Whether schedulers divide the segments among themselves; if not, each owns all of them.
    pub is_coordinated: bool,
    /// Whether schedulers send each other hints of queued work.
    pub has_hints: bool,
    /// The worker of each node, if any.
    pub workers: Vec<Option<WorkerPlan>>,
}

#[derive(Debug, Clone)]
pub struct WorkerPlan {
    pub config: WorkerConfig,
    pub job_types: Vec<String>,
}

impl NodeTopology {
    pub fn drawn(rng: &mut Rng) -> Self {
        let schedulers = rng.between(1, 5) as usize;
        let workers = rng.between(1, 8) as usize;
        let mut plans: Vec<Option<WorkerPlan>> = vec![None; schedulers];
        for number in 0..workers {
            let plan = Some(WorkerPlan::drawn(rng, number));
            let beside = rng.index(schedulers * 2);
            match plans.get_mut(beside) {
                Some(place) if beside < schedulers && place.is_none() => *place = plan,
                _ => plans.push(plan),
            }
        }
        let engine = engine_config(rng);
        NodeTopology {
            schedulers,
            engine,
            is_coordinated: rng.per_mille(850),
            has_hints: false,
            workers: plans,
        }
    }

    pub fn nodes(&self) -> usize {
        self.workers.len()
    }

    pub fn lease_max(&self) -> Duration {
        self.workers.iter().flatten().map(|plan| plan.config.lease).max().unwrap_or_default()
    }
}

impl WorkerPlan {
    /// The first worker serves everything, so that no job waits forever; others may be selective.
    fn drawn(rng: &mut Rng, number: usize) -> Self {
        let choosy = number > 0 && rng.per_mille(250);
        let some = |rng: &mut Rng, all: &[&str]| -> Vec<String> {
            let first = rng.index(all.len());
            all.iter().skip(first).map(|name| (*name).to_owned()).collect()
        };
        let config = WorkerConfig {
            name: format!("worker-{number}"),
            slots: rng.between(1, 4) as usize,
            prefetch: rng.below(4) as usize,
            queues: if choosy { some(rng, &QUEUES) } else { Vec::new() },
            version: None,
            host: None,
            lease: rng.millis(1_500, 6_000),
            embedded: false,
            drain_grace: rng.millis(500, 5_000),
            poll_wait: rng.millis(500, 20_000),
            error_pause: rng.millis(50, 300),
            ..WorkerConfig::default()
        };
        let job_types = JOB_TYPES.map(str::to_owned).to_vec();
        let job_types = if choosy && rng.per_mille(500) { some(rng, &JOB_TYPES) } else { job_types };
        WorkerPlan { config, job_types }
    }
}

fn engine_config(rng: &mut Rng) -> EngineConfig {
    let refill_interval = rng.millis(200, 1_500);
    EngineConfig {
        // A look-ahead shorter than the time between two reads would make every fire late.
        look_ahead: refill_interval + rng.millis(500, 5_000),
        refill_interval,
        dispatch_interval: rng.millis(200, 1_500),
        recover_interval: rng.millis(200, 1_500),
        retain_interval: rng.millis(2_000, 10_000),
        jobs_kept: rng.per_mille(250).then(|| rng.millis(3_000, 30_000)),
        history_kept: if rng.per_mille(200) {
            rng.millis(2_000, 20_000)
        } else {
            EngineConfig::default().history_kept
        },
        // The simulated clients are not audited.
        audit_interval: None,
        operations_interval: None,
        retention_hold: RETENTION_HOLD,
        resolve_interval: rng.millis(500, 5_000),
        clock_interval: rng.millis(500, 3_000),
        member_ttl: rng.millis(600, 4_000),
        // Mostly unlimited, so that runs with wrong clocks still show that nothing depends on them.
        clock_offset_max: if rng.per_mille(250) { rng.millis(30_000, 200_000) } else { Duration::MAX },
        ..EngineConfig::default()
    }
}
