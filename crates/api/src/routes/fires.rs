//! The calendar: when all jobs fire within a range of time.

use crate::auth::Call;
use crate::error::ApiError;
use crate::query::QueryParams;
use crate::views;
use axum::Json;
use punctual_client::{JobFiresBody, Page};
use punctual_core::limits;
use punctual_core::ports::JobQuery;
use punctual_core::schedule::Schedule;
use punctual_engine::{FireRange, JobFires};

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<JobFiresBody>>, ApiError> {
    let from = query.time("from").unwrap_or_else(|| call.cases.now());
    let until = query.time("until").unwrap_or_else(|| from.plus(limits::FIRES_RANGE_DEFAULT));
    let per_job = query.number("per_job", 1..=limits::PREVIEW_MAX).unwrap_or(limits::FIRES_PER_JOB_DEFAULT);
    let jobs = JobQuery {
        before: query.cursor("fires"),
        limit: query.limit(),
        name: query.text("name"),
        job_type: query.text("job_type"),
        queue: query.text("queue"),
        owner: query.text("owner"),
        tags: query.texts("tag", limits::TAGS_MAX),
        ..JobQuery::default()
    };
    if until <= from {
        query.refuse("until", "must be after from");
    } else if until.since(from) > limits::FIRES_RANGE_MAX {
        let days = limits::FIRES_RANGE_MAX.as_secs() / 86_400;
        query.refuse("until", &format!("must be at most {days} days after from"));
    }
    query.finish()?;
    let page = call.cases.fires(jobs, FireRange { from, until, per_job }).await?;
    let mut items = Vec::with_capacity(page.items.len());
    for found in page.items {
        items.push(body(&call, found).await?);
    }
    Ok(Json(Page { items, next_cursor: call.next_cursor("fires", page.next).await? }))
}

async fn body(call: &Call, found: JobFires) -> Result<JobFiresBody, ApiError> {
    let spec = &found.view.job.spec;
    let (id, is_all) = (found.view.job.id, found.fires.len() as u64 == found.count);
    let (description, timezone, fires) = match &spec.settings.schedule {
        Schedule::Recurring(recurring) => {
            let zone = recurring.recurrence.spec().zone.clone();
            let calendars = call.cases.calendars_of(&recurring.calendars).await?;
            let preview = views::preview(recurring, found.fires, Some(id), &calendars);
            (preview.description, zone, preview.occurrences)
        }
        _ => {
            let fires = found.fires.into_iter().map(|fire| views::occurrence(fire, None)).collect();
            ("Once".to_owned(), "UTC".to_owned(), fires)
        }
    };
    Ok(JobFiresBody {
        job_id: id,
        name: spec.name.clone(),
        job_type: spec.job_type.clone(),
        queue: spec.queue.clone(),
        schedule_description: description,
        timezone,
        count: found.count,
        count_at_most: !found.is_exact,
        complete: is_all,
        fires,
    })
}
