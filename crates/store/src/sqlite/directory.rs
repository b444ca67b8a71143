//! The statements of the directory: see [`crate::directory`].

use super::reads::statements::statement;
use super::statements::SqliteStatements;
use crate::directory::{DirectoryStatements, RowDialect, RowWrites};
use crate::layout::sqlite_document_columns as document_columns;
use crate::reads::ReadKind;
use std::sync::LazyLock;

static ROW_WRITES: LazyLock<RowWrites> = LazyLock::new(|| {
    RowWrites::of(&RowDialect {
        parameter: |n| format!("?{n}"),
        is_same: "IS",
        insert_if_new: ("INSERT", " ON CONFLICT (id) DO NOTHING"),
        overwrite: "ON CONFLICT (id) DO UPDATE SET",
        inserted: |column| format!("excluded.{column}"),
        counted: "",
    })
});

impl DirectoryStatements for SqliteStatements<'_> {
    const TOUCH_TOKENS: &'static str = "UPDATE tokens SET last_used_at = ?2 \
         WHERE id = ?1 AND (last_used_at IS NULL OR last_used_at < ?2)";
    const TOKEN: &'static str = statement(ReadKind::Token);
    const HOLDERS: &'static str =
        "SELECT id FROM users WHERE id = ?1 UNION SELECT id FROM users WHERE email = ?2";
    const LOCK_DOCUMENT: &'static str =
        concat!("SELECT ", document_columns!(), " FROM documents WHERE id = ?1");

    fn row_writes() -> &'static RowWrites {
        &ROW_WRITES
    }
}
