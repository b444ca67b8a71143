//! Who has entered the cluster through this process. Services forget who is gone, and an id must not come back: whoever was
//! told that it is in never enters a second time, but only beats.

use punctual_core::limits::MEMBER_CARD_BYTES_MAX;
use punctual_core::ports::{CoordinationError, MemberId};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Members of one process that are remembered. A node has a new one each time that it was given up, which is rare.
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
            // Ids are ordered by time, where they are those of nodes.
            entered.pop_first();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<MemberId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses what a member must not say of itself because it would burden everybody.
pub(crate) fn check_card(card: &str) -> Result<(), CoordinationError> {
    if card.len() <= MEMBER_CARD_BYTES_MAX {
        return Ok(());
    }
    let said = format!("a card of {} bytes: at most {MEMBER_CARD_BYTES_MAX} are allowed", card.len());
    Err(CoordinationError::Broken(said))
}
