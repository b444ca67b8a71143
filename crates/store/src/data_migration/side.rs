//! A database as one side of a data migration, or as a copy that is turned into an independent store.

use super::Forked;
use crate::cells::{Cell, Cells};
use crate::fault::Fault;
use crate::layout::Layout;
use async_trait::async_trait;
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

/// The notes in an incomplete target. A store with any notes cannot be opened.
pub(crate) type Notes = BTreeMap<String, String>;

/// Rows of one table for the target, and the new position of the copy.
pub(crate) struct Portion<'a> {
    pub table: &'static Layout,
    pub rows: &'a [Cells],
    /// The note to be written in the same transaction.
    pub note: (&'a str, &'a str),
}

/// One connection to a database that no other migration uses at the same time.
#[async_trait]
pub(crate) trait MigrationSide: Send {
    /// Identifies this database.
    async fn identity(&mut self) -> Result<String, Fault>;
    /// Describes the connections that seem to use it; `None` if it is not in use.
    async fn users(&mut self) -> Result<Option<String>, Fault>;
    async fn count(&mut self, table: &'static Layout) -> Result<u64, Fault>;
    /// The next rows after a key, ordered by key and bounded by the limits of a page; empty at the end.
    async fn page(&mut self, table: &'static Layout, after: Option<&[Cell<'_>]>)
    -> Result<Vec<Cells>, Fault>;

    async fn notes(&mut self) -> Result<Notes, Fault>;
    async fn note(&mut self, name: &str, value: &str) -> Result<(), Fault>;
    /// Resets all tables and the notes about them as if nothing had been copied. Only a target that is
    /// noted as unfinished may be emptied.
    async fn empty(&mut self, about_tables: &str) -> Result<(), Fault>;
    /// Writes rows and the note in one transaction.
    async fn put(&mut self, portion: Portion<'_>) -> Result<(), Fault>;
    /// Makes the database assign numbers above those that were copied.
    async fn settle(&mut self) -> Result<(), Fault>;
    /// Deletes all notes: from now on it is an ordinary store.
    async fn release(&mut self) -> Result<(), Fault>;
    /// Turns a copy into an independent store, in one transaction: see [`super::fork`].
    async fn fork(&mut self, now: Timestamp) -> Result<Forked, Fault>;
}

/// How many rows of these sizes share a page: as many as its bytes allow, and at least one.
pub(crate) fn fitting(sizes: impl IntoIterator<Item = u64>) -> usize {
    let mut room = punctual_core::limits::MOVING_PAGE_BYTES_MAX as u64;
    let fits = |size: &u64| {
        let is_fitting = *size <= room;
        room = room.saturating_sub(*size);
        is_fitting
    };
    sizes.into_iter().take_while(fits).count().max(1)
}

/// The statement that sets a last number, a row of `numbers`. That of sessions is stored differently in each database.
pub(crate) fn number_statement(row: &[Cell<'_>], session: fn(i64) -> String) -> Result<String, Fault> {
    match row {
        [Cell::Text(name), Cell::Number(number)] => match &**name {
            "history_given" => Ok(format!("UPDATE history_bounds SET given = {number}")),
            "history_retained" => Ok(format!("UPDATE history_bounds SET retained = {number}")),
            "session" => Ok(session(*number)),
            other => Err(Fault::damaged("numbers.name", other)),
        },
        row => Err(Fault::damaged("numbers", format!("{row:?}"))),
    }
}

/// How many worker sessions a copy has brought along that are not lost.
pub(crate) const OPEN_SESSIONS: &str = "SELECT COUNT(*) FROM sessions WHERE NOT lost";
/// The queues of a copy.
pub(crate) const COPY_QUEUES: &str = "SELECT queue FROM queues ORDER BY queue";

/// Makes a copy harmless. Sessions are lost, and members of the original's cluster are not members of the copy's. All
/// queues are paused, also those that have no settings. Waiting notifications, alerts and the reading position are
/// deleted, so that the copy sends none until a user resumes them.
pub(crate) fn fork_statements(now: Timestamp) -> Vec<String> {
    let at = now.as_micros();
    let plain = [
        "UPDATE sessions SET lost = TRUE WHERE NOT lost",
        "DELETE FROM cluster_members",
        "DELETE FROM cluster_leases",
        "DELETE FROM documents WHERE id LIKE 'delivery/p~%' OR id LIKE 'alert/%'",
        "DELETE FROM documents WHERE id = 'cursor/notify'",
        "DELETE FROM documents WHERE id = 'cursor/notify-stopped'",
        "INSERT INTO documents (id, version, body) VALUES ('cursor/notify-stopped', 1, '{}')",
    ];
    let paused = [
        format!("UPDATE queues SET paused_at = {at} WHERE paused_at IS NULL"),
        format!(
            "INSERT INTO queues (queue, paused_at) SELECT DISTINCT lanes.queue, {at} FROM lanes \
             WHERE lanes.queue NOT IN (SELECT queues.queue FROM queues)"
        ),
    ];
    plain.map(str::to_owned).into_iter().chain(paused).collect()
}
