//! Releases or skips the dependents of finished jobs that the commit which finished them did not reach,
//! because there were too many. A duty of the leader.

use crate::poll_registry::ReservedSlots;
use crate::{Duties, EngineContext};
use punctual_core::limits;

pub(crate) async fn resolve(context: &EngineContext) {
    if context.config.duties == Duties::OwnCommits {
        return;
    }
    loop {
        context.host.clock.sleep(context.config.resolve_interval).await;
        while context.leads() {
            match context.store.resolve(context.time.now(), limits::DEPENDENTS_PER_STEP_MAX).await {
                Ok(resolved) => {
                    context.follow_up([resolved.effects], ReservedSlots::default());
                    if !resolved.more {
                        break;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "dependent jobs could not be resolved; retrying");
                    context.counters.store_errors.add(1);
                    break;
                }
            }
        }
    }
}
