//! The audit log of the embedded store.

use super::reads::Reads;
use super::rows::{all, bound, counter, limit, up_to};
use super::store::SqliteStore;
use super::tx::Tx;
use super::write::{SqliteCall, SqliteReply, Upkeep, UpkeepReply};
use crate::audit::{ANCHOR, HEAD, ends, last_expired, read_audit, read_end, seals};
use crate::fault::Fault;
use crate::layout::{AuditColumns, sqlite_audit_columns};
use async_trait::async_trait;
use punctual_core::ports::{
    AuditEntry, AuditId, AuditLog, AuditQuery, AuditRow, ChainEnds, Page, Seal, StoreError,
};
use punctual_core::time::Timestamp;
use rusqlite::{Connection, params, params_from_iter};

pub(crate) const AUDIT_PAGE: &str = concat!(
    "SELECT ",
    sqlite_audit_columns!(),
    " FROM audit WHERE id >= ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3"
);
pub(crate) const AUDIT_CHAIN: &str =
    concat!("SELECT ", sqlite_audit_columns!(), " FROM audit WHERE number > ?1 ORDER BY number LIMIT ?2");
pub(crate) const UNSEALED: &str =
    concat!("SELECT ", sqlite_audit_columns!(), " FROM audit WHERE number IS NULL ORDER BY id LIMIT ?1");
const ENDS: &str = "SELECT name, number, hash FROM audit_chain";
const PUT: &str = "INSERT INTO audit (id, at, token, name, user_id, source, action, object, outcome, details) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (id) DO NOTHING";
const SEAL: &str = "UPDATE audit SET number = ?2, hash = ?3 WHERE id = ?1";
const MOVE_END: &str = "UPDATE audit_chain SET number = ?2, hash = ?3 WHERE name = ?1";
pub(crate) const DELETE: &str = "DELETE FROM audit WHERE number <= ?1";

/// What the writer does with the audit log, apart from the entries of writes.
#[derive(Debug, Clone, PartialEq)]
pub enum AuditCall {
    Seal { limit: usize },
    Record { entries: Vec<AuditEntry> },
    Retain { before: Timestamp, limit: usize },
}

impl AuditCall {
    /// The approximate work in rows.
    pub fn weight(&self) -> usize {
        match self {
            AuditCall::Seal { limit } | AuditCall::Retain { limit, .. } => *limit,
            AuditCall::Record { entries } => entries.len(),
        }
    }
}

/// Returns how many entries were sealed, written or deleted.
pub(crate) fn perform(tx: &mut Tx<'_>, call: &AuditCall) -> Result<u64, Fault> {
    match call {
        AuditCall::Seal { limit } => seal(tx.conn, *limit),
        AuditCall::Record { entries } => {
            entries.iter().try_for_each(|entry| put_audit(tx, entry))?;
            Ok(entries.len() as u64)
        }
        AuditCall::Retain { before, limit } => retain(tx.conn, *before, *limit),
    }
}

pub(super) fn put_audit(tx: &mut Tx<'_>, entry: &AuditEntry) -> Result<(), Fault> {
    let [written @ .., _number, _hash] = AuditColumns::of(entry).into_cells();
    tx.conn.prepare_cached(PUT)?.execute(params_from_iter(&written))?;
    Ok(())
}

pub(crate) fn read_ends(conn: &Connection) -> Result<ChainEnds, Fault> {
    ends(all(&mut *conn.prepare_cached(ENDS)?, [], |row| read_end(row))?)
}

pub(crate) fn read_chain(conn: &Connection, after: u64, count: usize) -> Result<Vec<AuditRow>, Fault> {
    let bounds = params![counter(after), limit(count)];
    all(&mut *conn.prepare_cached(AUDIT_CHAIN)?, bounds, |row| read_audit(row))
}

/// There is one writer, so nothing changes the chain meanwhile.
fn seal(conn: &Connection, count: usize) -> Result<u64, Fault> {
    let mut unsealed = conn.prepare_cached(UNSEALED)?;
    let rows = up_to(count, &mut unsealed, [bound(count)], |row| read_audit(row))?;
    if rows.is_empty() {
        return Ok(0);
    }
    let sealed = seals(read_ends(conn)?.head, &rows);
    let mut update = conn.prepare_cached(SEAL)?;
    for (id, seal) in &sealed {
        update.execute(params![id.as_bytes(), counter(seal.number), seal.hash])?;
    }
    if let Some((_, last)) = sealed.last() {
        move_end(conn, HEAD, *last)?;
    }
    Ok(sealed.len() as u64)
}

fn retain(conn: &Connection, before: Timestamp, count: usize) -> Result<u64, Fault> {
    let anchor = read_ends(conn)?.anchor;
    let Some(last) = last_expired(&read_chain(conn, anchor.number, count)?, before) else { return Ok(0) };
    let deleted = conn.prepare_cached(DELETE)?.execute([counter(last.number)])?;
    move_end(conn, ANCHOR, last)?;
    Ok(deleted as u64)
}

fn move_end(conn: &Connection, name: &str, seal: Seal) -> Result<(), Fault> {
    conn.prepare_cached(MOVE_END)?.execute(params![name, counter(seal.number), seal.hash])?;
    Ok(())
}

impl Reads<'_> {
    fn audit(&self, query: &AuditQuery) -> Result<Page<AuditRow, AuditId>, Fault> {
        let (first, last) = query.bounds();
        let count = query.rows_to_read();
        let bounds = params![first.as_bytes(), last.as_bytes(), bound(count)];
        let mut select = self.conn().prepare_cached(AUDIT_PAGE)?;
        let rows = up_to(count, &mut select, bounds, |row| read_audit(row))?;
        let rows_read = rows.len();
        Ok(query.page(rows, rows_read))
    }
}

impl SqliteStore {
    async fn audit_call(&self, call: AuditCall) -> Result<u64, StoreError> {
        match self.call(SqliteCall::Upkeep(Upkeep::Audit(call))).await? {
            SqliteReply::Upkeep(UpkeepReply::Audited(count)) => Ok(count),
            other => Err(StoreError::Broken(format!("the audit log answered with {other:?}"))),
        }
    }
}

#[async_trait]
impl AuditLog for SqliteStore {
    async fn audit(&self, query: AuditQuery) -> Result<Page<AuditRow, AuditId>, StoreError> {
        self.read(move |reads| Ok(reads.audit(&query)?)).await
    }

    async fn audit_ends(&self) -> Result<ChainEnds, StoreError> {
        self.read(|reads| Ok(read_ends(reads.conn())?)).await
    }

    async fn audit_chain(&self, after: u64, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        self.read(move |reads| Ok(read_chain(reads.conn(), after, limit)?)).await
    }

    /// Looks first, because most of the time there is nothing to seal.
    async fn seal_audit(&self, limit: usize) -> Result<usize, StoreError> {
        let has_unsealed = |reads: &mut Reads<'_>| {
            let mut unsealed = reads.conn().prepare_cached(UNSEALED).map_err(Fault::from)?;
            Ok(unsealed.exists([1]).map_err(Fault::from)?)
        };
        if !self.read(has_unsealed).await? {
            return Ok(0);
        }
        Ok(self.audit_call(AuditCall::Seal { limit }).await? as usize)
    }

    async fn record_audit(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        self.audit_call(AuditCall::Record { entries }).await.map(drop)
    }

    async fn retain_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.audit_call(AuditCall::Retain { before, limit }).await
    }
}
