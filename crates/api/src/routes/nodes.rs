//! Nodes, and who is asking them.

use crate::Api;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::query::QueryParams;
use axum::Json;
use axum::extract::State;
use punctual_client::{MeBody, NodeBody, Page};
use punctual_core::recurrence::tzdb_version;

pub async fn list(State(api): State<Api>, query: QueryParams) -> Result<Json<Page<NodeBody>>, ApiError> {
    query.finish()?;
    let items = api.node.as_deref().map(|node| NodeBody {
        node_id: node.id.clone(),
        version: node.version.clone(),
        started_at: node.started_at,
        roles: node.roles.clone(),
        address: node.address.clone(),
        tzdb_version: tzdb_version().to_owned(),
        clock_offset_ms: (api.clock.wall().as_micros() - api.engine.now().as_micros()) / 1_000,
        store: node.store.clone(),
        schema_version: node.schema_version,
        embedded_store: node.embedded_store,
    });
    Ok(Json(Page { items: items.into_iter().collect(), next_cursor: None }))
}

pub async fn me(caller: Caller, query: QueryParams) -> Result<Json<MeBody>, ApiError> {
    query.finish()?;
    let role = caller.role_name().to_owned();
    Ok(Json(MeBody { token_id: caller.token, role }))
}
