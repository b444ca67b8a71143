//! Executions: open, finished and skipped; and cancelling one.

use super::{UseCase, UseCaseError, UseCases};
use punctual_core::blobs::BlobReference;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::limits;
use punctual_core::notes::{Checkpoint, Noted};
use punctual_core::ports::{
    BlobParts, CancelOutcome, ExecutionQuery, ExecutionView, ExecutionWalk, ListedExecution, Page,
};
use punctual_core::schedule::SkipRange;

/// An execution with the notes of its occurrence.
#[derive(Debug, Clone)]
pub struct ExecutionDetails {
    pub view: ExecutionView,
    pub noted: Option<Noted>,
    pub checkpoint: Option<Checkpoint>,
}

/// A result as JSON text.
pub enum ResultData {
    Stored(String),
    Blob { bytes: u64, parts: Box<dyn BlobParts> },
}

/// A page of the executions of one job.
#[derive(Debug, Clone)]
pub struct ExecutionsOfJob {
    pub page: Page<ExecutionView, ExecutionId>,
    /// The notes of their occurrences.
    pub notes: Vec<Noted>,
    /// Skipped ranges, on the first page.
    pub skipped: Vec<SkipRange>,
}

impl UseCases {
    /// The state of one execution, without its notes.
    pub(super) async fn execution_view(&self, id: ExecutionId) -> Result<ExecutionView, UseCaseError> {
        self.permit_on(UseCase::ReadExecutions, format_args!("execution {id}"))?;
        Ok(self.shown_execution(self.execution_in_scope(id).await?))
    }

    /// Both reads happen for every id, so that the time taken does not tell whether an execution exists.
    pub(super) async fn execution_in_scope(&self, id: ExecutionId) -> Result<ExecutionView, UseCaseError> {
        let job = id.occurrence.job;
        let visible = self.in_scope([job]).await?;
        let view = self.store().execution(id).await?.filter(|_| visible.has(job));
        view.ok_or(UseCaseError::NoSuchExecution(id))
    }

    pub async fn execution(&self, id: ExecutionId) -> Result<ExecutionDetails, UseCaseError> {
        let view = self.execution_view(id).await?;
        let occurrence = id.occurrence;
        let notes = self.store().notes(occurrence.job, occurrence.number, 1).await?;
        let noted = notes.into_iter().find(|noted| noted.occurrence == occurrence);
        let checkpoint = match &noted {
            Some(Noted { checkpoint_bytes: Some(_), .. }) if self.may_read_payloads() => {
                self.store().checkpoint(occurrence).await?
            }
            _ => None,
        };
        Ok(ExecutionDetails { view, noted, checkpoint })
    }

    /// The result of an execution, however large it is.
    pub async fn result(&self, id: ExecutionId) -> Result<ResultData, UseCaseError> {
        self.permit_on(UseCase::ReadResult, format_args!("execution {id}"))?;
        let ExecutionView::Finished(finished) = self.execution_in_scope(id).await? else {
            return Err(UseCaseError::NoResult(id));
        };
        let Some(result) = finished.result else { return Err(UseCaseError::NoResult(id)) };
        match BlobReference::read(&result) {
            Some(reference) => {
                let bytes = reference.bytes;
                Ok(ResultData::Blob { bytes, parts: self.engine.open_result(id, reference).await? })
            }
            None => Ok(ResultData::Stored(result)),
        }
    }

    /// Open and finished executions of a job in one order, page by page.
    pub async fn executions_of_job(
        &self,
        job: JobId,
        before: Option<ExecutionId>,
        limit: usize,
    ) -> Result<ExecutionsOfJob, UseCaseError> {
        self.job(job).await?;
        let skipped = match before {
            // A small limit is meant for executions, so it does not apply to skipped ranges.
            None => self.store().skipped(job, limit.max(limits::PAGE_ITEMS_DEFAULT)).await?,
            Some(_) => vec![],
        };
        let mut page = self.store().executions_of_job(job, before, limit).await?;
        page.items = page.items.into_iter().map(|view| self.shown_execution(view)).collect();
        let notes = match page.items.iter().map(|item| item.id().occurrence.number).max() {
            Some(latest) => self.store().notes(job, latest, page.items.len()).await?,
            None => vec![],
        };
        Ok(ExecutionsOfJob { page, notes, skipped })
    }

    /// Executions of all jobs in one state, with the notes of their occurrences.
    pub async fn executions(
        &self,
        query: ExecutionQuery,
    ) -> Result<Page<(ListedExecution, Option<Noted>), ExecutionWalk>, UseCaseError> {
        self.permit(UseCase::ReadExecutions)?;
        let page = self.read_in_scope(query).await?;
        let mut items = Vec::with_capacity(page.items.len());
        for mut listed in page.items {
            listed.view = self.shown_execution(listed.view);
            let noted = match &listed.view {
                ExecutionView::Live { live, .. } if live.flags.noted => {
                    self.store().notes(live.id.job, live.id.number, 1).await?.pop()
                }
                _ => None,
            };
            items.push((listed, noted));
        }
        Ok(Page { items, next: page.next })
    }

    /// Ends an execution that has not started; asks a running one to stop.
    pub async fn cancel_execution(&self, id: ExecutionId) -> Result<(), UseCaseError> {
        self.permit_on(UseCase::CancelExecution, format_args!("execution {id}"))?;
        self.execution_in_scope(id).await?;
        let audit = self.audited(UseCase::CancelExecution, format_args!("execution {id}"));
        match self.engine.cancel_execution(id, audit).await? {
            CancelOutcome::Cancelled(_) | CancelOutcome::Asked => Ok(()),
            CancelOutcome::Finished => match self.execution_in_scope(id).await? {
                ExecutionView::Finished(finished) => Err(UseCaseError::ExecutionEnded(finished.status)),
                ExecutionView::Live { .. } => Err(UseCaseError::Busy),
            },
            CancelOutcome::NotThere => Err(UseCaseError::NoSuchExecution(id)),
        }
    }
}
