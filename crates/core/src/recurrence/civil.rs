//! Wall-clock readings without a zone, and the patterns over them.
//!
//! A [`Pattern`] says which readings a schedule contains. It does not know that clocks ever change: that is
//! the task of `dst`. Both parts stay small, and counting needs no stepping.

use super::cron::CronPattern;
use super::interval::CalendarSteps;
use super::rrule::RulePattern;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;
use std::ops::Range;

pub(super) const SECOND_US: i64 = 1_000_000;
pub(super) const DAY_US: i64 = 86_400 * SECOND_US;

/// A reading of a wall clock: microseconds since its local 1970-01-01 00:00.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Civil(pub(super) i64);

impl Civil {
    pub(super) fn new(date: Date, us_of_day: i64) -> Self {
        Civil(day_number(date) * DAY_US + us_of_day)
    }

    pub(super) fn date(self) -> Date {
        date_of(self.0.div_euclid(DAY_US))
    }

    pub(super) const fn us_of_day(self) -> i64 {
        self.0.rem_euclid(DAY_US)
    }
}

/// Days since 1970-01-01.
pub(super) fn day_number(date: Date) -> i64 {
    let midnight = Offset::UTC.to_timestamp(date.to_datetime(Time::midnight()));
    midnight.map_or(i64::MAX / DAY_US, |time| time.as_second() / 86_400)
}

/// The date of a day number; the first or last representable date for a number outside the range.
pub(super) fn date_of(day: i64) -> Date {
    let (min, max) = (jiff::Timestamp::MIN, jiff::Timestamp::MAX);
    let second = day.saturating_mul(86_400).clamp(min.as_second(), max.as_second());
    Offset::UTC.to_datetime(jiff::Timestamp::constant(second, 0)).date()
}

/// The wall-clock readings that a schedule contains, in ascending order.
#[derive(Debug, Clone)]
pub(super) enum Pattern {
    Cron(CronPattern),
    Calendar(CalendarSteps),
    Rule(Box<RulePattern>),
}

impl Pattern {
    /// The reading of the range with exactly `index` others before it.
    pub(super) fn nth_in(&self, range: &Range<Civil>, index: u64) -> Option<Civil> {
        match self {
            Pattern::Cron(cron) => cron.nth_in(range, index),
            Pattern::Calendar(steps) => steps.nth_in(range, index),
            Pattern::Rule(rule) => rule.nth_in(range, index),
        }
    }

    pub(super) fn first_at_or_after(&self, from: Civil) -> Option<Civil> {
        self.nth_in(&(from..Civil(i64::MAX)), 0)
    }

    pub(super) fn last_before(&self, end: Civil) -> Option<Civil> {
        match self {
            Pattern::Cron(cron) => cron.last_before(end),
            Pattern::Calendar(steps) => steps.last_before(end),
            Pattern::Rule(rule) => rule.last_before(end),
        }
    }

    pub(super) fn count(&self, range: &Range<Civil>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        match self {
            Pattern::Cron(cron) => cron.count(range),
            Pattern::Calendar(steps) => steps.count(range),
            Pattern::Rule(rule) => rule.count(range),
        }
    }

    pub(super) fn last_in(&self, range: &Range<Civil>) -> Option<Civil> {
        self.last_before(range.end).filter(|reading| *reading >= range.start)
    }
}
