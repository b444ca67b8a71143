//! Finds silent sessions and recovers their work.
//!
//! Every scheduler observes, because an observer must have seen a session's whole silence itself. If only the
//! leader did, and it died together with a worker, its successor would have to start counting for that
//! worker's jobs. Any scheduler that sees a session silent for its lease may therefore declare it lost, by a
//! compare-and-swap. Only the sweep for remains of lost sessions is a duty of the leader; a scheduler that
//! has just declared one lost sweeps, too.

use crate::poll_registry::ReservedSlots;
use crate::traces::EndedRun;
use crate::{Duties, EngineContext};
use punctual_core::defects::{Defect, planted};
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::ports::{Recovered, SessionRow, StoreError};
use punctual_core::session::{Pulse, SessionObserver};

pub(crate) async fn recover(context: &EngineContext) {
    if context.config.duties == Duties::OwnCommits {
        return;
    }
    let mut observer = SessionObserver::default();
    loop {
        if let Err(error) = round(context, &mut observer).await {
            tracing::warn!(%error, "expired sessions could not be handled; retrying");
            context.counters.store_errors.add(1);
        }
        context.host.clock.sleep(context.config.recover_interval).await;
    }
}

async fn round(context: &EngineContext, observer: &mut SessionObserver) -> Result<(), StoreError> {
    let rows = context.store.sessions().await?;
    // The reading is as old as the duration of the call. Counting from the arrival of the answer is in the
    // session's favour.
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
            tracing::warn!(count = recovered.ended.len(), "executions of lost workers were recovered");
        }
        context.count_ended(&recovered.ended);
        trace_lost(context, &recovered);
        context.counters.retried.add(recovered.retried.len() as u64);
        context.follow_up([recovered.effects], ReservedSlots::default());
        if !recovered.more {
            break;
        }
    }
    Ok(())
}

/// Records the spans of attempts that were lost with their workers.
fn trace_lost(context: &EngineContext, recovered: &Recovered) {
    let Some(traces) = &context.traces else { return };
    let completed_at = context.time.now();
    let lost = recovered.ended.iter().map(|(execution, status)| {
        let is_retried = recovered.retried.contains(execution);
        EndedRun {
            execution: *execution,
            status: *status,
            started_at: None,
            completed_at,
            error: (*status == Status::Lost).then(|| "the worker stopped responding".to_owned()),
            is_retried,
            retry_at: recovered.effects.due_time(execution.occurrence).filter(|_| is_retried),
            report: None,
        }
    });
    traces.ended(lost.collect());
}

/// Declares these sessions lost; returns how many were.
async fn lose(context: &EngineContext, silent: Vec<Pulse>) -> Result<usize, StoreError> {
    let lost = context.store.lose_sessions(context.time.now(), silent).await?;
    let count = lost.into_iter().filter(|lost| *lost).count();
    context.counters.sessions_lost.add(count as u64);
    Ok(count)
}

/// The broken rule of [`Defect::ExpireByWallClock`].
fn expired_by_wall_clock(context: &EngineContext, rows: &[SessionRow]) -> Vec<Pulse> {
    let now = context.host.clock.wall();
    rows.iter().filter(|row| now.since(row.beaten_at) >= row.pulse.lease).map(|row| row.pulse).collect()
}
