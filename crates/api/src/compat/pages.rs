//! Lists with page numbers, and the executions that single jobs show.

use crate::auth::Call;
use crate::error::ApiError;
use crate::query::QueryParams;
use crate::views;
use punctual_client::{API_PREFIX, ExecutionBody, FieldError};
use punctual_core::ids::JobId;
use punctual_core::limits;
use punctual_core::ports::{JobQuery, JobView};

/// Store reads for one numbered page. With filters, the store may return short pages.
const READS_MAX: usize = 100;

/// A page by its number, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedPage {
    page: usize,
    limit: usize,
}

impl NumberedPage {
    pub fn take(query: &mut QueryParams) -> Self {
        let page = query.number("page", 1..=limits::NUMBERED_ITEMS_MAX).unwrap_or(1);
        let limit = query.limit();
        if page * limit > limits::NUMBERED_ITEMS_MAX {
            query.refuse("page", &too_deep());
        }
        NumberedPage { page, limit }
    }

    /// The jobs of this page, newest first; `keep` says which jobs the list holds, besides the query.
    pub async fn read(
        self,
        call: &Call,
        query: JobQuery,
        keep: Option<&(dyn Fn(&JobView) -> bool + Sync)>,
    ) -> Result<Vec<JobView>, ApiError> {
        let (skipped, end) = ((self.page - 1) * self.limit, self.page * self.limit);
        let (mut items, mut kept, mut examined) = (Vec::new(), 0, 0);
        let mut query = query;
        for _ in 0..READS_MAX {
            let wanted = if keep.is_some() { limits::PAGE_ITEMS_MAX } else { end - kept };
            query.limit = wanted.min(limits::PAGE_ITEMS_MAX);
            let page = call.cases.jobs(query.clone()).await?;
            examined += page.items.len();
            for view in page.items.into_iter().filter(|view| keep.is_none_or(|keep| keep(view))) {
                kept += 1;
                if kept > skipped {
                    items.push(view);
                }
                if kept == end {
                    return Ok(items);
                }
            }
            let Some(next) = page.next else { return Ok(items) };
            if examined >= limits::NUMBERED_ITEMS_MAX {
                break;
            }
            query.before = Some(next);
        }
        let error = FieldError { field: "page".to_owned(), detail: too_deep() };
        Err(ApiError::InvalidQuery(vec![error]))
    }
}

fn too_deep() -> String {
    format!(
        "reaches beyond the first {} jobs: ask for fewer with other filters, or follow next_cursor of GET \
         {API_PREFIX}/jobs",
        limits::NUMBERED_ITEMS_MAX
    )
}

/// The attempts of the job's latest occurrence, oldest first; of very many, the latest.
pub async fn latest_attempts(call: &Call, job: JobId) -> Result<Vec<ExecutionBody>, ApiError> {
    let page = call.cases.executions_of_job(job, None, limits::PAGE_ITEMS_MAX).await?.page;
    let latest = page.items.first().map(|view| view.id().occurrence);
    let of_latest = page.items.into_iter().take_while(|view| Some(view.id().occurrence) == latest);
    let mut attempts: Vec<ExecutionBody> = of_latest.map(views::execution).collect();
    attempts.reverse();
    Ok(attempts)
}

/// The latest attempt of each of the job's latest occurrences, latest first.
pub async fn latest_occurrences(
    call: &Call,
    job: JobId,
    limit: usize,
) -> Result<Vec<ExecutionBody>, ApiError> {
    let (mut found, mut before): (Vec<ExecutionBody>, _) = (Vec::new(), None);
    for _ in 0..limits::NUMBERED_ITEMS_MAX / limits::PAGE_ITEMS_MAX {
        let page = call.cases.executions_of_job(job, before, limits::PAGE_ITEMS_MAX).await?.page;
        for view in page.items {
            let occurrence = view.id().occurrence;
            if found.last().is_some_and(|last| last.execution_id.occurrence == occurrence) {
                continue;
            }
            if found.len() == limit {
                return Ok(found);
            }
            found.push(views::execution(view));
        }
        let Some(next) = page.next else { break };
        before = Some(next);
    }
    Ok(found)
}
