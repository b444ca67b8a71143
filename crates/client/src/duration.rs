//! Durations as people write them: `30s`, `5m`, `1h30m`, or ISO 8601 (`PT3H`, `P1D`).

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration with a fixed number of microseconds. A day is 24 hours; months and years have no fixed length
/// and are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(Duration);

/// The text is not a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseSpanError {
    #[error("must be a duration such as 30s, 5m, 1h30m, 1d or PT3H")]
    Malformed,
    #[error("must name each unit once, the longer before the shorter, such as 1h30m")]
    Disordered,
    #[error("must not use months or years, whose length is not fixed: write days, such as 30d or P30D")]
    NoFixedLength,
    #[error("must be shorter than 10,000 years")]
    TooLong,
}

/// Bytes of a duration that is written as text.
pub const SPAN_BYTES_MAX: usize = 100;
const MICROS_MAX: u64 = 10_000 * 366 * 24 * 3_600 * 1_000_000;

/// Units from the longest to the shortest, with their microseconds.
const UNITS: [(&str, u64); 7] = [
    ("w", 7 * 24 * 3_600_000_000),
    ("d", 24 * 3_600_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

impl Span {
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Span(duration)
    }
}

impl FromStr for Span {
    type Err = ParseSpanError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > SPAN_BYTES_MAX {
            return Err(ParseSpanError::Malformed);
        }
        let micros = match text.strip_prefix('P') {
            Some(iso) => parse_iso(iso)?,
            None => parse_short(text)?,
        };
        if micros > MICROS_MAX {
            return Err(ParseSpanError::TooLong);
        }
        Ok(Span(Duration::from_micros(micros)))
    }
}

/// `1h30m`, `250ms`, `1.5s`: numbers, each with a unit.
fn parse_short(text: &str) -> Result<u64, ParseSpanError> {
    parse_parts(text, |unit| {
        UNITS.iter().find(|(name, _)| *name == unit).map(|(_, micros)| *micros).ok_or(
            if matches!(unit, "mo" | "y") {
                ParseSpanError::NoFixedLength
            } else {
                ParseSpanError::Malformed
            },
        )
    })
}

/// What follows the `P` of an ISO 8601 duration.
fn parse_iso(text: &str) -> Result<u64, ParseSpanError> {
    let (date, time) = match text.split_once('T') {
        Some((_, "")) => return Err(ParseSpanError::Malformed),
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut total = 0_u64;
    if !date.is_empty() {
        total = parse_parts(date, |unit| match unit {
            "D" => Ok(24 * 3_600_000_000),
            "W" => Ok(7 * 24 * 3_600_000_000),
            "M" | "Y" => Err(ParseSpanError::NoFixedLength),
            _ => Err(ParseSpanError::Malformed),
        })?;
    } else if time.is_none() {
        return Err(ParseSpanError::Malformed);
    }
    if let Some(time) = time {
        let micros = parse_parts(time, |unit| match unit {
            "H" => Ok(3_600_000_000),
            "M" => Ok(60_000_000),
            "S" => Ok(1_000_000),
            _ => Err(ParseSpanError::Malformed),
        })?;
        total = total.saturating_add(micros);
    }
    Ok(total)
}

/// The sum of parts, each a decimal number followed by the letters of its unit.
fn parse_parts(
    mut text: &str,
    unit_micros: impl Fn(&str) -> Result<u64, ParseSpanError>,
) -> Result<u64, ParseSpanError> {
    let mut total = 0_u64;
    let mut last_unit = u64::MAX;
    if text.is_empty() {
        return Err(ParseSpanError::Malformed);
    }
    while !text.is_empty() {
        let number_end =
            text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(ParseSpanError::Malformed)?;
        let (number, rest) = text.split_at(number_end);
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(unit_end);
        let unit = unit_micros(unit)?;
        if unit >= last_unit {
            return Err(ParseSpanError::Disordered);
        }
        last_unit = unit;
        let micros = part_micros(number, unit)?;
        total = total.checked_add(micros).ok_or(ParseSpanError::TooLong)?;
        text = rest;
    }
    Ok(total)
}

/// Exact for whole numbers; a fraction is rounded down to the microsecond.
fn part_micros(number: &str, unit_micros: u64) -> Result<u64, ParseSpanError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 {
        return Err(ParseSpanError::Malformed);
    }
    let scale = 10_u128.pow(fraction.len() as u32);
    let fraction: u128 = fraction.parse().map_err(|_| ParseSpanError::Malformed)?;
    let whole: u64 = whole.parse().map_err(|_| ParseSpanError::TooLong)?;
    let micros = u128::from(whole) * u128::from(unit_micros) + fraction * u128::from(unit_micros) / scale;
    u64::try_from(micros).map_err(|_| ParseSpanError::TooLong)
}

impl Span {
    /// As ISO 8601 writes it: `PT1M30S`, `P1DT0.5S`.
    pub fn iso8601(&self) -> String {
        const SECOND: u64 = 1_000_000;
        let micros = u64::try_from(self.0.as_micros()).unwrap_or(MICROS_MAX);
        let (days, rest) = (micros / (86_400 * SECOND), micros % (86_400 * SECOND));
        let (hours, rest) = (rest / (3_600 * SECOND), rest % (3_600 * SECOND));
        let (minutes, rest) = (rest / (60 * SECOND), rest % (60 * SECOND));
        let part = |count: u64, unit: &str| if count == 0 { String::new() } else { format!("{count}{unit}") };
        let seconds = match (rest / SECOND, rest % SECOND) {
            (whole, 0) => part(whole, "S"),
            (whole, micros) => format!("{}S", format!("{whole}.{micros:06}").trim_end_matches('0')),
        };
        let time = part(hours, "H") + &part(minutes, "M") + &seconds;
        match (days, time.as_str()) {
            (0, "") => "PT0S".to_owned(),
            (_, "") => format!("P{days}D"),
            _ => format!("P{}T{time}", part(days, "D")),
        }
    }
}

impl fmt::Display for Span {
    /// The shortest exact spelling without weeks: `90s` is printed as `1m30s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_micros()).unwrap_or(MICROS_MAX);
        if rest == 0 {
            return f.write_str("0s");
        }
        for (name, micros) in &UNITS[1..] {
            if rest >= *micros {
                write!(f, "{}{name}", rest / micros)?;
                rest %= micros;
            }
        }
        Ok(())
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A duration as a number of seconds, with millisecond precision: `90`, `0.5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Seconds {
    millis: u64,
}

impl Seconds {
    pub const fn from_millis(millis: u64) -> Self {
        Seconds { millis }
    }

    pub const fn as_millis(self) -> u64 {
        self.millis
    }
}

impl From<Duration> for Seconds {
    fn from(duration: Duration) -> Self {
        Seconds { millis: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX) }
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.millis % 1_000 {
            0 => serializer.serialize_u64(self.millis / 1_000),
            _ => serializer.serialize_f64(self.millis as f64 / 1_000.0),
        }
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        // Above this, a float of milliseconds is no longer exact, and no timeout is that long.
        if !(0.0..=1e12).contains(&seconds) {
            return Err(de::Error::custom("must be a number of seconds, such as 30, and not negative"));
        }
        Ok(Seconds { millis: (seconds * 1_000.0).round() as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> Result<u64, ParseSpanError> {
        text.parse::<Span>().map(|span| span.get().as_micros() as u64)
    }

    #[test]
    fn iso_8601_says_the_same() {
        for (text, expected) in [
            ("90s", "PT1M30S"),
            ("3h", "PT3H"),
            ("2w", "P14D"),
            ("1d12h", "P1DT12H"),
            ("500ms", "PT0.5S"),
            ("0s", "PT0S"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.iso8601(), expected, "{text}");
            assert_eq!(expected.parse::<Span>().unwrap(), span, "{text}");
        }
    }

    #[test]
    fn short_and_iso_spellings_mean_the_same() {
        for (short, iso, seconds) in [
            ("30s", "PT30S", 30.0),
            ("5m", "PT5M", 300.0),
            ("3h", "PT3H", 10_800.0),
            ("1h30m", "PT1H30M", 5_400.0),
            ("1d", "P1D", 86_400.0),
            ("2w", "P2W", 1_209_600.0),
            ("1d12h", "P1DT12H", 129_600.0),
            ("1.5s", "PT1.5S", 1.5),
            ("250ms", "PT0.25S", 0.25),
        ] {
            assert_eq!(micros(short), Ok((seconds * 1e6) as u64), "{short}");
            assert_eq!(micros(iso), Ok((seconds * 1e6) as u64), "{iso}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for text in ["", "5", "s", "5x", "-5s", "5 s", "P", "PT", "P5", "PT5", "1.s", ".5s", "P1DT", "soon"] {
            assert_eq!(micros(text), Err(ParseSpanError::Malformed), "{text:?}");
        }
        for text in ["1h1h", "30m1h", "1s1s", "PT1H1H", "PT1S1M", "P1D1W"] {
            assert_eq!(micros(text), Err(ParseSpanError::Disordered), "{text:?}");
        }
        assert_eq!(micros("P1M"), Err(ParseSpanError::NoFixedLength));
        assert_eq!(micros("2y"), Err(ParseSpanError::NoFixedLength));
        assert_eq!(micros("99999999999999999999d"), Err(ParseSpanError::TooLong));
        assert_eq!(micros("9999999w"), Err(ParseSpanError::TooLong));
    }

    #[test]
    fn spans_read_back_what_they_print() {
        for (micros, text) in [
            (0, "0s"),
            (1, "1us"),
            (90_000_000, "1m30s"),
            (86_400_000_000, "1d"),
            (3_600_000_000, "1h"),
            (250_000, "250ms"),
        ] {
            let span = Span::from(Duration::from_micros(micros));
            assert_eq!(span.to_string(), text);
            assert_eq!(text.parse(), Ok(span));
        }
    }

    #[test]
    fn seconds_may_have_a_fraction() {
        assert_eq!(serde_json::from_str::<Seconds>("0.5").unwrap().as_millis(), 500);
        assert_eq!(serde_json::to_string(&Seconds::from_millis(90_000)).unwrap(), "90");
        assert_eq!(serde_json::to_string(&Seconds::from_millis(500)).unwrap(), "0.5");
        assert!(serde_json::from_str::<Seconds>("-1").is_err());
    }
}
