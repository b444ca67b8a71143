//! Browsers: the address that they know this server by, the cookies that they keep for it, and whether a page
//! of this server sent a request.

use crate::error::ApiError;
use crate::hosts::{self, WebPolicy};
use crate::tls::Secured;
use axum::http::header::{COOKIE, HOST, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Request};
use std::time::Duration;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// This server, as the browser that sent a request knows it.
pub struct BrowserSite {
    /// The origins that its pages may have. Behind a proxy, the server does not see the scheme.
    origins: Vec<String>,
    /// Whether cookies are for TLS only: everywhere except on this machine itself.
    is_secure: bool,
    /// Other servers on the same host get the same cookies, so their names contain the port.
    port: u16,
}

/// A cookie of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cookie {
    /// The session of a browser that has logged in.
    Session,
    /// What a browser must bring back from the identity provider.
    Login,
}

impl BrowserSite {
    pub fn of<B>(web: &WebPolicy, request: &Request<B>) -> Result<Self, ApiError> {
        if let Some(origin) = &web.public_origin {
            return Ok(BrowserSite::with_origin(origin));
        }
        let host = hosts::named(request)?;
        let port = port_of(request);
        let at = |scheme: &str| match port {
            Some(port) if port != default_port(scheme) => format!("{scheme}://{host}:{port}"),
            _ => format!("{scheme}://{host}"),
        };
        let is_tls = request.extensions().get::<Secured>().is_some();
        let (schemes, is_secure): (&[&str], bool) = match is_tls {
            true => (&["https"], true),
            false if hosts::is_this_machine(&host) => (&["http"], false),
            false => (&["https", "http"], true),
        };
        Ok(BrowserSite {
            origins: schemes.iter().map(|scheme| at(scheme)).collect(),
            is_secure,
            port: port.unwrap_or_else(|| default_port(schemes[0])),
        })
    }

    fn with_origin(origin: &str) -> Self {
        let (scheme, rest) = origin.split_once("://").unwrap_or(("https", origin));
        let port = rest.parse::<Authority>().ok().and_then(|authority| authority.port_u16());
        BrowserSite {
            origins: vec![origin.to_owned()],
            is_secure: scheme == "https",
            port: port.unwrap_or_else(|| default_port(scheme)),
        }
    }

    /// The address of this server for links from elsewhere.
    pub fn origin(&self) -> &str {
        &self.origins[0]
    }

    /// Refuses a request that changes something unless a page of this server sent it. Browsers send cookies
    /// along with the requests of other pages, too.
    pub fn check_origin(&self, method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
        if [Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
            return Ok(());
        }
        let sent = |name: &HeaderName| headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        let (sites, origins): (Vec<&[u8]>, Vec<&[u8]>) = (sent(&SEC_FETCH_SITE), sent(&ORIGIN));
        let is_own_site = sites.iter().all(|site| [&b"same-origin"[..], b"none"].contains(site));
        let is_own = |origin: &&[u8]| self.origins.iter().any(|own| own.as_bytes() == *origin);
        let is_own_origin = origins.iter().all(is_own);
        let is_said = !sites.is_empty() || !origins.is_empty();
        if is_said && is_own_site && is_own_origin { Ok(()) } else { Err(ApiError::ForeignPage) }
    }

    /// `__Host-` makes browsers refuse the cookie from anyone but this host over TLS.
    fn name(&self, cookie: Cookie) -> String {
        let prefix = if self.is_secure { "__Host-" } else { "" };
        let what = match cookie {
            Cookie::Session => "punctual",
            Cookie::Login => "punctual_login",
        };
        format!("{prefix}{what}_{}", self.port)
    }

    /// The value of the session's cookie.
    pub fn session(&self, headers: &HeaderMap) -> Result<Option<String>, ApiError> {
        self.value(Cookie::Session, headers)
    }

    pub fn value(&self, cookie: Cookie, headers: &HeaderMap) -> Result<Option<String>, ApiError> {
        let name = self.name(cookie);
        let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = pairs.flat_map(|pairs| pairs.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut values = pairs.filter(|(sent, _)| *sent == name).map(|(_, value)| value.to_owned());
        let value = values.next();
        if values.next().is_some() {
            let detail = "must have each cookie of this server once".to_owned();
            return Err(ApiError::InvalidHeader { header: "Cookie", detail });
        }
        Ok(value)
    }

    /// The header that sets a cookie for some time.
    pub fn set(&self, cookie: Cookie, value: &str, lifetime: Duration) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let (name, age) = (self.name(cookie), lifetime.as_secs());
        format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}")
    }

    /// The header that removes a cookie.
    pub fn unset(&self, cookie: Cookie) -> String {
        self.set(cookie, "", Duration::ZERO)
    }
}

fn default_port(scheme: &str) -> u16 {
    if scheme == "https" { 443 } else { 80 }
}

fn port_of<B>(request: &Request<B>) -> Option<u16> {
    let header = || request.headers().get(HOST)?.to_str().ok()?.parse::<Authority>().ok()?.port_u16();
    request.uri().authority().map_or_else(header, Authority::port_u16)
}

/// Where to go after a login: a path of this server, or else `None`. A browser reads `\` as `/`, and two of
/// them begin the address of another host.
pub fn local_path(next: &str) -> Option<&str> {
    let is_local = next.starts_with('/')
        && !next[1..].starts_with(['/', '\\'])
        && next.len() <= LOCAL_PATH_BYTES_MAX
        && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    is_local.then_some(next)
}

/// Bytes of such a path: it is part of a cookie.
const LOCAL_PATH_BYTES_MAX: usize = 1024;

/// A text for a page.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(host: &str) -> BrowserSite {
        let request = Request::builder().uri("/login").header(HOST, host).body(()).unwrap();
        BrowserSite::of(&WebPolicy::default(), &request).unwrap()
    }

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn text_in_a_page_is_escaped() {
        assert_eq!(escaped("<a href='x'>\"&\"</a>"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;&quot;&lt;/a&gt;");
    }

    #[test]
    fn cookies_are_for_tls_except_on_this_machine() {
        let cookie = site("127.0.0.1:7070").set(Cookie::Session, "pt_a_b", Duration::from_secs(60));
        assert_eq!(cookie, "punctual_7070=pt_a_b; Path=/; Max-Age=60; HttpOnly; SameSite=Lax");
        for (host, port) in [("localhost:7070", "7070"), ("[::1]:81", "81"), ("localhost", "80")] {
            assert_eq!(site(host).name(Cookie::Session), format!("punctual_{port}"));
        }
        let cookie = site("jobs.example.org").set(Cookie::Session, "pt_a_b", Duration::from_secs(60));
        let expected = "__Host-punctual_443=pt_a_b; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure";
        assert_eq!(cookie, expected);
        assert_eq!(site("10.1.2.3:7070").name(Cookie::Login), "__Host-punctual_login_7070");
        let web =
            WebPolicy { public_origin: Some("https://jobs.example.org".to_owned()), ..WebPolicy::default() };
        let request = Request::builder().uri("/").header(HOST, "localhost:7070").body(()).unwrap();
        let behind_proxy = BrowserSite::of(&web, &request).unwrap();
        assert_eq!(behind_proxy.name(Cookie::Session), "__Host-punctual_443");
        assert_eq!(behind_proxy.origin(), "https://jobs.example.org");
    }

    #[test]
    fn a_request_that_changes_something_comes_from_a_page_of_this_server() {
        let site = site("localhost:7070");
        let is_own = |pairs: &[(HeaderName, &str)]| site.check_origin(&Method::POST, &headers(pairs)).is_ok();
        assert!(is_own(&[(SEC_FETCH_SITE, "same-origin"), (ORIGIN, "http://localhost:7070")]));
        assert!(is_own(&[(SEC_FETCH_SITE, "none")]) && is_own(&[(ORIGIN, "http://localhost:7070")]));
        for other in ["same-site", "cross-site", "Same-Origin", "", "x"] {
            assert!(!is_own(&[(SEC_FETCH_SITE, other), (ORIGIN, "http://localhost:7070")]), "{other}");
        }
        for other in [
            "null",
            "",
            "http://localhost",
            "http://localhost:7071",
            "https://localhost:7070",
            "http://localhost:7070/",
            "http://localhost:7070.evil.example",
            "http://evil.example",
        ] {
            assert!(!is_own(&[(SEC_FETCH_SITE, "same-origin"), (ORIGIN, other)]), "{other}");
        }
        assert!(!is_own(&[]), "no browser sends neither");
        assert!(!is_own(&[(SEC_FETCH_SITE, "same-origin"), (SEC_FETCH_SITE, "cross-site")]));
        assert!(!is_own(&[(ORIGIN, "http://localhost:7070"), (ORIGIN, "http://evil.example")]));
        for safe in [Method::GET, Method::HEAD] {
            assert!(site.check_origin(&safe, &headers(&[(SEC_FETCH_SITE, "cross-site")])).is_ok());
        }
        for unsafe_one in [Method::PUT, Method::PATCH, Method::DELETE, Method::TRACE] {
            assert!(site.check_origin(&unsafe_one, &headers(&[])).is_err());
        }
    }

    #[test]
    fn a_cookie_is_found_among_others_and_must_not_be_there_twice() {
        let site = site("localhost:7070");
        let session = |pairs: &[(HeaderName, &str)]| site.session(&headers(pairs)).ok().flatten();
        assert_eq!(session(&[(COOKIE, "a=b; punctual_7070=pt_a_b;c=d")]).as_deref(), Some("pt_a_b"));
        assert_eq!(session(&[(COOKIE, "a=b"), (COOKIE, "punctual_7070=x")]).as_deref(), Some("x"));
        assert_eq!(session(&[(COOKIE, "punctual_7071=x; Punctual_7070=y; punctual_login_7070=z")]), None);
        assert!(site.session(&headers(&[(COOKIE, "punctual_7070=x; punctual_7070=y")])).is_err());
    }

    #[test]
    fn a_login_leads_only_to_paths_of_this_server() {
        for good in ["/", "/docs", "/api/v1/jobs?limit=1", "/a//b"] {
            assert_eq!(local_path(good), Some(good));
        }
        for bad in [
            "",
            "docs",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "/a\\b",
            "/a\r\nSet-Cookie: x=y",
            "/ a",
            "/é",
            &format!("/{}", "a".repeat(2_000)),
        ] {
            assert_eq!(local_path(bad), None, "{bad}");
        }
    }
}
