//! Calendars, and single occurrences of recurring jobs.

use super::super::operation::{Operation, Title};
use super::{IN_USE, JOBS, NO_JOB, NO_PARAMETERS, SCHEDULES, force, job_id, paged_by_most};
use axum::http::Method;
use punctual_client::API_PREFIX;
use punctual_client::schema::text;
use punctual_engine::UseCase;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    vec![list(), show(), set(), remove(), skip_next(), run_next_at(), backfill()]
}

fn title(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: SCHEDULES, summary }
}

fn on_calendar(method: Method, title: Title) -> Operation {
    let name = text().about("The name of the calendar.").example("holidays");
    Operation::new(method, format!("{API_PREFIX}/calendars/{{name}}"), title).in_path("name", name)
}

fn list() -> Operation {
    let title = title("listCalendars", "List calendars");
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/calendars"), title)
        .needs(UseCase::ReadCalendars)
        .about("By name.")
        .fails(400, "A parameter is unknown or out of range.");
    paged_by_most(operation).answers(200, "One page.", "CalendarPage")
}

fn show() -> Operation {
    on_calendar(Method::GET, title("getCalendar", "Get a calendar"))
        .needs(UseCase::ReadCalendars)
        .about("With all its entries.")
        .answers(200, "The calendar.", "Calendar")
        .fails(400, NO_PARAMETERS)
        .fails(404, "There is no such calendar.")
}

fn set() -> Operation {
    on_calendar(Method::PUT, title("setCalendar", "Set or import a calendar"))
        .needs(UseCase::SetCalendar)
        .about(
            "Creates it, or replaces it as a whole. A change applies to all future occurrences of the jobs that name it, \
             on every node within five seconds.",
        )
        .takes("SetCalendar", json!({"timezone": "Europe/Berlin", "entries": [{"dates": ["12-25/12-26"]}]}))
        .answers(200, "The calendar was replaced.", "Calendar")
        .answers(201, "The calendar is new.", "Calendar")
        .fails(400, "The body cannot be read, or the request has an `Idempotency-Key`.")
        .fails(409, "There are too many calendars, or other requests keep changing it.")
}

fn remove() -> Operation {
    on_calendar(Method::DELETE, title("removeCalendar", "Remove a calendar"))
        .needs(UseCase::RemoveCalendar)
        .about("With `force`, jobs that name it run without it.")
        .in_query("force", force())
        .may_take("Nothing", json!({}))
        .answers_nothing(204, "It is gone.")
        .fails(404, "There is no such calendar.")
        .fails(409, IN_USE)
}

fn on_job(rest: &str, id: &'static str, summary: &'static str) -> Operation {
    let title = Title { id, tag: JOBS, summary };
    Operation::new(Method::POST, format!("{API_PREFIX}/jobs/{{id}}{rest}"), title)
        .in_path("id", job_id())
        .fails(404, NO_JOB)
}

fn skip_next() -> Operation {
    on_job("/skip-next", "skipNext", "Skip the next run of a recurring job")
        .needs(UseCase::SkipNext)
        .about("Recorded as skipped with reason `requested`. The schedule does not change.")
        .may_take("Nothing", json!({}))
        .answers(200, "The job.", "Job")
        .fails(409, "The job has no further occurrence, or is cancelled.")
}

fn run_next_at() -> Operation {
    on_job("/run-next-at", "runNextAt", "Run the next occurrence of a recurring job at another time")
        .needs(UseCase::RunNextAt)
        .about(
            "The occurrence is opened at once and waits for its time; it keeps its `scheduled_time`. The schedule does \
             not change.",
        )
        .takes("RunNextAt", json!({"at": "2026-11-15T12:00:00Z"}))
        .answers(201, "The execution.", "Execution")
        .with_header(201, "Location")
        .fails(409, "The job has no further occurrence, the time is not before the one after it, or too many are open.")
}

fn backfill() -> Operation {
    on_job("/backfill", "backfill", "Run past occurrences of a recurring job again")
        .needs(UseCase::Backfill)
        .about(
            "Occurrences of the schedule in a past range run one after the other, next to regular ones, with `origin` \
             `backfill`, as `overlap_policy`, `max_open` and `rate` allow. Those that a calendar excludes are left out. \
             Runs of a backfill do not count for `max_runs`. Begin with `dry_run`.",
        )
        .takes(
            "BackfillRequest",
            json!({"from": "2026-11-01T00:00:00Z", "to": "2026-11-14T00:00:00Z", "dry_run": true}),
        )
        .answers(200, "What runs, or would run.", "Backfill")
        .fails(409, "There is nothing to run, or missed occurrences or another backfill are still to run.")
}
