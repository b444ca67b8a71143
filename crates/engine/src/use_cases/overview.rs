//! What is live by lane and which workers serve it, at one moment. If there are many lanes, one read serves
//! all requests within a second: scrapers, dashboards and autoscalers ask often, and each read scans every
//! lane in use.

use super::{UseCase, UseCaseError, UseCases};
use punctual_core::cluster_pause::is_paused;
use punctual_core::limits;
use punctual_core::ports::{Depth, PausedQueue, SessionRow, StoreError};
use punctual_core::scaling::QueueLoad;
use punctual_core::time::{Monotonic, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Mutex;

/// Live executions by lane, and the connected sessions.
#[derive(Debug)]
pub struct Overview {
    pub depths: Vec<Depth>,
    pub sessions: Vec<SessionRow>,
    pub paused: Vec<PausedQueue>,
    pub now: Timestamp,
}

/// The last overview, if it is large enough to be cached. Locked while the next one is read, so that
/// concurrent requests cost one read.
#[derive(Debug, Default)]
pub(crate) struct LastOverview(Mutex<Option<(Monotonic, Arc<Overview>)>>);

impl UseCases {
    pub(super) async fn overview(&self) -> Result<Arc<Overview>, StoreError> {
        let context = &self.engine.context;
        let mut last = context.overview.0.lock().await;
        if let Some((read_at, overview)) = &*last
            && context.host.clock.monotonic().since(*read_at) < limits::OVERVIEW_KEPT
        {
            return Ok(overview.clone());
        }
        *last = None;
        let store = self.store();
        let (depths, sessions) = (store.depths().await?, store.sessions().await?);
        let paused = store.paused_queues().await?;
        let overview = Arc::new(Overview { depths, sessions, paused, now: self.now() });
        if overview.depths.len() + overview.sessions.len() > limits::OVERVIEW_KEPT_FROM {
            *last = Some((context.host.clock.monotonic(), overview.clone()));
        }
        Ok(overview)
    }

    /// The load of queues, for autoscalers.
    pub async fn capacity(&self) -> Result<Capacity, UseCaseError> {
        self.permit(UseCase::ReadServer)?;
        Ok(Capacity::of(self.overview().await?))
    }

    /// The load of the queue with this name, for a caller that may see it.
    pub async fn capacity_of(&self, queue: &str) -> Result<Capacity, UseCaseError> {
        let object = format!("queue {queue}");
        self.permit_on(UseCase::ReadQueues, &object)?;
        self.noted(UseCase::ReadQueues, object, self.caller.check_queue(queue))?;
        Ok(Capacity::of(self.overview().await?))
    }
}

/// What queues hold and which workers serve them, at one moment: the input for computing how many workers are
/// needed.
#[derive(Debug)]
pub struct Capacity {
    /// By queue. Without paused queues: their work waits for a resume, not for workers.
    depths: BTreeMap<String, Vec<Depth>>,
    overview: Arc<Overview>,
}

impl Capacity {
    pub fn of(overview: Arc<Overview>) -> Self {
        let mut depths: BTreeMap<String, Vec<Depth>> = BTreeMap::new();
        for depth in &overview.depths {
            let mut depth = depth.clone();
            if is_paused(&overview.paused, depth.lane.queue()) {
                (depth.queued, depth.oldest_queued) = (0, None);
            }
            depths.entry(depth.lane.queue().to_owned()).or_default().push(depth);
        }
        Capacity { depths, overview }
    }

    /// The queues that hold work or have dedicated workers.
    pub fn queues(&self) -> BTreeSet<&str> {
        let served = self.overview.sessions.iter().flat_map(|row| row.about.queues.iter());
        self.depths.keys().chain(served).map(String::as_str).collect()
    }

    /// The load of one queue.
    pub fn load(&self, queue: &str) -> QueueLoad {
        let depths = self.depths.get(queue).map_or(&[][..], Vec::as_slice);
        QueueLoad::of(Some(queue), depths, &self.overview.sessions, self.overview.now)
    }

    /// The load of all queues together.
    pub fn load_of_all(&self) -> QueueLoad {
        let served = QueueLoad::of(None, &[], &self.overview.sessions, self.overview.now);
        self.depths.values().fold(served, |all, depths| {
            let load = QueueLoad::of(None, depths, &[], self.overview.now);
            QueueLoad {
                queued: all.queued.saturating_add(load.queued),
                running: all.running.saturating_add(load.running),
                oldest_wait: all.oldest_wait.max(load.oldest_wait),
                ..all
            }
        })
    }
}
