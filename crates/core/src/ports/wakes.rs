//! What processes that share a store tell each other: that there is something to claim.
//!
//! A hint, and nothing more. It may be lost, late or told twice, and whoever hears it looks into the store. Where a
//! store offers no such thing, or the line is down, the looks that everybody takes from time to time find the same,
//! only later.

use crate::ports::{Lane, StoreError};
use async_trait::async_trait;
use std::collections::BTreeSet;

#[async_trait]
pub trait Wakes: Send + Sync {
    /// Tells the other processes that something can be claimed in these lanes. Called after the commit that brought it
    /// about, never inside of it: nothing waits for it and nothing depends on it.
    async fn tell(&self, lanes: BTreeSet<Lane>) -> Result<(), StoreError>;

    /// Waits for what other processes tell. What this process told itself is left out as far as can be known.
    ///
    /// An error means that nothing can be heard now. Calling again tries to mend that, and succeeds with
    /// [`Heard::Anything`] as soon as it is: what was told meanwhile is gone.
    async fn heard(&self) -> Result<Heard, StoreError>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Something can be claimed in these lanes.
    Queued(BTreeSet<Lane>),
    /// There may be work in any lane: the line has just been made, or more was told than could be said.
    Anything,
}
