//! The members that have joined the cluster through this process. Services forget members that are gone, and
//! an id must not be reused: a member that was once confirmed never joins a second time, but only sends a
//! heartbeat.

use punctual_core::limits::MEMBER_CARD_BYTES_MAX;
use punctual_core::ports::{CoordinationError, MemberId};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of remembered members of one process. A node gets a new one each time that it was evicted,
/// which is rare.
const REMEMBERED_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct Entered(Mutex<BTreeSet<MemberId>>);

impl Entered {
    pub fn has(&self, member: &MemberId) -> bool {
        self.lock().contains(member)
    }

    pub fn note(&self, member: &MemberId) {
        let mut entered = self.lock();
        entered.insert(member.clone());
        while entered.len() > REMEMBERED_MAX {
            // Ids of nodes are ordered by time.
            entered.pop_first();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<MemberId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rejects cards that are too large, because every node reads them.
pub(crate) fn check_card(card: &str) -> Result<(), CoordinationError> {
    if card.len() <= MEMBER_CARD_BYTES_MAX {
        return Ok(());
    }
    let said =
        format!("the member entry has {} bytes: at most {MEMBER_CARD_BYTES_MAX} are allowed", card.len());
    Err(CoordinationError::Broken(said))
}
