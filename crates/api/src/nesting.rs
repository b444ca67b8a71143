//! Checks that every body is UTF-8 and can be read by common JSON parsers before it is parsed.
//!
//! A payload passes through as text. Clients parse it later, often recursively.

use crate::error::ApiError;
use punctual_core::documents::document_problem;
use punctual_core::limits::JSON_DEPTH_MAX;

/// Whether the depth of the whole body is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    Checked,
    /// The route checks each document in the body, so that one that is too deep does not affect the others.
    LeftToRoute,
}

pub fn check(text: &[u8], depth: Depth) -> Result<(), ApiError> {
    if std::str::from_utf8(text).is_err() {
        return Err(ApiError::NotUtf8);
    }
    match document_problem(text, JSON_DEPTH_MAX).filter(|_| depth == Depth::Checked) {
        Some(problem) => Err(ApiError::Document(problem)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::documents::DocumentProblem;

    #[test]
    fn depth_and_encoding_are_told_apart() {
        let check = |text: &[u8]| super::check(text, Depth::Checked);
        assert!(check(&[b'['; JSON_DEPTH_MAX]).is_ok());
        assert!(matches!(
            check(&[b'['; JSON_DEPTH_MAX + 1]),
            Err(ApiError::Document(DocumentProblem::TooDeep))
        ));
        assert!(matches!(check(b"{\"name\": \"\xff\"}"), Err(ApiError::NotUtf8)));
        let left = |text: &[u8]| super::check(text, Depth::LeftToRoute);
        assert!(left(&[b'['; JSON_DEPTH_MAX + 1]).is_ok());
        assert!(matches!(left(b"\xff"), Err(ApiError::NotUtf8)));
    }
}
