//! Cross-check with the croner library: where both define a pattern alike, they match the same days and
//! times.

use jiff::Timestamp as Instant;
use jiff::tz::Offset;
use proptest::prelude::*;
use punctual_core::recurrence::{Recurrence, RecurrenceSpec};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

const HOUR: i64 = 3_600;

/// Fields that both interpret alike: croner rejects ranges that wrap and treats `*/n` of a day field as
/// restricted.
fn field(min: u32, max: u32) -> impl Strategy<Value = String> {
    let value = min..=max;
    prop_oneof![
        3 => Just("*".to_owned()),
        2 => value.clone().prop_map(|value| value.to_string()),
        2 => (value.clone(), value.clone()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (value.clone(), value, 1..=3u32).prop_map(|(a, b, n)| format!("{}-{}/{n}", a.min(b), a.max(b))),
    ]
}

fn day_of_month() -> impl Strategy<Value = String> {
    prop_oneof![2 => field(1, 31), 1 => Just("L".to_owned()), 1 => Just("LW".to_owned()), 1 => (1..=28u32).prop_map(|day| format!("{day}W"))]
}

fn day_of_week() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => field(0, 6),
        1 => (0..=6u32, 1..=5u32).prop_map(|(day, nth)| format!("{day}#{nth}")),
        1 => (0..=6u32).prop_map(|day| format!("{day}#L")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_match_the_same_hours_of_a_year(
        minute in 0..60i64,
        hour in field(0, 23),
        day_of_month in day_of_month(),
        month in field(1, 12),
        day_of_week in day_of_week(),
        year in 2020..2040i64,
    ) {
        let pattern = |day_of_week: &str| format!("{minute} {hour} {day_of_month} {month} {day_of_week}");
        let ours = Recurrence::new(RecurrenceSpec::cron(&pattern(&day_of_week.replace("#L", "L")), 0));
        let theirs: croner::Cron = pattern(&day_of_week).parse().unwrap();
        let theirs = &theirs.pattern;
        let start = format!("{year}-01-01T00:00:00Z").parse::<Instant>().unwrap().as_second() + minute * 60;
        let end = start + 366 * 24 * HOUR;
        let mut fires = BTreeSet::new();
        if let Ok(ours) = ours {
            let after = Timestamp::from_micros(start * 1_000_000 - 1);
            let times = std::iter::successors(ours.next_time_after(after), |at| ours.next_time_after(*at));
            fires.extend(times.map(|at| at.as_micros() / 1_000_000).take_while(|second| *second < end));
        }
        for second in (start..end).step_by(HOUR as usize) {
            let local = Offset::UTC.to_datetime(Instant::from_second(second).unwrap());
            let (day, month) = (local.day() as u32, local.month() as u32);
            let weekday = croner::Weekday::from_days_from_sunday(local.weekday().to_sunday_zero_offset() as u32);
            let expected = theirs.hour_match(local.hour() as u32).unwrap()
                && theirs.month_match(month).unwrap()
                && theirs.day_match(local.year().into(), month, day, weekday).unwrap();
            prop_assert_eq!(fires.remove(&second), expected, "{} at {}", pattern(&day_of_week), local);
        }
        prop_assert!(fires.is_empty(), "{} also fires at {:?}", pattern(&day_of_week), fires);
    }
}
