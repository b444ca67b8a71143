//! Logging in with a browser: with a token, or with an identity provider. A browser that has logged in keeps a
//! session in a cookie. The pages have no scripts.

use crate::Api;
use crate::auth::{self, Credential};
use crate::browser::{BrowserSite, Cookie, escaped, local_path};
use crate::dashboard;
use crate::error::ApiError;
use crate::extract::BodyTimeout;
use crate::oidc::{Callback, PendingLogin};
use crate::rate_limit::CredentialRejected;
use crate::secrets::{new_id, new_secret, secret_sha256};
use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, SET_COOKIE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::prelude::{BASE64_STANDARD, Engine};
use punctual_core::access::GrantTerms;
use punctual_core::ports::{ParentToken, Token, TokenAbout};
use punctual_core::time::Timestamp;
use punctual_engine::Caller;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;
use url::form_urlencoded;

/// How long a browser stays logged in.
const SESSION_TIME: Duration = Duration::from_secs(12 * 60 * 60);
/// How long a login at the identity provider may take.
const LOGIN_TIME: Duration = Duration::from_secs(10 * 60);
/// Bytes of the form: a JWT and a path.
const FORM_BYTES_MAX: usize = 32 * 1024;
/// The page that logs in, or says who is logged in.
const PAGE: &str = "/login";
const CALLBACK: &str = "/login/callback";

const HTML: &str = include_str!("login.html");
/// Only the page's own style, and forms that are sent to this server.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let style = HTML.split_once("<style>").and_then(|(_, rest)| rest.split_once("</style>"));
    let hash = BASE64_STANDARD.encode(Sha256::digest(style.map_or("", |(style, _)| style).as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'"
    )
});

/// For people, so these paths are not part of the OpenAPI document.
pub fn router() -> Router<Api> {
    Router::new()
        .route(PAGE, get(show).post(log_in))
        .route("/login/oidc", get(begin))
        .route(CALLBACK, get(finish))
        .route("/logout", post(log_out))
}

async fn show(State(api): State<Api>, request: Request) -> Response {
    let request = request.map(|_| ());
    let fields = fields(request.uri().query().unwrap_or_default().as_bytes());
    let next = next_in(&fields);
    match auth::session(&api, &request).await {
        Ok(Some(caller)) => page(StatusCode::OK, &logged_in(&caller, next)),
        Ok(None) => page(StatusCode::OK, &login_form(&api, next, None)),
        Err(_) => CredentialRejected.mark(page(StatusCode::OK, &login_form(&api, next, None))),
    }
}

async fn log_in(State(api): State<Api>, request: Request) -> Response {
    let site = match BrowserSite::of(&api.web, &request) {
        Ok(site) => site,
        Err(error) => return error.into_response(),
    };
    // Otherwise a page elsewhere could log a browser in as somebody else.
    if let Err(error) = site.check_origin(request.method(), request.headers()) {
        return error.into_response();
    }
    let source = auth::source(&request);
    let fields = match read_form(request).await {
        Ok(fields) => fields,
        Err(error) => return error.into_response(),
    };
    let next = next_in(&fields).to_owned();
    let sent = fields.get("token").map(String::as_str).unwrap_or_default().trim();
    let linked = api.login_link.as_ref().and_then(|link| link.redeem(sent, api.clock.monotonic()));
    let token = linked.unwrap_or_else(|| sent.to_owned());
    match session_for(&api, &token, source.clone()).await {
        Ok(session) => redirect(&next, &[session.cookie(&site)]),
        Err(error) => {
            let who = match auth::credential(&token) {
                Some(credential) => credential.principal(&api).await,
                None => None,
            };
            auth::note_refused_login(&api, who, &error, source);
            refusal(&api, &next, &error)
        }
    }
}

/// A session for a pasted token or JWT.
async fn session_for(api: &Api, token: &str, source: Option<String>) -> Result<BrowserSession, ApiError> {
    let malformed = || ApiError::Unauthorized("the token must look like pt_<id>_<secret>");
    let credential = auth::credential(token).ok_or_else(malformed)?;
    let (caller, until) = match &credential {
        Credential::Token(_) => (credential.caller(api).await?, None),
        Credential::Jwt(jwt) => {
            let oidc = api.oidc.as_ref().ok_or_else(malformed)?;
            let claims = oidc.verify_bearer(jwt, api.access.now()).await?;
            (auth::caller_of(api, &claims).await?, Some(claims.until))
        }
    };
    let parent = match credential {
        Credential::Token(secret) => {
            Some(ParentToken { id: secret.id.clone(), secret_sha256: secret.secret_sha256 })
        }
        Credential::Jwt(_) => None,
    };
    BrowserSession::open(api, Caller { source, ..caller }, parent, until).await
}

async fn begin(State(api): State<Api>, request: Request) -> Response {
    let request = request.map(|_| ());
    let fields = fields(request.uri().query().unwrap_or_default().as_bytes());
    let next = next_in(&fields);
    let begun = async {
        let (oidc, client) = provider(&api)?;
        let site = BrowserSite::of(&api.web, &request)?;
        let pending = PendingLogin::new(next)?;
        let address = oidc.login_address(client, &pending, &redirect_uri(&site)).await?;
        Ok::<_, ApiError>((address, site.set(Cookie::Login, &pending.to_cookie(), LOGIN_TIME)))
    };
    match begun.await {
        Ok((address, cookie)) => redirect(&address, &[cookie]),
        Err(error) => refusal(&api, next, &error),
    }
}

async fn finish(State(api): State<Api>, request: Request) -> Response {
    let request = request.map(|_| ());
    let fields = fields(request.uri().query().unwrap_or_default().as_bytes());
    let finished = async {
        let (oidc, client) = provider(&api)?;
        let site = BrowserSite::of(&api.web, &request)?;
        let cookie = site.value(Cookie::Login, request.headers())?;
        let pending = cookie.as_deref().and_then(PendingLogin::from_cookie).ok_or(ApiError::Unauthorized(
            "the login took too long, or was begun in another browser: begin it again",
        ))?;
        let text = |name: &str| fields.get(name).cloned();
        let callback = Callback {
            state: text("state").unwrap_or_default(),
            code: text("code"),
            issuer: text("iss"),
            error: text("error"),
        };
        let now = api.access.now();
        let claims = oidc.finish_login(client, &pending, &callback, &redirect_uri(&site), now).await?;
        let source = auth::source(&request);
        let caller = match auth::caller_of(&api, &claims).await {
            Ok(caller) => Caller { source, ..caller },
            Err(error) => {
                let who = auth::principal_of(&api, &claims).await;
                auth::note_refused_login(&api, Some(who), &error, source);
                return Err(error);
            }
        };
        let session = BrowserSession::open(&api, caller, None, None).await?;
        let cookies = [session.cookie(&site), site.unset(Cookie::Login)];
        Ok::<_, ApiError>(redirect(local_path(&pending.next).unwrap_or(dashboard::HOME), &cookies))
    };
    finished.await.unwrap_or_else(|error| refusal(&api, dashboard::HOME, &error))
}

/// Ends the session of this browser.
async fn log_out(State(api): State<Api>, request: Request) -> Response {
    let request = request.map(|_| ());
    let ended = async {
        let site = BrowserSite::of(&api.web, &request)?;
        site.check_origin(request.method(), request.headers())?;
        match auth::session(&api, &request).await {
            Ok(Some(caller)) => {
                api.access.on_behalf_of(caller).log_out().await?;
                api.verified.clear();
            }
            Ok(None) | Err(ApiError::Unauthorized(_)) => {}
            Err(error) => return Err(error),
        }
        Ok::<_, ApiError>(redirect(PAGE, &[site.unset(Cookie::Session)]))
    };
    ended.await.unwrap_or_else(IntoResponse::into_response)
}

fn provider(api: &Api) -> Result<(&crate::oidc::Oidc, &crate::oidc::OidcClient), ApiError> {
    let oidc = api.oidc.as_deref().and_then(|oidc| Some((oidc, oidc.client()?)));
    oidc.ok_or_else(|| ApiError::NotFound("this server has no identity provider for logins".to_owned()))
}

/// Where the provider sends browsers back to.
fn redirect_uri(site: &BrowserSite) -> String {
    format!("{}{CALLBACK}", site.origin())
}

/// The new session of a browser.
struct BrowserSession {
    value: String,
    lifetime: Duration,
}

impl BrowserSession {
    async fn open(
        api: &Api,
        caller: Caller,
        parent: Option<ParentToken>,
        until: Option<Timestamp>,
    ) -> Result<Self, ApiError> {
        let broken = |error: getrandom::Error| ApiError::Internal(format!("cannot read randomness: {error}"));
        let (id, secret) = (new_id().map_err(broken)?, new_secret().map_err(broken)?);
        let now = api.access.now();
        let latest = now.plus(SESSION_TIME);
        let expires_at = until.map_or(latest, |until| until.min(latest));
        let grant = caller.grant.clone();
        let own = grant.role.permissions();
        let permissions = grant.permissions.iter().filter(|permission| !own.has(*permission)).collect();
        let about = TokenAbout {
            name: caller.name.clone(),
            terms: GrantTerms { owner: Some(grant.owner), permissions, scope: grant.scope },
            user: caller.user.clone(),
            is_browser: true,
            session_of: parent,
            ..TokenAbout::default()
        };
        let token = Token::new(id.as_str(), secret_sha256(&secret), grant.role, now);
        let session = Token { expires_at: Some(expires_at), about, ..token };
        api.access.open_session(&caller, session).await?;
        Ok(BrowserSession { value: format!("pt_{id}_{secret}"), lifetime: expires_at.since(now) })
    }

    fn cookie(&self, site: &BrowserSite) -> String {
        site.set(Cookie::Session, &self.value, self.lifetime)
    }
}

/// The fields of a form or query. The first one of several with the same name counts.
pub(super) fn fields(text: &[u8]) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(text) {
        fields.entry(name.into_owned()).or_insert_with(|| value.into_owned());
    }
    fields
}

pub(super) async fn read_form(request: Request) -> Result<BTreeMap<String, String>, ApiError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(ApiError::NotForm);
    }
    let longest = request.extensions().get().map_or(Duration::MAX, |BodyTimeout(longest)| *longest);
    let body = tokio::time::timeout(longest, to_bytes(request.into_body(), FORM_BYTES_MAX)).await;
    match body {
        Ok(Ok(body)) => Ok(fields(&body)),
        Ok(Err(_)) => Err(ApiError::BodyTooLarge { limit_bytes: FORM_BYTES_MAX }),
        Err(_) => Err(ApiError::BodyTimeout),
    }
}

fn next_in(fields: &BTreeMap<String, String>) -> &str {
    fields.get("next").and_then(|next| local_path(next)).unwrap_or(dashboard::HOME)
}

fn redirect(to: &str, cookies: &[String]) -> Response {
    let Ok(to) = HeaderValue::from_str(to) else {
        return ApiError::Internal("an address for a redirect is no header".to_owned()).into_response();
    };
    let mut response = (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response();
    for cookie in cookies.iter().filter_map(|cookie| HeaderValue::from_str(cookie).ok()) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

/// The page again, with the reason.
fn refusal(api: &Api, next: &str, error: &ApiError) -> Response {
    let problem = error.problem();
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let reason = problem.detail.unwrap_or(problem.title);
    page(status, &login_form(api, next, Some(&reason)))
}

pub(super) fn page(status: StatusCode, content: &str) -> Response {
    let headers: [(HeaderName, &str); 3] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY.as_str()),
        // Without any referrer, browsers send forms without their origin.
        (REFERRER_POLICY, "same-origin"),
    ];
    (status, headers, HTML.replace("{content}", content)).into_response()
}

fn login_form(api: &Api, next: &str, wrong: Option<&str>) -> String {
    let mut content = String::new();
    if let Some(wrong) = wrong {
        content.push_str(&format!("<p class=\"wrong\" role=\"alert\">{}</p>\n", escaped(wrong)));
    }
    if let Ok((oidc, _)) = provider(api) {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
        content.push_str(&format!(
            "<a class=\"button\" href=\"/login/oidc?{}\">Log in with {}</a>\n",
            escaped(&query),
            escaped(&oidc.issuer_name())
        ));
    }
    content.push_str(&format!(
        "<form method=\"post\" action=\"/login\">\n<label for=\"token\">Token</label>\n\
         <input id=\"token\" name=\"token\" type=\"password\" autocomplete=\"off\" required>\n\
         <input type=\"hidden\" name=\"next\" value=\"{}\">\n<button>Log in</button>\n</form>",
        escaped(next)
    ));
    content
}

fn logged_in(caller: &Caller, next: &str) -> String {
    let onward = match next {
        dashboard::HOME => "<p><a href=\"/ui/\">Open the dashboard</a></p>\n".to_owned(),
        next => format!("<p><a href=\"{0}\">Continue to {0}</a></p>\n", escaped(next)),
    };
    format!(
        "<p>You are logged in as {} with the role {}.</p>\n{onward}\
         <form method=\"post\" action=\"/logout\">\n<button>Log out</button>\n</form>",
        escaped(&caller.name),
        caller.grant.role
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_runs_no_scripts_and_its_style_is_the_permitted_one() {
        assert!(!HTML.contains("<script") && !HTML.contains("style=") && HTML.contains("{content}"));
        assert!(POLICY.contains("style-src 'sha256-") && !POLICY.contains("script-src"), "{}", *POLICY);
    }

    #[test]
    fn a_form_leads_on_to_local_paths_only() {
        assert_eq!(next_in(&fields(b"next=%2Fdocs&next=%2Fother")), "/docs");
        for elsewhere in ["next=https%3A%2F%2Fevil.example", "next=%2F%2Fevil.example", "next=", ""] {
            assert_eq!(next_in(&fields(elsewhere.as_bytes())), dashboard::HOME, "{elsewhere}");
        }
    }
}
