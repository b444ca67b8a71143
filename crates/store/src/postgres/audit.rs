//! The statements of the audit log: see [`crate::audit`].

use super::reads::statements::statement;
use super::wire::Wire;
use crate::audit::AuditStatements;
use crate::fault::Fault;
use crate::reads::ReadKind;
use crate::server::changes::commit_entries;
use async_trait::async_trait;
use punctual_core::ports::AuditEntry;

#[async_trait]
impl AuditStatements for Wire {
    const AUDIT_CHAIN: &'static str = statement(ReadKind::AuditChain);
    const UNSEALED: &'static str = statement(ReadKind::Unsealed);
    const LOCK_ENDS: &'static str = "SELECT name, number, hash FROM audit_chain ORDER BY name FOR UPDATE";
    const SEAL: &'static str = "UPDATE audit SET number = new.number, hash = new.hash \
         FROM unnest($1::uuid[], $2::bigint[], $3::bytea[]) AS new(id, number, hash) WHERE audit.id = new.id";
    const MOVE_END: &'static str = "UPDATE audit_chain SET number = $1, hash = $2 WHERE name = $3";
    const DELETE: &'static str = "DELETE FROM audit WHERE number <= $1";

    async fn commit_entries(&mut self, entries: &[AuditEntry]) -> Result<(), Fault> {
        commit_entries(self, entries).await
    }
}
