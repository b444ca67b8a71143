//! Calendars: named sets of days and times at which jobs must not run, or at which alone they may. A calendar is a
//! pure function of an instant; which calendars a job uses, and who loads them, is decided elsewhere.
//!
//! A calendar is a list of entries. A local time is *in* the calendar if one of its entries matches: every condition
//! that the entry has holds. In mode `exclude`, times in the calendar are excluded; in mode `only`, all others are.

mod event_dates;
mod ical;
mod text;

pub use ical::{CalendarImport, SkippedEvent, import};

use crate::job::InvalidField;
use crate::limits;
use crate::names::{line_problem, path_name_problem};
use crate::recurrence::{UnknownZone, Zone};
use crate::time::Timestamp;
use jiff::civil::{Date, Weekday};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use text::{DaySpan, TimeSpan, WeekdaySpan};

/// A calendar as users write it, which is also its stored form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalendarSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The IANA name of the zone in which its days and times are read.
    #[serde(default = "utc")]
    pub timezone: String,
    #[serde(default)]
    pub mode: CalendarMode,
    pub entries: Vec<CalendarEntry>,
}

/// What a calendar says about the times in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum CalendarMode {
    /// Jobs do not run then.
    #[default]
    Exclude,
    /// Jobs run only then.
    Only,
}

/// Conditions on a local time, of which all must hold. One without any condition is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct CalendarEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Such as `SAT`, or `MON-FRI`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weekdays: Vec<String>,
    /// Such as `2026-12-25`, `2026-12-24/2026-12-31`, or every year `12-25`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dates: Vec<String>,
    /// Such as `22:00-06:00`; the end is excluded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<String>,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// A valid calendar.
#[derive(Debug, Clone)]
pub struct Calendar {
    spec: CalendarSpec,
    zone: Zone,
    entries: Vec<Conditions>,
}

/// Two are equal if their specs are.
impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

#[derive(Debug, Clone, Default)]
struct Conditions {
    weekdays: Vec<WeekdaySpan>,
    dates: Vec<DaySpan>,
    times: Vec<TimeSpan>,
}

impl Calendar {
    /// Checks a calendar and returns all errors.
    pub fn new(mut spec: CalendarSpec) -> Result<Self, Vec<InvalidField>> {
        let mut problems = Vec::new();
        let mut refuse = |field: String, fix: String| problems.push(InvalidField::new(field, fix));
        let zone = Zone::find(&spec.timezone).map_err(|error: UnknownZone| {
            refuse("timezone".to_owned(), format!("must be an IANA time zone: {error}"));
        });
        if let Some(fix) = spec.description.as_deref().and_then(line_problem) {
            refuse("description".to_owned(), fix);
        }
        if spec.entries.is_empty() {
            refuse("entries".to_owned(), "must have at least one entry".to_owned());
        }
        let dates: usize = spec.entries.iter().map(CalendarEntry::size).sum();
        if dates > limits::CALENDAR_ENTRIES_MAX {
            let most = limits::CALENDAR_ENTRIES_MAX;
            let fix = format!("must have at most {most} weekdays, dates and times in all, not {dates}");
            refuse("entries".to_owned(), fix);
        }
        let mut entries = Vec::with_capacity(spec.entries.len());
        for (index, entry) in spec.entries.iter().enumerate() {
            let mut in_entry = |field: &str, fix: String| refuse(format!("entries[{index}]{field}"), fix);
            if let Some(fix) = entry.summary.as_deref().and_then(line_problem) {
                in_entry(".summary", fix);
            }
            if entry.size() == 0 {
                in_entry("", "must have weekdays, dates or times".to_owned());
            }
            entries.push(Conditions {
                weekdays: read_all(&entry.weekdays, ".weekdays", WeekdaySpan::parse, &mut in_entry),
                dates: read_all(&entry.dates, ".dates", DaySpan::parse, &mut in_entry),
                times: read_all(&entry.times, ".times", TimeSpan::parse, &mut in_entry),
            });
        }
        match zone {
            Ok(zone) if problems.is_empty() => {
                spec.timezone = zone.name().to_owned();
                Ok(Calendar { spec, zone, entries })
            }
            _ => Err(problems),
        }
    }

    pub const fn spec(&self) -> &CalendarSpec {
        &self.spec
    }

    /// Whether jobs must not run at this instant.
    pub fn excludes(&self, at: Timestamp) -> bool {
        let (date, second) = self.zone.civil_at(at);
        let is_in = self.entries.iter().any(|entry| entry.matches(date, second));
        is_in == (self.spec.mode == CalendarMode::Exclude)
    }
}

impl CalendarEntry {
    fn size(&self) -> usize {
        self.weekdays.len() + self.dates.len() + self.times.len()
    }
}

fn read_all<T>(
    texts: &[String],
    field: &str,
    parse: impl Fn(&str) -> Result<T, String>,
    refuse: &mut impl FnMut(&str, String),
) -> Vec<T> {
    let read = |(index, text): (usize, &String)| match parse(text) {
        Ok(value) => Some(value),
        Err(fix) => {
            refuse(&format!("{field}[{index}]"), fix);
            None
        }
    };
    texts.iter().enumerate().filter_map(read).collect()
}

impl Conditions {
    fn matches(&self, date: Date, second_of_day: u32) -> bool {
        let holds = |is_given: bool, any: bool| !is_given || any;
        holds(!self.weekdays.is_empty(), self.weekdays.iter().any(|span| span.contains(date.weekday())))
            && holds(!self.times.is_empty(), self.times.iter().any(|span| span.contains(second_of_day)))
            && holds(!self.dates.is_empty(), self.dates.iter().any(|span| span.contains(date)))
    }
}

/// What is wrong with the name of a calendar.
pub fn calendar_name_problem(name: &str) -> Option<String> {
    path_name_problem(name)
}

/// Calendars by name, as one node knows them. A name that is known to be missing has no calendar.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Calendars {
    known: BTreeMap<String, Option<Arc<Calendar>>>,
}

/// Calendars of one job, with their names.
pub type NamedCalendars = Vec<(String, Arc<Calendar>)>;

impl Calendars {
    pub fn new(known: impl IntoIterator<Item = (String, Calendar)>) -> Self {
        Calendars { known: known.into_iter().map(|(name, one)| (name, Some(Arc::new(one)))).collect() }
    }

    /// Records that there is no calendar of this name.
    pub fn set_missing(&mut self, name: &str) {
        self.known.entry(name.to_owned()).or_default();
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.known.iter().filter(|(_, calendar)| calendar.is_some()).map(|(name, _)| name.as_str())
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Calendar>> {
        self.known.get(name)?.as_ref()
    }

    /// The calendars of these names, without those that are known to be missing; otherwise the first name about which
    /// nothing is known.
    pub fn of<'a>(&self, names: &'a [String]) -> Result<NamedCalendars, &'a str> {
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            match self.known.get(name) {
                None => return Err(name),
                Some(Some(calendar)) => found.push((name.clone(), Arc::clone(calendar))),
                Some(None) => {}
            }
        }
        Ok(found)
    }
}

/// The name of the first calendar that excludes this instant.
pub fn excluded_by(calendars: &NamedCalendars, at: Timestamp) -> Option<&str> {
    calendars.iter().find(|(_, calendar)| calendar.excludes(at)).map(|(name, _)| name.as_str())
}

/// The weekday of a text such as `MON` or `monday`.
fn weekday(text: &str) -> Option<Weekday> {
    let days = [
        (Weekday::Monday, "monday"),
        (Weekday::Tuesday, "tuesday"),
        (Weekday::Wednesday, "wednesday"),
        (Weekday::Thursday, "thursday"),
        (Weekday::Friday, "friday"),
        (Weekday::Saturday, "saturday"),
        (Weekday::Sunday, "sunday"),
    ];
    let word = text.trim().to_ascii_lowercase();
    days.into_iter().find(|(_, name)| *name == word || name[..3] == word).map(|(day, _)| day)
}

#[cfg(test)]
mod tests;
