//! The statements of the audit log: see [`crate::audit`].

use super::reads::statements::statement;
use super::rows::{insertion, write_row};
use super::statements::SqliteStatements;
use super::tx::Tx;
use crate::audit::AuditStatements;
use crate::fault::Fault;
use crate::layout::AuditColumns;
use crate::reads::ReadKind;
use crate::server::changes::TableChange;
use async_trait::async_trait;
use punctual_core::ports::AuditEntry;
use rusqlite::Connection;
use std::sync::LazyLock;

static PUT: LazyLock<String> = LazyLock::new(|| insertion(TableChange::InsertAudit));

#[async_trait]
impl AuditStatements for SqliteStatements<'_> {
    const AUDIT_CHAIN: &'static str = statement(ReadKind::AuditChain);
    const UNSEALED: &'static str = statement(ReadKind::Unsealed);
    /// There is one writer, so nothing changes the chain meanwhile.
    const LOCK_ENDS: &'static str = statement(ReadKind::AuditEnds);
    const SEAL: &'static str = "UPDATE audit SET number = ?2, hash = ?3 WHERE id = ?1";
    const MOVE_END: &'static str = "UPDATE audit_chain SET number = ?1, hash = ?2 WHERE name = ?3";
    const DELETE: &'static str = "DELETE FROM audit WHERE number <= ?1";

    async fn commit_entries(&mut self, entries: &[AuditEntry]) -> Result<(), Fault> {
        entries.iter().try_for_each(|entry| put(self.conn, entry))
    }
}

pub(super) fn put_audit(tx: &mut Tx<'_>, entry: &AuditEntry) -> Result<(), Fault> {
    put(tx.conn, entry)
}

fn put(conn: &Connection, entry: &AuditEntry) -> Result<(), Fault> {
    let [written @ .., _number, _hash] = AuditColumns::of(entry).into_cells();
    write_row(conn, &PUT, &written)
}
