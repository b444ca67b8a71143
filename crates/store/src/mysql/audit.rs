//! The statements of the audit log: see [`crate::audit`].

use super::connection::Connection;
use super::lists::list;
use super::reads::statements::statement;
use crate::audit::AuditStatements;
use crate::fault::Fault;
use crate::reads::ReadKind;
use crate::server::changes::commit_entries;
use async_trait::async_trait;
use punctual_core::ports::AuditEntry;

#[async_trait]
impl AuditStatements for Connection {
    const AUDIT_CHAIN: &'static str = statement(ReadKind::AuditChain).0;
    const UNSEALED: &'static str = statement(ReadKind::Unsealed).0;
    const LOCK_ENDS: &'static str = "SELECT name, number, hash FROM audit_chain ORDER BY name FOR UPDATE";
    const SEAL: &'static str = concat!(
        "UPDATE ",
        list!(0 id id, 1 number int, 2 hash text),
        " STRAIGHT_JOIN audit FORCE INDEX (PRIMARY) ON audit.id = UNHEX(given.id) \
         SET audit.number = given.number, audit.hash = UNHEX(given.hash)"
    );
    const MOVE_END: &'static str = "UPDATE audit_chain SET number = ?, hash = ? WHERE name = ?";
    const DELETE: &'static str = "DELETE FROM audit WHERE number <= ?";

    async fn commit_entries(&mut self, entries: &[AuditEntry]) -> Result<(), Fault> {
        commit_entries(self, entries).await
    }
}
