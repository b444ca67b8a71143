//! The writing verbs as values, so that many of them can share one transaction.

use punctual_core::ids::{ExecutionId, OccurrenceId, SessionId};
use punctual_core::limiter::Line;
use punctual_core::notes::{Note, NoteAnswer};
use punctual_core::ports::{
    Admitted, Beat, BeatOutcome, Begun, CancelOutcome, Claim, ClaimOutcome, Control, ControlOutcome, Fire,
    FireOutcome, LeaseRef, Look, LookOutcome, NewJob, NewRequest, Pausing, Recovered, Report, ReportOutcome,
    RequestKey, RequestState, Resolved, Resync, ResyncOutcome, SessionOpening, StoredAnswer, SubmitOutcome,
};
use punctual_core::queue::QueueSettings;
use punctual_core::session::{Pulse, SessionDraining, SessionMode, SessionOrder};
use punctual_core::time::Timestamp;

/// One call of a writing verb of [`punctual_core::ports::Store`].
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    Submit { now: Timestamp, jobs: Vec<NewJob> },
    Fire { now: Timestamp, fires: Vec<Fire> },
    Look { now: Timestamp, looks: Vec<Look> },
    Claim { now: Timestamp, claims: Vec<Claim> },
    Report { now: Timestamp, reports: Vec<Report> },
    Note { now: Timestamp, notes: Vec<Note> },
    GiveBack { now: Timestamp, session: SessionId, leases: Vec<LeaseRef> },
    Resync { now: Timestamp, resync: Resync },
    OpenSession { now: Timestamp, opening: SessionOpening },
    Beat { now: Timestamp, beats: Vec<Beat> },
    LoseSessions { now: Timestamp, silent: Vec<Pulse> },
    LoseEmbeddedSessions { now: Timestamp },
    Recover { now: Timestamp, limit: usize },
    CloseSession { now: Timestamp, session: SessionId },
    OrderSession { session: SessionId, order: SessionOrder },
    Resolve { now: Timestamp, limit: usize },
    Control { now: Timestamp, controls: Vec<Control> },
    Cancel { now: Timestamp, executions: Vec<ExecutionId> },
    Redrive { now: Timestamp, dead: Vec<OccurrenceId> },
    Discard { dead: Vec<OccurrenceId> },
    PauseQueue { now: Timestamp, queue: String, pausing: Pausing },
    SetQueue { queue: String, settings: QueueSettings },
    Admit { now: Timestamp, lines: Vec<Line>, limit: usize },
    BeginRequest { now: Timestamp, request: NewRequest },
    AnswerRequest { request: RequestKey, answer: StoredAnswer },
}

impl Write {
    /// About how much work this is, in rows: what a transaction may hold is bounded by it.
    pub fn weight(&self) -> usize {
        let items = match self {
            Write::Submit { jobs, .. } => jobs.len(),
            Write::Fire { fires, .. } => fires.len(),
            Write::Look { looks, .. } => looks.len(),
            Write::Claim { claims, .. } => {
                claims.iter().fold(0_usize, |sum, claim| sum.saturating_add(claim.limit))
            }
            Write::Report { reports, .. } => reports.len(),
            Write::Note { notes, .. } => notes.len(),
            Write::GiveBack { leases, .. } => leases.len(),
            Write::Beat { beats, .. } => beats.len(),
            Write::LoseSessions { silent, .. } => silent.len(),
            Write::Control { controls, .. } => controls.len(),
            Write::Cancel { executions, .. } => executions.len(),
            Write::Redrive { dead, .. } | Write::Discard { dead } => dead.len(),
            Write::Recover { limit, .. } | Write::Resolve { limit, .. } => *limit,
            Write::Admit { lines, limit, .. } => lines.len().saturating_mul(*limit),
            Write::Resync { .. }
            | Write::OpenSession { .. }
            | Write::LoseEmbeddedSessions { .. }
            | Write::CloseSession { .. }
            | Write::OrderSession { .. }
            | Write::PauseQueue { .. }
            | Write::SetQueue { .. }
            | Write::BeginRequest { .. }
            | Write::AnswerRequest { .. } => 1,
        };
        items.max(1)
    }
}

/// The answer to a [`Write`], of the variant that belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteReply {
    Submitted(Vec<SubmitOutcome>),
    Fired(Vec<FireOutcome>),
    Looked(Vec<LookOutcome>),
    Claimed(Vec<ClaimOutcome>),
    Reported(Vec<ReportOutcome>),
    Noted(Vec<NoteAnswer>),
    GivenBack(Vec<Option<Begun>>),
    Resynced(ResyncOutcome),
    SessionOpened(SessionId),
    Beaten(Vec<BeatOutcome>),
    SessionsLost(Vec<bool>),
    EmbeddedSessionsLost(usize),
    Recovered(Recovered),
    SessionClosed(ResyncOutcome),
    SessionOrdered(Option<Result<SessionMode, SessionDraining>>),
    Resolved(Resolved),
    Controlled(Vec<ControlOutcome>),
    Cancelled(Vec<CancelOutcome>),
    Redriven(Vec<ControlOutcome>),
    Discarded(Vec<bool>),
    QueuePaused(Begun),
    QueueSet,
    Admitted(Admitted),
    RequestBegun(RequestState),
    RequestAnswered,
}
