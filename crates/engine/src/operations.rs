//! Advancing operations: one action on everything that a filter selects, in steps of a bounded size.
//!
//! The leader plans a step, stores the plan, performs it and records the outcome. After a crash, or beside another
//! leader, the stored plan is performed again: every action on a planned item can be repeated. Each write of the
//! document is a compare-and-swap, so of two leaders one records the outcome.

use crate::use_cases::{Access, Caller, SelectedItem, UseCaseError, UseCases, actor_of, case_of_action};
use crate::{ControlError, Engine};
use futures_util::future::join_all;
use punctual_core::control::{Refusal, Verb, last_number};
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, OperationId};
use punctual_core::job::{InvalidField, JobSpec};
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::occurrence::Origin;
use punctual_core::operation::{
    BulkAction, BulkOperation, FINISHED_OPERATIONS, ItemOutcome, ItemRefusal, PlannedItem,
    RUNNING_OPERATIONS, StepPlan, document_name,
};
use punctual_core::ports::{
    AuditEntry, CancelOutcome, DeadLetter, DeadLetterQuery, DirectoryChange, DirectoryOutcome,
    DocumentChange, DocumentKind, ExecutionView, Store, StoreError, StoredDocument,
};
use punctual_core::sealed::{SealedPlace, Undecryptable};
use punctual_core::time::Timestamp;
use std::fmt;
use std::sync::Arc;

/// How often the outcome of a step is recorded again because a user has cancelled the operation meanwhile.
const RECORD_TRIES_MAX: usize = 10;

/// Pages that are read for one step in search of something to act on.
const PAGES_PER_STEP_MAX: usize = 20;

/// How often a job is triggered again because its schedule has fired meanwhile.
const TRIGGER_TRIES_MAX: usize = 10;

/// Applies merge patches to jobs. The API knows the fields of jobs by their names; the engine does not.
pub trait JobPatches: fmt::Debug + Send + Sync {
    fn patched(&self, stored: &JobSpec, patch: &str, now: Timestamp) -> Result<JobSpec, Vec<InvalidField>>;
}

/// An operation as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct StoredOperation {
    pub document: StoredDocument,
    pub operation: BulkOperation,
}

impl StoredOperation {
    pub fn read(document: StoredDocument) -> Result<Self, StoreError> {
        Ok(StoredOperation { operation: document.read()?, document })
    }

    /// The operation with this id, running or finished.
    pub async fn find(store: &dyn Store, id: OperationId) -> Result<Option<Self>, StoreError> {
        // It may finish between the two reads.
        for is_finished in [false, true] {
            if let Some(found) =
                store.document(DocumentKind::Operation, &document_name(id, is_finished)).await?
            {
                return StoredOperation::read(found).map(Some);
            }
        }
        Ok(None)
    }

    /// Stores a changed operation. `None` if another one is stored meanwhile.
    pub async fn replaced(
        self,
        store: &dyn Store,
        operation: BulkOperation,
        audit: Option<AuditEntry>,
    ) -> Result<Option<Self>, StoreError> {
        let name = operation.document_name();
        let (document, changes) = if name == self.document.name {
            let document = self.document.changed(&operation);
            (document.clone(), vec![DocumentChange::Replace(document)])
        } else {
            let document = StoredDocument::new(DocumentKind::Operation, name, &operation);
            let StoredDocument { kind, name, version, .. } = self.document;
            let remove = DocumentChange::Remove { kind, name, version };
            (document.clone(), vec![remove, DocumentChange::Add(document)])
        };
        match store.change_directory(DirectoryChange::Documents(changes), audit).await? {
            DirectoryOutcome::Done => Ok(Some(StoredOperation { document, operation })),
            _ => Ok(None),
        }
    }
}

/// The running operations.
async fn running(store: &dyn Store) -> Result<Vec<StoredDocument>, StoreError> {
    let page =
        store.documents(DocumentKind::Operation, Some(RUNNING_OPERATIONS), limits::OPERATIONS_RUNNING_MAX);
    Ok(page.await?.items)
}

impl Engine {
    /// Performs one step of each running operation. Returns whether any of them has continued.
    pub(crate) async fn advance_operations(self: &Arc<Self>) -> Result<bool, StoreError> {
        let mut has_continued = false;
        for document in running(&*self.context.store).await? {
            let name = document.name.clone();
            let stepped = match StoredOperation::read(document) {
                Ok(stored) => self.step(stored).await,
                Err(error) => Err(error),
            };
            match stepped {
                Ok(()) => has_continued = true,
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => tracing::warn!(%error, operation = name, "an operation could not continue"),
            }
        }
        Ok(has_continued)
    }

    /// Deletes operations that finished long ago.
    pub(crate) async fn retain_operations(&self) -> Result<(), StoreError> {
        let store = &*self.context.store;
        // Later operations have lower names.
        let oldest = OperationId::new(self.now().minus(limits::OPERATIONS_KEPT), 0);
        let mut after = Some(document_name(oldest, true));
        while let Some(name) = after {
            let page = store.documents(DocumentKind::Operation, Some(&name), limits::BULK_STEP_MAX).await?;
            let is_old = |document: &StoredDocument| document.name.starts_with(FINISHED_OPERATIONS);
            for StoredDocument { kind, name, version, .. } in page.items.into_iter().filter(is_old) {
                let removal =
                    DirectoryChange::Documents(vec![DocumentChange::Remove { kind, name, version }]);
                store.change_directory(removal, None).await?;
            }
            after = page.next;
        }
        Ok(())
    }

    async fn step(self: &Arc<Self>, stored: StoredOperation) -> Result<(), StoreError> {
        let store = &*self.context.store;
        let mut operation = stored.operation.clone();
        let performer = match Performer::of(self, &operation).await? {
            Ok(performer) => performer,
            Err(reason) => {
                operation.fail(reason, self.now());
                return stored.replaced(store, operation, None).await.map(drop);
            }
        };
        let is_repeated = !operation.planned.is_empty();
        let mut stored = stored;
        if !is_repeated {
            operation.plan(performer.plan(&operation).await?, self.now());
            let Some(planned) = stored.replaced(store, operation.clone(), None).await? else { return Ok(()) };
            if operation.planned.is_empty() {
                return Ok(());
            }
            stored = planned;
        }
        let outcomes = performer.perform(&operation, is_repeated).await?;
        let (id, step) = (operation.id, operation.step);
        for _ in 0..RECORD_TRIES_MAX {
            let mut recorded = stored.operation.clone();
            recorded.record(step, outcomes.clone(), self.now());
            if recorded == stored.operation || stored.replaced(store, recorded, None).await?.is_some() {
                return Ok(());
            }
            match StoredOperation::find(store, id).await? {
                Some(changed) if !changed.operation.is_finished() => stored = changed,
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

/// Performs an operation on behalf of the caller that has started it: with the access that the caller had then, as
/// far as it still has it.
struct Performer {
    engine: Arc<Engine>,
    at_start: UseCases,
    now: UseCases,
    /// The plain text of the patch of an update.
    patch: Option<String>,
}

impl Performer {
    /// Or why the operation cannot go on.
    async fn of(engine: &Arc<Engine>, operation: &BulkOperation) -> Result<Result<Self, String>, StoreError> {
        let requester = &operation.requester;
        let (at_start, now): (Caller, Caller) = match actor_of(engine, requester).await? {
            Ok(callers) => callers,
            Err(reason) => return Ok(Err(reason)),
        };
        if let Err(refusal) = now.check(case_of_action(operation.action, operation.selection.target())) {
            return Ok(Err(format!("{} may not do this any more: {refusal}", requester.name)));
        }
        let patch = match engine.plain_patch(operation) {
            Ok(patch) => patch,
            // Another node may have the key.
            Err(error) => return Err(StoreError::Broken(error.to_string())),
        };
        let access = Access::new(engine.clone());
        Ok(Ok(Performer {
            engine: engine.clone(),
            at_start: access.on_behalf_of(at_start),
            now: access.on_behalf_of(now),
            patch,
        }))
    }

    async fn plan(&self, operation: &BulkOperation) -> Result<StepPlan, StoreError> {
        let mut selection = operation.selection.clone();
        for _ in 0..PAGES_PER_STEP_MAX {
            let page = self.at_start.selected(selection, operation.created_at, limits::BULK_STEP_MAX).await?;
            if !page.items.is_empty() || page.is_last {
                let items = self.items(operation.action, page.items).await?;
                return Ok(StepPlan { items, selection: page.selection, is_last: page.is_last });
            }
            selection = page.selection;
        }
        Ok(StepPlan { items: vec![], selection, is_last: false })
    }

    async fn items(
        &self,
        action: BulkAction,
        selected: Vec<SelectedItem>,
    ) -> Result<Vec<PlannedItem>, StoreError> {
        let mut items = Vec::with_capacity(selected.len());
        for item in selected {
            items.push(match item {
                SelectedItem::Job(view) => {
                    let (job, schedule) = (&view.job, view.schedule.as_ref());
                    match action {
                        BulkAction::Trigger => PlannedItem {
                            number: Some(last_number(job, schedule)),
                            ..PlannedItem::job(job.id)
                        },
                        BulkAction::Retry => {
                            let letter = self.latest_dead(job.id).await?;
                            letter.map_or(PlannedItem::job(job.id), |letter| PlannedItem::letter(&letter))
                        }
                        _ => PlannedItem::job(job.id),
                    }
                }
                SelectedItem::Execution(listed) => PlannedItem::execution(listed.view.id()),
                SelectedItem::Letter(letter) => PlannedItem::letter(&letter),
            });
        }
        Ok(items)
    }

    async fn latest_dead(&self, job: JobId) -> Result<Option<DeadLetter>, StoreError> {
        let query = DeadLetterQuery { job: Some(job), limit: 1, ..DeadLetterQuery::default() };
        Ok(self.store().dead_letters(query).await?.items.pop())
    }

    fn store(&self) -> &dyn Store {
        &*self.engine.context.store
    }

    /// Acts on the planned items. `is_repeated` if that may have happened before.
    async fn perform(
        &self,
        operation: &BulkOperation,
        is_repeated: bool,
    ) -> Result<Vec<ItemOutcome>, StoreError> {
        let jobs = || operation.planned.iter().map(|item| item.job);
        let (before, after) = (self.at_start.in_scope(jobs()).await?, self.now.in_scope(jobs()).await?);
        let is_own = |item: &PlannedItem| before.has(item.job) && after.has(item.job);
        let (own, foreign): (Vec<PlannedItem>, Vec<PlannedItem>) =
            operation.planned.iter().copied().partition(is_own);
        let mut outcomes = match operation.action {
            BulkAction::Pause => self.control(&own, |_| Verb::Pause).await?,
            BulkAction::Resume => self.control(&own, |_| Verb::Resume).await?,
            BulkAction::Delete => self.control(&own, |_| Verb::Delete).await?,
            BulkAction::Cancel if own.iter().any(|item| item.attempt.is_some()) => {
                self.cancel_executions(&own, is_repeated).await?
            }
            BulkAction::Cancel => self.control(&own, |_| Verb::Cancel).await?,
            BulkAction::Retry => self.redrive(&own, is_repeated).await?,
            BulkAction::Trigger => self.trigger(&own).await?,
            BulkAction::Update => self.update(&own, operation.created_at).await?,
        };
        outcomes.extend(
            foreign
                .iter()
                .map(|item| refused(item.job, "it is no longer among the jobs that the token may act on")),
        );
        Ok(outcomes)
    }

    async fn control(
        &self,
        items: &[PlannedItem],
        verb: impl Fn(&PlannedItem) -> Verb,
    ) -> Result<Vec<ItemOutcome>, StoreError> {
        let verbs: Vec<(JobId, Verb)> = items.iter().map(|item| (item.job, verb(item))).collect();
        let outcomes = self.engine.control_many(verbs.clone()).await?;
        let outcome = |((job, verb), outcome): ((JobId, Verb), Result<_, ControlError>)| match outcome {
            Ok(_) => Ok(()),
            // Someone else has deleted it, or this step has, before it was interrupted.
            Err(ControlError::NotThere) if verb == Verb::Delete => Ok(()),
            Err(error) => refused(job, error),
        };
        Ok(verbs.into_iter().zip(outcomes).map(outcome).collect())
    }

    async fn redrive(
        &self,
        items: &[PlannedItem],
        is_repeated: bool,
    ) -> Result<Vec<ItemOutcome>, StoreError> {
        let (mut dead, mut outcomes): (Vec<OccurrenceId>, Vec<ItemOutcome>) = Default::default();
        for item in items {
            match item.occurrence_id() {
                None => outcomes.push(refused(item.job, ControlError::Refused(Refusal::NothingDead))),
                Some(_) if is_repeated && self.was_redriven(item).await? => outcomes.push(Ok(())),
                Some(occurrence) => dead.push(occurrence),
            }
        }
        if dead.is_empty() {
            return Ok(outcomes);
        }
        let redriven = self.engine.redrive(dead.clone(), None).await?;
        outcomes.extend(dead.into_iter().zip(redriven).map(|(occurrence, outcome)| match outcome {
            Ok(_) => Ok(()),
            Err(ControlError::NotThere) if is_repeated => Ok(()),
            Err(ControlError::NotThere) => refused(occurrence, "there is no such dead letter any more"),
            Err(error) => refused(occurrence, error),
        }));
        Ok(outcomes)
    }

    /// Whether the occurrence has an attempt after the one that was planned to be the last. It may have failed for good
    /// again since.
    async fn was_redriven(&self, item: &PlannedItem) -> Result<bool, StoreError> {
        match item.execution_id() {
            Some(last) => {
                Ok(self.store().execution(last.occurrence.attempt(last.attempt + 1)).await?.is_some())
            }
            None => Ok(false),
        }
    }

    async fn trigger(&self, items: &[PlannedItem]) -> Result<Vec<ItemOutcome>, StoreError> {
        let numbered = |item: &PlannedItem| item.number.unwrap_or_default();
        let verbs = items.iter().map(|item| (item.job, Verb::TriggerAfter(numbered(item)))).collect();
        let outcomes = self.engine.control_many(verbs).await?;
        let mut answers = Vec::with_capacity(items.len());
        for (item, outcome) in items.iter().zip(outcomes) {
            answers.push(match outcome {
                Ok(_) => Ok(()),
                Err(ControlError::Refused(Refusal::Numbered(last))) => {
                    self.trigger_again(item.job, numbered(item), last).await?
                }
                Err(error) => refused(item.job, error),
            });
        }
        Ok(answers)
    }

    /// Triggers a job that has got occurrences since it was planned, unless one of them is the trigger of this step,
    /// which was interrupted or is performed twice.
    async fn trigger_again(&self, job: JobId, planned: u32, last: u32) -> Result<ItemOutcome, StoreError> {
        let (mut seen, mut last) = (planned, last);
        for _ in 0..TRIGGER_TRIES_MAX {
            let first = (seen + 1).max(last.saturating_sub(limits::BULK_TRIGGER_SEARCH_MAX));
            for number in first..=last {
                if self.origin_of(job.occurrence(number)).await? == Some(Origin::Trigger) {
                    return Ok(Ok(()));
                }
            }
            match self.engine.control_many(vec![(job, Verb::TriggerAfter(last))]).await?.pop() {
                Some(Err(ControlError::Refused(Refusal::Numbered(now)))) => (seen, last) = (last, now),
                Some(Err(error)) => return Ok(refused(job, error)),
                Some(Ok(_)) | None => return Ok(Ok(())),
            }
        }
        Ok(refused(job, "its schedule fires too often to trigger it: trigger it by its id"))
    }

    async fn origin_of(&self, occurrence: OccurrenceId) -> Result<Option<Origin>, StoreError> {
        // A later attempt of an open occurrence may be the only live one.
        let page = self.store().open_executions(vec![occurrence]).await?;
        if let Some(open) = page.first() {
            return Ok(Some(open.live.origin));
        }
        Ok(self.store().execution(occurrence.attempt(1)).await?.map(|view| match view {
            ExecutionView::Live { live, .. } => live.origin,
            ExecutionView::Finished(finished) => finished.origin,
        }))
    }

    async fn cancel_executions(
        &self,
        items: &[PlannedItem],
        is_repeated: bool,
    ) -> Result<Vec<ItemOutcome>, StoreError> {
        let ids: Vec<ExecutionId> = items.iter().filter_map(PlannedItem::execution_id).collect();
        let outcomes = self.engine.cancel_executions(ids.clone(), None).await?;
        let mut answers = Vec::with_capacity(ids.len());
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            answers.push(match outcome {
                CancelOutcome::Cancelled(_) | CancelOutcome::Asked => Ok(()),
                CancelOutcome::Finished if is_repeated && self.was_cancelled(id).await? => Ok(()),
                CancelOutcome::Finished => refused(id, "it has already ended"),
                CancelOutcome::NotThere => refused(id, "it does not exist any more"),
            });
        }
        Ok(answers)
    }

    async fn was_cancelled(&self, id: ExecutionId) -> Result<bool, StoreError> {
        let view = self.store().execution(id).await?;
        Ok(matches!(view, Some(ExecutionView::Finished(finished)) if finished.status == Status::Cancelled))
    }

    /// The time of the start makes a patch with a delay repeatable.
    async fn update(
        &self,
        items: &[PlannedItem],
        started_at: Timestamp,
    ) -> Result<Vec<ItemOutcome>, StoreError> {
        let patch = self.patch.as_deref().unwrap_or("{}");
        let updates = items.iter().map(|item| async {
            let make = |stored: &JobSpec| self.engine.patched(stored, patch, started_at);
            match self.now.change_job(item.job, None, make, |_| None).await {
                Err(UseCaseError::StoreFailed(error)) if error.is_retryable() => Err(error),
                Err(error) => Ok(refused(item.job, told(&error))),
                Ok(()) => Ok(Ok(())),
            }
        });
        join_all(updates).await.into_iter().collect()
    }
}

impl Engine {
    /// The job after a merge patch.
    pub(crate) fn patched(
        &self,
        stored: &JobSpec,
        patch: &str,
        now: Timestamp,
    ) -> Result<JobSpec, UseCaseError> {
        let Some(patches) = &self.context.config.job_patches else {
            let fix = "cannot be update: this process does not know the fields of jobs";
            return Err(UseCaseError::Invalid(vec![InvalidField::new("action", fix)]));
        };
        let mut spec = patches.patched(stored, patch, now).map_err(UseCaseError::Invalid)?;
        // No field of a patch: a job that was put by its name keeps it.
        spec.settings.by_name |= stored.settings.by_name;
        Ok(spec)
    }

    /// The patch of an operation in plain text.
    pub(crate) fn plain_patch(&self, operation: &BulkOperation) -> Result<Option<String>, Undecryptable> {
        let Some(patch) = &operation.patch else { return Ok(None) };
        match &self.context.sealed {
            Some(sealed) => sealed.open(SealedPlace::Patch(operation.id), patch).map(Some),
            None => Ok(Some(patch.clone())),
        }
    }

    /// The stored form of a patch.
    pub(crate) fn stored_patch(&self, id: OperationId, patch: String) -> Result<String, StoreError> {
        match self.context.sealed.as_ref().filter(|_| self.context.config.encrypt_payloads) {
            Some(sealed) => sealed.sealed(SealedPlace::Patch(id), &patch),
            None => Ok(patch),
        }
    }
}

fn refused(id: impl fmt::Display, reason: impl fmt::Display) -> ItemOutcome {
    let mut reason = reason.to_string();
    reason.truncate(reason.floor_char_boundary(limits::BULK_REASON_BYTES_MAX));
    Err(ItemRefusal { id: id.to_string(), reason })
}

/// An error of a use case in one line.
pub(crate) fn told(error: &UseCaseError) -> String {
    match error {
        UseCaseError::Invalid(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|invalid| format!("{} {}", invalid.field, invalid.fix)).collect();
            fields.join("; ")
        }
        other => other.to_string(),
    }
}
