//! The port to a database on the other side of a network.

use super::changes::Changes;
use super::found::Found;
use super::wants::Wants;
use crate::fault::Fault;
use async_trait::async_trait;

/// One connection. Calls come in the order `intern*, begin, fetch+, commit`; whatever fails is followed by `abandon`.
#[async_trait]
pub(crate) trait Tables: Send {
    /// Answers the part of the wants that is created outside of transactions: lanes, workers, numbers of sessions.
    async fn intern(&mut self, wants: &Wants) -> Result<Found, Fault>;
    /// Opens a transaction; an adapter may send it along with the first fetch.
    async fn begin(&mut self) -> Result<(), Fault>;
    /// Locks and reads everything else that is wanted, in the order of the fields of [`Wants`].
    async fn fetch(&mut self, wants: &Wants) -> Result<Found, Fault>;
    /// Writes the changes and commits. An error leaves open whether it took effect, unless it is one that
    /// [`Fault::is_conflict`] says was undone.
    async fn commit(&mut self, changes: &Changes) -> Result<(), Fault>;
    /// Makes the connection fit for the next transaction, or marks it as broken.
    async fn abandon(&mut self);
}
