//! Deletes history and logs that have been kept long enough, a bounded step at a time.

use crate::Context;

/// Rows deleted in one transaction.
const STEP_ROWS: usize = 1_000;

pub(crate) async fn retain(context: &Context) {
    loop {
        context.host.clock.sleep(context.config.retain_interval).await;
        let before = context.time.now().minus(context.config.history_kept);
        loop {
            match context.store.retain(before, STEP_ROWS).await {
                Ok(retained) if retained.more => continue,
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "old history could not be deleted; trying again later");
                    break;
                }
            }
        }
    }
}
