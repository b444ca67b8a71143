//! Tokens: create, list, change, rotate and revoke them. Only the responses that make a secret contain it.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody, OptionalBody};
use crate::json::{self, DocumentShape};
use crate::query::QueryParams;
use crate::{new_id, new_secret, secret_sha256};
use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use punctual_client::{API_PREFIX, CreateToken, IDEMPOTENCY_KEY, Page, RotateToken, Span, TokenBody};
use punctual_core::access::{GrantRequest, NamePattern, Permission, Scope};
use punctual_core::limits;
use punctual_core::ports::{Token, User};
use punctual_core::time::Timestamp;
use punctual_engine::{Credentials, NewToken, UseCaseError};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::str::FromStr;

/// The prefix of this list's cursors.
const LIST: &str = "tokens";

/// The id of a token or user, in a cursor.
pub struct IdCursor(String);

impl IdCursor {
    pub fn id(&self) -> &str {
        &self.0
    }
}

impl FromStr for IdCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_id =
            text.len() <= limits::NAME_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_id { Ok(IdCursor(text.to_owned())) } else { Err(()) }
    }
}

/// Refuses an `Idempotency-Key`: responses to requests with one are stored, and a secret must not be.
pub struct NoRequestKey;

impl<S: Send + Sync> FromRequestParts<S> for NoRequestKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        if !parts.headers.contains_key(IDEMPOTENCY_KEY) {
            return Ok(NoRequestKey);
        }
        let detail =
            "is not accepted here: the request or its response has a secret, which must not be stored"
                .to_owned();
        Err(ApiError::InvalidHeader { header: IDEMPOTENCY_KEY, detail })
    }
}

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<TokenBody>>, ApiError> {
    let (after, limit) = (query.cursor::<IdCursor>(LIST), query.limit_or_most());
    query.finish()?;
    let page = call.cases.tokens(after.as_ref().map(IdCursor::id), limit).await?;
    let users = users_of(&call, &page.items).await?;
    let now = call.cases.now();
    let items = page.items.iter().map(|token| view(token, owner_of(token, &users), now)).collect();
    Ok(Json(Page { items, next_cursor: call.next_cursor(LIST, page.next).await? }))
}

pub async fn show(
    call: Call,
    IdInPath(id): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<TokenBody>, ApiError> {
    query.finish()?;
    let token = call.cases.token(&id).await?;
    Ok(Json(shown(&call, &token).await?))
}

/// Runs a change to its end, even if the client disconnects meanwhile: a change of access has several steps.
pub async fn to_the_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    let ended = tokio::spawn(change).await;
    ended.unwrap_or_else(|error| Err(ApiError::Internal(format!("a change was interrupted: {error}"))))
}

/// Responds with the token and its secret.
pub async fn create(
    call: Call,
    _: NoRequestKey,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    to_the_end(created(call, body)).await
}

async fn created(call: Call, body: JsonBody<BODY_BYTES_MAX>) -> Result<Response, ApiError> {
    let asked: CreateToken = json::parse(&body.bytes, DocumentShape::Token)?;
    let new = new_token(asked, call.cases.now())?;
    let (token_id, secret) = (new_id().map_err(no_randomness)?, new_secret().map_err(no_randomness)?);
    let credentials = Credentials { token_id, secret_sha256: secret_sha256(&secret) };
    let token = call.cases.create_token(new, credentials).await?;
    let location = format!("{API_PREFIX}/tokens/{}", token.id);
    let body = with_secret(told(&call, &token).await, &secret);
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(body)).into_response())
}

/// Responds with the token and its new secret.
pub async fn rotate(
    call: Call,
    IdInPath(id): IdInPath<String>,
    _: NoRequestKey,
    body: OptionalBody<BODY_BYTES_MAX>,
) -> Result<Json<TokenBody>, ApiError> {
    let RotateToken { overlap, expires_at, expires_after } = body.parse()?;
    let expires_at = expiry(expires_at, expires_after, call.cases.now())?;
    let overlap = overlap.map_or(limits::TOKEN_OVERLAP_DEFAULT, |overlap| overlap.get());
    let secret = new_secret().map_err(no_randomness)?;
    to_the_end(async move {
        let token = call.cases.rotate_token(&id, secret_sha256(&secret), overlap, expires_at).await;
        // Also after an error: the token may have its new secret.
        call.api.verified.clear();
        Ok(Json(with_secret(told(&call, &token?).await, &secret)))
    })
    .await
}

pub async fn revoke(call: Call, IdInPath(id): IdInPath<String>, _: NoBody) -> Result<StatusCode, ApiError> {
    to_the_end(async move {
        let revoked = call.cases.revoke_token(&id).await;
        // Also after an error: the token may be gone.
        call.api.verified.clear();
        revoked?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

fn no_randomness(error: getrandom::Error) -> ApiError {
    ApiError::Internal(format!("cannot read randomness: {error}"))
}

fn new_token(asked: CreateToken, now: Timestamp) -> Result<NewToken, ApiError> {
    let expires_at = expiry(asked.expires_at, asked.expires_after, now)?;
    if asked.user_id.is_some()
        && let Some(field) = own_field(&asked)
    {
        let fix = "must not be given with user_id: a token of a user may do what the user may";
        return Err(ApiError::field(field, fix));
    }
    let grant = asked.role.map(|role| GrantRequest {
        role,
        permissions: distinct(asked.permissions),
        owner: asked.owner_id,
        all_owners: asked.all_owners,
        queues: patterns(asked.queues),
        job_types: patterns(asked.job_types),
    });
    Ok(NewToken { name: asked.name, grant, user: asked.user_id, expires_at })
}

/// A time, or one after a duration.
fn expiry(at: Option<Timestamp>, after: Option<Span>, now: Timestamp) -> Result<Option<Timestamp>, ApiError> {
    match (at, after) {
        (Some(_), Some(_)) => Err(ApiError::field("expires_after", "cannot be combined with expires_at")),
        (None, Some(span)) => Ok(Some(now.plus(span.get()).min(Timestamp::MAX))),
        (at, None) => Ok(at),
    }
}

/// Changes only the fields that the body names.
pub async fn patch(
    call: Call,
    IdInPath(id): IdInPath<String>,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Json<TokenBody>, ApiError> {
    let named: Map<String, Value> = json::parse(&body.bytes, DocumentShape::TokenPatch)?;
    to_the_end(async move {
        let now = call.cases.now();
        let token = call.cases.update_token(&id, |stored| patched(stored, named.clone(), now)).await;
        call.api.verified.clear();
        Ok(Json(told(&call, &token?).await))
    })
    .await
}

/// The token after a merge patch (RFC 7396).
fn patched(stored: &Token, mut named: Map<String, Value>, now: Timestamp) -> Result<NewToken, ApiError> {
    if named.contains_key("user_id") {
        return Err(ApiError::field("user_id", "cannot be changed: create another token"));
    }
    let internal = |error: serde_json::Error| ApiError::Internal(format!("a token is not JSON: {error}"));
    let mut token: Map<String, Value> =
        serde_json::to_value(as_asked(stored)).and_then(serde_json::from_value).map_err(internal)?;
    named.retain(|field, value| field != "expires_after" || !value.is_null());
    if named.contains_key("expires_after") {
        token.remove("expires_at");
    }
    token.extend(named);
    let text = serde_json::to_vec(&token).map_err(internal)?;
    new_token(json::parse(&text, DocumentShape::PatchedToken)?, now)
}

/// The request that would create this token.
fn as_asked(token: &Token) -> CreateToken {
    let about = &token.about;
    let asked = CreateToken {
        name: about.name.clone(),
        expires_at: token.expires_at,
        user_id: about.user.clone(),
        ..CreateToken::default()
    };
    if about.user.is_some() {
        return asked;
    }
    CreateToken {
        role: Some(token.role),
        owner_id: about.terms.owner.clone(),
        all_owners: explicit_all_owners(about.terms.owner.as_ref(), &about.terms.scope),
        queues: texts(&about.terms.scope.queues),
        job_types: texts(&about.terms.scope.job_types),
        permissions: about.terms.permissions.clone(),
        ..asked
    }
}

/// A field that only a token without a user has.
fn own_field(asked: &CreateToken) -> Option<&'static str> {
    let fields = [
        ("role", asked.role.is_some()),
        ("owner_id", asked.owner_id.is_some()),
        ("all_owners", asked.all_owners.is_some()),
        ("queues", !asked.queues.is_empty()),
        ("job_types", !asked.job_types.is_empty()),
        ("permissions", !asked.permissions.is_empty()),
    ];
    fields.into_iter().find_map(|(field, is_given)| is_given.then_some(field))
}

pub fn patterns(names: Vec<String>) -> Vec<NamePattern> {
    names.into_iter().map(NamePattern::new).collect()
}

/// Each permission once, in the order of their definition.
pub fn distinct(mut permissions: Vec<Permission>) -> Vec<Permission> {
    permissions.sort();
    permissions.dedup();
    permissions
}

/// The users to whom these tokens belong.
async fn users_of(call: &Call, tokens: &[Token]) -> Result<BTreeMap<String, User>, ApiError> {
    let mut users = BTreeMap::new();
    for id in tokens.iter().filter_map(|token| token.about.user.as_ref()) {
        if users.contains_key(id) {
            continue;
        }
        match call.cases.user(id).await {
            Ok(user) => drop(users.insert(id.clone(), user)),
            Err(UseCaseError::NoSuchUser(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(users)
}

fn owner_of<'a>(token: &Token, users: &'a BTreeMap<String, User>) -> Option<&'a User> {
    token.about.user.as_ref().and_then(|id| users.get(id))
}

async fn shown(call: &Call, token: &Token) -> Result<TokenBody, ApiError> {
    let users = users_of(call, std::slice::from_ref(token)).await?;
    Ok(view(token, owner_of(token, &users), call.cases.now()))
}

/// The same after a change, whose secret must reach the caller: without the user if it cannot be read.
async fn told(call: &Call, token: &Token) -> TokenBody {
    match shown(call, token).await {
        Ok(body) => body,
        Err(_) => view(token, None, call.cases.now()),
    }
}

fn with_secret(body: TokenBody, secret: &str) -> TokenBody {
    TokenBody { secret: Some(format!("pt_{}_{secret}", body.token_id)), ..body }
}

/// A token. One that belongs to a user has the user's role, owner, scope and permissions.
fn view(token: &Token, user: Option<&User>, now: Timestamp) -> TokenBody {
    let about = &token.about;
    let (role, terms) = user.map_or((token.role, &about.terms), |user| (user.role, &user.about.terms));
    let old = about.replaced.as_ref().map(|replaced| replaced.until);
    TokenBody {
        token_id: token.id.clone(),
        secret: None,
        name: about.name.clone(),
        role: role.word().to_owned(),
        owner_id: terms.owner.clone(),
        all_owners: terms.scope.owner.is_none(),
        queues: texts(&terms.scope.queues),
        job_types: texts(&terms.scope.job_types),
        permissions: words(&terms.permissions),
        user_id: about.user.clone(),
        browser: about.is_browser,
        created_at: token.created_at,
        expires_at: token.expires_at,
        last_used_at: token.last_used_at,
        old_secret_until: old.filter(|until| *until > now),
    }
}

pub fn texts(patterns: &[NamePattern]) -> Vec<String> {
    patterns.iter().map(|pattern| pattern.as_str().to_owned()).collect()
}

pub fn words(permissions: &[Permission]) -> Vec<String> {
    permissions.iter().map(|permission| permission.word().to_owned()).collect()
}

/// What was asked for as `all_owners`, if it is not what follows from the owner.
pub fn explicit_all_owners(owner: Option<&String>, scope: &Scope) -> Option<bool> {
    let reaches_all = scope.owner.is_none();
    (reaches_all != owner.is_none()).then_some(reaches_all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::access::{GrantTerms, Role};
    use punctual_core::ports::{ReplacedSecret, TokenAbout, UserAbout};
    use std::time::Duration;

    fn asked(json: &str) -> CreateToken {
        json::parse(json.as_bytes(), DocumentShape::Token).unwrap()
    }

    fn refused(json: &str) -> String {
        let made = json::parse(json.as_bytes(), DocumentShape::Token)
            .and_then(|asked| new_token(asked, Timestamp::EPOCH));
        match made {
            Err(ApiError::InvalidFields(errors)) => format!("{} {}", errors[0].field, errors[0].detail),
            other => panic!("{json} gave {other:?}"),
        }
    }

    #[test]
    fn a_token_expires_at_a_time_or_after_a_duration() {
        let expiry = |json: &str| new_token(asked(json), Timestamp::EPOCH).unwrap().expires_at;
        assert_eq!(expiry(r#"{"name":"a","role":"viewer"}"#), None);
        let day = Timestamp::EPOCH.plus(Duration::from_secs(86_400));
        assert_eq!(expiry(r#"{"name":"a","role":"viewer","expires_after":"1d"}"#), Some(day));
        assert_eq!(expiry(r#"{"name":"a","role":"viewer","expires_at":"1970-01-02T00:00:00Z"}"#), Some(day));
        let both = r#"{"name":"a","role":"viewer","expires_after":"1d","expires_at":"1970-01-02T00:00:00Z"}"#;
        assert_eq!(refused(both), "expires_after cannot be combined with expires_at");
        let long = r#"{"name":"a","role":"viewer","expires_after":"9999w"}"#;
        assert!(expiry(long).unwrap() <= Timestamp::MAX);
    }

    #[test]
    fn wrong_words_are_answered_with_the_known_ones() {
        let role = refused(r#"{"name":"a","role":"root"}"#);
        assert!(
            role.starts_with("role must be a role: viewer, submitter, operator, admin, worker"),
            "{role}"
        );
        let permission = refused(r#"{"name":"a","role":"viewer","permissions":["jobs:read","all"]}"#);
        assert!(permission.starts_with("permissions[1] must be a permission: jobs:read, "), "{permission}");
    }

    #[test]
    fn a_token_of_a_user_has_no_grant_of_its_own() {
        let of_user = new_token(asked(r#"{"name":"a","user_id":"u"}"#), Timestamp::EPOCH).unwrap();
        assert_eq!((of_user.grant, of_user.user.as_deref()), (None, Some("u")));
        for (field, value) in [("role", r#""viewer""#), ("owner_id", r#""x""#), ("queues", r#"["q"]"#)] {
            let problem = refused(&format!(r#"{{"name":"a","user_id":"u","{field}":{value}}}"#));
            assert!(problem.starts_with(&format!("{field} must not be given with user_id")), "{problem}");
        }
    }

    #[test]
    fn what_a_patch_does_not_name_stays() {
        let day = Timestamp::from_micros(86_400_000_000);
        let plain = |json: &str| new_token(asked(json), Timestamp::EPOCH).unwrap();
        let about = TokenAbout {
            name: "a".to_owned(),
            terms: plain(r#"{"name":"a","role":"submitter","owner_id":"team","queues":["q-*"]}"#)
                .grant
                .unwrap()
                .terms("a"),
            ..TokenAbout::default()
        };
        let stored = Token {
            expires_at: Some(day),
            about,
            ..Token::new("t", [0; 32], Role::Submitter, Timestamp::EPOCH)
        };
        let change = |json: &str| patched(&stored, serde_json::from_str(json).unwrap(), Timestamp::EPOCH);
        let same = change("{}").unwrap();
        assert_eq!((same.name.as_str(), same.expires_at), ("a", Some(day)));
        assert_eq!(same.grant.unwrap().terms("a"), stored.about.terms);
        let changed = change(r#"{"name":"b","role":"viewer","queues":null,"expires_at":null}"#).unwrap();
        let grant = changed.grant.unwrap();
        assert_eq!((changed.name.as_str(), changed.expires_at, grant.role), ("b", None, Role::Viewer));
        assert_eq!((grant.owner.as_deref(), grant.queues.len()), (Some("team"), 0));
        assert_eq!(
            change(r#"{"expires_after":"2d"}"#).unwrap().expires_at,
            Some(day.plus(Duration::from_secs(86_400)))
        );
        assert_eq!(change(r#"{"expires_after":null}"#).unwrap().expires_at, Some(day));
        let of_user = TokenAbout { user: Some("u".to_owned()), ..TokenAbout::default() };
        let of_user = Token { about: of_user, ..stored.clone() };
        for (token, patch, told) in [
            (&stored, r#"{"user_id":"u"}"#, "user_id cannot be changed"),
            (&stored, r#"{"nme":"u"}"#, "nme is not a known field, did you mean name?"),
            (&of_user, r#"{"role":"viewer"}"#, "role must not be given with user_id"),
        ] {
            match patched(token, serde_json::from_str(patch).unwrap(), Timestamp::EPOCH) {
                Err(ApiError::InvalidFields(errors)) => {
                    let problem = format!("{} {}", errors[0].field, errors[0].detail);
                    assert!(problem.starts_with(told), "{problem}");
                }
                other => panic!("{patch} gave {other:?}"),
            }
        }
    }

    #[test]
    fn a_token_of_a_user_is_shown_with_what_the_user_may() {
        let about = TokenAbout {
            name: "laptop".to_owned(),
            user: Some("u".to_owned()),
            replaced: Some(ReplacedSecret { secret_sha256: [1; 32], until: Timestamp::from_micros(5) }),
            ..TokenAbout::default()
        };
        let token = Token { about, ..Token::new("t", [0; 32], Role::Admin, Timestamp::EPOCH) };
        let scope = Scope { owner: Some("team".to_owned()), ..Scope::default() };
        let user = User {
            id: "u".to_owned(),
            email: "a@b".to_owned(),
            role: Role::Viewer,
            created_at: Timestamp::EPOCH,
            about: UserAbout {
                terms: GrantTerms { owner: Some("team".to_owned()), scope, permissions: vec![] },
                ..UserAbout::default()
            },
        };
        let body = view(&token, Some(&user), Timestamp::from_micros(4));
        assert_eq!(
            (body.role.as_str(), body.owner_id.as_deref(), body.all_owners),
            ("viewer", Some("team"), false)
        );
        assert_eq!((body.old_secret_until, body.secret), (Some(Timestamp::from_micros(5)), None));
        assert_eq!(view(&token, None, Timestamp::from_micros(5)).old_secret_until, None);
    }
}
