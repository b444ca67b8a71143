//! The results of serving the wait lists of limits.

use super::CommitEffects;
use crate::limiter::WaitList;
use crate::time::Timestamp;

/// The result of one step over wait lists.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Admitted {
    pub effects: CommitEffects,
    /// Wait lists that are not empty, and when room appears by the passing of time alone; `None` if it does
    /// not.
    pub waiting: Vec<(WaitList, Option<Timestamp>)>,
    /// Wait lists with more room than one step may use.
    pub more: Vec<WaitList>,
    /// A re-admission is complete, so wait lists that were blocked may proceed: scan all of them.
    pub is_look_due: bool,
}
