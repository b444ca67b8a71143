//! The worker protocol. A session belongs to the token that opened it: for all other callers it does not
//! exist.

use super::{Forbidden, UseCase, UseCaseError, UseCases};
use crate::Engine;
use async_trait::async_trait;
use punctual_core::access::pattern_list;
use punctual_core::ids::{ExecutionId, SessionId};
use punctual_core::notes::{Note, NoteAnswer};
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{
    Assignment, BeatAnswer, ExecutionView, Heartbeat, LeaseRef, LogLine, Poll, Report, ReportAnswer, Served,
    SessionGrant, SessionOpening, WorkerPort, WorkerPortError,
};
use punctual_core::slots::Demand;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Sessions whose tokens are remembered. When there are more, all are forgotten.
const SESSIONS_KEPT_MAX: usize = 10_000;

/// The tokens of sessions. They never change, so that each is read once.
#[derive(Debug, Default)]
pub(crate) struct SessionTokens(Mutex<BTreeMap<SessionId, String>>);

impl SessionTokens {
    fn get(&self, session: SessionId) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    fn put(&self, session: SessionId, token: String) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= SESSIONS_KEPT_MAX {
            kept.clear();
        }
        kept.insert(session, token);
    }
}

impl UseCases {
    /// The worker port for the sessions of this caller.
    pub fn worker_port(&self) -> Result<OwnSessions<'_>, Forbidden> {
        self.permit(UseCase::Work)?;
        Ok(OwnSessions { cases: self, engine: &self.engine })
    }

    /// Opens a session that belongs to the caller's token.
    pub async fn open_session(&self, opening: SessionOpening) -> Result<SessionGrant, UseCaseError> {
        self.permit(UseCase::Work)?;
        self.check_served(&opening.about.queues, &opening.job_types)?;
        let token = self.caller.token_id.clone();
        let grant =
            self.engine.open_session(SessionOpening { token: Some(token.clone()), ..opening }).await?;
        // The token may have been revoked after it was checked. The revocation has not seen this session.
        if self.caller.is_stored && self.store().token(&token).await?.is_none() {
            self.lose_sessions_of(&token).await?;
            return Err(UseCaseError::Worker(WorkerPortError::SessionLost));
        }
        self.session_tokens.put(grant.session, token);
        Ok(grant)
    }

    /// Refuses work outside of the caller's scope. An empty list of queues means all of them.
    pub fn check_served(&self, queues: &[String], job_types: &[String]) -> Result<(), Forbidden> {
        let object = format!("queues {}", queues.join(", "));
        self.noted(UseCase::Work, object, self.served_in_scope(queues, job_types))
    }

    fn served_in_scope(&self, queues: &[String], job_types: &[String]) -> Result<(), Forbidden> {
        let scope = &self.caller.grant.scope;
        if queues.is_empty() && !scope.queues.is_empty() {
            return Err(Forbidden(format!(
                "the worker serves all queues, and its token is limited to {}: name the queues of the worker",
                pattern_list(&scope.queues)
            )));
        }
        if let Some(queue) = queues.iter().find(|queue| !scope.has_queue(queue)) {
            return Err(Forbidden(format!(
                "the queue {queue} is not in its scope: {}",
                pattern_list(&scope.queues)
            )));
        }
        match job_types.iter().find(|job_type| !scope.has_job_type(job_type)) {
            Some(other) => Err(Forbidden(format!(
                "the job type {other} is not in its scope: {}",
                pattern_list(&scope.job_types)
            ))),
            None => Ok(()),
        }
    }

    async fn owns(&self, session: SessionId) -> Result<bool, WorkerPortError> {
        let token = match self.session_tokens.get(session) {
            Some(token) => Some(token),
            None => {
                let read = self.store().token_of_session(session).await;
                let token = read.map_err(|error| WorkerPortError::Unavailable(error.to_string()))?;
                if let Some(token) = &token {
                    self.session_tokens.put(session, token.clone());
                }
                token
            }
        };
        Ok(token.as_deref() == Some(self.caller.token_id.as_str()))
    }

    async fn check_own(&self, session: SessionId) -> Result<(), WorkerPortError> {
        if self.owns(session).await? { Ok(()) } else { Err(WorkerPortError::SessionLost) }
    }

    /// Stores log lines of an execution that runs in this session.
    pub async fn append_logs(
        &self,
        session: SessionId,
        execution: ExecutionId,
        lines: Vec<LogLine>,
    ) -> Result<(), UseCaseError> {
        let port = self.worker_port()?;
        let is_own = self.owns(session).await?;
        let is_held = match self.store().execution(execution).await? {
            Some(ExecutionView::Live { live, .. }) => {
                live.execution() == execution
                    && matches!(live.state, LiveState::Running(lease) if lease.session == session)
            }
            Some(ExecutionView::Finished(_)) | None => false,
        };
        if !(is_own && is_held) {
            return Err(UseCaseError::NotHeld { execution, session });
        }
        Ok(port.append_logs(session, lines).await?)
    }
}

/// The engine's worker port, limited to the sessions of one caller.
pub struct OwnSessions<'a> {
    cases: &'a UseCases,
    engine: &'a Engine,
}

impl OwnSessions<'_> {
    /// Calls `act` with the items of own sessions, and answers the others with `refused`, in order.
    async fn for_own<T, A>(
        &self,
        items: Vec<T>,
        session: impl Fn(&T) -> SessionId,
        refused: A,
        act: impl AsyncFnOnce(Vec<T>) -> Result<Vec<A>, WorkerPortError>,
    ) -> Result<Vec<A>, WorkerPortError>
    where
        A: Clone,
    {
        let mut own = Vec::with_capacity(items.len());
        let mut is_own = Vec::with_capacity(items.len());
        for item in items {
            is_own.push(self.cases.owns(session(&item)).await?);
            if is_own.last() == Some(&true) {
                own.push(item);
            }
        }
        let mut answers = if own.is_empty() { vec![] } else { act(own).await? }.into_iter();
        let answer = |is_own: bool| if is_own { answers.next() } else { Some(refused.clone()) };
        Ok(is_own.into_iter().filter_map(answer).collect())
    }
}

#[async_trait]
impl WorkerPort for OwnSessions<'_> {
    /// Unused: [`UseCases::open_session`] checks the scope and can say what is wrong.
    async fn open_session(&self, opening: SessionOpening) -> Result<SessionGrant, WorkerPortError> {
        let opened = self.cases.open_session(opening).await;
        opened.map_err(|error| WorkerPortError::Unavailable(error.to_string()))
    }

    async fn poll(&self, poll: Poll) -> Result<Vec<Assignment>, WorkerPortError> {
        self.cases.check_own(poll.session).await?;
        self.engine.poll(poll).await
    }

    async fn beat(&self, heartbeat: Heartbeat) -> Result<BeatAnswer, WorkerPortError> {
        self.cases.check_own(heartbeat.session).await?;
        self.engine.beat(heartbeat).await
    }

    async fn demand(&self, served: Served) -> Result<Demand, WorkerPortError> {
        self.engine.demand(served).await
    }

    async fn report(&self, reports: Vec<Report>) -> Result<Vec<ReportAnswer>, WorkerPortError> {
        let act = async |own| self.engine.report(own).await;
        self.for_own(reports, |report| report.session, ReportAnswer::Stale, act).await
    }

    async fn note(&self, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, WorkerPortError> {
        let act = async |own| self.engine.note(own).await;
        self.for_own(notes, |note| note.session, NoteAnswer::Stale, act).await
    }

    async fn give_back(&self, session: SessionId, leases: Vec<LeaseRef>) -> Result<(), WorkerPortError> {
        self.cases.check_own(session).await?;
        self.engine.give_back(session, leases).await
    }

    async fn resync(
        &self,
        session: SessionId,
        turn: u64,
        held: Vec<LeaseRef>,
    ) -> Result<(), WorkerPortError> {
        self.cases.check_own(session).await?;
        self.engine.resync(session, turn, held).await
    }

    async fn append_logs(&self, session: SessionId, lines: Vec<LogLine>) -> Result<(), WorkerPortError> {
        self.cases.check_own(session).await?;
        self.engine.append_logs(session, lines).await
    }

    async fn close_session(&self, session: SessionId) -> Result<(), WorkerPortError> {
        self.cases.check_own(session).await?;
        self.engine.close_session(session).await
    }
}
