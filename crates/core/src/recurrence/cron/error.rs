//! Errors in a pattern, precise enough to put a caret under the position.

use std::fmt;

/// One of the fields of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CronField {
    Second,
    Minute,
    Hour,
    DayOfMonth,
    Month,
    DayOfWeek,
    Year,
}

impl fmt::Display for CronField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CronField::Second => "second",
            CronField::Minute => "minute",
            CronField::Hour => "hour",
            CronField::DayOfMonth => "day of month",
            CronField::Month => "month",
            CronField::DayOfWeek => "day of week",
            CronField::Year => "year",
        })
    }
}

/// An invalid pattern: the position, and what would be valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronError {
    /// The character at which the error occurred, counted from 1.
    pub column: usize,
    /// The field, unless the pattern as a whole is invalid.
    pub field: Option<CronField>,
    /// The offending text.
    pub found: String,
    /// What is wrong with it, such as `is out of range`.
    pub problem: String,
    /// What would be valid, such as `use 0–23`.
    pub expected: String,
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(field) = self.field {
            write!(f, "{field} ")?;
        }
        let CronError { column, found, problem, expected, .. } = self;
        if !found.is_empty() {
            write!(f, "{found} ")?;
        }
        write!(f, "{problem}, {expected} (column {column})")
    }
}

impl std::error::Error for CronError {}
