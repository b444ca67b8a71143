//! This process's view of the store's clock for retention, and whether retention waits because of it.

use crate::{Engine, EngineContext};
use punctual_core::ports::StoreError;
use punctual_core::retention::{ClockDoubt, ClockReading, ClockVerdict, ClockWatch};
use punctual_core::time::Timestamp;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) struct Retention {
    state: Mutex<RetentionState>,
}

struct RetentionState {
    watch: ClockWatch,
    doubt: Option<ClockDoubt>,
    /// Log lines up to this time were removed although they are younger than the retention of logs.
    logs_cut_until: Option<Timestamp>,
}

impl Retention {
    pub(crate) fn new(hold: Duration) -> Self {
        Retention {
            state: Mutex::new(RetentionState {
                watch: ClockWatch::new(hold),
                doubt: None,
                logs_cut_until: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, RetentionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, reading: ClockReading, noted: Option<Timestamp>) -> bool {
        let mut state = self.state();
        let verdict = state.watch.read(reading, noted);
        let doubt = match verdict {
            ClockVerdict::Steady => None,
            ClockVerdict::Doubtful { doubt, .. } => Some(doubt),
        };
        let before = std::mem::replace(&mut state.doubt, doubt);
        drop(state);
        match verdict {
            ClockVerdict::Steady if before.is_some() => {
                tracing::info!("the store's clock is steady again: retention continues");
            }
            ClockVerdict::Doubtful { doubt, left } if before != Some(doubt) && doubt.is_suspicious() => {
                tracing::warn!(
                    wait = ?left,
                    "{doubt}: retention is suspended until the clock has been steady for this long; check \
                     the clock"
                );
            }
            ClockVerdict::Doubtful { doubt, left } if before != Some(doubt) => {
                tracing::info!(wait = ?left, "{doubt}: retention begins when it has been steady for this long");
            }
            ClockVerdict::Steady | ClockVerdict::Doubtful { .. } => {}
        }
        doubt.is_none()
    }
}

impl EngineContext {
    /// The store's time, if retention may delete by it. Every process checks, so that a new leader has
    /// already seen the clock; only the leader writes a record for processes that start later.
    pub(crate) async fn steady_time(&self) -> Result<Option<Timestamp>, StoreError> {
        // A driven calendar moves together with its own elapsed time: driving it is not a jump.
        let clock = &self.host.calendar;
        let asked_at = clock.monotonic();
        let answer = self.store.noted_clock().await?;
        let reading = ClockReading { time: answer.now, asked_at, answered_at: clock.monotonic() };
        let is_steady = self.retention.read(reading, answer.noted);
        if !self.leads() || !is_steady {
            return Ok(None);
        }
        self.store.note_clock(answer.now).await?;
        Ok(Some(answer.now))
    }

    /// Checks whether the limit on all log lines removes lines that retention would keep.
    pub(crate) async fn look_at_removed_logs(&self) -> Result<(), StoreError> {
        let until = self.store.logs_removed_until().await?;
        let kept_since = self.time.now().minus(self.config.history_kept);
        self.retention.state().logs_cut_until = until.filter(|until| *until > kept_since);
        Ok(())
    }

    /// Warnings for operators, besides the clock's offset.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let state = self.retention.state();
        let doubt = state.doubt.filter(|doubt| doubt.is_suspicious());
        let doubt = doubt.map(|doubt| format!("retention is suspended: {doubt}"));
        let cut = state.logs_cut_until.map(|until| {
            format!(
                "log lines written before {until} were removed although keep_history keeps logs for longer: all logs \
                 together have reached logs.total_size_max"
            )
        });
        let broker = self.peers.state().and_then(|queue| {
            let error = queue.error?;
            Some(format!("hints of other processes do not arrive, so this one polls the database: {error}"))
        });
        let events = self.outbox.state().and_then(|events| {
            let error = events.error?;
            Some(format!("events are not published, {} are waiting: {error}", events.waiting))
        });
        let intake = self.intake.error().map(|error| format!("jobs of messages are not received: {error}"));
        doubt.into_iter().chain(cut).chain(broker).chain(events).chain(intake).collect()
    }
}

impl Engine {
    /// Whether retention waits because the store's clock cannot be trusted yet.
    pub fn is_retention_paused(&self) -> bool {
        self.context.retention.state().doubt.is_some()
    }

    /// Warnings for operators, for `punctual nodes` and `punctual doctor`.
    pub fn warnings(&self) -> Vec<String> {
        self.context.warnings()
    }
}
