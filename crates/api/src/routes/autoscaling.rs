//! How much worker capacity queues need, for autoscalers.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::IdInPath;
use crate::query::{QueryParams, page_after};
use axum::Json;
use punctual_client::{ScalingBody, ScalingPage, Span};
use punctual_core::limits;
use punctual_engine::Capacity;
use std::time::Duration;

/// The prefix of this list's cursors.
const LIST: &str = "autoscaling";

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<ScalingPage>, ApiError> {
    let (after, limit) = (query.cursor::<String>(LIST), query.limit_or_most());
    let wanted = AutoscalingParams::read(query)?;
    let capacity = call.cases.capacity().await?;
    let (queues, next) = page_after(capacity.queues(), after.as_deref(), limit);
    let items = queues.iter().map(|queue| body(&capacity, Some(queue), wanted)).collect();
    let total = body(&capacity, None, wanted);
    Ok(Json(ScalingPage { items, total, next_cursor: call.next_cursor(LIST, next).await? }))
}

/// Any queue name is valid: an unused queue needs no capacity.
pub async fn show(
    call: Call,
    IdInPath(queue): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<ScalingBody>, ApiError> {
    let wanted = AutoscalingParams::read(query)?;
    Ok(Json(body(&call.cases.capacity_of(&queue).await?, Some(&queue), wanted)))
}

/// The parameters of the request.
#[derive(Debug, Clone, Copy)]
struct AutoscalingParams {
    wait: Duration,
    slots_per_worker: u32,
}

impl AutoscalingParams {
    fn read(mut query: QueryParams) -> Result<Self, ApiError> {
        let wait = query.parsed::<Span>("target_wait").map_or(limits::TARGET_WAIT_DEFAULT, Span::get);
        if wait.is_zero() || wait > limits::TARGET_WAIT_MAX {
            query.refuse("target_wait", "must be more than 0 and at most 24h");
        }
        let slots = query.number("slots_per_worker", 1..=limits::WORKER_SLOTS_MAX as usize);
        let slots_per_worker = slots.map_or(limits::WORKER_SLOTS_DEFAULT, |slots| slots as u32);
        query.finish()?;
        Ok(AutoscalingParams { wait, slots_per_worker })
    }
}

fn body(capacity: &Capacity, queue: Option<&str>, wanted: AutoscalingParams) -> ScalingBody {
    let load = queue.map_or_else(|| capacity.load_of_all(), |queue| capacity.load(queue));
    ScalingBody {
        queue: queue.map(str::to_owned),
        queued: load.queued,
        running: load.running,
        oldest_wait_secs: load.oldest_wait.into(),
        workers: load.workers,
        slots: load.slots,
        desired_slots: load.desired_slots(wanted.wait),
        desired_workers: load.desired_workers(wanted.wait, wanted.slots_per_worker),
    }
}
