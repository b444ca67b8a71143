//! JSON documents that handlers produce: results and checkpoints.
//!
//! They are stored and returned as text. Clients parse them, often recursively. Brackets are cheap to write:
//! tens of thousands of them fit into a small document and would overflow the stack of a reader, or make it
//! reject the whole page. Every document is therefore checked against one maximum depth wherever it enters
//! the system.

use crate::limits;

/// The document is nested deeper than allowed. Reads as the end of a sentence: "the result nests …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nests arrays and objects more than {} deep", limits::JSON_DEPTH_MAX)]
pub struct TooDeep;

/// Whether the depth of the document is allowed.
pub fn check_depth(json: &str) -> Result<(), TooDeep> {
    if is_deeper(json.as_bytes(), limits::JSON_DEPTH_MAX) { Err(TooDeep) } else { Ok(()) }
}

/// Whether arrays and objects are nested deeper than `depth_max`. Counts brackets outside of strings, without
/// recursion. Does not check that the text is valid JSON.
pub fn is_deeper(json: &[u8], depth_max: usize) -> bool {
    // Most documents are too short to be too deep.
    if json.len() <= depth_max {
        return false;
    }
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in json {
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

/// Why a result cannot be stored, if so: a sentence for the error of the attempt.
pub fn result_problem(json: &str) -> Option<String> {
    if json.len() > limits::RESULT_BYTES_MAX {
        let (found, most) = (json.len(), limits::RESULT_BYTES_MAX);
        return Some(format!("the result has {found} bytes, more than the {most} that are kept"));
    }
    check_depth(json).err().map(|problem| format!("the result {problem}"))
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
        assert!(!is_deeper(b"[[[", 3) && is_deeper(b"[[[[", 3));
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
