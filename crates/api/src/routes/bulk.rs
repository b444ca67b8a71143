//! Operations: one action on everything that a filter selects.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody};
use crate::idempotency::{Repeating, RequestName, once};
use crate::json::{self, DocumentShape};
use crate::patch;
use crate::query::QueryParams;
use crate::routes::{dead_letters, jobs};
use axum::Json;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use punctual_client::{
    API_PREFIX, BulkAnswer, BulkItem, BulkRefusal, BulkRequest, ExecutionStatus, OperationBody, Page,
};
use punctual_core::ids::OperationId;
use punctual_core::job::{InvalidField, JobSpec};
use punctual_core::operation::{
    BulkAction, BulkOperation, BulkSelection, BulkTarget, OpenSelection, OpenState,
};
use punctual_core::time::Timestamp;
use punctual_engine::{BulkOrder, BulkPreview, JobPatches, OperationView};
use serde_json::Value;

const LIST: &str = "operations";

/// Starts an operation, or shows what it would act on.
pub async fn start(
    call: Call,
    name: RequestName,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let request: BulkRequest = json::parse(&body.bytes, DocumentShape::Bulk)?;
    let order = ordered(&request)?;
    if request.dry_run {
        let preview = call.cases.preview_bulk(&order).await?;
        return Ok(Json(answer(&order, preview, None)).into_response());
    }
    once(&call, name, &body.bytes, Repeating::Safe, |attempt| {
        let call = &call;
        async move {
            let (view, preview) = call.cases.start_bulk(order.clone(), attempt).await?;
            let id = view.operation.id;
            let location = [(LOCATION, format!("{API_PREFIX}/bulk/{id}"))];
            let answer = answer(&order, preview, Some(&view.operation));
            Ok((StatusCode::ACCEPTED, location, Json(answer)).into_response())
        }
    })
    .await
}

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<OperationBody>>, ApiError> {
    let (after, limit) = (query.cursor::<String>(LIST), query.limit());
    query.finish()?;
    let page = call.cases.operations(after, limit).await?;
    Ok(Json(Page {
        items: page.items.into_iter().map(body_of).collect(),
        next_cursor: call.next_cursor(LIST, page.next).await?,
    }))
}

pub async fn show(call: Call, IdInPath(id): IdInPath<OperationId>) -> Result<Json<OperationBody>, ApiError> {
    Ok(Json(body_of(call.cases.operation(id).await?)))
}

pub async fn cancel(
    call: Call,
    IdInPath(id): IdInPath<OperationId>,
    _: NoBody,
) -> Result<Json<OperationBody>, ApiError> {
    Ok(Json(body_of(call.cases.cancel_operation(id).await?)))
}

fn answer(order: &BulkOrder, preview: BulkPreview, operation: Option<&BulkOperation>) -> BulkAnswer {
    let item = |item: punctual_engine::SampleItem| BulkItem {
        id: item.id,
        name: item.name,
        status: item.status,
        refusal: item.refusal,
    };
    BulkAnswer {
        operation_id: operation.map(|operation| operation.id),
        action: order.action,
        target: order.selection.target(),
        status: operation.map(|operation| operation.status),
        matched: preview.matched.count,
        matched_is_exact: preview.matched.is_exact,
        sample: preview.sample.into_iter().map(item).collect(),
    }
}

fn body_of(view: OperationView) -> OperationBody {
    let OperationView { operation, filter, patch } = view;
    let refusal = |refusal: punctual_core::operation::ItemRefusal| BulkRefusal {
        id: refusal.id,
        reason: refusal.reason,
    };
    OperationBody {
        operation_id: operation.id,
        action: operation.action,
        target: operation.selection.target(),
        status: operation.status,
        cancelling: operation.is_cancelling && !operation.is_finished(),
        filter,
        patch,
        matched: operation.matched.count,
        matched_is_exact: operation.matched.is_exact,
        done: operation.done,
        refused: operation.refused,
        refusals: operation.refusals.into_iter().map(refusal).collect(),
        requested_by: operation.requester.name,
        created_at: operation.created_at,
        updated_at: operation.updated_at,
        finished_at: operation.finished_at,
        failure: operation.failure,
    }
}

fn ordered(request: &BulkRequest) -> Result<BulkOrder, ApiError> {
    let mut query = QueryParams::of_object(&request.filter);
    if query.is_empty() && !request.all {
        let fix = "must select something: name at least one field, or set all to true to act on everything";
        return Err(ApiError::field("filter", fix));
    }
    let selection = match (request.target, request.action) {
        (BulkTarget::Jobs, _) => {
            let (query, predicate) = jobs::selection(&mut query);
            BulkSelection::Jobs { query, predicate }
        }
        (BulkTarget::Executions, BulkAction::Cancel) => BulkSelection::Executions(open(&mut query)),
        (BulkTarget::Executions, BulkAction::Retry) => {
            BulkSelection::DeadLetters(dead_letters::matching(dead_letters::filter(&mut query), None, 0))
        }
        (BulkTarget::Executions, action) => {
            let fix = format!("cannot be {action} for executions: they can be cancelled and retried");
            return Err(ApiError::field("action", fix));
        }
    };
    query.finish_in("filter")?;
    let patch = match (request.action, &request.patch) {
        (BulkAction::Update, Some(patch)) => Some(patch.get().to_owned()),
        (BulkAction::Update, None) => {
            return Err(ApiError::field(
                "patch",
                "is needed for update: the fields to change, such as {\"priority\": 8}",
            ));
        }
        (_, Some(_)) => {
            return Err(ApiError::field("patch", "only applies to the action update: leave it out"));
        }
        (_, None) => None,
    };
    if let Some(patch) = &patch
        && !matches!(serde_json::from_str(patch), Ok(Value::Object(fields)) if !fields.is_empty())
    {
        return Err(ApiError::field("patch", "must be an object with at least one field to change"));
    }
    let filter = Value::Object(request.filter.clone()).to_string();
    Ok(BulkOrder { action: request.action, selection, filter, patch })
}

/// Open executions; without a status all of them.
fn open(query: &mut QueryParams) -> OpenSelection {
    let states = match query.word::<ExecutionStatus>("status") {
        None => vec![OpenState::Waiting, OpenState::Queued, OpenState::Running],
        Some(ExecutionStatus::Waiting) => vec![OpenState::Waiting],
        Some(ExecutionStatus::Queued) => vec![OpenState::Queued],
        Some(ExecutionStatus::Running) => vec![OpenState::Running],
        Some(_) => {
            query.refuse("status", "must be WAITING, QUEUED or RUNNING: other executions have ended");
            vec![]
        }
    };
    OpenSelection {
        states,
        before: None,
        after: None,
        queue: query.text("queue"),
        job_type: query.text("job_type"),
        owner: query.text("owner"),
        worker: query.text("worker"),
    }
}

/// Merge patches of jobs, for the engine.
#[derive(Debug, Clone, Copy)]
pub struct MergePatches;

impl JobPatches for MergePatches {
    fn patched(&self, stored: &JobSpec, patch: &str, now: Timestamp) -> Result<JobSpec, Vec<InvalidField>> {
        patch::patched(stored, patch.as_bytes(), now).map_err(|error| match error {
            ApiError::InvalidFields(fields) => {
                fields.into_iter().map(|field| InvalidField::new(field.field, field.detail)).collect()
            }
            other => vec![InvalidField::new("patch", other.to_string())],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::job::JobStatus;
    use std::collections::BTreeSet;

    fn read(body: &str) -> Result<BulkOrder, ApiError> {
        ordered(&json::parse(body.as_bytes(), DocumentShape::Bulk)?)
    }

    fn refused(body: &str) -> String {
        match read(body) {
            Err(ApiError::InvalidFields(errors)) => errors[0].field.clone(),
            other => panic!("{body} gave {other:?}"),
        }
    }

    #[test]
    fn a_filter_has_the_parameters_of_the_list() {
        let order = read(
            r#"{"action": "pause", "filter": {"status": "active", "tag": ["a", "b"], "q": "mail", "failing": true,
                "payload": {"order": {"id": 7}, "paid": "yes"}}}"#,
        )
        .unwrap();
        let BulkSelection::Jobs { query, predicate } = order.selection else { panic!("jobs") };
        assert_eq!(query.status, Some(JobStatus::Active));
        // In any order: a job must have all of them.
        assert_eq!(
            query.tags.iter().collect::<BTreeSet<_>>(),
            BTreeSet::from([&"a".to_owned(), &"b".to_owned()])
        );
        assert_eq!(query.text.as_deref(), Some("mail"));
        assert_eq!(predicate.failing, Some(true));
        let parameters: BTreeSet<String> =
            predicate.payload.iter().map(|filter| filter.parameter()).collect();
        assert_eq!(parameters, ["payload.order.id", "payload.paid"].map(str::to_owned).into());
    }

    #[test]
    fn open_executions_are_cancelled_and_dead_ones_retried() {
        let order =
            read(r#"{"action": "cancel", "target": "executions", "filter": {"queue": "mail"}}"#).unwrap();
        let BulkSelection::Executions(open) = order.selection else { panic!("executions") };
        assert_eq!((open.states.len(), open.queue.as_deref()), (3, Some("mail")));
        let order =
            read(r#"{"action": "retry", "target": "executions", "filter": {"error": "timeout"}}"#).unwrap();
        let BulkSelection::DeadLetters(query) = order.selection else { panic!("dead letters") };
        assert_eq!(query.error.as_deref(), Some("timeout"));
    }

    #[test]
    fn an_unclear_request_is_refused_with_the_field_in_the_way() {
        assert_eq!(refused(r#"{"action": "pause"}"#), "filter");
        assert!(read(r#"{"action": "pause", "all": true}"#).is_ok());
        assert_eq!(refused(r#"{"action": "pause", "filter": {"queu": "x"}}"#), "filter.queu");
        assert_eq!(refused(r#"{"action": "pause", "filter": {"status": "done"}}"#), "filter.status");
        assert_eq!(refused(r#"{"action": "pause", "filter": {"limit": 5}}"#), "filter.limit");
        assert_eq!(refused(r#"{"action": "stop", "all": true}"#), "action");
        assert_eq!(refused(r#"{"action": "pause", "target": "executions", "all": true}"#), "action");
        assert_eq!(refused(r#"{"action": "update", "all": true}"#), "patch");
        assert_eq!(refused(r#"{"action": "update", "all": true, "patch": {}}"#), "patch");
        assert_eq!(refused(r#"{"action": "pause", "all": true, "patch": {"priority": 1}}"#), "patch");
        assert_eq!(
            refused(r#"{"action": "cancel", "target": "executions", "filter": {"status": "LOST"}}"#),
            "filter.status"
        );
    }
}
