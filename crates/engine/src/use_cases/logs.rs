//! Reading the logs of handlers: those of one execution, or those of a job, one execution after the other.

use super::{UseCase, UseCaseError, UseCases};
use crate::LogFollower;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{ExecutionView, JobView, LogLine, LogStream, Store, StoreError};

/// Executions that one segment may read: many may have written nothing.
const EXECUTIONS_PER_SEGMENT_MAX: usize = 100;

/// The execution or job whose lines are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSource {
    Execution(ExecutionId),
    Job(JobId),
}

impl LogSource {
    fn job(self) -> JobId {
        match self {
            LogSource::Execution(execution) => execution.occurrence.job,
            LogSource::Job(job) => job,
        }
    }
}

/// A position in a log: after this line of this execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPlace {
    pub execution: ExecutionId,
    pub number: u64,
}

/// Log lines in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSegment {
    pub items: Vec<LogLine>,
    /// Where to continue; `None` until something has run.
    pub place: Option<LogPlace>,
    /// Before which line to read older ones; `None` if there are none of this execution or run.
    pub older_before: Option<LogPlace>,
    /// Whether there are more lines now.
    pub more: bool,
}

/// How the source of a log ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEnd {
    Execution(Status),
    Job(JobStatus),
    Deleted,
}

/// Reads one log on behalf of a caller.
#[derive(Clone)]
pub struct LogReader {
    cases: UseCases,
    source: LogSource,
}

impl UseCases {
    pub async fn logs(&self, source: LogSource) -> Result<LogReader, UseCaseError> {
        match source {
            LogSource::Execution(execution) => {
                self.permit_on(UseCase::ReadLogs, format_args!("execution {execution}"))?;
            }
            LogSource::Job(job) => self.permit_on(UseCase::ReadLogs, format_args!("job {job}"))?,
        }
        match source {
            LogSource::Execution(execution) => drop(self.execution_view(execution).await?),
            LogSource::Job(job) => drop(self.job(job).await?),
        }
        Ok(LogReader { cases: self.clone(), source })
    }
}

impl LogReader {
    /// Reports when there may be more lines, from now on.
    pub fn follow(&self) -> LogFollower {
        self.cases.engine.follow_logs(self.source.job())
    }

    fn store(&self) -> &dyn Store {
        self.cases.store()
    }

    /// How the source ended, if no more lines can follow.
    pub async fn ended(&self) -> Result<Option<LogEnd>, StoreError> {
        Ok(match self.source {
            LogSource::Execution(execution) => match self.store().execution(execution).await? {
                Some(ExecutionView::Live { .. }) => None,
                Some(ExecutionView::Finished(finished)) => Some(LogEnd::Execution(finished.status)),
                None => Some(LogEnd::Deleted),
            },
            LogSource::Job(job) => match self.store().job(job).await? {
                Some(view) => {
                    let status = view.status();
                    let is_over = !matches!(status, JobStatus::Active | JobStatus::Paused);
                    (is_over && view.open.is_empty()).then_some(LogEnd::Job(status))
                }
                None => Some(LogEnd::Deleted),
            },
        })
    }

    /// The lines after a position; without one, from the beginning of the execution, or of the job's latest
    /// run.
    pub async fn read(&self, place: Option<LogPlace>, limit: usize) -> Result<LogSegment, StoreError> {
        match self.source {
            LogSource::Execution(execution) => {
                let place = place.unwrap_or(LogPlace { execution, number: 0 });
                let page = self.store().logs(execution, Some(place.number), limit).await?;
                let number = page.items.last().map_or(place.number, |line| line.number);
                let mut items: Vec<LogLine> = self.removed_before(place).await?.into_iter().collect();
                items.extend(page.items);
                let place = Some(LogPlace { execution, number });
                Ok(LogSegment {
                    older_before: self.start_of(&items),
                    items,
                    place,
                    more: page.next.is_some(),
                })
            }
            LogSource::Job(job) => {
                let latest = self.latest_of(job).await?;
                let start =
                    latest.map(|latest| LogPlace { execution: latest.occurrence.attempt(1), number: 0 });
                match (latest, place.or(start)) {
                    (Some(latest), Some(place)) => self.read_on(place, latest, limit).await,
                    _ => Ok(LogSegment { items: vec![], place, older_before: None, more: false }),
                }
            }
        }
    }

    /// The last existing lines, or those before one of them, of one execution or of one run of a job.
    pub async fn last(&self, before: Option<LogPlace>, count: usize) -> Result<LogSegment, StoreError> {
        let latest = match (before, self.source) {
            (Some(before), _) => Some(before.execution),
            (None, LogSource::Execution(execution)) => Some(execution),
            (None, LogSource::Job(job)) => self.latest_of(job).await?,
        };
        let Some(latest) = latest else {
            return Ok(LogSegment { items: vec![], place: None, older_before: None, more: false });
        };
        let first = self.first_attempt(latest);
        let mut items: Vec<LogLine> = Vec::new();
        // Reads at least one line, to know where the log continues.
        let end = self.store().last_logs(latest, before.map(|before| before.number), count.max(1)).await?;
        let number = end.last().map_or(0, |line| line.number);
        let is_whole = end.len() < count;
        items.extend(end.into_iter().rev().take(count));
        if is_whole {
            items.extend(self.removed_before(LogPlace { execution: latest, number: 0 }).await?);
        }
        for attempt in (first..latest.attempt).rev().take(EXECUTIONS_PER_SEGMENT_MAX) {
            // Beyond this, an attempt's lines may have been cut to a page, and those before them are missing.
            if items.len() >= count || is_full(&items) {
                break;
            }
            let execution = latest.occurrence.attempt(attempt);
            let lines = self.store().last_logs(execution, None, count - items.len()).await?;
            items.extend(lines.into_iter().rev());
        }
        items.reverse();
        let place = Some(LogPlace { execution: latest, number });
        Ok(LogSegment { older_before: self.start_of(&items), items, place, more: false })
    }

    /// The first attempt whose lines are read together with those of this one.
    fn first_attempt(&self, latest: ExecutionId) -> u32 {
        if matches!(self.source, LogSource::Job(_)) { 1 } else { latest.attempt }
    }

    /// Where lines begin, if others may be before them.
    fn start_of(&self, lines: &[LogLine]) -> Option<LogPlace> {
        let LogLine { execution, number, .. } = *lines.first()?;
        let is_first = number <= 1 && execution.attempt == self.first_attempt(execution);
        (!is_first).then_some(LogPlace { execution, number })
    }

    async fn read_on(
        &self,
        from: LogPlace,
        latest: ExecutionId,
        limit: usize,
    ) -> Result<LogSegment, StoreError> {
        let mut place = from;
        let mut items = Vec::new();
        let mut is_end = false;
        for _ in 0..EXECUTIONS_PER_SEGMENT_MAX {
            // Read before the lines: an execution that has ended by now has written all of them.
            let successor = self.successor(place.execution, latest).await?;
            let page = self.store().logs(place.execution, Some(place.number), limit - items.len()).await?;
            items.extend(self.removed_before(place).await?);
            place.number = page.items.last().map_or(place.number, |line| line.number);
            items.extend(page.items);
            if page.next.is_none() {
                match successor {
                    Some(execution) => place = LogPlace { execution, number: 0 },
                    None => is_end = true,
                }
            }
            if is_end || items.len() >= limit || is_full(&items) {
                break;
            }
        }
        Ok(LogSegment { older_before: self.start_of(&items), items, place: Some(place), more: !is_end })
    }

    /// The line at the beginning of a log whose first lines were removed by the log quota.
    async fn removed_before(&self, place: LogPlace) -> Result<Option<LogLine>, StoreError> {
        if place.number > 0 {
            return Ok(None);
        }
        let Some(until) = self.store().logs_removed_until().await? else { return Ok(None) };
        let started_at = match self.store().execution(place.execution).await? {
            Some(ExecutionView::Live { live, .. }) => match live.state {
                LiveState::Running(lease) => Some(lease.claimed_at),
                LiveState::Waiting(_) | LiveState::Queued => None,
            },
            Some(ExecutionView::Finished(finished)) => finished.started_at,
            None => None,
        };
        Ok(started_at.filter(|started_at| *started_at <= until).map(|started_at| LogLine {
            number: 0,
            execution: place.execution,
            timestamp: started_at,
            stream: LogStream::Log,
            message: format!(
                "lines written before {until} may be missing: they were removed because all logs together had reached \
                 logs.total_size_max"
            ),
        }))
    }

    /// The execution after this one, once this one has ended.
    async fn successor(
        &self,
        execution: ExecutionId,
        latest: ExecutionId,
    ) -> Result<Option<ExecutionId>, StoreError> {
        if execution >= latest {
            return Ok(None);
        }
        let occurrence = execution.occurrence;
        let retry = occurrence.attempt(execution.attempt + 1);
        if occurrence == latest.occurrence {
            return Ok(Some(retry));
        }
        if let Some(ExecutionView::Live { .. }) = self.store().execution(execution).await? {
            return Ok(None);
        }
        match self.store().execution(retry).await? {
            Some(_) => Ok(Some(retry)),
            None => Ok(Some(occurrence.job.occurrence(occurrence.number + 1).attempt(1))),
        }
    }

    async fn latest_of(&self, job: JobId) -> Result<Option<ExecutionId>, StoreError> {
        Ok(self.store().job(job).await?.as_ref().and_then(latest_started))
    }
}

/// Whether these lines fill a page, so that one more might not fit.
fn is_full(lines: &[LogLine]) -> bool {
    let bytes: usize = lines.iter().map(|line| line.message.len()).sum();
    bytes + 2 * limits::LOG_LINE_BYTES_MAX > limits::PAGE_BYTES_MAX
}

/// The latest execution that may have written lines.
fn latest_started(view: &JobView) -> Option<ExecutionId> {
    let open = view.open.iter().filter_map(|live| match live.state {
        LiveState::Running(_) => Some(live.id.attempt(live.attempt)),
        LiveState::Waiting(_) | LiveState::Queued => {
            (live.attempt > 1).then(|| live.id.attempt(live.attempt - 1))
        }
    });
    open.chain(view.last_finished.as_ref().map(|finished| finished.id)).max()
}
