//! The statements of the directory: see [`crate::directory`].

use super::reads::statements::statement;
use super::wire::Wire;
use crate::directory::{DirectoryStatements, RowDialect, RowWrites};
use crate::layout::document_columns;
use crate::reads::ReadKind;
use std::sync::LazyLock;

static ROW_WRITES: LazyLock<RowWrites> = LazyLock::new(|| {
    RowWrites::of(&RowDialect {
        parameter: |n| format!("${n}"),
        is_same: "IS NOT DISTINCT FROM",
        insert_if_new: ("INSERT", " ON CONFLICT (id) DO NOTHING"),
        overwrite: "ON CONFLICT (id) DO UPDATE SET",
        inserted: |column| format!("excluded.{column}"),
        counted: " RETURNING 1",
    })
});

impl DirectoryStatements for Wire {
    const TOUCH_TOKENS: &'static str = "UPDATE tokens SET last_used_at = used.at \
         FROM unnest($1::text[], $2::bigint[]) AS used(id, at) \
         WHERE tokens.id = used.id AND (tokens.last_used_at IS NULL OR tokens.last_used_at < used.at)";
    const TOKEN: &'static str = statement(ReadKind::Token);
    const HOLDERS: &'static str =
        "SELECT id FROM users WHERE id = $1 UNION SELECT id FROM users WHERE email = $2";
    const LOCK_DOCUMENT: &'static str =
        concat!("SELECT ", document_columns!(), " FROM documents WHERE id = $1 FOR UPDATE");

    fn row_writes() -> &'static RowWrites {
        &ROW_WRITES
    }
}
