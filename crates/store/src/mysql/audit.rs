//! The statements of the audit log: see [`crate::server::audit`].

use super::connection::Connection;
use super::lists::list;
use crate::layout::mysql_audit_columns;
use crate::server::audit::{AuditStatements, ServerAudit};

pub(crate) type MySqlAudit = ServerAudit<Connection>;

impl AuditStatements for Connection {
    const AUDIT_TRIES: u32 = 12;
    const AUDIT_PAGE: &'static str = concat!(
        "SELECT ",
        mysql_audit_columns!(),
        " FROM audit FORCE INDEX (PRIMARY) WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT ?"
    );
    const AUDIT_CHAIN: &'static str = concat!(
        "SELECT ",
        mysql_audit_columns!(),
        " FROM audit FORCE INDEX (audit_number) WHERE number > ? ORDER BY number LIMIT ?"
    );
    const UNSEALED: &'static str = concat!(
        "SELECT ",
        mysql_audit_columns!(),
        " FROM audit FORCE INDEX (audit_number) WHERE number IS NULL ORDER BY id LIMIT ?"
    );
    const SEAL: &'static str = concat!(
        "UPDATE ",
        list!(0 id id, 1 number int, 2 hash text),
        " STRAIGHT_JOIN audit FORCE INDEX (PRIMARY) ON audit.id = UNHEX(given.id) \
         SET audit.number = given.number, audit.hash = UNHEX(given.hash)"
    );
    const MOVE_END: &'static str = "UPDATE audit_chain SET number = ?, hash = ? WHERE name = ?";
    const DELETE: &'static str = "DELETE FROM audit WHERE number <= ?";
}
