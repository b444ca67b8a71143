//! The scheduling clock: reading it, and driving it where the server was started with a manual clock.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, JsonBody};
use crate::json::DocumentShape;
use crate::{Api, json};
use axum::Json;
use punctual_client::{ClockBody, ClockMode, ClockMoved, MoveClock};
use punctual_core::limits;
use punctual_core::ports::DrivenClock;
use punctual_core::time::Timestamp;
use punctual_engine::{Drive, Driven};
use std::time::Duration;

/// How long to wait at each stop for the engine to become idle, by default.
const SETTLE_DEFAULT: Duration = Duration::from_secs(10);

pub async fn show(call: Call) -> Json<ClockBody> {
    let mode = if call.api.driven.is_some() { ClockMode::Manual } else { ClockMode::System };
    Json(ClockBody { mode, now: call.cases.now() })
}

/// Advances the clock: everything on the way fires at its own time.
pub async fn advance(call: Call, body: JsonBody<BODY_BYTES_MAX>) -> Result<Json<ClockMoved>, ApiError> {
    let clock = driven(&call.api)?;
    let drive = wanted(&body.bytes, call.cases.now())?;
    Ok(Json(moved(call.cases.advance_clock(clock, drive).await?)))
}

/// Jumps the clock: times in between count as missed.
pub async fn jump(call: Call, body: JsonBody<BODY_BYTES_MAX>) -> Result<Json<ClockMoved>, ApiError> {
    let clock = driven(&call.api)?;
    let drive = wanted(&body.bytes, call.cases.now())?;
    Ok(Json(moved(call.cases.jump_clock(clock, drive).await?)))
}

fn driven(api: &Api) -> Result<&dyn DrivenClock, ApiError> {
    let reason = "this server uses the machine's clock; start it with --clock manual to control its time";
    api.driven.as_deref().ok_or_else(|| ApiError::Conflict(reason.to_owned()))
}

fn wanted(body: &[u8], now: Timestamp) -> Result<Drive, ApiError> {
    let asked: MoveClock = json::parse(body, DocumentShape::ClockMove)?;
    let settle = asked.settle.map_or(SETTLE_DEFAULT, |settle| settle.get());
    if settle > limits::ADVANCE_TIME_MAX {
        let longest = limits::ADVANCE_TIME_MAX.as_secs();
        return Err(ApiError::field("settle", format!("must be at most {longest}s")));
    }
    let (field, to) = match (asked.by, asked.to) {
        (Some(by), None) => ("by", now.plus(by.get())),
        (None, Some(to)) => ("to", to),
        (Some(_), Some(_)) => return Err(ApiError::field("to", "must not be given together with by")),
        (None, None) => return Err(ApiError::field("by", "is needed (or give to)")),
    };
    if to < now {
        return Err(ApiError::field(field, format!("must not be before {now}: the clock never goes back")));
    }
    if to > Timestamp::MAX {
        return Err(ApiError::field(field, "must not be beyond 9999-12-30"));
    }
    Ok(Drive { to, settle })
}

fn moved(driven: Driven) -> ClockMoved {
    let Driven { now, fired, skipped, settled, more } = driven;
    ClockMoved { now, fired, skipped, settled, more }
}
