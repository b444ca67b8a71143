//! Words of an enum in a request, in any case: people write `skip` where the API says `SKIP`.

use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// A word that is upper case in answers, or null.
pub(crate) fn optional<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let Some(word) = Option::<Cow<'de, str>>::deserialize(deserializer)? else { return Ok(None) };
    let upper = T::deserialize(word.to_ascii_uppercase().into_deserializer());
    // The error repeats the word as it was written.
    upper.or_else(|_: D::Error| T::deserialize(word.into_deserializer())).map(Some)
}

/// One name or a list of names, or null.
pub(crate) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a name or a list of names")]
    enum WrittenNames {
        One(String),
        All(Vec<String>),
    }
    Ok(Option::<WrittenNames>::deserialize(deserializer)?.map(|written| match written {
        WrittenNames::One(name) => vec![name],
        WrittenNames::All(names) => names,
    }))
}

#[cfg(test)]
mod tests {
    use crate::{PreviewRequest, SubmitJob};
    use punctual_core::recurrence::{DstGap, DstOverlap};
    use punctual_core::schedule::{MisfirePolicy, OverlapPolicy};

    #[test]
    fn words_of_a_request_are_read_in_any_case() {
        let job: SubmitJob = serde_json::from_str(
            r#"{"name":"x","dst_gap":"run_after","dst_overlap":"Both","misfire_policy":"run_all",
                "overlap_policy":"queue"}"#,
        )
        .unwrap();
        assert_eq!((job.dst_gap, job.dst_overlap), (Some(DstGap::RunAfter), Some(DstOverlap::Both)));
        assert_eq!(job.misfire_policy, Some(MisfirePolicy::RunAll));
        assert_eq!(job.overlap_policy, Some(OverlapPolicy::Queue));
        let preview: PreviewRequest =
            serde_json::from_str(r#"{"dst_gap":"skip","dst_overlap":null}"#).unwrap();
        assert_eq!((preview.dst_gap, preview.dst_overlap), (Some(DstGap::Skip), None));
    }

    #[test]
    fn an_unknown_word_is_repeated_as_written() {
        let error = serde_json::from_str::<SubmitJob>(r#"{"name":"x","dst_gap":"Jump"}"#).unwrap_err();
        let expected = "unknown variant `Jump`, expected `SKIP` or `RUN_AFTER`";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
