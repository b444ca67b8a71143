//! The hosts that requests may name. A page on the internet can point its own name at a private address (DNS
//! rebinding), and a browser then lets it read the answers. Such a request names the page's host.

use crate::Api;
use crate::error::ApiError;
use crate::tls::Secured;
use axum::extract::{Request, State};
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

/// The name of this machine for itself.
pub const LOCALHOST: &str = "localhost";

/// Paths for load balancers and probes, which name any host. They tell nothing about jobs.
const EXEMPT_PATHS: [&str; 2] = ["/livez", "/readyz"];

/// Which web pages may use the API.
#[derive(Debug, Clone, Default)]
pub struct WebPolicy {
    /// Host names, in lower case and without ports, that requests may use besides `localhost`, IP addresses
    /// and the names of the certificate. One that begins with `*.` allows any first label.
    pub allowed_hosts: Vec<String>,
    /// Origins, as browsers send them, whose scripts may read responses.
    pub cors_origins: Vec<String>,
    /// The origin under which browsers know this server, where it does not follow from their requests.
    pub public_origin: Option<String>,
}

/// Lets a request through if it names a host that this server answers to.
pub async fn check(State(api): State<Api>, request: Request, next: Next) -> Response {
    if EXEMPT_PATHS.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let host = match named(&request) {
        Ok(host) => host,
        Err(error) => return error.into_response(),
    };
    let certified = request.extensions().get::<Secured>().map_or(&[][..], |secured| &secured.tls.names);
    let mut allowed = api.web.allowed_hosts.iter().chain(certified);
    // Rebinding needs a name: a browser sends an address only if the user or a page named it.
    let is_allowed = host == LOCALHOST || is_address(&host) || allowed.any(|pattern| covers(pattern, &host));
    if is_allowed { next.run(request).await } else { ApiError::WrongHost(host).into_response() }
}

/// The host that a request names, in lower case and without its port.
pub fn named<B>(request: &axum::http::Request<B>) -> Result<String, ApiError> {
    let mut headers = request.headers().get_all(HOST).iter();
    let header = headers.next().map(HeaderValue::as_bytes).map(host_in).transpose()?;
    if headers.next().is_some() {
        return Err(invalid("must be sent once"));
    }
    let target = request.uri().authority().map(|authority| host_in(authority.as_str().as_bytes()));
    match (target.transpose()?, header) {
        (_, None) if request.version() < Version::HTTP_2 => Err(invalid("must be sent")),
        (Some(target), Some(header)) if target != header => {
            Err(invalid("must be the same as the host in the request's target"))
        }
        (Some(host), _) | (None, Some(host)) => Ok(host),
        (None, None) => Err(invalid("must be sent, or the pseudo-header :authority")),
    }
}

fn host_in(text: &[u8]) -> Result<String, ApiError> {
    let authority = Authority::try_from(text).ok().filter(is_host_and_port);
    let host = authority.map(|authority| authority.host().to_ascii_lowercase());
    let host = host.map(|host| host.strip_suffix('.').unwrap_or(&host).to_owned());
    host.filter(|host| !host.is_empty())
        .ok_or_else(|| invalid("must be a host name or an address, with or without a port"))
}

/// Whether there is nothing else: no user, and nothing between the bracket of an address and the port.
fn is_host_and_port(authority: &Authority) -> bool {
    let rest = authority.as_str().strip_prefix(authority.host());
    let is_port = |rest: &str| rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    rest.is_some_and(|rest| rest.is_empty() || rest == ":" || is_port(rest))
}

fn invalid(detail: &str) -> ApiError {
    ApiError::InvalidHeader { header: "Host", detail: detail.to_owned() }
}

fn is_address(host: &str) -> bool {
    let v6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    v6.unwrap_or(host).parse::<IpAddr>().is_ok()
}

/// Whether the host is this machine, so that nothing crosses a network.
pub fn is_this_machine(host: &str) -> bool {
    let v6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = v6.unwrap_or(host).parse::<IpAddr>();
    host == LOCALHOST || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Whether a name, or a pattern such as `*.example.org`, covers a host.
fn covers(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(domain) => host
            .split_once('.')
            .is_some_and(|(first, rest)| !first.is_empty() && rest.eq_ignore_ascii_case(domain)),
        None => host.eq_ignore_ascii_case(pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn host(version: Version, target: &str, headers: &[&str]) -> Option<String> {
        let mut request = Request::builder().version(version).uri(target);
        for header in headers {
            request = request.header(HOST, *header);
        }
        named(&request.body(()).unwrap()).ok()
    }

    #[test]
    fn a_request_names_one_host() {
        let v1 = |target: &str, headers: &[&str]| host(Version::HTTP_11, target, headers);
        let v2 = |target: &str, headers: &[&str]| host(Version::HTTP_2, target, headers);
        assert_eq!(v1("/", &["Jobs.Example.org:7070"]).as_deref(), Some("jobs.example.org"));
        assert_eq!(v1("/", &["[::1]:7070"]).as_deref(), Some("[::1]"));
        assert_eq!(v1("/", &["jobs.example.org."]).as_deref(), Some("jobs.example.org"));
        assert_eq!(v1("http://a.example/", &["a.example:80"]).as_deref(), Some("a.example"));
        assert_eq!(v2("https://a.example/", &[]).as_deref(), Some("a.example"));
        assert_eq!(v2("/", &["a.example"]).as_deref(), Some("a.example"));
        for (target, headers) in [
            ("/", &[][..]),
            ("/", &["a.example", "a.example"]),
            ("/", &[""]),
            ("/", &["user@localhost"]),
            ("/", &["[::1].evil.example"]),
            ("/", &["[::1]evil.example:80"]),
            ("/", &["localhost:evil"]),
            ("/", &["localhost:99999"]),
            ("/", &["a.example/path"]),
            ("http://localhost/", &["a.example"]),
            ("http://localhost/", &[]),
        ] {
            assert_eq!(v1(target, headers), None, "{target} {headers:?}");
        }
        assert_eq!((v2("/", &[]), v2("https://localhost/", &["a.example"])), (None, None));
    }

    #[test]
    fn addresses_are_no_names_and_names_are_no_addresses() {
        for address in ["127.0.0.1", "10.1.2.3", "[::1]", "[2001:db8::1]"] {
            assert!(is_address(address), "{address}");
        }
        for name in ["localhost", "127.0.0.1.evil.example", "2130706433", "0x7f000001", "127.1", "[evil]"] {
            assert!(!is_address(name), "{name}");
        }
    }

    #[test]
    fn a_pattern_covers_one_label() {
        assert!(covers("jobs.example.org", "jobs.example.org"));
        assert!(covers("*.example.org", "jobs.example.org"));
        for other in ["example.org", "a.b.example.org", "jobs.example.org.evil.example", ".example.org"] {
            assert!(!covers("*.example.org", other), "{other}");
        }
    }
}
