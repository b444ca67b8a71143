//! "Did you mean": the known names closest to an unknown one.

/// Letters per typo that a name may contain, so that unrelated short names are not suggested.
const LETTERS_PER_SLIP: usize = 4;
/// How similar two names must be for a suggestion, from 0 to 1.
const SIMILARITY_MIN: f64 = 0.8;
/// How much less similar than the closest name another suggestion may be.
const SIMILARITY_LAG_MAX: f64 = 0.05;
/// The maximum number of suggestions.
const OFFERED_MAX: usize = 3;

/// The known names that were probably meant, the likeliest first, as a question at the end of a message;
/// empty if none is close.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let name = name.to_lowercase();
    let mut close: Vec<(f64, &str)> = known
        .into_iter()
        .map(|candidate| (likeness(&name, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness >= SIMILARITY_MIN)
        .collect();
    close.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    close.dedup_by_key(|(_, candidate)| *candidate);
    let best = close.first().map_or(0.0, |(likeness, _)| *likeness);
    close.retain(|(likeness, _)| *likeness >= best - SIMILARITY_LAG_MAX);
    let names: Vec<&str> = close.into_iter().take(OFFERED_MAX).map(|(_, candidate)| candidate).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [rest @ .., last] => format!("; did you mean {} or {last}?", rest.join(", ")),
    }
}

/// From 0 to 1. A prefix of a name counts as a match.
fn likeness(name: &str, candidate: &str) -> f64 {
    if name.len() >= 3 && candidate.starts_with(name) {
        return 1.0;
    }
    let slips_max = (name.chars().count() / LETTERS_PER_SLIP).max(1);
    if strsim::osa_distance(name, candidate) > slips_max {
        return 0.0;
    }
    strsim::jaro_winkler(name, candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_offered_the_closest_first() {
        let known = ["nightly-report", "nightly-backup", "mail", "nightly-report"];
        assert_eq!(did_you_mean("mial", known), "; did you mean mail?");
        assert_eq!(did_you_mean("nightly-reprot", known), "; did you mean nightly-report?");
        assert_eq!(did_you_mean("nightly", known), "; did you mean nightly-backup or nightly-report?");
        assert_eq!(did_you_mean("colour", known), "");
        for other in ["nope", "nonesuch", "note-taking"] {
            assert_eq!(did_you_mean(other, ["notes", "noop"]), "", "{other}");
        }
        assert_eq!(did_you_mean("nots", ["notes", "noop"]), "; did you mean notes?");
    }
}
