//! Session modes: a paused or draining session gets no work, a draining one learns of it and leaves, and no
//! work stays queued while a waiting poll may have it.

use super::{AuditResult, Auditor, SETTLING, SessionModel, SessionState, rule};
use punctual_core::ids::SessionId;
use punctual_core::ports::{Claim, ClaimOutcome, Lane, Poll};
use punctual_core::session::{SessionDraining, SessionMode, SessionOrder};
use punctual_core::time::Timestamp;
use std::time::Duration;

/// How long nodes may take after the last fault until every poll can be answered: the longest wait of an
/// unanswered poll, and a new one after it.
const POLLS_SETTLE: Duration = Duration::from_secs(60);
/// How long work may stay queued next to a poll that may have it, without faults: the longest time between
/// two scans of all polls, plus a few round trips to the store.
const IDLE_MAX: Duration = Duration::from_millis(2_000);
/// How long a session may take to drain without faults: until it learns of it, its longest grace period, and
/// the close.
const DRAINED_WITHIN: Duration = Duration::from_secs(30);

/// A poll that has not been answered.
#[derive(Debug)]
pub(super) struct Asking {
    poll: Poll,
    since: Timestamp,
}

impl Auditor {
    pub fn session_ordered(
        &mut self,
        id: SessionId,
        order: SessionOrder,
        outcome: &Option<Result<SessionMode, SessionDraining>>,
    ) -> AuditResult {
        let now = self.now;
        let session = self.session_mut(id)?;
        let is_draining = session.mode == SessionMode::Draining;
        let ordered = match order {
            SessionOrder::Drain => Ok(SessionMode::Draining),
            SessionOrder::Pause | SessionOrder::Resume if is_draining => Err(SessionDraining),
            SessionOrder::Pause => Ok(SessionMode::Paused),
            SessionOrder::Resume => Ok(SessionMode::Open),
        };
        let expected = (session.state == SessionState::Live).then_some(ordered);
        rule!(
            *outcome == expected,
            "a session obeys an order unless it drains or no longer exists",
            "session {id}, {:?} and {:?}, was ordered to {order:?}: expected {expected:?}, got {outcome:?}",
            session.state,
            session.mode
        );
        if let Some(Ok(mode)) = expected
            && session.mode != mode
        {
            (session.mode, session.mode_since) = (mode, now);
        }
        self.count(match (expected, order) {
            (None, _) => "orders to sessions that no longer exist",
            (Some(Err(_)), _) => "orders refused by a draining session",
            (_, SessionOrder::Pause) => "sessions paused",
            (_, SessionOrder::Resume) => "sessions resumed",
            (_, SessionOrder::Drain) => "sessions ordered to drain",
        });
        Ok(())
    }

    /// A paused or draining session gets nothing.
    pub(super) fn claimed_nothing(&mut self, claim: &Claim, outcome: &ClaimOutcome) -> AuditResult {
        let is_nothing = match outcome {
            ClaimOutcome::Claimed { assignments, effects } => {
                assignments.is_empty() && effects.ended.is_empty() && effects.queued.is_empty()
            }
            ClaimOutcome::StaleTurn | ClaimOutcome::SessionLost => true,
        };
        rule!(
            is_nothing,
            "a session that is paused or drains is given nothing",
            "session {} claimed and was answered {outcome:?}",
            claim.session
        );
        self.count("claims of sessions that get no work");
        Ok(())
    }

    /// Live sessions, for operators to change their mode.
    pub fn sessions_there(&self) -> Vec<SessionId> {
        self.there().map(|(id, _)| id).collect()
    }

    /// Paused sessions, which would stay paused.
    pub fn paused_sessions(&self) -> Vec<SessionId> {
        self.there().filter(|(_, session)| session.mode == SessionMode::Paused).map(|(id, _)| id).collect()
    }

    fn there(&self) -> impl Iterator<Item = (SessionId, &SessionModel)> {
        self.sessions.iter().filter(|(_, one)| one.state == SessionState::Live).map(|(id, one)| (*id, one))
    }

    pub(super) fn asks(&mut self, poll: &Poll) {
        self.asking.insert(poll.session, Asking { poll: poll.clone(), since: self.now });
    }

    /// A poll was answered, or its worker has abandoned it.
    pub fn poll_is_over(&mut self, poll: &Poll) {
        if self.asking.get(&poll.session).is_some_and(|asking| asking.poll.turn == poll.turn) {
            self.asking.remove(&poll.session);
        }
    }

    /// Without faults, a draining session leaves, and no work stays queued next to a poll that may have it.
    pub fn no_idle_polls(&mut self) -> AuditResult {
        let Some(calm_since) = self.calm_since else { return Ok(()) };
        for (id, session) in self.there().filter(|(_, session)| session.mode == SessionMode::Draining) {
            let since = session.mode_since.max(calm_since.plus(SETTLING));
            rule!(
                self.now.since(since) <= DRAINED_WITHIN,
                "a session that is to drain leaves",
                "session {id} drains since {}",
                session.mode_since
            );
        }
        let settled = if self.is_peaceful { calm_since } else { calm_since.plus(POLLS_SETTLE) };
        for id in &self.queued {
            let (lane, queued_at) = (self.lane(id.job)?, self.occurrence(*id)?.changed_at);
            if self.is_paused(&lane) {
                continue;
            }
            let resumed_at = self.resumed_queues.get(lane.queue()).copied();
            let may_go_since = queued_at.max(resumed_at.unwrap_or(queued_at)).max(settled);
            let is_open = |session: &SessionId| {
                let session = self.sessions.get(session);
                session.is_some_and(|one| one.state == SessionState::Live && one.mode == SessionMode::Open)
            };
            for (session, asking) in self.asking.iter().filter(|(session, _)| is_open(session)) {
                let since = may_go_since.max(asking.since).max(self.sessions[session].mode_since);
                rule!(
                    !serves(&asking.poll, &lane) || self.now.since(since) <= IDLE_MAX,
                    "no work stays queued while a poll that may take it waits",
                    "{id} is queued since {queued_at}, session {session} asks for {lane:?} since {}",
                    asking.since
                );
            }
        }
        Ok(())
    }
}

fn serves(poll: &Poll, lane: &Lane) -> bool {
    (poll.queues.is_empty() || poll.queues.iter().any(|queue| queue == lane.queue()))
        && poll.job_types.iter().any(|job_type| job_type == lane.job_type())
}
