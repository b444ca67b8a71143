//! Recurrences in real zones: clock changes, intervals, windows, storage, and the cost of long periods.

use proptest::prelude::*;
use punctual_core::recurrence::{
    DstEffect, DstGap, DstOverlap, Recurrence, RecurrenceError, RecurrenceSpec, tzdb_version,
};
use punctual_core::time::Timestamp;
use std::time::Instant;

const SECOND: i64 = 1_000_000;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron(pattern: &str, zone: &str) -> RecurrenceSpec {
    RecurrenceSpec::cron(pattern, 0).in_zone(zone)
}

fn new(spec: RecurrenceSpec) -> Recurrence {
    Recurrence::new(spec).unwrap()
}

fn locals(spec: RecurrenceSpec, after: &str, count: usize) -> Vec<(String, Option<DstEffect>)> {
    new(spec).preview(at(after), count).into_iter().map(|fire| (fire.local, fire.dst)).collect()
}

fn fire(local: &str, dst: Option<DstEffect>) -> (String, Option<DstEffect>) {
    (local.to_owned(), dst)
}

#[test]
fn a_fixed_hour_in_a_gap_runs_right_after_it() {
    let daily = cron("30 2 * * *", "America/New_York");
    assert_eq!(
        locals(daily.clone(), "2026-03-07T12:00:00Z", 2),
        [
            fire("2026-03-08T03:00:00-04:00", Some(DstEffect::RunAfterGap)),
            fire("2026-03-09T02:30:00-04:00", None)
        ]
    );
    let skip = RecurrenceSpec { dst_gap: Some(DstGap::Skip), ..daily };
    assert_eq!(locals(skip, "2026-03-07T12:00:00Z", 1), [fire("2026-03-09T02:30:00-04:00", None)]);
}

#[test]
fn a_fixed_hour_in_an_overlap_runs_the_first_time_unless_chosen() {
    let daily = cron("30 1 * * *", "America/New_York");
    let with = |overlap| RecurrenceSpec { dst_overlap: overlap, ..daily.clone() };
    let first = fire("2026-11-01T01:30:00-04:00", Some(DstEffect::OverlapFirst));
    let second = fire("2026-11-01T01:30:00-05:00", Some(DstEffect::OverlapSecond));
    let next = fire("2026-11-02T01:30:00-05:00", None);
    let after = "2026-10-31T12:00:00Z";
    assert_eq!(locals(with(None), after, 2), [first.clone(), next.clone()]);
    assert_eq!(locals(with(Some(DstOverlap::Second)), after, 2), [second.clone(), next.clone()]);
    assert_eq!(locals(with(Some(DstOverlap::Both)), after, 3), [first, second, next]);
}

#[test]
fn an_overlap_that_the_current_rule_would_not_have_is_one_all_the_same() {
    let late = cron("30 23 * * *", "America/Ciudad_Juarez");
    assert_eq!(
        locals(late, "2022-11-29T12:00:00Z", 2),
        [
            fire("2022-11-29T23:30:00-06:00", Some(DstEffect::OverlapFirst)),
            fire("2022-11-30T23:30:00-07:00", None)
        ]
    );
}

#[test]
fn every_quarter_of_an_hour_is_never_silent_for_an_hour() {
    let quarters = new(cron("*/15 * * * *", "Europe/London"));
    for around in ["2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"] {
        let fires = quarters.preview(at(around), 200);
        assert!(fires.windows(2).all(|pair| pair[1].at == pair[0].at.shifted(900 * SECOND)));
    }
}

#[test]
fn every_quarter_of_an_hour_within_hours_is_never_silent_for_an_hour() {
    let quarters = new(cron("*/15 0-6 * * *", "Europe/Berlin"));
    for (midnight, count) in [("2026-03-28T22:59:59Z", 6 * 4), ("2026-10-24T21:59:59Z", 8 * 4)] {
        let fires = quarters.preview(at(midnight), count);
        assert!(fires.windows(2).all(|pair| pair[1].at == pair[0].at.shifted(900 * SECOND)), "{midnight}");
        assert_eq!(&fires.last().unwrap().local[11..16], "06:45", "{midnight}");
    }
}

#[test]
fn a_stored_schedule_keeps_the_rule_that_it_was_made_with() {
    let before = r#"{"rule":{"cron":{"pattern":"*/15 0-6 * * *"}},"zone":"Europe/Berlin"}"#;
    let stored: Recurrence = serde_json::from_str(before).unwrap();
    assert_eq!((stored.dst_gap(), stored.dst_overlap()), (DstGap::RunAfter, DstOverlap::First));
    assert_eq!(serde_json::to_string(&stored).unwrap(), before);
    let times = |recurrence: &Recurrence| {
        let fires = recurrence.preview(at("2026-10-25T00:40:00Z"), 2);
        fires.iter().map(|fire| fire.local.clone()).collect::<Vec<_>>()
    };
    assert_eq!(times(&stored), ["2026-10-25T02:45:00+02:00", "2026-10-25T03:00:00+01:00"]);

    let submitted = new(cron("*/15 0-6 * * *", "Europe/Berlin"));
    let text = serde_json::to_string(&submitted).unwrap();
    assert!(text.contains(r#""dst_defaults":"repeated_hours""#), "{text}");
    let stored: Recurrence = serde_json::from_str(&text).unwrap();
    assert_eq!(stored, submitted);
    assert_eq!(times(&stored), ["2026-10-25T02:45:00+02:00", "2026-10-25T02:00:00+01:00"]);
    for unaffected in ["0 2,14 * * *", "*/15 * * * *"] {
        let text = serde_json::to_string(&new(cron(unaffected, "Europe/Berlin"))).unwrap();
        assert!(!text.contains("dst_defaults"), "an older release can read {text}");
    }
    let both_chosen = RecurrenceSpec {
        dst_gap: Some(DstGap::Skip),
        dst_overlap: Some(DstOverlap::First),
        ..cron("*/15 0-6 * * *", "Europe/Berlin")
    };
    assert!(!serde_json::to_string(&new(both_chosen)).unwrap().contains("dst_defaults"));
}

#[test]
fn stored_schedules_that_are_no_longer_accepted_still_fire() {
    let any_day = r#"{"rule":{"cron":{"pattern":"0 9 * * ?,5"}}}"#;
    let stored: Recurrence = serde_json::from_str(any_day).unwrap();
    let fires = stored.preview(at("2026-11-16T12:00:00Z"), 2);
    assert_eq!(fires[1].at, at("2026-11-18T09:00:00Z"), "every day, as before");
    assert!(Recurrence::new(stored.spec().clone()).is_err());
    let idle = r#"{"rule":{"interval":{"every":"90s","anchor":"2026-01-01T00:00:00Z"}},"dst_gap":"SKIP"}"#;
    let stored: Recurrence = serde_json::from_str(idle).unwrap();
    assert_eq!(serde_json::to_string(&stored).unwrap(), idle);
}

#[test]
fn choices_about_clock_changes_are_refused_where_they_have_no_effect() {
    let elapsed = RecurrenceSpec::interval("PT3H", at("2026-03-07T05:00:00Z"));
    let refused = |spec: RecurrenceSpec| Recurrence::new(spec).unwrap_err();
    let gap = refused(RecurrenceSpec { dst_gap: Some(DstGap::Skip), ..elapsed.clone() });
    assert_eq!(gap.field(), "dst_gap");
    assert_eq!(
        gap.to_string(),
        "only applies to cron expressions and to intervals of days or longer: PT3H is elapsed time, which clock \
         changes do not affect"
    );
    let overlap = refused(RecurrenceSpec { dst_overlap: Some(DstOverlap::Both), ..elapsed });
    assert_eq!(overlap.field(), "dst_overlap");
    let daily = RecurrenceSpec::interval("daily", at("2026-03-07T05:00:00Z"));
    new(RecurrenceSpec { dst_gap: Some(DstGap::Skip), ..daily });
}

#[test]
fn times_that_a_gap_maps_to_one_instant_fire_once() {
    let spec = RecurrenceSpec { dst_gap: Some(DstGap::RunAfter), ..cron("*/10 * * * *", "Europe/London") };
    let fires = locals(spec.clone(), "2026-03-29T00:45:00Z", 3);
    assert_eq!(
        fires,
        [
            fire("2026-03-29T00:50:00+00:00", None),
            fire("2026-03-29T02:00:00+01:00", Some(DstEffect::RunAfterGap)),
            fire("2026-03-29T02:10:00+01:00", None)
        ]
    );
    let (after, until) = (at("2026-03-29T00:45:00Z"), at("2026-03-29T01:10:00Z"));
    assert_eq!(new(spec).count_between(after, until), 3);
}

#[test]
fn a_half_hour_change_moves_only_that_half_hour() {
    let zone = "Australia/Lord_Howe";
    let after = "2026-10-03T12:00:00Z";
    assert_eq!(
        locals(cron("15 2 * * *", zone), after, 1),
        [fire("2026-10-04T02:30:00+11:00", Some(DstEffect::RunAfterGap))]
    );
    assert_eq!(locals(cron("45 2 * * *", zone), after, 1), [fire("2026-10-04T02:45:00+11:00", None)]);
}

#[test]
fn a_day_that_never_was_runs_when_the_next_begins() {
    let daily = cron("0 9 * * *", "Pacific/Apia");
    assert_eq!(
        locals(daily, "2011-12-29T18:00:00Z", 3),
        [
            fire("2011-12-29T09:00:00-10:00", None),
            fire("2011-12-31T00:00:00+14:00", Some(DstEffect::RunAfterGap)),
            fire("2011-12-31T09:00:00+14:00", None)
        ]
    );
}

#[test]
fn hours_are_elapsed_time_whatever_the_clocks_do() {
    let three_hours =
        RecurrenceSpec::interval("PT3H", at("2026-03-07T05:00:00Z")).in_zone("America/New_York");
    let fires = new(three_hours).preview(at("2026-03-08T04:00:00Z"), 3);
    let times: Vec<String> = fires.iter().map(|fire| fire.at.to_string()).collect();
    assert_eq!(times, ["2026-03-08T05:00:00Z", "2026-03-08T08:00:00Z", "2026-03-08T11:00:00Z"]);
    assert!(fires.iter().all(|fire| fire.dst.is_none()));
}

#[test]
fn days_are_calendar_steps_that_keep_the_local_time() {
    let daily = RecurrenceSpec::interval("daily", at("2026-03-06T07:30:00Z")).in_zone("America/New_York");
    assert_eq!(
        locals(daily, "2026-03-06T00:00:00Z", 4),
        [
            fire("2026-03-06T02:30:00-05:00", None),
            fire("2026-03-07T02:30:00-05:00", None),
            fire("2026-03-08T03:00:00-04:00", Some(DstEffect::RunAfterGap)),
            fire("2026-03-09T02:30:00-04:00", None)
        ]
    );
}

#[test]
fn months_clamp_to_the_end_and_come_back() {
    let monthly = RecurrenceSpec::interval("P1M", at("2026-12-31T23:00:00.5Z")).in_zone("Europe/Lisbon");
    let dates: Vec<String> =
        locals(monthly, "2026-12-31T22:00:00Z", 5).iter().map(|(local, _)| local[..23].to_owned()).collect();
    let days = ["2026-12-31", "2027-01-31", "2027-02-28", "2027-03-31", "2027-04-30"];
    assert!(
        dates.iter().zip(days).all(|(found, day)| found.starts_with(&format!("{day}T23:00:00.5"))),
        "{dates:?}"
    );
}

#[test]
fn the_anchor_is_an_occurrence_even_in_the_second_pass() {
    let second_pass = at("2026-11-01T06:30:00Z");
    let daily = new(RecurrenceSpec::interval("P1D", second_pass).in_zone("America/New_York"));
    let before = second_pass.shifted(-1);
    let times: Vec<Timestamp> = daily.preview(before, 2).iter().map(|fire| fire.at).collect();
    assert_eq!(times, [second_pass, at("2026-11-02T06:30:00Z")]);
    assert_eq!(daily.next_after(Timestamp::EPOCH).map(|fire| fire.at), Some(second_pass));
    assert_eq!(daily.nth_time_after(before, 0), Some(times[0]));
    assert_eq!(daily.nth_time_after(before, 1), Some(times[1]));
    assert_eq!(daily.count_between(before, times[1]), 2);
    assert_eq!(daily.last_time_at_or_before(times[1].shifted(-1)), Some(second_pass));
    assert_eq!(daily.last_at_or_before(before), None);
}

#[test]
fn both_ends_belong_to_the_window() {
    let (start, end) = (at("2026-01-02T09:00:00Z"), at("2026-01-04T09:00:00Z"));
    let spec = RecurrenceSpec { start_at: Some(start), end_at: Some(end), ..cron("0 9 * * *", "UTC") };
    let windowed = new(spec);
    let times: Vec<Timestamp> = windowed.preview(Timestamp::EPOCH, 9).iter().map(|fire| fire.at).collect();
    assert_eq!(times, [start, at("2026-01-03T09:00:00Z"), end]);
    assert_eq!(windowed.count_between(Timestamp::EPOCH, Timestamp::MAX), 3);
    assert_eq!(windowed.last_at_or_before(Timestamp::MAX).map(|fire| fire.at), Some(end));
    assert_eq!(windowed.last_at_or_before(start.shifted(-1)), None);
    assert_eq!(windowed.next_after(end), None);
}

#[test]
fn a_window_that_ends_before_it_starts_is_refused() {
    let (start, end) = (at("2026-01-02T09:00:00Z"), at("2026-01-01T09:00:00Z"));
    let spec = RecurrenceSpec { start_at: Some(start), end_at: Some(end), ..cron("0 9 * * *", "UTC") };
    let error = Recurrence::new(spec).unwrap_err();
    assert_eq!(error, RecurrenceError::EndBeforeStart { start_at: start, end_at: end });
    assert_eq!(error.field(), "end_at");
}

#[test]
fn times_that_cannot_be_written_down_are_refused() {
    let refused = |spec| Recurrence::new(spec).unwrap_err();
    let never = Timestamp::from_micros(i64::MIN);
    assert_eq!(
        refused(RecurrenceSpec::interval("1h", never)),
        RecurrenceError::OutOfRange { field: "start_at" }
    );
    let end =
        RecurrenceSpec { end_at: Some(Timestamp::MAX.shifted(86_400_000_000)), ..cron("* * * * *", "UTC") };
    assert_eq!(refused(end).field(), "end_at");
}

#[test]
fn errors_name_the_field_of_the_submitted_job() {
    let field = |spec| Recurrence::new(spec).unwrap_err().field();
    assert_eq!(field(cron("bad", "UTC")), "cron_expression");
    assert_eq!(field(cron("* * * * *", "Europe/Pariss")), "timezone");
    assert_eq!(field(RecurrenceSpec::interval("P1DT2H", Timestamp::EPOCH)), "interval");
    assert_eq!(field(cron("* * * * *", &"x".repeat(600))), "timezone");
}

#[test]
fn schedules_end_quietly_at_the_ends_of_time() {
    let last = new(RecurrenceSpec::cron("0 0 0 1 1 * 2030", 0));
    assert_eq!(last.next_after(at("2030-06-01T00:00:00Z")), None);
    assert_eq!(last.last_at_or_before(at("2029-06-01T00:00:00Z")), None);
    for spec in [cron("* * * * * *", "America/New_York"), RecurrenceSpec::interval("P1M", Timestamp::EPOCH)] {
        let recurrence = new(spec);
        assert!(recurrence.next_after(Timestamp::from_micros(i64::MIN)).is_some());
        assert!(recurrence.last_at_or_before(Timestamp::from_micros(i64::MAX)).is_some());
        assert_eq!(recurrence.next_after(Timestamp::from_micros(i64::MAX)), None);
        assert_eq!(recurrence.next_after(Timestamp::MAX), None);
        assert_eq!(recurrence.last_at_or_before(Timestamp::from_micros(i64::MIN)), None);
        assert_eq!(recurrence.nth_time_after(Timestamp::EPOCH, u64::MAX), None);
        assert_eq!(recurrence.count_between(Timestamp::MAX, Timestamp::EPOCH), 0);
    }
    for anchor in [-377_000_000_000 * SECOND, 253_402_207_200 * SECOND, -3_000_000_000 * SECOND] {
        for every in ["P1D", "1s", "P1Y"] {
            let recurrence = new(RecurrenceSpec::interval(every, Timestamp::from_micros(anchor)));
            let next = recurrence.next_after(Timestamp::EPOCH);
            assert!(next.is_none_or(|fire| fire.at > Timestamp::EPOCH));
            assert!(!recurrence.describe().is_empty());
        }
    }
}

#[test]
fn an_anchor_before_1970_keeps_its_phase() {
    let weekly = new(RecurrenceSpec::interval("P1W", at("1969-07-20T20:17:00Z")));
    assert_eq!(weekly.next_after(at("2026-01-01T00:00:00Z")).unwrap().local, "2026-01-04T20:17:00+00:00");
}

#[test]
fn schedules_are_described_with_zone_window_and_clock_changes() {
    let weekdays = cron("0 9 * * MON-FRI", "America/New_York");
    assert_eq!(
        new(weekdays.clone()).describe(),
        "At 09:00 on Monday to Friday, New York time; if the clocks skip that time, right after; \
         if they repeat it, the first time only"
    );
    let chosen = RecurrenceSpec {
        dst_gap: Some(DstGap::Skip),
        dst_overlap: Some(DstOverlap::Second),
        start_at: Some(at("2026-01-01T05:00:00Z")),
        end_at: Some(at("2027-01-01T05:00:00Z")),
        ..weekdays
    };
    assert_eq!(
        new(chosen).describe(),
        "At 09:00 on Monday to Friday, New York time, from 2026-01-01T00:00:00-05:00, \
         until 2027-01-01T00:00:00-05:00; if the clocks skip that time, not at all; \
         if they repeat it, the second time only"
    );
    assert_eq!(new(cron("0 * * * *", "Asia/Kolkata")).describe(), "At minute 0 of every hour, Kolkata time");
    let interval =
        |every, zone| new(RecurrenceSpec::interval(every, at("2026-01-31T08:00:00Z")).in_zone(zone));
    assert_eq!(
        interval("90m", "UTC").describe(),
        "Every 1 hour 30 minutes, counted from 2026-01-31T08:00:00+00:00"
    );
    assert_eq!(interval("hourly", "UTC").describe(), "Every hour, counted from 2026-01-31T08:00:00+00:00");
    assert_eq!(
        interval("90s", "UTC").describe(),
        "Every 1 minute 30 seconds, counted from 2026-01-31T08:00:00+00:00"
    );
    assert_eq!(
        interval("500ms", "UTC").describe(),
        "Every 500 milliseconds, counted from 2026-01-31T08:00:00+00:00"
    );
    assert_eq!(
        interval("P2W", "UTC").describe(),
        "Every 2 weeks, counted from 2026-01-31T08:00:00+00:00, UTC"
    );
    assert_eq!(
        interval("monthly", "Europe/London").describe(),
        "Every month, counted from 2026-01-31T08:00:00+00:00, London time; if the clocks skip that time, right after; \
         if they repeat it, the first time only"
    );
}

#[test]
fn a_recurrence_is_stored_short_and_reads_back_exactly() {
    let plain = new(cron("0 9 * * *", "utc"));
    assert_eq!(serde_json::to_string(&plain).unwrap(), r#"{"rule":{"cron":{"pattern":"0 9 * * *"}}}"#);
    let full = new(RecurrenceSpec {
        dst_gap: Some(DstGap::RunAfter),
        dst_overlap: Some(DstOverlap::Both),
        end_at: Some(at("2027-01-01T00:00:00Z")),
        ..RecurrenceSpec::cron(" H  9 * * Mon ", 77).in_zone("europe/london")
    });
    let stored = serde_json::to_string(&full).unwrap();
    assert_eq!(
        stored,
        r#"{"rule":{"cron":{"pattern":" H  9 * * Mon ","seed":77}},"zone":"Europe/London","dst_gap":"RUN_AFTER","dst_overlap":"BOTH","end_at":"2027-01-01T00:00:00Z"}"#
    );
    let read: Recurrence = serde_json::from_str(&stored).unwrap();
    assert_eq!(read, full);
    assert_eq!(read.preview(Timestamp::EPOCH, 5), full.preview(Timestamp::EPOCH, 5));
    assert_ne!(read, plain);
}

#[test]
fn a_stored_recurrence_is_validated_when_read() {
    let read = |text| serde_json::from_str::<Recurrence>(text).map_err(|error| error.to_string());
    assert!(
        read(r#"{"rule":{"cron":{"pattern":"0 25 * * *"}}}"#)
            .unwrap_err()
            .contains("hour 25 is out of range")
    );
    assert!(read(r#"{"rule":{"cron":{"pattern":"* * * * *"}},"zone":"Mars"}"#).is_err());
    assert!(
        read(r#"{"rule":{"cron":{"pattern":"* * * * *"}},"moon":1}"#).unwrap_err().contains("unknown field")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_stored_fires_the_same_times(
        interval in any::<bool>(),
        every in prop::sample::select(vec!["90s", "PT3H", "P1M", "daily", "P1W2D"]),
        pattern in prop::sample::select(vec!["H H * * *", "*/7 1-3 * * *", "0 0 L * 5L", "@weekly", "1 2 3 4 5 ?"]),
        zone in prop::sample::select(vec!["UTC", "Europe/London", "Pacific/Apia", "Asia/Kathmandu"]),
        seed in any::<u64>(),
        start in prop::option::of(1_700_000_000_000_000..1_900_000_000_000_000i64),
    ) {
        let spec = if interval {
            RecurrenceSpec::interval(every, Timestamp::from_micros(1_600_000_000_123_456))
        } else {
            RecurrenceSpec::cron(pattern, seed)
        };
        let spec = RecurrenceSpec { start_at: start.map(Timestamp::from_micros), ..spec.in_zone(zone) };
        let recurrence = new(spec);
        let read: Recurrence = serde_json::from_str(&serde_json::to_string(&recurrence).unwrap()).unwrap();
        prop_assert_eq!(&read, &recurrence);
        prop_assert_eq!(read.spec(), recurrence.spec());
        let after = Timestamp::from_micros(1_650_000_000_000_000);
        prop_assert_eq!(read.preview(after, 10), recurrence.preview(after, 10));
    }

    #[test]
    fn elapsed_intervals_count_what_stepping_finds(
        every_ms in 100..100_000i64,
        anchor in 0..10_000_000_000i64,
        after in 0..10_000_000_000i64,
        span in 0..20_000_000i64,
    ) {
        let spec = RecurrenceSpec::interval(&format!("{every_ms}ms"), Timestamp::from_micros(anchor));
        let recurrence = new(spec);
        let (after, until) = (Timestamp::from_micros(after), Timestamp::from_micros(after + span));
        let steps: Vec<i64> = (0..)
            .map(|number| anchor + number * every_ms * 1_000)
            .take_while(|at| *at <= until.as_micros())
            .filter(|at| *at > after.as_micros())
            .collect();
        prop_assert_eq!(recurrence.count_between(after, until), steps.len() as u64);
        for (index, step) in steps.iter().enumerate() {
            prop_assert_eq!(recurrence.nth_time_after(after, index as u64).map(Timestamp::as_micros), Some(*step));
        }
        let last = recurrence.last_time_at_or_before(until).map(Timestamp::as_micros);
        prop_assert_eq!(last.filter(|last| *last > after.as_micros()), steps.last().copied());
    }
}

#[test]
fn a_century_of_every_second_is_counted_in_no_time() {
    let every_second = new(cron("* * * * * *", "America/New_York"));
    let (after, until) = (at("2026-01-01T00:00:00Z"), at("2126-01-01T00:00:00Z"));
    let started = Instant::now();
    let elapsed_seconds = (until.as_micros() - after.as_micros()) / SECOND;
    assert_eq!(every_second.count_between(after, until), elapsed_seconds as u64);
    assert_eq!(every_second.last_time_at_or_before(until), Some(until));
    assert_eq!(every_second.nth_time_after(after, elapsed_seconds as u64 - 1), Some(until));
    // Stepping would take minutes. The bound allows for a slow machine, but not for stepping.
    assert!(started.elapsed().as_millis() < 2_000, "took {:?}", started.elapsed());
}

#[test]
fn the_zone_data_says_its_version() {
    let year: u32 = tzdb_version()[..4].parse().unwrap();
    assert!(year >= 2026, "{}", tzdb_version());
}
