//! The days of a rule's periods, and the readings on them.
//!
//! Readings are numbered, not listed: the number of a reading is that of its day times the times of a day, plus that of
//! its time. Finding or counting the readings of a period therefore costs as much as its days, however many times of
//! day the rule has. `BYSETPOS` selects numbers.

use super::super::civil::{Civil, SECOND_US, day_number};
use super::super::cron::{TimesOfDay, day_and_second, nth_bit};
use super::{Frequency, NthDay, RuleParts};
use jiff::civil::Date;

/// Days in the 400 years after which dates and weekdays repeat.
pub(super) const CYCLE_DAYS: u64 = 146_097;

/// 64-bit words for the numbers from 0 to 366.
const WORDS: usize = 6;
type Bits = [u64; WORDS];

fn insert(bits: &mut Bits, number: usize) {
    bits[number / 64] |= 1 << (number % 64);
}

fn has(bits: &Bits, number: i64) -> bool {
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    bits.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
}

fn count_below(bits: &Bits, number: u64) -> u64 {
    let mut count = 0;
    for (word, first) in bits.iter().zip((0..).step_by(64)) {
        let wanted = match number.saturating_sub(first) {
            0 => break,
            length @ 1..64 => word & ((1 << length) - 1),
            64.. => *word,
        };
        count += u64::from(wanted.count_ones());
    }
    count
}

/// Numbers that count from the start, and numbers that count from the end.
#[derive(Debug, Clone, Default)]
struct BothEnds {
    from_start: Bits,
    from_end: Bits,
}

impl BothEnds {
    fn insert(&mut self, number: i16) {
        let bits = if number > 0 { &mut self.from_start } else { &mut self.from_end };
        insert(bits, usize::from(number.unsigned_abs()));
    }

    /// `None` for an empty list, which restricts nothing.
    fn of(list: &[i16]) -> Option<Self> {
        let mut ends = BothEnds::default();
        list.iter().for_each(|number| ends.insert(*number));
        (!list.is_empty()).then_some(ends)
    }

    fn has(&self, from_start: i16, from_end: i16) -> bool {
        has(&self.from_start, from_start.into()) || has(&self.from_end, from_end.into())
    }
}

/// The places that `BYSETPOS` selects from the readings of a period.
#[derive(Debug, Clone)]
pub(super) struct Positions(BothEnds);

impl Positions {
    pub(super) fn of(list: &[i16]) -> Option<Self> {
        BothEnds::of(list).map(Positions)
    }

    /// How many of so many readings they select.
    fn count(&self, readings: u64) -> u64 {
        let BothEnds { from_start, from_end } = &self.0;
        let below = readings.saturating_add(1);
        let (starts, ends) = (count_below(from_start, below), count_below(from_end, below));
        if starts == 0 || ends == 0 || readings >= 2 * 64 * WORDS as u64 {
            return starts + ends;
        }
        let readings = readings as i64;
        let is_twice = |place: &i64| has(from_start, *place) && has(from_end, readings + 1 - place);
        starts + ends - (1..=readings).filter(is_twice).count() as u64
    }

    /// Their places among so many readings, from 0 and in ascending order.
    fn places(&self, readings: u64) -> Vec<u64> {
        let numbers = || 1..=readings.min(64 * WORDS as u64);
        let from_start = numbers().filter(|number| has(&self.0.from_start, *number as i64));
        let from_end = numbers().filter(|number| has(&self.0.from_end, *number as i64));
        let mut places: Vec<u64> =
            from_start.map(|number| number - 1).chain(from_end.map(|number| readings - number)).collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// Which days match the BY parts of a rule.
#[derive(Debug, Clone)]
pub(super) struct DayFilter {
    months: Option<BothEnds>,
    month_days: Option<BothEnds>,
    year_days: Option<BothEnds>,
    week_numbers: Option<BothEnds>,
    week_days: Option<WeekdayFilter>,
}

#[derive(Debug, Clone, Default)]
struct WeekdayFilter {
    /// Monday is bit 0.
    every: u8,
    nth: [BothEnds; 7],
    has_nth: bool,
    is_nth_of_year: bool,
}

impl WeekdayFilter {
    fn of(days: &[NthDay], is_nth_of_year: bool) -> Option<Self> {
        let mut filter = WeekdayFilter { is_nth_of_year, ..WeekdayFilter::default() };
        for NthDay { nth, day } in days {
            let day = usize::from(day.to_monday_zero_offset().unsigned_abs());
            if *nth == 0 {
                filter.every |= 1 << day;
            } else {
                filter.nth[day].insert(*nth);
                filter.has_nth = true;
            }
        }
        (!days.is_empty()).then_some(filter)
    }

    fn has(&self, day: &Day) -> bool {
        if self.every >> day.weekday & 1 == 1 || !self.has_nth {
            return self.every >> day.weekday & 1 == 1;
        }
        let (place, length) =
            if self.is_nth_of_year { (day.of_year, day.in_year) } else { (day.of_month, day.in_month) };
        self.nth[usize::from(day.weekday)].has((place - 1) / 7 + 1, (length - place) / 7 + 1)
    }
}

impl DayFilter {
    pub(super) fn of(parts: &RuleParts) -> Self {
        let is_nth_of_year = parts.frequency == Frequency::Yearly && parts.months.is_empty();
        DayFilter {
            months: BothEnds::of(&parts.months),
            month_days: BothEnds::of(&parts.month_days),
            year_days: BothEnds::of(&parts.year_days),
            week_numbers: BothEnds::of(&parts.week_numbers),
            week_days: WeekdayFilter::of(&parts.days, is_nth_of_year),
        }
    }

    pub(super) fn has_month(&self, month: i8) -> bool {
        self.months.as_ref().is_none_or(|months| has(&months.from_start, month.into()))
    }

    fn has(&self, day: &Day) -> bool {
        let holds = |list: &Option<BothEnds>, place: i16, length: i16| {
            list.as_ref().is_none_or(|list| list.has(place, length - place + 1))
        };
        self.has_month(day.month)
            && holds(&self.month_days, day.of_month, day.in_month)
            && self.week_days.as_ref().is_none_or(|days| days.has(day))
            && holds(&self.year_days, day.of_year, day.in_year)
            && self.week_numbers.as_ref().is_none_or(|weeks| {
                let week = day.date().iso_week_date();
                let (number, last) = (i16::from(week.week()), i16::from(week.weeks_in_year()));
                weeks.has(number, last - number + 1)
            })
    }

    /// The matching days among `length` days.
    pub(super) fn days(&self, first: Date, length: u16) -> DaySet {
        #[cfg(test)]
        DAYS_EXAMINED.with(|count| count.set(count.get() + u64::from(length)));
        let mut set = DaySet { first: day_number(first), bits: [0; WORDS] };
        let mut day = Day::of(first);
        for number in 0..length {
            if self.has(&day) {
                insert(&mut set.bits, number.into());
            }
            day.advance();
        }
        set
    }
}

#[cfg(test)]
thread_local! {
    /// The work of searches in this thread.
    pub(super) static DAYS_EXAMINED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A day and its places in its month, year and week. Advancing it costs less than computing them from a date.
struct Day {
    year: i16,
    month: i8,
    of_month: i16,
    in_month: i16,
    of_year: i16,
    in_year: i16,
    /// Monday is 0.
    weekday: u8,
}

impl Day {
    fn of(date: Date) -> Self {
        Day {
            year: date.year(),
            month: date.month(),
            of_month: date.day().into(),
            in_month: date.days_in_month().into(),
            of_year: date.day_of_year(),
            in_year: date.days_in_year(),
            weekday: date.weekday().to_monday_zero_offset().unsigned_abs(),
        }
    }

    fn date(&self) -> Date {
        Date::new(self.year, self.month, self.of_month as i8).unwrap_or(Date::MAX)
    }

    fn advance(&mut self) {
        self.weekday = (self.weekday + 1) % 7;
        if self.of_month < self.in_month {
            self.of_month += 1;
            self.of_year += 1;
            return;
        }
        let (year, month) = if self.month == 12 { (self.year + 1, 1) } else { (self.year, self.month + 1) };
        let first = Date::new(year, month, 1).unwrap_or(Date::MAX);
        *self = Day { weekday: self.weekday, year, month, of_month: 1, ..Day::of(first) };
    }
}

/// Some days of a period.
#[derive(Debug, Clone, Copy)]
pub(super) struct DaySet {
    /// The number of the first day of the period, which is bit 0.
    first: i64,
    bits: Bits,
}

impl DaySet {
    fn count(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn nth(&self, index: u64) -> i64 {
        let mut left = index;
        for (word, first) in self.bits.iter().zip((self.first..).step_by(64)) {
            let count = u64::from(word.count_ones());
            if left < count {
                return first + i64::from(nth_bit(*word, left));
            }
            left -= count;
        }
        unreachable!("a period with {} days has none with {index} before it", self.count())
    }
}

/// The readings of a period.
pub(super) struct Period<'a> {
    pub(super) days: DaySet,
    pub(super) times: &'a TimesOfDay,
    pub(super) positions: Option<&'a Positions>,
}

impl Period<'_> {
    /// How many there would be without `BYSETPOS`.
    fn unselected(&self) -> u64 {
        self.days.count() * self.times.count()
    }

    pub(super) fn count(&self) -> u64 {
        let all = self.unselected();
        self.positions.map_or(all, |positions| positions.count(all))
    }

    /// How many are before `at`.
    pub(super) fn rank(&self, at: Civil) -> u64 {
        let (day, second) = day_and_second(at);
        let number = day - self.days.first;
        let mut rank = count_below(&self.days.bits, u64::try_from(number).unwrap_or(0)) * self.times.count();
        if has(&self.days.bits, number) {
            rank += self.times.rank(second);
        }
        match self.positions {
            None => rank,
            Some(positions) => {
                positions.places(self.unselected()).partition_point(|place| *place < rank) as u64
            }
        }
    }

    /// The one with `rank` others before it.
    pub(super) fn nth(&self, rank: u64) -> Civil {
        let place = match self.positions {
            None => rank,
            Some(positions) => positions.places(self.unselected())[rank as usize],
        };
        let day = self.days.nth(place / self.times.count());
        let second = self.times.nth(place % self.times.count());
        Civil((day * 86_400 + i64::from(second)) * SECOND_US)
    }
}
