//! The port to a database across a network.

use super::changes::Changes;
use super::found::Found;
use super::wants::Wants;
use crate::fault::Fault;
use async_trait::async_trait;

/// One connection. Calls come in the order `intern*, begin, fetch+, commit`; a failed call is followed by
/// `abandon`.
#[async_trait]
pub(crate) trait Tables: Send {
    /// Handles the part of the read set that is created outside of transactions: lanes, workers, session
    /// numbers.
    async fn intern(&mut self, wants: &Wants) -> Result<Found, Fault>;
    /// Opens a transaction; an adapter may send it together with the first fetch.
    async fn begin(&mut self) -> Result<(), Fault>;
    /// Locks and reads the rest of the read set, in the order of the fields of [`Wants`].
    async fn fetch(&mut self, wants: &Wants) -> Result<Found, Fault>;
    /// Writes the changes and commits. After an error it is unknown whether the commit took effect, unless
    /// [`Fault::is_conflict`] says that it was rolled back.
    async fn commit(&mut self, changes: &Changes) -> Result<(), Fault>;
    /// Prepares the connection for the next transaction, or marks it as broken.
    async fn abandon(&mut self);
}
