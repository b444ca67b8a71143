//! Formats numbers for people.

use std::time::Duration;

pub fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

/// A whole number in groups of three digits.
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    let sign = if number <= -0.5 { "-" } else { "" };
    format!("{sign}{}", groups.join(","))
}

pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0.0, 999.4, 1_000.0, 1_234_567.0].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([-0.4, -999.0, -123_456.0].map(grouped), ["0", "-999", "-123,456"]);
    }
}
