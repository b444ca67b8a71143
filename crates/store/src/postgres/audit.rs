//! The statements of the audit log: see [`crate::server::audit`].

use super::wire::Wire;
use crate::layout::audit_columns;
use crate::server::audit::{AuditStatements, ServerAudit};

pub(crate) type PostgresAudit = ServerAudit<Wire>;

impl AuditStatements for Wire {
    const AUDIT_TRIES: u32 = 1;
    const AUDIT_PAGE: &'static str = concat!(
        "SELECT ",
        audit_columns!(),
        " FROM audit WHERE id >= $1 AND id < $2 ORDER BY id DESC LIMIT $3"
    );
    const AUDIT_CHAIN: &'static str =
        concat!("SELECT ", audit_columns!(), " FROM audit WHERE number > $1 ORDER BY number LIMIT $2");
    const UNSEALED: &'static str =
        concat!("SELECT ", audit_columns!(), " FROM audit WHERE number IS NULL ORDER BY id LIMIT $1");
    const SEAL: &'static str = "UPDATE audit SET number = new.number, hash = new.hash \
         FROM unnest($1::uuid[], $2::bigint[], $3::bytea[]) AS new(id, number, hash) WHERE audit.id = new.id";
    const MOVE_END: &'static str = "UPDATE audit_chain SET number = $1, hash = $2 WHERE name = $3";
    const DELETE: &'static str = "DELETE FROM audit WHERE number <= $1";
}
