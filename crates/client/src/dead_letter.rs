//! Dead letters on the wire: lists, selections, and the outcomes of actions on them.

use crate::object;
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// An occurrence that failed permanently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterBody {
    pub occurrence_id: OccurrenceId,
    pub job_id: JobId,
    pub name: String,
    pub job_type: String,
    pub queue: String,
    pub attempts: u32,
    /// The nominal time of the occurrence.
    pub scheduled_time: Timestamp,
    pub died_at: Timestamp,
    pub error_message: Option<String>,
}

/// Filters for dead letters. Absent filters match all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterFilter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Dead-lettered at or after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_from: Option<Timestamp>,
    /// Dead-lettered before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_until: Option<Timestamp>,
    /// The error contains this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Dead letters to act on: either by their ids or by a filter. With a filter, one request takes a bounded
/// step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterSelection {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<OccurrenceId>>,
    /// An empty filter matches all.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub filter: Option<DeadLetterFilter>,
    /// How many of the matching ones to act on in this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Where the previous step ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl DeadLetterSelection {
    pub fn ids(ids: Vec<OccurrenceId>) -> Self {
        DeadLetterSelection { ids: Some(ids), ..DeadLetterSelection::default() }
    }

    /// The first step over all matching ones.
    pub fn matching(filter: DeadLetterFilter) -> Self {
        DeadLetterSelection { filter: Some(filter), ..DeadLetterSelection::default() }
    }

    /// The step after the one that returned this cursor.
    pub fn going_on(self, cursor: String) -> Self {
        DeadLetterSelection { cursor: Some(cursor), ..self }
    }
}

/// The outcome of one redrive step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedriveAnswer {
    pub redriven: u64,
    pub refused: Vec<RefusedLetter>,
    /// Pass it as `cursor` to continue; null when nothing is left.
    pub next_cursor: Option<String>,
}

/// The outcome of one discard step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscardAnswer {
    pub discarded: u64,
    pub refused: Vec<RefusedLetter>,
    /// Pass it as `cursor` to continue; null when nothing is left.
    pub next_cursor: Option<String>,
}

/// A dead letter that was left unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedLetter {
    pub occurrence_id: OccurrenceId,
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_matches_all_is_still_written() {
        let all = DeadLetterSelection::matching(DeadLetterFilter::default());
        assert_eq!(serde_json::to_string(&all).unwrap(), r#"{"filter":{}}"#);
        let next = all.going_on("dead-letters~5".to_owned());
        let text = serde_json::to_string(&next).unwrap();
        assert_eq!(text, r#"{"filter":{},"cursor":"dead-letters~5"}"#);
        assert_eq!(serde_json::from_str::<DeadLetterSelection>(&text).unwrap(), next);
    }
}
