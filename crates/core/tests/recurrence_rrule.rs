//! Recurrence rules of RFC 5545: its examples, ends, clock changes, and that counting agrees with stepping.

use proptest::prelude::*;
use punctual_core::recurrence::{Recurrence, RecurrenceSpec};
use punctual_core::time::Timestamp;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A rule that starts on 1997-09-02 at 09:00 in New York, as the examples of the RFC do.
fn rule(text: &str) -> Recurrence {
    from("1997-09-02T13:00:00Z", text)
}

fn from(start: &str, text: &str) -> Recurrence {
    Recurrence::new(RecurrenceSpec::rrule(text, at(start)).in_zone("America/New_York")).unwrap()
}

/// The local dates of the first occurrences.
fn dates(recurrence: &Recurrence, count: usize) -> Vec<String> {
    let fires = recurrence.preview(at("1990-01-01T00:00:00Z"), count);
    fires.into_iter().map(|fire| fire.local[..10].to_owned()).collect()
}

#[test]
fn the_examples_of_the_rfc() {
    for (text, expected) in [
        (
            "FREQ=WEEKLY;INTERVAL=2;WKST=SU;BYDAY=TU,TH",
            "1997-09-02 1997-09-04 1997-09-16 1997-09-18 1997-09-30",
        ),
        ("FREQ=MONTHLY;BYMONTHDAY=-3", "1997-09-28 1997-10-29 1997-11-28 1997-12-29 1998-01-29 1998-02-26"),
        ("FREQ=MONTHLY;BYDAY=TU,WE,TH;BYSETPOS=3", "1997-09-04 1997-10-07 1997-11-06"),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2",
            "1997-09-29 1997-10-30 1997-11-27 1997-12-30 1998-01-29",
        ),
        ("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", "1998-02-13 1998-03-13 1998-11-13 1999-08-13 2000-10-13"),
        ("FREQ=MONTHLY;INTERVAL=2;BYDAY=1SU,-1SU", "1997-09-07 1997-09-28 1997-11-02 1997-11-30 1998-01-04"),
        (
            "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8",
            "1997-11-04 2001-11-06 2005-11-08",
        ),
        ("FREQ=YEARLY;INTERVAL=3;BYYEARDAY=1,100,200", "2000-01-01 2000-04-09 2000-07-18 2003-01-01"),
        ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "1998-05-11 1999-05-17 2000-05-15"),
        ("FREQ=YEARLY;BYDAY=20MO", "1998-05-18 1999-05-17 2000-05-15"),
        ("FREQ=YEARLY;BYMONTH=3;BYDAY=TH", "1998-03-05 1998-03-12 1998-03-19 1998-03-26 1999-03-04"),
        ("FREQ=DAILY;INTERVAL=10;COUNT=3", "1997-09-02 1997-09-12 1997-09-22"),
        ("FREQ=YEARLY", "1997-09-02 1998-09-02 1999-09-02"),
    ] {
        let expected: Vec<&str> = expected.split(' ').collect();
        assert_eq!(dates(&rule(text), expected.len()), expected, "{text}");
    }
    for (text, expected) in [
        ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO", "1997-08-05 1997-08-10 1997-08-19 1997-08-24"),
        ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", "1997-08-05 1997-08-17 1997-08-19 1997-08-31"),
    ] {
        let expected: Vec<&str> = expected.split(' ').collect();
        assert_eq!(dates(&from("1997-08-05T13:00:00Z", text), 10), expected, "{text}");
    }
    assert_eq!(
        dates(&from("1997-01-31T14:00:00Z", "FREQ=MONTHLY"), 3),
        ["1997-01-31", "1997-03-31", "1997-05-31"]
    );
}

#[test]
fn a_rule_ends_with_its_count_or_its_last_time() {
    assert_eq!(dates(&rule("FREQ=DAILY;UNTIL=19970904"), 10), ["1997-09-02", "1997-09-03", "1997-09-04"]);
    assert_eq!(dates(&rule("FREQ=DAILY;UNTIL=19970904T130000Z"), 10).len(), 3, "both ends are included");
    assert_eq!(dates(&rule("FREQ=DAILY;UNTIL=19970904T125959Z"), 10).len(), 2);
    let counted = rule("FREQ=DAILY;COUNT=10000");
    let last = counted.last_time_at_or_before(Timestamp::MAX).unwrap();
    assert_eq!(counted.count_between(at("1990-01-01T00:00:00Z"), last), 10_000);
    let json = serde_json::to_string(&counted).unwrap();
    let read: Recurrence = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (read.spec(), read.next_time_after(last)),
        (counted.spec(), None),
        "a stored rule keeps its end: {json}"
    );
}

#[test]
fn local_times_are_kept_over_clock_changes() {
    let morning = from("2026-03-06T14:00:00Z", "FREQ=DAILY");
    let fires = morning.preview(at("2026-03-06T00:00:00Z"), 4);
    let utc: Vec<String> = fires.iter().map(|fire| fire.at.to_string()).collect();
    assert_eq!(utc[1..], ["2026-03-07T14:00:00Z", "2026-03-08T13:00:00Z", "2026-03-09T13:00:00Z"]);
    let skipped = from("2026-03-06T07:30:00Z", "FREQ=DAILY");
    let fires = skipped.preview(at("2026-03-07T12:00:00Z"), 1);
    assert_eq!(fires[0].local, "2026-03-08T03:00:00-04:00", "a time that clocks skip runs right after");
}

#[test]
fn lines_of_icalendar_are_read() {
    let text = "DTSTART;TZID=America/New_York:19970902T090000\nRRULE:FREQ=DAILY;COUNT=2";
    let spec = RecurrenceSpec::rrule(text, at("2026-01-01T00:00:00Z")).in_zone("America/New_York");
    let written = Recurrence::new(spec).unwrap();
    assert_eq!(dates(&written, 5), ["1997-09-02", "1997-09-03"]);
    assert_eq!(written, rule("freq=daily;count=2"), "it is stored in one form");
}

#[test]
fn an_error_names_the_part() {
    for (text, said) in [
        ("FREQ=HOURLY", "FREQ HOURLY is not supported"),
        ("BYDAY=MO", "FREQ is missing"),
        ("FREQ=DAILY;BYDAY=1MO", "BYDAY with numbers"),
        ("FREQ=WEEKLY;BYDAY=XX", "BYDAY must be days"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20260101", "UNTIL cannot be combined"),
        ("FREQ=DAILY;COUNT=0", "COUNT must be from 1 to 10000"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR must be numbers from 0 to 23"),
        ("FREQ=MONTHLY;BYSETPOS=1", "BYSETPOS selects from other BY parts"),
        ("FREQ=MONTHLY;BYMONTHDAY=31;BYMONTH=2;COUNT=1", "COUNT is more than the rule has occurrences"),
        ("FREQ=DAILY;X=1", "X is not a part"),
        ("FREQ=DAILY\nEXDATE:19970902T090000", "EXDATE is not supported"),
        ("DTSTART;TZID=Europe/Berlin:20260101T000000\nFREQ=DAILY", "DTSTART is in Europe/Berlin"),
    ] {
        let spec = RecurrenceSpec::rrule(text, at("1997-09-02T13:00:00Z")).in_zone("America/New_York");
        let error = Recurrence::new(spec).unwrap_err();
        assert_eq!(error.field(), "rrule");
        assert!(error.to_string().starts_with(said), "{text}: {error}");
    }
}

#[test]
fn rules_are_told_in_plain_english() {
    let told = rule("FREQ=MONTHLY;INTERVAL=2;BYDAY=-1FR;BYHOUR=9,18;BYMINUTE=0").describe();
    assert!(told.starts_with("every 2 months on the last Friday at 09:00, 18:00, New York time"), "{told}");
}

fn any_rule() -> impl Strategy<Value = String> {
    let days =
        prop_oneof![Just(""), Just(";BYDAY=MO,FR"), Just(";BYDAY=2TU,-1SU"), Just(";BYMONTHDAY=1,15,-1")];
    let times = prop_oneof![Just(""), Just(";BYHOUR=1,2,3,14;BYMINUTE=0,30")];
    let frequency = prop_oneof![Just("MONTHLY"), Just("YEARLY")];
    (frequency, 1_u32..4, days, times, prop::option::of(1_u32..60)).prop_map(
        |(frequency, interval, days, times, count)| {
            let count = count.map_or_else(String::new, |count| format!(";COUNT={count}"));
            format!("FREQ={frequency};INTERVAL={interval}{days}{times}{count}")
        },
    )
}

proptest! {
    #[test]
    fn counting_agrees_with_stepping(text in any_rule(), day in 0_i64..3_000, steps in 1_usize..40) {
        let rule = rule(&text);
        let after = at("1997-09-02T12:00:00Z").shifted(day * 86_400_000_000);
        let fires: Vec<Timestamp> = rule.preview(after, steps).into_iter().map(|fire| fire.at).collect();
        prop_assert!(fires.is_sorted());
        for (index, fire) in fires.iter().enumerate() {
            prop_assert_eq!(rule.nth_time_after(after, index as u64), Some(*fire));
            prop_assert_eq!(rule.count_between(after, *fire), index as u64 + 1);
            prop_assert_eq!(rule.last_time_at_or_before(*fire), Some(*fire));
            if index > 0 {
                prop_assert_eq!(rule.last_time_at_or_before(fire.shifted(-1)), Some(fires[index - 1]));
            }
        }
    }
}
