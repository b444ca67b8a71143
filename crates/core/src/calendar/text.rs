//! The texts of a calendar's entries: weekdays, dates and times of day.

use super::weekday;
use jiff::civil::{Date, Weekday};

const DAY_SECONDS: u32 = 86_400;

/// A weekday, or weekdays from one to another; `FRI-MON` includes the weekend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WeekdaySpan {
    first: i8,
    last: i8,
}

impl WeekdaySpan {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fix = || format!("must be a weekday such as SAT or a range such as MON-FRI, not {text:?}");
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let day = |text| weekday(text).map(Weekday::to_monday_zero_offset).ok_or_else(fix);
        Ok(WeekdaySpan { first: day(first)?, last: day(last)? })
    }

    pub(super) fn contains(self, day: Weekday) -> bool {
        let day = day.to_monday_zero_offset();
        if self.first <= self.last {
            (self.first..=self.last).contains(&day)
        } else {
            day >= self.first || day <= self.last
        }
    }
}

/// Dates from one to another, once or every year. A yearly range may include the end of the year.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DaySpan {
    Once(Date, Date),
    /// Months and days.
    Yearly((i8, i8), (i8, i8)),
}

impl DaySpan {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fix = || {
            format!(
                "must be a date such as 2026-12-25, a range such as 2026-12-24/2026-12-31, or a date of every year \
                 such as 12-25, not {text:?}"
            )
        };
        let (first, last) = text.trim().split_once('/').unwrap_or((text.trim(), text.trim()));
        if let (Some(first), Some(last)) = (month_and_day(first), month_and_day(last)) {
            return Ok(DaySpan::Yearly(first, last));
        }
        let date = |text: &str| text.parse::<Date>().ok().filter(|_| text.len() == 10).ok_or_else(fix);
        let (first, last) = (date(first)?, date(last)?);
        if last < first {
            return Err(format!("must not end before it starts, but {text:?} does"));
        }
        Ok(DaySpan::Once(first, last))
    }

    pub(super) fn contains(self, date: Date) -> bool {
        match self {
            DaySpan::Once(first, last) => (first..=last).contains(&date),
            DaySpan::Yearly(first, last) => {
                let day = (date.month(), date.day());
                if first <= last { (first..=last).contains(&day) } else { day >= first || day <= last }
            }
        }
    }
}

/// `12-25`. The 29th of February exists in some years.
fn month_and_day(text: &str) -> Option<(i8, i8)> {
    let (month, day) = text.split_once('-').filter(|_| text.len() == 5)?;
    let date = Date::new(2024, month.parse().ok()?, day.parse().ok()?).ok()?;
    Some((date.month(), date.day()))
}

/// Times of day, the end excluded; `22:00-06:00` includes midnight. In seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeSpan {
    start: u32,
    end: u32,
}

impl TimeSpan {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fix = || format!("must be times such as 09:00-17:30 or 22:00-06:00, not {text:?}");
        let (start, end) = text.trim().split_once('-').ok_or_else(fix)?;
        let span =
            TimeSpan { start: time_of_day(start).ok_or_else(fix)?, end: time_of_day(end).ok_or_else(fix)? };
        if span.start == span.end || span.start == DAY_SECONDS {
            return Err(format!(
                "must have an end after its start; for whole days, leave times out; not {text:?}"
            ));
        }
        Ok(span)
    }

    pub(super) fn contains(self, second: u32) -> bool {
        if self.start <= self.end {
            (self.start..self.end).contains(&second)
        } else {
            second >= self.start || second < self.end
        }
    }
}

/// `09:00`, `09:00:30` or `24:00` as a second of the day.
fn time_of_day(text: &str) -> Option<u32> {
    let parts: Vec<&str> = text.trim().split(':').collect();
    let number = |text: &str, max: u32| text.parse().ok().filter(|number| *number <= max && text.len() == 2);
    let [hour, minute, second] = match parts[..] {
        [hour, minute] => [number(hour, 24)?, number(minute, 59)?, 0],
        [hour, minute, second] => [number(hour, 24)?, number(minute, 59)?, number(second, 59)?],
        _ => return None,
    };
    Some(hour * 3_600 + minute * 60 + second).filter(|second| *second <= DAY_SECONDS)
}
