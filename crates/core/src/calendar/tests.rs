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
    BEGIN:VEVENT\r\nSUMMARY:Easter\r\nDTSTART;VALUE=DATE:20260405\r\nRRULE:FREQ=YEARLY;BYMONTH=4;BYDAY=1SU\r\nEND:VEVENT\r\n\
    END:VCALENDAR\r\n";

#[test]
fn events_become_entries_and_others_are_reported() {
    let imported = import(FILE, "Europe/Berlin", CalendarMode::Exclude).unwrap();
    assert_eq!(imported.imported, 4);
    let [skipped] = &imported.skipped[..] else { panic!("{:?}", imported.skipped) };
    assert_eq!((skipped.line, skipped.summary.as_deref()), (23, Some("Easter")));
    assert!(skipped.reason.contains("BYDAY=1SU"), "{}", skipped.reason);
    let entries = serde_json::to_string(&imported.calendar.entries).unwrap();
    assert_eq!(
        entries,
        r#"[{"summary":"Christmas, every year","dates":["12-25/12-26"]},{"dates":["2026-05-01"]},{"summary":"move","dates":["2026-06-10"],"times":["22:00:00-24:00"]},{"summary":"move","dates":["2026-06-11"]},{"summary":"move","dates":["2026-06-12"],"times":["00:00-06:00:00"]},{"summary":"weekend","weekdays":["SAT","SUN"]}]"#
    );
    let calendar = Calendar::new(imported.calendar).unwrap();
    assert!(calendar.excludes(at("2031-12-26T10:00:00Z")) && !calendar.excludes(at("2031-12-28T23:00:00Z")));
    assert!(import("hello", "UTC", CalendarMode::Exclude).is_err());
    assert!(import("BEGIN:VCALENDAR\nBEGIN:VEVENT\n", "UTC", CalendarMode::Exclude).is_err());
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
