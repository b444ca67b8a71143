//! What the routes of things with names share: secrets, calendars, job types, views, channels and rules.

use crate::error::ApiError;
use crate::query::QueryParams;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use punctual_core::limits;
use punctual_engine::Removal;
use serde::Serialize;
use std::str::FromStr;

/// The name in a cursor: the list continues after it.
pub struct NameInCursor(String);

impl NameInCursor {
    pub fn text(cursor: Option<&Self>) -> Option<&str> {
        cursor.map(|name| name.0.as_str())
    }
}

impl FromStr for NameInCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_name = text.len() <= limits::DOCUMENT_NAME_BYTES_MAX && !text.chars().any(char::is_control);
        if is_name { Ok(NameInCursor(text.to_owned())) } else { Err(()) }
    }
}

/// Whether a request removes a thing that is in use.
pub fn removal(mut query: QueryParams) -> Result<Removal, ApiError> {
    let is_forced = query.flag("force").unwrap_or(false);
    query.finish()?;
    Ok(if is_forced { Removal::Forced } else { Removal::Unused })
}

/// The response to a PUT that creates or replaces.
pub fn stored(is_new: bool, body: impl Serialize) -> Response {
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    (status, Json(body)).into_response()
}
