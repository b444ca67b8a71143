//! The parser of patterns.

use super::days::{DayRule, MonthDays, WeekDays};
use super::error::{CronError, CronField};
use super::field::{Piece, Values, parse_item};
use super::times::TimesOfDay;
use super::{CronPattern, YEARS, YearSet};

const FIELDS: [CronField; 7] = [
    CronField::Second,
    CronField::Minute,
    CronField::Hour,
    CronField::DayOfMonth,
    CronField::Month,
    CronField::DayOfWeek,
    CronField::Year,
];

/// Where a pattern comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::recurrence) enum PatternSource {
    /// A user wrote it now.
    Submitted,
    /// An earlier release may have accepted it by looser rules, and the job continues by them.
    Stored,
}

pub(super) fn parse(text: &str, seed: u64, source: PatternSource) -> Result<CronPattern, CronError> {
    let pieces = words(text);
    match pieces[..] {
        [word, ..] if word.text.starts_with('@') => {
            let expanded = shorthand(word)?;
            match pieces.get(1) {
                None => parse_fields(&words(expanded), expanded, seed, source),
                Some(extra) => Err(extra.whole_error("is more than a shorthand takes", "leave it out")),
            }
        }
        _ => parse_fields(&pieces, text, seed, source),
    }
}

/// The words between white space, each with its column.
fn words(text: &str) -> Vec<Piece<'_>> {
    let mut words = vec![];
    let mut column = 1;
    for run in text.split_inclusive(char::is_whitespace) {
        let word = run.trim_end();
        if !word.is_empty() {
            words.push(Piece { text: word, column });
        }
        column += run.chars().count();
    }
    words
}

fn shorthand(word: Piece<'_>) -> Result<&'static str, CronError> {
    let refuse = |problem, expected| Err(word.whole_error(problem, expected));
    match word.text.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => Ok("0 0 1 1 *"),
        "@monthly" => Ok("0 0 1 * *"),
        "@weekly" => Ok("0 0 * * 0"),
        "@daily" | "@midnight" => Ok("0 0 * * *"),
        "@hourly" => Ok("0 * * * *"),
        "@reboot" => refuse(
            "has no meaning where many machines share the jobs",
            "submit the job when a machine starts",
        ),
        "@every" => refuse("is not cron", "use an interval such as 5m"),
        _ => refuse("is not known", "use @hourly, @daily, @weekly, @monthly or @yearly"),
    }
}

/// The pattern under construction.
struct Draft {
    times: TimesOfDay,
    months: u64,
    days: DayRule,
    years: Option<YearSet>,
    hour_is_wildcard: bool,
    minutes_repeat: bool,
    hours_repeat: bool,
    uses_hash: bool,
}

fn parse_fields(
    pieces: &[Piece<'_>],
    text: &str,
    seed: u64,
    source: PatternSource,
) -> Result<CronPattern, CronError> {
    let fields = match pieces.len() {
        5 => &FIELDS[1..6],
        6 => &FIELDS[..6],
        7 => &FIELDS[..],
        count => return Err(wrong_count(pieces, text, count)),
    };
    let mut draft = Draft {
        times: TimesOfDay { hours: 0, minutes: 0, seconds: u64::from(pieces.len() == 5) },
        months: 0,
        days: DayRule {
            month_days: MonthDays::default(),
            week_days: WeekDays::default(),
            month_days_open: false,
            week_days_open: false,
        },
        years: None,
        hour_is_wildcard: false,
        minutes_repeat: false,
        hours_repeat: false,
        uses_hash: false,
    };
    for (field, piece) in fields.iter().zip(pieces) {
        if source == PatternSource::Submitted {
            refuse_any_day_in_list(*field, *piece)?;
        }
        draft.read_field(*field, *piece, seed)?;
    }
    let Draft { times, months, days, years, hour_is_wildcard, minutes_repeat, hours_repeat, uses_hash } =
        draft;
    let repeats_in_hours = minutes_repeat && hours_repeat;
    let end_year = years.and_then(|years| years.years().last().map(|year| year + 1)).unwrap_or(YEARS.end);
    let pattern =
        CronPattern { times, days, months, years, end_year, hour_is_wildcard, repeats_in_hours, uses_hash };
    if pattern.ever_matches() { Ok(pattern) } else { Err(never_matches(fields, pieces)) }
}

/// `?,5` would be every day, which is not what the 5 says.
fn refuse_any_day_in_list(field: CronField, piece: Piece<'_>) -> Result<(), CronError> {
    let is_day = matches!(field, CronField::DayOfMonth | CronField::DayOfWeek);
    let items: Vec<Piece<'_>> = piece.split(',').collect();
    match items.iter().find(|item| item.text.starts_with('?')) {
        Some(any) if is_day && items.len() > 1 => {
            Err(any.error(field, "stands for any day", "use ? alone, or leave it out of the list"))
        }
        _ => Ok(()),
    }
}

fn wrong_count(pieces: &[Piece<'_>], text: &str, count: usize) -> CronError {
    let (column, found, problem) = match pieces.get(7) {
        Some(extra) => (extra.column, extra.text.to_owned(), format!("is one field too many of {count}")),
        None if count == 0 => (1, String::new(), "the pattern is empty".to_owned()),
        None => (
            text.trim_end().chars().count() + 1,
            String::new(),
            format!("the pattern has {count} of 5 fields"),
        ),
    };
    let expected = "use minute, hour, day of month, month, day of week; optionally a second first, and then a year \
         last";
    CronError { column, field: None, found, problem, expected: expected.to_owned() }
}

fn never_matches(fields: &[CronField], pieces: &[Piece<'_>]) -> CronError {
    let day = fields.iter().position(|field| *field == CronField::DayOfMonth).unwrap_or(0);
    let month = pieces[day + 1].text;
    let in_years = if fields.len() == 7 { " of its years" } else { "" };
    let problem = format!("never comes in month {month}{in_years}");
    pieces[day].error(
        CronField::DayOfMonth,
        &problem,
        "use a day that some such month has, or L for the last",
    )
}

impl Draft {
    fn read_field(&mut self, field: CronField, piece: Piece<'_>, seed: u64) -> Result<(), CronError> {
        if piece.text.to_ascii_uppercase().contains("TZ=") {
            return Err(piece.error(field, "names a time zone", "set the schedule's timezone instead"));
        }
        let (mut open, mut repeats) = (false, false);
        for item in piece.split(',') {
            if self.read_special(field, item)? {
                continue;
            }
            let values = parse_item(field, item, seed)?;
            open |= values.open;
            repeats |= values.repeats;
            self.uses_hash |= values.hashed;
            self.add(field, &values);
        }
        match field {
            CronField::Minute => self.minutes_repeat = repeats,
            CronField::Hour => {
                self.hour_is_wildcard = open || self.times.hours == (1 << 24) - 1;
                self.hours_repeat = repeats;
            }
            CronField::DayOfMonth => self.days.month_days_open = open,
            CronField::DayOfWeek => self.days.week_days_open = open,
            // A wildcard in the year field also matches years after the last one that can be written.
            CronField::Year if open && piece.text == "*" => self.years = None,
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, field: CronField, values: &Values) {
        for value in &values.values {
            match field {
                CronField::Second => self.times.seconds |= 1 << value,
                CronField::Minute => self.times.minutes |= 1 << value,
                CronField::Hour => self.times.hours |= 1 << value,
                CronField::DayOfMonth => self.days.month_days.fixed |= 1 << value,
                CronField::Month => self.months |= 1 << value,
                CronField::DayOfWeek => self.days.week_days.every |= 1 << value,
                CronField::Year => self.years.get_or_insert_default().insert(*value),
            }
        }
    }

    /// Parses the syntax that only the day fields have; returns false for a plain item.
    fn read_special(&mut self, field: CronField, item: Piece<'_>) -> Result<bool, CronError> {
        match field {
            CronField::DayOfMonth => self.read_month_day(item),
            CronField::DayOfWeek => self.read_week_day(item),
            _ => Ok(false),
        }
    }

    fn read_month_day(&mut self, item: Piece<'_>) -> Result<bool, CronError> {
        let field = CronField::DayOfMonth;
        let days = &mut self.days.month_days;
        if item.is("L") {
            days.before_last |= 1;
        } else if item.is("LW") {
            days.last_weekday = true;
        } else if let Some((base, before)) = item.split_once('-')
            && base.is("L")
        {
            let number: Option<u32> = before.text.parse().ok().filter(|number| (1..=30).contains(number));
            let number = number.ok_or_else(|| before.error(field, "is out of range", "use L-1 to L-30"))?;
            days.before_last |= 1 << number;
        } else if let Some(day) = item.strip_suffix('W') {
            if day.text.contains(['-', '/', '*']) {
                return Err(item.error(field, "is not one day", "use one day before W, such as 15W"));
            }
            days.nearest_weekday |= 1 << field.value(day)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn read_week_day(&mut self, item: Piece<'_>) -> Result<bool, CronError> {
        let field = CronField::DayOfWeek;
        let days = &mut self.days.week_days;
        if item.is("L") {
            return Err(item.error(field, "needs its day", "use 5L for the last Friday, 6 for Saturday"));
        }
        if let Some((day, which)) = item.split_once('#') {
            let number: Option<usize> = which.text.parse().ok().filter(|number| (1..=5).contains(number));
            let number =
                number.ok_or_else(|| which.error(field, "is out of range", "use 1–5 after the #"))?;
            days.nth[number - 1] |= 1 << (field.value(day)? % 7);
        } else if let Some(day) = item.strip_suffix('L') {
            days.last |= 1 << (field.value(day)? % 7);
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}
