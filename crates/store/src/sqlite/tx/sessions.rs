//! Sessions of workers.

use super::Tx;
use crate::codes::Code;
use crate::fault::Fault;
use crate::layout::SESSIONS;
use crate::new_rows::session_cells;
use crate::rows::SessionPlace;
use crate::sqlite::malformed::{columns, marks};
use crate::sqlite::names::intern_worker;
use crate::sqlite::rows::{all, count, counter, decode, one_readable, write_row};
use punctual_core::ids::SessionId;
use punctual_core::ports::SessionOpening;
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;
use rusqlite::params;
use std::sync::LazyLock;

/// The id follows all ids that were ever assigned, ignoring impossibly high ones, which are damage: SQLite
/// itself would assign no further id after the highest.
const NEXT_ID: &str = "1 + max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'sessions' AND seq < 1 << 62), 0), \
     coalesce((SELECT max(id) FROM sessions WHERE id < 1 << 62), 0))";
static INSERT_SESSION: LazyLock<String> = LazyLock::new(|| {
    let count = SESSIONS.columns.len();
    format!("INSERT INTO sessions ({}) VALUES ({NEXT_ID}, {})", columns(&SESSIONS, count), marks(count - 1))
});
const FIND_SESSION: &str = "SELECT beat, attention, turn, mode FROM sessions WHERE id = ?1 AND lost = 0";

pub(super) fn session(tx: &mut Tx<'_>, session: SessionId) -> Result<Option<SessionPlace>, Fault> {
    one_readable(&mut *tx.conn.prepare_cached(FIND_SESSION)?, [session.0], |row| {
        Ok(SessionPlace {
            beat: count(row, 0, "sessions.beat")?,
            attention: row.get(1)?,
            turn: count(row, 2, "sessions.turn")?,
            mode: decode(row, 3, "sessions.mode")?,
        })
    })
}

pub(super) fn insert_session(
    tx: &mut Tx<'_>,
    opening: &SessionOpening,
    now: Timestamp,
) -> Result<SessionId, Fault> {
    let worker = intern_worker(tx.conn, &opening.worker)?;
    write_row(tx.conn, &INSERT_SESSION, &session_cells(opening, worker, now)?)?;
    Ok(SessionId(tx.conn.last_insert_rowid()))
}

pub(super) fn set_turn(tx: &mut Tx<'_>, session: SessionId, turn: u64) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("UPDATE sessions SET turn = ?2 WHERE id = ?1")?
        .execute((session.0, counter(turn)))?;
    Ok(())
}

pub(super) fn set_beat(tx: &mut Tx<'_>, session: SessionId, beat: u64, now: Timestamp) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("UPDATE sessions SET beat = ?2, beaten_at = ?3 WHERE id = ?1")?
        .execute(params![session.0, counter(beat), now.as_micros()])?;
    Ok(())
}

pub(super) fn set_mode(tx: &mut Tx<'_>, session: SessionId, mode: SessionMode) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("UPDATE sessions SET mode = ?2 WHERE id = ?1")?
        .execute(params![session.0, mode.code()])?;
    Ok(())
}

pub(super) fn set_attention(tx: &mut Tx<'_>, session: SessionId, attention: bool) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("UPDATE sessions SET attention = ?2 WHERE id = ?1")?
        .execute(params![session.0, attention])?;
    Ok(())
}

pub(super) fn lose_session(tx: &mut Tx<'_>, session: SessionId, beat: u64) -> Result<bool, Fault> {
    let lost_by_this = tx
        .conn
        .prepare_cached("UPDATE sessions SET lost = 1 WHERE id = ?1 AND beat = ?2 AND lost = 0")?
        .execute(params![session.0, counter(beat)])?;
    let mut is_lost = tx.conn.prepare_cached("SELECT 1 FROM sessions WHERE id = ?1 AND lost = 1")?;
    Ok(lost_by_this == 1 || is_lost.exists([session.0])?)
}

pub(super) fn lose_embedded_sessions(tx: &mut Tx<'_>) -> Result<usize, Fault> {
    Ok(tx.conn.execute("UPDATE sessions SET lost = 1 WHERE embedded = 1 AND lost = 0", [])?)
}

pub(super) fn lost_sessions(tx: &mut Tx<'_>) -> Result<Vec<SessionId>, Fault> {
    let mut select = tx.conn.prepare_cached("SELECT id FROM sessions WHERE lost = 1 ORDER BY id")?;
    all(&mut select, [], |row| Ok(SessionId(row.get(0)?)))
}

pub(super) fn delete_session(tx: &mut Tx<'_>, session: SessionId) -> Result<(), Fault> {
    tx.conn.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([session.0])?;
    tx.conn.prepare_cached("DELETE FROM session_conditions WHERE session = ?1")?.execute([session.0])?;
    tx.memory.workers.remove(session);
    Ok(())
}
