//! What is live by lane and which workers serve it, at one moment. If there are many lanes, one read serves
//! all requests within a second: scrapers, dashboards and autoscalers ask often, and each read scans every
//! lane in use.

use crate::Api;
use punctual_core::limits;
use punctual_core::ports::{Depth, SessionRow, StoreError};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Live executions by lane, and the connected sessions.
#[derive(Debug)]
pub struct Overview {
    pub depths: Vec<Depth>,
    pub sessions: Vec<SessionRow>,
    pub paused: BTreeSet<String>,
    pub now: Timestamp,
}

/// The last overview, if it is large enough to be cached. Locked while the next one is read, so that
/// concurrent requests cost one read.
#[derive(Debug, Default)]
pub struct LastOverview(Mutex<Option<(Instant, Arc<Overview>)>>);

impl Api {
    pub async fn overview(&self) -> Result<Arc<Overview>, StoreError> {
        let mut last = self.overview.0.lock().await;
        if let Some((read_at, overview)) = &*last
            && read_at.elapsed() < limits::OVERVIEW_KEPT
        {
            return Ok(overview.clone());
        }
        *last = None;
        let store = self.store();
        let (depths, sessions) = (store.depths().await?, store.sessions().await?);
        let paused = store.paused_queues().await?.into_iter().map(|paused| paused.queue).collect();
        let overview = Arc::new(Overview { depths, sessions, paused, now: self.engine.now() });
        if overview.depths.len() + overview.sessions.len() > limits::OVERVIEW_KEPT_FROM {
            *last = Some((Instant::now(), overview.clone()));
        }
        Ok(overview)
    }
}
