//! Points in time. Wall-clock time is i64 microseconds since the Unix epoch, UTC, everywhere. Monotonic time
//! is a separate type, so that no lease is ever measured by a clock that can be set.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A point in wall-clock time, in microseconds since the Unix epoch, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const EPOCH: Timestamp = Timestamp(0);
    /// The earliest time accepted from users and stores, 0000-01-01T00:00:00Z: RFC 3339 has no earlier years.
    pub const MIN: Timestamp = Timestamp(-62_167_219_200_000_000);
    /// The latest time accepted from users and stores, 9999-12-30T00:00:00Z: later ones cannot be printed in
    /// every zone.
    pub const MAX: Timestamp = Timestamp(253_402_128_000_000_000);

    pub const fn from_micros(micros: i64) -> Self {
        Timestamp(micros)
    }

    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time of a stored number of microseconds; `None` outside the calendar.
    pub fn stored(micros: i64) -> Option<Self> {
        Some(Timestamp(micros)).filter(|time| (Timestamp::MIN..=Timestamp::MAX).contains(time))
    }

    /// The number of microseconds to store, which [`Timestamp::stored`] reads. A computed time, such as an
    /// expiry, may be outside the calendar: then it is the calendar's closest end.
    pub fn to_stored(self) -> i64 {
        self.clamp(Timestamp::MIN, Timestamp::MAX).0
    }

    /// This time plus a signed number of microseconds, saturating at the limits of the type.
    pub const fn shifted(self, micros: i64) -> Self {
        Timestamp(self.0.saturating_add(micros))
    }

    pub fn plus(self, duration: Duration) -> Self {
        self.shifted(duration_micros(duration))
    }

    pub fn minus(self, duration: Duration) -> Self {
        Timestamp(self.0.saturating_sub(duration_micros(duration)))
    }

    /// The duration from `earlier` to this time; zero if this time is not later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// The duration in whole microseconds, saturating.
pub fn duration_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => write!(f, "{time}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

/// The text is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an RFC 3339 time such as 2026-11-15T08:30:00Z: {text}")]
pub struct ParseTimestampError {
    text: String,
    pub problem: TimestampProblem,
}

/// Why a text is rejected as a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampProblem {
    Malformed,
    /// Second 60. Unix time does not have it, and leap seconds are not known in advance.
    LeapSecond,
    /// An offset of a day or more from UTC.
    OffsetTooLarge,
    /// Its offset moves it before the year 0.
    TooEarly,
}

impl FromStr for Timestamp {
    type Err = ParseTimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |problem| ParseTimestampError { text: text.to_owned(), problem };
        // The library also accepts other forms of ISO 8601 and ignores the name of a time zone, accepts second
        // 60 on every day, as second 59, and offsets of up to 25 hours.
        let Some((clock, offset)) = clock_and_offset(text) else {
            return Err(refused(TimestampProblem::Malformed));
        };
        let time: jiff::Timestamp = text.parse().map_err(|_| refused(TimestampProblem::Malformed))?;
        if clock.ends_with(":60") {
            return Err(refused(TimestampProblem::LeapSecond));
        }
        if offset.get(1..3).and_then(|hours| hours.parse().ok()).is_some_and(|hours: u32| hours >= 24) {
            return Err(refused(TimestampProblem::OffsetTooLarge));
        }
        let time = Timestamp(time.as_microsecond());
        if time < Timestamp::MIN {
            return Err(refused(TimestampProblem::TooEarly));
        }
        Ok(time)
    }
}

/// The time of day without fraction, and the offset, of a text in the form of RFC 3339.
fn clock_and_offset(text: &str) -> Option<(&str, &str)> {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let (moment, rest) = text.split_at_checked(FORM.len())?;
    let has_form = moment.bytes().zip(FORM).all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        _ => byte == *form,
    });
    let offset = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|character: char| character.is_ascii_digit()),
        None => rest,
    };
    let is_offset = match offset.as_bytes() {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', digits @ ..] => {
            digits.len() == 5
                && digits.iter().enumerate().all(|(place, byte)| match place {
                    2 => *byte == b':',
                    _ => byte.is_ascii_digit(),
                })
        }
        _ => false,
    };
    (has_form && is_offset).then(|| (&moment[11..], offset))
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A reading of a node's monotonic clock, in microseconds since an arbitrary start. Only readings of the same
/// node can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Monotonic(u64);

impl Monotonic {
    pub const fn from_micros(micros: u64) -> Self {
        Monotonic(micros)
    }

    pub const fn as_micros(self) -> u64 {
        self.0
    }

    pub fn since(self, earlier: Monotonic) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    pub fn plus(self, duration: Duration) -> Self {
        Monotonic(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_read_back_what_they_print() {
        let time = Timestamp::from_micros(1_763_195_400_123_456);
        assert_eq!(time.to_string(), "2025-11-15T08:30:00.123456Z");
        assert_eq!(time.to_string().parse(), Ok(time));
    }

    #[test]
    fn the_last_accepted_moment_can_be_printed() {
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-30T00:00:00Z");
    }

    #[test]
    fn the_first_accepted_moment_can_be_read_back() {
        assert_eq!(Timestamp::MIN.to_string(), "0000-01-01T00:00:00Z");
        assert_eq!("0000-01-01T00:00:00Z".parse(), Ok(Timestamp::MIN));
        let [first, last] = [Timestamp::MIN, Timestamp::MAX].map(Timestamp::as_micros);
        for (micros, end) in [(i64::MIN, first), (first - 1, first), (last + 1, last), (i64::MAX, last)] {
            assert_eq!(Timestamp::stored(micros), None);
            assert_eq!(Timestamp(micros).to_stored(), end);
        }
        for micros in [first, 0, last] {
            assert_eq!(Timestamp::stored(micros).map(Timestamp::to_stored), Some(micros));
        }
        let before: Result<Timestamp, _> = "0000-01-01T00:00:00+00:01".parse();
        assert_eq!(before.unwrap_err().problem, TimestampProblem::TooEarly);
    }

    #[test]
    fn an_offset_is_folded_into_utc() {
        let parsed: Timestamp = "2025-11-15T09:30:00+01:00".parse().unwrap();
        assert_eq!(parsed.to_string(), "2025-11-15T08:30:00Z");
        assert!("tomorrow".parse::<Timestamp>().is_err());
    }

    #[test]
    fn leap_seconds_and_offsets_of_a_day_are_refused() {
        use TimestampProblem::{LeapSecond, Malformed, OffsetTooLarge};
        let problem = |text: &str| text.parse::<Timestamp>().err().map(|error| error.problem);
        for text in [
            "2016-12-31T23:59:60Z",
            "2026-11-16T23:59:60Z",
            "2026-11-16T08:30:60.5+01:00",
            "2026-11-16 08:30:60Z",
            "2026-11-16t08:30:60z",
        ] {
            assert_eq!(problem(text), Some(LeapSecond), "{text}");
        }
        for text in ["2026-11-16T08:30:00+25:00", "2026-11-16T08:30:00-24:00", "2026-11-16T08:30:00+24:59"] {
            assert_eq!(problem(text), Some(OffsetTooLarge), "{text}");
        }
        for text in [
            "2026-11-16T08:30:61Z",
            "2026-11-16T08:30:00+26:00",
            "2026-11-16T08:30:00+01:60",
            "2026-11-16T08:30:00+01:00:30",
            "2026-11-16T08:30:00+0100",
            "2026-11-16T08:30:00+01",
            "20261116T083000Z",
            "2026-11-16T08:30Z",
            "2026-11-16T08:30:00,5Z",
            "2026-11-16T08:30:00.Z",
            "2026-11-16T08:30:00+01:00[Asia/Tokyo]",
            "2026-11-16T08:30:00Z[No/Where]",
            "+002026-11-16T08:30:00Z",
            "2026-11-16T08:30:00",
            "\u{661}026-11-16T08:30:00Z",
        ] {
            assert_eq!(problem(text), Some(Malformed), "{text}");
        }
        for text in [
            "2026-11-16T08:30:59.999999Z",
            "2026-11-16T08:30:00+23:59",
            "2026-11-16T08:30:00-23:59",
            "2026-11-16T08:30:00.606060Z",
            "2026-11-16 08:30:00+01:00",
        ] {
            assert_eq!(problem(text), None, "{text}");
        }
    }
}
