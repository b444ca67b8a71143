//! Serves the wait lists of limits: those in which a commit of this node has made room at once, those that
//! wait for a time when it has come, and all others within a second. The same calls do the re-admission where
//! limits have become tighter.

use crate::EngineContext;
use crate::pause::ErrorPause;
use crate::poll_registry::ReservedSlots;
use futures_util::future::select;
use punctual_core::limiter::LimiterId;
use punctual_core::limits;
use std::pin::pin;

pub(crate) async fn admit(context: &EngineContext) {
    let clock = &context.host.clock;
    let mut looked_at = clock.monotonic();
    // Where a scan of more than one page continues.
    let mut after = None;
    let mut pause = ErrorPause::default();
    loop {
        let interval =
            if after.is_some() { limits::LINES_PAGE_INTERVAL } else { limits::LINES_LOOK_INTERVAL };
        let look_at = looked_at.plus(interval);
        let is_wanted = context.lines.take_look();
        if is_wanted || clock.monotonic() >= look_at {
            looked_at = clock.monotonic();
            match look(context, after.filter(|_| !is_wanted)).await {
                Some(next) => after = next,
                None => clock.sleep(pause.failed()).await,
            }
            continue;
        }
        let now = context.time.now();
        let lines = context.lines.take(now);
        if lines.is_empty() {
            let until_look = look_at.since(clock.monotonic());
            let until_open = context.lines.opens_at().map_or(until_look, |at| at.since(now));
            select(pin!(context.lines.changed()), clock.sleep(until_look.min(until_open))).await;
            continue;
        }
        match context.store.admit(now, lines.clone(), limits::ADMITTED_PER_STEP_MAX).await {
            Ok(admitted) => {
                pause.succeeded();
                context.lines.moved(&lines, &admitted);
                if admitted.is_look_due {
                    context.lines.look();
                }
                context.follow_up([admitted.effects], ReservedSlots::default());
            }
            Err(error) => {
                tracing::warn!(%error, "executions that wait for a limit could not continue; retrying");
                context.counters.store_errors.add(1);
                context.lines.failed(lines);
                clock.sleep(pause.failed()).await;
            }
        }
    }
}

/// Reads one page of the wait lists that are not empty; returns where the next page starts, if there is one.
/// `None` if the read failed.
async fn look(context: &EngineContext, after: Option<LimiterId>) -> Option<Option<LimiterId>> {
    match context.store.waiting_lines(after, limits::LINES_PER_STEP_MAX).await {
        Ok(page) => {
            let next = page.next;
            context.lines.found(after, page);
            Some(next)
        }
        Err(error) => {
            tracing::debug!(%error, "wait lists of limits could not be read");
            context.counters.store_errors.add(1);
            None
        }
    }
}
