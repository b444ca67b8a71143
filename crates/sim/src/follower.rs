//! A follower of finished executions, from the first one on: reads page by page, and some responses get lost.
//! The auditor knows what it must receive.

use crate::auditor::{AuditResult, AuditViolation};
use crate::database::SimDatabase;
use crate::lock;
use crate::random::Rng;
use crate::reads::StoreReads;
use crate::world::World;
use punctual_core::ports::{FinishedPage, StoreError};
use std::sync::{Arc, Mutex};

/// Maximum items per read: few, so that there are many pages.
const PAGE_ITEMS_MAX: u64 = 9;

pub struct EventFollower {
    pub world: Arc<World>,
    pub database: Arc<SimDatabase>,
    pub rng: Mutex<Rng>,
}

impl EventFollower {
    /// Follows for as long as the run lasts.
    pub async fn run(self) {
        let mut more = false;
        loop {
            if !more {
                let pause = lock(&self.rng).millis(20, 4_000);
                self.world.executor.sleep(pause).await;
            }
            let limit = lock(&self.rng).between(1, PAGE_ITEMS_MAX) as usize;
            let answer = self.database.read(move |world, reads| page(world, reads, limit)).await;
            more = answer.as_ref().is_ok_and(|page| page.more);
            if let Ok(page) = answer {
                self.world.tell(|auditor| auditor.followed_to(&page));
            }
        }
    }
}

/// After the end of a run: follows to the end of history.
pub fn catch_up(world: &World, database: &SimDatabase) -> AuditResult {
    loop {
        let read = database.read_now(|reads| page(world, reads, PAGE_ITEMS_MAX as usize));
        let page = read
            .map_err(|error| AuditViolation { rule: "the store can be read", detail: error.to_string() })?;
        world.tell(|auditor| auditor.followed_to(&page));
        if !page.more || world.is_broken() {
            return Ok(());
        }
    }
}

fn page(world: &World, reads: &mut StoreReads<'_>, limit: usize) -> Result<FinishedPage, StoreError> {
    let page = reads.finished_after(world.ask(|auditor| auditor.follows_after()), limit)?;
    let span = reads.history_span()?;
    world.audit(|auditor| auditor.read_finished(limit, &page, span));
    Ok(page)
}
