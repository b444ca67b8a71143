//! Housekeeping: retention, readiness and tokens.

use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{Code, limit};
use punctual_core::ports::{Retained, Token};
use punctual_core::time::Timestamp;
use rusqlite::params;

/// History is appended in the order of completion, so the oldest rows are the first: as many are looked at as
/// may be deleted, never the whole table.
const RETAIN_HISTORY: &str = "DELETE FROM history WHERE completed_at < ?1 \
     AND seq IN (SELECT seq FROM history ORDER BY seq LIMIT ?2)";
const RETAIN_SKIPPED: &str =
    "DELETE FROM skipped WHERE last < ?1 AND seq IN (SELECT seq FROM skipped ORDER BY seq LIMIT ?2)";

pub(super) fn retain(tx: &mut Tx<'_>, before: Timestamp, count: usize) -> Result<Retained, Fault> {
    let bounds = params![before.as_micros(), limit(count)];
    let history = tx.conn.prepare_cached(RETAIN_HISTORY)?.execute(bounds)?;
    let skipped = tx.conn.prepare_cached(RETAIN_SKIPPED)?.execute(bounds)?;
    let more = count > 0 && (history == count || skipped == count);
    Ok(Retained { history: history as u64, logs: 0, more })
}

/// Writes a row that nobody reads.
pub(super) fn probe(tx: &mut Tx<'_>, now: Timestamp) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("INSERT INTO probe (id, at) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET at = ?1")?
        .execute([now.as_micros()])?;
    Ok(())
}

pub(super) fn put_token(tx: &mut Tx<'_>, token: &Token) -> Result<(), Fault> {
    tx.conn
        .prepare_cached(
            "INSERT INTO tokens (id, secret_sha256, role, created_at) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (id) DO UPDATE SET secret_sha256 = ?2, role = ?3, created_at = ?4",
        )?
        .execute(params![token.id, token.secret_sha256, token.role.code(), token.created_at.as_micros()])?;
    Ok(())
}
