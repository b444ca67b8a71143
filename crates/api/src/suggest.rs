//! "Did you mean": the known name closest to a misspelled one.

/// How similar two names must be for a suggestion, from 0 to 1.
const SIMILARITY_MIN: f64 = 0.75;

/// The known name that was probably meant, if one is close enough.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&name.to_ascii_lowercase(), candidate), candidate))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_offered_and_far_ones_are_not() {
        let known = ["priority", "payload", "execute_at", "job_type"];
        assert_eq!(closest("pirority", known), Some("priority"));
        assert_eq!(closest("executeAt", known), Some("execute_at"));
        assert_eq!(closest("jobType", known), Some("job_type"));
        assert_eq!(closest("colour", known), None);
    }
}
