//! What every body must be before anyone parses it: UTF-8, and not nested without end.
//!
//! A payload passes through as text and is parsed by whoever reads it later, often by recursion. Brackets are cheap
//! to send: a hundred thousand of them fit into a small payload and would overrun the reader's stack.

use crate::error::ApiError;

/// Arrays and objects inside of each other. Answers put a few more around a payload; many readers stop at 128.
pub const JSON_DEPTH_MAX: usize = 100;

pub fn check(text: &[u8]) -> Result<(), ApiError> {
    if std::str::from_utf8(text).is_err() {
        return Err(ApiError::NotUtf8);
    }
    if is_deeper(text, JSON_DEPTH_MAX) { Err(ApiError::TooDeep) } else { Ok(()) }
}

/// Counts brackets outside of strings. What is not JSON is found out later.
fn is_deeper(text: &[u8], depth_max: usize) -> bool {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                if depth > depth_max {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brackets_inside_of_each_other_count() {
        assert!(!is_deeper(b"[[1],[2],{\"a\":[3]}]", 3));
        assert!(is_deeper(b"[[1],[2],{\"a\":[3]}]", 2));
        assert!(!is_deeper(br#"["[[[[", "\"[[[["]"#, 1));
        assert!(is_deeper(br#"["\\", [["#, 2));
    }

    #[test]
    fn depth_and_encoding_are_told_apart() {
        assert!(check(&[b'['; JSON_DEPTH_MAX]).is_ok());
        assert!(matches!(check(&[b'['; JSON_DEPTH_MAX + 1]), Err(ApiError::TooDeep)));
        assert!(matches!(check(b"{\"name\": \"\xff\"}"), Err(ApiError::NotUtf8)));
    }
}
