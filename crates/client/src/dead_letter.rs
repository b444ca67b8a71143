//! Dead letters on the wire: lists, selections, and the outcomes of actions on them.

use crate::object;
use crate::wire::wire;
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

wire! {
    /// An occurrence that failed permanently.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct DeadLetterBody as "DeadLetter" {
        /// The occurrence.
        pub occurrence_id: OccurrenceId,
        /// Its job.
        pub job_id: JobId,
        /// The job's name.
        pub name: String,
        /// The job's type.
        pub job_type: String,
        /// The job's queue.
        pub queue: String,
        /// The number of attempts.
        pub attempts: u32,
        /// The nominal time of the occurrence.
        pub scheduled_time: Timestamp,
        /// When its last attempt ended.
        pub died_at: Timestamp,
        /// The error of the last attempt.
        pub error_message: Option<String>,
    }
}

wire! {
    /// Selects dead letters. An omitted field matches all.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct DeadLetterFilter as "DeadLetterFilter" {
        /// Dead letters of this job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub job_id: Option<JobId>,
        /// Dead letters of jobs with exactly this name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// Dead letters of jobs of this type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub job_type: Option<String>,
        /// Dead letters of jobs of this queue.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub queue: Option<String>,
        /// Dead letters of jobs of this owner.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub owner: Option<String>,
        /// Dead letters created at or after this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub died_from: Option<Timestamp>,
        /// Dead letters created before this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub died_until: Option<Timestamp>,
        /// Dead letters whose error contains this text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<String>,
    }
}

wire! {
    /// Dead letters to act on: either `ids`, or a `filter` of which one request handles a bounded number.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct DeadLetterSelection as "DeadLetterSelection" {
        /// These.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ids: Option<Vec<OccurrenceId>> =
            up_to(limits::STORE_BATCH_MAX, list(the("OccurrenceId")).with("minItems", 1)
                .example(json!([OCCURRENCE_EXAMPLE]))),
        /// All that match and that the caller may change; an empty filter means all.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
        pub filter: Option<DeadLetterFilter>,
        /// How many matches to act on in this request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limit: Option<usize> =
            whole(1..=limits::STORE_BATCH_MAX as u64).otherwise(limits::STORE_BATCH_MAX),
        /// Where the previous request ended: its `next_cursor`. Only with a filter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cursor: Option<String>,
    }
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

wire! {
    /// The result of one redrive request.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct RedriveAnswer as "RedriveAnswer" {
        /// How many run again.
        pub redriven: u64,
        /// Those that were left unchanged.
        pub refused: Vec<RefusedLetter>,
        /// Pass it as `cursor` to continue; null when nothing is left.
        pub next_cursor: Option<String> = text().example(CURSOR_EXAMPLE),
    }
}

wire! {
    /// The result of one discard request.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct DiscardAnswer as "DiscardAnswer" {
        /// How many were deleted.
        pub discarded: u64,
        /// Those that were left unchanged.
        pub refused: Vec<RefusedLetter>,
        /// Pass it as `cursor` to continue; null when nothing is left.
        pub next_cursor: Option<String> = text().example(CURSOR_EXAMPLE),
    }
}

wire! {
    /// A dead letter that was left unchanged.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct RefusedLetter as "RefusedLetter" {
        /// The occurrence.
        pub occurrence_id: OccurrenceId,
        /// Why.
        pub reason: String,
    }
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
