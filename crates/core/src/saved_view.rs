//! Saved views: lists with their filters, which a caller keeps under a name.

use crate::job::InvalidField;
use crate::limits;
use crate::names::path_name_problem;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// A page with its filters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedView {
    /// The page that it opens, such as `jobs`.
    pub page: String,
    /// The filters, as the query of an address without its question mark.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub query: String,
}

/// All views of one caller by name, stored as one document.
pub type SavedViews = BTreeMap<String, SavedView>;

impl SavedView {
    /// What is wrong with it and with its name.
    pub fn problems(&self, name: &str) -> Vec<InvalidField> {
        let mut problems = Vec::new();
        if let Some(fix) = path_name_problem(name) {
            problems.push(InvalidField::new("name", fix));
        }
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        if self.page.is_empty()
            || self.page.len() > limits::VIEW_PAGE_BYTES_MAX
            || !self.page.bytes().all(is_word)
        {
            let most = limits::VIEW_PAGE_BYTES_MAX;
            let fix = format!("must be 1 to {most} lower-case letters or dashes, such as jobs");
            problems.push(InvalidField::new("page", fix));
        }
        let (most, bytes) = (limits::VIEW_QUERY_BYTES_MAX, self.query.len());
        if bytes > most {
            problems.push(InvalidField::new("query", format!("must be at most {most} bytes, not {bytes}")));
        } else if !self.query.bytes().all(|byte| byte.is_ascii_graphic()) || self.query.starts_with('?') {
            let fix = "must be the part of an address after its question mark, with other characters escaped";
            problems.push(InvalidField::new("query", fix));
        }
        problems
    }
}

/// The name of the document with the views of a caller. Names of callers may be longer than those of documents.
pub fn views_of(kind: &str, caller: &str) -> String {
    let hash = Sha256::digest(format!("{kind} {caller}"));
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_has_a_page_a_name_and_an_escaped_query() {
        let fields = |name: &str, page: &str, query: &str| -> Vec<String> {
            let view = SavedView { page: page.to_owned(), query: query.to_owned() };
            view.problems(name).into_iter().map(|problem| problem.field.to_string()).collect()
        };
        let none: [&str; 0] = [];
        assert_eq!(fields("my jobs", "jobs", "status=ACTIVE&tag=a%20b"), none);
        assert_eq!(fields("all", "dead-letters", ""), none);
        assert_eq!(fields("", "Jobs/1", "a b"), ["name", "page", "query"]);
        assert_eq!(fields("a", "", "?a=b"), ["page", "query"]);
        assert_eq!(fields("a", "jobs", &"x".repeat(limits::VIEW_QUERY_BYTES_MAX)), none);
        assert_eq!(fields("a", "jobs", &"x".repeat(limits::VIEW_QUERY_BYTES_MAX + 1)), ["query"]);
    }

    #[test]
    fn callers_of_different_kinds_have_views_of_their_own() {
        assert_ne!(views_of("user", "1"), views_of("token", "1"));
        assert!(views_of("token", &"x".repeat(1_000)).len() <= limits::DOCUMENT_NAME_BYTES_MAX);
    }
}
