//! Operations: one action on everything that a filter selects. Starting, listing and cancelling them;
//! `operations` performs them.

use super::scope::JobsMatching;
use super::{Access, Caller, UseCase, UseCaseError, UseCases};
use crate::operations::{StoredOperation, told};
use crate::{Engine, RequestTry};
use punctual_core::control::{LoadedJob, Verb, last_number};
use punctual_core::ids::{JobId, OperationId};
use punctual_core::job::InvalidField;
use punctual_core::limits;
use punctual_core::occurrence::LiveState;
use punctual_core::operation::{
    BulkAction, BulkOperation, BulkSelection, BulkTarget, FINISHED_OPERATIONS, MatchedCount, OpenState,
    OperationStatus, RUNNING_OPERATIONS, Requester,
};
use punctual_core::ports::{
    BoundedAddition, DeadLetter, DocumentKind, DocumentLimit, DocumentShare, ExecutionQuery, ExecutionView,
    ExecutionWalk, JobView, ListedExecution, Page, StoreError, StoredDocument, Token,
};
use punctual_core::time::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How often an operation is cancelled again because a step was recorded meanwhile.
const CANCEL_TRIES_MAX: usize = 100;

/// How far the ids of existing jobs may be ahead of the store's clock.
const ID_TIME_TOLERANCE: Duration = Duration::from_secs(60);

/// An operation to start.
#[derive(Debug, Clone, PartialEq)]
pub struct BulkOrder {
    pub action: BulkAction,
    pub selection: BulkSelection,
    /// The filter as it was sent.
    pub filter: String,
    /// The merge patch of an update.
    pub patch: Option<String>,
}

/// What an operation would act on.
#[derive(Debug, Clone, PartialEq)]
pub struct BulkPreview {
    pub matched: MatchedCount,
    /// The first of them.
    pub sample: Vec<SampleItem>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SampleItem {
    /// The id of the job, occurrence or execution.
    pub id: String,
    /// The name of the job.
    pub name: String,
    pub status: String,
    /// Why the action would be refused.
    pub refusal: Option<String>,
}

/// An operation as its reader may see it.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationView {
    pub operation: BulkOperation,
    /// The filter as it was sent, and the patch of an update. Without the data of jobs if the reader may not read it.
    pub filter: Value,
    pub patch: Option<Value>,
}

/// Something that an operation acts on.
pub(crate) enum SelectedItem {
    Job(Box<JobView>),
    Execution(ListedExecution),
    Letter(DeadLetter),
}

/// A page of them, and where the selection continues.
pub(crate) struct SelectedPage {
    pub items: Vec<SelectedItem>,
    pub selection: BulkSelection,
    pub is_last: bool,
}

/// The use case that acts on one item.
pub(crate) fn case_of_action(action: BulkAction, target: BulkTarget) -> UseCase {
    match (action, target) {
        (BulkAction::Cancel, BulkTarget::Executions) => UseCase::CancelExecution,
        (BulkAction::Retry, BulkTarget::Executions) => UseCase::Redrive,
        (BulkAction::Pause, _) => UseCase::PauseJob,
        (BulkAction::Resume, _) => UseCase::ResumeJob,
        (BulkAction::Cancel, _) => UseCase::CancelJob,
        (BulkAction::Delete, _) => UseCase::DeleteJob,
        (BulkAction::Retry, _) => UseCase::RetryJob,
        (BulkAction::Trigger, _) => UseCase::TriggerJob,
        (BulkAction::Update, _) => UseCase::UpdateJob,
    }
}

impl UseCases {
    /// What an operation would act on. Stores nothing.
    pub async fn preview_bulk(&self, order: &BulkOrder) -> Result<BulkPreview, UseCaseError> {
        self.check_order(order)?;
        self.previewed(order, self.store().clock().await?).await
    }

    /// Starts an operation. A repeated try finds the operation that an earlier one has started.
    pub async fn start_bulk(
        &self,
        order: BulkOrder,
        attempt: RequestTry,
    ) -> Result<(OperationView, BulkPreview), UseCaseError> {
        self.check_order(&order)?;
        let now = self.store().clock().await?;
        let preview = self.previewed(&order, now).await?;
        let id = match attempt.ids {
            Some(ids) => OperationId::new(ids.at, ids.seed),
            None => OperationId::new(now, self.engine.context.host.random.next_u64()),
        };
        if attempt.ids.is_some()
            && let Some(found) = StoredOperation::find(self.store(), id).await?
        {
            return Ok((self.operation_view(found.operation), preview));
        }
        self.refuse_useless_patch(&order, &preview)?;
        let mut details = json!({
            "action": order.action,
            "target": order.selection.target(),
            "filter": self.shown_filter(&order.filter),
            "matched": preview.matched.count,
        });
        if let Some(patch) = &order.patch {
            details["patch"] = audited_patch(patch);
        }
        let operation = BulkOperation {
            id,
            action: order.action,
            selection: starting(order.selection, now),
            filter: order.filter,
            patch: order.patch.map(|patch| self.engine.stored_patch(id, patch)).transpose()?,
            requester: self.requester().await?,
            created_at: now,
            updated_at: now,
            finished_at: None,
            matched: preview.matched,
            step: 0,
            planned: vec![],
            is_read: false,
            done: 0,
            refused: 0,
            refusals: vec![],
            is_cancelling: false,
            status: OperationStatus::Running,
            failure: None,
        };
        let entry = self.audited_with(UseCase::StartBulk, format_args!("operation {id}"), &details);
        let document = StoredDocument::new(DocumentKind::Operation, operation.document_name(), &operation);
        let max = limits::OPERATIONS_RUNNING_MAX;
        let owner = operation.requester.owner.clone();
        let is_of_owner = |document: &StoredDocument| {
            // One that cannot be read counts, so that the share stays a limit.
            document.read().map_or(true, |other: BulkOperation| other.requester.owner == owner)
        };
        let share = DocumentShare { max: limits::OPERATIONS_OF_OWNER_MAX, counts: &is_of_owner };
        let limit = DocumentLimit { after: RUNNING_OPERATIONS, max, share: Some(share) };
        match self.store().add_within(document, limit, entry).await? {
            BoundedAddition::Done => {}
            // An earlier try of this request is answered at the same time.
            BoundedAddition::Taken => return Ok((self.operation(id).await?, preview)),
            BoundedAddition::Full => {
                return Err(UseCaseError::DirectoryFull { what: "running operations", max });
            }
            BoundedAddition::ShareFull => {
                let max = limits::OPERATIONS_OF_OWNER_MAX;
                return Err(UseCaseError::DirectoryFull { what: "running operations of one owner", max });
            }
            BoundedAddition::Raced => return Err(UseCaseError::Busy),
        }
        self.engine.context.operations.notify_one();
        Ok((self.operation_view(operation), preview))
    }

    pub async fn operation(&self, id: OperationId) -> Result<OperationView, UseCaseError> {
        self.permit_on(UseCase::ReadBulk, format_args!("operation {id}"))?;
        Ok(self.operation_view(self.visible_operation(id).await?.operation))
    }

    /// The operations that the caller may see: running ones first, the latest first.
    pub async fn operations(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<Page<OperationView, String>, UseCaseError> {
        self.permit(UseCase::ReadBulk)?;
        let mut items = Vec::new();
        let is_past_running = after.as_deref().is_some_and(|name| name.starts_with(FINISHED_OPERATIONS));
        let mut next = after;
        if !is_past_running {
            let from = next.take().unwrap_or_else(|| RUNNING_OPERATIONS.to_owned());
            let page = self.store().documents(DocumentKind::Operation, Some(&from), limit).await?;
            let is_more = page.next.is_some();
            let last = page.items.last().map(|document| document.name.clone());
            items.extend(self.visible(page.items)?);
            if is_more || items.len() >= limit {
                // Finished operations follow.
                return Ok(Page { items, next: last });
            }
        }
        let page =
            self.store().documents(DocumentKind::Operation, next.as_deref(), limit - items.len()).await?;
        let is_finished = |document: &StoredDocument| document.name.starts_with(FINISHED_OPERATIONS);
        let are_all_finished = page.items.iter().all(is_finished);
        let finished = self.visible(page.items.into_iter().filter(is_finished).collect())?;
        // One that has finished between the two reads is in both.
        let has_finished = |id: OperationId| finished.iter().any(|view| view.operation.id == id);
        items.retain(|view: &OperationView| !has_finished(view.operation.id));
        items.extend(finished);
        Ok(Page { items, next: page.next.filter(|_| are_all_finished) })
    }

    fn visible(&self, documents: Vec<StoredDocument>) -> Result<Vec<OperationView>, StoreError> {
        let mut views = Vec::with_capacity(documents.len());
        for document in documents {
            let stored = StoredOperation::read(document)?;
            if self.sees_operation(&stored.operation) {
                views.push(self.operation_view(stored.operation));
            }
        }
        Ok(views)
    }

    /// Stops an operation after its current step. Completed steps are not undone.
    pub async fn cancel_operation(&self, id: OperationId) -> Result<OperationView, UseCaseError> {
        let object = format!("operation {id}");
        self.permit_on(UseCase::CancelBulk, &object)?;
        for _ in 0..CANCEL_TRIES_MAX {
            let stored = self.visible_operation(id).await?;
            let mut operation = stored.operation.clone();
            if !operation.cancel(self.now()) {
                return match operation.status {
                    OperationStatus::Completed | OperationStatus::Failed => {
                        Err(UseCaseError::OperationEnded { id, status: operation.status })
                    }
                    OperationStatus::Running | OperationStatus::Cancelled => {
                        Ok(self.operation_view(operation))
                    }
                };
            }
            let entry = self.audited(UseCase::CancelBulk, &object);
            if let Some(stored) = stored.replaced(self.store(), operation, entry).await? {
                self.engine.context.operations.notify_one();
                return Ok(self.operation_view(stored.operation));
            }
        }
        Err(UseCaseError::Busy)
    }

    fn check_order(&self, order: &BulkOrder) -> Result<(), UseCaseError> {
        self.permit(UseCase::StartBulk)?;
        self.permit(case_of_action(order.action, order.selection.target()))?;
        if let BulkSelection::Jobs { predicate, .. } = &order.selection {
            self.check_predicate(predicate)?;
        }
        for (field, text) in [("filter", Some(&order.filter)), ("patch", order.patch.as_ref())] {
            let (bytes, max) = (text.map_or(0, String::len), limits::BULK_TEXT_BYTES_MAX);
            if bytes > max {
                return Err(UseCaseError::invalid(
                    field,
                    format!("must be at most {max} bytes, not {bytes}"),
                ));
            }
        }
        Ok(())
    }

    /// Refuses a patch that fits none of the first jobs: it is more likely to be wrong than the jobs.
    fn refuse_useless_patch(&self, order: &BulkOrder, preview: &BulkPreview) -> Result<(), UseCaseError> {
        if order.action != BulkAction::Update || preview.sample.iter().any(|item| item.refusal.is_none()) {
            return Ok(());
        }
        match preview.sample.first().and_then(|item| item.refusal.as_ref()) {
            Some(refusal) => Err(UseCaseError::Invalid(vec![InvalidField::new(
                "patch",
                format!("fits none of the first {} jobs: {refusal}", preview.sample.len()),
            )])),
            None => Ok(()),
        }
    }

    async fn previewed(&self, order: &BulkOrder, until: Timestamp) -> Result<BulkPreview, UseCaseError> {
        let mut selection = starting(order.selection.clone(), until);
        let (mut sample, mut count) = (Vec::new(), 0_usize);
        for _ in 0..limits::BULK_COUNTED_PAGES_MAX {
            let page = self.selected(selection, until, limits::PAGE_ITEMS_MAX).await?;
            count += page.items.len();
            for item in page.items {
                if sample.len() < limits::BULK_SAMPLE_MAX {
                    sample.push(self.sampled(order, item, until).await?);
                }
            }
            if page.is_last || count >= limits::BULK_COUNTED_MAX {
                let matched = MatchedCount { count: count as u64, is_exact: page.is_last };
                return Ok(BulkPreview { matched, sample });
            }
            selection = page.selection;
        }
        Ok(BulkPreview { matched: MatchedCount { count: count as u64, is_exact: false }, sample })
    }

    async fn sampled(
        &self,
        order: &BulkOrder,
        item: SelectedItem,
        now: Timestamp,
    ) -> Result<SampleItem, UseCaseError> {
        Ok(match item {
            SelectedItem::Job(view) => SampleItem {
                id: view.job.id.to_string(),
                name: view.job.spec.name.clone(),
                status: view.status().as_str().to_owned(),
                refusal: self.foreseen_refusal(order, &view, now).await?,
            },
            SelectedItem::Execution(listed) => SampleItem {
                id: listed.view.id().to_string(),
                name: listed.job_name,
                status: match &listed.view {
                    ExecutionView::Live { live, .. } => match live.state {
                        LiveState::Waiting(_) => "WAITING",
                        LiveState::Queued => "QUEUED",
                        LiveState::Running(_) => "RUNNING",
                    },
                    ExecutionView::Finished(_) => "ENDED",
                }
                .to_owned(),
                refusal: None,
            },
            SelectedItem::Letter(letter) => SampleItem {
                id: letter.occurrence.to_string(),
                name: letter.job_name,
                status: "DEAD".to_owned(),
                refusal: None,
            },
        })
    }

    /// Why the action on a job would be refused now, as far as the job itself tells.
    async fn foreseen_refusal(
        &self,
        order: &BulkOrder,
        view: &JobView,
        now: Timestamp,
    ) -> Result<Option<String>, UseCaseError> {
        let verb = match order.action {
            BulkAction::Pause => Verb::Pause,
            BulkAction::Resume => Verb::Resume,
            BulkAction::Cancel => Verb::Cancel,
            BulkAction::Delete => Verb::Delete,
            BulkAction::Trigger => Verb::TriggerAfter(last_number(&view.job, view.schedule.as_ref())),
            BulkAction::Retry => return Ok(None),
            BulkAction::Update => {
                let patch = order.patch.as_deref().unwrap_or("{}");
                let checked = match self.engine.patched(&view.job.spec, patch, now) {
                    Ok(spec) => self.check_update(view, &spec).await,
                    Err(error) => Err(error),
                };
                return match checked {
                    Err(error @ UseCaseError::StoreFailed(_)) => Err(error),
                    checked => Ok(checked.err().map(|error| told(&error))),
                };
            }
        };
        let open = view.open.iter().rev().cloned().collect();
        let loaded = LoadedJob { job: view.job.clone(), schedule: view.schedule.clone(), open };
        Ok(loaded.apply(&verb, None, now).err().map(|refusal| refusal.to_string()))
    }

    /// A page of what a selection has in the caller's scope, without what came after `until`.
    pub(crate) async fn selected(
        &self,
        selection: BulkSelection,
        until: Timestamp,
        limit: usize,
    ) -> Result<SelectedPage, StoreError> {
        match selection {
            BulkSelection::Jobs { mut query, predicate } => {
                query.limit = limit;
                let page = if predicate.is_everything() {
                    self.read_in_scope(query.clone()).await?
                } else {
                    self.read_in_scope(JobsMatching { query: query.clone(), predicate: &predicate }).await?
                };
                let old = page.items.into_iter().filter(|view| view.job.created_at <= until);
                let items = old.map(|view| SelectedItem::Job(Box::new(view))).collect();
                query.before = page.next.or(query.before);
                let selection = BulkSelection::Jobs { query, predicate };
                Ok(SelectedPage { items, selection, is_last: page.next.is_none() })
            }
            BulkSelection::Executions(mut open) => {
                let walk = match open.states.first() {
                    Some(OpenState::Waiting) => ExecutionWalk::Waiting { before: open.before },
                    Some(OpenState::Queued) => ExecutionWalk::Queued { before: open.before },
                    Some(OpenState::Running) => ExecutionWalk::Running { after: open.after },
                    None => {
                        let selection = BulkSelection::Executions(open);
                        return Ok(SelectedPage { items: vec![], selection, is_last: true });
                    }
                };
                let query = ExecutionQuery {
                    walk,
                    limit,
                    queue: open.queue.clone(),
                    job_type: open.job_type.clone(),
                    owner: open.owner.clone(),
                    worker: open.worker.clone(),
                    ended_from: None,
                    ended_until: None,
                };
                let page = self.read_in_scope(query).await?;
                let is_last = match page.next {
                    Some(ExecutionWalk::Running { after }) => {
                        open.after = after;
                        false
                    }
                    Some(ExecutionWalk::Waiting { before } | ExecutionWalk::Queued { before }) => {
                        open.before = before;
                        false
                    }
                    Some(ExecutionWalk::Next | ExecutionWalk::Finished { .. }) | None => !open.next_state(),
                };
                let old = page.items.into_iter().filter(|listed| is_older(listed, until));
                let items = old.map(SelectedItem::Execution).collect();
                Ok(SelectedPage { items, selection: BulkSelection::Executions(open), is_last })
            }
            BulkSelection::DeadLetters(mut query) => {
                query.limit = limit;
                let page = self.read_in_scope(query.clone()).await?;
                let old = page.items.into_iter().filter(|letter| letter.died_at <= until);
                let items = old.map(SelectedItem::Letter).collect();
                query.before = page.next.or(query.before);
                let selection = BulkSelection::DeadLetters(query);
                Ok(SelectedPage { items, selection, is_last: page.next.is_none() })
            }
        }
    }

    async fn requester(&self) -> Result<Requester, StoreError> {
        let Caller { token_id, name, user, session_of, is_stored, grant, source: _ } = self.caller.clone();
        let token = if is_stored { self.store().token(&token_id).await? } else { None };
        Ok(Requester {
            token_id,
            name,
            user,
            session_of,
            is_stored,
            is_browser: token.is_some_and(|token| token.about.is_browser),
            role: grant.role,
            permissions: grant.permissions.iter().collect(),
            owner: grant.owner,
            scope: grant.scope,
        })
    }

    async fn visible_operation(&self, id: OperationId) -> Result<StoredOperation, UseCaseError> {
        let found = StoredOperation::find(self.store(), id).await?;
        found.filter(|found| self.sees_operation(&found.operation)).ok_or(UseCaseError::NoSuchOperation(id))
    }

    /// Its own operations, and all of them if it may see all jobs.
    fn sees_operation(&self, operation: &BulkOperation) -> bool {
        let requester = &operation.requester;
        let is_own_user = self.caller.user.is_some() && self.caller.user == requester.user;
        self.caller.grant.scope.is_everything() || self.caller.token_id == requester.token_id || is_own_user
    }

    fn operation_view(&self, operation: BulkOperation) -> OperationView {
        let patch = self
            .engine
            .plain_patch(&operation)
            .unwrap_or_else(|error| Some(json!({ "unreadable": error.to_string() }).to_string()));
        let patch = patch.and_then(|patch| serde_json::from_str(&patch).ok());
        OperationView {
            filter: self.shown_filter(&operation.filter),
            patch: patch.map(|patch| self.without_data(patch)),
            operation,
        }
    }

    fn shown_filter(&self, filter: &str) -> Value {
        self.without_data(serde_json::from_str(filter).unwrap_or_default())
    }

    /// A filter or a patch without values of payloads, if the caller may not read them.
    fn without_data(&self, mut document: Value) -> Value {
        if !self.may_read_payloads()
            && let Value::Object(fields) = &mut document
        {
            fields.retain(|field, _| field != "payload" && !field.starts_with("payload."));
        }
        document
    }
}

/// A patch as the audit log has it: without the payload, as in the entry of an update of one job.
fn audited_patch(patch: &str) -> Value {
    let mut patch: Value = serde_json::from_str(patch).unwrap_or_default();
    for (field, value) in patch.as_object_mut().into_iter().flatten() {
        if field == "payload" || field.starts_with("payload.") {
            *value = json!("changed");
        }
    }
    patch
}

/// The selection at its beginning. Jobs that are submitted later are not in it.
fn starting(selection: BulkSelection, now: Timestamp) -> BulkSelection {
    match selection {
        BulkSelection::Jobs { mut query, predicate } => {
            query.before = Some(JobId::new(now.plus(ID_TIME_TOLERANCE), 0));
            BulkSelection::Jobs { query, predicate }
        }
        other => other,
    }
}

fn is_older(listed: &ListedExecution, until: Timestamp) -> bool {
    match &listed.view {
        ExecutionView::Live { live, .. } => live.scheduled_time <= until && live.id.job.made_at() <= until,
        ExecutionView::Finished(_) => false,
    }
}

/// The caller that has started an operation, as it was then and as it is now; or why it may not go on.
pub(crate) async fn actor_of(
    engine: &Arc<Engine>,
    requester: &Requester,
) -> Result<Result<(Caller, Caller), String>, StoreError> {
    let at_start = Caller {
        token_id: requester.token_id.clone(),
        name: requester.name.clone(),
        user: requester.user.clone(),
        session_of: requester.session_of.clone(),
        is_stored: requester.is_stored,
        grant: requester.grant(),
        source: None,
    };
    if !requester.is_stored {
        return Ok(Ok((at_start.clone(), at_start)));
    }
    let access = Access::new(engine.clone());
    // The session of a browser may end before the operation. What the user may do counts then.
    let token_id = match (&requester.session_of, requester.is_browser) {
        (Some(parent), _) => Some(parent),
        (None, true) => None,
        (None, false) => Some(&requester.token_id),
    };
    let token: Option<Token> = match token_id {
        Some(id) => match access.token(id).await? {
            Some(token) => Some(token),
            None => return Ok(Err(format!("its token {id} was revoked"))),
        },
        None => None,
    };
    let grant = match (&requester.user, token) {
        (Some(id), _) => match access.user(id).await?.filter(|user| !user.about.is_disabled) {
            Some(user) => user.grant(),
            None => return Ok(Err(format!("its user {id} was removed or disabled"))),
        },
        (None, Some(token)) => token.grant(),
        (None, None) => at_start.grant.clone(),
    };
    Ok(Ok((at_start.clone(), Caller { grant, ..at_start })))
}
