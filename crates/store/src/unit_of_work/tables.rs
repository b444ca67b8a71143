//! The port to a database across a network.

use super::loaded::LoadedRows;
use super::read_set::ReadSet;
use super::write_set::WriteSet;
use crate::fault::Fault;
use async_trait::async_trait;
use punctual_core::ports::{StoreError, Write, WriteReply};

/// One connection. Calls come in the order `intern*, begin, fetch+, commit`; a failed call is followed by
/// `abandon`.
#[async_trait]
pub(crate) trait Tables: Send {
    /// Handles the part of the read set that is created outside of transactions: lanes, workers, session
    /// numbers.
    async fn intern(&mut self, read_set: &ReadSet) -> Result<LoadedRows, Fault>;
    /// Opens a transaction; an adapter may send it together with the first fetch.
    async fn begin(&mut self) -> Result<(), Fault>;
    /// Locks and reads the rest of the read set, in the order of the fields of [`ReadSet`].
    async fn fetch(&mut self, read_set: &ReadSet) -> Result<LoadedRows, Fault>;
    /// Passes the replies that the transaction gives if it commits. For databases whose commits are observed.
    fn answering(&mut self, _writes: &[Write], _replies: &[Option<Result<WriteReply, StoreError>>]) {}
    /// Writes the changes and commits. After an error it is unknown whether the commit took effect, unless
    /// [`Fault::is_conflict`] says that it was rolled back.
    async fn commit(&mut self, write_set: &WriteSet) -> Result<(), Fault>;
    /// Prepares the connection for the next transaction, or marks it as broken.
    async fn abandon(&mut self);
}
