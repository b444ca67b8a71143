//! Turns the payload of an `http` job into a request. No message repeats a value: headers, keys and URLs may contain
//! secrets, and everyone who may see the job sees its errors.

use super::sign::SigningKey;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Uri};
use percent_encoding::percent_decode_str;
use punctual_core::job::InvalidField;
use punctual_core::payloads::web_call::{self, ExpectedStatuses, WebBody};
use url::Url;

/// A call as the job describes it.
#[derive(Debug)]
pub(super) struct HttpCall {
    pub(super) method: Method,
    pub(super) uri: Uri,
    /// The host, with its port if the URL contains one: the only part of the URL that may be printed.
    pub(super) host: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) expected: ExpectedStatuses,
    pub(super) key: Option<SigningKey>,
}

impl HttpCall {
    pub(super) fn from_payload(payload: &str) -> Result<Self, InvalidField> {
        let call = web_call::parse(payload)?;
        let wrong = |field: &str, fix: &str| InvalidField::new(format!("payload.{field}"), fix);
        let mut headers = HeaderMap::new();
        for (name, value) in call.headers {
            let invalid = || wrong(&format!("headers.{name}"), "cannot be sent");
            let mut value = HeaderValue::from_str(&value).map_err(|_| invalid())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?, value);
        }
        let is_json = matches!(call.body, WebBody::Json(_));
        let body = match call.body {
            WebBody::None => Bytes::new(),
            WebBody::Text(body) | WebBody::Json(body) => Bytes::from(body),
        };
        let key = call.sign_key.map(SigningKey::new).transpose();
        let mut built = HttpCall {
            method: call.method.parse().map_err(|_| wrong("method", "cannot be sent"))?,
            uri: bare_uri(&call.url)
                .ok_or_else(|| wrong("url", "cannot be sent: it is not a web address"))?,
            host: printable_host(&call.url),
            headers,
            body,
            expected: call.expected,
            key: key.map_err(|_| wrong("sign.key", "must be a string that is not empty"))?,
        };
        if is_json {
            built.default_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(credentials) = basic_credentials(&call.url) {
            built.default_header(header::AUTHORIZATION, credentials);
        }
        Ok(built)
    }

    /// Sets a header unless the job has set it.
    pub(super) fn default_header(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.entry(name).or_insert(value);
    }
}

/// The URL as sent: without credentials and fragment.
fn bare_uri(url: &Url) -> Option<Uri> {
    let mut bare = url.clone();
    bare.set_username("").and_then(|()| bare.set_password(None)).ok()?;
    bare.set_fragment(None);
    bare.as_str().parse().ok()
}

fn printable_host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn basic_credentials(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut credentials: Vec<u8> = percent_decode_str(url.username()).collect();
    credentials.push(b':');
    credentials.extend(percent_decode_str(url.password().unwrap_or_default()));
    let value = format!("Basic {}", BASE64_STANDARD.encode(credentials));
    let mut value = HeaderValue::try_from(value).expect("base64 is printable");
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn call(payload: Value) -> HttpCall {
        HttpCall::from_payload(&payload.to_string()).unwrap()
    }

    #[test]
    fn a_url_is_enough() {
        let call = call(json!({"url": "https://Example.com/a?b=c#d"}));
        assert_eq!(call.method, Method::GET);
        assert_eq!(call.uri.to_string(), "https://example.com/a?b=c");
        assert_eq!(call.host, "example.com");
        assert!(call.headers.is_empty() && call.body.is_empty() && call.key.is_none());
        assert!(call.expected.contains(200) && call.expected.contains(299));
        assert!(!call.expected.contains(199) && !call.expected.contains(300));
    }

    #[test]
    fn a_json_body_is_sent_as_it_was_written() {
        let payload = r#"{"url": "http://a/", "method": "post", "body": {"price": 1.50, "b": null}}"#;
        let call = HttpCall::from_payload(payload).unwrap();
        assert_eq!(call.method, Method::POST);
        assert_eq!(&call.body[..], br#"{"price": 1.50, "b": null}"#);
        assert_eq!(call.headers["content-type"], "application/json");
    }

    #[test]
    fn a_string_is_sent_as_it_is() {
        let payload = json!({"url": "http://a/", "body": "a=1\n", "headers": {"Content-Type": "text/x"}});
        let with_type = call(payload);
        assert_eq!(&with_type.body[..], b"a=1\n");
        assert_eq!(with_type.headers["content-type"], "text/x");
        assert!(call(json!({"url": "http://a/", "body": "a"})).headers.is_empty());
        let own_type =
            json!({"url": "http://a/", "body": {}, "headers": {"content-type": "application/x+json"}});
        assert_eq!(call(own_type).headers["content-type"], "application/x+json");
    }

    #[test]
    fn credentials_in_the_url_become_a_header() {
        let call = call(json!({"url": "http://us%20er:p%40ss@a:81/x"}));
        assert_eq!(call.uri.to_string(), "http://a:81/x");
        assert_eq!(call.host, "a:81");
        assert_eq!(call.headers["authorization"], "Basic dXMgZXI6cEBzcw==");
        assert!(!format!("{call:?}").contains("dXMg"), "{call:?}");
    }

    #[test]
    fn an_error_names_the_field() {
        let error = HttpCall::from_payload(r#"{"url": "ftp://a/"}"#).unwrap_err();
        assert_eq!(error.to_string(), "payload.url must begin with http:// or https://");
    }
}
