//! The worker protocol. A session belongs to the token that opened it: for all other callers it does not
//! exist. It ends as soon as the token no longer allows what it serves.

use super::caller::session_owner_of_user;
use super::{Caller, Forbidden, UseCase, UseCaseError, UseCases};
use crate::Engine;
use async_trait::async_trait;
use punctual_core::access::{Grant, Permission, Scope, pattern_list};
use punctual_core::blobs::BlobReference;
use punctual_core::ids::{ExecutionId, SessionId};
use punctual_core::notes::{Note, NoteAnswer};
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{
    Assignment, BeatAnswer, BlobError, BlobParts, ExecutionView, Heartbeat, LeaseRef, LogLine, Poll, Report,
    ReportAnswer, Served, SessionGrant, SessionOpening, SessionRow, StoreError, Token, WorkerPort,
    WorkerPortError,
};
use punctual_core::slots::Demand;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// How often the sessions of a principal are read again, because their workers keep sending heartbeats.
const LOSE_TRIES_MAX: usize = 20;
/// Sessions whose tokens and queues are remembered. When there are more, all are forgotten.
const SESSIONS_KEPT_MAX: usize = 10_000;

/// What is known of sessions. It never changes, so that each part is read once.
#[derive(Debug, Default)]
pub(crate) struct SessionFacts {
    tokens: RememberedFacts<String>,
    queues: RememberedFacts<Vec<String>>,
}

#[derive(Debug)]
struct RememberedFacts<T>(Mutex<BTreeMap<SessionId, T>>);

impl<T> Default for RememberedFacts<T> {
    fn default() -> Self {
        RememberedFacts(Mutex::default())
    }
}

impl<T: Clone> RememberedFacts<T> {
    fn get(&self, session: SessionId) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    fn put(&self, session: SessionId, fact: T) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= SESSIONS_KEPT_MAX {
            kept.clear();
        }
        kept.insert(session, fact);
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
        let owner = self.caller.session_owner();
        let (queues, job_types) = (opening.about.queues.clone(), opening.job_types.clone());
        let opened =
            self.engine.open_session(SessionOpening { token: Some(owner.clone()), ..opening }).await?;
        // The token or its user may have changed after the caller was checked. The change has not seen this session.
        if !self.current_grant().await?.is_some_and(|grant| allows(&grant, &queues, &job_types)) {
            self.engine.close_session(opened.session).await?;
            return Err(UseCaseError::Worker(WorkerPortError::SessionLost));
        }
        self.session_facts.tokens.put(opened.session, owner);
        self.session_facts.queues.put(opened.session, queues);
        Ok(opened)
    }

    /// What the caller may do now; `None` if its token or user is gone, or the user is disabled.
    async fn current_grant(&self) -> Result<Option<Grant>, StoreError> {
        let Caller { token_id, user, session_of, is_stored, grant, .. } = &self.caller;
        if let Some(user) = user {
            let user = self.store().user(user).await?.filter(|user| !user.about.is_disabled);
            let is_gone = *is_stored && self.store().token(token_id).await?.is_none();
            return Ok(user.filter(|_| !is_gone).map(|user| user.grant()));
        }
        if !is_stored {
            return Ok(Some(grant.clone()));
        }
        // The session of a browser may do what its token may.
        let token = self.store().token(session_of.as_ref().unwrap_or(token_id)).await?;
        Ok(token.map(|token| token.grant()))
    }

    /// The tokens of a user.
    pub(super) async fn tokens_of_user(&self, user: &str) -> Result<Vec<String>, StoreError> {
        let tokens = self.all_tokens().await?.into_iter();
        Ok(tokens.filter(|token| token.about.user.as_deref() == Some(user)).map(|token| token.id).collect())
    }

    /// The owners of the sessions that a user can have opened.
    pub(super) async fn session_owners_of_user(&self, user: &str) -> Result<BTreeSet<String>, UseCaseError> {
        let tokens = self.tokens_of_user(user).await?.into_iter();
        Ok(tokens.chain([session_owner_of_user(user)]).collect())
    }

    /// The owners of the sessions that a token can have opened: the token, and browsers that have logged in with it.
    pub(super) async fn session_owners_of_token(&self, id: &str) -> Result<BTreeSet<String>, UseCaseError> {
        let is_browser_of = |token: &Token| token.about.session_of.as_ref().is_some_and(|of| of.id == id);
        let browsers = self.all_tokens().await?.into_iter().filter(is_browser_of).map(|token| token.id);
        Ok(browsers.chain([id.to_owned()]).collect())
    }

    /// Ends the sessions of these owners that `grant` does not allow, or all of them without one. What they run is
    /// lost and retried.
    pub(super) async fn lose_sessions(
        &self,
        owners: &BTreeSet<String>,
        grant: Option<&Grant>,
    ) -> Result<(), UseCaseError> {
        let is_allowed =
            |row: &SessionRow| grant.is_some_and(|grant| allows(grant, &row.about.queues, &row.job_types));
        for _ in 0..LOSE_TRIES_MAX {
            let mut sessions = self.store().sessions().await?;
            sessions.retain(|row| {
                row.token.as_ref().is_some_and(|owner| owners.contains(owner)) && !is_allowed(row)
            });
            if sessions.is_empty() {
                return Ok(());
            }
            let pulses = sessions.into_iter().map(|row| row.pulse).collect();
            self.engine.lose_sessions(pulses).await?;
        }
        Err(UseCaseError::Busy)
    }

    /// The queues that an own session named when it was opened, for a poll that names none. Empty for all queues.
    pub async fn queues_of_session(&self, session: SessionId) -> Result<Vec<String>, WorkerPortError> {
        self.check_own(session).await?;
        if let Some(queues) = self.session_facts.queues.get(session) {
            return Ok(queues);
        }
        let read = self.store().sessions().await;
        let rows = read.map_err(|error| WorkerPortError::Unavailable(error.to_string()))?;
        let row = rows.into_iter().find(|row| row.pulse.session == session);
        let queues = row.ok_or(WorkerPortError::SessionLost)?.about.queues;
        self.session_facts.queues.put(session, queues.clone());
        Ok(queues)
    }

    /// Refuses work outside of the caller's scope. An empty list of queues means all of them.
    pub fn check_served(&self, queues: &[String], job_types: &[String]) -> Result<(), Forbidden> {
        let object = format!("queues {}", queues.join(", "));
        let scope = &self.caller.grant.scope;
        self.noted(UseCase::Work, object, served_in_scope(scope, queues, job_types))
    }

    async fn owns(&self, session: SessionId) -> Result<bool, WorkerPortError> {
        let token = match self.session_facts.tokens.get(session) {
            Some(token) => Some(token),
            None => {
                let read = self.store().token_of_session(session).await;
                let token = read.map_err(|error| WorkerPortError::Unavailable(error.to_string()))?;
                if let Some(token) = &token {
                    self.session_facts.tokens.put(session, token.clone());
                }
                token
            }
        };
        Ok(token.is_some_and(|token| token == self.caller.session_owner()))
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
        self.check_held(session, execution).await?;
        Ok(port.append_logs(session, lines).await?)
    }

    /// Stores the result of an execution that runs in this session as a blob.
    pub async fn store_result(
        &self,
        session: SessionId,
        execution: ExecutionId,
        parts: Box<dyn BlobParts>,
    ) -> Result<BlobReference, UseCaseError> {
        self.permit(UseCase::Work)?;
        let lease = self.check_held(session, execution).await?;
        Ok(self.engine.store_result(session, lease, parts).await?)
    }

    /// The lease of an execution that runs in an own session.
    async fn check_held(&self, session: SessionId, execution: ExecutionId) -> Result<LeaseRef, UseCaseError> {
        let is_own = self.owns(session).await?;
        let epoch = match self.store().execution(execution).await? {
            Some(ExecutionView::Live { live, .. }) if live.execution() == execution => match live.state {
                LiveState::Running(lease) if lease.session == session => Some(live.epoch),
                _ => None,
            },
            Some(_) | None => None,
        };
        match epoch.filter(|_| is_own) {
            Some(epoch) => Ok(LeaseRef { execution, epoch }),
            None => Err(UseCaseError::NotHeld { execution, session }),
        }
    }
}

/// Whether a worker with this grant may serve these queues and job types.
fn allows(grant: &Grant, queues: &[String], job_types: &[String]) -> bool {
    grant.permissions.has(Permission::Work) && served_in_scope(&grant.scope, queues, job_types).is_ok()
}

fn served_in_scope(scope: &Scope, queues: &[String], job_types: &[String]) -> Result<(), Forbidden> {
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
    let (allowed, others): (Vec<&str>, Vec<&str>) =
        job_types.iter().map(String::as_str).partition(|job_type| scope.has_job_type(job_type));
    if others.is_empty() {
        return Ok(());
    }
    let fix = match allowed.is_empty() {
        true => "give it a token for these types".to_owned(),
        false => format!("start it with --job-types {}", allowed.join(",")),
    };
    Err(Forbidden(format!(
        "the worker announces the job types {}, and its token is limited to {}: {fix}",
        job_types.join(", "),
        pattern_list(&scope.job_types)
    )))
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

    /// Unused: [`UseCases::store_result`] checks that the session runs the execution.
    async fn store_result(
        &self,
        session: SessionId,
        lease: LeaseRef,
        parts: Box<dyn BlobParts>,
    ) -> Result<BlobReference, BlobError> {
        let stored = self.cases.store_result(session, lease.execution, parts).await;
        stored.map_err(|error| match error {
            UseCaseError::Blob(error) => error,
            error => BlobError::Unavailable(error.to_string()),
        })
    }

    async fn close_session(&self, session: SessionId) -> Result<(), WorkerPortError> {
        self.cases.check_own(session).await?;
        self.engine.close_session(session).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::access::{GrantTerms, NamePattern, Role};

    #[test]
    fn a_session_is_allowed_as_long_as_all_that_it_serves_is() {
        let grant = |role: Role, queues: &[&str]| {
            let queues = queues.iter().map(|queue| NamePattern::new(*queue)).collect();
            GrantTerms { scope: Scope { queues, ..Scope::default() }, ..GrantTerms::default() }.grant(role)
        };
        let [mail, both, all] = [&["mail"][..], &["mail", "pay"], &[]]
            .map(|queues| queues.iter().map(|queue| (*queue).to_owned()).collect::<Vec<_>>());
        let types = ["raw".to_owned()];
        for (role, queues, expected) in [
            (Role::Worker, &[][..], [true, true, true]),
            (Role::Admin, &["mail", "pay", "x"], [true, true, false]),
            (Role::Worker, &["m*"], [true, false, false]),
            (Role::Operator, &[], [false, false, false]),
        ] {
            let grant = grant(role, queues);
            let allowed = [&mail, &both, &all].map(|queues| allows(&grant, queues, &types));
            assert_eq!(allowed, expected, "{role} {queues:?}");
        }
    }

    #[test]
    fn a_worker_that_announces_other_types_learns_which_ones_to_name() {
        let scope = Scope { job_types: vec![NamePattern::new("shell")], ..Scope::default() };
        let told = |types: &[&str]| {
            let types: Vec<String> = types.iter().map(|one| (*one).to_owned()).collect();
            served_in_scope(&scope, &[], &types).map_err(|refused| refused.to_string())
        };
        assert_eq!(told(&["shell"]), Ok(()));
        let refused = told(&["http", "shell"]).unwrap_err();
        assert_eq!(
            refused,
            "the worker announces the job types http, shell, and its token is limited to shell: start it with \
             --job-types shell"
        );
        assert!(told(&["http"]).unwrap_err().ends_with("limited to shell: give it a token for these types"));
    }
}
