//! Reading values of the command line, with errors that say what would be right.

use punctual_client::time_fix;
use punctual_core::time::Timestamp;
use serde_json::value::RawValue;

/// Handlers that one worker may run at once.
const SLOTS_MAX: usize = 10_000;

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

pub fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| time_fix(text))
}

/// A host, or address, and a port. Whether the host exists is found out when it is used.
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
    fn counts_begin_at_one() {
        assert_eq!((slots("1"), limit("1")), (Ok(1), Ok(1)));
        assert!(slots("0").is_err() && limit("0").is_err() && limit("-1").is_err());
    }
}
