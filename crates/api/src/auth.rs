//! Authentication: whose request it is.
//!
//! A request carries one credential: a token `pt_<id>_<secret>` or a JWT in the `Authorization` header, or the
//! session of a browser in a cookie. A token is looked up by its id and verified by the SHA-256 of its secret,
//! compared in constant time; [`crate::oidc`] verifies JWTs. Verified credentials are cached for a short while:
//! a busy client does not cost a read per request, and a revoked token still stops working soon.

use crate::browser::BrowserSite;
use crate::credential_cache::CredentialCache;
use crate::dashboard;
use crate::error::ApiError;
use crate::oidc::Claims;
use crate::tls::Secured;
use crate::token_uses::note_use;
use crate::trace_headers::trace_context;
use crate::{Api, secret_sha256};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use punctual_core::names::name_problem;
use punctual_core::ports::{Token, User};
use punctual_core::time::Timestamp;
use punctual_engine::{Caller, RefusedPrincipal, UseCases};
use std::net::SocketAddr;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// The only paths that need no token, besides those of the dashboard. They reveal nothing about jobs.
pub const PUBLIC_PATHS: [&str; 10] = [
    "/",
    "/acknowledge",
    "/docs",
    "/livez",
    "/login",
    "/login/callback",
    "/login/oidc",
    "/logout",
    "/openapi.json",
    "/readyz",
];

/// Bytes of a token; longer ones are rejected without being parsed.
const TOKEN_BYTES_MAX: usize = 256;

const UNKNOWN: ApiError = ApiError::Unauthorized("the token is unknown");
const EXPIRED: ApiError = ApiError::Unauthorized("the token has expired");
const NO_USER: ApiError = ApiError::Unauthorized("the user of the token was removed");
const DISABLED: ApiError = ApiError::Unauthorized("the user is disabled");
const UNVERIFIED: ApiError = ApiError::Unauthorized(
    "a user of this server has the email address of the JWT, and the JWT does not say that the address is verified: the \
     identity provider must set email_verified to true",
);
const SESSION_OVER: ApiError = ApiError::Unauthorized("the session is over: log in again");

/// The address that a connection comes from. The server attaches it to each request.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// Verified credentials.
#[derive(Default)]
pub struct Verified {
    tokens: CredentialCache<String, KnownToken>,
    /// By their SHA-256.
    jwts: CredentialCache<[u8; 32], KnownJwt>,
}

impl Verified {
    /// Forgets everything, so that a change of tokens or users takes effect at once on this node.
    pub fn clear(&self) {
        self.tokens.clear();
        self.jwts.clear();
    }
}

/// An authenticated request: the server's state, the use cases on behalf of its caller, and how the caller
/// has proven who it is.
pub struct Call {
    pub api: Api,
    pub cases: UseCases,
    pub credential: Credential,
}

impl FromRequestParts<Api> for Call {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let credential = parts.extensions.get::<Credential>().cloned();
        let (Some(caller), Some(credential)) = (caller, credential) else {
            return Err(ApiError::Internal("a request came past the guard".to_owned()));
        };
        let cases = api.access.on_behalf_of(caller).within_trace(trace_context(&parts.headers));
        Ok(Call { api: api.clone(), cases, credential })
    }
}

/// Lets a request through if its path is public or it has a valid credential. The use cases check what its
/// caller may do.
pub async fn guard(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if PUBLIC_PATHS.contains(&path) || dashboard::is_at(path) {
        return next.run(request).await;
    }
    let credential = match presented(&api, &request) {
        Ok(credential) => credential,
        Err(error) => return error.into_response(),
    };
    match credential.caller(&api).await {
        Ok(caller) => {
            let caller = Caller { source: source(&request), ..caller };
            request.extensions_mut().insert(caller);
            request.extensions_mut().insert(credential);
            next.run(request).await
        }
        Err(error) => {
            note_refusal(&api, &credential, &error, source(&request)).await;
            error.into_response()
        }
    }
}

/// Notes for the audit log that a credential which is known was refused.
async fn note_refusal(api: &Api, credential: &Credential, error: &ApiError, source: Option<String>) {
    let ApiError::Unauthorized(reason) = error else { return };
    if let Some(who) = credential.principal(api).await {
        api.access.record_refusal(RefusedPrincipal { source, ..who }, reason);
    }
}

/// Notes for the audit log that a browser could not log in.
pub fn note_refused_login(
    api: &Api,
    who: Option<RefusedPrincipal>,
    error: &ApiError,
    source: Option<String>,
) {
    if let ApiError::Unauthorized(reason) = error {
        let who = who.unwrap_or_else(|| RefusedPrincipal {
            token_id: "unknown".to_owned(),
            ..RefusedPrincipal::default()
        });
        api.access.record_refused_login(RefusedPrincipal { source, ..who }, reason);
    }
}

/// Whom claims describe, to note that they were refused. Only a verified address names a user.
pub async fn principal_of(api: &Api, claims: &Claims) -> RefusedPrincipal {
    let user = match claims.verified_email() {
        Some(_) => claimed_user(api, claims).await.ok().flatten(),
        None => None,
    };
    RefusedPrincipal {
        token_id: claims.principal(),
        name: claims.name(),
        user: user.map(|user| user.id),
        source: None,
    }
}

/// Lets a request of the worker protocol through if its connection has the client certificate that the server
/// may demand of workers.
pub fn needs_certificate(request: &Request) -> Result<(), ApiError> {
    let is_missing =
        |secured: &Secured| secured.tls.workers_need_certificate && !secured.has_client_certificate;
    if request.extensions().get::<Secured>().is_some_and(is_missing) {
        return Err(ApiError::NoCertificate);
    }
    Ok(())
}

/// Whether the request carries a valid token. While the store does not answer, only cached tokens are valid.
pub async fn is_known(api: &Api, headers: &HeaderMap) -> bool {
    match in_header(headers) {
        Ok(Some(credential)) => credential.caller(api).await.is_ok(),
        _ => false,
    }
}

/// The caller behind the session cookie of a request; `None` without one.
pub async fn session(api: &Api, request: &Head) -> Result<Option<Caller>, ApiError> {
    let Some(cookie) = BrowserSite::of(&api.web, request)?.session(request.headers())? else {
        return Ok(None);
    };
    let secret = TokenSecret::parse(&cookie, Carrier::Cookie).ok_or(SESSION_OVER)?;
    let caller = Credential::Token(secret).caller(api).await?;
    Ok(Some(Caller { source: source(request), ..caller }))
}

/// The address that a request comes from.
pub fn source<B>(request: &axum::http::Request<B>) -> Option<String> {
    let Peer(address) = request.extensions().get()?;
    Some(address.ip().to_canonical().to_string())
}

/// A request without its body.
pub type Head = axum::http::Request<()>;

/// What a caller shows to prove who it is.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    Token(TokenSecret),
    Jwt(Arc<str>),
}

#[derive(Clone, PartialEq, Eq)]
pub struct TokenSecret {
    pub id: String,
    pub secret_sha256: [u8; 32],
    carrier: Carrier,
}

/// The sessions of browsers are valid only in cookies, so that rules for browsers apply to them, and all other
/// tokens only in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Header,
    Cookie,
}

/// The credential of a request, if its form is right.
fn presented(api: &Api, request: &Request) -> Result<Credential, ApiError> {
    if let Some(credential) = in_header(request.headers())? {
        return Ok(credential);
    }
    let site = BrowserSite::of(&api.web, request)?;
    match site.session(request.headers())? {
        Some(cookie) => {
            site.check_origin(request.method(), request.headers())?;
            let secret = TokenSecret::parse(&cookie, Carrier::Cookie).ok_or(SESSION_OVER)?;
            Ok(Credential::Token(secret))
        }
        None => Err(ApiError::Unauthorized("send the header `Authorization: Bearer <token>`")),
    }
}

fn in_header(headers: &HeaderMap) -> Result<Option<Credential>, ApiError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => bearer(value).map(Some),
        (Some(_), Some(_)) => {
            let detail = "must be sent once".to_owned();
            Err(ApiError::InvalidHeader { header: "Authorization", detail })
        }
    }
}

fn bearer(value: &HeaderValue) -> Result<Credential, ApiError> {
    let malformed = || ApiError::Unauthorized("the token must look like pt_<id>_<secret>");
    let value = value.to_str().map_err(|_| malformed())?;
    let bearer = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let Some((_, token)) = bearer else {
        return Err(ApiError::Unauthorized("send the header `Authorization: Bearer <token>`"));
    };
    credential(token.trim()).ok_or_else(malformed)
}

/// A token or a JWT, as people paste it.
pub fn credential(text: &str) -> Option<Credential> {
    if text.bytes().filter(|byte| *byte == b'.').count() == 2 {
        return Some(Credential::Jwt(text.into()));
    }
    TokenSecret::parse(text, Carrier::Header).map(Credential::Token)
}

impl TokenSecret {
    fn parse(token: &str, carrier: Carrier) -> Option<Self> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (id, secret) = token.strip_prefix("pt_")?.split_once('_')?;
        let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (is_plain(id) && is_plain(secret)).then(|| TokenSecret {
            id: id.to_owned(),
            secret_sha256: secret_sha256(secret),
            carrier,
        })
    }

    /// Whether it is the secret of this token, or one that a rotation has replaced and that still works.
    fn opens(&self, token: Option<&Token>, now: Timestamp) -> bool {
        proves(token, &self.secret_sha256, now)
    }
}

/// Without a token it takes the same comparisons, so that timing does not reveal which ids exist.
fn proves(token: Option<&Token>, secret_sha256: &[u8; 32], now: Timestamp) -> bool {
    let current = token.map_or([0; 32], |token| token.secret_sha256);
    let replaced = token.and_then(|token| token.about.replaced.as_ref()).filter(|old| now < old.until);
    let replaced = replaced.map_or(current, |old| old.secret_sha256);
    let is_equal = current.ct_eq(secret_sha256) | replaced.ct_eq(secret_sha256);
    bool::from(is_equal) && token.is_some()
}

impl Credential {
    /// Its caller, as of a few seconds ago at most.
    pub async fn caller(&self, api: &Api) -> Result<Caller, ApiError> {
        let (now, since) = (api.access.now(), api.clock.monotonic());
        match self {
            Credential::Token(secret) => {
                let cached = api.verified.tokens.get(&secret.id, since);
                let cached = cached.filter(|known| secret.opens(Some(&known.token), now));
                let caller = match cached.and_then(|known| known.caller(secret, now).ok()) {
                    Some(caller) => caller,
                    // A cached token may have been replaced meanwhile, by this process or another one.
                    None => {
                        let generation = api.verified.tokens.generation();
                        let known = KnownToken::read(api, secret, now).await?;
                        let caller = known.caller(secret, now)?;
                        api.verified.tokens.put(secret.id.clone(), known, since, generation);
                        caller
                    }
                };
                note_use(api, &secret.id, now);
                Ok(caller)
            }
            Credential::Jwt(jwt) => {
                let key = secret_sha256(jwt);
                if let Some(known) = api.verified.jwts.get(&key, since).filter(|known| now < known.until) {
                    return Ok(known.caller);
                }
                let generation = api.verified.jwts.generation();
                let known = KnownJwt::verify(api, jwt, now).await?;
                api.verified.jwts.put(key, known.clone(), since, generation);
                Ok(known.caller)
            }
        }
    }

    /// The principal that it names, even if it is refused; `None` if it names none. A token is looked up whether its id
    /// is known or not, so that the time taken does not tell.
    pub async fn principal(&self, api: &Api) -> Option<RefusedPrincipal> {
        match self {
            Credential::Token(secret) => {
                let token = api.access.token(&secret.id).await.ok()??;
                let (name, user) = (token.about.name, token.about.user);
                Some(RefusedPrincipal { token_id: token.id, name, user, source: None })
            }
            Credential::Jwt(jwt) => {
                let claims = api.oidc.as_ref()?.verify_bearer(jwt, api.access.now()).await.ok()?;
                Some(principal_of(api, &claims).await)
            }
        }
    }

    /// Its caller as of now: nothing comes from a cache. `None` if the credential is no longer valid, or cannot
    /// be verified because the identity provider has been away for long.
    pub async fn fresh(&self, api: &Api) -> Result<Option<Caller>, ApiError> {
        let now = api.access.now();
        let caller = match self {
            Credential::Token(secret) => match KnownToken::read(api, secret, now).await {
                Ok(known) => known.caller(secret, now),
                Err(error) => Err(error),
            },
            Credential::Jwt(jwt) => KnownJwt::verify(api, jwt, now).await.map(|known| known.caller),
        };
        match caller {
            Ok(caller) => Ok(Some(caller)),
            Err(ApiError::Unauthorized(_) | ApiError::IssuerUnavailable) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A token whose secret was presented, and what its grant depends on.
#[derive(Debug, Clone)]
struct KnownToken {
    token: Token,
    user: Option<User>,
    /// The token that a browser has logged in with.
    parent: Option<Token>,
}

impl KnownToken {
    /// Reads no more before the secret is proven, whether the id exists or not.
    async fn read(api: &Api, secret: &TokenSecret, now: Timestamp) -> Result<Self, ApiError> {
        let stored = api.access.token(&secret.id).await?;
        let token = match (secret.opens(stored.as_ref(), now), stored) {
            (true, Some(token)) => token,
            _ => return Err(UNKNOWN),
        };
        let parent = match &token.about.session_of {
            Some(parent) => api.access.token(&parent.id).await?,
            None => None,
        };
        let user = match &token.about.user {
            Some(user) => api.access.user(user).await?,
            None => None,
        };
        Ok(KnownToken { token, user, parent })
    }

    fn caller(&self, secret: &TokenSecret, now: Timestamp) -> Result<Caller, ApiError> {
        let KnownToken { token, user, parent } = self;
        if token.about.is_browser != (secret.carrier == Carrier::Cookie) {
            return Err(UNKNOWN);
        }
        if token.is_expired(now) {
            return Err(if token.about.is_browser { SESSION_OVER } else { EXPIRED });
        }
        if let Some(at_login) = &token.about.session_of {
            let works = proves(parent.as_ref(), &at_login.secret_sha256, now);
            if !works || parent.as_ref().is_none_or(|parent| parent.is_expired(now)) {
                return Err(SESSION_OVER);
            }
        }
        match (&token.about.user, user) {
            // The session of a browser may do what its token may at that moment.
            (None, _) => {
                Ok(Caller { grant: parent.as_ref().unwrap_or(token).grant(), ..Caller::of_token(token) })
            }
            (Some(_), None) => Err(NO_USER),
            (Some(_), Some(user)) if user.about.is_disabled => Err(DISABLED),
            (Some(_), Some(user)) => Ok(Caller::of_user(token, user)),
        }
    }
}

/// A JWT that was verified.
#[derive(Debug, Clone)]
struct KnownJwt {
    caller: Caller,
    until: Timestamp,
}

impl KnownJwt {
    async fn verify(api: &Api, jwt: &str, now: Timestamp) -> Result<Self, ApiError> {
        let Some(oidc) = &api.oidc else {
            return Err(ApiError::Unauthorized(
                "this server accepts no JWTs: send a token that looks like pt_<id>_<secret>",
            ));
        };
        let claims = oidc.verify_bearer(jwt, now).await?;
        let caller = caller_of(api, &claims).await?;
        Ok(KnownJwt { caller, until: claims.until })
    }
}

/// The caller that an identity provider describes: a user with its email address, or else the role that its
/// claims are mapped to.
pub async fn caller_of(api: &Api, claims: &Claims) -> Result<Caller, ApiError> {
    let Some(oidc) = &api.oidc else { return Err(UNKNOWN) };
    let user = claimed_user(api, claims).await?;
    match user {
        // Otherwise the role of the claims would replace what this server says about the user.
        Some(_) if claims.verified_email().is_none() => Err(UNVERIFIED),
        Some(user) if user.about.is_disabled => Err(DISABLED),
        Some(user) => Ok(Caller {
            token_id: claims.principal(),
            name: claims.name(),
            user: Some(user.id.clone()),
            session_of: None,
            is_stored: false,
            grant: user.grant(),
            source: None,
        }),
        None => Ok(Caller {
            token_id: claims.principal(),
            name: claims.name(),
            user: None,
            session_of: None,
            is_stored: false,
            grant: oidc.rules().grant(claims)?,
            source: None,
        }),
    }
}

/// The user with the email address in these claims, whether it is verified or not.
async fn claimed_user(api: &Api, claims: &Claims) -> Result<Option<User>, ApiError> {
    // No user has an invalid address, and databases refuse some texts instead of finding nothing.
    match claims.email().filter(|email| name_problem(email).is_none()) {
        Some(email) => Ok(api.access.user_by_email(&email).await?),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::access::Role;
    use punctual_core::ports::{ParentToken, ReplacedSecret, TokenAbout, UserAbout};

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);
    const LATER: Timestamp = Timestamp::from_micros(2_000_000_000);

    fn header(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    fn secret(text: &str, carrier: Carrier) -> TokenSecret {
        TokenSecret::parse(text, carrier).unwrap()
    }

    fn token(id: &str, secret: &str) -> Token {
        Token {
            id: id.to_owned(),
            secret_sha256: secret_sha256(secret),
            role: Role::Operator,
            created_at: Timestamp::EPOCH,
            expires_at: None,
            last_used_at: None,
            about: TokenAbout { name: "deploy".to_owned(), ..TokenAbout::default() },
        }
    }

    fn user(id: &str) -> User {
        User {
            id: id.to_owned(),
            email: "ann@example.org".to_owned(),
            role: Role::Viewer,
            created_at: Timestamp::EPOCH,
            about: UserAbout::default(),
        }
    }

    fn known(token: Token) -> KnownToken {
        KnownToken { token, user: None, parent: None }
    }

    fn refusal(known: &KnownToken, secret: &TokenSecret) -> Option<&'static str> {
        match known.caller(secret, NOW) {
            Ok(_) => None,
            Err(ApiError::Unauthorized(why)) => Some(why),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_header_holds_a_token_or_a_jwt() {
        let read = |value: &str| in_header(&header(value)).ok().flatten();
        let admin = Some(Credential::Token(secret("pt_admin_0a1b", Carrier::Header)));
        assert!(read("Bearer pt_admin_0a1b") == admin);
        assert!(read("bearer  pt_admin_0a1b") == admin);
        assert!(read("Bearer a.b.c") == Some(Credential::Jwt("a.b.c".into())));
        for bad in ["", "Bearer", "Basic abc", "Bearer x", "Bearer pt_", "Bearer pt_a_", "Bearer pt_a_b c"] {
            assert!(in_header(&header(bad)).is_err(), "{bad:?}");
        }
        for bad in ["a.b", "a.b.c.d", "pt_a_b.c", &format!("pt_a_{}", "x".repeat(300))] {
            assert!(in_header(&header(&format!("Bearer {bad}"))).is_err(), "{bad:?}");
        }
        assert!(in_header(&HeaderMap::new()).unwrap().is_none());
    }

    #[test]
    fn two_headers_are_refused_even_if_they_are_equal() {
        let mut twice = header("Bearer pt_admin_0a1b");
        twice.append(AUTHORIZATION, "Bearer pt_admin_0a1b".parse().unwrap());
        assert!(matches!(in_header(&twice), Err(ApiError::InvalidHeader { header: "Authorization", .. })));
    }

    #[test]
    fn a_secret_opens_its_token_and_a_replaced_one_until_its_time() {
        let mut rotated = token("a", "new");
        rotated.about.replaced = Some(ReplacedSecret { secret_sha256: secret_sha256("old"), until: LATER });
        let opens =
            |text: &str, now| secret(&format!("pt_a_{text}"), Carrier::Header).opens(Some(&rotated), now);
        assert!(opens("new", NOW) && opens("new", LATER));
        assert!(opens("old", NOW) && !opens("old", LATER));
        assert!(!opens("other", NOW));
        assert!(!secret("pt_a_new", Carrier::Header).opens(None, NOW));
    }

    #[test]
    fn an_expired_token_says_so() {
        let header = secret("pt_a_s", Carrier::Header);
        let expiring = |at| known(Token { expires_at: Some(at), ..token("a", "s") });
        assert_eq!(refusal(&expiring(LATER), &header), None);
        assert_eq!(refusal(&expiring(NOW), &header), Some("the token has expired"));
    }

    #[test]
    fn a_token_of_a_user_may_do_what_the_user_may_as_long_as_there_is_one() {
        let header = secret("pt_a_s", Carrier::Header);
        let mut of_ann = known(token("a", "s"));
        of_ann.token.about.user = Some("u1".to_owned());
        assert_eq!(refusal(&of_ann, &header), Some("the user of the token was removed"));
        of_ann.user = Some(user("u1"));
        let caller = of_ann.caller(&header, NOW).unwrap();
        assert_eq!((caller.user.as_deref(), caller.grant.role), (Some("u1"), Role::Viewer));
        of_ann.user.as_mut().unwrap().about.is_disabled = true;
        assert_eq!(refusal(&of_ann, &header), Some("the user is disabled"));
    }

    #[test]
    fn sessions_are_valid_in_cookies_only_and_other_tokens_in_headers_only() {
        let [header, cookie] = [Carrier::Header, Carrier::Cookie].map(|carrier| secret("pt_a_s", carrier));
        let plain = known(token("a", "s"));
        assert_eq!(
            (refusal(&plain, &header), refusal(&plain, &cookie)),
            (None, Some("the token is unknown"))
        );
        let mut session = plain;
        session.token.about.is_browser = true;
        assert_eq!(
            (refusal(&session, &header), refusal(&session, &cookie)),
            (Some("the token is unknown"), None)
        );
    }

    #[test]
    fn a_session_ends_with_the_token_that_it_began_with() {
        let over = Some("the session is over: log in again");
        let cookie = secret("pt_s_x", Carrier::Cookie);
        let mut session = known(token("s", "x"));
        session.token.about.is_browser = true;
        session.token.about.session_of =
            Some(ParentToken { id: "a".to_owned(), secret_sha256: secret_sha256("s") });
        assert_eq!(refusal(&session, &cookie), over, "the token was revoked");
        session.parent = Some(token("a", "s"));
        assert_eq!(refusal(&session, &cookie), None);
        session.parent = Some(Token { expires_at: Some(NOW), ..token("a", "s") });
        assert_eq!(refusal(&session, &cookie), over, "the token has expired");
        session.parent = Some(token("a", "another"));
        assert_eq!(refusal(&session, &cookie), over, "the token has another secret");
    }

    #[test]
    fn a_session_may_do_what_its_token_may_now() {
        let cookie = secret("pt_s_x", Carrier::Cookie);
        let mut session = known(Token { role: Role::Admin, ..token("s", "x") });
        session.token.about.is_browser = true;
        session.token.about.session_of =
            Some(ParentToken { id: "a".to_owned(), secret_sha256: secret_sha256("s") });
        session.parent = Some(Token { role: Role::Viewer, ..token("a", "s") });
        let caller = session.caller(&cookie, NOW).unwrap();
        assert_eq!((caller.token_id.as_str(), caller.grant.role), ("s", Role::Viewer));
    }
}
