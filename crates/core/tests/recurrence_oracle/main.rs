//! Compares recurrences with an oracle that scans local time minute by minute, or second by second, around
//! clock changes in zones that cover every kind of change.

mod naive;
mod scan;

use jiff::ToSpan;
use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use naive::{Item, NaiveCron};
use proptest::prelude::*;
use proptest::sample::select;
use punctual_core::recurrence::{DstGap, DstOverlap, Recurrence, RecurrenceSpec, Rule};
use punctual_core::time::Timestamp;
use scan::{Matches, Scan};
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

const ZONES: [&str; 11] = [
    "America/New_York",
    "Europe/London",
    "Europe/Lisbon",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Africa/Casablanca",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Antarctica/Troll",
    "Antarctica/Casey",
    // Its last changes before the current rule do not follow that rule.
    "America/Ciudad_Juarez",
];

const GAPS: [Option<DstGap>; 3] = [None, Some(DstGap::Skip), Some(DstGap::RunAfter)];
const OVERLAPS: [Option<DstOverlap>; 4] =
    [None, Some(DstOverlap::First), Some(DstOverlap::Second), Some(DstOverlap::Both)];

fn zone(name: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(name).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn second(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().unwrap().as_second()
}

/// The clock changes of a zone from 1980 to 2037, with the seconds by which clocks moved.
fn changes(name: &str) -> Vec<(i64, i64)> {
    let zone = zone(name);
    let start = jiff::Timestamp::from_second(second("1980-01-01T00:00:00Z")).unwrap();
    let mut offset = zone.to_offset(start).seconds();
    let mut changes = vec![];
    for change in zone.following(start).take_while(|change| change.timestamp().as_second() < 2_130_000_000) {
        if change.offset().seconds() != offset {
            changes.push((change.timestamp().as_second(), i64::from(change.offset().seconds() - offset)));
        }
        offset = change.offset().seconds();
    }
    changes
}

/// A zone and one of its changes.
fn change() -> impl Strategy<Value = (&'static str, i64, i64)> {
    (select(&ZONES[..]), any::<prop::sample::Index>()).prop_map(|(name, index)| {
        let changes = changes(name);
        let (at, moved) = changes[index.index(changes.len())];
        (name, at, moved)
    })
}

fn items(min: i16, max: i16) -> impl Strategy<Value = Vec<Item>> {
    let value = min..=max;
    let step = 1..=(max - min);
    prop_oneof![
        3 => Just(vec![Item::Star]),
        2 => step.clone().prop_map(|step| vec![Item::StarStep(step)]),
        4 => prop::collection::vec(value.clone().prop_map(Item::Value), 1..4),
        2 => (value.clone(), value.clone()).prop_map(|(from, to)| vec![Item::Range(from, to)]),
        2 => (value.clone(), value.clone(), step, value).prop_map(|(from, to, step, more)| {
            vec![Item::RangeStep(from, to, step), Item::Value(more)]
        }),
    ]
}

/// Hours in which clocks change are more frequent than others.
fn hours() -> impl Strategy<Value = Vec<Item>> {
    prop_oneof![
        items(0, 23),
        prop::collection::vec(select(vec![0, 1, 2, 3, 23]).prop_map(Item::Value), 1..3),
        Just(vec![Item::Star]),
    ]
}

fn days_of_month() -> impl Strategy<Value = Vec<Item>> {
    let special = prop_oneof![
        Just(Item::LastDay),
        (1..=30i8).prop_map(Item::BeforeLast),
        (1..=31i8).prop_map(Item::NearestWeekday),
        Just(Item::LastWeekday),
    ];
    prop_oneof![4 => Just(vec![Item::Star]), 2 => items(1, 31), 2 => prop::collection::vec(special, 1..4)]
}

fn days_of_week() -> impl Strategy<Value = Vec<Item>> {
    let special = prop_oneof![
        (0..=6i8, 1..=5i8).prop_map(|(weekday, nth)| Item::NthWeekday(weekday, nth)),
        (0..=6i8).prop_map(Item::LastOfWeekday),
    ];
    prop_oneof![4 => Just(vec![Item::Star]), 2 => items(0, 6), 2 => prop::collection::vec(special, 1..4)]
}

fn months() -> impl Strategy<Value = Vec<Item>> {
    prop_oneof![3 => Just(vec![Item::Star]), 1 => items(1, 12)]
}

fn five_fields() -> impl Strategy<Value = NaiveCron> {
    (items(0, 59), hours(), days_of_month(), months(), days_of_week()).prop_map(
        |(minute, hour, day_of_month, month, day_of_week)| NaiveCron {
            second: None,
            minute,
            hour,
            day_of_month,
            month,
            day_of_week,
            year: None,
        },
    )
}

fn seven_fields() -> impl Strategy<Value = NaiveCron> {
    let years = prop_oneof![Just(vec![Item::Star]), Just(vec![Item::StarStep(2)])];
    (items(0, 59), five_fields(), prop::option::of(years)).prop_map(|(second, cron, year)| NaiveCron {
        second: Some(second),
        year,
        ..cron
    })
}

/// The recurrence; `None` for a pattern that matches no day.
fn recurrence(
    rule: Rule,
    name: &str,
    gap: Option<DstGap>,
    overlap: Option<DstOverlap>,
) -> Option<Recurrence> {
    let spec =
        RecurrenceSpec { dst_gap: gap, dst_overlap: overlap, ..RecurrenceSpec::new(rule).in_zone(name) };
    match Recurrence::new(spec) {
        Ok(recurrence) => Some(recurrence),
        Err(error) => {
            assert!(error.to_string().contains("never comes"), "{error}");
            None
        }
    }
}

/// Checks that every answer of the recurrence about a range of seconds agrees with the expected fires.
fn check(recurrence: &Recurrence, range: Range<i64>, expected: &BTreeSet<i64>) {
    let expected: Vec<i64> = expected.range(range.clone()).copied().collect();
    let (after, until) = (at(range.start).shifted(-1), at(range.end).shifted(-1));
    let mut found = vec![];
    let mut next = recurrence.next_time_after(after);
    while let Some(fire) = next.filter(|fire| *fire <= until) {
        found.push(fire.as_micros() / 1_000_000);
        next = recurrence.next_time_after(fire);
    }
    let context = || serde_json::to_string(recurrence).unwrap();
    assert_eq!(found, expected, "{}", context());
    assert_eq!(recurrence.count_between(after, until), expected.len() as u64, "count of {}", context());
    for (index, fire) in expected.iter().enumerate().step_by(expected.len() / 7 + 1) {
        let fire = at(*fire);
        assert_eq!(recurrence.nth_time_after(after, index as u64), Some(fire), "nth of {}", context());
        assert_eq!(recurrence.last_time_at_or_before(fire), Some(fire), "last of {}", context());
        assert_eq!(
            recurrence.count_between(after, fire),
            index as u64 + 1,
            "count to {fire} of {}",
            context()
        );
        if index > 0 {
            let before = recurrence.last_time_at_or_before(fire.shifted(-1));
            assert_eq!(before, Some(at(expected[index - 1])), "last before {fire} of {}", context());
        }
    }
    let last = recurrence.last_time_at_or_before(until).filter(|fire| *fire > after);
    assert_eq!(last, expected.last().map(|fire| at(*fire)), "last of {}", context());
}

/// The default choice for a cron pattern.
fn chosen(cron: &NaiveCron, gap: Option<DstGap>, overlap: Option<DstOverlap>) -> (DstGap, DstOverlap) {
    let all_hours = (0..24)
        .all(|hour| cron.clone().with_only_hours().matches(DateTime::constant(2026, 1, 1, hour, 0, 0, 0)));
    let starred = cron.hour.iter().any(|item| matches!(item, Item::Star | Item::StarStep(_)));
    if starred || all_hours || (repeats(&cron.minute, 60) && repeats(&cron.hour, 24)) {
        (gap.unwrap_or(DstGap::Skip), overlap.unwrap_or(DstOverlap::Both))
    } else {
        (gap.unwrap_or(DstGap::RunAfter), overlap.unwrap_or(DstOverlap::First))
    }
}

/// Whether the field is more than a list of single values.
fn repeats(items: &[Item], size: i16) -> bool {
    items.iter().any(|item| match *item {
        Item::Star | Item::StarStep(_) => true,
        Item::Range(from, to) => from != to,
        Item::RangeStep(from, to, step) => (to - from).rem_euclid(size) >= step,
        _ => false,
    })
}

impl NaiveCron {
    fn with_only_hours(self) -> Self {
        let star = || vec![Item::Star];
        NaiveCron {
            second: None,
            minute: star(),
            hour: self.hour,
            day_of_month: star(),
            month: star(),
            day_of_week: star(),
            year: None,
        }
    }
}

fn check_cron(cron: &NaiveCron, name: &str, range: Range<i64>, matches: &Matches, choices: &[Choice]) {
    for (gap, overlap) in choices {
        let rule = Rule::Cron { pattern: cron.text(), seed: 0 };
        if let Some(recurrence) = recurrence(rule, name, *gap, *overlap) {
            let (gap, overlap) = chosen(cron, *gap, *overlap);
            assert_eq!((recurrence.dst_gap(), recurrence.dst_overlap()), (gap, overlap), "{}", cron.text());
            check(&recurrence, range.clone(), &matches.fires(gap, overlap));
        }
    }
}

type Choice = (Option<DstGap>, Option<DstOverlap>);

fn all_choices() -> Vec<Choice> {
    GAPS.iter().flat_map(|gap| OVERLAPS.iter().map(|overlap| (*gap, *overlap))).collect()
}

/// Cases that once failed are tests with names; a file of seeds would say less.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn around_changes_every_choice_fires_as_the_minute_scan_says(
        (name, change, moved) in change(),
        cron in five_fields(),
    ) {
        // Far enough that the scan contains both a reading and its repetition.
        let margin = moved.abs() + HOUR;
        let scan = Scan::new(&zone(name), change - 2 * margin, change + 2 * margin, 60);
        let matches = scan.matches(|reading| cron.matches(reading));
        check_cron(&cron, name, change - margin..change + margin, &matches, &all_choices());
    }
}

proptest! {
    #![proptest_config(cases(80))]

    #[test]
    fn around_changes_every_choice_fires_as_the_second_scan_says(
        (name, change, moved) in change(),
        cron in seven_fields(),
        choices in prop::sample::subsequence(all_choices(), 2),
    ) {
        let margin = moved.abs().min(3 * HOUR) + 600;
        let scan = Scan::new(&zone(name), change - 2 * margin, change + 2 * margin, 1);
        let matches = scan.matches(|reading| cron.matches(reading));
        check_cron(&cron, name, change - margin..change + margin, &matches, &choices);
    }

    #[test]
    fn over_weeks_every_choice_fires_as_the_minute_scan_says(
        (name, change, _) in change(),
        shift_days in -40..40i64,
        cron in five_fields(),
        choices in prop::sample::subsequence(all_choices(), 2),
    ) {
        let cron = NaiveCron { minute: vec![Item::Value(0), Item::Value(30)], ..cron };
        let (from, to) = (change + (shift_days - 20) * DAY, change + (shift_days + 20) * DAY);
        let scan = Scan::new(&zone(name), from - 2 * DAY, to + 2 * DAY, 60);
        let matches = scan.matches(|reading| cron.matches(reading));
        check_cron(&cron, name, from..to, &matches, &choices);
    }
}

/// The readings of a calendar interval after its anchor, each counted from the anchor.
fn calendar_readings(anchor: DateTime, months: i64, days: i64, count: i64) -> HashSet<DateTime> {
    let reading = |number: i64| {
        let date = if months > 0 {
            let month = i64::from(anchor.month()) - 1 + number * months;
            let first = jiff::civil::date(anchor.year() + (month / 12) as i16, (month % 12) as i8 + 1, 1);
            first.with().day(anchor.day().min(first.days_in_month())).build().unwrap()
        } else {
            anchor.date().checked_add((number * days).days()).unwrap()
        };
        date.to_datetime(anchor.time())
    };
    (1..=count).map(reading).collect()
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn calendar_intervals_fire_as_the_minute_scan_says(
        (name, change, moved) in change(),
        steps in 0..30i64,
        (months, days) in prop_oneof![Just((0, 1)), Just((0, 7)), Just((0, 3)), Just((1, 0)), Just((5, 0)), Just((12, 0))],
        offset_minutes in -150..150i64,
    ) {
        // The anchor places some step near the change, where it matters. It is computed with the offset
        // before the change, so that it may be a reading that the change skips.
        let zone = zone(name);
        let before = zone.to_datetime(jiff::Timestamp::from_second(change - 60).unwrap());
        let near = before.checked_add(offset_minutes.minutes()).unwrap();
        let local = near.checked_sub((steps * months).months().days(steps * days)).unwrap();
        let anchor = zone.to_timestamp(local).unwrap().as_second().div_euclid(60) * 60;
        let local = zone.to_datetime(jiff::Timestamp::from_second(anchor).unwrap());
        let readings = calendar_readings(local, months, days, steps + 40);
        let margin = moved.abs() + 3 * HOUR;
        let range = change - margin..change + margin;
        let scan = Scan::new(&zone, range.start - margin, range.end + margin, 60);
        let matches = scan.matches(|reading| readings.contains(&reading));
        let every = if months > 0 { format!("P{months}M") } else { format!("P{days}D") };
        for (gap, overlap) in all_choices() {
            let rule = Rule::Interval { every: every.clone(), anchor: at(anchor) };
            let recurrence = recurrence(rule, name, gap, overlap).unwrap();
            let choice = (gap.unwrap_or(DstGap::RunAfter), overlap.unwrap_or(DstOverlap::First));
            let mut expected = matches.fires(choice.0, choice.1);
            expected.insert(anchor);
            check(&recurrence, range.clone(), &expected);
        }
    }
}

#[test]
fn the_day_that_apia_skipped_fires_as_the_scan_says() {
    let change = second("2011-12-30T10:00:00Z");
    let scan = Scan::new(&zone("Pacific/Apia"), change - 4 * DAY, change + 4 * DAY, 60);
    let value = |value| vec![Item::Value(value)];
    let star = || vec![Item::Star];
    for (minute, hour, day_of_month) in [
        (value(0), value(9), star()),
        (value(0), value(9), value(30)),
        (value(0), value(0), value(31)),
        (vec![Item::StarStep(15)], star(), star()),
        (star(), star(), value(30)),
    ] {
        let cron = NaiveCron {
            second: None,
            minute,
            hour,
            day_of_month,
            month: star(),
            day_of_week: star(),
            year: None,
        };
        let matches = scan.matches(|reading| cron.matches(reading));
        check_cron(&cron, "Pacific/Apia", change - 2 * DAY..change + 2 * DAY, &matches, &all_choices());
    }
}

#[test]
fn every_zone_under_test_has_changes_to_be_tested_with() {
    for name in ZONES {
        assert!(!changes(name).is_empty(), "{name}");
    }
    let moved: BTreeSet<i64> = ZONES.iter().flat_map(|name| changes(name)).map(|(_, moved)| moved).collect();
    for wanted in [900, 1_800, -1_800, HOUR, -HOUR, 2 * HOUR, -2 * HOUR, 3 * HOUR, -3 * HOUR, DAY] {
        assert!(moved.contains(&wanted), "no zone moves by {wanted}: {moved:?}");
    }
}
