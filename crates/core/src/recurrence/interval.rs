//! Intervals: `90s`, `1h30m`, `PT3H`, `P1M`, `daily`.
//!
//! Intervals of hours or less are elapsed time, counted from the anchor in UTC. Days, weeks, months and years
//! are calendar steps: the k-th step is computed from the anchor and not from the previous step, so that a
//! schedule anchored on the 31st returns to the 31st after a shorter month.

use super::civil::{Civil, DAY_US, day_number};
use crate::limits::{INTERVAL_MAX, INTERVAL_MIN};
use crate::time::{Timestamp, duration_micros};
use jiff::civil::Date;
use jiff::{SignedDuration, Span};
use std::ops::Range;

/// An invalid interval, and what would be valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("interval {found} {problem}")]
pub struct IntervalError {
    pub found: String,
    pub problem: String,
}

/// The distance between occurrences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interval {
    Elapsed { every_us: i64 },
    Days(u32),
    Months(u32),
}

impl Interval {
    pub(super) fn parse(text: &str) -> Result<Self, IntervalError> {
        let word = text.trim().to_ascii_lowercase();
        let spelled = match word.as_str() {
            "hourly" => "PT1H",
            "daily" => "P1D",
            "weekly" => "P1W",
            "monthly" => "P1M",
            "yearly" | "annually" => "P1Y",
            _ => text.trim(),
        };
        let refuse = |problem: &str| IntervalError { found: text.to_owned(), problem: problem.to_owned() };
        let span: Span = spelled.parse().map_err(|_| {
            refuse("is not understood, use for example 90s, 15m, 1h30m, PT3H, P1D, P1M, daily or monthly")
        })?;
        if !span.is_positive() {
            return Err(refuse("must be more than zero"));
        }
        let interval = Interval::from_span(&span).map_err(|problem| refuse(&problem))?;
        interval.in_limits().then_some(interval).ok_or_else(|| refuse("must be from 100ms to 10 years"))
    }

    fn from_span(span: &Span) -> Result<Self, String> {
        let too_long = || "is too long".to_owned();
        let months = i64::from(span.get_years()) * 12 + i64::from(span.get_months());
        let days = i64::from(span.get_weeks()) * 7 + i64::from(span.get_days());
        let rest = (*span).years(0).months(0).weeks(0).days(0);
        let elapsed = SignedDuration::try_from(rest).map_err(|_| too_long())?;
        let count = |number: i64| u32::try_from(number).map_err(|_| too_long());
        match (months > 0, days > 0, elapsed.is_positive()) {
            (true, false, false) => Ok(Interval::Months(count(months)?)),
            (false, true, false) => Ok(Interval::Days(count(days)?)),
            (false, false, _) if elapsed.subsec_nanos() % 1_000 != 0 => {
                Err("is finer than a microsecond, use whole microseconds".to_owned())
            }
            (false, false, _) => {
                let every_us = i64::try_from(elapsed.as_micros()).map_err(|_| too_long())?;
                Ok(Interval::Elapsed { every_us })
            }
            (true, true, false) => Err(
                "mixes months with days, whose sum depends on where it starts; use only years and months, or \
                 only weeks and days"
                    .to_owned(),
            ),
            (true, _, true) => Err(
                "mixes calendar months with hours, but months differ in length; use only years and months, \
                 or only hours"
                    .to_owned(),
            ),
            (false, true, true) => {
                let mixed = "mixes calendar days with hours, but a day is not always 24 hours";
                let hours = days.checked_mul(24).map(SignedDuration::from_hours);
                let all = hours.and_then(|hours| hours.checked_add(elapsed)).ok_or_else(too_long)?;
                let days = Span::new().try_days(days).map_err(|_| too_long())?;
                Err(format!("{mixed}; use {all} for elapsed time, or {days} for calendar days"))
            }
        }
    }

    fn in_limits(self) -> bool {
        match self {
            Interval::Elapsed { every_us } => {
                (duration_micros(INTERVAL_MIN)..=duration_micros(INTERVAL_MAX)).contains(&every_us)
            }
            Interval::Days(days) => i64::from(days) * DAY_US <= duration_micros(INTERVAL_MAX),
            Interval::Months(months) => months <= 120,
        }
    }
}

/// Elapsed steps: the anchor and every multiple of the interval after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ElapsedSteps {
    pub(super) anchor: Timestamp,
    pub(super) every_us: i64,
}

impl ElapsedSteps {
    pub(super) fn nth_in(&self, range: Range<i64>, index: u64) -> Option<i64> {
        let number = self.steps_before(range.start).checked_add(index)?;
        let at = i128::from(self.anchor.as_micros()) + i128::from(number) * i128::from(self.every_us);
        i64::try_from(at).ok().filter(|at| *at < range.end)
    }

    pub(super) fn last_in(&self, range: Range<i64>) -> Option<i64> {
        let number = self.steps_before(range.end).checked_sub(1)?;
        let at = self.anchor.as_micros() + number as i64 * self.every_us;
        Some(at).filter(|at| *at >= range.start)
    }

    pub(super) fn count_in(&self, range: Range<i64>) -> u64 {
        self.steps_before(range.end).saturating_sub(self.steps_before(range.start))
    }

    /// How many occurrences are before an instant.
    fn steps_before(&self, at: i64) -> u64 {
        let passed = i128::from(at) - i128::from(self.anchor.as_micros());
        if passed <= 0 {
            return 0;
        }
        let every = i128::from(self.every_us);
        ((passed + every - 1) / every) as u64
    }
}

/// Calendar steps after the anchor. The anchor itself is an instant, not a reading, and is not included.
#[derive(Debug, Clone, Copy)]
pub(super) struct CalendarSteps {
    date: Date,
    us_of_day: i64,
    step: CalendarStep,
}

#[derive(Debug, Clone, Copy)]
enum CalendarStep {
    Days(u32),
    Months(u32),
}

impl CalendarSteps {
    pub(super) fn days(anchor: Civil, days: u32) -> Self {
        CalendarSteps { date: anchor.date(), us_of_day: anchor.us_of_day(), step: CalendarStep::Days(days) }
    }

    pub(super) fn months(anchor: Civil, months: u32) -> Self {
        CalendarSteps {
            date: anchor.date(),
            us_of_day: anchor.us_of_day(),
            step: CalendarStep::Months(months),
        }
    }

    pub(super) fn nth_in(&self, range: &Range<Civil>, index: u64) -> Option<Civil> {
        let number = self.steps_before(range.start).checked_add(index)?.checked_add(1)?;
        self.reading(number).filter(|reading| *reading < range.end)
    }

    pub(super) fn last_before(&self, end: Civil) -> Option<Civil> {
        match self.steps_before(end) {
            0 => None,
            number => self.reading(number),
        }
    }

    pub(super) fn count(&self, range: &Range<Civil>) -> u64 {
        self.steps_before(range.end) - self.steps_before(range.start)
    }

    /// The reading `number` steps after the anchor, on the month's last day if the month is too short; `None`
    /// after the calendar's end.
    fn reading(&self, number: u64) -> Option<Civil> {
        let count = |per_step: u32| i64::try_from(number).ok()?.checked_mul(i64::from(per_step));
        let span = match self.step {
            CalendarStep::Days(days) => Span::new().try_days(count(days)?),
            CalendarStep::Months(months) => Span::new().try_months(count(months)?),
        };
        let date = self.date.checked_add(span.ok()?).ok()?;
        (date < Date::constant(9999, 1, 1)).then(|| Civil::new(date, self.us_of_day))
    }

    /// How many steps lead to readings before `at`.
    fn steps_before(&self, at: Civil) -> u64 {
        let date = at.date();
        let passed = match self.step {
            CalendarStep::Days(days) => (day_number(date) - day_number(self.date)) / i64::from(days),
            CalendarStep::Months(months) => {
                let months_passed = (i64::from(date.year()) - i64::from(self.date.year())) * 12
                    + i64::from(date.month())
                    - i64::from(self.date.month());
                months_passed / i64::from(months)
            }
        };
        // Within the same day or month, the reading may still be ahead.
        match u64::try_from(passed) {
            Ok(0) | Err(_) => 0,
            Ok(number) if self.reading(number).is_some_and(|reading| reading < at) => number,
            Ok(number) => number - 1,
        }
    }
}

impl CalendarSteps {
    /// "every day", "every 2 weeks", "every 18 months".
    pub(super) fn describe(&self) -> String {
        let (number, unit) = match self.step {
            CalendarStep::Days(days) if days % 7 == 0 => (days / 7, "week"),
            CalendarStep::Days(days) => (days, "day"),
            CalendarStep::Months(months) if months % 12 == 0 => (months / 12, "year"),
            CalendarStep::Months(months) => (months, "month"),
        };
        if number == 1 { format!("Every {unit}") } else { format!("Every {number} {unit}s") }
    }
}

impl ElapsedSteps {
    pub(super) fn describe(&self) -> String {
        let mut parts = vec![];
        let mut rest = self.every_us;
        for (size, unit) in [
            (3_600_000_000, "hour"),
            (60_000_000, "minute"),
            (1_000_000, "second"),
            (1_000, "millisecond"),
            (1, "microsecond"),
        ] {
            let number = rest / size;
            rest %= size;
            match number {
                0 => {}
                1 => parts.push(format!("1 {unit}")),
                _ => parts.push(format!("{number} {unit}s")),
            }
        }
        match &parts[..] {
            [only] => format!("Every {}", only.strip_prefix("1 ").unwrap_or(only)),
            _ => format!("Every {}", parts.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Interval::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn intervals_are_read_as_short_text_iso_or_words() {
        let elapsed = |seconds: i64| Ok(Interval::Elapsed { every_us: seconds * 1_000_000 });
        for (text, seconds) in [
            ("90s", 90),
            ("15m", 900),
            ("3h", 10_800),
            ("1h30m", 5_400),
            ("PT3H", 10_800),
            ("pt1h30m", 5_400),
            ("hourly", 3_600),
            ("PT36H", 129_600),
        ] {
            assert_eq!(Interval::parse(text), elapsed(seconds), "{text}");
        }
        assert_eq!(Interval::parse("500ms"), Ok(Interval::Elapsed { every_us: 500_000 }));
        assert_eq!(Interval::parse("P1D"), Ok(Interval::Days(1)));
        assert_eq!(Interval::parse("Daily"), Ok(Interval::Days(1)));
        assert_eq!(Interval::parse("weekly"), Ok(Interval::Days(7)));
        assert_eq!(Interval::parse("P1W2D"), Ok(Interval::Days(9)));
        assert_eq!(Interval::parse("P1M"), Ok(Interval::Months(1)));
        assert_eq!(Interval::parse("monthly"), Ok(Interval::Months(1)));
        assert_eq!(Interval::parse("yearly"), Ok(Interval::Months(12)));
        assert_eq!(Interval::parse("P1Y6M"), Ok(Interval::Months(18)));
    }

    #[test]
    fn intervals_that_mix_or_make_no_sense_say_what_would() {
        let mixed = "mixes calendar days with hours, but a day is not always 24 hours";
        for (text, elapsed, days) in [
            ("P1DT6H", "PT30H", "P1D"),
            ("P1DT2H", "PT26H", "P1D"),
            ("P1W2DT90M", "PT217H30M", "P9D"),
            ("1d 0.5s", "PT24H0.5S", "P1D"),
        ] {
            assert_eq!(
                error(text),
                format!(
                    "interval {text} {mixed}; use {elapsed} for elapsed time, or {days} for calendar days"
                )
            );
            assert!(Interval::parse(elapsed).is_ok() && Interval::parse(days).is_ok(), "{text}");
        }
        assert!(error("P1MT2H").contains("mixes calendar months with hours"));
        assert!(error("P1M1D").contains("mixes months with days"));
        assert!(error("P1M1DT1H").contains("mixes"));
        assert!(error("soon").starts_with("interval soon is not understood, use for example 90s"));
        assert!(error("5").contains("is not understood"));
        assert!(error("").contains("is not understood"));
        assert!(error("-1h").contains("more than zero"));
        assert!(error("P0D").contains("more than zero"));
        assert!(error("99ms").contains("from 100ms to 10 years"));
        assert!(error("P11Y").contains("from 100ms to 10 years"));
        assert!(error("P4000D").contains("from 100ms to 10 years"));
    }

    #[test]
    fn months_are_counted_from_the_anchor_and_never_drift() {
        let steps = CalendarSteps::months(Civil::new(Date::constant(2027, 10, 31), 5), 1);
        let dates: Vec<String> =
            (1..=6).map(|number| steps.reading(number).unwrap().date().to_string()).collect();
        assert_eq!(
            dates,
            ["2027-11-30", "2027-12-31", "2028-01-31", "2028-02-29", "2028-03-31", "2028-04-30"]
        );
        for number in 1..=500 {
            let reading = steps.reading(number).unwrap();
            assert_eq!(steps.steps_before(reading), number - 1);
            assert_eq!(steps.steps_before(Civil(reading.0 + 1)), number);
        }
    }

    #[test]
    fn a_leap_day_comes_back_in_leap_years() {
        let steps = CalendarSteps::months(Civil::new(Date::constant(2028, 2, 29), 0), 12);
        let dates: Vec<String> =
            (1..=4).map(|number| steps.reading(number).unwrap().date().to_string()).collect();
        assert_eq!(dates, ["2029-02-28", "2030-02-28", "2031-02-28", "2032-02-29"]);
    }

    #[test]
    fn steps_end_with_the_calendar_instead_of_overflowing() {
        let steps = CalendarSteps::days(Civil::new(Date::constant(2026, 1, 1), 0), 1);
        let forever = Civil(0)..Civil(i64::MAX);
        assert_eq!(steps.nth_in(&forever, u64::MAX), None);
        assert_eq!(steps.nth_in(&forever, 10_000_000), None);
        let elapsed = ElapsedSteps { anchor: Timestamp::EPOCH, every_us: 1_000_000 };
        assert_eq!(elapsed.nth_in(0..i64::MAX, u64::MAX), None);
        assert_eq!(elapsed.nth_in(0..i64::MAX, u64::MAX - 1), None);
    }
}
