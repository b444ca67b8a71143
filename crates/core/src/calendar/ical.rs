//! Reads iCalendar files (RFC 5545): each event becomes an entry of a calendar. Events that cannot be represented are
//! reported, not guessed.

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
}

/// A property of an event: `DTSTART;VALUE=DATE:20261225`.
#[derive(Debug, Clone)]
struct Property {
    name: String,
    parameters: Vec<(String, String)>,
    value: String,
}

/// Reads the events of a file as a calendar in this zone.
pub fn import(text: &str, timezone: &str, mode: CalendarMode) -> Result<CalendarImport, InvalidField> {
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
                    match entries_of(&event, &zone) {
                        Ok(found) => {
                            imported += 1;
                            entries.extend(found);
                        }
                        Err(reason) => {
                            let summary = value_of(&event, "SUMMARY").map(plain);
                            skipped.push(SkippedEvent { line: begins, summary, reason });
                        }
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
fn local(property: &Property, zone: &Zone) -> Result<(DateTime, bool), String> {
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

/// The entries of one event.
fn entries_of(event: &[Property], zone: &Zone) -> Result<Vec<CalendarEntry>, String> {
    if value_of(event, "STATUS").is_some_and(|status| status.eq_ignore_ascii_case("CANCELLED")) {
        return Err("the event is cancelled".to_owned());
    }
    for name in ["RDATE", "EXDATE", "EXRULE", "RECURRENCE-ID"] {
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
    let repeats = match value_of(event, "RRULE") {
        None => EventRepeat::Once,
        Some(rule) => EventRepeat::of(rule, start.date())?,
    };
    let spans = days_and_times(start, end);
    if repeats == EventRepeat::Weekly && spans.len() > 1 {
        return Err("a weekly event of several days is not supported".to_owned());
    }
    let entry = |(first, last, times): (Date, Date, Option<String>)| {
        let mut entry = CalendarEntry { summary: summary.clone(), ..CalendarEntry::default() };
        entry.times.extend(times);
        match &repeats {
            EventRepeat::Once if first == last => entry.dates.push(first.to_string()),
            EventRepeat::Once => entry.dates.push(format!("{first}/{last}")),
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
    Ok(spans.into_iter().map(entry).collect())
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
    fn of(rule: &str, start: Date) -> Result<Self, String> {
        let unsupported = |part: &str| {
            format!(
                "RRULE part {part} is not supported: yearly and weekly events without an end are, others need dates"
            )
        };
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
                    let all: Option<Vec<String>> = list.split(',').map(day).collect();
                    days = Some(all.ok_or_else(|| unsupported(&format!("BYDAY={list}")))?);
                }
                _ => return Err(unsupported(&format!("{name}={value}"))),
            }
        }
        match (frequency, days) {
            (Some("YEARLY"), _) => Ok(EventRepeat::Yearly),
            (Some("WEEKLY"), Some(days)) => Ok(EventRepeat::Weekdays(days)),
            (Some("WEEKLY"), None) => Ok(EventRepeat::Weekly),
            _ => Err(unsupported("FREQ")),
        }
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
