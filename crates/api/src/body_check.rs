//! Checks that every body is UTF-8, and that common JSON parsers can read it, before it is parsed.
//!
//! A payload passes through as text. Clients parse it later, often recursively.

use crate::error::ApiError;
use punctual_core::documents::document_problem;
use punctual_core::limits::JSON_DEPTH_MAX;

/// Where documents are checked for what parsers refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentCheck {
    WholeBody,
    /// The route checks each document in the body, so that a refused one does not affect the others.
    EachByRoute,
}

pub fn check(text: &[u8], documents: DocumentCheck) -> Result<(), ApiError> {
    if std::str::from_utf8(text).is_err() {
        return Err(ApiError::NotUtf8);
    }
    match documents {
        DocumentCheck::WholeBody => {
            document_problem(text, JSON_DEPTH_MAX).map_or(Ok(()), |problem| Err(ApiError::Document(problem)))
        }
        DocumentCheck::EachByRoute => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::documents::DocumentProblem;

    #[test]
    fn depth_and_encoding_are_told_apart() {
        let check = |text: &[u8]| super::check(text, DocumentCheck::WholeBody);
        assert!(check(&[b'['; JSON_DEPTH_MAX]).is_ok());
        assert!(matches!(
            check(&[b'['; JSON_DEPTH_MAX + 1]),
            Err(ApiError::Document(DocumentProblem::TooDeep))
        ));
        assert!(matches!(check(b"{\"name\": \"\xff\"}"), Err(ApiError::NotUtf8)));
        let left = |text: &[u8]| super::check(text, DocumentCheck::EachByRoute);
        assert!(left(&[b'['; JSON_DEPTH_MAX + 1]).is_ok());
        assert!(matches!(left(b"\xff"), Err(ApiError::NotUtf8)));
    }
}
