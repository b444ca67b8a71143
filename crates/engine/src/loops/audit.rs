//! Writes refused requests to the audit log, and seals its new entries: a duty of the leader. Two leaders
//! continue the same chain, because the store compares and swaps.

use crate::{Duties, EngineContext};
use punctual_core::limits;
use punctual_core::ports::StoreError;

pub(crate) async fn audit(context: &EngineContext) {
    let Some(interval) = context.config.audit_interval else { return };
    loop {
        context.host.clock.sleep(interval).await;
        if let Err(error) = round(context).await {
            tracing::warn!(%error, "the audit log could not be written; retrying later");
        }
    }
}

async fn round(context: &EngineContext) -> Result<(), StoreError> {
    let store = &context.store;
    let refused = context.refusals.take(context.time.now());
    if !refused.is_empty()
        && let Err(error) = store.record_audit(refused.clone()).await
    {
        context.refusals.put_back(refused);
        return Err(error);
    }
    let is_sealer = context.config.duties == Duties::Everything && context.leads();
    while is_sealer && store.seal_audit(limits::AUDIT_SEALED_MAX).await? == limits::AUDIT_SEALED_MAX {}
    Ok(())
}
