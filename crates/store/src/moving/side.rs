//! A database as one side of a move, or as a copy that is made a store of its own.

use super::Forked;
use crate::fault::Fault;
use crate::layout::{Cell, Cells, Layout};
use async_trait::async_trait;
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

/// What is noted in a target while it is not complete. A store in which anything is noted is not opened.
pub(crate) type Notes = BTreeMap<String, String>;

/// Rows of one table for the target, and where the copy stands with them.
pub(crate) struct Portion<'a> {
    pub table: &'static Layout,
    pub rows: &'a [Cells],
    /// The note to be written in the same transaction.
    pub note: (&'a str, &'a str),
}

/// One connection of one database, which nobody else moves from or to at the same time.
#[async_trait]
pub(crate) trait Side: Send {
    /// What tells this database from others.
    async fn identity(&mut self) -> Result<String, Fault>;
    /// Who seems to use it, in words; nobody, if it is at rest.
    async fn users(&mut self) -> Result<Option<String>, Fault>;
    async fn count(&mut self, table: &'static Layout) -> Result<u64, Fault>;
    /// The next rows behind a key in the order of the key, bounded by the limits of a page; none at the end.
    async fn page(&mut self, table: &'static Layout, after: Option<&[Cell]>) -> Result<Vec<Cells>, Fault>;

    async fn notes(&mut self) -> Result<Notes, Fault>;
    async fn note(&mut self, name: &str, value: &str) -> Result<(), Fault>;
    /// Leaves all tables and the notes about them as if nothing had been copied. Only what is noted to be unfinished may be
    /// emptied.
    async fn empty(&mut self, about_tables: &str) -> Result<(), Fault>;
    /// Writes rows and the note in one transaction.
    async fn put(&mut self, portion: Portion<'_>) -> Result<(), Fault>;
    /// Sees to it that numbers go on above those that were copied.
    async fn settle(&mut self) -> Result<(), Fault>;
    /// Takes all notes away: from now on it is a store like any other.
    async fn release(&mut self) -> Result<(), Fault>;
    /// Makes a copy a store of its own, in one transaction: see [`super::fork`].
    async fn fork(&mut self, now: Timestamp) -> Result<Forked, Fault>;
}

/// How many of these rows share a page, by their sizes: as many as its bytes allow, and one at least.
pub(crate) fn fitting(sizes: impl IntoIterator<Item = u64>) -> usize {
    let mut room = punctual_core::limits::MOVING_PAGE_BYTES_MAX as u64;
    let fits = |size: &u64| {
        let is_fitting = *size <= room;
        room = room.saturating_sub(*size);
        is_fitting
    };
    sizes.into_iter().take_while(fits).count().max(1)
}
