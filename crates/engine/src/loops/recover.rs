//! Finds silent sessions and puts their work back on its way.
//!
//! Every scheduler observes, because an observer must have seen a session's whole silence itself: were it the leader alone, a
//! leader that dies together with a worker would leave that worker's jobs to a successor who begins to count anew. So
//! whoever sees a session silent for its lease may call it lost, by comparing and swapping. Only the sweep for what is
//! left of lost sessions is one node's duty for all; whoever has just called one lost sweeps, too.

use crate::desk::Reservation;
use crate::{Context, Duties};
use punctual_core::defects::{Defect, planted};
use punctual_core::limits;
use punctual_core::ports::{SessionRow, StoreError};
use punctual_core::session::{Pulse, SessionObserver};

pub(crate) async fn recover(context: &Context) {
    if context.config.duties == Duties::OwnCommits {
        return;
    }
    let mut observer = SessionObserver::default();
    loop {
        if let Err(error) = round(context, &mut observer).await {
            tracing::warn!(%error, "sessions could not be looked after; trying again");
            context.counters.store_errors.add(1);
        }
        context.host.clock.sleep(context.config.recover_interval).await;
    }
}

async fn round(context: &Context, observer: &mut SessionObserver) -> Result<(), StoreError> {
    let rows = context.store.sessions().await?;
    // The reading is as old as its answer took; counting from the answer's arrival errs on the session's side.
    let pulses: Vec<Pulse> = rows.iter().map(|row| row.pulse).collect();
    let mut silent = observer.observe(context.host.clock.monotonic(), &pulses);
    if planted(Defect::ExpireByWallClock) {
        silent = expired_by_wall_clock(context, &rows);
    }
    let lost = if silent.is_empty() { 0 } else { lose(context, silent).await? };
    let has_lost = lost > 0;
    while has_lost || context.leads() {
        let recovered = context.store.recover(context.time.now(), limits::STORE_BATCH_MAX).await?;
        if !recovered.ended.is_empty() {
            tracing::warn!(count = recovered.ended.len(), "executions of lost workers are recovered");
        }
        context.count_ended(&recovered.ended);
        context.counters.retried.add(recovered.retried as u64);
        context.follow_up([recovered.begun], Reservation::default());
        if !recovered.more {
            break;
        }
    }
    Ok(())
}

/// Calls these sessions lost; returns how many were.
async fn lose(context: &Context, silent: Vec<Pulse>) -> Result<usize, StoreError> {
    let lost = context.store.lose_sessions(context.time.now(), silent).await?;
    let count = lost.into_iter().filter(|lost| *lost).count();
    context.counters.sessions_lost.add(count as u64);
    Ok(count)
}

/// The broken rule of [`Defect::ExpireByWallClock`].
fn expired_by_wall_clock(context: &Context, rows: &[SessionRow]) -> Vec<Pulse> {
    let now = context.host.clock.wall();
    rows.iter().filter(|row| now.since(row.beaten_at) >= row.pulse.lease).map(|row| row.pulse).collect()
}
