//! Keeps this node's idea of the store's time fresh.

use crate::Context;

pub(crate) async fn keep_time(context: &Context) {
    loop {
        context.host.clock.sleep(context.config.clock_interval).await;
        if let Err(error) = context.time.sync(&*context.store).await {
            tracing::warn!(%error, "the store's time is not known anew; going on by the monotonic clock");
        }
    }
}
