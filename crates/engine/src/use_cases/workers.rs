//! Workers: which are connected, which could run a job, and the control verbs on them.

use super::{UseCase, UseCaseError, UseCases};
use punctual_core::ids::SessionId;
use punctual_core::job::JobSpec;
use punctual_core::ports::{Lane, Page, SessionRow, StoreError};
use punctual_core::session::{SessionDraining, SessionMode, SessionOrder};
use serde_json::json;
use std::collections::BTreeMap;

/// A connected session, and how many executions it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    pub row: SessionRow,
    pub running: u64,
    /// Whether `running` counts only what the caller may see.
    pub is_partial: bool,
}

impl WorkerView {
    fn session(&self) -> SessionId {
        self.row.pulse.session
    }
}

impl UseCases {
    /// The connected sessions, in the order of their ids. For a caller with a limited scope, those that could run
    /// its jobs.
    pub async fn workers(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Page<WorkerView, SessionId>, UseCaseError> {
        self.permit(UseCase::ReadWorkers)?;
        let mut items = self.connected().await?;
        items.retain(|view| after.is_none_or(|after| view.session() > after));
        let is_more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().map(WorkerView::session).filter(|_| is_more);
        Ok(Page { items, next })
    }

    /// A session by its id, or by its worker's name if that is unique.
    pub async fn worker(&self, id: &str) -> Result<WorkerView, UseCaseError> {
        self.permit_on(UseCase::ReadWorkers, format_args!("worker {id}"))?;
        self.find_worker(id).await
    }

    async fn find_worker(&self, id: &str) -> Result<WorkerView, UseCaseError> {
        let mut found = self.connected().await?;
        found.retain(|view| view.session().to_string() == id || view.row.worker == id);
        if found.len() > 1 {
            let sessions = found.iter().map(WorkerView::session).collect();
            return Err(UseCaseError::AmbiguousWorker { name: id.to_owned(), sessions });
        }
        found.pop().ok_or_else(|| UseCaseError::NoSuchWorker(id.to_owned()))
    }

    /// Pauses, resumes or drains a worker.
    pub async fn order_worker(&self, id: &str, order: SessionOrder) -> Result<WorkerView, UseCaseError> {
        self.permit_on(UseCase::OrderWorker, format_args!("worker {id}"))?;
        let mut view = self.find_worker(id).await?;
        let details = json!({ "order": format!("{order:?}").to_lowercase() });
        let audit = self.audited_with(UseCase::OrderWorker, format_args!("worker {id}"), &details);
        match self.engine.order_session(view.session(), order, audit).await? {
            Some(Ok(mode)) => {
                view.row.mode = mode;
                Ok(view)
            }
            Some(Err(SessionDraining)) => {
                Err(UseCaseError::WorkerDraining { session: view.session(), worker: view.row.worker })
            }
            None => Err(UseCaseError::NoSuchWorker(id.to_owned())),
        }
    }

    async fn connected(&self) -> Result<Vec<WorkerView>, StoreError> {
        if self.is_limited() {
            return self.own_workers(self.store().sessions().await?).await;
        }
        let held: BTreeMap<SessionId, u64> = self.store().holdings().await?.into_iter().collect();
        let sessions = self.store().sessions().await?.into_iter();
        let view = |row: SessionRow| WorkerView {
            running: held.get(&row.pulse.session).copied().unwrap_or(0),
            is_partial: false,
            row,
        };
        Ok(sessions.map(view).collect())
    }
}

/// The workers that have a job's handler and serve its queue.
pub struct EligibleWorkers<'a> {
    /// Workers that accept work.
    pub open: Vec<&'a SessionRow>,
    /// Workers that are paused or draining, or that refuse work by themselves.
    pub held: Vec<&'a SessionRow>,
}

impl<'a> EligibleWorkers<'a> {
    pub fn in_lane(lane: &Lane, sessions: &'a [SessionRow]) -> Self {
        let able = sessions.iter().filter(|row| row.has_handler(lane.job_type()) && row.serves(lane.queue()));
        let (open, held) = able.partition(|row| row.mode == SessionMode::Open && row.refuses().is_empty());
        EligibleWorkers { open, held }
    }

    /// The workers that keep the job waiting: all workers that could run it, if none of them accepts work.
    pub fn in_the_way(&self) -> &[&'a SessionRow] {
        if self.open.is_empty() { &self.held } else { &[] }
    }
}

/// The lane of a job's executions.
pub fn lane_of(spec: &JobSpec) -> Lane {
    Lane::new(&spec.queue, &spec.job_type)
}
