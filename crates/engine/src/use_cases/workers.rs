//! Workers: which are connected, which could run a job, the control verbs on them, and the worker protocol.

use super::{Forbidden, Permission, UseCaseError, UseCases};
use punctual_core::ids::{ExecutionId, SessionId};
use punctual_core::job::JobSpec;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{ExecutionView, Lane, LogLine, Page, SessionRow, StoreError, WorkerPort};
use punctual_core::session::{SessionDraining, SessionMode, SessionOrder};
use std::collections::BTreeMap;

/// A connected session, and how many executions it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    pub row: SessionRow,
    pub running: u64,
}

impl WorkerView {
    fn session(&self) -> SessionId {
        self.row.pulse.session
    }
}

impl UseCases {
    /// The connected sessions, in the order of their ids.
    pub async fn workers(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Page<WorkerView, SessionId>, UseCaseError> {
        self.permit(Permission::Read)?;
        let mut items = self.connected().await?;
        items.retain(|view| after.is_none_or(|after| view.session() > after));
        let is_more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().map(WorkerView::session).filter(|_| is_more);
        Ok(Page { items, next })
    }

    /// A session by its id, or by its worker's name if that is unique.
    pub async fn worker(&self, id: &str) -> Result<WorkerView, UseCaseError> {
        self.permit(Permission::Read)?;
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
        self.permit(Permission::Operate)?;
        let mut view = self.worker(id).await?;
        match self.engine.order_session(view.session(), order).await? {
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
        let held: BTreeMap<SessionId, u64> = self.store().holdings().await?.into_iter().collect();
        let sessions = self.store().sessions().await?.into_iter();
        let view =
            |row: SessionRow| WorkerView { running: held.get(&row.pulse.session).copied().unwrap_or(0), row };
        Ok(sessions.map(view).collect())
    }

    /// The worker port, for a caller that is a worker.
    pub fn worker_port(&self) -> Result<&dyn WorkerPort, Forbidden> {
        self.permit(Permission::Work)?;
        Ok(&*self.engine)
    }

    /// Stores log lines of an execution that runs in this session.
    pub async fn append_logs(
        &self,
        session: SessionId,
        execution: ExecutionId,
        lines: Vec<LogLine>,
    ) -> Result<(), UseCaseError> {
        let port = self.worker_port()?;
        let is_held = match self.store().execution(execution).await? {
            Some(ExecutionView::Live { live, .. }) => {
                live.execution() == execution
                    && matches!(live.state, LiveState::Running(lease) if lease.session == session)
            }
            Some(ExecutionView::Finished(_)) | None => false,
        };
        if !is_held {
            return Err(UseCaseError::NotHeld { execution, session });
        }
        Ok(port.append_logs(session, lines).await?)
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
