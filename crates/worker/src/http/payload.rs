//! Parses the payload of an `http` job and rejects invalid fields by name. No message repeats a value:
//! headers, keys and URLs may contain secrets, and everyone who may see the job sees its errors.

use super::sign::SigningKey;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Uri};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
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

/// An invalid field and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the payload's field {field} {problem}")]
pub(super) struct Invalid {
    field: String,
    problem: &'static str,
}

impl Invalid {
    fn new(field: impl Into<String>, problem: &'static str) -> Self {
        Invalid { field: field.into(), problem }
    }
}

/// The payload is not valid for an `http` job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PayloadError {
    #[error("the payload of an http job must be an object such as {{\"url\": \"https://example.com/\"}}")]
    NotAnObject,
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

impl HttpCall {
    pub(super) fn from_payload(payload: &str) -> Result<Self, PayloadError> {
        let mut fields: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(payload).map_err(|_| PayloadError::NotAnObject)?;
        // A null field counts as absent.
        fields.retain(|_, value| value.get() != "null");
        let url = fields.remove("url").ok_or_else(|| Invalid::new("url", "is missing"))?;
        let url = parse_url(&url)?;
        let method = fields.remove("method").map_or(Ok(Method::GET), |method| parse_method(&method))?;
        let headers = fields.remove("headers").map_or(Ok(HeaderMap::new()), |raw| parse_headers(&raw))?;
        let (body, is_json) = match fields.remove("body") {
            None => (Bytes::new(), false),
            Some(raw) => match text(&raw) {
                Some(body) => (Bytes::from(body), false),
                None => (Bytes::copy_from_slice(raw.get().as_bytes()), true),
            },
        };
        let expected = fields
            .remove("expect_status")
            .map_or(Ok(ExpectedStatuses::default()), |raw| ExpectedStatuses::parse(&raw))?;
        let key = fields.remove("sign").map(|raw| parse_sign(&raw)).transpose()?;
        if let Some((unknown, _)) = fields.pop_first() {
            let known = "is unknown; known are url, method, headers, body, expect_status and sign";
            return Err(Invalid::new(unknown, known).into());
        }
        let mut call = HttpCall {
            method,
            uri: bare_uri(&url)?,
            host: printable_host(&url),
            headers,
            body,
            expected,
            key,
        };
        if is_json {
            call.default_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(credentials) = basic_credentials(&url) {
            call.default_header(header::AUTHORIZATION, credentials);
        }
        Ok(call)
    }

    /// Sets a header unless the job has set it.
    pub(super) fn default_header(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.entry(name).or_insert(value);
    }
}

/// The value as a string, if it is one.
fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

fn parse_url(raw: &RawValue) -> Result<Url, Invalid> {
    let invalid = |problem| Invalid::new("url", problem);
    let url = text(raw).ok_or_else(|| invalid("must be a string"))?;
    let url = Url::parse(&url).map_err(|_| invalid("must be a URL such as https://example.com/path"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("must begin with http:// or https://"));
    }
    Ok(url)
}

/// The URL as sent: without credentials and fragment.
fn bare_uri(url: &Url) -> Result<Uri, Invalid> {
    let mut bare = url.clone();
    let cannot_be_sent = || Invalid::new("url", "cannot be sent: it is too long or not a web address");
    bare.set_username("").and_then(|()| bare.set_password(None)).map_err(|()| cannot_be_sent())?;
    bare.set_fragment(None);
    bare.as_str().parse().map_err(|_| cannot_be_sent())
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

fn parse_method(raw: &RawValue) -> Result<Method, Invalid> {
    let method = text(raw).unwrap_or_default();
    let known = METHODS.iter().find(|known| known.as_str().eq_ignore_ascii_case(&method));
    let problem = "must be one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    known.cloned().ok_or_else(|| Invalid::new("method", problem))
}

fn parse_headers(raw: &RawValue) -> Result<HeaderMap, Invalid> {
    let object: Option<BTreeMap<String, Box<RawValue>>> = serde_json::from_str(raw.get()).ok();
    let object = object.ok_or_else(|| Invalid::new("headers", "must be an object of strings"))?;
    let mut headers = HeaderMap::new();
    for (name, value) in object {
        let invalid = |problem| Invalid::new(format!("headers.{name}"), problem);
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid("is not a header name"))?;
        if is_reserved(&parsed) {
            return Err(invalid("must not be set: the worker sets it, or HTTP itself needs it"));
        }
        let value = text(&value).ok_or_else(|| invalid("must be a string"))?;
        let value = HeaderValue::from_str(&value);
        let mut value = value.map_err(|_| invalid("must consist of printable ASCII characters"))?;
        value.set_sensitive(true);
        if headers.insert(parsed, value).is_some() {
            return Err(invalid("is given twice"));
        }
    }
    Ok(headers)
}

/// Headers that frame the message, select the receiver, or vouch for the sender.
fn is_reserved(name: &HeaderName) -> bool {
    const FRAMING: [HeaderName; 7] = [
        header::HOST,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::UPGRADE,
        header::TE,
        header::TRAILER,
    ];
    FRAMING.contains(name)
        || ["expect", "keep-alive", "proxy-connection"].contains(&name.as_str())
        || name.as_str().starts_with("punctual-")
}

fn parse_sign(raw: &RawValue) -> Result<SigningKey, Invalid> {
    let object: Option<BTreeMap<String, Box<RawValue>>> = serde_json::from_str(raw.get()).ok();
    let mut object =
        object.ok_or_else(|| Invalid::new("sign", "must be an object such as {\"key\": \"…\"}"))?;
    let key = object.remove("key").and_then(|raw| text(&raw));
    if let Some((unknown, _)) = object.pop_first() {
        return Err(Invalid::new(format!("sign.{unknown}"), "is unknown; the only field is sign.key"));
    }
    key.and_then(|key| SigningKey::new(key).ok())
        .ok_or_else(|| Invalid::new("sign.key", "must be a string that is not empty"))
}

/// The statuses that mean success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExpectedStatuses(Vec<StatusRange>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StatusRange {
    first: u16,
    last: u16,
}

impl Default for ExpectedStatuses {
    fn default() -> Self {
        ExpectedStatuses(vec![StatusRange { first: 200, last: 299 }])
    }
}

impl ExpectedStatuses {
    pub(super) fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| (range.first..=range.last).contains(&status))
    }

    fn parse(raw: &RawValue) -> Result<Self, Invalid> {
        let problem = "must be a status such as 204, a class such as \"2xx\", or a list of these";
        let invalid = || Invalid::new("expect_status", problem);
        let value: Value = serde_json::from_str(raw.get()).map_err(|_| invalid())?;
        let items = match value {
            Value::Array(items) => items,
            item => vec![item],
        };
        let ranges: Option<Vec<_>> = items.iter().map(StatusRange::parse).collect();
        ranges.filter(|ranges| !ranges.is_empty()).map(ExpectedStatuses).ok_or_else(invalid)
    }
}

impl StatusRange {
    fn parse(value: &Value) -> Option<Self> {
        let class = value.as_str().and_then(|text| text.strip_suffix("xx").or(text.strip_suffix("XX")));
        if let Some(class) = class {
            let class = class.parse::<u16>().ok().filter(|class| (2..=5).contains(class))?;
            return Some(StatusRange { first: class * 100, last: class * 100 + 99 });
        }
        let status = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
        let status = u16::try_from(status).ok().filter(|status| (200..=599).contains(status))?;
        Some(StatusRange { first: status, last: status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(payload: Value) -> HttpCall {
        HttpCall::from_payload(&payload.to_string()).unwrap()
    }

    fn refusal(payload: &str) -> String {
        HttpCall::from_payload(payload).unwrap_err().to_string()
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
    fn expected_statuses_are_numbers_classes_and_lists() {
        let expects = |value: Value, status: u16| {
            call(json!({"url": "http://a/", "expect_status": value})).expected.contains(status)
        };
        assert!(expects(json!(204), 204) && !expects(json!(204), 200));
        assert!(expects(json!("4xx"), 404) && !expects(json!("4xx"), 200));
        assert!(expects(json!(["2xx", 404, "302"]), 302) && expects(json!(["2xx", 404]), 404));
    }

    #[test]
    fn a_bad_payload_is_refused_by_field() {
        for (payload, said) in [
            (r#"[]"#, "the payload of an http job must be an object"),
            (r#"null"#, "the payload of an http job must be an object"),
            (r#"{}"#, "field url is missing"),
            (r#"{"url": 1}"#, "field url must be a string"),
            (r#"{"url": "/relative"}"#, "field url must be a URL"),
            (r#"{"url": "http://"}"#, "field url must be a URL"),
            (r#"{"url": "file:///etc/passwd"}"#, "field url must begin with http"),
            (r#"{"url": "ftp://a/"}"#, "field url must begin with http"),
            (r#"{"url": "http://a/", "method": "BREW"}"#, "field method must be one of"),
            (r#"{"url": "http://a/", "method": 1}"#, "field method must be one of"),
            (r#"{"url": "http://a/", "method": "CONNECT"}"#, "field method must be one of"),
            (r#"{"url": "http://a/", "headers": []}"#, "field headers must be an object"),
            (r#"{"url": "http://a/", "headers": {"a b": "c"}}"#, "field headers.a b is not a header name"),
            (r#"{"url": "http://a/", "headers": {"a": 1}}"#, "field headers.a must be a string"),
            (r#"{"url": "http://a/", "headers": {"a": "b\r\nc: d"}}"#, "field headers.a must consist of"),
            (r#"{"url": "http://a/", "headers": {"A": "b", "a": "c"}}"#, "field headers.a is given twice"),
            (r#"{"url": "http://a/", "headers": {"Host": "b"}}"#, "field headers.Host must not be set"),
            (r#"{"url": "http://a/", "headers": {"Content-Length": "9"}}"#, "must not be set"),
            (r#"{"url": "http://a/", "headers": {"Transfer-Encoding": "chunked"}}"#, "must not be set"),
            (r#"{"url": "http://a/", "headers": {"Punctual-Signature": "x"}}"#, "must not be set"),
            (r#"{"url": "http://a/", "expect_status": []}"#, "field expect_status must be"),
            (r#"{"url": "http://a/", "expect_status": "ok"}"#, "field expect_status must be"),
            (r#"{"url": "http://a/", "expect_status": [200, 99]}"#, "field expect_status must be"),
            (r#"{"url": "http://a/", "expect_status": "9xx"}"#, "field expect_status must be"),
            (r#"{"url": "http://a/", "sign": "key"}"#, "field sign must be an object"),
            (r#"{"url": "http://a/", "sign": {"key": ""}}"#, "field sign.key must be a string"),
            (r#"{"url": "http://a/", "sign": {}}"#, "field sign.key must be a string"),
            (r#"{"url": "http://a/", "sign": {"key": "a", "k": 1}}"#, "field sign.k is unknown"),
            (r#"{"url": "http://a/", "timeout": 5}"#, "field timeout is unknown"),
        ] {
            assert!(refusal(payload).contains(said), "{payload}: {}", refusal(payload));
        }
    }

    #[test]
    fn a_refusal_repeats_no_value() {
        for payload in [
            r#"{"url": "file://user:secret@a/?secret"}"#,
            r#"{"url": "http://a/", "headers": {"Authorization": "Bearer secret\u0000"}}"#,
            r#"{"url": "http://a/", "headers": {"Authorization": ["secret"]}}"#,
            r#"{"url": "http://a/", "sign": "secret"}"#,
            r#"{"url": "http://a/", "sign": {"key": ["secret"]}}"#,
            r#"{"url": "http://a/", "method": "secret"}"#,
        ] {
            assert!(!refusal(payload).contains("secret"), "{}", refusal(payload));
        }
    }
}
