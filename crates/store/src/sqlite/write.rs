//! The writing verbs as values, so that many of them can share one transaction.

use punctual_core::ids::SessionId;
use punctual_core::ports::{
    Beat, BeatOutcome, Claim, ClaimOutcome, Fire, FireOutcome, Lane, LeaseRef, NewJob, OpenOutcome,
    Recovered, Report, ReportOutcome, Resync, ResyncOutcome, Retained, SessionOpening, SubmitOutcome,
    TimeGate, Token,
};
use punctual_core::session::Pulse;
use punctual_core::time::Timestamp;

/// One call of a writing verb of [`punctual_core::ports::Store`].
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    Submit {
        now: Timestamp,
        jobs: Vec<NewJob>,
    },
    Fire {
        now: Timestamp,
        fires: Vec<Fire>,
    },
    OpenTimeGates {
        now: Timestamp,
        gates: Vec<TimeGate>,
    },
    Claim {
        now: Timestamp,
        claims: Vec<Claim>,
    },
    Report {
        now: Timestamp,
        reports: Vec<Report>,
    },
    GiveBack {
        now: Timestamp,
        session: SessionId,
        leases: Vec<LeaseRef>,
    },
    Resync {
        now: Timestamp,
        resync: Resync,
    },
    OpenSession {
        now: Timestamp,
        opening: SessionOpening,
    },
    Beat {
        now: Timestamp,
        beats: Vec<Beat>,
    },
    LoseSessions {
        now: Timestamp,
        silent: Vec<Pulse>,
    },
    LoseEmbeddedSessions {
        now: Timestamp,
    },
    Recover {
        now: Timestamp,
        limit: usize,
    },
    CloseSession {
        now: Timestamp,
        session: SessionId,
    },
    /// History only: log lines are in a database of their own, see [`super::LogCore`].
    Retain {
        before: Timestamp,
        limit: usize,
    },
    Probe {
        now: Timestamp,
    },
    PutToken {
        token: Token,
    },
}

impl Write {
    /// About how much work this is, in rows: what a transaction may hold is bounded by it.
    pub fn weight(&self) -> usize {
        let items = match self {
            Write::Submit { jobs, .. } => jobs.len(),
            Write::Fire { fires, .. } => fires.len(),
            Write::OpenTimeGates { gates, .. } => gates.len(),
            Write::Claim { claims, .. } => {
                claims.iter().fold(0_usize, |sum, claim| sum.saturating_add(claim.limit))
            }
            Write::Report { reports, .. } => reports.len(),
            Write::GiveBack { leases, .. } => leases.len(),
            Write::Beat { beats, .. } => beats.len(),
            Write::LoseSessions { silent, .. } => silent.len(),
            Write::Recover { limit, .. } | Write::Retain { limit, .. } => *limit,
            Write::Resync { .. }
            | Write::OpenSession { .. }
            | Write::LoseEmbeddedSessions { .. }
            | Write::CloseSession { .. }
            | Write::Probe { .. }
            | Write::PutToken { .. } => 1,
        };
        items.max(1)
    }
}

/// The answer to a [`Write`], of the variant that belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteReply {
    Submitted(Vec<SubmitOutcome>),
    Fired(Vec<FireOutcome>),
    TimeGatesOpened(Vec<OpenOutcome>),
    Claimed(Vec<ClaimOutcome>),
    Reported(Vec<ReportOutcome>),
    GivenBack(Vec<Option<Lane>>),
    Resynced(ResyncOutcome),
    SessionOpened(SessionId),
    Beaten(Vec<BeatOutcome>),
    SessionsLost(Vec<bool>),
    EmbeddedSessionsLost(usize),
    Recovered(Recovered),
    SessionClosed(ResyncOutcome),
    Retained(Retained),
    Probed,
    TokenPut,
}
