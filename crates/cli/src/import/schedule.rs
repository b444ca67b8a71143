//! Cron schedules of other programs: the fields that give a job the same times, and a comparison of both around
//! the next clock changes.

use super::{JobDraft, MeaningChange};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use punctual_core::recurrence::{DstGap, DstOverlap, Recurrence, RecurrenceSpec};
use punctual_core::time::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// How far ahead clock changes are considered.
const HORIZON: Duration = Duration::from_secs(400 * 24 * 3_600);
/// How long before and after a clock change times are compared. No change is longer.
const AROUND: Duration = Duration::from_secs(6 * 3_600);
/// Times in a table, and how far they are from the first difference.
const TABLE_ROWS: usize = 10;
const TABLE_SPAN: Duration = Duration::from_secs(3_600);

/// A cron schedule of another program, as a pattern of Punctual.
pub struct SourceCron {
    pub pattern: String,
    pub zone: String,
    pub clock: SourceClock,
}

/// How a program treats local times that a clock change skips or repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceClock {
    Known {
        gap: SourceGap,
        overlap: DstOverlap,
    },
    /// Its documentation does not say.
    Unknown {
        program: &'static str,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceGap {
    Skip,
    /// Each skipped time runs right after the change, also if there are several.
    EachRightAfter,
}

/// When an entry runs, and when its job does, around the first difference.
#[derive(Debug, PartialEq, Serialize)]
pub struct FireTables {
    /// Unknown if the other program does not document it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Vec<FireRow>>,
    pub after: Vec<FireRow>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FireRow {
    pub utc: Timestamp,
    pub local: String,
}

/// The error in the name of a zone.
pub fn check_zone(zone: &str) -> Result<(), String> {
    let spec = RecurrenceSpec::cron("0 0 * * *", 0).in_zone(zone);
    Recurrence::new(spec).map(drop).map_err(|error| error.to_string())
}

impl SourceCron {
    /// Sets the fields of a job with this schedule. The outcome tells how its times differ.
    pub fn apply_to(&self, job: &mut JobDraft, now: Timestamp) -> Result<Option<MeaningChange>, String> {
        let mut spec = RecurrenceSpec::cron(&self.pattern, 0).in_zone(&self.zone);
        let plain = Recurrence::new(spec.clone()).map_err(|error| error.to_string())?;
        let windows = Windows::of(&self.zone, now)?;
        job.insert("cron_expression".to_owned(), Value::from(self.pattern.as_str()));
        if self.zone != "UTC" {
            job.insert("timezone".to_owned(), Value::from(self.zone.as_str()));
        }
        let SourceClock::Known { gap, overlap } = self.clock else {
            return Ok(self.undocumented(&plain, &windows));
        };
        if windows.transitions.is_empty() {
            return Ok(None);
        }
        let wanted = match gap {
            SourceGap::Skip => DstGap::Skip,
            SourceGap::EachRightAfter => DstGap::RunAfter,
        };
        if plain.dst_gap() != wanted {
            spec.dst_gap = Some(wanted);
            job.insert("dst_gap".to_owned(), word(&wanted));
        }
        if plain.dst_overlap() != overlap {
            spec.dst_overlap = Some(overlap);
            job.insert("dst_overlap".to_owned(), word(&overlap));
        }
        let recurrence = Recurrence::new(spec).map_err(|error| error.to_string())?;
        let civil =
            Recurrence::new(RecurrenceSpec::cron(&self.pattern, 0)).map_err(|error| error.to_string())?;
        let tables = windows.transitions.iter().find_map(|transition| {
            let before = windows.source_fires(&civil, *transition, (gap, overlap));
            let after = windows.fires(&recurrence, *transition);
            windows.difference(before, after)
        });
        Ok(tables.map(|fires| MeaningChange {
            what: "it runs at other times when clocks change: runs at the same moment are one run".to_owned(),
            fires: Some(fires),
        }))
    }

    /// A remark if rules about clock changes matter to this schedule.
    fn undocumented(&self, recurrence: &Recurrence, windows: &Windows) -> Option<MeaningChange> {
        let SourceClock::Unknown { program } = self.clock else { return None };
        let with = |gap, overlap| {
            let mut spec = RecurrenceSpec::cron(&self.pattern, 0).in_zone(&self.zone);
            (spec.dst_gap, spec.dst_overlap) = (Some(gap), Some(overlap));
            Recurrence::new(spec).ok()
        };
        let (one, other) =
            (with(DstGap::Skip, DstOverlap::Both)?, with(DstGap::RunAfter, DstOverlap::First)?);
        let transition = windows
            .transitions
            .iter()
            .find(|transition| windows.fires(&one, **transition) != windows.fires(&other, **transition))?;
        let mut after = windows.fires(recurrence, *transition);
        after.retain(|fire| is_near(fire.utc, *transition));
        after.truncate(TABLE_ROWS);
        Some(MeaningChange {
            what: format!(
                "{program} does not document what it does when clocks change; compare these runs with what you \
                 expect, and set dst_gap and dst_overlap if you want others"
            ),
            fires: Some(FireTables { before: None, after }),
        })
    }
}

/// The clock changes of a zone.
struct Windows {
    zone: TimeZone,
    transitions: Vec<Timestamp>,
}

impl Windows {
    fn of(name: &str, now: Timestamp) -> Result<Self, String> {
        let zone = TimeZone::get(name).map_err(|error| error.to_string())?;
        let end = to_jiff(now.plus(HORIZON));
        let transitions = zone
            .following(to_jiff(now))
            .map(|transition| transition.timestamp())
            .take_while(|at| *at < end)
            .map(|at| Timestamp::from_micros(at.as_microsecond()))
            .collect();
        Ok(Windows { zone, transitions })
    }

    /// The runs of a job around a clock change.
    fn fires(&self, recurrence: &Recurrence, transition: Timestamp) -> Vec<FireRow> {
        let end = transition.plus(AROUND);
        let mut last = transition.minus(AROUND);
        let mut fires = Vec::new();
        while let Some(at) = recurrence.next_time_after(last).filter(|at| *at <= end) {
            fires.push(self.row(at));
            last = at;
        }
        fires
    }

    /// The runs of a program around a clock change. `civil` has its local times, on UTC clocks.
    fn source_fires(
        &self,
        civil: &Recurrence,
        transition: Timestamp,
        (gap, overlap): (SourceGap, DstOverlap),
    ) -> Vec<FireRow> {
        let (start, end) = (transition.minus(AROUND), transition.plus(AROUND));
        let reading = |at: Timestamp| {
            let local = self.zone.to_datetime(to_jiff(at));
            TimeZone::UTC.to_timestamp(local).map_or(at, |at| Timestamp::from_micros(at.as_microsecond()))
        };
        // Around a change, local times go back and forth: take a little more, then sort and cut.
        let (mut last, last_reading) = (reading(start).minus(AROUND), reading(end).plus(AROUND));
        let mut fires = Vec::new();
        while let Some(at) = civil.next_time_after(last).filter(|at| *at <= last_reading) {
            last = at;
            let local = TimeZone::UTC.to_datetime(to_jiff(at));
            fires.extend(self.instants(local, transition, gap, overlap));
        }
        fires.retain(|at| *at > start && *at <= end);
        fires.sort_unstable();
        fires.into_iter().map(|at| self.row(at)).collect()
    }

    /// When a local time occurs under these rules.
    fn instants(
        &self,
        local: DateTime,
        transition: Timestamp,
        gap: SourceGap,
        overlap: DstOverlap,
    ) -> Vec<Timestamp> {
        let at = |offset: jiff::tz::Offset| {
            let at = offset.to_timestamp(local).ok()?;
            Some(Timestamp::from_micros(at.as_microsecond()))
        };
        let instants = match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => [at(offset), None],
            AmbiguousOffset::Gap { .. } => match gap {
                SourceGap::Skip => [None, None],
                SourceGap::EachRightAfter => [Some(transition), None],
            },
            AmbiguousOffset::Fold { before, after } => match overlap {
                DstOverlap::First => [at(before), None],
                DstOverlap::Second => [at(after), None],
                DstOverlap::Both => [at(before), at(after)],
            },
        };
        instants.into_iter().flatten().collect()
    }

    /// Both tables from the first difference on.
    fn difference(&self, before: Vec<FireRow>, after: Vec<FireRow>) -> Option<FireTables> {
        let common = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
        let first = before.get(common).into_iter().chain(after.get(common)).map(|fire| fire.utc).min()?;
        let near = |fires: Vec<FireRow>| {
            fires.into_iter().filter(|fire| is_near(fire.utc, first)).take(TABLE_ROWS).collect()
        };
        Some(FireTables { before: Some(near(before)), after: near(after) })
    }

    fn row(&self, utc: Timestamp) -> FireRow {
        let local = to_jiff(utc).to_zoned(self.zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
        FireRow { utc, local }
    }
}

fn is_near(at: Timestamp, other: Timestamp) -> bool {
    at >= other.minus(TABLE_SPAN) && at <= other.plus(TABLE_SPAN)
}

fn to_jiff(at: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_microsecond(at.as_micros()).unwrap_or_default()
}

/// A choice as the API writes it.
pub fn word(choice: &impl Serialize) -> Value {
    serde_json::to_value(choice).unwrap_or_default()
}

/// A day of the month and a day of the week that must both match, as a pair of fields. Cron means either of
/// them if both are restricted.
pub fn both_days(month_day: &str, week_day: &str) -> Option<(String, String)> {
    let is_free = |field: &str| field.starts_with(['*', '?']);
    if is_free(month_day) || is_free(week_day) {
        return Some((month_day.to_owned(), week_day.to_owned()));
    }
    // Every n-th day from the first: the same as a wildcard, which is combined as wanted.
    if let Some(step) = month_day.strip_prefix("1/").or_else(|| month_day.strip_prefix("1-31/")) {
        return Some((format!("*/{step}"), week_day.to_owned()));
    }
    let is_single = !week_day.contains([',', '-', '/', '#', 'L']);
    let number = match month_day {
        "1-7" => "#1",
        "8-14" => "#2",
        "15-21" => "#3",
        "22-28" => "#4",
        "L-6-L" => "L",
        _ => return None,
    };
    is_single.then(|| ("*".to_owned(), format!("{week_day}{number}")))
}
