//! Writes refused requests to the audit log, and seals its new entries: a duty of the leader. Two leaders
//! continue the same chain, because the store compares and swaps.

use crate::{Duties, Engine, EngineContext};
use punctual_core::limits;
use punctual_core::ports::{AuditEntry, StoreError};

pub(crate) async fn audit(context: &EngineContext) {
    let Some(interval) = context.config.audit_interval else { return };
    loop {
        context.host.clock.sleep(interval).await;
        if let Err(error) = round(context).await {
            tracing::warn!(%error, "the audit log could not be written; retrying later");
        }
    }
}

impl Engine {
    /// Writes what only waits in memory. Call this when the loops have stopped and no more requests come.
    pub async fn finish(&self) {
        let context = &self.context;
        if let Err(error) = write_refused(context, context.refusals.take_all()).await {
            tracing::warn!(%error, "refused requests could not be written to the audit log");
        }
    }
}

async fn write_refused(context: &EngineContext, refused: Vec<AuditEntry>) -> Result<(), StoreError> {
    if !refused.is_empty()
        && let Err(error) = context.store.record_audit(refused.clone()).await
    {
        context.refusals.put_back(refused);
        return Err(error);
    }
    Ok(())
}

async fn round(context: &EngineContext) -> Result<(), StoreError> {
    let store = &context.store;
    write_refused(context, context.refusals.take(context.time.now())).await?;
    let is_sealer = context.config.duties == Duties::Everything && context.leads();
    while is_sealer && store.seal_audit(limits::AUDIT_SEALED_MAX).await? == limits::AUDIT_SEALED_MAX {}
    Ok(())
}
