//! Limits of calendars, recurrence rules and backfills.

use std::time::Duration;

/// Weekdays, dates and times in all entries of one calendar.
pub const CALENDAR_ENTRIES_MAX: usize = 5_000;
/// Characters of an event's summary that an import keeps.
pub const CALENDAR_SUMMARY_CHARS_MAX: usize = 120;
/// Calendars of one server. Setting another one is a 409.
pub const CALENDARS_MAX: usize = 500;
/// Calendars that one job may name.
pub const CALENDARS_OF_JOB_MAX: usize = 8;
/// Occurrences that are looked at in search of the next one that no calendar excludes. After that, none is shown.
pub const CALENDAR_STEPS_MAX: usize = 10_000;
/// How long a node uses calendars before it reads them again.
pub const CALENDARS_REFRESH: Duration = Duration::from_secs(5);
/// Dates of one event of an iCalendar file whose recurrence a calendar cannot hold as such.
pub const EVENT_DATES_MAX: usize = 1_000;
/// How far back such dates are kept.
pub const EVENT_DATES_KEPT: Duration = Duration::from_secs(366 * 24 * 3_600);
/// How far ahead such dates are kept: ten years.
pub const EVENT_DATES_AHEAD: Duration = Duration::from_secs(3_653 * 24 * 3_600);
/// Bytes of an iCalendar file.
pub const ICALENDAR_BYTES_MAX: usize = 1024 * 1024;
/// The most occurrences that `COUNT` of a recurrence rule may name: they are counted when the job is submitted.
pub const RRULE_COUNT_MAX: u32 = 10_000;
/// Occurrences of one backfill, and how many there are if nothing is set.
pub const BACKFILL_MAX: u32 = 10_000;
pub const BACKFILL_DEFAULT: u32 = 1_000;
/// Occurrences that the answer to a backfill lists.
pub const BACKFILL_SHOWN_MAX: usize = 20;
