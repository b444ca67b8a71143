//! Fires what is due: schedules, the time gates of waiting attempts, expiries. Due times come from scans of
//! the store ahead of time and from commits of this node.

use crate::agenda::segment_of;
use crate::pause::ErrorPause;
use crate::poll_registry::ReservedSlots;
use crate::traces::FiredRun;
use crate::{Duties, EngineContext};
use futures_util::future::{join, pending, select};
use punctual_core::ids::{OccurrenceId, Segment};
use punctual_core::limits;
use punctual_core::ports::{
    Due, DueKind, FireOutcome, FireRequest, Lane, LookOutcome, LookRequest, StoreError, Task,
};
use punctual_core::time::{Monotonic, Timestamp};
use std::pin::pin;
use std::time::Duration;

/// Entries that one scan reads of each kind and segment. A scan that returns a full page is repeated as soon
/// as its entries have been fired.
const SCAN_LIMIT: usize = 256;
/// The maximum age of the store's time for a fire: a clock that is set back is noticed within this time.
const CLOCK_AGE_MAX: Duration = Duration::from_millis(100);

pub(crate) async fn fire(context: &EngineContext) {
    let clock = &context.host.clock;
    // `None` on a node that fires only its own commits.
    let mut next = (context.config.duties == Duties::Everything).then(|| NextScan::at(clock.monotonic()));
    // Two pauses, because a store that can be read may still not accept writes.
    let (mut read_pause, mut write_pause) = (ErrorPause::default(), ErrorPause::default());
    loop {
        // Newly acquired segments are scanned at once.
        if next.is_some_and(|next| context.cluster.take_scan() || next.is_due(context)) {
            next = Some(refill(context, &mut read_pause).await);
        }
        if context.agenda.next_due().is_some_and(|at| at <= context.time.now())
            && let Err(error) = context.time.refresh(&*context.store, CLOCK_AGE_MAX).await
        {
            tracing::debug!(%error, "the store's time could not be read");
        }
        let due = context.agenda.take_due(context.time.now(), limits::STORE_BATCH_MAX);
        if due.is_empty() {
            sleep_until_due(context, next).await;
            continue;
        }
        // Only entries that this node does not scan again.
        let scanned = context.scanned();
        let kept = due.iter().filter(|entry| !scanned.contains(segment_of(entry))).cloned().collect();
        match fire_batch(context, due).await {
            Ok(conflicts) => {
                write_pause.succeeded();
                // Another node has fired schedules that this node owns, and leaves their next times to the
                // owner's scan.
                if conflicts > 0 && context.is_coordinated() {
                    let soon = clock.monotonic().plus(context.config.refill_interval / 20);
                    next = next.map(|next| next.no_later_than(soon));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "due work could not be fired; retrying");
                context.counters.store_errors.add(1);
                clock.sleep(write_pause.failed()).await;
                next = next.map(|_| NextScan::at(clock.monotonic()));
                hold_again(context, kept);
            }
        }
    }
}

/// When to scan for due times next.
#[derive(Clone, Copy)]
struct NextScan {
    /// The earliest time, once no due entry is held: after a full page, a scan finds nothing new before its
    /// entries are fired.
    idle_at: Monotonic,
    /// The latest time.
    at: Monotonic,
}

impl NextScan {
    fn at(at: Monotonic) -> Self {
        NextScan { idle_at: at, at }
    }

    fn no_later_than(self, at: Monotonic) -> Self {
        NextScan { idle_at: self.idle_at.min(at), at: self.at.min(at) }
    }

    fn is_due(self, context: &EngineContext) -> bool {
        let now = context.host.clock.monotonic();
        let holds_due = || context.agenda.next_due().is_some_and(|at| at <= context.time.now());
        now >= self.at || (now >= self.idle_at && !holds_due())
    }
}

/// Adds entries again that were taken to be fired and may not have been.
fn hold_again(context: &EngineContext, due: Vec<Due>) {
    let now = context.time.now();
    for entry in due {
        context.agenda.add(now, entry);
    }
}

/// Scans ahead; returns when to do so again.
async fn refill(context: &EngineContext, read_pause: &mut ErrorPause) -> NextScan {
    let now = context.time.now();
    let (clock, config) = (&context.host.clock, &context.config);
    let segments = context.scanned();
    if segments.is_empty() {
        return NextScan::at(clock.monotonic().plus(config.refill_interval));
    }
    match context.store.due(segments, context.agenda.horizon(now), SCAN_LIMIT).await {
        Ok(due) => {
            read_pause.succeeded();
            let mut truncated = context.agenda.is_full();
            let mut counts = std::collections::BTreeMap::new();
            // Segments that moved to another node during the scan are that node's to fire.
            let segments = context.scanned();
            for entry in due.into_iter().filter(|entry| segments.contains(segment_of(entry))) {
                let count: &mut usize = counts.entry(source(&entry)).or_default();
                *count += 1;
                truncated |= *count >= SCAN_LIMIT;
                context.agenda.add(now, entry);
            }
            let next = NextScan::at(clock.monotonic().plus(config.refill_interval));
            // A full page hides later entries: scan again before its last entry is due.
            let soon = clock.monotonic().plus(config.refill_interval / 20);
            if truncated { NextScan { idle_at: soon, ..next } } else { next }
        }
        Err(error) => {
            tracing::warn!(%error, "due work could not be read");
            context.counters.store_errors.add(1);
            NextScan::at(clock.monotonic().plus(read_pause.failed()))
        }
    }
}

fn source(due: &Due) -> (bool, Segment) {
    (matches!(due.what, DueKind::Schedule { .. }), segment_of(due))
}

async fn sleep_until_due(context: &EngineContext, next: Option<NextScan>) {
    let host = &context.host;
    let refill: Task = match next {
        Some(next) => host.clock.sleep(next.idle_at.since(host.clock.monotonic())),
        None => Box::pin(pending()),
    };
    let due: Task = match context.agenda.next_due() {
        Some(at) => host.calendar.sleep(at.since(context.time.now())),
        None => Box::pin(pending()),
    };
    select(pin!(context.agenda.changed()), select(due, refill)).await;
}

/// Fires what is due, and returns how many schedules another node had fired or changed.
async fn fire_batch(context: &EngineContext, due: Vec<Due>) -> Result<usize, StoreError> {
    let _firing = context.firing.lock().await;
    let now = context.time.now();
    let (mut fires, mut looks) = (Vec::new(), Vec::new());
    let (entries, mut due) = (due, Vec::new());
    let (mut fire_places, mut look_places) = (ReservedSlots::default(), ReservedSlots::default());
    for entry in entries {
        match entry.what {
            DueKind::Schedule { job, version } => {
                let reservation = context.poll_registry.reserve(
                    &mut fire_places,
                    entry.lane.queue(),
                    entry.lane.job_type(),
                );
                fires.push(FireRequest { job, version, reservation });
                due.push((entry.at, entry.lane));
            }
            DueKind::Live { occurrence, attempt } => {
                let reservation = context.poll_registry.reserve(
                    &mut look_places,
                    entry.lane.queue(),
                    entry.lane.job_type(),
                );
                let reservation = reservation.map(|reservation| (reservation, entry.lane));
                looks.push(LookRequest { occurrence, attempt, reservation });
            }
        }
    }
    let (fired, opened) =
        join(fire_schedules(context, now, fires, due, fire_places), look(context, now, looks, look_places))
            .await;
    opened.and(fired)
}

async fn fire_schedules(
    context: &EngineContext,
    now: Timestamp,
    fires: Vec<FireRequest>,
    due: Vec<(Timestamp, Lane)>,
    places: ReservedSlots,
) -> Result<usize, StoreError> {
    if fires.is_empty() {
        return Ok(0);
    }
    context.measures.batches.fire.observe(fires.len() as u64);
    let outcomes = match context.fire_under_calendars(now, fires).await {
        Ok(outcomes) => outcomes,
        Err(error) => {
            context.poll_registry.settle_failed(places, &error.to_string());
            return Err(error);
        }
    };
    let mut all_effects = Vec::with_capacity(outcomes.len());
    let fired_at = context.time.now();
    let mut lateness = Vec::with_capacity(outcomes.len());
    let mut conflicts = 0;
    let mut traced = Vec::new();
    for (outcome, (due_at, lane)) in outcomes.into_iter().zip(due) {
        match outcome {
            FireOutcome::Fired { mut effects, occurrences, skipped } => {
                let late = fired_at.since(due_at);
                context.measures.fire_lateness.observe_duration(late);
                lateness.push(late);
                context.counters.fired.add(occurrences.len() as u64);
                context.events.touched(occurrences.iter().map(|(occurrence, _)| *occurrence));
                context.counters.skipped.add(skipped);
                if context.traces.is_some() {
                    traced.extend(occurrences.iter().map(|(occurrence, scheduled_time)| FiredRun {
                        occurrence: *occurrence,
                        scheduled_time: *scheduled_time,
                        lane: lane.clone(),
                        started_at: now,
                        ended_at: fired_at,
                        waits_for_limit: !effects.joined.is_empty(),
                    }));
                }
                context.hold_next(std::mem::take(&mut effects.due));
                all_effects.push(effects);
            }
            FireOutcome::Conflict => conflicts += 1,
            FireOutcome::NotDue | FireOutcome::UnknownCalendar(_) => {}
        }
    }
    if let Some(traces) = &context.traces {
        traces.fired(traced);
    }
    context.counters.fire_conflicts.add(conflicts as u64);
    context.note_lateness(lateness.into_iter());
    context.follow_up(all_effects, places);
    Ok(conflicts)
}

async fn look(
    context: &EngineContext,
    now: Timestamp,
    looks: Vec<LookRequest>,
    places: ReservedSlots,
) -> Result<(), StoreError> {
    if looks.is_empty() {
        return Ok(());
    }
    let looked_at: Vec<OccurrenceId> = looks.iter().map(|look| look.occurrence).collect();
    match context.store.look(now, looks).await {
        Ok(outcomes) => {
            context.events.touched(looked_at);
            let effects = outcomes.into_iter().filter_map(|outcome| match outcome {
                LookOutcome::Opened(effects) | LookOutcome::Expired(effects) => Some(effects),
                LookOutcome::Conflict | LookOutcome::NotDue => None,
            });
            context.follow_up(effects, places);
            Ok(())
        }
        Err(error) => {
            context.poll_registry.settle_failed(places, &error.to_string());
            Err(error)
        }
    }
}
