//! Rules against a naive enumeration, and how many days searches examine.

use super::periods::DAYS_EXAMINED;
use super::*;
use proptest::prelude::*;

fn civil(text: &str) -> Civil {
    local_time(text).unwrap().0
}

fn pattern(text: &str, start: Civil) -> RulePattern {
    RulePattern::new(RuleParts::parse(text).unwrap(), start, None)
}

/// The value of an operation, and how many days it examines.
fn measured<T>(operation: impl FnOnce() -> T) -> (T, u64) {
    let before = DAYS_EXAMINED.get();
    let value = operation();
    (value, DAYS_EXAMINED.get() - before)
}

fn all_below(count: u32) -> String {
    (0..count).map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

/// A rule that names every second.
fn every_second(head: &str) -> String {
    format!("{head};BYHOUR={};BYMINUTE={};BYSECOND={}", all_below(24), all_below(60), all_below(60))
}

#[test]
fn a_rule_with_every_second_of_a_year_costs_as_much_as_its_days() {
    let start = civil("20260101T000000");
    let rule = pattern(&every_second("FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU"), start);
    let after = civil("20261118T120000");
    let (next, days) = measured(|| rule.nth_in(&(after..LATEST), 1));
    assert_eq!(next, Some(Civil(after.0 + SECOND_US)));
    assert!(days <= 2 * 366, "{days}");
    let (last, days) = measured(|| rule.last_before(after));
    assert_eq!(last, Some(Civil(after.0 - SECOND_US)));
    assert!(days <= 366, "{days}");
    let (count, days) = measured(|| rule.count(&(after..civil("20271118T120000"))));
    assert_eq!(count, 365 * 86_400);
    assert!(days <= 4 * 366, "{days}");

    let last_of_year = pattern(
        &every_second("FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU").replace("YEARLY;", "YEARLY;BYSETPOS=-1;"),
        start,
    );
    let (next, days) = measured(|| last_of_year.nth_in(&(after..LATEST), 0));
    assert_eq!(next, Some(civil("20261231T235959")));
    assert!(days <= 2 * 366, "{days}");
}

#[test]
fn searches_and_counts_end_after_two_cycles_of_the_calendar() {
    let most = 3 * 146_097 + 1_000;
    let start = civil("19900101T000000");
    let never = [
        format!("FREQ=DAILY;BYHOUR={};BYMINUTE={};BYSETPOS=366", all_below(24), all_below(15)),
        "FREQ=DAILY;BYHOUR=1;BYSETPOS=2".to_owned(),
        "FREQ=DAILY;INTERVAL=7;BYDAY=TU".to_owned(),
        "FREQ=WEEKLY;INTERVAL=9999;BYDAY=MO;BYSETPOS=2".to_owned(),
        "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30".to_owned(),
        "FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO;BYMONTH=6".to_owned(),
    ];
    for text in never {
        let rule = pattern(&text, start);
        let (next, days) = measured(|| rule.nth_in(&(start..LATEST), 0));
        assert!(next.is_none() && days <= most, "{text}: {next:?} after {days} days");
        let (last, days) = measured(|| rule.last_before(LATEST));
        assert!(last.is_none() && days <= most, "{text}: {last:?} after {days} days");
        let problem = rule.check_has_readings().unwrap_err().to_string();
        assert!(problem.contains("names no time"), "{problem}");
    }
    for text in
        ["FREQ=DAILY", "FREQ=WEEKLY;BYDAY=MO,FR", "FREQ=MONTHLY;BYMONTHDAY=31", "FREQ=YEARLY;BYYEARDAY=366"]
    {
        let rule = pattern(text, start);
        let (count, days) = measured(|| rule.count(&(start..LATEST)));
        assert!(days <= most, "{text}: counted {count} in {days} days");
        let (last, days) = measured(|| rule.nth_in(&(start..LATEST), count - 1));
        assert!(days <= most, "{text}: found {last:?} in {days} days");
        assert_eq!(last, rule.last_before(LATEST), "{text}");
        assert_eq!(rule.nth_in(&(start..LATEST), count), None, "{text}");
    }
}

#[test]
fn a_rare_day_is_found() {
    // 29 February is a Sunday every 28 years, or every 40 around a year without a leap day.
    let start = civil("20260101T000000");
    let rule = pattern("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=29;BYDAY=SU", start);
    let (next, days) = measured(|| rule.nth_in(&(start..LATEST), 0));
    assert_eq!(next, Some(civil("20320229T000000")));
    assert!(days <= 6 * 60, "months that do not match are skipped: {days}");
    let rarer = pattern("FREQ=DAILY;INTERVAL=11;BYMONTH=2;BYMONTHDAY=29;BYDAY=SU", start);
    let found = rarer.nth_in(&(start..LATEST), 0).unwrap();
    assert_eq!((day_number(found.date()) - day_number(start.date())) % 11, 0);
}

/// All readings before `end`, listed period by period.
fn naive(rule: &RulePattern, end: Civil) -> Vec<Civil> {
    let mut all = Vec::new();
    let mut number = 0;
    loop {
        let first = rule.period_start(number);
        if Civil::new(first, 0) >= end {
            return all;
        }
        let length = match rule.parts.frequency {
            Frequency::Daily => 1,
            Frequency::Weekly => 7,
            Frequency::Monthly => i64::from(first.days_in_month()),
            Frequency::Yearly => i64::from(first.days_in_year()),
        };
        let days =
            (day_number(first)..).take(length as usize).filter(|day| has_day(&rule.parts, date_of(*day)));
        let mut readings = Vec::new();
        for day in days {
            for second in 0..86_400 {
                let in_list = |list: &[i16], bits: u64, value: i64| match list {
                    [] => bits >> value & 1 == 1,
                    list => list.contains(&(value as i16)),
                };
                if in_list(&rule.parts.seconds, rule.times.seconds, second % 60)
                    && in_list(&rule.parts.minutes, rule.times.minutes, second / 60 % 60)
                    && in_list(&rule.parts.hours, rule.times.hours, second / 3_600)
                {
                    readings.push(Civil(day * DAY_US + second * SECOND_US));
                }
            }
        }
        let count = readings.len() as i64;
        let is_selected = |place: i64| {
            let positions = &rule.parts.positions;
            positions.is_empty()
                || positions.iter().any(|position| match i64::from(*position) {
                    position @ 1.. => position - 1 == place,
                    position => count + position == place,
                })
        };
        let selected = (0..count).filter(|place| is_selected(*place)).map(|place| readings[place as usize]);
        all.extend(selected.filter(|reading| *reading >= rule.start && *reading < end));
        number += 1;
    }
}

fn has_day(parts: &RuleParts, date: Date) -> bool {
    let holds = |list: &[i16], number: i16, length: i16| {
        list.is_empty() || list.contains(&number) || list.contains(&(number - length - 1))
    };
    let is_nth = |NthDay { nth, day }: &NthDay| {
        let is_in_year = parts.frequency == Frequency::Yearly && parts.months.is_empty();
        let is_same = |other: &Date| other.weekday() == *day;
        let within =
            |other: &Date| other.year() == date.year() && (is_in_year || other.month() == date.month());
        let number = day_number(date);
        let same: Vec<Date> =
            (number - 366..=number + 366).map(date_of).filter(within).filter(is_same).collect();
        let place = same.iter().position(|other| *other == date);
        place.is_some_and(|place| {
            *nth == 0 || place as i16 + 1 == *nth || place as i16 - same.len() as i16 == *nth
        })
    };
    let week = date.iso_week_date();
    holds(&parts.months, date.month().into(), 12)
        && holds(&parts.month_days, date.day().into(), date.days_in_month().into())
        && (parts.days.is_empty() || parts.days.iter().any(is_nth))
        && holds(&parts.year_days, date.day_of_year(), date.days_in_year())
        && holds(&parts.week_numbers, week.week().into(), week.weeks_in_year().into())
}

fn any_list(part: &'static str, range: std::ops::RangeInclusive<i16>) -> impl Strategy<Value = String> {
    let numbers =
        prop::collection::vec(range.prop_filter("positions start at 1", |number| *number != 0), 1..4);
    prop::option::weighted(0.4, numbers).prop_map(move |numbers| match numbers {
        None => String::new(),
        Some(numbers) => {
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            format!(";{part}={}", numbers.join(","))
        }
    })
}

fn any_days() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just(String::new()),
        1 => Just(";BYDAY=MO,FR".to_owned()),
        1 => Just(";BYDAY=TU,WE,TH,SA,SU".to_owned()),
        1 => Just(";BYDAY=2TU,-1SU,TH".to_owned()),
        1 => Just(";BYDAY=53MO,-53FR,20WE".to_owned()),
    ]
}

fn any_rule() -> impl Strategy<Value = String> {
    let frequency = prop_oneof![Just("DAILY"), Just("WEEKLY"), Just("MONTHLY"), Just("YEARLY")];
    let week_start = prop_oneof![Just(""), Just(";WKST=SU")];
    let days = (
        any_list("BYMONTH", 1..=12),
        any_list("BYMONTHDAY", -31..=31),
        any_list("BYYEARDAY", -366..=366),
        any_list("BYWEEKNO", -53..=53),
        any_days(),
    );
    let times = (any_list("BYHOUR", 1..=23), any_list("BYMINUTE", 1..=59), any_list("BYSECOND", 1..=59));
    let positions = prop_oneof![any_list("BYSETPOS", -4..=4), any_list("BYSETPOS", -60..=60),];
    (frequency, 1_u32..9, week_start, days, times, positions)
        .prop_map(|(frequency, interval, week_start, days, times, positions)| {
            let (months, month_days, year_days, weeks, week_days) = days;
            let (hours, minutes, seconds) = times;
            format!(
                "FREQ={frequency};INTERVAL={interval}{week_start}{months}{month_days}{year_days}{weeks}{week_days}\
                 {hours}{minutes}{seconds}{positions}"
            )
        })
        .prop_filter("parts that the RFC allows together", |text| RuleParts::parse(text).is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, max_global_rejects: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn rules_agree_with_a_naive_enumeration(
        text in any_rule(),
        start_day in 9_000_i64..20_000,
        second in 0_i64..86_400,
        from in 0_i64..1_200,
        length in 0_i64..1_200,
    ) {
        let start = Civil(start_day * DAY_US + second * SECOND_US);
        let rule = pattern(&text, start);
        let range = Civil(start.0 + from * DAY_US - 1)..Civil(start.0 + (from + length) * DAY_US + 1);
        let all = naive(&rule, range.end);
        let expected: Vec<Civil> = all.iter().copied().filter(|reading| range.contains(reading)).collect();
        prop_assert_eq!(rule.count(&range), expected.len() as u64);
        let found: Vec<Civil> = (0..expected.len() as u64).filter_map(|index| rule.nth_in(&range, index)).collect();
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(rule.nth_in(&range, expected.len() as u64), None);
        prop_assert_eq!(rule.last_before(range.end), all.last().copied());
    }
}
