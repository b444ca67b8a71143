//! What queues hold and which workers serve them, at one moment: the input for computing how many workers are
//! needed.

use crate::Api;
use crate::overview::Overview;
use punctual_core::ports::{Depth, StoreError};
use punctual_core::scaling::QueueLoad;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub struct Capacity {
    /// By queue. Without paused queues: their work waits for a resume, not for workers.
    depths: BTreeMap<String, Vec<Depth>>,
    overview: Arc<Overview>,
}

impl Capacity {
    pub async fn read(api: &Api) -> Result<Self, StoreError> {
        Ok(Capacity::of(api.overview().await?))
    }

    /// The same, from an overview that was already read.
    pub fn of(overview: Arc<Overview>) -> Self {
        let mut depths: BTreeMap<String, Vec<Depth>> = BTreeMap::new();
        for depth in &overview.depths {
            let mut depth = depth.clone();
            if overview.paused.contains(depth.lane.queue()) {
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
                queued: all.queued + load.queued,
                running: all.running + load.running,
                oldest_wait: all.oldest_wait.max(load.oldest_wait),
                ..all
            }
        })
    }
}
