//! Queues: their depth, their limits, and whether they are paused.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody};
use crate::json::DocumentShape;
use crate::query::QueryParams;
use crate::{json, views};
use axum::Json;
use punctual_client::{Page, QueueBody, SetQueue};
use punctual_core::ports::Pausing;
use punctual_core::queue::{QueueChange, QueuePatch};
use punctual_engine::UseCaseError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The prefix of this list's cursors.
const LIST: &str = "queues";

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<QueueBody>>, ApiError> {
    let (after, limit) = (query.cursor::<String>(LIST), query.limit_or_most());
    query.finish()?;
    let page = call.cases.queues(after.as_deref(), limit).await?;
    let items = page.items.into_iter().map(views::queue).collect();
    Ok(Json(Page { items, next_cursor: call.next_cursor(LIST, page.next).await? }))
}

/// Any valid queue name: an unused queue is empty and not paused.
pub async fn show(
    call: Call,
    IdInPath(queue): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<QueueBody>, ApiError> {
    query.finish()?;
    match call.cases.queue(&queue).await {
        Ok(view) => Ok(Json(views::queue(view))),
        Err(UseCaseError::InvalidQueueName { problem, .. }) => {
            Err(ApiError::NotFound(format!("no queue has this name: it {problem}")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Sets all settings of a queue: fields that the body leaves out get their defaults.
pub async fn set(
    call: Call,
    IdInPath(queue): IdInPath<String>,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Json<QueueBody>, ApiError> {
    // The name comes first: it is what the request is about.
    call.cases.check_queue_name(&queue).await?;
    let set: SetQueue = json::parse(&body.bytes, DocumentShape::Queue)?;
    let change = QueueChange::Replace(set.into());
    Ok(Json(views::queue(call.cases.set_queue(&queue, change).await?)))
}

/// Changes some settings of a queue, in the transaction that stores them.
pub async fn patch(
    call: Call,
    IdInPath(queue): IdInPath<String>,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Json<QueueBody>, ApiError> {
    call.cases.check_queue_name(&queue).await?;
    let change = QueueChange::Patch(Box::new(patch_of(&body.bytes)?));
    Ok(Json(views::queue(call.cases.set_queue(&queue, change).await?)))
}

/// A merge patch: fields that it does not name stay, and null removes a limit.
fn patch_of(body: &[u8]) -> Result<QueuePatch, ApiError> {
    let mut fields: Map<String, Value> = json::parse(body, DocumentShape::Queue)?;
    let mut weights: BTreeMap<String, Option<u32>> = BTreeMap::new();
    if let Some(Value::Object(named)) = fields.get_mut("weights") {
        named.retain(|owner, weight| {
            if weight.is_null() {
                weights.insert(owner.clone(), None);
            }
            !weight.is_null()
        });
    }
    let text = serde_json::to_vec(&fields).map_err(|error| ApiError::Internal(error.to_string()))?;
    let set: SetQueue = json::parse(&text, DocumentShape::Queue)?;
    weights.extend(set.weights.into_iter().map(|(owner, weight)| (owner, Some(weight))));
    let names = |field: &str| fields.contains_key(field);
    Ok(QueuePatch {
        max_depth: names("max_depth").then_some(set.max_depth),
        concurrency: names("concurrency").then_some(set.concurrency),
        rate: names("rate").then_some(set.rate.map(|rate| rate.0)),
        key_concurrency: names("key_concurrency").then_some(set.key_concurrency),
        key_rate: names("key_rate").then_some(set.key_rate.map(|rate| rate.0)),
        weights,
    })
}

pub async fn pause(
    call: Call,
    IdInPath(queue): IdInPath<String>,
    _: NoBody,
) -> Result<Json<QueueBody>, ApiError> {
    Ok(Json(views::queue(call.cases.pause_queue(&queue, Pausing::Pause).await?)))
}

pub async fn resume(
    call: Call,
    IdInPath(queue): IdInPath<String>,
    _: NoBody,
) -> Result<Json<QueueBody>, ApiError> {
    Ok(Json(views::queue(call.cases.pause_queue(&queue, Pausing::Resume).await?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_names_what_it_changes() {
        let patch =
            patch_of(br#"{"concurrency": 3, "rate": null, "weights": {"ann": 2, "bob": null}}"#).unwrap();
        assert_eq!((patch.concurrency, patch.rate, patch.max_depth), (Some(Some(3)), Some(None), None));
        let weights = BTreeMap::from([("ann".to_owned(), Some(2)), ("bob".to_owned(), None)]);
        assert_eq!(patch.weights, weights);
        assert_eq!(patch_of(b"{}").unwrap(), QueuePatch::default());
        for wrong in [r#"{"concurency": 3}"#, r#"{"concurrency": "x"}"#, r#"{"weights": {"ann": -1}}"#, "[]"]
        {
            assert!(patch_of(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
