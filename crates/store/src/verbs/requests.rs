//! Requests with an idempotency key, so that a repeated request has no second effect.

use crate::fault::Fault;
use crate::rows::Rows;
use punctual_core::ports::{NewRequest, RequestState};
use punctual_core::time::Timestamp;

pub(super) fn begin<R: Rows>(rows: &mut R, now: Timestamp, new: &NewRequest) -> Result<RequestState, Fault> {
    let Some(found) = rows.request(&new.request)? else {
        rows.insert_request(new, now)?;
        return Ok(RequestState::Begun { at: now, seed: new.seed, is_new: true });
    };
    if found.fingerprint != new.fingerprint {
        return Ok(RequestState::Mismatch);
    }
    Ok(match found.answer {
        Some(answer) => RequestState::Answered(answer),
        None => RequestState::Begun { at: found.begun_at, seed: found.seed, is_new: false },
    })
}
