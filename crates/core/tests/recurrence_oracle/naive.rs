//! Cron patterns as lists of items that can print themselves and test, value by value, whether they match.
//! Slow, and written independently of the real implementation: no bit sets, no parsing, days tested against
//! the calendar.

use jiff::ToSpan;
use jiff::civil::{Date, DateTime, Weekday};

#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Star,
    StarStep(i16),
    Value(i16),
    Range(i16, i16),
    RangeStep(i16, i16, i16),
    LastDay,
    BeforeLast(i8),
    NearestWeekday(i8),
    LastWeekday,
    NthWeekday(i8, i8),
    LastOfWeekday(i8),
}

/// Lists of items. Without seconds it is a pattern of five fields; with years, one of seven.
#[derive(Debug, Clone)]
pub struct NaiveCron {
    pub second: Option<Vec<Item>>,
    pub minute: Vec<Item>,
    pub hour: Vec<Item>,
    pub day_of_month: Vec<Item>,
    pub month: Vec<Item>,
    pub day_of_week: Vec<Item>,
    pub year: Option<Vec<Item>>,
}

impl NaiveCron {
    pub fn text(&self) -> String {
        let fields = [&self.minute, &self.hour, &self.day_of_month, &self.month, &self.day_of_week];
        let fields = self.second.iter().chain(fields).chain(&self.year);
        fields
            .map(|items| items.iter().map(Item::text).collect::<Vec<_>>().join(","))
            .collect::<Vec<_>>()
            .join(" ")
    }

    pub fn matches(&self, at: DateTime) -> bool {
        let second = match &self.second {
            Some(items) => any(items, 0, 59, at.second().into()),
            None => at.second() == 0,
        };
        second
            && at.subsec_nanosecond() == 0
            && any(&self.minute, 0, 59, at.minute().into())
            && any(&self.hour, 0, 23, at.hour().into())
            && any(&self.month, 1, 12, at.month().into())
            && self.year.as_ref().is_none_or(|items| any(items, 1970, 2199, at.year()))
            && self.matches_day(at.date())
    }

    fn matches_day(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset().into();
        let of_month = any(&self.day_of_month, 1, 31, date.day().into()) || special(&self.day_of_month, date);
        let of_week = any(&self.day_of_week, 0, 6, weekday) || special(&self.day_of_week, date);
        let open = |items: &[Item]| items.iter().any(|item| matches!(item, Item::Star | Item::StarStep(_)));
        if open(&self.day_of_month) || open(&self.day_of_week) {
            of_month && of_week
        } else {
            of_month || of_week
        }
    }
}

impl Item {
    fn text(&self) -> String {
        match self {
            Item::Star => "*".to_owned(),
            Item::StarStep(step) => format!("*/{step}"),
            Item::Value(value) => value.to_string(),
            Item::Range(from, to) => format!("{from}-{to}"),
            Item::RangeStep(from, to, step) => format!("{from}-{to}/{step}"),
            Item::LastDay => "L".to_owned(),
            Item::BeforeLast(days) => format!("L-{days}"),
            Item::NearestWeekday(day) => format!("{day}W"),
            Item::LastWeekday => "LW".to_owned(),
            Item::NthWeekday(weekday, nth) => format!("{weekday}#{nth}"),
            Item::LastOfWeekday(weekday) => format!("{weekday}L"),
        }
    }
}

fn any(items: &[Item], min: i16, max: i16, value: i16) -> bool {
    let size = max - min + 1;
    let between = |from: i16, to: i16| {
        if from <= to { from <= value && value <= to } else { value >= from || value <= to }
    };
    items.iter().any(|item| match *item {
        Item::Star => true,
        Item::StarStep(step) => (value - min) % step == 0,
        Item::Value(wanted) => value == wanted,
        Item::Range(from, to) => between(from, to),
        Item::RangeStep(from, to, step) => between(from, to) && (value - from).rem_euclid(size) % step == 0,
        _ => false,
    })
}

fn special(items: &[Item], date: Date) -> bool {
    items.iter().any(|item| match *item {
        Item::LastDay => date == date.last_of_month(),
        Item::BeforeLast(days) => date.checked_add(i64::from(days).days()).unwrap() == date.last_of_month(),
        Item::NearestWeekday(day) => {
            day <= date.days_in_month() && date == nearest_weekday(date.with().day(day).build().unwrap())
        }
        Item::LastWeekday => date == nearest_weekday_back(date.last_of_month()),
        Item::NthWeekday(weekday, nth) => {
            date.nth_weekday_of_month(nth, weekday_of(weekday)).is_ok_and(|day| day == date)
        }
        Item::LastOfWeekday(weekday) => date == date.nth_weekday_of_month(-1, weekday_of(weekday)).unwrap(),
        _ => false,
    })
}

fn weekday_of(number: i8) -> Weekday {
    Weekday::from_sunday_zero_offset(number).unwrap()
}

fn is_weekday(date: Date) -> bool {
    !matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday)
}

fn nearest_weekday(date: Date) -> Date {
    let candidates = [0, -1, 1, -2, 2].map(|days: i64| date.checked_add(days.days()).unwrap());
    candidates.into_iter().find(|day| day.month() == date.month() && is_weekday(*day)).unwrap()
}

fn nearest_weekday_back(date: Date) -> Date {
    (0..3i64).map(|days| date.checked_sub(days.days()).unwrap()).find(|day| is_weekday(*day)).unwrap()
}
