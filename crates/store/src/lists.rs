//! Shared by the lists of every database: how much a page holds, and which rows match a query. Filters have no index,
//! so each adapter reads a bounded number of rows and asks this module which of them match.

use crate::codes::schedule_type;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::{DEFAULT_OWNER, JobStatus, StoredStatus};
use punctual_core::limits;
use punctual_core::occurrence::Finished;
use punctual_core::ports::{
    DeadLetter, DeadLetterQuery, ExecutionQuery, ExecutionView, ExecutionWalk, JobQuery, JobView, Lane,
    ListedExecution, Page, ScheduleKind,
};
use std::cmp::Reverse;

/// Rows that one page of a filtered list reads.
pub(crate) const LOOKED_AT_MAX: usize = 2_000;

/// Rows at the head of a lane that are searched for the one that has waited longest. Rank is the time since
/// which a row is available, adjusted by its priority. If a lane has only one priority, its first row is
/// the oldest.
pub(crate) const OLDEST_LOOKED_AT_MAX: usize = 100;

/// The same limit for each of this many lanes.
pub(crate) fn heads_looked_at(lanes: usize) -> usize {
    (limits::OLDEST_ROWS_MAX / lanes.max(1)).clamp(1, OLDEST_LOOKED_AT_MAX)
}

/// The space left in a page. Pages are limited by items and by the bytes of user-supplied text in them.
#[derive(Debug, Clone)]
pub(crate) struct PageRoom {
    items: usize,
    bytes: usize,
    is_empty: bool,
}

impl PageRoom {
    /// Room for this many items, at most the maximum of a page.
    pub fn of(items: usize) -> Self {
        PageRoom {
            items: items.clamp(1, limits::PAGE_ITEMS_MAX),
            bytes: limits::PAGE_BYTES_MAX,
            is_empty: true,
        }
    }

    /// Whether even an item without text would not fit.
    pub fn is_full(&self) -> bool {
        self.items == 0
    }

    /// How many items would fit if they had no text.
    pub fn items(&self) -> usize {
        self.items
    }

    /// Takes the space for an item with this many bytes of text. The first item always fits: a caller that
    /// follows the pages must make progress.
    pub fn take(&mut self, bytes: usize) -> bool {
        if self.items == 0 || (bytes > self.bytes && !self.is_empty) {
            return false;
        }
        self.items -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
        self.is_empty = false;
        true
    }
}

/// The bytes of a handler's result.
pub(crate) fn bytes_of(finished: &Finished) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    length(&finished.error) + length(&finished.result)
}

/// The bytes of a job's text from users and handlers.
pub(crate) fn bytes_of_view(view: &JobView) -> usize {
    view.job.spec.payload.len() + view.last_finished.as_ref().map_or(0, bytes_of)
}

pub(crate) fn bytes_of_listed(listed: &ListedExecution) -> usize {
    match &listed.view {
        ExecutionView::Live { .. } => 0,
        ExecutionView::Finished(finished) => bytes_of(finished),
    }
}

/// Merges open and finished executions after the same position, each latest first, into one page of a job's
/// executions. The caller must read the open ones first, up to one more than the page holds. An execution
/// that finishes between the two reads is then in both lists; it is listed once, as finished.
pub(crate) fn executions_merged(
    open: Vec<ExecutionView>,
    history: Page<Finished, ExecutionId>,
    count: usize,
) -> Page<ExecutionView, ExecutionId> {
    // Finished executions beyond the last one read are unknown.
    let floor = history.next;
    let finished = history.items.into_iter().map(ExecutionView::Finished);
    let open = open.into_iter().filter(|view| floor.is_none_or(|floor| view.id() > floor));
    let mut items: Vec<ExecutionView> = finished.chain(open).collect();
    // Stable, so that the finished one of two with the same id stays first.
    items.sort_by_key(|view| Reverse(view.id()));
    items.dedup_by_key(|view| view.id());
    let is_cut_off = floor.is_some() || items.len() > count;
    items.truncate(count);
    let next = items.last().map(ExecutionView::id).filter(|_| is_cut_off);
    Page { items, next }
}

/// How many jobs one page of this query reads.
pub(crate) fn jobs_looked_at(query: &JobQuery) -> usize {
    // One more than the page holds shows whether there is a next page.
    let wanted = query.limit.clamp(1, limits::PAGE_ITEMS_MAX) + 1;
    if is_job_filtered(query) { LOOKED_AT_MAX } else { wanted }
}

/// Whether jobs that are read may not match.
fn is_job_filtered(query: &JobQuery) -> bool {
    let JobQuery {
        before: _,
        limit: _,
        status,
        name,
        job_type,
        queue,
        owner,
        priority,
        schedule,
        tags,
        text,
        scheduled: _,
    } = query;
    schedule.is_some()
        || text.is_some()
        // Candidates are found by the first tag, or by the status.
        || tags.len() > 1
        || (!tags.is_empty() && status.is_some())
        || *status == Some(JobStatus::Completed)
        || name.is_some()
        || job_type.is_some()
        || queue.is_some()
        || owner.is_some()
        || priority.is_some()
}

/// The properties that a list of jobs filters by.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub id: JobId,
    pub lane: i64,
    pub mark: StoredStatus,
    pub priority: u8,
    pub owner: Option<String>,
    pub name: Option<String>,
    pub schedule_type: u8,
}

impl Candidate {
    /// A job whose row cannot be read, and that is not listed.
    pub fn unreadable(id: JobId) -> Self {
        Candidate {
            id,
            lane: 0,
            mark: StoredStatus::Deleted,
            priority: 0,
            owner: None,
            name: None,
            schedule_type: schedule_type::IMMEDIATE,
        }
    }

    /// Whether its own row matches. Tags, text and status must be checked separately.
    pub fn matches(&self, query: &JobQuery, lane: &Lane) -> bool {
        let is = |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|text| text == value);
        // If the stored status is not conclusive, the job's view decides.
        let may_have_status = match query.status {
            Some(JobStatus::Active) => matches!(self.mark, StoredStatus::Active | StoredStatus::Failed),
            Some(JobStatus::Completed) => matches!(self.mark, StoredStatus::Active | StoredStatus::Paused),
            _ => self.mark != StoredStatus::Deleted,
        };
        may_have_status
            && is(&query.name, self.name.as_deref().unwrap_or(lane.job_type()))
            && is(&query.job_type, lane.job_type())
            && is(&query.queue, lane.queue())
            && is(&query.owner, self.owner.as_deref().unwrap_or(DEFAULT_OWNER))
            && query.priority.is_none_or(|priority| priority.get() == self.priority)
            && query.schedule.is_none_or(|schedule| code_of(schedule) == self.schedule_type)
    }

    /// Whether its tags must be read to decide whether it matches.
    pub fn needs_tags(&self, wanted: &JobPostFilter<'_>, lane: &Lane) -> bool {
        wanted.tags.len() > usize::from(wanted.is_found_by_tag) || !self.has_text(wanted, lane)
    }

    /// Whether it has all the tags, and the text if there is one to search for.
    pub fn has_tags_and_text(&self, wanted: &JobPostFilter<'_>, lane: &Lane, tags: &[String]) -> bool {
        let is_in_tag = |text: &str| tags.iter().any(|tag| tag.to_lowercase().contains(text));
        wanted.tags.iter().all(|tag| tags.contains(tag))
            && (self.has_text(wanted, lane) || wanted.text.as_deref().is_some_and(is_in_tag))
    }

    /// Whether the text occurs in its name or type, or is a part of its id.
    fn has_text(&self, wanted: &JobPostFilter<'_>, lane: &Lane) -> bool {
        let Some(text) = wanted.text.as_deref() else { return true };
        let name = self.name.as_deref().unwrap_or(lane.job_type());
        [name, lane.job_type()].iter().any(|field| field.to_lowercase().contains(text))
            || self.id.has_part(text)
    }
}

/// The part of a job query that goes beyond the jobs' rows.
#[derive(Debug)]
pub(crate) struct JobPostFilter<'a> {
    tags: &'a [String],
    /// Candidates are found by the first tag, unless the text is the id of a job.
    is_found_by_tag: bool,
    /// In lower case.
    text: Option<String>,
}

impl<'a> JobPostFilter<'a> {
    pub fn of(query: &'a JobQuery) -> Self {
        let is_id = query.text.as_ref().is_some_and(|text| text.parse::<JobId>().is_ok());
        let text = query.text.as_ref().map(|text| text.to_lowercase());
        JobPostFilter { tags: &query.tags, is_found_by_tag: !query.tags.is_empty() && !is_id, text }
    }
}

fn code_of(schedule: ScheduleKind) -> u8 {
    match schedule {
        ScheduleKind::Immediate => schedule_type::IMMEDIATE,
        ScheduleKind::OneTime => schedule_type::ONE_TIME,
        ScheduleKind::Recurring => schedule_type::RECURRING,
    }
}

/// How many executions one page of this query reads.
pub(crate) fn executions_looked_at(query: &ExecutionQuery) -> usize {
    let ExecutionQuery { walk, limit, queue, job_type, owner, worker, ended_from: _, ended_until: _ } = query;
    // Only running executions have their own index.
    let is_all_of_walk = matches!(walk, ExecutionWalk::Running { .. });
    let filters = [queue, job_type, owner, worker];
    let is_filtered = !is_all_of_walk || filters.into_iter().any(Option::is_some);
    // One more than the page holds shows whether there is a next page.
    if is_filtered { LOOKED_AT_MAX } else { limit.clamp(&1, &limits::PAGE_ITEMS_MAX) + 1 }
}

/// Whether an execution of this lane and worker matches, as far as its job's owner does.
pub(crate) fn is_execution_meant(query: &ExecutionQuery, lane: &Lane, worker: Option<&str>) -> bool {
    query.queue.as_deref().is_none_or(|queue| queue == lane.queue())
        && query.job_type.as_deref().is_none_or(|job_type| job_type == lane.job_type())
        && query.worker.as_deref().is_none_or(|wanted| worker == Some(wanted))
}

/// `owner` is the column of its job.
pub(crate) fn is_letter_meant(query: &DeadLetterQuery, letter: &DeadLetter, owner: Option<&str>) -> bool {
    let is = |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|text| text == value);
    is(&query.name, &letter.job_name)
        && is(&query.job_type, &letter.job_type)
        && is(&query.queue, &letter.queue)
        && is(&query.owner, owner.unwrap_or(DEFAULT_OWNER))
        && query.died_from.is_none_or(|from| letter.died_at >= from)
        && query.died_until.is_none_or(|until| letter.died_at < until)
        && query
            .error
            .as_deref()
            .is_none_or(|text| letter.error.as_deref().is_some_and(|error| error.contains(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_room_for_its_items_and_bytes_and_at_least_for_one() {
        let mut few = PageRoom::of(2);
        assert!(few.take(1) && !few.is_full() && few.take(1) && few.is_full() && !few.take(0));
        let mut large = PageRoom::of(10);
        assert!(large.take(limits::PAGE_BYTES_MAX + 1), "otherwise no reader could get past it");
        assert!(!large.take(1));
        let mut exact = PageRoom::of(10);
        assert!(exact.take(limits::PAGE_BYTES_MAX - 1) && exact.take(1) && !exact.take(1));
    }
}
