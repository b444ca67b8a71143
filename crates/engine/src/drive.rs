//! A driven clock, for testing schedules. It advances from one due time to the next, and everything that is
//! due is fired and run in between; or it jumps, as if the server had been down.
//!
//! Only this module moves the clock. The fire loop still does the firing: this module adds what is due to its
//! agenda, and reads from the store whether it has fired and whether nothing is left to run. All waits are in
//! real time.

use crate::{Engine, EngineContext};
use punctual_core::cluster_pause::is_paused;
use punctual_core::ids::SegmentSet;
use punctual_core::limits;
use punctual_core::ports::{DrivenClock, DueKind, Lane, StoreError};
use punctual_core::time::{Monotonic, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;

/// Pause between two reads of the store.
const LOOK_PAUSE: Duration = Duration::from_millis(1);
/// Due entries that one read returns of each kind and segment.
const LOOK_LIMIT: usize = 256;

/// Where to drive the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drive {
    pub to: Timestamp,
    /// How long to wait at each stop until no runnable execution is left; zero for no wait.
    pub settle: Duration,
}

/// How far the clock was moved, and what happened on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Driven {
    pub now: Timestamp,
    /// Occurrences that schedules fired.
    pub fired: u64,
    /// Occurrences that schedules skipped.
    pub skipped: u64,
    /// Whether nothing is left that is due, queued for a worker or running.
    pub settled: bool,
    /// Whether a limit was reached before the requested time.
    pub more: bool,
}

impl Engine {
    /// Advances the clock: stops at every due time on the way, until everything that is due is fired and has
    /// run.
    pub async fn advance(&self, clock: &dyn DrivenClock, drive: Drive) -> Result<Driven, StoreError> {
        let _alone = self.driving.lock().await;
        let mut journey = Journey::begin(&self.context, drive.settle);
        let mut steps = 0;
        // Work that started before may have more to do at the present time, or a retry due on the way.
        while journey.rest(self.now()).await? && self.now() < drive.to && steps < limits::ADVANCE_STEPS_MAX {
            let next = self.context.next_due(drive.to).await?.unwrap_or(drive.to);
            self.context.set(clock, next);
            steps += 1;
        }
        journey.end(drive.to).await
    }

    /// Jumps the clock, as if no server had been running meanwhile: missed occurrences follow their misfire
    /// policy.
    pub async fn jump(&self, clock: &dyn DrivenClock, drive: Drive) -> Result<Driven, StoreError> {
        let _alone = self.driving.lock().await;
        let mut journey = Journey::begin(&self.context, drive.settle);
        self.context.set(clock, drive.to);
        journey.rest(drive.to).await?;
        journey.end(drive.to).await
    }
}

impl EngineContext {
    fn set(&self, clock: &dyn DrivenClock, to: Timestamp) {
        clock.set(to);
        self.agenda.wake();
    }

    /// The earliest time up to `until` at which anything is due.
    async fn next_due(&self, until: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let due = self.store.due(SegmentSet::ALL, until, 1).await?;
        Ok(due.first().map(|entry| entry.at))
    }

    /// Executions that run, or wait only for a free slot of an existing worker.
    async fn busy(&self) -> Result<u64, StoreError> {
        let depths = self.store.depths().await?;
        let running = depths.iter().map(|depth| depth.running).fold(0, u64::saturating_add);
        if depths.iter().all(|depth| depth.queued == 0) {
            return Ok(running);
        }
        let sessions = self.store.sessions().await?;
        let handled: BTreeSet<&str> =
            sessions.iter().flat_map(|session| &session.job_types).map(String::as_str).collect();
        let paused = self.store.paused_queues().await?;
        let is_claimable =
            |lane: &Lane| handled.contains(lane.job_type()) && !is_paused(&paused, lane.queue());
        let queued = depths.iter().filter(|depth| is_claimable(&depth.lane));
        Ok(queued.map(|depth| depth.queued).fold(running, u64::saturating_add))
    }
}

/// One request to drive the clock.
struct Journey<'a> {
    context: &'a EngineContext,
    settle: Duration,
    /// When it must end, in real time.
    ends_at: Monotonic,
    fired_before: u64,
    skipped_before: u64,
    /// Executions for which an earlier stop has waited in vain; later stops do not wait for as many again.
    stuck: u64,
}

impl<'a> Journey<'a> {
    fn begin(context: &'a EngineContext, settle: Duration) -> Self {
        let counted = context.counters.snapshot();
        Journey {
            context,
            settle,
            ends_at: context.host.clock.monotonic().plus(limits::ADVANCE_TIME_MAX),
            fired_before: counted.fired,
            skipped_before: counted.skipped,
            stuck: 0,
        }
    }

    /// Stays at `now` until everything due by then is fired, and for a bounded time until nothing is left to
    /// run. Returns whether there is time to continue.
    async fn rest(&mut self, now: Timestamp) -> Result<bool, StoreError> {
        let context = self.context;
        let clock = &context.host.clock;
        let settled_by = clock.monotonic().plus(self.settle).min(self.ends_at);
        let mut shown = BTreeSet::new();
        loop {
            let is_fired = self.show_due(now, &mut shown).await?;
            let busy = if is_fired && !self.settle.is_zero() { context.busy().await? } else { 0 };
            let looked_at = clock.monotonic();
            if is_fired && (busy <= self.stuck || looked_at >= settled_by) {
                self.stuck = busy;
                return Ok(looked_at < self.ends_at);
            }
            if looked_at >= self.ends_at {
                return Ok(false);
            }
            clock.sleep(LOOK_PAUSE).await;
        }
    }

    /// Adds what is due to the fire loop's agenda, each entry once, because the loop may be firing it
    /// already. Returns whether nothing is due.
    async fn show_due(&self, now: Timestamp, shown: &mut BTreeSet<DueKind>) -> Result<bool, StoreError> {
        let context = self.context;
        let due = context.store.due(SegmentSet::ALL, now, LOOK_LIMIT).await?;
        let is_fired = due.is_empty();
        for entry in due {
            let what = entry.what;
            if !shown.contains(&what) && context.agenda.add(now, entry) {
                shown.insert(what);
            }
        }
        Ok(is_fired)
    }

    async fn end(self, to: Timestamp) -> Result<Driven, StoreError> {
        let (context, now) = (self.context, self.context.time.now());
        let is_fired = context.next_due(now).await?.is_none();
        // Fires in the store are counted once their batch has finished.
        let _fired = context.firing.lock().await;
        let counted = context.counters.snapshot();
        Ok(Driven {
            now,
            fired: counted.fired.saturating_sub(self.fired_before),
            skipped: counted.skipped.saturating_sub(self.skipped_before),
            settled: is_fired && context.busy().await? == 0,
            more: now < to,
        })
    }
}
