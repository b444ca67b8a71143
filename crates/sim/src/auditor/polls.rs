//! What workers ask for and what they are told: never more than asked for, never what another was given.

use super::{Auditor, SETTLING, Verdict, rule};
use punctual_core::ids::SessionId;
use punctual_core::ports::{Assignment, LeaseRef, Poll};
use punctual_core::time::Timestamp;
use std::time::Duration;

/// How long it may take until a worker finds out that it was given more than it heard of: the longest wait
/// for an answer, and a resync after it.
const ORPHANS_FOUND: Duration = Duration::from_secs(30);

/// The polls of one turn. A worker may ask again in a turn that brought nothing.
#[derive(Debug, Default)]
pub struct PollModel {
    capacity: usize,
    granted: usize,
}

impl Auditor {
    /// A worker asks for work.
    pub fn polled(&mut self, poll: &Poll) {
        self.asks(poll);
        let model = self.polls.entry((poll.session, poll.turn)).or_default();
        model.capacity = model.capacity.max(poll.capacity);
    }

    /// A worker is told what it was given.
    pub fn told(&mut self, poll: &Poll, assignments: &[Assignment]) -> Verdict {
        for assignment in assignments {
            let lease = (assignment.execution, assignment.epoch);
            rule!(
                self.grants.get(&lease) == Some(&poll.session),
                "a worker is told only of its own leases",
                "session {} was told of {lease:?}, granted to {:?}",
                poll.session,
                self.grants.get(&lease)
            );
            self.untold.remove(&assignment.lease());
        }
        Ok(())
    }

    /// In calm weather no lease stays unknown to the worker that it was granted to.
    pub fn no_orphans(&mut self) -> Verdict {
        let Some(calm_since) = self.calm_since else { return Ok(()) };
        let found_by = calm_since.plus(SETTLING).plus(ORPHANS_FOUND);
        let untold: Vec<(LeaseRef, Timestamp)> =
            self.untold.iter().map(|(lease, granted_at)| (*lease, *granted_at)).collect();
        for (lease, granted_at) in untold {
            let held = self.holds(self.grants[&(lease.execution, lease.epoch)], lease)?;
            if !held {
                self.untold.remove(&lease);
            }
            let late = self.now > found_by.max(granted_at.plus(ORPHANS_FOUND));
            rule!(
                !held || !late,
                "no worker sits on work that it does not know of",
                "{lease:?} was granted at {granted_at} and never heard of"
            );
        }
        Ok(())
    }

    pub(super) fn granted_for_poll(
        &mut self,
        session: SessionId,
        turn: u64,
        assignment: &Assignment,
    ) -> Verdict {
        self.untold.insert(assignment.lease(), self.now);
        let model = self.polls.entry((session, turn)).or_default();
        model.granted += 1;
        rule!(
            model.granted <= model.capacity,
            "a worker is given no more than it asked for",
            "{} is number {} for session {session} in turn {turn}, which asked for {}",
            assignment.execution,
            model.granted,
            model.capacity
        );
        Ok(())
    }
}
