//! The audit log.

use super::super::operation::{Operation, Title};
use super::{ACCESS, paged};
use axum::http::Method;
use punctual_client::API_PREFIX;
use punctual_client::schema::{text, time, whole};
use punctual_engine::UseCase;

pub fn operations() -> Vec<Operation> {
    vec![list(), verify()]
}

fn list() -> Operation {
    let title = Title { id: "listAuditEntries", tag: ACCESS, summary: "List entries of the audit log" };
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/audit"), title)
        .needs(UseCase::ReadAudit)
        .about(
            "Latest first: every request that has changed something, and requests that were refused. A page reads \
             a bounded number of entries, so it may have fewer items than `limit`, even none, and still have a \
             next page.",
        )
        .in_query("token_id", text().about("Only those of this token."))
        .in_query("user_id", text().about("Only those of this user."))
        .in_query("action", text().about("Only actions that begin with this: `job.` for all actions on jobs."))
        .in_query("object", text().about("Only those about exactly this, such as `queue mail`."))
        .in_query("outcome", text().about("Only outcomes that begin with this: `ok` or `refused`."))
        .in_query("from", time().about("Only those at this time or later."))
        .in_query("until", time().about("Only those before this time."))
        .fails(400, "A parameter is unknown or out of range.");
    paged(operation).answers(200, "One page.", "AuditEntryPage")
}

fn verify() -> Operation {
    let title = Title { id: "verifyAuditLog", tag: ACCESS, summary: "Verify the audit log" };
    Operation::new(Method::GET, format!("{API_PREFIX}/audit/verify"), title)
        .needs(UseCase::ReadAudit)
        .about(
            "Recomputes the chain of hashes over sealed entries, a bounded number in each request: pass `next` as \
             `after` until it is null.",
        )
        .in_query("after", whole(0..=i64::MAX.unsigned_abs()).about("The number after which to begin.").otherwise(0))
        .answers(200, "What was found.", "AuditCheck")
        .fails(400, "A parameter is unknown or out of range.")
}
