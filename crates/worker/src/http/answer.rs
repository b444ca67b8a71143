//! Interprets a response: which statuses succeed, which are retried, and how much of the body is kept. Memory
//! is bounded whatever the server sends: nothing is read beyond what is kept.

use super::payload::HttpCall;
use futures_util::future::{Either, select};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{HeaderName, RETRY_AFTER};
use hyper::{Response, StatusCode};
use hyper_util::client::legacy;
use punctual_core::causes::{causes, innermost};
use punctual_core::documents::document_problem;
use punctual_core::limits;
use punctual_core::payloads::web_call::ExpectedStatuses;
use punctual_core::ports::{Clock, Outcome};
use punctual_core::retry::ChosenTime;
use punctual_core::time::Timestamp;
use punctual_outbound::RefusedAddress;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::error::Error;
use std::pin::pin;
use std::time::Duration;

/// A response with this header, such as `Punctual-Snooze: 10m`, puts the run off, whatever its status.
const SNOOZE: HeaderName = HeaderName::from_static("punctual-snooze");
/// Nesting depth of a JSON body that is kept as JSON: the result adds one level around it. Deeper bodies are
/// kept as text.
const BODY_DEPTH_MAX: usize = limits::JSON_DEPTH_MAX - 1;

/// The outcome of a call that got a response.
pub(super) async fn judge(call: &HttpCall, response: Response<Incoming>, clock: &dyn Clock) -> Outcome {
    let status = response.status();
    let retry_after =
        response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let snooze = response.headers().get(SNOOZE).and_then(|value| ChosenTime::after(value.to_str().ok()?));
    let said = format!("{} {} answered {status}", call.method, call.host);
    if let Some(until) = snooze {
        return Outcome::Snoozed { until };
    }
    match verdict(status, &call.expected) {
        AnswerVerdict::Success => {
            let mut kept = BodyPrefix::up_to(limits::HTTP_RESPONSE_BYTES_MAX);
            match kept.fill(response.into_body()).await {
                Ok(()) => Outcome::Succeeded { result: Some(kept.result(status)) },
                Err(error) => {
                    Outcome::failed(format!("{said}, but the body was interrupted: {}", innermost(&error)))
                }
            }
        }
        AnswerVerdict::Redirect => Outcome::failed_for_good(format!(
            "{said}: redirects are not followed, use the final address as url"
        )),
        verdict => {
            let mut kept = BodyPrefix::up_to(limits::HTTP_ERROR_BODY_BYTES_MAX);
            let waited = clock.sleep(limits::HTTP_ERROR_BODY_WAIT_MAX);
            // The status has decided the outcome; a body that hangs or breaks off changes nothing.
            let is_whole = matches!(
                select(pin!(kept.fill(response.into_body())), waited).await,
                Either::Left((Ok(()), _))
            );
            kept.is_cut |= !is_whole;
            let retry_at = retry_after.as_deref().and_then(|after| after_header(after, clock.wall()));
            let asked = retry_after.map_or_else(String::new, |after| format!(" (Retry-After: {after})"));
            Outcome::Failed {
                error: format!("{said}{asked}{}", kept.excerpt()),
                retryable: verdict == AnswerVerdict::TryAgain,
                retry_at,
            }
        }
    }
}

/// The wait that a `Retry-After` asks for, in seconds or until a date; `None` if it is not understood.
fn after_header(text: &str, now: Timestamp) -> Option<ChosenTime> {
    let text = text.trim();
    let delay = match text.parse().ok() {
        Some(seconds) => Duration::from_secs(seconds),
        None => {
            let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
            Timestamp::from_micros(date.as_microsecond()).since(now)
        }
    };
    Some(ChosenTime::After(delay.clamp(limits::HTTP_RETRY_AFTER_MIN, limits::HTTP_RETRY_AFTER_MAX)))
}

/// The outcome of a call that got no response.
pub(super) fn not_answered(call: &HttpCall, error: &legacy::Error) -> Outcome {
    let said = format!("{} {}", call.method, call.host);
    if let Some(refused) = find_refusal(error) {
        let advice = format!("the operator of the worker can allow it with --http-allow {}", place(call));
        return Outcome::failed_for_good(format!("{said}: {refused}; {advice}"));
    }
    let what = if error.is_connect() { "cannot connect" } else { "no answer" };
    Outcome::failed(format!("{said}: {what}: {}", innermost(error)))
}

/// Host and port: the narrowest exception that permits the call.
fn place(call: &HttpCall) -> String {
    let default_port = if call.uri.scheme_str() == Some("https") { 443 } else { 80 };
    let port = call.uri.port_u16().unwrap_or(default_port);
    format!("{}:{port}", call.uri.host().unwrap_or_default())
}

fn find_refusal<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a RefusedAddress> {
    error.downcast_ref().or_else(|| causes(error).find_map(|cause| cause.downcast_ref()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerVerdict {
    Success,
    Redirect,
    TryAgain,
    Final,
}

fn verdict(status: StatusCode, expected: &ExpectedStatuses) -> AnswerVerdict {
    match status.as_u16() {
        status if expected.contains(status) => AnswerVerdict::Success,
        408 | 429 | 500..=599 => AnswerVerdict::TryAgain,
        300..=399 => AnswerVerdict::Redirect,
        _ => AnswerVerdict::Final,
    }
}

/// The beginning of a body.
struct BodyPrefix {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// Whether the body was longer.
    is_cut: bool,
}

impl BodyPrefix {
    fn up_to(bytes_max: usize) -> Self {
        BodyPrefix { bytes: Vec::new(), bytes_max, is_cut: false }
    }

    /// Reads until the body ends or enough is kept.
    async fn fill<B: Body<Data = Bytes> + Unpin>(&mut self, mut body: B) -> Result<(), B::Error> {
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            let room = self.bytes_max - self.bytes.len();
            self.bytes.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                self.is_cut = true;
                return Ok(());
            }
        }
        Ok(())
    }

    /// The result of the job, as JSON text.
    fn result(&self, status: StatusCode) -> String {
        let status = status.as_u16();
        if let Some(json) = self.as_json() {
            return format!("{{\"status\":{status},\"body\":{json}}}");
        }
        let text = String::from_utf8_lossy(&self.bytes);
        let kept = fitting(&text, self.bytes_max);
        let body = Value::from(kept);
        let mark = if self.is_cut || kept.len() < text.len() { ",\"body_cut\":true" } else { "" };
        format!("{{\"status\":{status},\"body\":{body}{mark}}}")
    }

    /// The body as JSON text, as sent; an empty body is `null`.
    fn as_json(&self) -> Option<&str> {
        if self.bytes.is_empty() {
            return Some("null");
        }
        if self.is_cut || document_problem(&self.bytes, BODY_DEPTH_MAX).is_some() {
            return None;
        }
        serde_json::from_slice::<IgnoredAny>(&self.bytes).ok()?;
        std::str::from_utf8(&self.bytes).ok().map(str::trim)
    }

    /// The body for an error message, in one line.
    fn excerpt(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c.is_control()).collect();
        let line = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        match (line.is_empty(), self.is_cut) {
            (true, _) => String::new(),
            (false, false) => format!(": {line}"),
            (false, true) => format!(": {line} […]"),
        }
    }
}

/// The prefix of the text that fits into this many bytes of JSON.
fn fitting(text: &str, json_bytes_max: usize) -> &str {
    let mut room = json_bytes_max;
    for (at, character) in text.char_indices() {
        let bytes = match character {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..'\u{20}' => 6,
            other => other.len_utf8(),
        };
        match room.checked_sub(bytes) {
            Some(left) => room = left,
            None => return &text[..at],
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use punctual_outbound::AddressGuard;
    use serde_json::json;

    fn kept(bytes: &[u8], bytes_max: usize) -> BodyPrefix {
        let mut kept = BodyPrefix::up_to(bytes_max);
        let body = Full::new(Bytes::copy_from_slice(bytes));
        futures_util::FutureExt::now_or_never(kept.fill(body)).unwrap().unwrap();
        kept
    }

    fn result(bytes: &[u8], bytes_max: usize) -> Value {
        serde_json::from_str(&kept(bytes, bytes_max).result(StatusCode::OK)).unwrap()
    }

    fn of(status: u16) -> AnswerVerdict {
        verdict(StatusCode::from_u16(status).unwrap(), &ExpectedStatuses::default())
    }

    #[test]
    fn the_exception_that_is_advised_is_one_host_and_port() {
        for (url, advised) in [
            ("http://internal.example:8080/a", "internal.example:8080"),
            ("https://Internal.Example/", "internal.example:443"),
            ("http://127.0.0.1/", "127.0.0.1:80"),
            ("http://[::1]:90/", "[::1]:90"),
        ] {
            let call = HttpCall::from_payload(&json!({"url": url}).to_string()).unwrap();
            assert_eq!(place(&call), advised);
            let (host, port) = advised.rsplit_once(':').unwrap();
            assert!(
                AddressGuard::new(vec![advised.parse().unwrap()]).allows_host(host, port.parse().unwrap())
            );
        }
    }

    #[test]
    fn statuses_have_three_ends() {
        for status in [200, 201, 204, 299] {
            assert_eq!(of(status), AnswerVerdict::Success, "{status}");
        }
        for status in [408, 429, 500, 502, 503, 504, 599] {
            assert_eq!(of(status), AnswerVerdict::TryAgain, "{status}");
        }
        for status in [400, 401, 403, 404, 409, 410, 422, 499] {
            assert_eq!(of(status), AnswerVerdict::Final, "{status}");
        }
        for status in [301, 302, 303, 304, 307, 308] {
            assert_eq!(of(status), AnswerVerdict::Redirect, "{status}");
        }
    }

    #[test]
    fn what_is_expected_succeeds_whatever_it_is() {
        let call = HttpCall::from_payload(r#"{"url": "http://a/", "expect_status": [302, 503]}"#).unwrap();
        assert_eq!(verdict(StatusCode::FOUND, &call.expected), AnswerVerdict::Success);
        assert_eq!(verdict(StatusCode::SERVICE_UNAVAILABLE, &call.expected), AnswerVerdict::Success);
        assert_eq!(verdict(StatusCode::OK, &call.expected), AnswerVerdict::Final);
    }

    #[test]
    fn a_result_holds_json_or_text() {
        let whole = 1_000;
        assert_eq!(result(b"{\"a\": [1]}\n", whole), json!({"status": 200, "body": {"a": [1]}}));
        assert_eq!(result(b"hello \"you\"", whole), json!({"status": 200, "body": "hello \"you\""}));
        assert_eq!(result(b"", whole), json!({"status": 200, "body": null}));
        assert_eq!(result(b"\xff\x00", whole), json!({"status": 200, "body": "\u{fffd}\u{0}"}));
        assert_eq!(kept(b"1.50", whole).result(StatusCode::OK), "{\"status\":200,\"body\":1.50}");
    }

    #[test]
    fn a_cut_is_marked() {
        assert_eq!(result(b"abcdef", 6), json!({"status": 200, "body": "abcdef"}));
        assert_eq!(result(b"abcdefg", 6), json!({"status": 200, "body": "abcdef", "body_cut": true}));
        assert_eq!(result(b"[1,2,3]", 6), json!({"status": 200, "body": "[1,2,3", "body_cut": true}));
        // A prefix that happens to be valid JSON is not the body that was sent.
        assert_eq!(result(b"1234567", 6), json!({"status": 200, "body": "123456", "body_cut": true}));
        assert_eq!(result("aaaaaé".as_bytes(), 6)["body_cut"], json!(true));
    }

    #[test]
    fn a_result_fits_its_limit_whatever_the_body_is() {
        let max = limits::HTTP_RESPONSE_BYTES_MAX;
        for byte in [b'a', 0, 0xff, b'"', b'\n', b'['] {
            let result = kept(&vec![byte; max + 1], max).result(StatusCode::OK);
            assert!(result.len() <= limits::RESULT_BYTES_MAX, "{byte}: {}", result.len());
            serde_json::from_str::<Value>(&result).unwrap();
        }
    }

    #[test]
    fn json_that_is_too_deep_is_text() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(result(nested(BODY_DEPTH_MAX).as_bytes(), 1_000)["body"].is_array());
        for levels in [BODY_DEPTH_MAX + 1, 400] {
            assert!(result(nested(levels).as_bytes(), 1_000)["body"].is_string(), "{levels}");
        }
    }

    #[test]
    fn a_wait_is_in_seconds_or_until_a_date_and_has_a_limit() {
        let now: Timestamp = "2026-10-21T07:28:00Z".parse().unwrap();
        let after = |text| after_header(text, now);
        let seconds = |seconds| Some(ChosenTime::After(Duration::from_secs(seconds)));
        assert_eq!(after("120"), seconds(120));
        assert_eq!(after("Wed, 21 Oct 2026 07:30:00 GMT"), seconds(120));
        assert_eq!(
            after("Wed, 21 Oct 2026 07:00:00 GMT"),
            Some(ChosenTime::After(limits::HTTP_RETRY_AFTER_MIN))
        );
        assert_eq!(after("0"), Some(ChosenTime::After(limits::HTTP_RETRY_AFTER_MIN)));
        assert_eq!(after("99999999"), Some(ChosenTime::After(limits::HTTP_RETRY_AFTER_MAX)));
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn an_excerpt_is_one_line() {
        assert_eq!(kept(b"  no\r\n\x1b[31m  way\n", 100).excerpt(), ": no [31m way");
        assert_eq!(kept(b"no way", 2).excerpt(), ": no […]");
        assert_eq!(kept(b"\n", 100).excerpt(), "");
    }
}
