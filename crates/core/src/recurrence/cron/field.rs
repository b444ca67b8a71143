//! The plain part of every field: numbers, names, ranges, steps and `H`.

use super::error::{CronError, CronField};
use crate::mix::mix;
use crate::recurrence::hash::below;

/// A piece of the pattern and where it starts, in characters from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    pub(super) column: usize,
}

impl<'a> Piece<'a> {
    pub(super) fn split(self, separator: char) -> impl Iterator<Item = Piece<'a>> {
        let mut column = self.column;
        self.text.split(separator).map(move |text| {
            let piece = Piece { text, column };
            column += text.chars().count() + 1;
            piece
        })
    }

    pub(super) fn split_once(self, separator: char) -> Option<(Piece<'a>, Piece<'a>)> {
        let (before, after) = self.text.split_once(separator)?;
        let column = self.column + before.chars().count() + 1;
        Some((Piece { text: before, ..self }, Piece { text: after, column }))
    }

    pub(super) fn is(self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    /// The piece without a suffix, ignoring case.
    pub(super) fn strip_suffix(self, suffix: char) -> Option<Piece<'a>> {
        let text = self.text.strip_suffix([suffix, suffix.to_ascii_lowercase()])?;
        Some(Piece { text, ..self })
    }

    pub(super) fn error(self, field: CronField, problem: &str, expected: impl Into<String>) -> CronError {
        CronError { field: Some(field), ..self.whole_error(problem, expected) }
    }

    /// The error of a piece that belongs to no field.
    pub(super) fn whole_error(self, problem: &str, expected: impl Into<String>) -> CronError {
        CronError {
            column: self.column,
            field: None,
            found: self.text.to_owned(),
            problem: problem.to_owned(),
            expected: expected.into(),
        }
    }
}

impl CronField {
    /// The smallest and largest value that may be written.
    pub(super) const fn bounds(self) -> (u16, u16) {
        match self {
            CronField::Second | CronField::Minute => (0, 59),
            CronField::Hour => (0, 23),
            CronField::DayOfMonth => (1, 31),
            CronField::Month => (1, 12),
            CronField::DayOfWeek => (0, 7),
            CronField::Year => (1970, 2199),
        }
    }

    /// The largest value that is not an alias of a smaller one.
    const fn last(self) -> u16 {
        match self {
            CronField::DayOfWeek => 6,
            _ => self.bounds().1,
        }
    }

    /// The largest value that `H` chooses without a range: a day that every month has.
    const fn hash_last(self) -> u16 {
        match self {
            CronField::DayOfMonth => 28,
            _ => self.last(),
        }
    }

    const fn names(self) -> &'static [&'static str] {
        match self {
            CronField::Month => {
                &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
            }
            CronField::DayOfWeek => &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
            _ => &[],
        }
    }

    pub(super) fn advice(self) -> String {
        let (min, max) = self.bounds();
        match self.names() {
            [first, .., last] => format!("use {min}–{max} or {first}–{last}"),
            _ => format!("use {min}–{max}"),
        }
    }

    pub(super) fn value(self, piece: Piece<'_>) -> Result<u16, CronError> {
        let (min, max) = self.bounds();
        if let Some(index) = self.names().iter().position(|name| piece.is(name)) {
            return Ok(index as u16 + min);
        }
        if piece.text.is_empty() {
            return Err(piece.error(self, "has a value missing", self.advice()));
        }
        if !piece.text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(piece.error(self, "is not understood", self.advice()));
        }
        let value = piece.text.parse().ok().filter(|value| (min..=max).contains(value));
        value.ok_or_else(|| piece.error(self, "is out of range", self.advice()))
    }
}

/// The values of one item of a list, and how it was written.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) values: Vec<u16>,
    /// Written as `*`, `?` or with a step of it.
    pub(super) open: bool,
    /// Written as a wildcard, a range or a step, and more than one value.
    pub(super) repeats: bool,
    pub(super) hashed: bool,
}

/// Parses one item of a list: `*`, `?`, `a`, `a-b`, `H`, `H(a-b)`, any of them with `/n`.
pub(super) fn parse_item(field: CronField, item: Piece<'_>, seed: u64) -> Result<Values, CronError> {
    let (base, step) = match item.split_once('/') {
        Some((base, step)) => (base, Some(parse_step(field, step)?)),
        None => (item, None),
    };
    let first_letter = base.text.chars().next().unwrap_or(' ');
    if first_letter.eq_ignore_ascii_case(&'H') {
        return parse_hashed(field, base, step, seed);
    }
    let open = base.text == "*" || base.text == "?";
    let (from, to) = if open {
        if base.text == "?" && !matches!(field, CronField::DayOfMonth | CronField::DayOfWeek) {
            return Err(base.error(field, "stands for any day only", "use *"));
        }
        (field.bounds().0, field.last())
    } else if let Some(range) = base.split_once('-') {
        parse_range(field, range)?
    } else {
        let value = field.value(base)?;
        (value, if step.is_some() { field.last().max(value) } else { value })
    };
    let values: Vec<u16> = walk(field, from, to).into_iter().step_by(step.unwrap_or(1)).collect();
    let repeats = values.len() > 1;
    Ok(Values { values, open, repeats, hashed: false })
}

fn parse_step(field: CronField, step: Piece<'_>) -> Result<usize, CronError> {
    let most = field.last() - field.bounds().0;
    let found: Option<usize> = step.text.parse().ok().filter(|_| !step.text.starts_with('+'));
    match found {
        Some(number) if (1..=usize::from(most)).contains(&number) => Ok(number),
        Some(0) => Err(step.error(field, "is no step", format!("use 1–{most} after the /"))),
        Some(number) if number == usize::from(most) + 1 => Err(step.error(
            field,
            "is a step that selects only one value",
            format!("write that value alone, or use 1–{most} after the /"),
        )),
        Some(_) => Err(step.error(
            field,
            "is a larger step than the field is long",
            format!("use 1–{most} after the /, or an interval"),
        )),
        None => Err(step.error(field, "is not a step", format!("use 1–{most} after the /"))),
    }
}

fn parse_range(field: CronField, (from, to): (Piece<'_>, Piece<'_>)) -> Result<(u16, u16), CronError> {
    let (first, last) = (field.value(from)?, field.value(to)?);
    if field == CronField::Year && first > last {
        return Err(from.error(
            field,
            "is after the end of its range",
            format!("use {last}-{first} for the years between"),
        ));
    }
    Ok((first, last))
}

/// The values from `from` to `to`, wrapping around at the end of the field if necessary.
fn walk(field: CronField, from: u16, to: u16) -> Vec<u16> {
    let (min, last) = (field.bounds().0, field.last());
    if from <= to {
        // Sunday may be written as 7, also at the end of a range.
        return (from..=to).map(|value| if value > last { min } else { value }).collect();
    }
    // A range that starts with Sunday as 7 starts with Sunday.
    let start = if from > last { min } else { from };
    if start <= to {
        return (start..=to).collect();
    }
    (start..=last).chain(min..=to).collect()
}

fn parse_hashed(
    field: CronField,
    base: Piece<'_>,
    step: Option<usize>,
    seed: u64,
) -> Result<Values, CronError> {
    let (from, to, open) = match hash_range(base) {
        None => (field.bounds().0, field.hash_last(), true),
        Some(Ok(range)) => {
            let (from, to) = parse_range(field, range)?;
            (from, to, false)
        }
        Some(Err(bad)) => {
            return Err(bad.error(field, "is not understood", "use H, H/n, H(a-b) or H(a-b)/n"));
        }
    };
    if field == CronField::Year {
        return Err(base.error(field, "cannot be chosen by hash", field.advice()));
    }
    let values = walk(field, from, to);
    let choices = step.unwrap_or(values.len()).min(values.len());
    let hash = mix(seed ^ mix(field as u64));
    let start = below(hash, choices as u64) as usize;
    let values: Vec<u16> = match step {
        None => vec![values[start]],
        Some(step) => values[start..].iter().copied().step_by(step).collect(),
    };
    // `H/n` leaves the field as open as `*/n`, but cron's rule for the day fields requires a written star.
    let open = open && step.is_some() && field == CronField::Hour;
    let repeats = values.len() > 1;
    Ok(Values { values, open, repeats, hashed: true })
}

type HashRange<'a> = Result<(Piece<'a>, Piece<'a>), Piece<'a>>;

/// The range in `H(a-b)`: none for a plain `H`, the piece itself if it is neither.
fn hash_range(base: Piece<'_>) -> Option<HashRange<'_>> {
    let rest = Piece { text: &base.text[1..], column: base.column + 1 };
    if rest.text.is_empty() {
        return None;
    }
    let inner = rest.text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let range = inner.and_then(|text| Piece { text, column: rest.column + 1 }.split_once('-'));
    Some(range.ok_or(base))
}
