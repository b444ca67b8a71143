//! The use cases: everything that a caller can ask of this node. Code outside the engine has no other way to
//! data.
//!
//! Each use case checks the permission of its caller before anything else, so that no protocol can forget it.
//! Reads of single jobs and executions go through [`UseCases::job`] and [`UseCases::execution_view`], and all
//! lists are read in this directory: rules about what a caller may see belong here and nowhere else. It must
//! not know HTTP or wire types.

mod access;
mod acknowledge;
mod adjust;
mod audit;
mod blobs;
mod browser_sessions;
mod bulk;
mod by_name;
mod calendars;
mod caller;
mod cluster_pause;
mod cursor_key;
mod dead_letters;
mod error;
mod events;
mod executions;
mod explain;
mod fires;
mod job_types;
mod jobs;
mod log_search;
mod logs;
mod notifications;
mod overview;
mod own_work;
mod queues;
mod requests;
mod runs;
mod scope;
mod secrets;
mod series;
mod server;
mod sorted;
mod table;
mod uses;
mod views;
mod work;
mod workers;

pub use access::{Credentials, NewToken, NewUser};
pub use acknowledge::AckLinkError;
pub use adjust::BackfillPlan;
pub use audit::{AuditVerification, RefusedPrincipal};
pub use bulk::{BulkOrder, BulkPreview, OperationView, SampleItem};
pub(crate) use bulk::{SelectedItem, actor_of, case_of_action};
pub use calendars::CalendarView;
pub use caller::{Caller, Forbidden};
pub use cursor_key::{CURSOR_KEY, cluster_key};
pub use dead_letters::{DeadLetterChoice, DeadLetterOutcomes};
pub use error::UseCaseError;
pub use events::{EventBatch, EventReader, ExecutionEvent};
pub use executions::{ExecutionDetails, ExecutionsOfJob, ResultData};
pub use explain::{ExplainedFacts, LimitHolder, MoreOpen, ParentJob};
pub use fires::{FireRange, JobFires};
pub(crate) use job_types::HeldJobTypes;
pub use job_types::JobTypeView;
pub use jobs::{JobDetails, next_run_time, parent_to_blame};
pub use log_search::{FoundLogLine, LogFilter, LogsFound};
pub use logs::{LogEnd, LogPlace, LogReader, LogSegment, LogSource};
pub use notifications::{
    ChannelTry, ChannelView, NamedAlert, NamedDelivery, NamedRule, NamedSilence, NotificationsView,
};
pub(crate) use overview::LastOverview;
pub use overview::{Capacity, Overview};
pub use queues::QueueView;
pub use requests::RequestTry;
pub use runs::RunRequest;
pub use secrets::{RotationPlace, SecretView, SecretsRotated};
pub use series::{SeriesBy, SeriesFigures, SeriesLabel, SeriesOfName, SeriesQuery};
pub use server::{LimitedQueue, LookedAt, NodeState, Readings, Stats};
pub use sorted::SortedJobs;
pub use table::UseCase;
pub use uses::{Removal, UsesFound};
pub use work::OwnSessions;
pub use workers::{EligibleWorkers, WorkerView, lane_of};

use crate::Engine;
use punctual_core::ports::{Store, StoreError, Token, User};
use punctual_core::time::Timestamp;
use punctual_core::trace_context::TraceContext;
use std::fmt::Display;
use std::sync::Arc;
use tokio::sync::Mutex;
use work::SessionFacts;

/// What a node offers before it knows who asks.
#[derive(Clone)]
pub struct Access {
    engine: Arc<Engine>,
    session_facts: Arc<SessionFacts>,
    /// Held during changes that must leave someone who can manage access.
    directory_changes: Arc<Mutex<()>>,
}

impl Access {
    pub fn new(engine: Arc<Engine>) -> Self {
        Access { engine, session_facts: Arc::default(), directory_changes: Arc::default() }
    }

    /// The store's time, as estimated by this node.
    pub fn now(&self) -> Timestamp {
        self.engine.now()
    }

    /// The use cases for an authenticated caller.
    pub fn on_behalf_of(&self, caller: Caller) -> UseCases {
        UseCases {
            engine: self.engine.clone(),
            session_facts: self.session_facts.clone(),
            directory_changes: self.directory_changes.clone(),
            caller,
            trace: None,
        }
    }

    /// The stored token with this id, to authenticate a request.
    pub async fn token(&self, id: &str) -> Result<Option<Token>, StoreError> {
        self.engine.context.store.token(id).await
    }

    /// The user with this id, to authenticate a request with a token of the user.
    pub async fn user(&self, id: &str) -> Result<Option<User>, StoreError> {
        self.engine.context.store.user(id).await
    }

    /// The user with this email address, in lower case.
    pub async fn user_by_email(&self, email: &str) -> Result<Option<User>, StoreError> {
        self.engine.context.store.user_by_email(email).await
    }

    /// Records when tokens were last used.
    pub async fn touch_tokens(&self, used: Vec<(String, Timestamp)>) -> Result<(), StoreError> {
        self.engine.context.store.touch_tokens(used).await
    }

    /// Writes through the store, so that a full disk or a hanging writer is noticed.
    pub async fn probe(&self) -> Result<(), StoreError> {
        let store = &self.engine.context.store;
        let now = store.clock().await?;
        store.probe(now).await
    }

    pub fn node_state(&self) -> NodeState {
        NodeState::of(&self.engine)
    }
}

/// The use cases, on behalf of one caller.
#[derive(Clone)]
pub struct UseCases {
    engine: Arc<Engine>,
    session_facts: Arc<SessionFacts>,
    directory_changes: Arc<Mutex<()>>,
    caller: Caller,
    /// The trace of the request.
    trace: Option<TraceContext>,
}

impl UseCases {
    /// The same for a request that belongs to a trace.
    pub fn within_trace(self, trace: Option<TraceContext>) -> Self {
        UseCases { trace, ..self }
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The store's time, as estimated by this node; never ahead of it.
    pub fn now(&self) -> Timestamp {
        self.engine.now()
    }

    /// For a request about nothing in particular.
    fn permit(&self, case: UseCase) -> Result<(), Forbidden> {
        self.permit_on(case, "")
    }

    /// For a request about an object, which the audit log names if it is refused.
    fn permit_on(&self, case: UseCase, object: impl Display) -> Result<(), Forbidden> {
        let object = object.to_string();
        self.noted(case, &object, self.caller.check_on(case, &object))
    }

    /// The same result; a refusal is noted for the audit log.
    fn noted(
        &self,
        case: UseCase,
        object: impl Display,
        checked: Result<(), Forbidden>,
    ) -> Result<(), Forbidden> {
        checked.inspect_err(|forbidden| self.note_refusal(case, object.to_string(), &forbidden.0))
    }

    fn store(&self) -> &dyn Store {
        &*self.engine.context.store
    }
}
