//! Reads iCalendar files (RFC 5545): each event becomes an entry of a calendar. Events that cannot be represented are
//! reported, not guessed.

use super::event_dates::EventStarts;
use super::{CalendarEntry, CalendarMode, CalendarSpec};
use crate::job::InvalidField;
use crate::limits;
use crate::recurrence::Zone;
use crate::time::Timestamp;
use jiff::ToSpan;
use jiff::civil::{Date, DateTime, Time};

/// The result of reading a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalendarImport {
    pub calendar: CalendarSpec,
    /// Events that became entries.
    pub imported: usize,
    pub skipped: Vec<SkippedEvent>,
}

/// An event that is not in the calendar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedEvent {
    /// The line of the file at which it begins.
    pub line: usize,
    pub summary: Option<String>,
    pub reason: String,
    /// If only its later dates are left out: the last day up to which it is in the calendar.
    pub imported_until: Option<Date>,
}

/// A property of an event: `DTSTART;VALUE=DATE:20261225`.
#[derive(Debug, Clone)]
pub(super) struct Property {
    pub name: String,
    pub parameters: Vec<(String, String)>,
    pub value: String,
}

/// Reads the events of a file as a calendar in this zone.
pub fn import(
    text: &str,
    timezone: &str,
    mode: CalendarMode,
    now: Timestamp,
) -> Result<CalendarImport, InvalidField> {
    let invalid = |fix: String| InvalidField::new("icalendar", fix);
    if text.len() > limits::ICALENDAR_BYTES_MAX {
        return Err(invalid(format!("must be at most {} bytes", limits::ICALENDAR_BYTES_MAX)));
    }
    let zone = Zone::find(timezone).map_err(|error| InvalidField::new("timezone", error.to_string()))?;
    let mut entries: Vec<CalendarEntry> = Vec::new();
    let (mut imported, mut skipped) = (0, Vec::new());
    let (mut components, mut event, mut begins): (Vec<String>, Vec<Property>, usize) = (vec![], vec![], 0);
    let mut is_calendar = false;
    for (line, text) in unfolded(text) {
        let Some(property) = Property::parse(&text) else {
            return Err(invalid(format!("line {line} is not a property such as DTSTART:20261225T090000")));
        };
        match property.name.as_str() {
            "BEGIN" => {
                let component = property.value.to_ascii_uppercase();
                is_calendar |= component == "VCALENDAR";
                if component == "VEVENT" {
                    (event, begins) = (vec![], line);
                }
                components.push(component);
            }
            "END" => {
                let component = property.value.to_ascii_uppercase();
                if components.pop().as_deref() != Some(component.as_str()) {
                    return Err(invalid(format!("line {line} ends {component}, which is not open")));
                }
                if component == "VEVENT" {
                    let summary = value_of(&event, "SUMMARY").map(plain);
                    let left_out = |reason, imported_until| SkippedEvent {
                        line: begins,
                        summary,
                        reason,
                        imported_until,
                    };
                    match entries_of(&event, &zone, now) {
                        Ok((found, until)) => {
                            imported += 1;
                            entries.extend(found);
                            skipped.extend(until.map(|until| {
                                let reason = format!("its dates after {until}: import it again before then");
                                left_out(reason, Some(until))
                            }));
                        }
                        Err(reason) => skipped.push(left_out(reason, None)),
                    }
                }
            }
            _ if components.last().is_some_and(|component| component == "VEVENT") => event.push(property),
            _ => {}
        }
    }
    if !is_calendar || !components.is_empty() {
        let fix = "must be an iCalendar file: BEGIN:VCALENDAR … END:VCALENDAR";
        return Err(invalid(fix.to_owned()));
    }
    let calendar = CalendarSpec { description: None, timezone: zone.name().to_owned(), mode, entries };
    Ok(CalendarImport { calendar, imported, skipped })
}

/// The lines of a file with continuations joined, and the number at which each begins.
fn unfolded(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_end_matches('\r');
        match (line.strip_prefix([' ', '\t']), lines.last_mut()) {
            (Some(rest), Some((_, last))) => last.push_str(rest),
            _ if line.trim().is_empty() => {}
            _ => lines.push((number + 1, line.trim_start_matches('\u{feff}').to_owned())),
        }
    }
    lines
}

impl Property {
    fn parse(line: &str) -> Option<Self> {
        let mut in_quotes = false;
        let colon = line.char_indices().find(|(_, char)| {
            in_quotes ^= *char == '"';
            *char == ':' && !in_quotes
        })?;
        let (head, value) = (&line[..colon.0], &line[colon.0 + 1..]);
        let mut parts = head.split(';');
        let name = parts.next()?.trim().to_ascii_uppercase();
        let parameter = |text: &str| {
            let (name, value) = text.split_once('=')?;
            Some((name.to_ascii_uppercase(), value.trim_matches('"').to_owned()))
        };
        let parameters = parts.filter_map(parameter).collect();
        (!name.is_empty()).then(|| Property { name, parameters, value: value.trim().to_owned() })
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

fn value_of<'a>(event: &'a [Property], name: &str) -> Option<&'a str> {
    event.iter().find(|property| property.name == name).map(|property| property.value.as_str())
}

/// A text without the escapes of iCalendar, on one line.
fn plain(text: &str) -> String {
    let text = text.replace("\\n", " ").replace("\\N", " ").replace("\\,", ",").replace("\\;", ";");
    let line = text.replace("\\\\", "\\");
    line.chars().filter(|char| !char.is_control()).take(limits::CALENDAR_SUMMARY_CHARS_MAX).collect()
}

/// An end of an event in the zone of the calendar, and whether it is a whole day.
pub(super) fn local(property: &Property, zone: &Zone) -> Result<(DateTime, bool), String> {
    let Property { name, value, .. } = property;
    let fix = || format!("{name} {value} is not a date such as 20261225 or a time such as 20261225T090000Z");
    if value.len() == 8 {
        let date = Date::strptime("%Y%m%d", value).map_err(|_| fix())?;
        return Ok((date.to_datetime(Time::midnight()), true));
    }
    let (text, is_utc) = value.strip_suffix('Z').map_or((value.as_str(), false), |text| (text, true));
    let at = DateTime::strptime("%Y%m%dT%H%M%S", text).map_err(|_| fix())?;
    let named = match property.parameter("TZID") {
        _ if is_utc => Some(Zone::find("UTC").map_err(|error| error.to_string())?),
        Some(id) => Some(Zone::find(id).map_err(|error| error.to_string())?),
        // A floating time is one in every zone.
        None => None,
    };
    match named.filter(|named| named.name() != zone.name()) {
        None => Ok((at, false)),
        Some(named) => {
            let instant = named.instant_of(at).ok_or_else(fix)?;
            Ok((zone.datetime_at(Timestamp::from_micros(instant)), false))
        }
    }
}

/// The entries of one event, and the last day up to which they are complete if they have not all of its dates.
fn entries_of(
    event: &[Property],
    zone: &Zone,
    now: Timestamp,
) -> Result<(Vec<CalendarEntry>, Option<Date>), String> {
    if value_of(event, "STATUS").is_some_and(|status| status.eq_ignore_ascii_case("CANCELLED")) {
        return Err("the event is cancelled".to_owned());
    }
    for name in ["EXRULE", "RECURRENCE-ID"] {
        if value_of(event, name).is_some() {
            return Err(format!("{name} is not supported: add its dates by hand"));
        }
    }
    let property = |name: &str| event.iter().find(|property| property.name == name);
    let start = property("DTSTART").ok_or("DTSTART is missing")?;
    let (start, is_date) = local(start, zone)?;
    let end = match (property("DTEND"), property("DURATION")) {
        (Some(end), _) => local(end, zone)?.0,
        (None, Some(duration)) => {
            let fix = || format!("DURATION {} is not understood", duration.value);
            let span: jiff::Span = duration.value.parse().map_err(|_| fix())?;
            start.checked_add(span).map_err(|_| fix())?
        }
        (None, None) if is_date => start.checked_add(1.day()).map_err(|error| error.to_string())?,
        (None, None) => return Err("DTEND is missing".to_owned()),
    };
    if end <= start {
        return Err("it ends before it starts".to_owned());
    }
    let summary = value_of(event, "SUMMARY").map(plain).filter(|text| !text.is_empty());
    let spans = days_and_times(start, end);
    let named = |times: Option<String>| {
        let mut entry = CalendarEntry { summary: summary.clone(), ..CalendarEntry::default() };
        entry.times.extend(times);
        entry
    };
    let is_changed = ["RDATE", "EXDATE"].into_iter().any(|name| value_of(event, name).is_some());
    let repeats = match value_of(event, "RRULE") {
        None => Some(EventRepeat::Once),
        Some(rule) => EventRepeat::of(rule, start.date()),
    };
    let is_held = |repeats: &EventRepeat| !is_changed && (spans.len() == 1 || !repeats.is_weekly());
    let Some(repeats) = repeats.filter(is_held) else {
        let EventStarts { starts, until } = EventStarts::of(event, start, zone, now)?;
        let mut entries: Vec<CalendarEntry> = spans.into_iter().map(|(.., times)| named(times)).collect();
        let length = start.until(end).map_err(|error| error.to_string())?;
        for start in starts {
            let end = start.checked_add(length).map_err(|error| error.to_string())?;
            for ((first, last, _), entry) in days_and_times(start, end).into_iter().zip(&mut entries) {
                entry.dates.push(range(first, last));
            }
        }
        return Ok((entries, until));
    };
    let entry = |(first, last, times): (Date, Date, Option<String>)| {
        let mut entry = named(times);
        match &repeats {
            EventRepeat::Once => entry.dates.push(range(first, last)),
            EventRepeat::Yearly => {
                let text = |date: Date| format!("{:02}-{:02}", date.month(), date.day());
                let range =
                    if first == last { text(first) } else { format!("{}/{}", text(first), text(last)) };
                entry.dates.push(range);
            }
            EventRepeat::Weekly => entry.weekdays.push(format!("{:?}", first.weekday())[..3].to_uppercase()),
            EventRepeat::Weekdays(days) => entry.weekdays.clone_from(days),
        }
        entry
    };
    Ok((spans.into_iter().map(entry).collect(), None))
}

fn range(first: Date, last: Date) -> String {
    if first == last { first.to_string() } else { format!("{first}/{last}") }
}

/// How an event repeats, as far as a calendar can say it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum EventRepeat {
    Once,
    Yearly,
    Weekly,
    Weekdays(Vec<String>),
}

impl EventRepeat {
    /// `None` if only dates can say it.
    fn of(rule: &str, start: Date) -> Option<Self> {
        let parts: Vec<(String, String)> = rule
            .split(';')
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.to_ascii_uppercase(), value.to_ascii_uppercase()))
            .collect();
        let frequency = parts.iter().find(|(name, _)| name == "FREQ").map(|(_, value)| value.as_str());
        let mut days = None;
        for (name, value) in &parts {
            match (frequency, name.as_str(), value.as_str()) {
                (Some("YEARLY" | "WEEKLY"), "FREQ", _) | (_, "INTERVAL", "1") | (_, "WKST", _) => {}
                (Some("YEARLY"), "BYMONTH", month) if month.parse() == Ok(start.month()) => {}
                (Some("YEARLY"), "BYMONTHDAY", day) if day.parse() == Ok(start.day()) => {}
                (Some("WEEKLY"), "BYDAY", list) => {
                    let names = [("MO", "MON"), ("TU", "TUE"), ("WE", "WED"), ("TH", "THU"), ("FR", "FRI")];
                    let names = [&names[..], &[("SA", "SAT"), ("SU", "SUN")]].concat();
                    let day = |text: &str| {
                        names.iter().find(|(short, _)| *short == text).map(|(_, day)| (*day).to_owned())
                    };
                    days = Some(list.split(',').map(day).collect::<Option<Vec<String>>>()?);
                }
                _ => return None,
            }
        }
        match (frequency, days) {
            (Some("YEARLY"), _) => Some(EventRepeat::Yearly),
            (Some("WEEKLY"), Some(days)) => Some(EventRepeat::Weekdays(days)),
            (Some("WEEKLY"), None) => Some(EventRepeat::Weekly),
            _ => None,
        }
    }

    fn is_weekly(&self) -> bool {
        matches!(self, EventRepeat::Weekly | EventRepeat::Weekdays(_))
    }
}

/// A time span as ranges of days with times of day: the first day from its start, whole days, the last day to its end.
fn days_and_times(start: DateTime, end: DateTime) -> Vec<(Date, Date, Option<String>)> {
    let clock = |time: Time| format!("{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second());
    let midnight = Time::midnight();
    let next = |date: Date| date.tomorrow().unwrap_or(date);
    let before = |date: Date| date.yesterday().unwrap_or(date);
    if start.date() == end.date() {
        return vec![(
            start.date(),
            start.date(),
            Some(format!("{}-{}", clock(start.time()), clock(end.time()))),
        )];
    }
    let mut spans = Vec::new();
    let mut first_whole = start.date();
    if start.time() != midnight {
        spans.push((start.date(), start.date(), Some(format!("{}-24:00", clock(start.time())))));
        first_whole = next(start.date());
    }
    let last_whole = before(end.date());
    if first_whole <= last_whole {
        spans.push((first_whole, last_whole, None));
    }
    if end.time() != midnight {
        spans.push((end.date(), end.date(), Some(format!("00:00-{}", clock(end.time())))));
    }
    spans
}
