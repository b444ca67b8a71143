//! Errors as RFC 9457 problem details.

use crate::advice::Advice;
use crate::wire::wire;
use punctual_core::ids::JobId;
use serde::{Deserialize, Serialize};
use std::fmt;

wire! {
    /// What went wrong (RFC 9457).
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Problem as "Problem" {
        /// The kind of problem, for programs: `about:blank` when the status says everything.
        #[serde(rename = "type", default = "about_blank")]
        pub kind: String = text().with("format", "uri-reference").otherwise("about:blank"),
        /// A short, fixed description of the problem.
        pub title: String = text().example("the request has invalid fields"),
        /// The HTTP status of the response.
        pub status: u16 = whole(400..=599).example(422),
        /// What happened and what to do about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub detail: Option<String>,
        /// What is wrong with the request, by field.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub errors: Vec<FieldError> = list(the("FieldError").about("One field.")),
        /// The other job that causes the conflict.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub job_id: Option<JobId>,
        /// The current version of the job, where another one was expected.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub version: Option<u32> = whole(1..=u32::MAX.into()),
        /// After how many seconds a retry makes sense, as in `Retry-After`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retry_after_secs: Option<u64>,
        /// Actions that may help.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub advice: Vec<Advice>,
    }
}

wire! {
    /// What is wrong with one field, parameter or header.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct FieldError as "FieldError" {
        /// Its name as in the request, with its path.
        pub field: String = text().example("retry.steps[1]"),
        /// What is expected; it follows the name.
        pub detail: String = text().example("must be a duration such as 30s"),
    }
}

fn about_blank() -> String {
    "about:blank".to_owned()
}

impl Problem {
    pub fn new(status: u16, title: impl Into<String>) -> Self {
        Problem {
            kind: about_blank(),
            title: title.into(),
            status,
            detail: None,
            errors: vec![],
            job_id: None,
            version: None,
            retry_after_secs: None,
            advice: vec![],
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)?;
        // With errors, the detail only summarises them.
        if let Some(detail) = self.detail.as_ref().filter(|_| self.errors.is_empty()) {
            write!(f, ": {detail}")?;
        }
        for error in &self.errors {
            write!(f, "\n  {} {}", error.field, error.detail)?;
        }
        Ok(())
    }
}
