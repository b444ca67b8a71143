//! Time that someone drives, to try out schedules. It passes from one due time to the next, with all that is due
//! fired and run in between; or it leaps, as if the server had been down.
//!
//! The clock is moved here and nowhere else. Firing stays with the fire loop, which is shown what has come due;
//! whether it has fired, and whether all is quiet, is read from the store. All waits are in real time.

use crate::{Context, Engine};
use punctual_core::ids::SegmentSet;
use punctual_core::limits;
use punctual_core::ports::{DrivenClock, DueKind, Lane, StoreError};
use punctual_core::time::{Monotonic, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;

/// Pause between two looks at the store.
const LOOK_PAUSE: Duration = Duration::from_millis(1);
/// Due entries that one look takes of each kind and segment.
const LOOK_LIMIT: usize = 256;

/// Where to drive the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drive {
    pub to: Timestamp,
    /// How long to wait at each stop until nothing runs that could; zero not to wait.
    pub settle: Duration,
}

/// How far the clock was driven, and what happened on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Driven {
    pub now: Timestamp,
    /// Occurrences that schedules began.
    pub fired: u64,
    /// Occurrences that schedules skipped.
    pub skipped: u64,
    /// Whether nothing that is due, queued for a worker or running is left.
    pub settled: bool,
    /// Whether a limit came before the time that was asked for.
    pub more: bool,
}

impl Engine {
    /// Lets time pass: stops at every due time on the way, until all that is due is fired and has run.
    pub async fn advance(&self, clock: &dyn DrivenClock, drive: Drive) -> Result<Driven, StoreError> {
        let _alone = self.driving.lock().await;
        let mut journey = Journey::begin(&self.context, drive.settle);
        let mut steps = 0;
        // What has begun before may have more to do at the present time, and a retry due on the way.
        while journey.rest(self.now()).await? && self.now() < drive.to && steps < limits::ADVANCE_STEPS_MAX {
            let next = self.context.next_due(drive.to).await?.unwrap_or(drive.to);
            self.context.set(clock, next);
            steps += 1;
        }
        journey.end(drive.to).await
    }

    /// Lets time leap, as if nobody had been there meanwhile: what was missed follows its misfire policy.
    pub async fn jump(&self, clock: &dyn DrivenClock, drive: Drive) -> Result<Driven, StoreError> {
        let _alone = self.driving.lock().await;
        let mut journey = Journey::begin(&self.context, drive.settle);
        self.context.set(clock, drive.to);
        journey.rest(drive.to).await?;
        journey.end(drive.to).await
    }
}

impl Context {
    fn set(&self, clock: &dyn DrivenClock, to: Timestamp) {
        clock.set(to);
        self.agenda.wake();
    }

    /// The earliest time up to `until` at which anything is due.
    async fn next_due(&self, until: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let due = self.store.due(SegmentSet::ALL, until, 1).await?;
        Ok(due.first().map(|entry| entry.at))
    }

    /// Executions that run, or wait only for a free place at a worker that is there.
    async fn busy(&self) -> Result<u64, StoreError> {
        let depths = self.store.depths().await?;
        let running: u64 = depths.iter().map(|depth| depth.running).sum();
        if depths.iter().all(|depth| depth.queued == 0) {
            return Ok(running);
        }
        let sessions = self.store.sessions().await?;
        let handled: BTreeSet<&str> =
            sessions.iter().flat_map(|session| &session.job_types).map(String::as_str).collect();
        let paused = self.store.paused_queues().await?;
        let is_claimable = |lane: &Lane| {
            handled.contains(lane.job_type()) && !paused.iter().any(|paused| paused.queue == lane.queue())
        };
        let queued = depths.iter().filter(|depth| is_claimable(&depth.lane));
        Ok(running + queued.map(|depth| depth.queued).sum::<u64>())
    }
}

/// One request to drive the clock.
struct Journey<'a> {
    context: &'a Context,
    settle: Duration,
    /// When it must be over, in real time.
    ends_at: Monotonic,
    fired_before: u64,
    skipped_before: u64,
    /// Executions that an earlier stop has waited for in vain; later ones do not wait for as many again.
    stuck: u64,
}

impl<'a> Journey<'a> {
    fn begin(context: &'a Context, settle: Duration) -> Self {
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

    /// Stays at `now` until all that is due by then is fired, and for a bounded time until all is quiet. Returns
    /// whether there is time to go on.
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

    /// Shows the fire loop what is due, each entry once: it may be firing what it has seen. Returns whether nothing
    /// is.
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
        // What the store has is counted once its batch is through.
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
