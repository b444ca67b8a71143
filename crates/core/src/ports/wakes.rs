//! Notifications between processes that share a store: there is work to claim.
//!
//! A notification is only a hint. It may be lost, late or duplicated, and its receiver scans the store. Where
//! a store has no notifications, or the connection is down, the periodic scans of every process find the same
//! work, only later.

use crate::ports::{Lane, StoreError};
use async_trait::async_trait;
use std::collections::BTreeSet;

#[async_trait]
pub trait Wakes: Send + Sync {
    /// Notifies the other processes that there is work to claim in these lanes. Called after the commit that
    /// created it, never inside of it: nothing waits for it and nothing depends on it.
    async fn tell(&self, lanes: BTreeSet<Lane>) -> Result<(), StoreError>;

    /// Waits for notifications of other processes. Those of this process are left out as far as possible.
    ///
    /// An error means that no notifications arrive now. The next call tries to reconnect, and succeeds with
    /// [`Heard::Anything`] as soon as it has: notifications sent meanwhile are lost.
    async fn heard(&self) -> Result<Heard, StoreError>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// There is work to claim in these lanes.
    Queued(BTreeSet<Lane>),
    /// There may be work in any lane: the connection was just established, or there were too many
    /// notifications to list.
    Anything,
}
