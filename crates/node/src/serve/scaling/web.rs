//! A hook that is a URL: one POST per notification, over TLS where the URL says so. No proxy and no
//! redirects: notifications go only to the operator's URL.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::percent_decode_str;
use punctual_core::causes::in_full;
use punctual_tls::{roots, trusting};
use serde_json::Value;
use std::fmt;
use std::path::Path;

const WANTED: &str = "url must begin with http:// or https:// and name a host";

pub struct WebHook {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Without user and password.
    uri: Uri,
    authorization: Option<HeaderValue>,
}

/// The URL may contain a secret.
impl fmt::Debug for WebHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebHook(…)")
    }
}

impl WebHook {
    /// Makes no connection yet. With `ca`, only certificates signed by that authority are trusted.
    pub fn new(url: &str, ca: Option<&Path>) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| WANTED)?;
        match (uri.scheme_str(), ca) {
            (Some("https"), _) | (Some("http"), None) => {}
            (Some("http"), Some(_)) => return Err("ca needs a url that begins with https://".to_owned()),
            _ => return Err(WANTED.to_owned()),
        }
        let (uri, authorization) = without_login(&uri)?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(trusting(roots(ca).map_err(|error| error.to_string())?).with_no_client_auth())
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        // Notifications are rare: no connection is kept open.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(WebHook { client, uri, authorization })
    }

    pub fn has_login(&self) -> bool {
        self.authorization.is_some()
    }

    /// The status of the response, or why there is none.
    pub async fn post(&self, said: &Value) -> Result<StatusCode, String> {
        let mut request = Request::post(self.uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("punctual/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let request =
            request.body(Full::new(Bytes::from(said.to_string()))).map_err(|error| error.to_string())?;
        let answer = self.client.request(request).await.map_err(|error| in_full(&error))?;
        Ok(answer.status())
    }
}

/// A user and a password in a URL are sent as a header.
fn without_login(uri: &Uri) -> Result<(Uri, Option<HeaderValue>), String> {
    let authority = uri.authority().ok_or(WANTED)?.as_str();
    let Some((login, place)) = authority.rsplit_once('@') else { return Ok((uri.clone(), None)) };
    let login: Vec<u8> = percent_decode_str(login).collect();
    let mut authorization = HeaderValue::try_from(format!("Basic {}", BASE64.encode(login)))
        .map_err(|_| "user and password of url cannot be sent")?;
    authorization.set_sensitive(true);
    let mut parts = uri.clone().into_parts();
    parts.authority = Some(place.parse().map_err(|_| WANTED)?);
    let uri = Uri::from_parts(parts).map_err(|_| WANTED)?;
    Ok((uri, Some(authorization)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_in_the_address_becomes_a_header_and_is_not_shown() {
        let hook = WebHook::new("https://ann:to%40p@scaler.example.org:8443/up?by=1", None).unwrap();
        assert_eq!(hook.uri, "https://scaler.example.org:8443/up?by=1");
        assert_eq!(hook.authorization.as_ref().unwrap(), &format!("Basic {}", BASE64.encode("ann:to@p")));
        assert!(!format!("{hook:?}").contains("to@p"));
    }

    #[test]
    fn what_is_wrong_with_an_address_or_its_authority_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("ca.pem");
        std::fs::write(&empty, "").unwrap();
        for (url, ca, told) in [
            ("ftp://a", None, "url must begin with http:// or https://"),
            ("scaler", None, "url must begin with http:// or https://"),
            ("https://", None, "url must begin with http:// or https://"),
            ("http://a", Some(empty.as_path()), "ca needs a url that begins with https://"),
            ("https://a", Some(empty.as_path()), "it contains no certificate"),
            ("https://a", Some(Path::new("/nonexistent/ca.pem")), "/nonexistent/ca.pem cannot be used: "),
        ] {
            let problem = WebHook::new(url, ca).unwrap_err();
            assert!(problem.contains(told), "{url}: {problem}");
        }
    }
}
