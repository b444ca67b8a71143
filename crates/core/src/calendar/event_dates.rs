//! The dates of an event whose recurrence a calendar cannot hold as such: it keeps those of the coming years.

use super::ical::{Property, local};
use crate::limits;
use crate::recurrence::{Recurrence, RecurrenceSpec, Zone};
use crate::time::Timestamp;
use jiff::civil::{Date, DateTime};
use std::collections::BTreeSet;

/// The starts of an event.
pub(super) struct EventStarts {
    pub starts: Vec<DateTime>,
    /// If the event goes on: the last day up to which they are complete.
    pub until: Option<Date>,
}

impl EventStarts {
    /// The starts by `RRULE`, `RDATE` and `EXDATE`, from a year ago on if there are many.
    pub fn of(event: &[Property], start: DateTime, zone: &Zone, now: Timestamp) -> Result<Self, String> {
        let rule = event.iter().find(|property| property.name == "RRULE");
        let (mut starts, until) = match rule {
            None => (BTreeSet::from([start]), None),
            Some(rule) => by_rule(&rule.value, start, zone, now)?,
        };
        starts.extend(listed(event, "RDATE", zone)?);
        for excluded in listed(event, "EXDATE", zone)? {
            starts.remove(&excluded);
        }
        match starts.is_empty() {
            true => Err("it has no date from a year ago on".to_owned()),
            false => Ok(EventStarts { starts: starts.into_iter().collect(), until }),
        }
    }
}

/// The values of all properties of this name, in the zone of the calendar.
fn listed(event: &[Property], name: &str, zone: &Zone) -> Result<Vec<DateTime>, String> {
    let mut found = Vec::new();
    for property in event.iter().filter(|property| property.name == name) {
        for value in property.value.split(',') {
            let one = Property { value: value.trim().to_owned(), ..property.clone() };
            found.push(local(&one, zone)?.0);
        }
    }
    Ok(found)
}

/// The rule is followed by readings of a clock, as if the zone were UTC, so that no clock change moves a date.
fn by_rule(
    rule: &str,
    start: DateTime,
    zone: &Zone,
    now: Timestamp,
) -> Result<(BTreeSet<DateTime>, Option<Date>), String> {
    let clock = Zone::find("UTC").map_err(|error| error.to_string())?;
    let instant = clock.instant_of(start).ok_or("DTSTART is too far away")?;
    let anchor = Timestamp::from_micros(instant);
    let spec = RecurrenceSpec::rrule(&with_local_end(rule, zone)?, anchor).in_zone("UTC");
    let recurrence = Recurrence::new(spec).map_err(|error| format!("RRULE {error}"))?;
    let mut after = anchor.max(now.minus(limits::EVENT_DATES_KEPT)).shifted(-1);
    let horizon = anchor.max(now).plus(limits::EVENT_DATES_AHEAD);
    let mut starts = BTreeSet::new();
    while let Some(at) = recurrence.next_time_after(after) {
        if at > horizon {
            return Ok((starts, Some(clock.datetime_at(horizon).date())));
        }
        if starts.len() == limits::EVENT_DATES_MAX {
            return Err(format!("it has more than {} dates", limits::EVENT_DATES_MAX));
        }
        starts.insert(clock.datetime_at(at));
        after = at;
    }
    Ok((starts, None))
}

/// The rule with its end as a local time of the calendar.
fn with_local_end(rule: &str, zone: &Zone) -> Result<String, String> {
    let part = |part: &str| {
        let Some(("UNTIL", at)) = part.split_once('=').filter(|(_, at)| at.ends_with('Z')) else {
            return Ok(part.to_owned());
        };
        let end = Property { name: "UNTIL".to_owned(), parameters: vec![], value: at.to_owned() };
        Ok(format!("UNTIL={}", local(&end, zone)?.0.strftime("%Y%m%dT%H%M%S")))
    };
    let parts: Result<Vec<String>, String> = rule.to_ascii_uppercase().split(';').map(part).collect();
    Ok(parts?.join(";"))
}
