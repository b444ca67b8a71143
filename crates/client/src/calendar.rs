//! Calendars on the wire, and requests about single occurrences of recurring jobs.

use crate::client::{Client, ClientError, segment};
use crate::execution::ExecutionBody;
use crate::job::JobBody;
use crate::page::Page;
use crate::schedule::{OccurrencePreview, ReplayRate};
use crate::wire::wire;
use punctual_core::ids::JobId;
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};

wire! {
    /// Conditions on a local time, of which all must hold.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct CalendarEntryBody as "CalendarEntry" {
        /// What the entry is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub summary: Option<String> = text().example("Christmas"),
        /// Weekdays and ranges of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub weekdays: Vec<String> = list(text().about("Such as `SAT` or `MON-FRI`.")),
        /// Dates and ranges of them, once or every year.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub dates: Vec<String> = list(text().about("Such as `2026-12-25`, `2026-12-24/2026-12-31` or, every year, `12-25`.")),
        /// Times of day; the end is excluded.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub times: Vec<String> = list(text().about("Such as `09:00-17:30` or `22:00-06:00`.")),
    }
}

wire! {
    /// A calendar to store: entries, or an iCalendar file whose events become entries.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct SetCalendar as "SetCalendar" {
        /// For people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub description: Option<String> = text(),
        /// The IANA name of the zone of its days and times.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub timezone: Option<String> = text().otherwise("UTC").example("Europe/Berlin"),
        /// `exclude`: jobs do not run at these times. `only`: they run at no others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mode: Option<String> = text().otherwise("exclude"),
        /// A time is in the calendar if one of them matches.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub entries: Option<Vec<CalendarEntryBody>> = list(the("CalendarEntry")),
        /// The text of an iCalendar file, in place of `entries`; at most 1 MiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub icalendar: Option<String> = text(),
    }
}

wire! {
    /// An event of an iCalendar file that is not in the calendar, or only with some of its dates.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct SkippedEventBody as "SkippedEvent" {
        /// The line of the file at which it begins.
        pub line: u64 = whole(1..=u64::MAX),
        /// Its summary.
        pub summary: Option<String> = text(),
        /// Why it was left out, or which of its dates were.
        pub reason: String = text(),
        /// If only its later dates were left out: the last day up to which it is in the calendar.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub imported_until: Option<String> = text().example("2036-11-19"),
    }
}

wire! {
    /// A stored calendar.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CalendarBody as "Calendar" {
        /// The name that jobs use.
        pub name: String = text().example("holidays"),
        /// Counts its changes.
        pub version: u64 = whole(1..=u64::MAX),
        /// For people.
        pub description: Option<String> = text(),
        /// The IANA name of the zone of its days and times.
        pub timezone: String = text().example("Europe/Berlin"),
        /// `exclude` or `only`.
        pub mode: String = text().example("exclude"),
        /// A time is in the calendar if one of them matches.
        pub entries: Vec<CalendarEntryBody> = list(the("CalendarEntry")),
        /// Events of the imported file that were left out; only in the answer to an import.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub skipped_events: Vec<SkippedEventBody> = list(the("SkippedEvent")),
    }
}

wire! {
    /// Another time for the next occurrence of a job.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct RunNextAt as "RunNextAt" {
        /// When it runs; a time in the past means now. It must be before the occurrence after it.
        pub at: Timestamp,
    }
}

wire! {
    /// Past occurrences of a job to run again.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct BackfillRequest as "BackfillRequest" {
        /// The earliest scheduled time.
        pub from: Timestamp,
        /// The latest scheduled time.
        pub to: Timestamp,
        /// How many at most, the earliest ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limit: Option<u32> = whole(1..=limits::BACKFILL_MAX.into()).otherwise(limits::BACKFILL_DEFAULT),
        /// How many are opened in a given time; if omitted, as fast as `overlap_policy` and `max_open` allow.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rate: Option<ReplayRate>,
        /// Only say what would run.
        #[serde(default)]
        pub dry_run: bool = flag().otherwise(false),
    }
}

wire! {
    /// What a backfill runs.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct BackfillBody as "Backfill" {
        /// How many occurrences run.
        pub count: u64 = whole(0..=u64::MAX),
        /// How many do not run, because a calendar excludes them.
        #[serde(default)]
        pub excluded: u64 = whole(0..=u64::MAX),
        /// The scheduled time of the first.
        pub first: Timestamp,
        /// The scheduled time of the last.
        pub last: Timestamp,
        /// Whether nothing was started.
        pub dry_run: bool = flag(),
        /// The first of them, also those that a calendar excludes.
        pub occurrences: Vec<OccurrencePreview>,
    }
}

impl Client {
    /// All calendars by name.
    pub async fn calendars(&self) -> Result<Page<CalendarBody>, ClientError> {
        self.all_pages("/calendars").await
    }

    pub async fn calendar(&self, name: &str) -> Result<CalendarBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/calendars/{}", segment(name)))).await
    }

    /// Creates or replaces a calendar.
    pub async fn set_calendar(
        &self,
        name: &str,
        calendar: &SetCalendar,
    ) -> Result<CalendarBody, ClientError> {
        self.send(self.request(Method::PUT, &format!("/calendars/{}", segment(name))).json(calendar)).await
    }

    /// Removes a calendar that nothing uses.
    pub async fn remove_calendar(&self, name: &str) -> Result<(), ClientError> {
        self.remove(format!("/calendars/{}", segment(name)), false).await
    }

    /// Removes a calendar, even if something uses it.
    pub async fn remove_calendar_in_use(&self, name: &str) -> Result<(), ClientError> {
        self.remove(format!("/calendars/{}", segment(name)), true).await
    }

    /// Skips the next occurrence of a recurring job.
    pub async fn skip_next(&self, id: JobId) -> Result<JobBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/jobs/{id}/skip-next"))).await
    }

    /// Runs the next occurrence of a recurring job at another time.
    pub async fn run_next_at(&self, id: JobId, at: Timestamp) -> Result<ExecutionBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/jobs/{id}/run-next-at")).json(&RunNextAt { at }))
            .await
    }

    /// Runs past occurrences of a recurring job again.
    pub async fn backfill(&self, id: JobId, request: &BackfillRequest) -> Result<BackfillBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/jobs/{id}/backfill")).json(request)).await
    }
}
