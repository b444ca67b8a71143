//! Polls and returns of workers: a worker never gets more than it asked for, never what another worker holds,
//! and nothing that was returned is run or lost.

use super::{AuditResult, Auditor, SETTLING, rule};
use punctual_core::ids::{Epoch, SessionId};
use punctual_core::ports::{Assignment, LeaseRef, Poll};
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;
use std::time::Duration;

/// How long it may take until a worker learns that it holds leases it does not know of: the longest wait for
/// a response, and a resync after it.
const ORPHANS_FOUND: Duration = Duration::from_secs(30);

/// How long a worker may hold executions without a slot, without faults: twice the time after which it
/// returns them, plus a round trip.
const HELD_MAX: Duration = Duration::from_millis(1_500);

/// The polls of one poll sequence number. A worker may reuse a number that brought nothing.
#[derive(Debug, Default)]
pub struct PollModel {
    capacity: usize,
    granted: usize,
}

/// A lease that a worker has returned unstarted.
#[derive(Debug)]
pub struct Return {
    session: SessionId,
    since: Timestamp,
    /// The store has taken it back, or leased it to another session.
    is_over: bool,
}

impl Auditor {
    /// A worker returns unstarted executions, because it drains or has held them for too long.
    pub fn returns_leases(&mut self, node: usize, session: SessionId, leases: &[LeaseRef]) -> AuditResult {
        let since = self.now;
        for lease in leases {
            rule!(
                !self.runs.contains_key(&(lease.execution, lease.epoch)),
                "only an unstarted execution is returned",
                "session {session} returns {lease:?}, which it has started"
            );
            self.held.remove(lease);
            self.returned.insert(*lease, Return { session, since, is_over: false });
        }
        let mode = self.sessions.get(&session).map(|session| session.mode);
        let is_draining = self.is_draining(node) || mode == Some(SessionMode::Draining);
        self.count(if is_draining {
            "work returned by a draining worker"
        } else {
            "work returned after being held for too long"
        });
        Ok(())
    }

    /// Without faults, no worker holds executions without a slot for long: they are returned, and other
    /// workers may have them.
    pub fn no_hoarding(&mut self) -> AuditResult {
        let Some(calm_since) = self.calm_since else { return Ok(()) };
        let settled = if self.is_peaceful { calm_since } else { calm_since.plus(SETTLING) };
        let held: Vec<(LeaseRef, Timestamp)> = self.held.iter().map(|(lease, at)| (*lease, *at)).collect();
        for (lease, since) in held {
            let session = self.grants.get(&(lease.execution, lease.epoch)).copied();
            let is_held = session.is_some_and(|session| self.holds(session, lease).is_ok_and(|holds| holds));
            if !is_held {
                self.held.remove(&lease);
            }
            rule!(
                !is_held || self.now.since(since.max(settled)) <= HELD_MAX,
                "no worker holds work that it has no slot for",
                "session {session:?} holds {lease:?} since {since} and has not started it"
            );
        }
        Ok(())
    }

    /// Work that another worker has returned is leased.
    pub(super) fn may_be_taken_over(&mut self, session: SessionId, lease: LeaseRef) {
        let first = LeaseRef { epoch: Epoch(0), ..lease };
        let given_back = self.returned.range(first..lease).next_back();
        if given_back.is_some_and(|(_, returned)| returned.session != session) {
            self.count("executions that one worker returned and another took");
        }
    }

    /// A returned execution is not started under that lease.
    pub(super) fn is_not_given_back(&self, lease: LeaseRef) -> AuditResult {
        let returned = self.returned.get(&lease);
        rule!(
            returned.is_none(),
            "nothing runs after it was returned",
            "{lease:?} is to start, but it was returned: {returned:?}"
        );
        Ok(())
    }

    /// Without faults, returned executions become claimable again, whatever happened to the message.
    fn nothing_is_stranded(&mut self, found_by: Timestamp) -> AuditResult {
        let open = self.returned.iter().filter(|(_, one)| !one.is_over);
        let open: Vec<_> = open.map(|(lease, one)| (*lease, one.session, one.since)).collect();
        for (lease, session, since) in open {
            let is_held = self.holds(session, lease)?;
            rule!(
                !is_held || self.now <= found_by.max(since.plus(ORPHANS_FOUND)),
                "a returned execution becomes claimable again",
                "{lease:?} was returned at {since}, and session {session} still holds it"
            );
            if !is_held && let Some(returned) = self.returned.get_mut(&lease) {
                returned.is_over = true;
            }
        }
        Ok(())
    }

    /// A worker asks for work.
    pub fn polled(&mut self, poll: &Poll) {
        self.asks(poll);
        let model = self.polls.entry((poll.session, poll.turn)).or_default();
        model.capacity = model.capacity.max(poll.capacity);
    }

    /// A worker receives its assignments.
    pub fn got_assignments(&mut self, poll: &Poll, assignments: &[Assignment]) -> AuditResult {
        for assignment in assignments {
            let lease = (assignment.execution, assignment.epoch);
            rule!(
                self.grants.get(&lease) == Some(&poll.session),
                "a worker gets only its own leases",
                "session {} got {lease:?}, granted to {:?}",
                poll.session,
                self.grants.get(&lease)
            );
            self.undelivered.remove(&assignment.lease());
            self.held.insert(assignment.lease(), self.now);
        }
        Ok(())
    }

    /// Without faults, no lease stays unknown to the worker that it was granted to.
    pub fn no_orphans(&mut self) -> AuditResult {
        let Some(calm_since) = self.calm_since else { return Ok(()) };
        let found_by = calm_since.plus(SETTLING).plus(ORPHANS_FOUND);
        self.nothing_is_stranded(found_by)?;
        let undelivered: Vec<(LeaseRef, Timestamp)> =
            self.undelivered.iter().map(|(lease, granted_at)| (*lease, *granted_at)).collect();
        for (lease, granted_at) in undelivered {
            let held = self.holds(self.grants[&(lease.execution, lease.epoch)], lease)?;
            if !held {
                self.undelivered.remove(&lease);
            }
            let late = self.now > found_by.max(granted_at.plus(ORPHANS_FOUND));
            rule!(
                !held || !late,
                "no worker holds work that it does not know of",
                "{lease:?} was granted at {granted_at} and never received"
            );
        }
        Ok(())
    }

    pub(super) fn granted_for_poll(
        &mut self,
        session: SessionId,
        turn: u64,
        assignment: &Assignment,
    ) -> AuditResult {
        self.undelivered.insert(assignment.lease(), self.now);
        let model = self.polls.entry((session, turn)).or_default();
        model.granted += 1;
        rule!(
            model.granted <= model.capacity,
            "a worker is given no more than it asked for",
            "{} is number {} for session {session} for sequence number {turn}, which asked for {}",
            assignment.execution,
            model.granted,
            model.capacity
        );
        Ok(())
    }
}
