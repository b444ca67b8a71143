//! Parses command-line values, with errors that say what is expected.

use punctual_client::{Growth, Span, time_fix};
use punctual_core::limits;
use punctual_core::names::path_name_problem;
use punctual_core::time::Timestamp;
use serde::Deserialize;
use serde::de::value::{Error as ValueError, F64Deserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde_json::value::RawValue;
use std::time::Duration;

/// Maximum concurrent handlers of one worker.
pub const SLOTS_MAX: usize = 10_000;

pub fn slots(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(slots @ 1..=SLOTS_MAX) => Ok(slots),
        _ => Err(format!("must be a number from 1 to {SLOTS_MAX}")),
    }
}

/// How many items of a list to show.
pub fn limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(limit @ 1..) => Ok(limit),
        _ => Err("must be a number from 1".to_owned()),
    }
}

/// How many of the last lines to show.
pub fn tail(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(lines @ 0..=limits::PAGE_ITEMS_MAX) => Ok(lines),
        _ => Err(format!("must be a number from 0 to {}", limits::PAGE_ITEMS_MAX)),
    }
}

/// The name of a queue.
pub fn queue(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("must be the name of a queue".to_owned()) } else { path_name(text) }
}

/// A name that becomes part of a URL. Names from before a rule on characters stay usable.
pub fn path_name(text: &str) -> Result<String, String> {
    let problem = path_name_problem(text).filter(|_| matches!(text, "." | ".."));
    problem.map_or_else(|| Ok(text.to_owned()), Err)
}

pub fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| time_fix(text))
}

/// A host or address, and a port. The host is resolved only when it is used.
pub fn address(text: &str) -> Result<String, String> {
    let is_host = |host: &str| match host.strip_prefix('[') {
        Some(rest) => rest.ends_with(']'),
        None => !host.is_empty() && !host.contains([':', '/']),
    };
    match text.rsplit_once(':') {
        Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        None if text.parse::<u16>().is_ok() => {
            Err(format!("must name the address as well as the port, such as 127.0.0.1:{text}"))
        }
        _ => Err("must be an address with a port, such as 127.0.0.1:7070 or [::1]:7070".to_owned()),
    }
}

pub fn json(text: &str) -> Result<Box<RawValue>, String> {
    serde_json::from_str(text).map_err(|error| {
        format!(
            "not JSON ({error}); put it in single quotes for the shell, such as '{{\"ms\": 100}}' or '\"a text\"'"
        )
    })
}

/// JSON text, or `@` and a file or standard input: no JSON begins with `@`.
pub fn payload(text: &str) -> Result<Box<RawValue>, String> {
    let Some(file) = text.strip_prefix('@') else { return json(text) };
    let read = match file {
        "-" => std::io::read_to_string(std::io::stdin()),
        file => std::fs::read_to_string(file),
    };
    let read = read.map_err(|error| format!("cannot read {file}: {error}"))?;
    serde_json::from_str(&read).map_err(|error| format!("{file} is not valid JSON ({error})"))
}

/// A duration; for a number without a unit, the error suggests seconds.
pub fn span(text: &str) -> Result<Span, String> {
    text.parse::<Span>().map_err(|error| match text.parse::<f64>() {
        Ok(number) if number >= 0.0 => format!("must have a unit, such as {text}s"),
        _ => error.to_string(),
    })
}

/// A word that is upper case in JSON, in any case.
pub fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    choice(text.to_ascii_uppercase())
}

/// A word that is lower case in JSON, in any case.
pub fn small_word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    choice(text.to_ascii_lowercase())
}

/// One of the words that serde knows for this type. Its error lists them in backticks, after the unknown one.
fn choice<T: DeserializeOwned>(word: String) -> Result<T, String> {
    serde_json::from_value(word.into()).map_err(|error| {
        let message = error.to_string();
        let expected = message.split_once(", expected ").map_or(message.as_str(), |(_, expected)| expected);
        let words: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        match words.split_last() {
            Some((last, others)) if !others.is_empty() => format!("must be {} or {last}", others.join(", ")),
            Some((only, _)) => format!("must be {only}"),
            None => message,
        }
    })
}

pub fn growth(text: &str) -> Result<Growth, String> {
    let factor: f64 = text.parse().map_err(|_| "must be a factor such as 1.5".to_owned())?;
    let factor: F64Deserializer<ValueError> = factor.into_deserializer();
    Growth::deserialize(factor).map_err(|error| error.to_string())
}

/// A request key that is valid in a header.
pub fn request_key(text: &str) -> Result<String, String> {
    let max = limits::REQUEST_KEY_BYTES_MAX;
    let is_key = !text.is_empty()
        && text.len() <= max
        && text.trim() == text
        && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if is_key {
        return Ok(text.to_owned());
    }
    Err(format!("must have 1 to {max} characters: printable ASCII, no spaces around it"))
}

/// A retention time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionTime {
    For(Duration),
    Forever,
}

pub fn kept(text: &str) -> Result<RetentionTime, String> {
    if text.eq_ignore_ascii_case("forever") {
        return Ok(RetentionTime::Forever);
    }
    match text.parse::<Span>() {
        Ok(span) if span.get() > Duration::ZERO => Ok(RetentionTime::For(span.get())),
        _ => Err("must be a duration such as 30d or 12h, or forever".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_a_host_and_a_port() {
        for good in ["127.0.0.1:7070", "localhost:0", "[::1]:80", "[::]:65535"] {
            assert_eq!(address(good), Ok(good.to_owned()));
        }
        for bad in ["localhost", "", ":80", "::1", "a:65536", "http://localhost:80", "a:b:80"] {
            assert!(address(bad).is_err(), "{bad}");
        }
        let said = address("7173").unwrap_err();
        assert!(said.ends_with("such as 127.0.0.1:7173"), "{said}");
    }

    #[test]
    fn a_payload_can_come_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let named = format!("@{}", file.path().display());
        assert!(payload(&named).unwrap_err().contains("is not valid JSON"));
        std::fs::write(file.path(), "{\"ms\": 1.0e3}\n").unwrap();
        assert_eq!(payload(&named).unwrap().get(), "{\"ms\": 1.0e3}");
        assert!(payload("@/nonexistent/x").unwrap_err().starts_with("cannot read /nonexistent/x"));
        assert_eq!(payload("\"@\"").unwrap().get(), "\"@\"");
    }

    #[test]
    fn a_number_without_a_unit_is_told_as_such() {
        assert_eq!(span("10"), Err("must have a unit, such as 10s".to_owned()));
        assert_eq!(span("1.5"), Err("must have a unit, such as 1.5s".to_owned()));
        assert!(span("10s").is_ok());
        assert_eq!(span("soon"), "soon".parse::<Span>().map_err(|error| error.to_string()));
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_known_ones() {
        use punctual_client::RetryStrategy;
        use punctual_core::recurrence::DstGap;
        assert_eq!(word::<DstGap>("run_after"), Ok(DstGap::RunAfter));
        assert_eq!(word::<DstGap>("foo"), Err("must be SKIP or RUN_AFTER".to_owned()));
        assert_eq!(
            small_word::<RetryStrategy>("foo"),
            Err("must be exponential, fixed or ladder".to_owned())
        );
    }

    #[test]
    fn counts_begin_at_one() {
        assert_eq!((slots("1"), limit("1")), (Ok(1), Ok(1)));
        assert!(slots("0").is_err() && limit("0").is_err() && limit("-1").is_err());
    }

    #[test]
    fn what_is_kept_is_kept_for_a_time_or_for_good() {
        assert_eq!(kept("30d"), Ok(RetentionTime::For(Duration::from_secs(30 * 24 * 3_600))));
        assert_eq!(kept("Forever"), Ok(RetentionTime::Forever));
        for bad in ["", "0s", "30", "never", "-1d"] {
            assert!(kept(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn factors_and_keys_say_what_would_be_right() {
        assert_eq!(growth("1.5"), Ok(Growth { percent: 150 }));
        assert_eq!(growth("fast"), Err("must be a factor such as 1.5".to_owned()));
        assert_eq!(growth("1.234"), Err("must have at most two decimals, such as 1.25".to_owned()));
        assert!(request_key("order-17").is_ok());
        for bad in ["", " a", "ü", "a\n"] {
            assert!(request_key(bad).is_err(), "{bad:?}");
        }
    }
}
