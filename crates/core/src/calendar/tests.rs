//! What calendars exclude, and what is read from iCalendar files.

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn calendar(json: &str) -> Calendar {
    Calendar::new(serde_json::from_str(json).unwrap()).unwrap()
}

fn problems(json: &str) -> Vec<String> {
    let found = Calendar::new(serde_json::from_str(json).unwrap()).unwrap_err();
    found.into_iter().map(|problem| problem.to_string()).collect()
}

#[test]
fn entries_are_alternatives_and_their_conditions_hold_together() {
    let closed = calendar(
        r#"{"timezone":"Europe/Berlin","entries":[{"weekdays":["SAT-SUN"]},
            {"dates":["12-24/01-01","2026-05-01"]},{"weekdays":["fri"],"times":["15:00-24:00"]}]}"#,
    );
    // In Berlin, the local day decides.
    for (time, is_excluded) in [
        ("2026-11-20T13:59:59Z", false),
        ("2026-11-20T14:00:00Z", true),
        ("2026-11-19T14:00:00Z", false),
        ("2026-11-20T22:59:59Z", true),
        ("2026-11-22T22:59:59Z", true),
        ("2026-11-22T23:00:00Z", false),
        ("2026-12-23T22:59:00Z", false),
        ("2026-12-23T23:00:00Z", true),
        ("2027-01-01T22:00:00Z", true),
        ("2026-05-01T00:00:00Z", true),
        ("2025-05-01T00:00:00Z", false),
    ] {
        assert_eq!(closed.excludes(at(time)), is_excluded, "{time}");
    }
}

#[test]
fn in_mode_only_everything_else_is_excluded() {
    let office = calendar(
        r#"{"timezone":"America/New_York","mode":"only","entries":[{"weekdays":["MON-FRI"],"times":["09:00-17:30"]}]}"#,
    );
    assert!(!office.excludes(at("2026-11-18T14:00:00Z")));
    assert!(office.excludes(at("2026-11-18T13:59:59Z")));
    assert!(office.excludes(at("2026-11-18T22:30:00Z")));
    assert!(office.excludes(at("2026-11-21T15:00:00Z")));
    let night = calendar(r#"{"mode":"only","entries":[{"times":["22:00-06:00"]}]}"#);
    assert!(!night.excludes(at("2026-11-18T23:00:00Z")) && !night.excludes(at("2026-11-18T05:59:59Z")));
    assert!(night.excludes(at("2026-11-18T06:00:00Z")));
}

#[test]
fn every_invalid_part_is_named() {
    let said = problems(
        r#"{"timezone":"Berlin/Europe","entries":[{"weekdays":["SAT","holiday"],"dates":["2026-02-30","02-29","25.12."],
            "times":["9-17","10:00-10:00"]},{}]}"#,
    );
    let fields: Vec<&str> = said.iter().map(|problem| problem.split(' ').next().unwrap()).collect();
    assert_eq!(
        fields,
        [
            "timezone",
            "entries[0].weekdays[1]",
            "entries[0].dates[0]",
            "entries[0].dates[2]",
            "entries[0].times[0]",
            "entries[0].times[1]",
            "entries[1]",
        ],
        "{said:?}"
    );
    assert_eq!(problems(r#"{"entries":[]}"#), ["entries must have at least one entry"]);
}

const FILE: &str = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nSUMMARY:Christmas\\, every\r\n  year\r\n\
    DTSTART;VALUE=DATE:20201225\r\nDTEND;VALUE=DATE:20201227\r\nRRULE:FREQ=YEARLY\r\nEND:VEVENT\r\n\
    BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20260501\r\nEND:VEVENT\r\n\
    BEGIN:VEVENT\r\nSUMMARY:move\r\nDTSTART:20260610T200000Z\r\nDTEND;TZID=Europe/Berlin:20260612T060000\r\nEND:VEVENT\r\n\
    BEGIN:VEVENT\r\nSUMMARY:weekend\r\nDTSTART;VALUE=DATE:20260103\r\nRRULE:FREQ=WEEKLY;BYDAY=SA,SU\r\nEND:VEVENT\r\n\
    BEGIN:VEVENT\r\nSUMMARY:Easter\r\nDTSTART;VALUE=DATE:20260405\r\nRECURRENCE-ID:20260405\r\nEND:VEVENT\r\n\
    END:VCALENDAR\r\n";

#[test]
fn events_become_entries_and_others_are_reported() {
    let imported = read(FILE).unwrap();
    assert_eq!(imported.imported, 4);
    let [skipped] = &imported.skipped[..] else { panic!("{:?}", imported.skipped) };
    assert_eq!((skipped.line, skipped.summary.as_deref()), (23, Some("Easter")));
    assert_eq!(skipped.reason, "RECURRENCE-ID is not supported: add its dates by hand");
    let entries = serde_json::to_string(&imported.calendar.entries).unwrap();
    assert_eq!(
        entries,
        r#"[{"summary":"Christmas, every year","dates":["12-25/12-26"]},{"dates":["2026-05-01"]},{"summary":"move","dates":["2026-06-10"],"times":["22:00:00-24:00"]},{"summary":"move","dates":["2026-06-11"]},{"summary":"move","dates":["2026-06-12"],"times":["00:00-06:00:00"]},{"summary":"weekend","weekdays":["SAT","SUN"]}]"#
    );
    let calendar = Calendar::new(imported.calendar).unwrap();
    assert!(calendar.excludes(at("2031-12-26T10:00:00Z")) && !calendar.excludes(at("2031-12-28T23:00:00Z")));
    assert!(read("hello").is_err());
    assert!(read("BEGIN:VCALENDAR\nBEGIN:VEVENT\n").is_err());
}

fn read(file: &str) -> Result<CalendarImport, InvalidField> {
    import(file, "Europe/Berlin", CalendarMode::Exclude, at("2026-11-19T12:00:00Z"))
}

/// The entries of an event with these lines, and what is left out.
fn event(lines: &str) -> (Vec<CalendarEntry>, Vec<SkippedEvent>) {
    let file = format!("BEGIN:VCALENDAR\nBEGIN:VEVENT\n{lines}\nEND:VEVENT\nEND:VCALENDAR\n");
    let CalendarImport { calendar, skipped, .. } = read(&file).unwrap();
    (calendar.entries, skipped)
}

#[test]
fn other_recurrences_become_the_dates_of_the_coming_years() {
    // The fourth Thursday of November, since 1971: from a year ago on.
    let (entries, skipped) =
        event("SUMMARY:Thanksgiving\nDTSTART;VALUE=DATE:19711125\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH");
    let dates = &entries[0].dates;
    assert_eq!((dates.len(), dates[0].as_str(), dates[1].as_str()), (11, "2025-11-27", "2026-11-26"));
    assert_eq!(skipped[0].imported_until.unwrap().to_string(), "2036-11-19");
    assert!(skipped[0].reason.starts_with("its dates after 2036-11-19"), "{skipped:?}");
    // With an end, everything is there. The end is in UTC, and late on the day before in Berlin.
    let weekly = "DTSTART;TZID=Europe/Berlin:20261102T220000\nDTEND;TZID=Europe/Berlin:20261103T020000";
    let (entries, skipped) = event(&format!("{weekly}\nRRULE:FREQ=WEEKLY;UNTIL=20261116T210000Z"));
    assert_eq!(skipped, []);
    assert_eq!(
        serde_json::to_string(&entries).unwrap(),
        r#"[{"dates":["2026-11-02","2026-11-09","2026-11-16"],"times":["22:00:00-24:00"]},{"dates":["2026-11-03","2026-11-10","2026-11-17"],"times":["00:00-02:00:00"]}]"#
    );
    // Some dates are left out, others are added.
    let (entries, skipped) = event(
        "DTSTART;VALUE=DATE:20261207\nDTEND;VALUE=DATE:20261209\nRRULE:FREQ=MONTHLY;INTERVAL=2;COUNT=4\n\
         EXDATE;VALUE=DATE:20270207,20270407\nRDATE;VALUE=DATE:20270301",
    );
    assert_eq!(skipped, []);
    assert_eq!(entries[0].dates, ["2026-12-07/2026-12-08", "2027-03-01/2027-03-02", "2027-06-07/2027-06-08"]);
    let (entries, _) = event("DTSTART;VALUE=DATE:20260501\nRDATE;VALUE=DATE:20270503");
    assert_eq!(entries[0].dates, ["2026-05-01", "2027-05-03"]);
    // A holiday that was moved once.
    let (entries, skipped) =
        event("DTSTART;VALUE=DATE:20200504\nRRULE:FREQ=YEARLY\nEXDATE;VALUE=DATE:20270504");
    assert_eq!((entries[0].dates[0].as_str(), entries[0].dates[1].as_str()), ("2026-05-04", "2028-05-04"));
    assert_eq!(skipped.len(), 1);
}

#[test]
fn what_no_dates_can_say_is_reported() {
    for (lines, said) in [
        ("DTSTART;VALUE=DATE:20260101\nRRULE:FREQ=DAILY", "it has more than 1000 dates"),
        ("DTSTART;VALUE=DATE:20200101\nRRULE:FREQ=MONTHLY;COUNT=3", "it has no date from a year ago on"),
        ("DTSTART;VALUE=DATE:20260101\nRRULE:FREQ=SECONDLY", "RRULE "),
        ("DTSTART;VALUE=DATE:20260101\nRDATE;VALUE=PERIOD:20260101T000000Z/P1D", "RDATE "),
    ] {
        let (entries, skipped) = event(lines);
        assert_eq!((entries.len(), skipped.len()), (0, 1), "{lines}");
        assert!(skipped[0].reason.starts_with(said) && skipped[0].imported_until.is_none(), "{skipped:?}");
    }
}

#[test]
fn names_about_which_nothing_is_known_are_reported() {
    let weekend = calendar(r#"{"entries":[{"weekdays":["SAT","SUN"]}]}"#);
    let mut known = Calendars::new([("weekend".to_owned(), weekend)]);
    let names = ["weekend".to_owned(), "gone".to_owned()];
    assert_eq!(known.of(&names), Err("gone"));
    known.set_missing("gone");
    let found = known.of(&names).unwrap();
    assert_eq!(found.len(), 1, "one that is known to be missing excludes nothing");
    assert_eq!(excluded_by(&found, at("2026-11-21T15:00:00Z")), Some("weekend"));
    assert_eq!(excluded_by(&found, at("2026-11-20T15:00:00Z")), None);
}
