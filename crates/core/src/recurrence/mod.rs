//! Recurring schedules: the instants of a cron pattern, an interval or a recurrence rule in a time zone.
//!
//! Everything here is a pure function of its arguments: no clock, no randomness, and only the bundled zone
//! data or that of the operator, so that nodes with the same data compute the same result. The caller handles how many runs a job has left and
//! what to do about missed ones.
//!
//! The work is split in two. A civil pattern says which wall-clock readings a schedule contains and knows no
//! zone. The module `dst` maps those readings to a zone's clocks and resolves the ones that clocks skip or
//! repeat. Both count without stepping, so a year of a schedule that fires every second costs no more than
//! one that fires daily.
//!
//! - Both ends of the window, `start_at` and `end_at`, are included.
//! - An interval's anchor is its first occurrence. It is an instant, so the choices about clock changes do
//!   not apply to it. If the interval is one of days or longer, the later occurrences are readings of the
//!   zone's clock.
//! - Schedules fire from 1970 to the end of 9998.

mod civil;
mod cron;
mod dst;
mod hash;
mod interval;
mod rrule;
mod spec;
mod union;
mod zone;

pub use cron::{CronError, CronField};
pub use dst::{DstDefaults, DstEffect, DstGap, DstOverlap};
pub use hash::{jitter, seed};
pub use interval::IntervalError;
pub use rrule::RruleError;
pub use spec::{RecurrenceError, RecurrenceSpec, Rule, UnionPart};
pub use zone::{
    UnknownZone, Zone, ZoneDataError, ZoneFiles, bundled_tzdb_version, install_zones, tzdb_version,
};

use crate::time::Timestamp;
use civil::{Civil, Pattern};
use cron::{CronPattern, PatternSource};
use dst::LocalPattern;
use interval::{CalendarSteps, ElapsedSteps, Interval};
use rrule::{RuleParts, RulePattern};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use union::RecurrenceUnion;

/// Bytes of a cron pattern, an interval or the name of a zone. Longer ones are rejected.
pub const RECURRENCE_TEXT_BYTES_MAX: usize = 512;

/// The first instant that is considered: early enough for the start of 1970 in every zone.
const FIRST_US: i64 = -2 * civil::DAY_US;
/// The end of the last instant: 9998-12-29, before which no zone's local time is in 9999.
const END_US: i64 = 253_370_764_800_000_000 - 3 * civil::DAY_US;

/// One occurrence of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PreviewedFire {
    pub at: Timestamp,
    /// The local time with its offset, as RFC 3339.
    pub local: String,
    /// The effect of a clock change on it.
    pub dst: Option<DstEffect>,
    /// The name of the schedule that it belongs to, if a job has several.
    pub schedule: Option<String>,
}

/// A valid recurring schedule. It is stored as its [`RecurrenceSpec`], and two are equal if their specs are.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "RecurrenceSpec", into = "RecurrenceSpec")]
pub struct Recurrence {
    spec: RecurrenceSpec,
    zone: Zone,
    timing: Timing,
}

#[derive(Debug, Clone)]
enum Timing {
    Elapsed(ElapsedSteps),
    Local {
        pattern: Pattern,
        /// An occurrence in addition to those of the pattern, before all of them.
        anchor: Option<i64>,
    },
    Union(RecurrenceUnion),
}

impl PartialEq for Recurrence {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Eq for Recurrence {}

impl From<Recurrence> for RecurrenceSpec {
    fn from(recurrence: Recurrence) -> Self {
        recurrence.spec
    }
}

impl TryFrom<RecurrenceSpec> for Recurrence {
    type Error = RecurrenceError;

    fn try_from(spec: RecurrenceSpec) -> Result<Self, RecurrenceError> {
        Recurrence::read(spec, PatternSource::Stored)
    }
}

impl Recurrence {
    /// A schedule as a user asks for it. Stored ones are deserialized, by the rules that they were stored
    /// under.
    pub fn new(spec: RecurrenceSpec) -> Result<Self, RecurrenceError> {
        let recurrence = Recurrence::read(spec, PatternSource::Submitted)?;
        recurrence.refuse_idle_choices()?;
        Ok(recurrence)
    }

    fn read(mut spec: RecurrenceSpec, source: PatternSource) -> Result<Self, RecurrenceError> {
        spec.check_bounds()?;
        let zone = Zone::find(&spec.zone)?;
        spec.zone = zone.name().to_owned();
        let timing = match &mut spec.rule {
            Rule::Cron { pattern, seed } => {
                let parsed = CronPattern::parse(pattern, *seed, source)?;
                if !parsed.uses_hash() {
                    *seed = 0;
                }
                Timing::Local { pattern: Pattern::Cron(parsed), anchor: None }
            }
            Rule::Interval { every, anchor } => interval_timing(Interval::parse(every)?, *anchor, &zone),
            Rule::Rrule { rule, anchor, last } => {
                let written = rrule::read(rule, &zone)?;
                if let Some(start) = written.start {
                    *anchor = Timestamp::from_micros(start);
                }
                if source == PatternSource::Submitted || last.is_none() {
                    *last = last_of(&written.parts, *anchor, &zone)?;
                }
                *rule = written.rule;
                let start = whole_second(*anchor, &zone);
                let pattern = RulePattern::new(written.parts, start, last.map(Civil));
                if source == PatternSource::Submitted {
                    pattern.check_has_readings()?;
                }
                Timing::Local { pattern: Pattern::Rule(Box::new(pattern)), anchor: None }
            }
            Rule::Union { parts } => Timing::Union(RecurrenceUnion::read(parts, source)?),
        };
        let mut recurrence = Recurrence { spec, zone, timing };
        if !recurrence.depends_on_defaults() {
            recurrence.spec.dst_defaults = DstDefaults::of_stored();
        }
        Ok(recurrence)
    }

    /// Choices about clock changes that would have no effect are probably a mistake.
    fn refuse_idle_choices(&self) -> Result<(), RecurrenceError> {
        let RecurrenceSpec { rule, dst_gap, dst_overlap, .. } = &self.spec;
        let (Timing::Elapsed(_), Rule::Interval { every, .. }) = (&self.timing, rule) else { return Ok(()) };
        let choices = [("dst_gap", dst_gap.is_some()), ("dst_overlap", dst_overlap.is_some())];
        match choices.into_iter().find(|(_, is_given)| *is_given) {
            Some((field, _)) => Err(RecurrenceError::DstOnElapsed { field, every: every.clone() }),
            None => Ok(()),
        }
    }

    pub const fn spec(&self) -> &RecurrenceSpec {
        &self.spec
    }

    /// Whether clock changes can affect it.
    pub fn follows_clocks(&self) -> bool {
        match &self.timing {
            Timing::Elapsed(_) => false,
            Timing::Local { .. } => self.zone.changes_clocks(),
            Timing::Union(parts) => parts.iter().any(Recurrence::follows_clocks),
        }
    }

    /// The recurrences of which it is the union; empty if it is a single one.
    pub fn parts(&self) -> impl Iterator<Item = &Recurrence> {
        let parts = match &self.timing {
            Timing::Union(parts) => Some(parts.iter()),
            Timing::Elapsed(_) | Timing::Local { .. } => None,
        };
        parts.into_iter().flatten()
    }

    /// Whether its interval is elapsed time, which clock changes never affect in any zone.
    pub const fn is_elapsed(&self) -> bool {
        matches!(self.timing, Timing::Elapsed(_))
    }

    /// The user's choices about clock changes. Earlier releases also accepted them for elapsed intervals, where
    /// they have no effect.
    pub fn dst_choices(&self) -> (Option<DstGap>, Option<DstOverlap>) {
        if self.is_elapsed() { (None, None) } else { (self.spec.dst_gap, self.spec.dst_overlap) }
    }

    /// What happens to local times that clocks skip: the user's choice. By default, times at fixed hours run
    /// after the gap; those of a schedule on wall-clock time are skipped, because the next match is near.
    pub fn dst_gap(&self) -> DstGap {
        let default = if self.is_on_wall_clock() { DstGap::Skip } else { DstGap::RunAfter };
        self.spec.dst_gap.unwrap_or(default)
    }

    /// What happens to local times that clocks repeat: the user's choice. By default, times at fixed hours run
    /// the first time; those of a schedule on wall-clock time run both times, so that a schedule for every
    /// quarter of an hour does not pause for an hour.
    pub fn dst_overlap(&self) -> DstOverlap {
        let default = if self.is_on_wall_clock() { DstOverlap::Both } else { DstOverlap::First };
        self.spec.dst_overlap.unwrap_or(default)
    }

    /// The first occurrence strictly after an instant.
    pub fn next_after(&self, after: Timestamp) -> Option<PreviewedFire> {
        self.next_time_after(after).map(|at| self.fire(at))
    }

    /// Like [`Recurrence::next_after`], but only the time, for callers that need nothing else.
    pub fn next_time_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.nth_time_after(after, 0)
    }

    /// The occurrence after an instant with exactly `index` others in between.
    pub fn nth_time_after(&self, after: Timestamp, index: u64) -> Option<Timestamp> {
        let range = self.instants(after, Timestamp::MAX);
        let at = match &self.timing {
            Timing::Elapsed(steps) => steps.nth_in(range, index),
            Timing::Local { pattern, anchor } => match anchor.filter(|anchor| range.contains(anchor)) {
                Some(anchor) if index == 0 => Some(anchor),
                Some(_) => self.local(pattern).nth_in(range, index - 1),
                None => self.local(pattern).nth_in(range, index),
            },
            Timing::Union(parts) => parts.nth_in(range, index),
        };
        at.map(Timestamp::from_micros)
    }

    /// The last occurrence at or before an instant.
    pub fn last_at_or_before(&self, at: Timestamp) -> Option<PreviewedFire> {
        self.last_time_at_or_before(at).map(|at| self.fire(at))
    }

    /// Like [`Recurrence::last_at_or_before`], but only the time.
    pub fn last_time_at_or_before(&self, at: Timestamp) -> Option<Timestamp> {
        let range = self.instants(Timestamp::from_micros(i64::MIN), at);
        let at = match &self.timing {
            Timing::Elapsed(steps) => steps.last_in(range),
            Timing::Local { pattern, anchor } => {
                let anchor = anchor.filter(|anchor| range.contains(anchor));
                self.local(pattern).last_in(range).or(anchor)
            }
            Timing::Union(parts) => parts.last_in(range),
        };
        at.map(Timestamp::from_micros)
    }

    /// How many occurrences are after `after` and not after `until`. The cost grows with the clock changes
    /// and months in between, not with the occurrences. A union compares occurrences of its parts up to
    /// [`crate::limits::SCHEDULES_STEPPED_MAX`]; with more of them, it counts an instant that several parts
    /// share once for each, so that the count is an upper bound ([`Self::counts_exactly`]).
    pub fn count_between(&self, after: Timestamp, until: Timestamp) -> u64 {
        let range = self.instants(after, until);
        match &self.timing {
            Timing::Elapsed(steps) => steps.count_in(range),
            Timing::Local { pattern, anchor } => {
                let anchor = anchor.filter(|anchor| range.contains(anchor));
                u64::from(anchor.is_some()) + self.local(pattern).count_in(range)
            }
            Timing::Union(parts) => parts.count_in(range),
        }
    }

    /// Whether [`Self::count_between`] is exact, and not an upper bound.
    pub fn counts_exactly(&self, after: Timestamp, until: Timestamp) -> bool {
        match &self.timing {
            Timing::Union(parts) => parts.counts_exactly_in(&self.instants(after, until)),
            Timing::Elapsed(_) | Timing::Local { .. } => true,
        }
    }

    /// The next `count` occurrences strictly after an instant; fewer if the schedule ends.
    pub fn preview(&self, after: Timestamp, count: usize) -> Vec<PreviewedFire> {
        match &self.timing {
            Timing::Union(parts) => {
                let times = parts.times_in(self.instants(after, Timestamp::MAX));
                times.take(count).map(|at| self.fire(at)).collect()
            }
            Timing::Elapsed(_) | Timing::Local { .. } => {
                let first = self.next_after(after);
                std::iter::successors(first, |fire| self.next_after(fire.at)).take(count).collect()
            }
        }
    }

    /// Whether each match of the pattern simply fires, whatever the clocks do, if the user chooses nothing.
    fn is_on_wall_clock(&self) -> bool {
        match &self.timing {
            Timing::Local { pattern: Pattern::Cron(cron), .. } => match self.spec.dst_defaults {
                DstDefaults::WildcardHours => cron.hour_is_wildcard(),
                DstDefaults::RepeatedHours => cron.hour_is_wildcard() || cron.repeats_in_hours(),
            },
            _ => false,
        }
    }

    /// Whether the rules of [`DstDefaults`] differ for it.
    fn depends_on_defaults(&self) -> bool {
        let is_left_open = self.spec.dst_gap.is_none() || self.spec.dst_overlap.is_none();
        match &self.timing {
            Timing::Local { pattern: Pattern::Cron(cron), .. } => {
                is_left_open && cron.repeats_in_hours() && !cron.hour_is_wildcard()
            }
            _ => false,
        }
    }

    /// The instants after `after` and not after `until` that are in the window.
    fn instants(&self, after: Timestamp, until: Timestamp) -> Range<i64> {
        let window_start = self.spec.start_at.map_or(FIRST_US, Timestamp::as_micros);
        let window_end = self.spec.end_at.map_or(END_US, |end_at| end_at.as_micros().saturating_add(1));
        let start = after.as_micros().saturating_add(1).max(window_start).max(FIRST_US);
        let end = until.as_micros().saturating_add(1).min(window_end).min(END_US);
        start..end.max(start)
    }

    fn local<'a>(&'a self, pattern: &'a Pattern) -> LocalPattern<'a> {
        LocalPattern { pattern, zone: &self.zone, gap: self.dst_gap(), overlap: self.dst_overlap() }
    }

    fn fire(&self, at: Timestamp) -> PreviewedFire {
        let at_us = at.as_micros();
        if let Timing::Union(parts) = &self.timing
            && let Some((name, part)) = parts.part_at(at)
        {
            return PreviewedFire { schedule: name.cloned(), ..part.fire(at) };
        }
        let dst = match &self.timing {
            Timing::Local { pattern, anchor } if *anchor != Some(at_us) => {
                self.local(pattern).effect_at(at_us)
            }
            _ => None,
        };
        PreviewedFire { at, local: self.zone.local(at_us), dst, schedule: None }
    }

    /// The schedule in plain English.
    pub fn describe(&self) -> String {
        let zone = self.zone.describe();
        let mut text = match &self.timing {
            Timing::Elapsed(steps) => {
                format!("{}, counted from {}", steps.describe(), self.zone.local(steps.anchor.as_micros()))
            }
            Timing::Local { pattern: Pattern::Cron(cron), .. } => format!("{}, {zone}", cron.describe()),
            Timing::Local { pattern: Pattern::Rule(rule), .. } => format!("{}, {zone}", rule.describe()),
            Timing::Local { pattern: Pattern::Calendar(steps), anchor } => {
                let anchor = self.zone.local(anchor.unwrap_or_default());
                format!("{}, counted from {anchor}, {zone}", steps.describe())
            }
            Timing::Union(parts) => parts.describe(),
        };
        if let Some(start_at) = self.spec.start_at {
            text.push_str(&format!(", from {}", self.zone.local(start_at.as_micros())));
        }
        if let Some(end_at) = self.spec.end_at {
            text.push_str(&format!(", until {}", self.zone.local(end_at.as_micros())));
        }
        if self.follows_clocks() && !matches!(self.timing, Timing::Union(_)) {
            text.push_str(&self.describe_dst());
        }
        text
    }

    fn describe_dst(&self) -> String {
        let gap = match self.dst_gap() {
            DstGap::Skip => "not at all",
            DstGap::RunAfter => "right after",
        };
        let overlap = match self.dst_overlap() {
            DstOverlap::First => "the first time only",
            DstOverlap::Second => "the second time only",
            DstOverlap::Both => "both times",
        };
        format!("; if the clocks skip that time, {gap}; if they repeat it, {overlap}")
    }
}

/// The local time of an anchor, in whole seconds.
fn whole_second(anchor: Timestamp, zone: &Zone) -> Civil {
    let anchor_us = anchor.as_micros();
    let local = anchor_us + zone.offset_at(anchor_us);
    Civil(local - local.rem_euclid(civil::SECOND_US))
}

/// The last local time of a rule with an end.
fn last_of(parts: &RuleParts, anchor: Timestamp, zone: &Zone) -> Result<Option<i64>, RecurrenceError> {
    let pattern = RulePattern::new(parts.clone(), whole_second(anchor, zone), None);
    Ok(pattern.last_reading(|at| zone.offset_at(at))?.map(|last| last.0))
}

fn interval_timing(interval: Interval, anchor: Timestamp, zone: &Zone) -> Timing {
    let anchor_us = anchor.as_micros();
    let local = Civil(anchor_us + zone.offset_at(anchor_us));
    let pattern = match interval {
        Interval::Elapsed { every_us } => return Timing::Elapsed(ElapsedSteps { anchor, every_us }),
        Interval::Days(days) => CalendarSteps::days(local, days),
        Interval::Months(months) => CalendarSteps::months(local, months),
    };
    Timing::Local { pattern: Pattern::Calendar(pattern), anchor: Some(anchor_us) }
}
