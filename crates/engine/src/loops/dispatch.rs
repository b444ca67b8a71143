//! Claims queued work for parked polls.

use crate::Context;
use crate::desk::Reservation;
use futures_util::future::select;
use punctual_core::ports::{Claim, ClaimOutcome, Offer};
use std::pin::pin;

pub(crate) async fn dispatch(context: &Context) {
    let clock = &context.host.clock;
    let interval = context.config.dispatch_interval;
    let mut look_at_all = clock.monotonic().plus(interval);
    loop {
        // By a time of its own, not after so long without a wake-up: on a node that is never quiet for that long, work
        // that another node has queued would lie beside a poll that waits here.
        let now = clock.monotonic();
        if now >= look_at_all {
            context.desk.wake_all();
            look_at_all = now.plus(interval);
        }
        let claims = context.desk.take_unchecked();
        if claims.is_empty() {
            select(pin!(context.desk.unchecked()), clock.sleep(look_at_all.since(now))).await;
            continue;
        }
        claim(context, claims).await;
    }
}

async fn claim(context: &Context, claims: Vec<Claim>) {
    let offers: Vec<Offer> =
        claims.iter().map(|claim| Offer { session: claim.session, turn: claim.turn }).collect();
    match context.store.claim(context.time.now(), claims).await {
        Ok(outcomes) => {
            let mut undelivered = Vec::new();
            let (now, mut claimed) = (context.time.now(), 0);
            for (offer, mut outcome) in offers.into_iter().zip(outcomes) {
                if let ClaimOutcome::Claimed { assignments, begun } = &mut outcome {
                    context.counters.claimed.add(assignments.len() as u64);
                    context.measures.leased(now, assignments.iter());
                    claimed += assignments.len();
                    context.events.touched(assignments.iter().map(|one| one.execution.occurrence));
                    context.follow_up([std::mem::take(begun)], Reservation::default());
                }
                let leases = context.desk.claimed(offer, outcome);
                if !leases.is_empty() {
                    undelivered.push((offer, leases));
                }
            }
            if claimed > 0 {
                context.measures.batches.claim.observe(claimed as u64);
            }
            context.return_undelivered(undelivered);
        }
        Err(error) => {
            tracing::warn!(%error, "work could not be claimed; its workers will ask again");
            context.counters.store_errors.add(1);
            for offer in offers {
                context.desk.failed(offer, &error.to_string());
            }
        }
    }
}
