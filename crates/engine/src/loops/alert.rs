//! The leader checks whether anything has been due for too long without being fired. No scheduler can see
//! that from its own fires.

use crate::{Duties, EngineContext};
use punctual_core::ids::SegmentSet;
use punctual_core::limits;
use punctual_core::ports::StoreError;
use std::time::Duration;

pub(crate) async fn alert(context: &EngineContext) {
    if context.config.duties == Duties::OwnCommits {
        return;
    }
    loop {
        context.host.clock.sleep(limits::OVERDUE_LOOK_PAUSE).await;
        let overdue = if context.leads() { longest_overdue(context).await } else { Ok(Duration::ZERO) };
        match overdue {
            Ok(overdue) => {
                context.lateness.set_overdue(overdue);
                if !overdue.is_zero() {
                    tracing::warn!(
                        error = "overdue",
                        ?overdue,
                        "schedules are due and no scheduler fires them"
                    );
                }
            }
            Err(error) => tracing::debug!(%error, "overdue schedules could not be read"),
        }
    }
}

async fn longest_overdue(context: &EngineContext) -> Result<Duration, StoreError> {
    let now = context.time.now();
    let due = context.store.due(SegmentSet::ALL, now.minus(limits::FIRE_LATE), 1).await?;
    Ok(due.iter().map(|due| now.since(due.at)).max().unwrap_or_default())
}
