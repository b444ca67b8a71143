//! Secrets: set, list, remove and re-encrypt them. No response has a value.

use super::named::{NameInCursor, removal, stored};
use super::tokens::{NoRequestKey, patterns, to_the_end};
use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody, OptionalBody};
use crate::json::{self, DocumentShape};
use crate::query::QueryParams;
use axum::Json;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::{Page, RotateSecrets, RotatedSecrets, SecretBody, SetSecret};
use punctual_core::access::NamePattern;
use punctual_core::secrets::{SecretRule, SecretRuleChange, secret_name_problem};
use punctual_engine::{RotationPlace, SecretView, SecretsRotated};

/// The prefix of this list's cursors.
const LIST: &str = "secrets";
/// Before the job at which the rotation of payloads continues. No name of a secret contains a tilde.
const PAYLOADS: &str = "payloads~";

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<SecretBody>>, ApiError> {
    let (after, limit) = (query.cursor::<NameInCursor>(LIST), query.limit_or_most());
    query.finish()?;
    let page = call.cases.secrets(NameInCursor::text(after.as_ref()), limit).await?;
    let items = page.items.into_iter().map(view).collect();
    Ok(Json(Page { items, next_cursor: call.next_cursor(LIST, page.next).await? }))
}

pub async fn show(
    call: Call,
    IdInPath(name): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<SecretBody>, ApiError> {
    query.finish()?;
    Ok(Json(view(call.cases.secret(&name).await?)))
}

/// Sets the value, and the rules that the body names. The others stay; those of a new secret get their defaults.
pub async fn set(
    call: Call,
    IdInPath(name): IdInPath<String>,
    _: NoRequestKey,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let SetSecret { value, owners, queues, job_types } = json::parse(&body.bytes, DocumentShape::Secret)?;
    let [owners, queues, job_types] = [owners, queues, job_types].map(|list| list.map(patterns));
    let rule = SecretRuleChange { owners, queues, job_types };
    to_the_end(async move {
        let (secret, is_new) = call.cases.set_secret(&name, &value, rule).await?;
        Ok(stored(is_new, view(secret)))
    })
    .await
}

pub async fn remove(
    call: Call,
    IdInPath(name): IdInPath<String>,
    query: QueryParams,
    _: NoBody,
) -> Result<StatusCode, ApiError> {
    let removal = removal(query)?;
    to_the_end(async move {
        call.cases.remove_secret(&name, removal).await?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

pub async fn rotate(
    call: Call,
    body: OptionalBody<BODY_BYTES_MAX>,
) -> Result<Json<RotatedSecrets>, ApiError> {
    let RotateSecrets { after } = body.parse()?;
    let after = after.as_deref().map(rotation_place).transpose();
    let after = after.map_err(|problem| ApiError::field("after", problem))?;
    let SecretsRotated { key_id, rotated, payloads, unreadable, next } =
        to_the_end(async move { Ok(call.cases.rotate_secrets(after).await?) }).await?;
    let next = next.map(|place| match place {
        RotationPlace::Secret(name) => name,
        RotationPlace::Payload(job) => {
            format!("{PAYLOADS}{}", job.map(|job| job.to_string()).unwrap_or_default())
        }
    });
    Ok(Json(RotatedSecrets { key_id, rotated: rotated as u64, payloads: payloads as u64, unreadable, next }))
}

/// Where a rotation continues: after a secret, or after the payload of a job.
fn rotation_place(text: &str) -> Result<RotationPlace, String> {
    let Some(job) = text.strip_prefix(PAYLOADS) else {
        return match secret_name_problem(text) {
            Some(problem) => Err(problem),
            None => Ok(RotationPlace::Secret(text.to_owned())),
        };
    };
    if job.is_empty() {
        return Ok(RotationPlace::Payload(None));
    }
    let job = job.parse().map_err(|_| "must be the next of an earlier step")?;
    Ok(RotationPlace::Payload(Some(job)))
}

fn view(secret: SecretView) -> SecretBody {
    let texts = |patterns: Vec<NamePattern>| patterns.iter().map(|one| one.as_str().to_owned()).collect();
    let SecretRule { owners, queues, job_types } = secret.about.rule;
    SecretBody {
        name: secret.name,
        version: secret.version,
        owners: texts(owners),
        queues: texts(queues),
        job_types: texts(job_types),
        key_id: secret.key_id,
        readable: secret.is_readable,
        created_at: secret.about.created_at,
        set_at: secret.about.set_at,
        set_by: secret.about.set_by,
    }
}
