//! The checkpoint of a web call: sent to the server in a header, and read from a header of a response that
//! fails the attempt, for the next one.

use super::payload::HttpCall;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use punctual_core::limits;
use punctual_core::notes::Checkpoint;
use punctual_core::ports::{ExecutionContext, LogStream};
use serde::de::IgnoredAny;
use std::fmt::Write;

const CHECKPOINT: HeaderName = HeaderName::from_static("punctual-checkpoint");

/// Sends the checkpoint of an earlier attempt, or returns why it cannot be sent.
pub(super) fn tell(call: &mut HttpCall, checkpoint: Option<&Checkpoint>) -> Result<(), String> {
    let Some(checkpoint) = checkpoint else { return Ok(()) };
    let text = in_ascii(checkpoint.as_json());
    if text.len() > limits::HTTP_CHECKPOINT_BYTES_MAX {
        let most = limits::HTTP_CHECKPOINT_BYTES_MAX;
        return Err(format!(
            "the checkpoint is omitted: it has {} bytes as a header, more than the maximum of {most}",
            text.len()
        ));
    }
    let value = HeaderValue::try_from(text).map_err(|error| format!("the checkpoint is omitted: {error}"))?;
    call.headers.insert(CHECKPOINT, value);
    Ok(())
}

/// The checkpoint in the response, for the next attempt.
pub(super) fn left(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(CHECKPOINT).cloned()
}

/// Saves the checkpoint; errors in it go to the log.
pub(super) async fn save(left: HeaderValue, context: &ExecutionContext) {
    let said = match read(&left) {
        Ok(checkpoint) => match context.notes.checkpoint(checkpoint).await {
            Ok(()) => return,
            Err(error) => error.to_string(),
        },
        Err(problem) => format!("the header Punctual-Checkpoint of the response was not stored: {problem}"),
    };
    context.logs.append(LogStream::Log, said).await;
}

fn read(left: &HeaderValue) -> Result<Checkpoint, String> {
    let most = limits::HTTP_CHECKPOINT_BYTES_MAX;
    if left.len() > most {
        return Err(format!("it has {} bytes, more than {most}", left.len()));
    }
    let text = std::str::from_utf8(left.as_bytes()).map_err(|_| "it is not UTF-8".to_owned())?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| format!("it is not JSON: {error}"))?;
    Checkpoint::new(text.trim()).map_err(|error| error.to_string())
}

/// The same document in ASCII, so that it is valid in a header: non-ASCII characters can only be inside
/// strings, where they may be escaped, and line breaks only between values.
fn in_ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            ' '..='~' => text.push(character),
            '\0'..' ' => text.push(' '),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn told(document: &str) -> Result<Option<HeaderValue>, String> {
        let mut call = HttpCall::from_payload(r#"{"url": "http://a/"}"#).unwrap();
        tell(&mut call, Checkpoint::new(document).ok().as_ref())?;
        Ok(call.headers.remove(CHECKPOINT))
    }

    #[test]
    fn any_document_fits_into_a_header_and_means_the_same() {
        for document in ["{\"a\":\n\t[1.50, \"\\n\"]}", "\"grüße 🦀 \u{7f}\"", "12345678901234567890.1"] {
            let header = told(document).unwrap().unwrap();
            let text = header.to_str().unwrap();
            let (sent, meant): (Value, Value) =
                (serde_json::from_str(text).unwrap(), serde_json::from_str(document).unwrap());
            assert_eq!(sent, meant, "{text}");
        }
    }

    #[test]
    fn what_is_too_large_for_a_header_is_left_out() {
        let document = format!("\"{}\"", "ü".repeat(limits::HTTP_CHECKPOINT_BYTES_MAX / 2));
        let said = told(&document).unwrap_err();
        assert!(said.contains("more than the maximum of 8192"), "{said}");
    }

    #[test]
    fn only_json_is_taken_from_an_answer() {
        let read = |bytes: &[u8]| read(&HeaderValue::from_bytes(bytes).unwrap()).map(Checkpoint::into_json);
        assert_eq!(read(b"{\"page\": 7}").as_deref(), Ok("{\"page\": 7}"));
        assert!(read(b"page 7").unwrap_err().starts_with("it is not JSON"));
        assert!(read(b"\"\xff\"").unwrap_err().starts_with("it is not UTF-8"));
        assert!(read(&[b'1'; 9_000]).unwrap_err().starts_with("it has 9000 bytes"));
    }
}
