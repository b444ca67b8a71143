//! Errors as RFC 9457 problem details.

use crate::advice::Advice;
use punctual_core::ids::JobId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The body of every answer that is not a success (`application/problem+json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Names the kind of problem, for programs: `about:blank` when the status says all.
    #[serde(rename = "type", default = "about_blank")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// What happened and what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What is wrong with the request, by field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// The other job that is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// The version that the job has by now, where another one was expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// After how many seconds it is worth trying again; the same as the header `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_secs: Option<u64>,
    /// What may help.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Advice>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    /// The field as in the request, with its path: `retry.steps[1]`.
    pub field: String,
    /// What would be right, to follow the field's name: "must be …".
    pub detail: String,
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
        // With errors the detail only sums them up.
        if let Some(detail) = self.detail.as_ref().filter(|_| self.errors.is_empty()) {
            write!(f, ": {detail}")?;
        }
        for error in &self.errors {
            write!(f, "\n  {} {}", error.field, error.detail)?;
        }
        Ok(())
    }
}
