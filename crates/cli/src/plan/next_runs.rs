//! The next runs of a schedule, before and after a change.

use punctual_client::{Client, ClientError, OccurrencePreview, PreviewRequest, SubmitJob};
use serde::Serialize;

/// How many runs are shown.
const RUNS_SHOWN: usize = 5;

/// The next runs; null if there is no recurring schedule.
#[derive(Serialize)]
pub struct NextRuns {
    pub before: Option<Vec<OccurrencePreview>>,
    pub after: Option<Vec<OccurrencePreview>>,
}

impl NextRuns {
    /// `None` if no recurring schedule is new or changed.
    pub async fn of(
        client: &Client,
        before: Option<&SubmitJob>,
        after: &SubmitJob,
    ) -> Result<Option<Self>, ClientError> {
        let (before, after) = (before.and_then(schedule_of), schedule_of(after));
        if before.as_ref().map(text_of) == after.as_ref().map(text_of) {
            return Ok(None);
        }
        let (before, after) = (runs(client, before).await?, runs(client, after).await?);
        Ok(Some(NextRuns { before, after }))
    }
}

/// The schedule of a recurring job.
fn schedule_of(job: &SubmitJob) -> Option<PreviewRequest> {
    let is_recurring = job.cron_expression.is_some()
        || job.interval.is_some()
        || job.rrule.is_some()
        || job.schedules.is_some();
    is_recurring.then(|| PreviewRequest {
        cron_expression: job.cron_expression.clone(),
        interval: job.interval.clone(),
        rrule: job.rrule.clone(),
        schedules: job.schedules.clone(),
        calendars: job.calendar_names().cloned(),
        timezone: job.timezone.clone(),
        dst_gap: job.dst_gap,
        dst_overlap: job.dst_overlap,
        start_at: job.start_at,
        end_at: job.end_at,
        max_runs: job.max_runs,
        jitter: job.jitter,
        name: Some(job.name.clone()),
        owner_id: job.owner_id.clone(),
        count: Some(RUNS_SHOWN),
        ..PreviewRequest::default()
    })
}

fn text_of(schedule: &PreviewRequest) -> Option<String> {
    serde_json::to_string(schedule).ok()
}

async fn runs(
    client: &Client,
    schedule: Option<PreviewRequest>,
) -> Result<Option<Vec<OccurrencePreview>>, ClientError> {
    match schedule {
        Some(schedule) => Ok(Some(client.preview(&schedule).await?.occurrences)),
        None => Ok(None),
    }
}
