//! Claims queued work for waiting polls: work queued by this node at once, work of other nodes on
//! notification or when a scan finds it.

use crate::EngineContext;
use crate::pause::LookPause;
use crate::poll_registry::ReservedSlots;
use futures_util::future::select;
use punctual_core::ports::{Claim, ClaimOutcome, SlotReservation};
use std::pin::pin;

pub(crate) async fn dispatch(context: &EngineContext) {
    let clock = &context.host.clock;
    let config = &context.config;
    let mut pause = LookPause::new(config.dispatch_interval_min);
    let mut looked_at = clock.monotonic();
    // Whether the counters show more work than the last claims got.
    let mut is_more_counted = false;
    loop {
        // The scan has a fixed time and does not wait for a period without wake-ups: on a node that is never
        // quiet for that long, work queued by another node would not reach a waiting poll here.
        let now = clock.monotonic();
        let is_hearing = context.peers.is_receiving();
        let is_patient = is_hearing && !is_more_counted;
        let most = if is_patient { config.dispatch_interval_hearing } else { config.dispatch_interval };
        let look_at = looked_at.plus(pause.within(most));
        let is_look = now >= look_at;
        if is_look {
            context.poll_registry.wake_all();
            looked_at = now;
        }
        let claims = context.poll_registry.take_unchecked();
        if claims.is_empty() {
            if is_look {
                pause.found(0);
                is_more_counted = false;
            } else {
                select(pin!(context.poll_registry.unchecked()), clock.sleep(look_at.since(now))).await;
            }
            continue;
        }
        let round = claim(context, claims).await;
        if is_look {
            pause.found(round.claimed);
        } else if config.shares_store && round.is_any_empty {
            // This does not prove that there is no work: a claim skips rows that another process has locked
            // at that moment, even for a read, and no second notification follows.
            pause.reset();
            looked_at = now;
        }
        // The row may stay locked for long. Check the counters only once scans are so rare that it matters.
        let is_rare = is_hearing && pause.within(config.dispatch_interval_hearing) > config.dispatch_interval;
        is_more_counted = round.is_any_empty && is_rare && is_more_counted_than_given(context).await;
    }
}

/// Whether a poll got nothing although the counters show queued work that it serves: a claim has skipped rows
/// that another transaction had locked, or the counters are a moment ahead.
async fn is_more_counted_than_given(context: &EngineContext) -> bool {
    match context.claimable().await {
        Ok(depths) => depths.iter().any(|depth| context.poll_registry.is_idle_for(&depth.lane)),
        Err(error) => {
            tracing::debug!(%error, "queued executions could not be counted; the next scan comes later");
            false
        }
    }
}

/// The result of one claim call.
struct ClaimRound {
    claimed: usize,
    /// Whether at least one of the polls got nothing.
    is_any_empty: bool,
}

async fn claim(context: &EngineContext, claims: Vec<Claim>) -> ClaimRound {
    let reservations: Vec<SlotReservation> =
        claims.iter().map(|claim| SlotReservation { session: claim.session, turn: claim.turn }).collect();
    match context.store.claim(context.time.now(), claims).await {
        Ok(outcomes) => {
            let mut undelivered = Vec::new();
            let (now, mut round) = (context.time.now(), ClaimRound { claimed: 0, is_any_empty: false });
            for (reservation, mut outcome) in reservations.into_iter().zip(outcomes) {
                if let ClaimOutcome::Claimed { assignments, effects } = &mut outcome {
                    context.counters.claimed.add(assignments.len() as u64);
                    context.measures.leased(now, assignments.iter());
                    round.claimed += assignments.len();
                    round.is_any_empty |= assignments.is_empty();
                    context.events.touched(assignments.iter().map(|one| one.execution.occurrence));
                    context.follow_up([std::mem::take(effects)], ReservedSlots::default());
                }
                let leases = context.poll_registry.claimed(reservation, outcome);
                if !leases.is_empty() {
                    undelivered.push((reservation, leases));
                }
            }
            if round.claimed > 0 {
                context.measures.batches.claim.observe(round.claimed as u64);
            }
            context.return_undelivered(undelivered);
            round
        }
        Err(error) => {
            tracing::warn!(%error, "work could not be claimed; the workers will poll again");
            context.counters.store_errors.add(1);
            for reservation in reservations {
                context.poll_registry.failed(reservation, &error.to_string());
            }
            // The workers will poll again.
            ClaimRound { claimed: 0, is_any_empty: false }
        }
    }
}
