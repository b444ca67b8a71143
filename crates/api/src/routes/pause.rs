//! The pause of the whole cluster.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, JsonBody};
use crate::json::{self, DocumentShape};
use axum::Json;
use punctual_client::{PauseBody, SetPause};
use punctual_core::cluster_pause::ClusterPause;

pub async fn show(call: Call) -> Result<Json<PauseBody>, ApiError> {
    Ok(Json(body(call.cases.cluster_pause().await?)))
}

pub async fn set(call: Call, request: JsonBody<BODY_BYTES_MAX>) -> Result<Json<PauseBody>, ApiError> {
    let SetPause { reason, until, skip } = json::parse(&request.bytes, DocumentShape::Pause)?;
    Ok(Json(body(Some(call.cases.pause_cluster(reason, until, skip).await?))))
}

pub async fn end(call: Call) -> Result<Json<PauseBody>, ApiError> {
    call.cases.resume_cluster().await?;
    Ok(Json(body(None)))
}

pub fn body(pause: Option<ClusterPause>) -> PauseBody {
    let Some(pause) = pause else { return PauseBody::default() };
    PauseBody {
        paused: true,
        reason: Some(pause.reason),
        paused_at: Some(pause.paused_at),
        until: pause.until,
        skip: pause.skips,
        paused_by: Some(pause.paused_by),
    }
}
