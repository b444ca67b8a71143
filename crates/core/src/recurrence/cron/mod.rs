//! Cron patterns over wall-clock readings: five fields (minute first), six (second first) or seven (second
//! first, year last).
//!
//! | written | means |
//! |---|---|
//! | `*`, `a`, `a-b`, `a,b`, `*/n`, `a/n`, `a-b/n` | all, one, a range, a list, every n-th of all, from a on, of a range |
//! | `JAN`…`DEC`, `SUN`…`SAT` | names in any case; Sunday is 0 or 7 |
//! | `22-6`, `FRI-MON`, `NOV-FEB` | a range may wrap around at the end of its field; years may not |
//! | `?` | as `*`, in the two day fields |
//! | `L`, `L-3`, `LW`, `15W` | last day of the month, three before it, its last weekday, the weekday nearest the 15th within the month |
//! | `5L`, `FRIL`, `MON#2` | last Friday, second Monday of the month |
//! | `H`, `H/n`, `H(a-b)`, `H(a-b)/n` | a value, or the first of the steps, chosen by the caller's seed; days of the month from 1 to 28 |
//! | `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly`, `@annually` | the usual patterns |
//!
//! If both day fields are restricted, a day matches if either field matches. A field that starts with `*`
//! (also `*/2`) or `?` does not count as restricted, and then both must match. This is the rule of cron
//! itself. A step that is at least as large as its field (`*/90` for minutes) is rejected: it would silently
//! mean something else.
//!
//! A pattern is stored as bit sets, and the times of a day are the product of three of them. Counting a day
//! therefore does not visit its seconds, and counting a month does not visit its days (decision 0005 says why
//! no library does this part).

mod days;
mod describe;
mod error;
mod field;
mod parse;
mod times;

pub use error::{CronError, CronField};
pub(super) use parse::PatternSource;
pub(super) use times::TimesOfDay;

use super::civil::{Civil, SECOND_US, date_of, day_number};
use days::DayRule;
use jiff::civil::Date;
use std::ops::Range;

/// Years in which recurring schedules fire. The zone data ends within 9999.
const YEARS: Range<i16> = 1970..9999;

/// A parsed pattern that matches at least one day.
#[derive(Debug, Clone)]
pub(super) struct CronPattern {
    times: TimesOfDay,
    days: DayRule,
    /// Bits 1 to 12.
    months: u64,
    years: Option<YearSet>,
    /// The first year from which on nothing matches.
    end_year: i16,
    hour_is_wildcard: bool,
    repeats_in_hours: bool,
    uses_hash: bool,
}

/// Which years from 1970 on, one bit each.
#[derive(Debug, Clone, Copy, Default)]
struct YearSet([u64; 4]);

impl YearSet {
    fn insert(&mut self, year: u16) {
        let bit = usize::from(year - 1970);
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    fn contains(&self, year: i16) -> bool {
        let bit = usize::try_from(year - 1970).unwrap_or(usize::MAX);
        self.0.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    fn years(&self) -> Vec<i16> {
        (1970..1970 + 256).filter(|year| self.contains(*year)).collect()
    }
}

impl CronPattern {
    /// Parses a pattern; `seed` decides the value of `H`.
    pub(super) fn parse(text: &str, seed: u64, source: PatternSource) -> Result<Self, CronError> {
        parse::parse(text, seed, source)
    }

    /// Whether the hour field is a wildcard (`*`, `*/n`, `H/n`, or a list of all hours).
    pub(super) const fn hour_is_wildcard(&self) -> bool {
        self.hour_is_wildcard
    }

    /// Whether both the minute and the hour field are written as a repetition: a wildcard, a range or a step
    /// (`*/15 0-6`), and not only as values (`0,30 2,14`).
    pub(super) const fn repeats_in_hours(&self) -> bool {
        self.repeats_in_hours
    }

    /// Whether the pattern depends on the seed.
    pub(super) const fn uses_hash(&self) -> bool {
        self.uses_hash
    }

    pub(super) fn nth_in(&self, range: &Range<Civil>, index: u64) -> Option<Civil> {
        let (first, second) = day_and_second(range.start);
        // If times are numbered from the start of the first day, every matching day has equally many.
        let index = index.checked_add(self.passed(first, second))?;
        let mut days_to_skip = index / self.times.count();
        for month in self.months_from(first).take_while(|month| reading(month.first_day, 0) < range.end) {
            let days = self.days_of(&month) & month.on_or_after(first);
            let count = u64::from(days.count_ones());
            if days_to_skip < count {
                let day = month.first_day + i64::from(nth_bit(u64::from(days), days_to_skip)) - 1;
                let found = reading(day, self.times.nth(index % self.times.count()));
                return Some(found).filter(|found| *found < range.end);
            }
            days_to_skip -= count;
        }
        None
    }

    pub(super) fn last_before(&self, end: Civil) -> Option<Civil> {
        let (day, second) = day_and_second(end);
        let passed = self.passed(day, second);
        if passed > 0 {
            return Some(reading(day, self.times.nth(passed - 1)));
        }
        let mut month = Month::of_day(day.min(day_number(Date::constant(self.end_year, 1, 1))));
        while month.year >= YEARS.start {
            let days = self.days_of(&month) & !month.on_or_after(day);
            if days != 0 {
                let day = month.first_day + i64::from(days.ilog2()) - 1;
                return Some(reading(day, self.times.nth(self.times.count() - 1)));
            }
            month = Month::of_day(month.first_day - 1);
        }
        None
    }

    pub(super) fn count(&self, range: &Range<Civil>) -> u64 {
        let (first, first_second) = day_and_second(range.start);
        let (last, last_second) = day_and_second(range.end);
        let days: u64 = self
            .months_from(first)
            .take_while(|month| month.first_day < last)
            .map(|month| self.days_of(&month) & month.on_or_after(first) & !month.on_or_after(last))
            .map(|days| u64::from(days.count_ones()))
            .sum();
        days * self.times.count() + self.passed(last, last_second) - self.passed(first, first_second)
    }

    /// How many times of a day are before this second of it.
    fn passed(&self, day: i64, second: u32) -> u64 {
        if self.matches_day(day) { self.times.rank(second) } else { 0 }
    }

    /// The months from the one that contains a day to the end of the pattern's last year.
    fn months_from(&self, day: i64) -> impl Iterator<Item = Month> {
        let first = Month::of_day(day.max(0));
        let before_end = |month: &Month| month.year < self.end_year;
        std::iter::successors(Some(first).filter(before_end), move |month| {
            Some(month.next()).filter(before_end)
        })
    }

    fn matches_day(&self, day: i64) -> bool {
        let month = Month::of_day(day);
        self.days_of(&month) & month.on_or_after(day) & !month.on_or_after(day + 1) != 0
    }

    /// The matching days of a month, as bits 1 to 31.
    fn days_of(&self, month: &Month) -> u32 {
        let wanted = self.months >> month.month & 1 == 1
            && YEARS.contains(&month.year)
            && self.years.is_none_or(|years| years.contains(month.year));
        if wanted { self.days.days_of(month) } else { 0 }
    }

    /// Whether any day ever matches. The calendar repeats after 400 years.
    fn ever_matches(&self) -> bool {
        let years = match self.years {
            Some(years) => years.years(),
            None => (2000..2400).collect(),
        };
        let months = years.into_iter().flat_map(|year| (1..=12).map(move |month| Month::new(year, month)));
        months.into_iter().any(|month| self.days_of(&month) != 0)
    }
}

fn reading(day: i64, second: u32) -> Civil {
    Civil((day * 86_400 + i64::from(second)) * SECOND_US)
}

/// The day and the second within it, rounded up: patterns have whole seconds only.
pub(super) fn day_and_second(at: Civil) -> (i64, u32) {
    let second = at.0.div_euclid(SECOND_US) + i64::from(at.0.rem_euclid(SECOND_US) != 0);
    (second.div_euclid(86_400), second.rem_euclid(86_400) as u32)
}

/// The position of the set bit with `index` set bits below it.
pub(super) fn nth_bit(mut bits: u64, index: u64) -> u32 {
    for _ in 0..index {
        bits &= bits - 1;
    }
    bits.trailing_zeros()
}

/// One month of one year.
#[derive(Debug, Clone, Copy)]
struct Month {
    year: i16,
    month: i8,
    /// Day number of its first day.
    first_day: i64,
    length: u8,
    /// Weekday of its first day; Sunday is 0.
    first_weekday: u8,
}

impl Month {
    fn new(year: i16, month: i8) -> Self {
        let first = Date::constant(year, month, 1);
        Month {
            year,
            month,
            first_day: day_number(first),
            length: first.days_in_month() as u8,
            first_weekday: first.weekday().to_sunday_zero_offset() as u8,
        }
    }

    fn of_day(day: i64) -> Self {
        let date = date_of(day);
        Month::new(date.year(), date.month())
    }

    fn next(self) -> Self {
        let (year, month) = if self.month == 12 { (self.year + 1, 1) } else { (self.year, self.month + 1) };
        Month {
            year,
            month,
            first_day: self.first_day + i64::from(self.length),
            length: Date::constant(year, month, 1).days_in_month() as u8,
            first_weekday: (self.first_weekday + self.length) % 7,
        }
    }

    /// The days of the month from a day number on, as bits 1 to 31.
    fn on_or_after(&self, day: i64) -> u32 {
        match day - self.first_day + 1 {
            ..=1 => u32::MAX,
            bit @ 2..=31 => u32::MAX << bit,
            32.. => 0,
        }
    }

    fn weekday(&self, day: u8) -> u8 {
        (self.first_weekday + day - 1) % 7
    }
}
