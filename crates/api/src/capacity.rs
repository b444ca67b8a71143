//! What queues hold and who serves them, at one moment: what the need for workers is told from.

use crate::Api;
use punctual_core::ports::{Depth, SessionRow, StoreError};
use punctual_core::scaling::QueueLoad;
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

pub struct Capacity {
    /// Without what paused queues hold: that waits for people, not for workers.
    depths: Vec<Depth>,
    sessions: Vec<SessionRow>,
    now: Timestamp,
}

impl Capacity {
    pub async fn read(api: &Api) -> Result<Self, StoreError> {
        let (depths, sessions) = (api.store().depths().await?, api.store().sessions().await?);
        Capacity::of(api, depths, sessions).await
    }

    /// The same of what was read already.
    pub async fn of(
        api: &Api,
        mut depths: Vec<Depth>,
        sessions: Vec<SessionRow>,
    ) -> Result<Self, StoreError> {
        let paused = api.store().paused_queues().await?;
        for depth in &mut depths {
            if paused.iter().any(|paused| paused.queue == depth.lane.queue()) {
                (depth.queued, depth.oldest_queued) = (0, None);
            }
        }
        Ok(Capacity { depths, sessions, now: api.engine.now() })
    }

    /// The queues that have something in them, or workers of their own.
    pub fn queues(&self) -> BTreeSet<String> {
        let filled = self.depths.iter().map(|depth| depth.lane.queue().to_owned());
        filled.chain(self.sessions.iter().flat_map(|row| row.about.queues.iter().cloned())).collect()
    }

    /// Of one queue, or of all for `None`.
    pub fn load(&self, queue: Option<&str>) -> QueueLoad {
        QueueLoad::of(queue, &self.depths, &self.sessions, self.now)
    }
}
