//! Cron patterns: the meaning of each part, what is rejected and how, and descriptions in words.

use proptest::prelude::*;
use punctual_core::recurrence::{
    CronError, CronField, DstGap, DstOverlap, Recurrence, RecurrenceError, RecurrenceSpec,
};
use punctual_core::time::Timestamp;

fn recurrence(pattern: &str) -> Recurrence {
    seeded(pattern, 0)
}

fn seeded(pattern: &str, seed: u64) -> Recurrence {
    Recurrence::new(RecurrenceSpec::cron(pattern, seed)).unwrap_or_else(|error| panic!("{pattern}: {error}"))
}

fn refused(pattern: &str) -> CronError {
    match Recurrence::new(RecurrenceSpec::cron(pattern, 0)) {
        Err(RecurrenceError::Cron(error)) => error,
        other => panic!("{pattern}: {other:?}"),
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The next fires after the start of 2026 (a Thursday), as local times without their common parts.
fn fires(pattern: &str, count: usize) -> Vec<String> {
    let after = at("2026-01-01T00:00:00Z").shifted(-1);
    let fires = recurrence(pattern).preview(after, count);
    fires.iter().map(|fire| fire.local.replace("+00:00", "").replace(":00:00", ":00")).collect()
}

fn days(pattern: &str, count: usize) -> Vec<String> {
    fires(pattern, count).iter().map(|fire| fire[5..10].to_owned()).collect()
}

#[test]
fn five_fields_start_with_the_minute() {
    assert_eq!(fires("30 9 * * *", 2), ["2026-01-01T09:30:00", "2026-01-02T09:30:00"]);
}

#[test]
fn six_fields_start_with_the_second() {
    assert_eq!(fires("15 30 9 * * *", 1), ["2026-01-01T09:30:15"]);
}

#[test]
fn seven_fields_end_with_the_year() {
    assert_eq!(fires("0 0 0 1 1 ? 2027-2028", 9), ["2027-01-01T00:00", "2028-01-01T00:00"]);
}

#[test]
fn lists_ranges_and_steps_are_sets() {
    assert_eq!(
        fires("5,50-52,*/30 0 * * *", 6).iter().map(|fire| &fire[14..16]).collect::<Vec<_>>(),
        ["00", "05", "30", "50", "51", "52"]
    );
    assert_eq!(days("0 0 10/7 * *", 5), ["01-10", "01-17", "01-24", "01-31", "02-10"]);
    assert_eq!(days("0 0 1-9/4 * *", 4), ["01-01", "01-05", "01-09", "02-01"]);
}

#[test]
fn names_are_read_in_any_case() {
    assert_eq!(days("0 0 * feb,Apr-JUN mon", 2), ["02-02", "02-09"]);
    assert_eq!(days("0 0 * * sun", 2), days("0 0 * * 0", 2));
    assert_eq!(days("0 0 * * 7", 2), days("0 0 * * 0", 2));
    assert_eq!(days("0 0 * * 5-7", 4), ["01-02", "01-03", "01-04", "01-09"]);
}

#[test]
fn ranges_may_wrap_around_the_end_of_their_field() {
    assert_eq!(days("0 0 * * FRI-MON", 5), ["01-02", "01-03", "01-04", "01-05", "01-09"]);
    assert_eq!(days("0 0 * * MON-SUN", 3), ["01-01", "01-02", "01-03"]);
    assert_eq!(days("0 0 1 NOV-FEB *", 4), ["01-01", "02-01", "11-01", "12-01"]);
    let hours: Vec<String> = fires("0 22-4/3 * * *", 4).iter().map(|fire| fire[11..13].to_owned()).collect();
    assert_eq!(hours, ["01", "04", "22", "01"]);
}

#[test]
fn l_means_the_last_day_or_days_before_it() {
    assert_eq!(days("0 0 L * *", 3), ["01-31", "02-28", "03-31"]);
    assert_eq!(days("0 0 L-2 * *", 3), ["01-29", "02-26", "03-29"]);
    assert_eq!(days("0 0 L,15 * ?", 3), ["01-15", "01-31", "02-15"]);
}

#[test]
fn w_means_the_nearest_weekday_of_the_same_month() {
    assert_eq!(days("0 0 15W * *", 3), ["01-15", "02-16", "03-16"]);
    assert_eq!(days("0 0 1W 8 *", 1), ["08-03"]);
    assert_eq!(days("0 0 31W 5 *", 1), ["05-29"]);
    assert_eq!(days("0 0 LW * *", 3), ["01-30", "02-27", "03-31"]);
    assert_eq!(days("0 0 31W * *", 2), ["01-30", "03-31"], "a month without a 31st has no 31W");
}

#[test]
fn a_weekday_may_be_the_nth_or_the_last_of_the_month() {
    assert_eq!(days("0 0 * * MON#2", 2), ["01-12", "02-09"]);
    assert_eq!(days("0 0 * * 5L", 2), ["01-30", "02-27"]);
    assert_eq!(days("0 0 * * friL", 2), ["01-30", "02-27"]);
    assert_eq!(days("0 0 ? * THU#5", 2), ["01-29", "04-30"]);
    assert_eq!(days("0 0 * * 7#1,7L", 3), ["01-04", "01-25", "02-01"]);
}

#[test]
fn with_both_day_fields_given_either_matches() {
    assert_eq!(days("0 0 13 * FRI", 4), ["01-02", "01-09", "01-13", "01-16"]);
    assert_eq!(days("0 0 ? * FRI", 2), ["01-02", "01-09"]);
    assert_eq!(days("0 0 13 * ?", 2), ["01-13", "02-13"]);
}

#[test]
fn a_starred_day_field_is_not_given_so_both_must_match() {
    assert_eq!(days("0 0 */2 * MON", 2), ["01-05", "01-19"], "odd days that are Mondays");
}

#[test]
fn a_day_that_comes_once_in_a_generation_is_found_both_ways() {
    let leap_weekend = recurrence("0 0 29 2 */6");
    let (before, after) = (at("2088-02-29T00:00:00Z"), at("2116-02-29T00:00:00Z"));
    assert_eq!(leap_weekend.next_time_after(before), Some(after));
    assert_eq!(leap_weekend.last_time_at_or_before(after.shifted(-1)), Some(before));
    assert_eq!(leap_weekend.count_between(before, after), 1);
}

#[test]
fn shorthands_mean_the_usual_patterns() {
    for (word, pattern) in [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@Daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        (" @hourly ", "0 * * * *"),
    ] {
        assert_eq!(fires(word, 3), fires(pattern, 3), "{word}");
    }
}

#[test]
fn h_is_chosen_by_the_seed_and_stays() {
    let minute = |seed| seeded("H H * * *", seed).preview(Timestamp::EPOCH, 1)[0].local.clone();
    assert_eq!(minute(1), minute(1));
    let distinct: std::collections::BTreeSet<String> = (0..500).map(minute).collect();
    assert!(distinct.len() > 380, "500 jobs over 1440 minutes of the day: {}", distinct.len());
    assert_eq!([minute(1), minute(2)].map(|local| local[11..16].to_owned()), ["21:54", "14:44"]);
}

#[test]
fn h_keeps_to_its_range_and_its_steps() {
    for seed in 0..200 {
        let fires = seeded("H/15 H(9-17) H * *", seed).preview(Timestamp::EPOCH, 8);
        let part =
            |index: usize, range: std::ops::Range<usize>| fires[index].local[range].parse::<u32>().unwrap();
        assert!(part(0, 14..16) < 15);
        assert_eq!(part(1, 14..16), part(0, 14..16) + 15);
        assert!((9..=17).contains(&part(0, 11..13)));
        assert!((1..=28).contains(&part(0, 8..10)));
        assert_eq!(part(4, 5..7), 2, "every month has the day");
        let fires = seeded("H(10-40)/20 0 * * H", seed).preview(Timestamp::EPOCH, 2);
        let minute: u32 = fires[0].local[14..16].parse().unwrap();
        assert!((10..30).contains(&minute));
        assert_eq!(
            fires[1].local[14..16].parse::<u32>().ok(),
            Some(minute + 20).filter(|m| *m <= 40).or(Some(minute))
        );
    }
}

#[test]
fn errors_name_column_field_finding_and_remedy() {
    let error = refused("0 25 * * *");
    assert_eq!((error.column, error.field, error.found.as_str()), (3, Some(CronField::Hour), "25"));
    assert_eq!(error.to_string(), "hour 25 is out of range, use 0–23 (column 3)");
    for (pattern, message) in [
        ("60 * * * *", "minute 60 is out of range, use 0–59 (column 1)"),
        ("0 0 0 * *", "day of month 0 is out of range, use 1–31 (column 5)"),
        ("0 0 * 13 *", "month 13 is out of range, use 1–12 or JAN–DEC (column 7)"),
        ("0 0 * * 8", "day of week 8 is out of range, use 0–7 or SUN–SAT (column 9)"),
        ("0 0 * * mon-fry", "day of week fry is not understood, use 0–7 or SUN–SAT (column 13)"),
        ("0  0 * Ünter *", "month Ünter is not understood, use 1–12 or JAN–DEC (column 8)"),
        ("0 1,2,x * * *", "hour x is not understood, use 0–23 (column 7)"),
        ("0 1,,2 * * *", "hour has a value missing, use 0–23 (column 5)"),
        ("*/0 * * * *", "minute 0 is no step, use 1–59 after the / (column 3)"),
        (
            "*/90 * * * *",
            "minute 90 is a larger step than the field is long, use 1–59 after the /, or an interval (column 3)",
        ),
        (
            "0 0 * * */7",
            "day of week 7 is a step that selects only one value, write that value alone, or use 1–6 after the / \
             (column 11)",
        ),
        (
            "0 0 1 1/12 *",
            "month 12 is a step that selects only one value, write that value alone, or use 1–11 after the / \
             (column 9)",
        ),
        (
            "0 0 1 */13 *",
            "month 13 is a larger step than the field is long, use 1–11 after the /, or an interval (column 9)",
        ),
        (
            "0 0 * * ?,5",
            "day of week ? stands for any day, use ? alone, or leave it out of the list (column 9)",
        ),
        (
            "0 0 1,?/2 * *",
            "day of month ?/2 stands for any day, use ? alone, or leave it out of the list (column 7)",
        ),
        ("*/x * * * *", "minute x is not a step, use 1–59 after the / (column 3)"),
        ("? 0 * * *", "minute ? stands for any day only, use * (column 1)"),
        ("0 0 * * L", "day of week L needs its day, use 5L for the last Friday, 6 for Saturday (column 9)"),
        ("0 0 * * 1#6", "day of week 6 is out of range, use 1–5 after the # (column 11)"),
        ("0 0 L-31 * *", "day of month 31 is out of range, use L-1 to L-30 (column 7)"),
        ("0 0 1-5W * *", "day of month 1-5W is not one day, use one day before W, such as 15W (column 5)"),
        ("H(5 0 * * *", "minute H(5 is not understood, use H, H/n, H(a-b) or H(a-b)/n (column 1)"),
        ("H(5-70) 0 * * *", "minute 70 is out of range, use 0–59 (column 5)"),
        ("0 0 0 * * * H", "year H cannot be chosen by hash, use 1970–2199 (column 13)"),
        (
            "0 0 0 * * * 2030-2028",
            "year 2030 is after the end of its range, use 2028-2030 for the years between (column 13)",
        ),
        (
            "CRON_TZ=UTC 0 0 * * *",
            "second CRON_TZ=UTC names a time zone, set the schedule's timezone instead (column 1)",
        ),
    ] {
        assert_eq!(refused(pattern).to_string(), message, "{pattern}");
    }
}

#[test]
fn patterns_with_too_few_or_many_fields_say_where() {
    let fields = "use minute, hour, day of month, month, day of week; optionally a second first, and then a year \
         last";
    assert_eq!(refused("").to_string(), format!("the pattern is empty, {fields} (column 1)"));
    assert_eq!(refused("* * * *").to_string(), format!("the pattern has 4 of 5 fields, {fields} (column 8)"));
    assert_eq!(
        refused("* * * * * * * 8").to_string(),
        format!("8 is one field too many of 8, {fields} (column 15)")
    );
}

#[test]
fn reboot_and_unknown_shorthands_are_refused_with_the_alternative() {
    assert!(
        refused("@reboot")
            .to_string()
            .starts_with("@reboot has no meaning where many machines share the jobs")
    );
    assert_eq!(refused("@every 5m").to_string(), "@every is not cron, use an interval such as 5m (column 1)");
    assert!(refused("@fortnightly").to_string().contains("use @hourly, @daily"));
    assert_eq!(refused("@daily x").to_string(), "x is more than a shorthand takes, leave it out (column 8)");
}

#[test]
fn a_pattern_that_can_never_match_is_refused() {
    assert_eq!(
        refused("0 0 30 2 *").to_string(),
        "day of month 30 never comes in month 2, use a day that some such month has, or L for the last (column 5)"
    );
    assert_eq!(refused("0 0 31 APR,JUN *").column, 5);
    assert_eq!(refused("0 0 0 29 2 ? 2025-2027").column, 7);
    assert_eq!(refused("0 0 L-30 2 *").field, Some(CronField::DayOfMonth));
    recurrence("0 0 29 2 *");
    recurrence("0 0 30 2 MON");
}

#[test]
fn a_pattern_that_is_too_long_is_refused() {
    let long = format!("{} * * * *", vec!["1"; 300].join(","));
    let error = Recurrence::new(RecurrenceSpec::cron(&long, 0)).unwrap_err();
    assert_eq!((error.field(), error.to_string().as_str()), ("cron_expression", "must be at most 512 bytes"));
}

#[test]
fn an_open_hour_skips_gaps_and_fires_in_both_passes_unless_chosen() {
    let wildcards = ["0 * * * *", "*/15 */2 * * *", "* * * * * *", "0 0-23 * * *", "0 H/6 * * *", "@hourly"];
    let repeated = [
        "*/15 0-6 * * *",
        "* 1-2 * * *",
        "0-30 22-6 * * *",
        "5/20 0-6/2 * * *",
        "H/20 8/4 * * *",
        "*/30,7 3,9-17 * * *",
        "0 */15 0-6 * * *",
        "*/5 H(0-8)/2 * * *",
    ];
    for open in wildcards.into_iter().chain(repeated) {
        let recurrence = recurrence(open);
        assert_eq!(
            (recurrence.dst_gap(), recurrence.dst_overlap()),
            (DstGap::Skip, DstOverlap::Both),
            "{open}"
        );
    }
    for fixed in [
        "0 9 * * *",
        "0 2,14 * * *",
        "* 2 * * *",
        "*/15 1,2 * * *",
        "0,30 0-6 * * *",
        "*/15 2-2 * * *",
        "*/10 0 0-6 * * *",
        "0 0-22 * * *",
        "0 H * * *",
        "*/15 H(0-6) * * *",
        "0 1/2 * * *",
        "0 H(0-6)/2 * * *",
        "@daily",
    ] {
        let recurrence = recurrence(fixed);
        assert_eq!(
            (recurrence.dst_gap(), recurrence.dst_overlap()),
            (DstGap::RunAfter, DstOverlap::First),
            "{fixed}"
        );
    }
    let chosen = RecurrenceSpec { dst_gap: Some(DstGap::RunAfter), ..RecurrenceSpec::cron("0 * * * *", 0) };
    let chosen = Recurrence::new(chosen).unwrap();
    assert_eq!((chosen.dst_gap(), chosen.dst_overlap()), (DstGap::RunAfter, DstOverlap::Both));
}

#[test]
fn patterns_are_described_in_plain_english() {
    for (pattern, text) in [
        ("0 9 * * MON-FRI", "At 09:00 on Monday to Friday, UTC"),
        ("0 9,17 * * *", "At 09:00 and 17:00 every day, UTC"),
        ("30 30 9 * * *", "At 09:30:30 every day, UTC"),
        ("* * * * *", "Every minute, UTC"),
        ("*/15 * * * *", "Every 15 minutes, UTC"),
        ("*/15 9-17 * * 1-5", "Every 15 minutes in hours 9 to 17 on Monday to Friday, UTC"),
        ("0 * * * *", "At minute 0 of every hour, UTC"),
        ("5,35 * * * *", "At minutes 5 and 35 of every hour, UTC"),
        ("0 */2 * * *", "At minute 0 of every 2nd hour, UTC"),
        ("*/7 * * * *", "At minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour, UTC"),
        ("* * * * * *", "Every second, UTC"),
        ("*/10 * 9 * * *", "Every 10 seconds in hour 9, UTC"),
        ("30 * * * * *", "At second 30 of every minute, UTC"),
        ("*/10 5 * * * *", "Every 10 seconds in minute 5 of every hour, UTC"),
        ("0 0 1,15 * *", "At 00:00 on days 1 and 15 of the month, UTC"),
        ("0 0 L * *", "At 00:00 on the last day of the month, UTC"),
        (
            "0 0 L-3,LW * *",
            "At 00:00 on the day 3 days before the last of the month and the last weekday of the month, UTC",
        ),
        (
            "0 0 15W 1,6-8 *",
            "At 00:00 on the weekday nearest day 15 of the month in January and June to August, UTC",
        ),
        (
            "0 0 * * MON#2,5L",
            "At 00:00 on the second Monday of the month and the last Friday of the month, UTC",
        ),
        ("0 0 * * SAT,SUN", "At 00:00 on Saturday and Sunday, UTC"),
        ("0 0 13 * FRI", "At 00:00 on day 13 of the month or on Friday, UTC"),
        ("0 0 */10 * FRI", "At 00:00 on days 1, 11, 21 and 31 of the month, if it is also Friday, UTC"),
        ("0 0 0 1 1 ? 2027-2029", "At 00:00 on day 1 of the month in January in 2027 to 2029, UTC"),
    ] {
        assert_eq!(recurrence(pattern).describe(), text, "{pattern}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused_within_its_length(
        text in "([0-9*/,?LWH#()A-Fa-z\\-]{1,6}[ ü]{0,2}){0,8}",
        seed in any::<u64>(),
    ) {
        match Recurrence::new(RecurrenceSpec::cron(&text, seed)) {
            Ok(recurrence) => {
                recurrence.next_after(Timestamp::EPOCH);
                prop_assert!(!recurrence.describe().is_empty());
            }
            Err(RecurrenceError::Cron(error)) => {
                prop_assert!((1..=text.chars().count() + 1).contains(&error.column), "{error}");
                let from_column: String = text.chars().skip(error.column - 1).collect();
                prop_assert!(from_column.starts_with(&error.found), "{error:?}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}
