//! Blobs: data of executions that is too large for the database. It is written and read in parts.

use async_trait::async_trait;
use std::fmt;

/// Keeps blobs outside of the database. Keys are made by [`crate::blobs`].
#[async_trait]
pub trait BlobStore: fmt::Debug + Send + Sync {
    /// Stores all parts under a key, durably, or nothing: after an error, and if the future is dropped.
    async fn put(&self, key: &str, parts: &mut dyn BlobParts) -> Result<(), BlobError>;

    async fn get(&self, key: &str) -> Result<Box<dyn BlobParts>, BlobError>;

    /// Deletes a blob; one that is not there is deleted.
    async fn delete(&self, key: &str) -> Result<(), BlobError>;

    /// The keys of all blobs, in any order.
    fn keys(&self) -> Box<dyn BlobKeys>;
}

/// The keys of blobs, one after another. Blobs may be written and deleted meanwhile.
#[async_trait]
pub trait BlobKeys: Send {
    async fn next(&mut self) -> Result<Option<String>, BlobError>;
}

/// The parts of a blob, one after another.
#[async_trait]
pub trait BlobParts: Send {
    /// The next part, never empty; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, BlobError>;
}

/// Data that can be read more than once.
#[async_trait]
pub trait BlobSource: Send + Sync {
    /// Begins to read at the start. The parts of an earlier call are no longer read.
    async fn open(&self) -> Result<Box<dyn BlobParts>, BlobError>;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    #[error("the blob does not exist: retention has deleted it, or it was lost")]
    NotFound,
    #[error("it has more than {bytes_max} bytes (blobs.size_max)")]
    TooLarge { bytes_max: u64 },
    /// Another attempt will be refused as well.
    #[error("{0}")]
    Refused(String),
    /// The stored bytes differ from those that were written.
    #[error("the blob is damaged: {0}")]
    Damaged(String),
    /// Whether a change took effect is unknown.
    #[error("{0}")]
    Unavailable(String),
}
