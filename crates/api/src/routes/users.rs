//! Users: add, list, change and remove them.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody};
use crate::json::{self, DocumentShape};
use crate::new_id;
use crate::query::QueryParams;
use crate::routes::tokens::{IdCursor, distinct, explicit_all_owners, patterns, texts, to_the_end, words};
use axum::Json;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use punctual_client::{API_PREFIX, CreateUser, Page, UserBody};
use punctual_core::access::GrantRequest;
use punctual_core::ports::User;
use punctual_engine::NewUser;
use serde_json::{Map, Value};

/// The prefix of this list's cursors.
const LIST: &str = "users";

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<UserBody>>, ApiError> {
    let (after, limit) = (query.cursor::<IdCursor>(LIST), query.limit_or_most());
    query.finish()?;
    let page = call.cases.users(after.as_ref().map(IdCursor::id), limit).await?;
    let items = page.items.into_iter().map(view).collect();
    Ok(Json(Page { items, next_cursor: call.next_cursor(LIST, page.next).await? }))
}

/// By id or email address.
pub async fn show(
    call: Call,
    IdInPath(id): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<UserBody>, ApiError> {
    query.finish()?;
    Ok(Json(view(call.cases.user(&id).await?)))
}

pub async fn add(call: Call, body: JsonBody<BODY_BYTES_MAX>) -> Result<Response, ApiError> {
    let asked: CreateUser = json::parse(&body.bytes, DocumentShape::User)?;
    let id = new_id().map_err(|error| ApiError::Internal(format!("cannot read randomness: {error}")))?;
    to_the_end(async move {
        let user = call.cases.add_user(id, new_user(asked)).await?;
        let location = format!("{API_PREFIX}/users/{}", user.id);
        Ok((StatusCode::CREATED, [(LOCATION, location)], Json(view(user))).into_response())
    })
    .await
}

/// Changes only the fields that the body names.
pub async fn patch(
    call: Call,
    IdInPath(id): IdInPath<String>,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Json<UserBody>, ApiError> {
    let named: Map<String, Value> = json::parse(&body.bytes, DocumentShape::UserPatch)?;
    to_the_end(async move {
        let user = call.cases.update_user(&id, |stored| patched(stored, named.clone())).await;
        call.api.verified.clear();
        Ok(Json(view(user?)))
    })
    .await
}

pub async fn remove(call: Call, IdInPath(id): IdInPath<String>, _: NoBody) -> Result<StatusCode, ApiError> {
    to_the_end(async move {
        let removed = call.cases.remove_user(&id).await;
        call.api.verified.clear();
        removed?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// The user after a merge patch (RFC 7396), and whether it is disabled.
fn patched(stored: &User, mut named: Map<String, Value>) -> Result<(NewUser, bool), ApiError> {
    let is_disabled = match named.remove("disabled") {
        None => stored.about.is_disabled,
        Some(Value::Null) => false,
        Some(Value::Bool(disabled)) => disabled,
        Some(_) => return Err(ApiError::field("disabled", "must be true or false")),
    };
    let internal = |error: serde_json::Error| ApiError::Internal(format!("a user is not JSON: {error}"));
    let mut user: Map<String, Value> =
        serde_json::to_value(as_asked(stored)).and_then(serde_json::from_value).map_err(internal)?;
    user.extend(named);
    let text = serde_json::to_vec(&user).map_err(internal)?;
    Ok((new_user(json::parse(&text, DocumentShape::PatchedUser)?), is_disabled))
}

/// The request that would add this user.
fn as_asked(user: &User) -> CreateUser {
    let about = &user.about;
    CreateUser {
        email: user.email.clone(),
        display_name: about.display_name.clone(),
        role: user.role,
        owner_id: about.terms.owner.clone(),
        all_owners: explicit_all_owners(about.terms.owner.as_ref(), &about.terms.scope),
        queues: texts(&about.terms.scope.queues),
        job_types: texts(&about.terms.scope.job_types),
        permissions: about.terms.permissions.clone(),
        notification_channel: about.notification_channel.clone(),
    }
}

fn new_user(asked: CreateUser) -> NewUser {
    NewUser {
        email: asked.email,
        display_name: asked.display_name,
        notification_channel: asked.notification_channel,
        grant: GrantRequest {
            role: asked.role,
            permissions: distinct(asked.permissions),
            owner: asked.owner_id,
            all_owners: asked.all_owners,
            queues: patterns(asked.queues),
            job_types: patterns(asked.job_types),
        },
    }
}

fn view(user: User) -> UserBody {
    let about = user.about;
    UserBody {
        user_id: user.id,
        email: user.email,
        display_name: about.display_name,
        role: user.role.word().to_owned(),
        owner_id: about.terms.owner,
        all_owners: about.terms.scope.owner.is_none(),
        queues: texts(&about.terms.scope.queues),
        job_types: texts(&about.terms.scope.job_types),
        permissions: words(&about.terms.permissions),
        notification_channel: about.notification_channel,
        disabled: about.is_disabled,
        created_at: user.created_at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::access::{GrantTerms, NamePattern, Permission, Role, Scope};
    use punctual_core::ports::UserAbout;
    use punctual_core::time::Timestamp;

    fn stored() -> User {
        let scope = Scope {
            owner: Some("team".to_owned()),
            queues: vec![NamePattern::new("mail-*")],
            ..Scope::default()
        };
        User {
            id: "u".to_owned(),
            email: "ann@example.org".to_owned(),
            role: Role::Submitter,
            created_at: Timestamp::EPOCH,
            about: UserAbout {
                display_name: Some("Ann".to_owned()),
                terms: GrantTerms {
                    owner: Some("team".to_owned()),
                    scope,
                    permissions: vec![Permission::AuditRead],
                },
                notification_channel: Some("email".to_owned()),
                is_disabled: true,
            },
        }
    }

    fn changed(json: &str) -> (NewUser, bool) {
        patched(&stored(), serde_json::from_str(json).unwrap()).unwrap()
    }

    fn refused(json: &str) -> String {
        match patched(&stored(), serde_json::from_str(json).unwrap()) {
            Err(ApiError::InvalidFields(errors)) => format!("{} {}", errors[0].field, errors[0].detail),
            other => panic!("{json} gave {other:?}"),
        }
    }

    #[test]
    fn what_a_patch_does_not_name_stays_and_null_resets() {
        let (same, is_disabled) = changed("{}");
        assert_eq!((same.clone(), is_disabled), (new_user(as_asked(&stored())), true));
        let grant = &same.grant;
        assert_eq!((grant.owner.as_deref(), grant.all_owners), (Some("team"), None));
        let (user, is_disabled) = changed(
            r#"{"display_name":null,"queues":null,"permissions":null,"owner_id":null,"disabled":null}"#,
        );
        assert_eq!((user.display_name, is_disabled), (None, false));
        assert_eq!((user.grant.queues, user.grant.permissions, user.grant.owner), (vec![], vec![], None));
        assert_eq!(user.notification_channel.as_deref(), Some("email"));
        let (user, is_disabled) = changed(r#"{"role":"viewer","all_owners":true,"disabled":false}"#);
        assert_eq!((user.grant.role, user.grant.all_owners, is_disabled), (Role::Viewer, Some(true), false));
    }

    #[test]
    fn only_an_unusual_reach_is_carried_along() {
        let mut all = stored();
        all.about.terms.scope = Scope::default();
        assert_eq!(as_asked(&all).all_owners, Some(true));
        let without_owner = User { about: UserAbout::default(), ..stored() };
        assert_eq!(as_asked(&without_owner).all_owners, None, "a role that reaches only its own is limited");
    }

    #[test]
    fn a_wrong_patch_is_answered_by_field() {
        for (patch, told) in [
            (r#"{"disabled":"yes"}"#, "disabled must be true or false"),
            (r#"{"role":"root"}"#, "role must be a role: viewer, "),
            (r#"{"role":null}"#, "role must be a string, not null"),
            (r#"{"e_mail":"x"}"#, "e_mail is not a known field, did you mean email?"),
        ] {
            let problem = refused(patch);
            assert!(problem.starts_with(told), "{problem}");
        }
    }
}
