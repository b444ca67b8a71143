//! What a caller may see: the jobs in its scope, and their data if it may read payloads. A job outside the
//! scope does not exist for the caller.

use super::{Forbidden, UseCase, UseCaseError, UseCases};
use async_trait::async_trait;
use punctual_core::access::{Permission, pattern_list};
use punctual_core::ids::JobId;
use punctual_core::job::{Job, JobSpec};
use punctual_core::job_predicate::JobPredicate;
use punctual_core::limits;
use punctual_core::occurrence::{Finished, RunInput};
use punctual_core::ports::{
    DeadLetter, DeadLetterQuery, ExecutionQuery, ExecutionView, ExecutionWalk, JobQuery, JobView, Lane,
    ListedExecution, Page, Store, StoreError,
};
use punctual_core::sealed::{SealedPlace, is_sealed};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pages of a list that are read in search of something that the caller may see. After that, the caller gets
/// what was found and continues from there.
const PAGES_READ_MAX: usize = 20;

/// Pages of jobs that are read for one page of [`JobsMatching`].
const PAGES_MATCHED_MAX: usize = 4;

/// The jobs of a set that are in a caller's scope.
pub(crate) enum InScope {
    All,
    These(BTreeSet<JobId>),
}

impl InScope {
    pub(crate) fn has(&self, job: JobId) -> bool {
        match self {
            InScope::All => true,
            InScope::These(jobs) => jobs.contains(&job),
        }
    }
}

impl UseCases {
    pub(super) fn is_in_scope(&self, spec: &JobSpec) -> bool {
        self.caller.grant.scope.has_job(&spec.owner, &spec.queue, &spec.job_type)
    }

    /// Whether the caller may see how much work all owners have in a lane.
    pub(super) fn sees_lane(&self, lane: &Lane) -> bool {
        let scope = &self.caller.grant.scope;
        scope.owner.is_none() && scope.has_queue(lane.queue()) && scope.has_job_type(lane.job_type())
    }

    /// Which of these jobs are in the caller's scope.
    pub(crate) async fn in_scope(
        &self,
        jobs: impl IntoIterator<Item = JobId>,
    ) -> Result<InScope, StoreError> {
        let scope = &self.caller.grant.scope;
        if scope.is_everything() {
            return Ok(InScope::All);
        }
        let jobs: BTreeSet<JobId> = jobs.into_iter().collect();
        if jobs.is_empty() {
            return Ok(InScope::These(jobs));
        }
        let owners = self.store().job_owners(jobs.into_iter().collect()).await?.into_iter();
        let visible = owners
            .filter(|job| scope.has_job(&job.owner, job.lane.queue(), job.lane.job_type()))
            .map(|job| job.job);
        Ok(InScope::These(visible.collect()))
    }

    /// Reads pages of a list until one has items in the caller's scope.
    pub(super) async fn read_in_scope<Q: PagedQuery>(
        &self,
        mut query: Q,
    ) -> Result<Page<Q::Item, Q::Cursor>, StoreError> {
        let scope = &self.caller.grant.scope;
        match (&scope.owner, query.owner()) {
            (Some(own), Some(asked)) if own != asked => return Ok(Page { items: vec![], next: None }),
            (Some(own), None) => *query.owner() = Some(own.clone()),
            (None, _) | (Some(_), Some(_)) => {}
        }
        let mut page = query.read(self.store()).await?;
        if scope.queues.is_empty() && scope.job_types.is_empty() {
            return Ok(page);
        }
        for pages_read in 1.. {
            page.items.retain(|item| {
                let (queue, job_type) = Q::queue_and_type(item);
                scope.has_queue(queue) && scope.has_job_type(job_type)
            });
            let next = page.next.filter(|_| page.items.is_empty() && pages_read < PAGES_READ_MAX);
            let Some(next) = next else { break };
            query.continue_at(next);
            page = query.read(self.store()).await?;
        }
        Ok(page)
    }

    /// Refuses a job that the caller may not store: it must be in its scope.
    pub(super) fn check_target(&self, spec: &JobSpec) -> Result<(), Forbidden> {
        let scope = &self.caller.grant.scope;
        let refused = |what: &str, name: &str, limits: String| {
            Err(Forbidden(format!("{what} {name} is not in its scope, which is limited to {limits}")))
        };
        if let Some(own) = scope.owner.as_ref().filter(|own| **own != spec.owner) {
            return refused("owner_id", &spec.owner, own.clone());
        }
        if !scope.has_queue(&spec.queue) {
            return refused("queue", &spec.queue, pattern_list(&scope.queues));
        }
        if !scope.has_job_type(&spec.job_type) {
            return refused("job_type", &spec.job_type, pattern_list(&scope.job_types));
        }
        Ok(())
    }

    /// These use cases, limited to the jobs of one owner: every other job does not exist for them. The id or
    /// email address of the caller's own user stands for the caller's owner. Refuses a caller that may not
    /// reach the jobs of the owner, whether there is such an owner or not; `object` is what the request is about.
    pub async fn limited_to_owner(
        &self,
        case: UseCase,
        name: &str,
        object: &str,
    ) -> Result<UseCases, UseCaseError> {
        self.permit_on(case, object)?;
        let grant = &self.caller.grant;
        let owner = if self.is_own_user(name).await? { grant.owner.as_str() } else { name };
        if let Some(own) = grant.scope.owner.as_ref().filter(|own| *own != owner) {
            let refusal = Forbidden(format!("it is limited to the jobs of {own}, and the path names {name}"));
            self.noted(case, object, Err(refusal))?;
        }
        let mut limited = self.clone();
        limited.caller.grant.scope.owner = Some(owner.to_owned());
        limited.caller.grant.owner = owner.to_owned();
        Ok(limited)
    }

    async fn is_own_user(&self, name: &str) -> Result<bool, StoreError> {
        let Some(own) = &self.caller.user else { return Ok(false) };
        if !name.contains('@') {
            return Ok(own == name);
        }
        let user = self.store().user_by_email(&name.to_ascii_lowercase()).await?;
        Ok(user.is_some_and(|user| user.id == *own))
    }

    pub(super) fn may_read_payloads(&self) -> bool {
        self.caller.has(Permission::PayloadRead)
    }

    /// The view without the data that the caller may not read. In place of a payload that this node cannot decrypt,
    /// it has the reason.
    pub fn shown(&self, mut view: JobView) -> JobView {
        if !self.may_read_payloads() {
            view.job.spec.payload.clear();
            view.last_finished.as_mut().into_iter().for_each(remove_data);
        } else if let Err(error) = self.check_payload_is_plain(&view) {
            view.job.spec.payload = json!({ "unreadable": error.to_string() }).to_string();
        }
        view
    }

    /// Refuses a job whose payload this node cannot decrypt.
    pub(super) fn check_payload_is_plain(&self, view: &JobView) -> Result<(), UseCaseError> {
        let Job { id, spec, .. } = &view.job;
        let Some(sealed) = self.engine.context.sealed.as_ref().filter(|_| is_sealed(&spec.payload)) else {
            return Ok(());
        };
        Ok(sealed.open(SealedPlace::Payload(*id), &spec.payload).map(drop)?)
    }

    pub(super) fn shown_finished(&self, mut finished: Finished) -> Finished {
        if !self.may_read_payloads() {
            remove_data(&mut finished);
        }
        finished
    }

    pub(super) fn shown_execution(&self, view: ExecutionView) -> ExecutionView {
        match view {
            ExecutionView::Finished(finished) => ExecutionView::Finished(self.shown_finished(finished)),
            ExecutionView::Live { mut live, worker } => {
                if !self.may_read_payloads() {
                    hide_payload(&mut live.input);
                }
                ExecutionView::Live { live, worker }
            }
        }
    }

    /// A job in the caller's scope, with all its data.
    pub(super) async fn job_in_scope(&self, id: JobId) -> Result<JobView, UseCaseError> {
        let view = self.store().job(id).await?.filter(|view| self.is_in_scope(&view.job.spec));
        self.under_calendars(view.ok_or(UseCaseError::NoSuchJob(id))?).await
    }

    /// Refuses a job outside of the caller's scope like one that does not exist.
    pub(super) async fn check_in_scope(&self, id: JobId) -> Result<(), UseCaseError> {
        if self.in_scope([id]).await?.has(id) { Ok(()) } else { Err(UseCaseError::NoSuchJob(id)) }
    }
}

/// Leaves which occurrence it repeats.
fn hide_payload(input: &mut Option<Arc<RunInput>>) {
    if let Some(input) = input {
        *input = Arc::new(RunInput { payload: None, ..RunInput::clone(input) });
    }
}

fn remove_data(finished: &mut Finished) {
    finished.result = None;
    hide_payload(&mut finished.input);
}

/// The query of a list over all jobs.
#[async_trait]
pub(super) trait PagedQuery: Send + Sync {
    type Item: Send;
    type Cursor: Copy + Send;

    async fn read(&self, store: &dyn Store) -> Result<Page<Self::Item, Self::Cursor>, StoreError>;
    fn owner(&mut self) -> &mut Option<String>;
    fn continue_at(&mut self, cursor: Self::Cursor);
    fn queue_and_type(item: &Self::Item) -> (&str, &str);
}

#[async_trait]
impl PagedQuery for JobQuery {
    type Item = JobView;
    type Cursor = JobId;

    async fn read(&self, store: &dyn Store) -> Result<Page<JobView, JobId>, StoreError> {
        store.jobs(self.clone()).await
    }

    fn owner(&mut self) -> &mut Option<String> {
        &mut self.owner
    }

    fn continue_at(&mut self, cursor: JobId) {
        self.before = Some(cursor);
    }

    fn queue_and_type(item: &JobView) -> (&str, &str) {
        (&item.job.spec.queue, &item.job.spec.job_type)
    }
}

/// Jobs that a predicate selects which no index knows: a bounded number of jobs is read.
pub(super) struct JobsMatching<'a> {
    pub(super) query: JobQuery,
    pub(super) predicate: &'a JobPredicate,
}

#[async_trait]
impl PagedQuery for JobsMatching<'_> {
    type Item = JobView;
    type Cursor = JobId;

    async fn read(&self, store: &dyn Store) -> Result<Page<JobView, JobId>, StoreError> {
        let mut query = JobQuery { limit: limits::PAGE_ITEMS_MAX, ..self.query.clone() };
        let (mut items, mut bytes): (Vec<JobView>, usize) = (Vec::new(), 0);
        for _ in 0..PAGES_MATCHED_MAX {
            let page = store.jobs(query.clone()).await?;
            for view in page.items.into_iter().filter(|view| self.predicate.matches(view)) {
                if items.len() >= self.query.limit || bytes >= limits::PAGE_BYTES_MAX {
                    let next = items.last().map(|view| view.job.id);
                    return Ok(Page { items, next });
                }
                bytes += view.job.spec.payload.len();
                items.push(view);
            }
            query.before = page.next;
            if page.next.is_none() {
                break;
            }
        }
        Ok(Page { items, next: query.before })
    }

    fn owner(&mut self) -> &mut Option<String> {
        &mut self.query.owner
    }

    fn continue_at(&mut self, cursor: JobId) {
        self.query.before = Some(cursor);
    }

    fn queue_and_type(item: &JobView) -> (&str, &str) {
        (&item.job.spec.queue, &item.job.spec.job_type)
    }
}

#[async_trait]
impl PagedQuery for ExecutionQuery {
    type Item = ListedExecution;
    type Cursor = ExecutionWalk;

    async fn read(&self, store: &dyn Store) -> Result<Page<ListedExecution, ExecutionWalk>, StoreError> {
        store.executions(self.clone()).await
    }

    fn owner(&mut self) -> &mut Option<String> {
        &mut self.owner
    }

    fn continue_at(&mut self, cursor: ExecutionWalk) {
        self.walk = cursor;
    }

    fn queue_and_type(item: &ListedExecution) -> (&str, &str) {
        (&item.queue, &item.job_type)
    }
}

#[async_trait]
impl PagedQuery for DeadLetterQuery {
    type Item = DeadLetter;
    type Cursor = u64;

    async fn read(&self, store: &dyn Store) -> Result<Page<DeadLetter, u64>, StoreError> {
        store.dead_letters(self.clone()).await
    }

    fn owner(&mut self) -> &mut Option<String> {
        &mut self.owner
    }

    fn continue_at(&mut self, cursor: u64) {
        self.before = Some(cursor);
    }

    fn queue_and_type(item: &DeadLetter) -> (&str, &str) {
        (&item.queue, &item.job_type)
    }
}
