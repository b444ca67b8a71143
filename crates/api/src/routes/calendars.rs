//! Calendars: list, show, set, import and remove them.

use super::named::{NameInCursor, removal, stored};
use super::tokens::{NoRequestKey, to_the_end};
use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody};
use crate::json::{self, DocumentShape};
use crate::query::QueryParams;
use axum::Json;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::{CalendarBody, CalendarEntryBody, Page, SetCalendar, SkippedEventBody};
use punctual_core::calendar::{CalendarEntry, CalendarMode, CalendarSpec, SkippedEvent, import};
use punctual_core::time::Timestamp;
use punctual_engine::CalendarView;

/// The prefix of this list's cursors.
const LIST: &str = "calendars";

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<CalendarBody>>, ApiError> {
    let (after, limit) = (query.cursor::<NameInCursor>(LIST), query.limit_or_most());
    query.finish()?;
    let page = call.cases.calendars(NameInCursor::text(after.as_ref()), limit).await?;
    let items = page.items.into_iter().map(|calendar| view(calendar, vec![])).collect();
    Ok(Json(Page { items, next_cursor: call.next_cursor(LIST, page.next).await? }))
}

pub async fn show(
    call: Call,
    IdInPath(name): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<CalendarBody>, ApiError> {
    query.finish()?;
    Ok(Json(view(call.cases.calendar(&name).await?, vec![])))
}

/// Creates or replaces it, from entries or from an iCalendar file.
pub async fn set(
    call: Call,
    IdInPath(name): IdInPath<String>,
    _: NoRequestKey,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let calendar: SetCalendar = json::parse(&body.bytes, DocumentShape::Object)?;
    let (spec, skipped) = spec_of(calendar, call.cases.now())?;
    to_the_end(async move {
        let (calendar, is_new) = call.cases.set_calendar(&name, spec).await?;
        Ok(stored(is_new, view(calendar, skipped)))
    })
    .await
}

pub async fn remove(
    call: Call,
    IdInPath(name): IdInPath<String>,
    query: QueryParams,
    _: NoBody,
) -> Result<StatusCode, ApiError> {
    let removal = removal(query)?;
    to_the_end(async move {
        call.cases.remove_calendar(&name, removal).await?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// The calendar, and the events of an imported file that it lacks.
fn spec_of(calendar: SetCalendar, now: Timestamp) -> Result<(CalendarSpec, Vec<SkippedEvent>), ApiError> {
    let SetCalendar { description, timezone, mode, entries, icalendar } = calendar;
    let timezone = timezone.unwrap_or_else(|| "UTC".to_owned());
    let mode = match mode.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("exclude") => CalendarMode::Exclude,
        Some("only") => CalendarMode::Only,
        Some(other) => {
            return Err(ApiError::field("mode", format!("must be exclude or only, not {other:?}")));
        }
    };
    match (entries, icalendar) {
        (Some(_), Some(_)) => {
            Err(ApiError::field("icalendar", "cannot be combined with entries: give one of the two"))
        }
        (None, None) => Err(ApiError::field("entries", "is needed (or give icalendar)")),
        (Some(entries), None) => {
            let entries = entries.into_iter().map(entry).collect();
            Ok((CalendarSpec { description, timezone, mode, entries }, vec![]))
        }
        (None, Some(text)) => {
            let imported =
                import(&text, &timezone, mode, now).map_err(|problem| ApiError::invalid(vec![problem]))?;
            if imported.imported == 0 {
                let reasons: Vec<&str> =
                    imported.skipped.iter().map(|event| event.reason.as_str()).take(3).collect();
                let fix = format!("has no event that can be imported ({})", reasons.join("; "));
                return Err(ApiError::field("icalendar", fix));
            }
            Ok((CalendarSpec { description, ..imported.calendar }, imported.skipped))
        }
    }
}

fn entry(CalendarEntryBody { summary, weekdays, dates, times }: CalendarEntryBody) -> CalendarEntry {
    CalendarEntry { summary, weekdays, dates, times }
}

fn view(calendar: CalendarView, skipped: Vec<SkippedEvent>) -> CalendarBody {
    let CalendarView { name, version, spec } = calendar;
    let shown = |CalendarEntry { summary, weekdays, dates, times }| CalendarEntryBody {
        summary,
        weekdays,
        dates,
        times,
    };
    let left_out = |SkippedEvent { line, summary, reason, imported_until }| SkippedEventBody {
        line: line as u64,
        summary,
        reason,
        imported_until: imported_until.map(|day| day.to_string()),
    };
    CalendarBody {
        name,
        version,
        description: spec.description,
        timezone: spec.timezone,
        mode: match spec.mode {
            CalendarMode::Exclude => "exclude".to_owned(),
            CalendarMode::Only => "only".to_owned(),
        },
        entries: spec.entries.into_iter().map(shown).collect(),
        skipped_events: skipped.into_iter().map(left_out).collect(),
    }
}
