//! Recurrence rules of RFC 5545 (`FREQ=MONTHLY;BYDAY=-1FR`) as patterns of wall-clock readings.
//!
//! A rule is a sequence of periods (days, weeks, months or years), every `INTERVAL`-th from the one that contains the
//! start. The days of a period that match all BY parts, combined with the times of day, are its readings; `BYSETPOS`
//! selects some of them. Readings before the start do not count. Like most implementations, and unlike the text of the
//! RFC, the start itself is an occurrence only if it matches.
//!
//! The module `periods` numbers the readings of a period without listing them. Periods repeat with the calendar, after
//! 400 of its years or of every `INTERVAL`-th, which bounds every search and count.

mod periods;
#[cfg(test)]
mod tests;

use super::civil::{Civil, DAY_US, SECOND_US, date_of, day_number};
use super::cron::TimesOfDay;
use super::zone::Zone;
use crate::limits::RRULE_COUNT_MAX;
use jiff::civil::{Date, DateTime, Time, Weekday};
use periods::{CYCLE_DAYS, DayFilter, Period, Positions};
use std::fmt::Write as _;
use std::ops::Range;

/// An invalid rule: the part, and what would be valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part} {problem}")]
pub struct RruleError {
    pub part: String,
    pub problem: String,
}

fn refuse<T>(part: impl Into<String>, problem: impl Into<String>) -> Result<T, RruleError> {
    Err(RruleError { part: part.into(), problem: problem.into() })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frequency {
    Daily,
    Weekly,
    Monthly,
    Yearly,
}

/// When a rule ends, as it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleEnd {
    Never,
    Count(u32),
    /// A local time, included.
    Local(Civil),
    /// The same in UTC.
    Utc(i64),
}

/// A weekday, and which one of its month or year; 0 for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NthDay {
    nth: i16,
    day: Weekday,
}

/// The parts of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuleParts {
    frequency: Frequency,
    interval: u32,
    pub(super) end: RuleEnd,
    months: Vec<i16>,
    week_numbers: Vec<i16>,
    year_days: Vec<i16>,
    month_days: Vec<i16>,
    days: Vec<NthDay>,
    positions: Vec<i16>,
    hours: Vec<i16>,
    minutes: Vec<i16>,
    seconds: Vec<i16>,
    week_start: Weekday,
}

impl RuleParts {
    /// Parses the value of an `RRULE` property.
    pub(super) fn parse(text: &str) -> Result<Self, RruleError> {
        let mut frequency = None;
        let mut parts = RuleParts {
            frequency: Frequency::Daily,
            interval: 1,
            end: RuleEnd::Never,
            months: vec![],
            week_numbers: vec![],
            year_days: vec![],
            month_days: vec![],
            days: vec![],
            positions: vec![],
            hours: vec![],
            minutes: vec![],
            seconds: vec![],
            week_start: Weekday::Monday,
        };
        let mut seen: Vec<String> = Vec::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                return refuse(part, "is not understood, write parts such as FREQ=WEEKLY;BYDAY=MO,FR");
            };
            let (name, value) = (name.trim().to_ascii_uppercase(), value.trim().to_ascii_uppercase());
            if seen.contains(&name) {
                return refuse(name, "is given twice");
            }
            match name.as_str() {
                "FREQ" => frequency = Some(frequency_of(&value)?),
                "INTERVAL" => parts.interval = number(&name, &value, 1, 10_000)?,
                "COUNT" => parts.ends(&name, RuleEnd::Count(number(&name, &value, 1, RRULE_COUNT_MAX)?))?,
                "UNTIL" => parts.ends(&name, until(&value)?)?,
                "BYMONTH" => parts.months = numbers(&name, &value, 1..=12, false)?,
                "BYWEEKNO" => parts.week_numbers = numbers(&name, &value, 1..=53, true)?,
                "BYYEARDAY" => parts.year_days = numbers(&name, &value, 1..=366, true)?,
                "BYMONTHDAY" => parts.month_days = numbers(&name, &value, 1..=31, true)?,
                "BYSETPOS" => parts.positions = numbers(&name, &value, 1..=366, true)?,
                "BYHOUR" => parts.hours = numbers(&name, &value, 0..=23, false)?,
                "BYMINUTE" => parts.minutes = numbers(&name, &value, 0..=59, false)?,
                "BYSECOND" => parts.seconds = numbers(&name, &value, 0..=59, false)?,
                "BYDAY" => parts.days = value.split(',').map(nth_day).collect::<Result<_, _>>()?,
                "WKST" => {
                    let day = weekday(&value);
                    parts.week_start = match day {
                        Some(day) => day,
                        None => return refuse(name, format!("must be a day such as MO, not {value:?}")),
                    };
                }
                _ => return refuse(name, "is not a part of a recurrence rule that is supported"),
            }
            seen.push(name);
        }
        let Some(frequency) = frequency else {
            return refuse("FREQ", "is missing: write FREQ=DAILY, WEEKLY, MONTHLY or YEARLY");
        };
        parts.frequency = frequency;
        parts.check()
    }

    fn ends(&mut self, part: &str, end: RuleEnd) -> Result<(), RruleError> {
        if self.end != RuleEnd::Never {
            return refuse(part, "cannot be combined: give COUNT or UNTIL, not both");
        }
        self.end = end;
        Ok(())
    }

    /// Checks combinations that the RFC excludes.
    fn check(self) -> Result<Self, RruleError> {
        let (frequency, is_yearly) = (self.frequency, self.frequency == Frequency::Yearly);
        let has_nth = self.days.iter().any(|day| day.nth != 0);
        if !self.week_numbers.is_empty() && !is_yearly {
            return refuse("BYWEEKNO", "only applies to FREQ=YEARLY");
        }
        if !self.week_numbers.is_empty() && self.week_start != Weekday::Monday {
            return refuse("BYWEEKNO", "only applies to weeks that start on Monday: leave WKST out");
        }
        if !self.year_days.is_empty() && !is_yearly {
            return refuse("BYYEARDAY", "only applies to FREQ=YEARLY");
        }
        if !self.month_days.is_empty() && frequency == Frequency::Weekly {
            return refuse("BYMONTHDAY", "does not apply to FREQ=WEEKLY");
        }
        if has_nth && matches!(frequency, Frequency::Daily | Frequency::Weekly) {
            return refuse(
                "BYDAY",
                "with numbers, such as 2MO, only applies to FREQ=MONTHLY and FREQ=YEARLY",
            );
        }
        if has_nth && !self.week_numbers.is_empty() {
            return refuse("BYDAY", "with numbers cannot be combined with BYWEEKNO");
        }
        let has_others = !(self.months.is_empty()
            && self.week_numbers.is_empty()
            && self.year_days.is_empty()
            && self.month_days.is_empty()
            && self.days.is_empty()
            && self.hours.is_empty()
            && self.minutes.is_empty()
            && self.seconds.is_empty());
        if !self.positions.is_empty() && !has_others {
            return refuse("BYSETPOS", "selects from other BY parts: give one, such as BYDAY");
        }
        Ok(self)
    }
}

fn frequency_of(value: &str) -> Result<Frequency, RruleError> {
    match value {
        "DAILY" => Ok(Frequency::Daily),
        "WEEKLY" => Ok(Frequency::Weekly),
        "MONTHLY" => Ok(Frequency::Monthly),
        "YEARLY" => Ok(Frequency::Yearly),
        "HOURLY" | "MINUTELY" | "SECONDLY" => refuse(
            "FREQ",
            format!(
                "{value} is not supported: use interval, cron_expression, or FREQ=DAILY with BYHOUR and BYMINUTE"
            ),
        ),
        _ => refuse("FREQ", format!("must be DAILY, WEEKLY, MONTHLY or YEARLY, not {value:?}")),
    }
}

fn number(part: &str, value: &str, min: u32, max: u32) -> Result<u32, RruleError> {
    let parsed = value.parse().ok().filter(|number| (min..=max).contains(number));
    parsed.map_or_else(|| refuse(part, format!("must be from {min} to {max}, not {value:?}")), Ok)
}

fn numbers(
    part: &str,
    value: &str,
    range: std::ops::RangeInclusive<i16>,
    may_count_from_end: bool,
) -> Result<Vec<i16>, RruleError> {
    let mut found = Vec::new();
    for text in value.split(',') {
        let parsed = text.trim().parse::<i16>().ok();
        let is_valid =
            |number: &i16| range.contains(number) || (may_count_from_end && range.contains(&-number));
        match parsed.filter(is_valid) {
            Some(number) => found.push(number),
            None => {
                let (min, max) = (range.start(), range.end());
                let from_end = if may_count_from_end { ", or below 0 to count from the end" } else { "" };
                return refuse(part, format!("must be numbers from {min} to {max}{from_end}, not {text:?}"));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn weekday(text: &str) -> Option<Weekday> {
    Some(match text {
        "MO" => Weekday::Monday,
        "TU" => Weekday::Tuesday,
        "WE" => Weekday::Wednesday,
        "TH" => Weekday::Thursday,
        "FR" => Weekday::Friday,
        "SA" => Weekday::Saturday,
        "SU" => Weekday::Sunday,
        _ => return None,
    })
}

fn nth_day(text: &str) -> Result<NthDay, RruleError> {
    let text = text.trim();
    let split = text.len().saturating_sub(2);
    let parsed = text.is_char_boundary(split).then(|| text.split_at(split)).and_then(|(nth, day)| {
        let nth = if nth.is_empty() { 0 } else { nth.parse().ok().filter(|nth: &i16| *nth != 0)? };
        Some(NthDay { nth, day: weekday(day)? }).filter(|day| day.nth.abs() <= 53)
    });
    parsed.map_or_else(|| refuse("BYDAY", format!("must be days such as MO, 2TU or -1FR, not {text:?}")), Ok)
}

/// `20261231`, `20261231T235959` or `20261231T235959Z`. A date includes its whole day.
fn until(value: &str) -> Result<RuleEnd, RruleError> {
    match local_time(value.strip_suffix('Z').unwrap_or(value)) {
        Some((at, _)) if value.ends_with('Z') => Ok(RuleEnd::Utc(at.0)),
        Some((at, true)) => Ok(RuleEnd::Local(Civil(at.0 + DAY_US - 1))),
        Some((at, false)) => Ok(RuleEnd::Local(at)),
        None => {
            refuse("UNTIL", format!("must be a time such as 20261231T235959Z or 20261231, not {value:?}"))
        }
    }
}

/// A local time of iCalendar, and whether it is only a date.
pub(super) fn local_time(text: &str) -> Option<(Civil, bool)> {
    if text.len() == 8 {
        let date: Date = Date::strptime("%Y%m%d", text).ok()?;
        return Some((Civil::new(date, 0), true));
    }
    let at = DateTime::strptime("%Y%m%dT%H%M%S", text).ok()?;
    let time = at.time();
    let second = i64::from(time.hour()) * 3_600 + i64::from(time.minute()) * 60 + i64::from(time.second());
    Some((Civil::new(at.date(), second * SECOND_US), false))
}

/// The readings of a rule that starts at a reading.
#[derive(Debug, Clone)]
pub(super) struct RulePattern {
    parts: RuleParts,
    start: Civil,
    times: TimesOfDay,
    days: DayFilter,
    positions: Option<Positions>,
    /// The last reading, if the rule has an end.
    last: Option<Civil>,
}

impl RulePattern {
    /// `last` as computed by [`RulePattern::last_reading`]; an end that is a count is not looked at again.
    pub(super) fn new(mut parts: RuleParts, start: Civil, last: Option<Civil>) -> Self {
        let date = start.date();
        let second = start.us_of_day() / SECOND_US;
        let or_start = |given: &[i16], own: i64| match given {
            [] => 1 << own,
            _ => given.iter().fold(0_u64, |bits, number| bits | 1 << number),
        };
        let times = TimesOfDay {
            hours: or_start(&parts.hours, second / 3_600),
            minutes: or_start(&parts.minutes, second / 60 % 60),
            seconds: or_start(&parts.seconds, second % 60),
        };
        let has_days = !(parts.week_numbers.is_empty()
            && parts.year_days.is_empty()
            && parts.month_days.is_empty()
            && parts.days.is_empty());
        if !has_days {
            match parts.frequency {
                Frequency::Daily => {}
                Frequency::Weekly => parts.days = vec![NthDay { nth: 0, day: date.weekday() }],
                Frequency::Monthly => parts.month_days = vec![date.day().into()],
                Frequency::Yearly => {
                    parts.month_days = vec![date.day().into()];
                    if parts.months.is_empty() {
                        parts.months = vec![date.month().into()];
                    }
                }
            }
        }
        let (days, positions) = (DayFilter::of(&parts), Positions::of(&parts.positions));
        RulePattern { parts, start, times, days, positions, last }
    }

    /// The last reading of a rule with an end; `None` if it has none. `offset_at` gives the offset of a time in UTC.
    pub(super) fn last_reading(&self, offset_at: impl Fn(i64) -> i64) -> Result<Option<Civil>, RruleError> {
        match self.parts.end {
            RuleEnd::Never => Ok(None),
            RuleEnd::Local(at) => Ok(Some(at)),
            RuleEnd::Utc(at) => Ok(Some(Civil(at + offset_at(at)))),
            RuleEnd::Count(count) => {
                let unbounded = RulePattern { last: None, ..self.clone() };
                match unbounded.nth_in(&(self.start..LATEST), u64::from(count) - 1) {
                    Some(last) => Ok(Some(last)),
                    None => refuse("COUNT", "is more than the rule has occurrences"),
                }
            }
        }
    }

    /// Refuses a rule without any reading, whatever its end.
    pub(super) fn check_has_readings(&self) -> Result<(), RruleError> {
        let has_readings = |rule: &RulePattern| rule.nth_in(&(rule.start..LATEST), 0).is_some();
        let unbounded = RulePattern { last: None, ..self.clone() };
        if has_readings(&unbounded) {
            return Ok(());
        }
        if self.positions.is_some() && has_readings(&RulePattern { positions: None, ..unbounded }) {
            let fix = "names no time: no period of the rule has so many matches, use numbers closer to 0";
            return refuse("BYSETPOS", fix);
        }
        refuse("the rule", "names no time: no day matches all of its parts, change or remove one of them")
    }

    /// The reading of the range with exactly `index` others before it.
    ///
    /// Periods repeat after [`RulePattern::cycle`] of them. A search looks at each period of one cycle, skips whole
    /// cycles, and looks at one more, so that it ends soon also for a rule without readings.
    pub(super) fn nth_in(&self, range: &Range<Civil>, index: u64) -> Option<Civil> {
        let range = self.clipped(range)?;
        let (first, last) = self.periods_of(&range);
        let all = index.checked_add(self.period(first).rank(range.start))?;
        let (mut number, mut left) = (first, all);
        let mut is_in_first_cycle = true;
        while number <= last {
            if is_in_first_cycle && number - first >= self.cycle() {
                let per_cycle = all - left;
                let cycles = left.checked_div(per_cycle)?;
                left %= per_cycle;
                number = number.saturating_add(cycles.saturating_mul(self.cycle()));
                is_in_first_cycle = false;
                continue;
            }
            let period = self.period(number);
            let count = period.count();
            if left < count {
                return Some(period.nth(left)).filter(|reading| *reading < range.end);
            }
            left -= count;
            number = self.next_period(number);
        }
        None
    }

    pub(super) fn count(&self, range: &Range<Civil>) -> u64 {
        let Some(range) = self.clipped(range) else { return 0 };
        let (first, last) = self.periods_of(&range);
        let (cycles, rest) = ((last - first) / self.cycle(), (last - first) % self.cycle());
        let in_cycles = if cycles > 0 { cycles * self.count_in_periods(first, self.cycle()) } else { 0 };
        let whole = in_cycles + self.count_in_periods(first, rest);
        whole + self.period(last).rank(range.end) - self.period(first).rank(range.start)
    }

    fn count_in_periods(&self, first: u64, length: u64) -> u64 {
        let numbers = std::iter::successors(Some(first), |number| Some(self.next_period(*number)));
        numbers.take_while(|number| *number < first + length).map(|number| self.period(number).count()).sum()
    }

    pub(super) fn last_before(&self, end: Civil) -> Option<Civil> {
        let range = self.clipped(&(self.start..end))?;
        let (first, last) = self.periods_of(&range);
        let earliest = first.max(last.saturating_sub(self.cycle()));
        (earliest..=last)
            .rev()
            .find_map(|number| {
                let period = self.period(number);
                period.rank(range.end).checked_sub(1).map(|rank| period.nth(rank))
            })
            .filter(|reading| *reading >= range.start)
    }

    /// The part of a range in which the rule has readings.
    fn clipped(&self, range: &Range<Civil>) -> Option<Range<Civil>> {
        let end = self.last.map_or(range.end, |last| range.end.min(Civil(last.0.saturating_add(1))));
        let end = end.min(LATEST);
        let start = range.start.max(self.start);
        (start < end).then_some(start..end)
    }

    /// The first and last period that may have readings in a range.
    fn periods_of(&self, range: &Range<Civil>) -> (u64, u64) {
        (self.period_of(range.start.date()), self.period_of(range.end.date()))
    }

    /// After how many periods all of them repeat.
    fn cycle(&self) -> u64 {
        let periods = match self.parts.frequency {
            Frequency::Daily => CYCLE_DAYS,
            Frequency::Weekly => CYCLE_DAYS / 7,
            Frequency::Monthly => 4_800,
            Frequency::Yearly => 400,
        };
        periods / greatest_common_divisor(periods, self.parts.interval.into())
    }

    /// The number of the last period that starts at or before this date; 0 for the first one.
    fn period_of(&self, date: Date) -> u64 {
        let first = self.period_start(0);
        let distance = match self.parts.frequency {
            Frequency::Daily => day_number(date) - day_number(first),
            Frequency::Weekly => (day_number(date) - day_number(first)).div_euclid(7),
            Frequency::Monthly => months(date) - months(first),
            Frequency::Yearly => i64::from(date.year()) - i64::from(first.year()),
        };
        distance.max(0).unsigned_abs() / u64::from(self.parts.interval)
    }

    /// The first day of a period; the last representable date if it is beyond that.
    fn period_start(&self, number: u64) -> Date {
        let date = self.start.date();
        let steps = i64::try_from(number).unwrap_or(i64::MAX).saturating_mul(self.parts.interval.into());
        match self.parts.frequency {
            Frequency::Daily => date_of(day_number(date).saturating_add(steps)),
            Frequency::Weekly => {
                let back = i64::from(date.weekday().since(self.parts.week_start));
                date_of((day_number(date) - back).saturating_add(steps.saturating_mul(7)))
            }
            Frequency::Monthly => {
                let month = months(date).saturating_add(steps);
                let year = i16::try_from(month.div_euclid(12)).unwrap_or(i16::MAX);
                Date::new(year, month.rem_euclid(12) as i8 + 1, 1).unwrap_or(Date::MAX)
            }
            Frequency::Yearly => {
                let year = i16::try_from(i64::from(date.year()).saturating_add(steps)).unwrap_or(i16::MAX);
                Date::new(year, 1, 1).unwrap_or(Date::MAX)
            }
        }
    }

    fn period(&self, number: u64) -> Period<'_> {
        let first = self.period_start(number);
        let length = match self.parts.frequency {
            Frequency::Daily => 1,
            Frequency::Weekly => 7,
            Frequency::Monthly => first.days_in_month().unsigned_abs().into(),
            Frequency::Yearly => first.days_in_year().unsigned_abs(),
        };
        let days = self.days.days(first, length);
        Period { days, times: &self.times, positions: self.positions.as_ref() }
    }

    /// The period after this one. Days at the end of months that `BYMONTH` excludes are left out.
    fn next_period(&self, number: u64) -> u64 {
        let first = self.period_start(number);
        if self.parts.frequency != Frequency::Daily || self.days.has_month(first.month()) {
            return number + 1;
        }
        let days_left = first.days_in_month() - first.day() + 1;
        number + u64::from(days_left.unsigned_abs()).div_ceil(self.parts.interval.into()).max(1)
    }

    /// The rule in plain English.
    pub(super) fn describe(&self) -> String {
        let parts = &self.parts;
        let (unit, every) = match parts.frequency {
            Frequency::Daily => ("days", "every day"),
            Frequency::Weekly => ("weeks", "every week"),
            Frequency::Monthly => ("months", "every month"),
            Frequency::Yearly => ("years", "every year"),
        };
        let mut text = match parts.interval {
            1 => every.to_owned(),
            interval => format!("every {interval} {unit}"),
        };
        let mut add = |words: &str, list: Vec<String>| {
            if !list.is_empty() {
                let _ = write!(text, " {words} {}", list.join(", "));
            }
        };
        let months =
            parts.months.iter().map(|month| MONTHS[usize::from(month.unsigned_abs()) - 1].to_owned());
        add("in", months.collect());
        add("in week", parts.week_numbers.iter().copied().map(counted).collect());
        add("on day of the year", parts.year_days.iter().copied().map(counted).collect());
        add("on day", parts.month_days.iter().copied().map(counted).collect());
        add("on", parts.days.iter().map(|day| day.describe()).collect());
        let times = (0..self.times.count().min(TIMES_DESCRIBED)).map(|rank| clock(self.times.nth(rank)));
        let more = self.times.count().saturating_sub(TIMES_DESCRIBED);
        add("at", times.chain((more > 0).then(|| format!("and {more} more"))).collect());
        add("only number", parts.positions.iter().copied().map(counted).collect());
        if !parts.positions.is_empty() {
            text.push_str(" of these");
        }
        text
    }
}

/// The end of the last reading: no schedule fires after 9998.
const LATEST: Civil = Civil(253_370_764_800_000_000);
/// Times of day that a description lists.
const TIMES_DESCRIBED: u64 = 12;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

impl NthDay {
    fn describe(self) -> String {
        let day = format!("{:?}", self.day);
        match self.nth {
            0 => day,
            nth => format!("{} {day}", ordinal(nth)),
        }
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Months since the year 0.
fn months(date: Date) -> i64 {
    i64::from(date.year()) * 12 + i64::from(date.month()) - 1
}

/// `3`, or `the last`, `the 2nd last`.
fn counted(number: i16) -> String {
    match number {
        1.. => number.to_string(),
        _ => ordinal(number),
    }
}

fn ordinal(number: i16) -> String {
    let count = number.unsigned_abs();
    let suffix = match (count % 10, count % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    match number {
        -1 => "the last".to_owned(),
        ..0 => format!("the {count}{suffix} last"),
        _ => format!("the {count}{suffix}"),
    }
}

fn clock(second_of_day: u32) -> String {
    let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
    match second {
        0 => format!("{hour:02}:{minute:02}"),
        _ => format!("{hour:02}:{minute:02}:{second:02}"),
    }
}

/// A rule as users write it.
pub(super) struct WrittenRule {
    /// The value of the property `RRULE`.
    pub(super) rule: String,
    pub(super) parts: RuleParts,
    /// The instant of `DTSTART`, in microseconds.
    pub(super) start: Option<i64>,
}

/// Reads a rule: the value of `RRULE` alone, or lines of iCalendar with `DTSTART` and `RRULE`.
pub(super) fn read(text: &str, zone: &Zone) -> Result<WrittenRule, RruleError> {
    let (mut rule, mut start) = (None, None);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let upper = line.to_ascii_uppercase();
        let name = upper.split([':', ';', '=']).next().unwrap_or_default();
        match name {
            "DTSTART" => start = Some(start_of(line, zone)?),
            "EXDATE" | "RDATE" | "EXRULE" | "DTEND" | "DURATION" => {
                return refuse(name, "is not supported: to leave out days, use a calendar");
            }
            _ if rule.is_some() => return refuse("RRULE", "is given twice: a job has one rule"),
            _ => rule = Some(upper.strip_prefix("RRULE:").unwrap_or(&upper).to_owned()),
        }
    }
    let Some(rule) = rule else {
        return refuse("FREQ", "is missing: write for example FREQ=WEEKLY;BYDAY=MO,FR");
    };
    let parts = RuleParts::parse(&rule)?;
    Ok(WrittenRule { rule, parts, start })
}

/// The instant of a line such as `DTSTART;TZID=Europe/Berlin:20260105T090000`.
fn start_of(line: &str, zone: &Zone) -> Result<i64, RruleError> {
    let fix =
        "must be a time such as DTSTART:20260105T090000 in the time zone of the job, or in UTC with a Z";
    let Some((head, value)) = line.split_once(':') else { return refuse("DTSTART", fix) };
    for parameter in head.split(';').skip(1) {
        if let Some((name, named)) = parameter.split_once('=')
            && name.eq_ignore_ascii_case("TZID")
            && !named.eq_ignore_ascii_case(zone.name())
        {
            let found = zone.name();
            return refuse(
                "DTSTART",
                format!("is in {named}, but the job's timezone is {found}: set it to {named}"),
            );
        }
    }
    let (text, is_utc) = value.strip_suffix(['Z', 'z']).map_or((value, false), |text| (text, true));
    let Some((local, _)) = local_time(&text.to_ascii_uppercase()) else { return refuse("DTSTART", fix) };
    let second = local.us_of_day() / SECOND_US;
    let time = Time::new((second / 3_600) as i8, (second / 60 % 60) as i8, (second % 60) as i8, 0);
    let at = time.map(|time| local.date().to_datetime(time)).ok();
    let instant = if is_utc { Some(local.0) } else { at.and_then(|at| zone.instant_of(at)) };
    instant.map_or_else(|| refuse("DTSTART", fix), Ok)
}
