//! The audit log: listing and verifying it.

use crate::auth::Call;
use crate::error::ApiError;
use crate::query::QueryParams;
use crate::views::raw_json;
use axum::Json;
use punctual_client::{AuditCheckBody, AuditEntryBody, BrokenEntryBody, Page};
use punctual_core::ports::{AuditId, AuditQuery, AuditRow, OUTCOME_OK, OUTCOME_REFUSED};
use std::str::FromStr;

/// The prefix of this list's cursors.
const LIST: &str = "audit";

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<AuditEntryBody>>, ApiError> {
    let asked = AuditQuery {
        before: query.cursor::<AuditId>(LIST),
        limit: query.limit(),
        token: query.text("token_id"),
        user: query.text("user_id"),
        action: query.text("action"),
        object: query.text("object"),
        outcome: query.parsed::<OutcomeStart>("outcome").map(|OutcomeStart(outcome)| outcome),
        from: query.time("from"),
        until: query.time("until"),
    };
    query.finish()?;
    let page = call.cases.audit(asked).await?;
    Ok(Json(Page {
        items: page.items.into_iter().map(view).collect(),
        next_cursor: call.next_cursor(LIST, page.next).await?,
    }))
}

/// Verifies the chain after a number, as far as one request goes.
pub async fn verify(call: Call, mut query: QueryParams) -> Result<Json<AuditCheckBody>, ApiError> {
    // Numbers are signed in databases.
    let after = query.parsed::<NonNegative>("after").map_or(0, |NonNegative(number)| number);
    query.finish()?;
    let verified = call.cases.verify_audit(after).await?;
    let broken = verified.check.broken;
    Ok(Json(AuditCheckBody {
        checked: verified.check.checked,
        broken: broken.map(|broken| BrokenEntryBody { number: broken.number, problem: broken.problem }),
        next: verified.next,
        deleted_until: verified.ends.anchor.number,
        last_number: verified.ends.head.number,
        last_hash: hex(&verified.ends.head.hash),
        unsealed: verified.unsealed,
    }))
}

fn view(AuditRow { entry, seal }: AuditRow) -> AuditEntryBody {
    AuditEntryBody {
        entry_id: entry.id.to_string(),
        at: entry.at,
        token_id: entry.token,
        name: entry.name,
        user_id: entry.user,
        source: entry.source,
        action: entry.action,
        object: entry.object,
        outcome: entry.outcome,
        details: entry.details.and_then(raw_json),
        number: seal.map(|seal| seal.number),
        hash: seal.map(|seal| hex(&seal.hash)),
    }
}

fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The beginning of an outcome that an entry can have.
struct OutcomeStart(String);

impl FromStr for OutcomeStart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_start = |word: &str| word.starts_with(text) || text.starts_with(word);
        // Of a request with several items: `3 of 4`.
        let is_count = text.starts_with(|first: char| first.is_ascii_digit());
        if is_count || is_start(OUTCOME_REFUSED) || OUTCOME_OK.starts_with(text) {
            return Ok(OutcomeStart(text.to_owned()));
        }
        Err(format!("must be {OUTCOME_OK}, {OUTCOME_REFUSED}, or the beginning of a count such as `3 of 4`"))
    }
}

/// A number from 0 to the largest one that a database holds.
struct NonNegative(u64);

impl FromStr for NonNegative {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number: Option<i64> = text.parse().ok();
        let number = number.and_then(|number| u64::try_from(number).ok());
        number.map(NonNegative).ok_or_else(|| format!("must be a number from 0 to {}", i64::MAX))
    }
}
