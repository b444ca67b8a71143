//! The payload of an `http` job.

use super::wrong;
use crate::job::InvalidField;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use url::Url;

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Headers that frame the message or select the receiver.
const RESERVED: [&str; 10] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "keep-alive",
    "proxy-connection",
];
/// Headers that vouch for the sender.
const OWN_HEADER_PREFIX: &str = "punctual-";

/// The longest URL that can be sent.
const URL_BYTES_MAX: usize = u16::MAX as usize - 1;

/// A call as its job describes it.
#[derive(Clone, PartialEq, Eq)]
pub struct WebCall {
    pub url: Url,
    /// In upper case.
    pub method: &'static str,
    /// Names in lower case, each once.
    pub headers: Vec<(String, String)>,
    pub body: WebBody,
    pub expected: ExpectedStatuses,
    /// The key for the signature, if the job has its own.
    pub sign_key: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
pub enum WebBody {
    None,
    /// Sent as it is.
    Text(String),
    /// JSON, as it was written.
    Json(String),
}

/// Parses the payload of an `http` job. A null field counts as absent.
pub fn parse(payload: &str) -> Result<WebCall, InvalidField> {
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(payload).map_err(|_| {
        InvalidField::new("payload", "must be an object, such as {\"url\": \"https://example.com/\"}")
    })?;
    fields.retain(|_, value| value.get() != "null");
    let mut take = |field: &str| fields.remove(field);
    let (url, method, headers) = (take("url"), take("method"), take("headers"));
    let (body, expected, sign) = (take("body"), take("expect_status"), take("sign"));
    if let Some((unknown, _)) = fields.pop_first() {
        let known = "is unknown; known are url, method, headers, body, expect_status and sign";
        return Err(wrong(&unknown, known));
    }
    let url = url.ok_or_else(|| wrong("url", "is missing; it is the address to call"))?;
    let body = match body {
        None => WebBody::None,
        Some(raw) => match text(&raw) {
            Some(body) => WebBody::Text(body),
            None => WebBody::Json(raw.get().to_owned()),
        },
    };
    Ok(WebCall {
        url: parse_url(&url)?,
        method: method.map_or(Ok("GET"), |raw| parse_method(&raw))?,
        headers: headers.map_or(Ok(vec![]), |raw| parse_headers(&raw))?,
        body,
        expected: expected.map_or(Ok(ExpectedStatuses::default()), |raw| ExpectedStatuses::parse(&raw))?,
        sign_key: sign.map(|raw| parse_sign(&raw)).transpose()?,
    })
}

/// The value as a string, if it is one.
fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

fn parse_url(raw: &RawValue) -> Result<Url, InvalidField> {
    let url = text(raw).ok_or_else(|| wrong("url", "must be a string"))?;
    let url = Url::parse(&url).map_err(|_| wrong("url", "must be a URL such as https://example.com/path"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("url", "must begin with http:// or https://"));
    }
    if url.as_str().len() > URL_BYTES_MAX {
        return Err(wrong("url", format!("must be at most {URL_BYTES_MAX} bytes")));
    }
    Ok(url)
}

fn parse_method(raw: &RawValue) -> Result<&'static str, InvalidField> {
    let method = text(raw).unwrap_or_default();
    let known = METHODS.into_iter().find(|known| known.eq_ignore_ascii_case(&method));
    known.ok_or_else(|| wrong("method", format!("must be one of {}", METHODS.join(", "))))
}

fn parse_headers(raw: &RawValue) -> Result<Vec<(String, String)>, InvalidField> {
    let object: Option<BTreeMap<String, Box<RawValue>>> = serde_json::from_str(raw.get()).ok();
    let object = object.ok_or_else(|| wrong("headers", "must be an object of strings"))?;
    let (mut headers, mut names) = (Vec::new(), BTreeSet::new());
    for (name, value) in object {
        let invalid = |fix: &str| wrong(&format!("headers.{name}"), fix);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(invalid("is not a header name"));
        }
        let lower = name.to_ascii_lowercase();
        if RESERVED.contains(&lower.as_str()) || lower.starts_with(OWN_HEADER_PREFIX) {
            return Err(invalid("must not be set: the worker sets it, or HTTP itself needs it"));
        }
        let value = text(&value).ok_or_else(|| invalid("must be a string"))?;
        if !value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
            return Err(invalid("must consist of printable ASCII characters"));
        }
        if !names.insert(lower.clone()) {
            return Err(invalid("is given twice"));
        }
        headers.push((lower, value));
    }
    Ok(headers)
}

/// Whether a byte may be part of a header's name.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn parse_sign(raw: &RawValue) -> Result<String, InvalidField> {
    let object: Option<BTreeMap<String, Box<RawValue>>> = serde_json::from_str(raw.get()).ok();
    let mut object = object.ok_or_else(|| wrong("sign", "must be an object such as {\"key\": \"…\"}"))?;
    let key = object.remove("key").and_then(|raw| text(&raw));
    if let Some((unknown, _)) = object.pop_first() {
        return Err(wrong(&format!("sign.{unknown}"), "is unknown; the only field is sign.key"));
    }
    key.filter(|key| !key.is_empty()).ok_or_else(|| wrong("sign.key", "must be a string that is not empty"))
}

/// The statuses that mean success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedStatuses(Vec<StatusRange>);

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
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| (range.first..=range.last).contains(&status))
    }

    fn parse(raw: &RawValue) -> Result<Self, InvalidField> {
        let fix = "must be a status such as 204, a class such as \"2xx\", or a list of these";
        let invalid = || wrong("expect_status", fix);
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

    fn refusal(payload: &str) -> String {
        let Err(InvalidField { field, fix }) = parse(payload) else { panic!("{payload} is valid") };
        format!("{field} {fix}")
    }

    #[test]
    fn expected_statuses_are_numbers_classes_and_lists() {
        let expects = |value: Value, status: u16| {
            let payload = json!({"url": "http://a/", "expect_status": value});
            let call = parse(&payload.to_string());
            call.ok().unwrap().expected.contains(status)
        };
        assert!(expects(json!(null), 200) && expects(json!(null), 299));
        assert!(!expects(json!(null), 199) && !expects(json!(null), 300));
        assert!(expects(json!(204), 204) && !expects(json!(204), 200));
        assert!(expects(json!("4xx"), 404) && !expects(json!("4xx"), 200));
        assert!(expects(json!(["2xx", 404, "302"]), 302) && expects(json!(["2xx", 404]), 404));
    }

    #[test]
    fn a_bad_payload_is_refused_by_field() {
        for (payload, said) in [
            (r#"[]"#, "payload must be an object, such as "),
            (r#"null"#, "payload must be an object, such as "),
            (r#"{}"#, "payload.url is missing"),
            (r#"{"url": 1}"#, "payload.url must be a string"),
            (r#"{"url": "/relative"}"#, "payload.url must be a URL"),
            (r#"{"url": "http://"}"#, "payload.url must be a URL"),
            (r#"{"url": "file:///etc/passwd"}"#, "payload.url must begin with http"),
            (r#"{"url": "ftp://a/"}"#, "payload.url must begin with http"),
            (
                r#"{"url": "http://a/", "method": "BREW"}"#,
                "payload.method must be one of GET, HEAD, POST, PUT",
            ),
            (r#"{"url": "http://a/", "method": 1}"#, "payload.method must be one of"),
            (r#"{"url": "http://a/", "method": "CONNECT"}"#, "payload.method must be one of"),
            (r#"{"url": "http://a/", "headers": []}"#, "payload.headers must be an object"),
            (r#"{"url": "http://a/", "headers": {"a b": "c"}}"#, "payload.headers.a b is not a header name"),
            (r#"{"url": "http://a/", "headers": {"": "c"}}"#, "payload.headers. is not a header name"),
            (r#"{"url": "http://a/", "headers": {"a": 1}}"#, "payload.headers.a must be a string"),
            (r#"{"url": "http://a/", "headers": {"a": "b\r\nc: d"}}"#, "payload.headers.a must consist of"),
            (r#"{"url": "http://a/", "headers": {"A": "b", "a": "c"}}"#, "payload.headers.a is given twice"),
            (r#"{"url": "http://a/", "headers": {"Host": "b"}}"#, "payload.headers.Host must not be set"),
            (
                r#"{"url": "http://a/", "headers": {"Content-Length": "9"}}"#,
                "payload.headers.Content-Length must not",
            ),
            (
                r#"{"url": "http://a/", "headers": {"Transfer-Encoding": "chunked"}}"#,
                "payload.headers.Transfer-Enc",
            ),
            (
                r#"{"url": "http://a/", "headers": {"Punctual-Signature": "x"}}"#,
                "payload.headers.Punctual-Signature",
            ),
            (r#"{"url": "http://a/", "expect_status": []}"#, "payload.expect_status must be"),
            (r#"{"url": "http://a/", "expect_status": "ok"}"#, "payload.expect_status must be"),
            (r#"{"url": "http://a/", "expect_status": [200, 99]}"#, "payload.expect_status must be"),
            (r#"{"url": "http://a/", "expect_status": "9xx"}"#, "payload.expect_status must be"),
            (r#"{"url": "http://a/", "sign": "key"}"#, "payload.sign must be an object"),
            (r#"{"url": "http://a/", "sign": {"key": ""}}"#, "payload.sign.key must be a string"),
            (r#"{"url": "http://a/", "sign": {}}"#, "payload.sign.key must be a string"),
            (r#"{"url": "http://a/", "sign": {"key": "a", "k": 1}}"#, "payload.sign.k is unknown"),
            (r#"{"url": "http://a/", "timeout": 5}"#, "payload.timeout is unknown"),
            (r#"{"urll": "http://a/"}"#, "payload.urll is unknown"),
        ] {
            assert!(refusal(payload).starts_with(said), "{payload}: {}", refusal(payload));
        }
        let long = json!({"url": format!("http://a/{}", "x".repeat(URL_BYTES_MAX))});
        assert_eq!(refusal(&long.to_string()), "payload.url must be at most 65534 bytes");
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
