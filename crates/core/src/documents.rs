//! JSON documents that handlers produce: results and checkpoints.
//!
//! They are stored and returned as text, and other programs parse them. Some texts are JSON by its grammar, and
//! parsers fail on them all the same, with the whole page that contains them: brackets nested tens of thousands
//! deep overflow a stack, half of a surrogate pair is no character, and no float holds `1e999`. Every document is
//! therefore checked wherever it enters the system.

use crate::limits;

/// Why common JSON parsers would fail on a document. Reads as the end of a sentence: "the result nests …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DocumentProblem {
    #[error("nests arrays and objects more than {} deep", limits::JSON_DEPTH_MAX)]
    TooDeep,
    #[error("contains half of a surrogate pair (\\ud800 to \\udfff), which is not a character")]
    LoneSurrogate,
    #[error("contains a number that is too large for a 64-bit float (more than about 1.8e308)")]
    NumberTooLarge,
}

impl DocumentProblem {
    /// What a document must be instead: "the checkpoint must nest …".
    pub fn requirement(self) -> String {
        match self {
            DocumentProblem::TooDeep => {
                format!("must nest arrays and objects at most {} deep", limits::JSON_DEPTH_MAX)
            }
            DocumentProblem::LoneSurrogate => {
                "must not contain half of a surrogate pair (\\ud800 to \\udfff)".to_owned()
            }
            DocumentProblem::NumberTooLarge => {
                "must contain only numbers that fit into a 64-bit float; send larger ones as strings"
                    .to_owned()
            }
        }
    }
}

/// Whether common JSON parsers can read the document.
pub fn check_document(json: &str) -> Result<(), DocumentProblem> {
    document_problem(json.as_bytes(), limits::JSON_DEPTH_MAX).map_or(Ok(()), Err)
}

/// The first problem of a document that may be nested `depth_max` deep. Works without recursion, and does not
/// check that the text is valid JSON.
pub fn document_problem(json: &[u8], depth_max: usize) -> Option<DocumentProblem> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => match string_length(&json[at + 1..]) {
                Ok(length) => at += 1 + length,
                Err(problem) => return Some(problem),
            },
            b'[' | b'{' if depth == depth_max => return Some(DocumentProblem::TooDeep),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let length = json[at..].iter().position(|byte| !is_part(byte)).unwrap_or(json.len() - at);
                if is_too_large(&json[at..at + length]) {
                    return Some(DocumentProblem::NumberTooLarge);
                }
                at += length - 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The bytes of a string up to its closing quote.
fn string_length(rest: &[u8]) -> Result<usize, DocumentProblem> {
    let mut at = 0;
    loop {
        match rest.get(at) {
            None | Some(b'"') => return Ok(at),
            Some(b'\\') => match (escaped_unit(&rest[at..]), escaped_unit(&rest[(at + 6).min(rest.len())..]))
            {
                (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at += 12,
                (Some(0xd800..=0xdfff), _) => return Err(DocumentProblem::LoneSurrogate),
                _ => at += 2,
            },
            Some(_) => at += 1,
        }
    }
}

/// The UTF-16 code unit that this text escapes (`\u` and four digits) at its start.
fn escaped_unit(text: &[u8]) -> Option<u16> {
    let digits =
        text.strip_prefix(b"\\u")?.get(..4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn is_too_large(number: &[u8]) -> bool {
    // Without an exponent, it takes more digits than this.
    let is_short = number.len() < 300 && !number.iter().any(|byte| matches!(byte, b'e' | b'E'));
    let parsed = || std::str::from_utf8(number).ok().and_then(|number| number.parse::<f64>().ok());
    !is_short && parsed().is_some_and(f64::is_infinite)
}

/// Why a result cannot be stored, if so: a sentence for the error of the attempt.
pub fn result_problem(json: &str) -> Option<String> {
    if json.len() > limits::RESULT_BYTES_MAX {
        let (found, most) = (json.len(), limits::RESULT_BYTES_MAX);
        return Some(format!("the result has {found} bytes, more than the {most} that are kept"));
    }
    check_document(json).err().map(|problem| format!("the result {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brackets_inside_of_each_other_count() {
        let is_deeper =
            |json: &[u8], depth_max| document_problem(json, depth_max) == Some(DocumentProblem::TooDeep);
        assert!(!is_deeper(b"[[1],[2],{\"a\":[3]}]", 3));
        assert!(is_deeper(b"[[1],[2],{\"a\":[3]}]", 2));
        assert!(!is_deeper(br#"["[[[[", "\"[[[["]"#, 1));
        assert!(is_deeper(br#"["\\", [["#, 2));
        assert!(!is_deeper(b"[[[", 3) && is_deeper(b"[[[[", 3));
    }

    #[test]
    fn text_that_strict_parsers_refuse_is_found() {
        let cases = [
            (r#"{"a": "\ud83d\ude00", "b": "\\ud800"}"#, None),
            (r#"["\ud800"]"#, Some(DocumentProblem::LoneSurrogate)),
            (r#"{"\uDC00": 1}"#, Some(DocumentProblem::LoneSurrogate)),
            (r#""\ud800\ud800""#, Some(DocumentProblem::LoneSurrogate)),
            (r#""\ude00\ud83d""#, Some(DocumentProblem::LoneSurrogate)),
            (r#"[1e308, -1.7E+308, 1e-999, true, "1e999"]"#, None),
            ("[0, 1e999]", Some(DocumentProblem::NumberTooLarge)),
            ("-1E400", Some(DocumentProblem::NumberTooLarge)),
            (&"9".repeat(308), None),
            (&"9".repeat(400), Some(DocumentProblem::NumberTooLarge)),
        ];
        for (json, problem) in cases {
            assert_eq!(check_document(json).err(), problem, "{json}");
            let strict = serde_json::from_str::<serde_json::Value>(json);
            assert_eq!(strict.is_err(), problem.is_some(), "{json}: {strict:?}");
        }
        for cut_off in [r#""\"#, r#""\u"#, r#""\ud83"#, r#""\ud83d\u"#, "\"", "-"] {
            let _ = check_document(cut_off);
        }
    }

    #[test]
    fn what_cannot_be_kept_of_a_result_names_the_limit() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(result_problem(&nested(limits::JSON_DEPTH_MAX)), None);
        let problem = result_problem(&nested(limits::JSON_DEPTH_MAX + 1));
        assert_eq!(problem.as_deref(), Some("the result nests arrays and objects more than 100 deep"));
        let problem = result_problem(&nested(limits::RESULT_BYTES_MAX)).unwrap();
        assert_eq!(problem, "the result has 131072 bytes, more than the 65536 that are kept");
    }
}
