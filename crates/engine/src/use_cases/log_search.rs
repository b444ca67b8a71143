//! Searching the logs of all jobs that a caller may see. A search is bounded, and says how far it looked.

use super::{UseCase, UseCaseError, UseCases};
use punctual_core::ids::JobId;
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::log_level::LogLevel;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{
    ExecutionQuery, ExecutionView, ExecutionWalk, ListedExecution, LogLine, LogStream, StoreError,
};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

/// The ends of executions that ran, and so may have written lines.
const RAN: [Status; 6] =
    [Status::Succeeded, Status::Failed, Status::TimedOut, Status::Lost, Status::Cancelled, Status::Snoozed];

/// What lines are searched for. Absent filters match all.
#[derive(Debug, Clone, Default)]
pub struct LogFilter {
    pub queue: Option<String>,
    pub job_type: Option<String>,
    pub owner: Option<String>,
    /// Lines of jobs with this tag.
    pub tag: Option<String>,
    /// Lines written at or after this time.
    pub since: Option<Timestamp>,
    /// Lines written before this time.
    pub until: Option<Timestamp>,
    /// A text in the line, in any case.
    pub text: Option<String>,
    /// The least severe level. Lines without a level match only without this filter.
    pub level: Option<LogLevel>,
}

/// A line with the execution that wrote it.
#[derive(Debug, Clone)]
pub struct FoundLogLine {
    pub line: LogLine,
    pub job_name: String,
    pub job_type: String,
    pub queue: String,
}

/// What a search has found.
#[derive(Debug, Clone)]
pub struct LogsFound {
    /// The latest matching lines, by time.
    pub lines: Vec<FoundLogLine>,
    pub executions: usize,
    pub lines_read: usize,
    /// If not everything was examined: all executions that ended at or after this time were.
    pub back_to: Option<Timestamp>,
}

/// Executions to look at, the latest to end first, and how far back they go.
struct Candidates {
    executions: Vec<ListedExecution>,
    back_to: Option<Timestamp>,
}

impl UseCases {
    pub async fn search_logs(&self, filter: &LogFilter, limit: usize) -> Result<LogsFound, UseCaseError> {
        self.permit(UseCase::SearchLogs)?;
        let Candidates { executions, mut back_to } = self.candidates(filter).await?;
        let mut tagged = BTreeMap::new();
        let mut found = LogsFound { lines: vec![], executions: 0, lines_read: 0, back_to: None };
        for listed in executions {
            let ended = ended_at(&listed.view);
            // Executions that ended before the limit was reached wrote only earlier lines; running ones may write later ones.
            let is_full = found.lines.len() >= limit && ended.is_some();
            let end = ended.unwrap_or(self.now()).shifted(1);
            if is_full || found.lines_read >= limits::LOG_SEARCH_LINES_MAX {
                back_to = back_to.max(Some(end));
                break;
            }
            if !self.has_tag(listed.view.id().occurrence.job, filter, &mut tagged).await? {
                continue;
            }
            found.executions += 1;
            if !self.search_execution(&listed, filter, &mut found).await? {
                back_to = back_to.max(Some(end));
                break;
            }
        }
        found.lines.sort_by_key(|found| (found.line.timestamp, found.line.number));
        let surplus = found.lines.len().saturating_sub(limit);
        found.lines.drain(..surplus);
        found.back_to = back_to;
        Ok(found)
    }

    /// Executions that may have written lines in the time of the filter.
    async fn candidates(&self, filter: &LogFilter) -> Result<Candidates, StoreError> {
        let mut found = Candidates { executions: vec![], back_to: None };
        let running = ExecutionWalk::Running { after: None };
        let finished = RAN.map(|status| ExecutionWalk::Finished { status, before: None });
        for walk in std::iter::once(running).chain(finished) {
            self.walk_executions(walk, filter, &mut found).await?;
        }
        // If one kind was not examined to its end, the others beyond that point would mislead.
        if let Some(back_to) = found.back_to {
            found.executions.retain(|listed| ended_at(&listed.view).is_none_or(|ended| ended >= back_to));
        }
        found.executions.sort_by_key(|listed| {
            std::cmp::Reverse(ended_at(&listed.view).unwrap_or(Timestamp::from_micros(i64::MAX)))
        });
        if let Some(next) = found.executions.get(limits::LOG_SEARCH_EXECUTIONS_MAX) {
            found.back_to = found.back_to.max(ended_at(&next.view).map(|ended| ended.shifted(1)));
            found.executions.truncate(limits::LOG_SEARCH_EXECUTIONS_MAX);
        }
        Ok(found)
    }

    /// Whether a job has the tag of the filter. Jobs that were deleted have none.
    async fn has_tag(
        &self,
        job: JobId,
        filter: &LogFilter,
        known: &mut BTreeMap<JobId, bool>,
    ) -> Result<bool, StoreError> {
        let Some(tag) = &filter.tag else { return Ok(true) };
        if let Some(has_tag) = known.get(&job) {
            return Ok(*has_tag);
        }
        let has_tag =
            self.store().job(job).await?.is_some_and(|view| view.job.spec.settings.tags.contains(tag));
        known.insert(job, has_tag);
        Ok(has_tag)
    }

    async fn walk_executions(
        &self,
        walk: ExecutionWalk,
        filter: &LogFilter,
        found: &mut Candidates,
    ) -> Result<(), StoreError> {
        let mut query = ExecutionQuery {
            walk,
            limit: limits::PAGE_ITEMS_MAX,
            queue: filter.queue.clone(),
            job_type: filter.job_type.clone(),
            owner: filter.owner.clone(),
            worker: None,
            ended_from: None,
            ended_until: None,
        };
        let mut last_ended = None;
        for _ in 0..limits::LOG_SEARCH_EXECUTIONS_MAX / limits::PAGE_ITEMS_MAX {
            let page = self.read_in_scope(query.clone()).await?;
            for listed in page.items {
                let ended = ended_at(&listed.view);
                last_ended = ended.or(last_ended);
                if ended.is_some_and(|ended| filter.since.is_some_and(|since| ended < since)) {
                    return Ok(());
                }
                let started = started_at(&listed.view);
                if started.is_some_and(|started| filter.until.is_none_or(|until| started < until)) {
                    found.executions.push(listed);
                }
            }
            match page.next {
                Some(next) => query.walk = next,
                None => return Ok(()),
            }
        }
        found.back_to = found.back_to.max(last_ended);
        Ok(())
    }

    /// Returns whether all its lines were read.
    async fn search_execution(
        &self,
        listed: &ListedExecution,
        filter: &LogFilter,
        found: &mut LogsFound,
    ) -> Result<bool, StoreError> {
        let id = listed.view.id();
        let mut after = Some(0);
        while after.is_some() && found.lines_read < limits::LOG_SEARCH_LINES_MAX {
            let page = self.store().logs(id, after, limits::PAGE_ITEMS_MAX).await?;
            found.lines_read += page.items.len();
            let matching = page.items.into_iter().filter(|line| filter.matches(line));
            found.lines.extend(matching.map(|line| FoundLogLine {
                line,
                job_name: listed.job_name.clone(),
                job_type: listed.job_type.clone(),
                queue: listed.queue.clone(),
            }));
            after = page.next;
        }
        Ok(after.is_none())
    }
}

impl LogFilter {
    fn matches(&self, line: &LogLine) -> bool {
        let (level, message) = LogLevel::split(&line.message);
        let level = level.or((line.stream == LogStream::Log).then_some(LogLevel::Info));
        self.since.is_none_or(|since| line.timestamp >= since)
            && self.until.is_none_or(|until| line.timestamp < until)
            && self.level.is_none_or(|least| level.is_some_and(|level| level >= least))
            && self.text.as_ref().is_none_or(|text| message.to_lowercase().contains(&text.to_lowercase()))
    }
}

fn ended_at(view: &ExecutionView) -> Option<Timestamp> {
    match view {
        ExecutionView::Finished(finished) => Some(finished.completed_at),
        ExecutionView::Live { .. } => None,
    }
}

/// When it started; `None` if it never did.
fn started_at(view: &ExecutionView) -> Option<Timestamp> {
    match view {
        ExecutionView::Finished(finished) => finished.started_at,
        ExecutionView::Live { live, .. } => match &live.state {
            LiveState::Running(lease) => Some(lease.claimed_at),
            _ => None,
        },
    }
}
