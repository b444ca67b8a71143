//! What workers ask for and what they are told: never more than asked for, never what another was given.

use super::{Auditor, Verdict, rule};
use punctual_core::ids::SessionId;
use punctual_core::ports::{Assignment, Poll};

/// The polls of one turn. A worker may ask again in a turn that brought nothing.
#[derive(Debug, Default)]
pub struct PollModel {
    capacity: usize,
    granted: usize,
}

impl Auditor {
    /// A worker asks for work.
    pub fn polled(&mut self, poll: &Poll) {
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
        }
        Ok(())
    }

    pub(super) fn granted_for_poll(
        &mut self,
        session: SessionId,
        turn: u64,
        assignment: &Assignment,
    ) -> Verdict {
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
