//! Errors as RFC 9457 problem details.

use crate::advice::Advice;
use punctual_core::ids::JobId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The body of every error response (`application/problem+json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The kind of problem, for programs: `about:blank` when the status says all.
    #[serde(rename = "type", default = "about_blank")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// What is wrong and what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Invalid fields of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// The job that conflicts with the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// The current version of the job, where another one was expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// After how many seconds a retry makes sense; the same as the `Retry-After` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_secs: Option<u64>,
    /// Actions that may fix the problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Advice>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    /// The path of the field in the request: `retry.steps[1]`.
    pub field: String,
    /// The requirement, to follow the field's name: "must be …".
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
