//! The demand for workers, for those that adapt to it. One read of the store answers all requests within a
//! moment.

use crate::EngineContext;
use punctual_core::cluster_pause::is_paused;
use punctual_core::limits;
use punctual_core::ports::{Depth, Served, StoreError};
use punctual_core::slots::Demand;
use punctual_core::time::Monotonic;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The lanes with claimable work, and when they were read. Locked during the read, so that concurrent
/// requests cause only one.
#[derive(Debug, Default)]
pub(crate) struct Demands(Mutex<Option<(Monotonic, Arc<Vec<Depth>>)>>);

impl EngineContext {
    pub(crate) async fn demand(&self, served: &Served) -> Result<Demand, StoreError> {
        let lanes = self.claimable().await?;
        let now = self.time.now();
        let mut demand = Demand::default();
        for depth in lanes.iter().filter(|depth| served.has(&depth.lane)) {
            demand.queued = demand.queued.saturating_add(depth.queued);
            let wait = depth.oldest_queued.map_or(Duration::ZERO, |since| now.since(since));
            demand.oldest_wait = demand.oldest_wait.max(wait);
        }
        Ok(demand)
    }

    /// The lanes with queued work that may be claimed, according to the counters.
    pub(crate) async fn claimable(&self) -> Result<Arc<Vec<Depth>>, StoreError> {
        let mut kept = self.demands.0.lock().await;
        let now = self.host.clock.monotonic();
        if let Some((looked_at, lanes)) = &*kept
            && now.since(*looked_at) < limits::DEMAND_KEPT
        {
            return Ok(lanes.clone());
        }
        // Work in a paused queue waits for a resume, not for workers.
        let paused = self.store.paused_queues().await?;
        let mut lanes = self.store.depths().await?;
        lanes.retain(|depth| depth.queued > 0 && !is_paused(&paused, depth.lane.queue()));
        let lanes = Arc::new(lanes);
        *kept = Some((now, lanes.clone()));
        Ok(lanes)
    }
}
