//! Descriptions of patterns in plain English, computed from the parsed sets and not from the text, so that
//! they say what will happen.

use super::days::{MonthDays, WeekDays};
use super::{CronPattern, nth_bit};

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 13] = [
    "",
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
const ORDINALS: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];
/// If there are more times of day than this, they are described by their fields.
const TIMES_LISTED_MAX: u64 = 6;

impl CronPattern {
    /// When it fires, without the zone: "At 09:00 on Monday to Friday in January".
    pub(in crate::recurrence) fn describe(&self) -> String {
        let mut text = capitalised(&self.describe_times());
        for part in [self.describe_days(), self.describe_months(), self.describe_years()] {
            if !part.is_empty() {
                text.push(' ');
                text.push_str(&part);
            }
        }
        text
    }

    fn lists_times(&self) -> bool {
        self.times.seconds.is_power_of_two() && self.times.count() <= TIMES_LISTED_MAX
    }

    fn describe_times(&self) -> String {
        let times = &self.times;
        if self.lists_times() {
            let clock = |rank| {
                let second = times.nth(rank);
                let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
                if second == 0 {
                    format!("{hour:02}:{minute:02}")
                } else {
                    format!("{hour:02}:{minute:02}:{second:02}")
                }
            };
            return format!("at {}", joined(&(0..times.count()).map(clock).collect::<Vec<_>>(), "and"));
        }
        let second = FieldWords::of(times.seconds, 60, "second");
        let minute = FieldWords::of(times.minutes, 60, "minute");
        let hour = FieldWords::of(times.hours, 24, "hour");
        let mut words = vec![];
        if times.seconds == 1 {
            words.push(minute.leading());
        } else {
            words.push(second.leading());
            words.push(minute.following(second.is_at));
        }
        words.push(hour.following(minute.is_at));
        words.retain(|word| !word.is_empty());
        words.join(" ")
    }

    fn describe_days(&self) -> String {
        let (of_month, of_week) = (&self.days.month_days, &self.days.week_days);
        let month_days = (of_month.fixed != MonthDays::ALL).then(|| of_month.describe());
        let week_days = (of_week.every != WeekDays::ALL).then(|| of_week.describe());
        match (month_days, week_days) {
            (Some(month_days), Some(week_days)) if self.days.both_must_match() => {
                format!("on {month_days}, if it is also {week_days}")
            }
            (Some(month_days), Some(week_days)) => format!("on {month_days} or on {week_days}"),
            (Some(_), None) | (None, Some(_)) if !self.days.both_must_match() => "every day".to_owned(),
            (Some(days), None) | (None, Some(days)) => format!("on {days}"),
            (None, None) if self.lists_times() => "every day".to_owned(),
            (None, None) => String::new(),
        }
    }

    fn describe_months(&self) -> String {
        if self.months.count_ones() == 12 {
            return String::new();
        }
        let names = runs(self.months, |month| MONTHS[month as usize].to_owned());
        format!("in {}", joined(&names, "and"))
    }

    fn describe_years(&self) -> String {
        let Some(years) = self.years else { return String::new() };
        let years: Vec<u64> = years.years().into_iter().map(|year| year as u64).collect();
        format!("in {}", joined(&number_runs(&years, |year| year.to_string()), "and"))
    }
}

/// One time field in words.
struct FieldWords {
    unit: &'static str,
    /// Single values rather than a repetition.
    is_at: bool,
    /// `Some(1)` for all values, `Some(n)` for every n-th from zero on.
    every: Option<u64>,
    values: String,
}

impl FieldWords {
    fn of(bits: u64, size: u64, unit: &'static str) -> Self {
        let count = u64::from(bits.count_ones());
        let step = size / count;
        let even = size.is_multiple_of(count) && (0..count).all(|index| bits >> (index * step) & 1 == 1);
        let every = (even && count > 1).then_some(step);
        let names = runs(bits, |value| value.to_string());
        let plural = if count > 1 { "s" } else { "" };
        FieldWords {
            unit,
            is_at: every.is_none(),
            every,
            values: format!("{unit}{plural} {}", joined(&names, "and")),
        }
    }

    /// As the first words of a sentence.
    fn leading(&self) -> String {
        match self.every {
            Some(1) => format!("every {}", self.unit),
            Some(step) => format!("every {step} {}s", self.unit),
            None => format!("at {}", self.values),
        }
    }

    /// After the smaller unit; `named` says whether that one has single values.
    fn following(&self, named: bool) -> String {
        match self.every {
            Some(1) if named => format!("of every {}", self.unit),
            Some(1) => String::new(),
            Some(step) => format!("of every {} {}", ordinal(step), self.unit),
            None => format!("in {}", self.values),
        }
    }
}

impl MonthDays {
    fn describe(&self) -> String {
        let mut parts = vec![];
        let days = runs(u64::from(self.fixed), |day| day.to_string());
        if !days.is_empty() {
            let plural = if self.fixed.is_power_of_two() { "" } else { "s" };
            parts.push(format!("day{plural} {} of the month", joined(&days, "and")));
        }
        for index in 0..self.nearest_weekday.count_ones() {
            let day = nth_bit(u64::from(self.nearest_weekday), u64::from(index));
            parts.push(format!("the weekday nearest day {day} of the month"));
        }
        for index in (0..self.before_last.count_ones()).rev() {
            parts.push(match nth_bit(u64::from(self.before_last), u64::from(index)) {
                0 => "the last day of the month".to_owned(),
                1 => "the day before the last of the month".to_owned(),
                before => format!("the day {before} days before the last of the month"),
            });
        }
        if self.last_weekday {
            parts.push("the last weekday of the month".to_owned());
        }
        joined(&parts, "and")
    }
}

impl WeekDays {
    fn describe(&self) -> String {
        let mut parts = weekday_runs(self.every);
        for (days, which) in self.nth.iter().zip(ORDINALS).chain([(&self.last, "last")]) {
            let names: Vec<&str> =
                (0..7).filter(|day| days >> day & 1 == 1).map(|day| WEEKDAYS[day]).collect();
            parts.extend(names.iter().map(|name| format!("the {which} {name} of the month")));
        }
        joined(&parts, "and")
    }
}

/// Weekdays in the usual order: the week starts on Monday.
fn weekday_runs(days: u8) -> Vec<String> {
    let from_monday = u64::from(days >> 1) | u64::from(days & 1) << 6;
    runs(from_monday, |day| WEEKDAYS[(day as usize + 1) % 7].to_owned())
}

fn runs(bits: u64, name: impl Fn(u64) -> String) -> Vec<String> {
    let values: Vec<u64> = (0..64).filter(|value| bits >> value & 1 == 1).collect();
    number_runs(&values, name)
}

/// Three or more neighbours are described as a range.
fn number_runs(values: &[u64], name: impl Fn(u64) -> String) -> Vec<String> {
    let mut parts = vec![];
    for run in values.chunk_by(|a, b| a + 1 == *b) {
        match run {
            [first, _, .., last] => parts.push(format!("{} to {}", name(*first), name(*last))),
            few => parts.extend(few.iter().map(|value| name(*value))),
        }
    }
    parts
}

fn joined(parts: &[String], conjunction: &str) -> String {
    match parts {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} {conjunction} {last}", first.join(", ")),
    }
}

fn ordinal(number: u64) -> String {
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
