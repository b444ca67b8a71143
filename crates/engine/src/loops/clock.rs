//! Keeps this node's estimate of the store's time up to date, and decides by it whether this node may fire.

use crate::EngineContext;

pub(crate) async fn keep_time(context: &EngineContext) {
    loop {
        context.host.clock.sleep(context.config.clock_interval).await;
        match context.time.sync(&*context.store).await {
            Ok(()) => {
                context.cluster.heard_of_store(context.host.clock.monotonic());
                context.judge_clock();
            }
            Err(error) => {
                tracing::warn!(%error, "the store's time could not be read; continuing with the monotonic clock");
            }
        }
    }
}
