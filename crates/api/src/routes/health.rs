//! Is it there, is it ready: for load balancers and people who type the address into a browser.

use crate::Api;
use crate::error::ApiError;
use axum::Json;
use axum::extract::State;
use punctual_client::API_PREFIX;
use punctual_core::ports::StoreError;
use punctual_core::time::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

/// How long the store may take to answer before this server calls itself not ready.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

pub async fn root() -> Json<Value> {
    Json(json!({
        "name": "punctual",
        "version": env!("CARGO_PKG_VERSION"),
        "api": API_PREFIX,
        "health": "/readyz",
        "metrics": "/metrics",
    }))
}

/// The process answers.
pub async fn live() -> Json<Value> {
    Json(json!({"status": "live"}))
}

/// The store reads and writes.
pub async fn ready(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    match tokio::time::timeout(READY_TIMEOUT, probe(&api)).await {
        Ok(Ok(())) => Ok(Json(json!({"status": "ready"}))),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(ApiError::Unavailable(format!("the store took longer than {READY_TIMEOUT:?}"))),
    }
}

/// Reads the store's clock and sends an empty deletion through its way of writing: nothing is as old as the
/// epoch, so nothing changes, but a writer that hangs or is gone is noticed.
async fn probe(api: &Api) -> Result<(), StoreError> {
    api.store().clock().await?;
    api.store().retain(Timestamp::EPOCH, 1).await?;
    Ok(())
}
