//! The write verbs as values, so that many of them can share one transaction and a store forwards them once.

use crate::calendar::Calendars;
use crate::ids::{ExecutionId, OccurrenceId, SessionId};
use crate::limiter::WaitList;
use crate::notes::{Note, NoteAnswer};
use crate::ports::{
    Admitted, AuditEntry, AuditedItems, Beat, BeatOutcome, CancelOutcome, Claim, ClaimOutcome, CommitEffects,
    Control, ControlOutcome, FireOutcome, FireRequest, LeaseRef, LookOutcome, LookRequest, NewJob,
    NewRequest, Pausing, Recovered, Report, ReportAnswer, ReportOutcome, RequestKey, RequestState, Resolved,
    Resync, ResyncOutcome, SessionOpening, StoredAnswer, SubmitOutcome,
};
use crate::queue::QueueChange;
use crate::session::{Pulse, SessionDraining, SessionMode, SessionOrder};
use crate::time::Timestamp;
use std::sync::Arc;

/// One call of a writing verb of [`crate::ports::Store`].
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    Submit {
        now: Timestamp,
        jobs: Vec<NewJob>,
    },
    Fire {
        now: Timestamp,
        fires: Vec<FireRequest>,
        /// Those that schedules name.
        calendars: Arc<Calendars>,
    },
    Look {
        now: Timestamp,
        looks: Vec<LookRequest>,
    },
    Claim {
        now: Timestamp,
        claims: Vec<Claim>,
    },
    Report {
        now: Timestamp,
        reports: Vec<Report>,
    },
    Note {
        now: Timestamp,
        notes: Vec<Note>,
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
    OrderSession {
        session: SessionId,
        order: SessionOrder,
    },
    Resolve {
        now: Timestamp,
        limit: usize,
    },
    Control {
        now: Timestamp,
        controls: Vec<Control>,
    },
    Cancel {
        now: Timestamp,
        executions: Vec<ExecutionId>,
    },
    Redrive {
        now: Timestamp,
        dead: Vec<OccurrenceId>,
    },
    Discard {
        dead: Vec<OccurrenceId>,
    },
    PauseQueue {
        now: Timestamp,
        queue: String,
        pausing: Pausing,
    },
    SetQueue {
        queue: String,
        change: QueueChange,
    },
    Admit {
        now: Timestamp,
        lines: Vec<WaitList>,
        limit: usize,
    },
    BeginRequest {
        now: Timestamp,
        request: NewRequest,
    },
    AnswerRequest {
        request: RequestKey,
        answer: StoredAnswer,
    },
    /// Another write, with the entries of the requests that it is made of. The reply is that of the other one.
    Audited {
        write: Box<Write>,
        entries: Vec<AuditedItems>,
    },
}

impl Write {
    /// This write, with an entry for all its items.
    pub fn audited(self, entry: Option<AuditEntry>) -> Write {
        let entries = entry.map(|entry| AuditedItems::all_of(entry, &self)).into_iter().collect();
        self.audited_in_parts(entries)
    }

    pub fn audited_in_parts(self, entries: Vec<AuditedItems>) -> Write {
        if entries.is_empty() { self } else { Write::Audited { write: Box::new(self), entries } }
    }

    /// The approximate work in rows, which limits the size of a transaction.
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
            Write::Audited { write, entries } => write.weight() + entries.len(),
        };
        items.max(1)
    }
}

/// The reply to a [`Write`], in the matching variant.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteReply {
    Submitted(Vec<SubmitOutcome>),
    Fired(Vec<FireOutcome>),
    Looked(Vec<LookOutcome>),
    Claimed(Vec<ClaimOutcome>),
    Reported(Vec<ReportOutcome>),
    Noted(Vec<NoteAnswer>),
    GivenBack(Vec<Option<CommitEffects>>),
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
    QueuePaused(CommitEffects),
    QueueSet,
    Admitted(Admitted),
    RequestBegun(RequestState),
    RequestAnswered,
}

/// A write of several items that fails because of a malformed row is rolled back and retried in parts, so
/// that only the item at fault fails (decision 0027).
impl Write {
    /// Two writes with half of the items each. `None` if there is only one item, or if the items cannot be
    /// separated.
    pub fn halves(&self) -> Option<(Write, Write)> {
        fn halved<T: Clone>(items: &[T], with: impl Fn(Vec<T>) -> Write) -> Option<(Write, Write)> {
            let (left, right) = items.split_at(items.len() / 2);
            (!left.is_empty()).then(|| (with(left.to_vec()), with(right.to_vec())))
        }
        match self {
            Write::Submit { now, jobs } => halved(jobs, |jobs| Write::Submit { now: *now, jobs }),
            Write::Fire { now, fires, calendars } => {
                halved(fires, |fires| Write::Fire { now: *now, fires, calendars: Arc::clone(calendars) })
            }
            Write::Look { now, looks } => halved(looks, |looks| Write::Look { now: *now, looks }),
            Write::Claim { now, claims } => halved(claims, |claims| Write::Claim { now: *now, claims }),
            Write::Report { now, reports } => halved(reports, |reports| Write::Report { now: *now, reports }),
            Write::Note { now, notes } => halved(notes, |notes| Write::Note { now: *now, notes }),
            Write::GiveBack { now, session, leases } => {
                halved(leases, |leases| Write::GiveBack { now: *now, session: *session, leases })
            }
            Write::Beat { now, beats } => halved(beats, |beats| Write::Beat { now: *now, beats }),
            Write::LoseSessions { now, silent } => {
                halved(silent, |silent| Write::LoseSessions { now: *now, silent })
            }
            Write::Redrive { now, dead } => halved(dead, |dead| Write::Redrive { now: *now, dead }),
            Write::Discard { dead } => halved(dead, |dead| Write::Discard { dead }),
            Write::Admit { now, lines, limit } => {
                halved(lines, |lines| Write::Admit { now: *now, lines, limit: *limit })
            }
            Write::Audited { write, entries } => {
                let (left, right) = write.halves()?;
                // Every item of a request of users weighs one.
                let [before, after] = AuditedItems::split(entries, left.weight());
                Some((left.audited_in_parts(before), right.audited_in_parts(after)))
            }
            _ => None,
        }
    }

    /// The reply for a single item that failed because of a malformed row: nothing was done. `None` if the
    /// caller gets the error instead.
    pub fn refused(&self, reason: &str) -> Option<WriteReply> {
        Some(match self {
            Write::Submit { .. } => WriteReply::Submitted(vec![SubmitOutcome::Unreadable(reason.to_owned())]),
            Write::Fire { .. } => WriteReply::Fired(vec![FireOutcome::NotDue]),
            Write::Look { .. } => WriteReply::Looked(vec![LookOutcome::NotDue]),
            Write::Claim { .. } => {
                let nothing =
                    ClaimOutcome::Claimed { assignments: vec![], effects: CommitEffects::default() };
                WriteReply::Claimed(vec![nothing])
            }
            Write::Report { .. } => {
                let (answer, effects) = (ReportAnswer::Stale, CommitEffects::default());
                WriteReply::Reported(vec![ReportOutcome {
                    answer,
                    recorded: None,
                    is_retried: false,
                    effects,
                }])
            }
            Write::Note { .. } => WriteReply::Noted(vec![NoteAnswer::Stale]),
            Write::GiveBack { .. } => WriteReply::GivenBack(vec![None]),
            Write::Beat { .. } => WriteReply::Beaten(vec![BeatOutcome::SessionLost]),
            Write::LoseSessions { .. } => WriteReply::SessionsLost(vec![false]),
            Write::Redrive { .. } => WriteReply::Redriven(vec![ControlOutcome::NotThere]),
            Write::Discard { .. } => WriteReply::Discarded(vec![false]),
            Write::Admit { .. } => WriteReply::Admitted(Admitted::default()),
            Write::Audited { write, .. } => return write.refused(reason),
            _ => return None,
        })
    }
}

impl WriteReply {
    /// The reply to a write, from the replies to its [halves](Write::halves).
    pub fn joined(self, other: WriteReply) -> Option<WriteReply> {
        fn both<T>(mut left: Vec<T>, right: Vec<T>) -> Vec<T> {
            left.extend(right);
            left
        }
        Some(match (self, other) {
            (WriteReply::Submitted(a), WriteReply::Submitted(b)) => WriteReply::Submitted(both(a, b)),
            (WriteReply::Fired(a), WriteReply::Fired(b)) => WriteReply::Fired(both(a, b)),
            (WriteReply::Looked(a), WriteReply::Looked(b)) => WriteReply::Looked(both(a, b)),
            (WriteReply::Claimed(a), WriteReply::Claimed(b)) => WriteReply::Claimed(both(a, b)),
            (WriteReply::Reported(a), WriteReply::Reported(b)) => WriteReply::Reported(both(a, b)),
            (WriteReply::Noted(a), WriteReply::Noted(b)) => WriteReply::Noted(both(a, b)),
            (WriteReply::GivenBack(a), WriteReply::GivenBack(b)) => WriteReply::GivenBack(both(a, b)),
            (WriteReply::Beaten(a), WriteReply::Beaten(b)) => WriteReply::Beaten(both(a, b)),
            (WriteReply::SessionsLost(a), WriteReply::SessionsLost(b)) => {
                WriteReply::SessionsLost(both(a, b))
            }
            (WriteReply::Redriven(a), WriteReply::Redriven(b)) => WriteReply::Redriven(both(a, b)),
            (WriteReply::Discarded(a), WriteReply::Discarded(b)) => WriteReply::Discarded(both(a, b)),
            (WriteReply::Admitted(mut a), WriteReply::Admitted(b)) => {
                a.effects.add(b.effects);
                a.waiting.extend(b.waiting);
                a.more.extend(b.more);
                a.is_look_due |= b.is_look_due;
                WriteReply::Admitted(a)
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;

    #[test]
    fn a_write_is_halved_down_to_single_items_and_answered_in_their_order() {
        let dead: Vec<OccurrenceId> =
            (1..=5).map(|number| JobId::new(Timestamp::from_micros(0), 1).occurrence(number)).collect();
        fn answered(write: &Write) -> WriteReply {
            match (write, write.halves()) {
                (_, Some((left, right))) => answered(&left).joined(answered(&right)).unwrap(),
                (Write::Discard { dead }, None) if dead[0].number == 3 => {
                    write.refused("no meaning").unwrap()
                }
                _ => WriteReply::Discarded(vec![true]),
            }
        }
        let reply = answered(&Write::Discard { dead });
        assert_eq!(reply, WriteReply::Discarded(vec![true, true, false, true, true]));
        assert!(Write::Discard { dead: vec![] }.halves().is_none());
    }
}
