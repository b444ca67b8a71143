//! Saved views of the caller, and the effective settings of this server.

use super::named::stored;
use super::tokens::{NoRequestKey, to_the_end};
use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody};
use crate::json::{self, DocumentShape};
use crate::query::QueryParams;
use axum::Json;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::{Page, SetView, SettingsBody, ViewBody};
use punctual_core::saved_view::SavedView;

pub async fn list(call: Call, query: QueryParams) -> Result<Json<Page<ViewBody>>, ApiError> {
    query.finish()?;
    let views = call.cases.views().await?.into_iter();
    let items = views.map(|(name, view)| body(name, view)).collect();
    Ok(Json(Page { items, next_cursor: None }))
}

pub async fn set(
    call: Call,
    IdInPath(name): IdInPath<String>,
    _: NoRequestKey,
    request: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let SetView { page, query } = json::parse(&request.bytes, DocumentShape::Object)?;
    let view = SavedView { page, query };
    to_the_end(async move {
        let is_new = call.cases.set_view(&name, view.clone()).await?;
        Ok(stored(is_new, body(name, view)))
    })
    .await
}

pub async fn remove(call: Call, IdInPath(name): IdInPath<String>, _: NoBody) -> Result<StatusCode, ApiError> {
    to_the_end(async move {
        call.cases.remove_view(&name).await?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

fn body(name: String, view: SavedView) -> ViewBody {
    let SavedView { page, query } = view;
    ViewBody { name, page, query }
}

pub async fn settings(call: Call, query: QueryParams) -> Result<Json<SettingsBody>, ApiError> {
    query.finish()?;
    call.cases.check_settings_readable()?;
    let settings = call.api.settings.as_deref().cloned();
    Ok(Json(settings.unwrap_or(SettingsBody { file: None, items: vec![] })))
}
