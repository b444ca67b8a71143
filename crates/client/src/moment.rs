//! Error messages for a malformed time, with the correct form.

use punctual_core::time::{Timestamp, TimestampProblem};

/// The requirement, to follow the name of the value: "must be …".
pub fn time_fix(text: &str) -> String {
    let is_time = |completed: String| completed.parse::<Timestamp>().is_ok();
    match text.parse::<Timestamp>().map_err(|error| error.problem) {
        Err(TimestampProblem::LeapSecond) => {
            return format!(
                "must have a second from 00 to 59, not 60 as in {text:?}: leap seconds are not supported"
            );
        }
        Err(TimestampProblem::OffsetTooLarge) => {
            return format!("must have an offset from -23:59 to +23:59, or Z for UTC, unlike {text:?}");
        }
        Err(TimestampProblem::TooEarly) => return format!("must not be before {}", Timestamp::MIN),
        Err(TimestampProblem::Malformed) | Ok(_) => {}
    }
    if is_time(format!("{text}Z")) {
        return format!("must name its zone: {text}Z for UTC, or an offset as in {text}+01:00");
    }
    if is_time(format!("{text}T00:00:00Z")) {
        return format!("must have a time of day and a zone, such as {text}T00:00:00Z");
    }
    // The year is the last of the calendar; the rest of the text is valid.
    if text.get(..5) == Some("9999-") && is_time(text.replacen("9999", "2000", 1)) {
        return format!("must be before {}, where the calendar ends", Timestamp::MAX);
    }
    format!("must be a time such as 2026-11-15T08:30:00Z, not {text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_from_a_time_is_named() {
        for (text, fix) in [
            (
                "2026-11-16T08:00:00",
                "must name its zone: 2026-11-16T08:00:00Z for UTC, or an offset as in 2026-11-16T08:00:00+01:00",
            ),
            ("2026-11-16", "must have a time of day and a zone, such as 2026-11-16T00:00:00Z"),
            ("0000-01-01T00:00:00+23:59", "must not be before 0000-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59Z", "must be before 9999-12-30T00:00:00Z, where the calendar ends"),
            (
                "2026-11-16T23:59:60Z",
                "must have a second from 00 to 59, not 60 as in \"2026-11-16T23:59:60Z\": leap seconds are not supported",
            ),
            (
                "2026-11-16T08:00:00+25:00",
                "must have an offset from -23:59 to +23:59, or Z for UTC, unlike \"2026-11-16T08:00:00+25:00\"",
            ),
            ("noon", "must be a time such as 2026-11-15T08:30:00Z, not \"noon\""),
        ] {
            assert_eq!(time_fix(text), fix);
        }
    }
}
