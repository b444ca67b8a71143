//! The statements of the directory: see [`crate::directory`].

use super::connection::Connection;
use super::lists::list;
use super::reads::statements::statement;
use crate::directory::{DirectoryStatements, RowDialect, RowWrites};
use crate::layout::mysql_document_columns as document_columns;
use crate::reads::ReadKind;
use std::sync::LazyLock;

static ROW_WRITES: LazyLock<RowWrites> = LazyLock::new(|| {
    RowWrites::of(&RowDialect {
        parameter: |_| "?".to_owned(),
        is_same: "<=>",
        // Every warning about the row would be ignored, but the row follows from the layout.
        insert_if_new: ("INSERT IGNORE", ""),
        overwrite: "ON DUPLICATE KEY UPDATE",
        inserted: |column| format!("VALUES({column})"),
        counted: "",
    })
});

impl DirectoryStatements for Connection {
    const TOUCH_TOKENS: &'static str = concat!(
        "UPDATE ",
        list!(0 id name, 1 used_at int),
        " STRAIGHT_JOIN tokens FORCE INDEX (PRIMARY) ON tokens.id = given.id SET tokens.last_used_at = given.used_at \
         WHERE tokens.last_used_at IS NULL OR tokens.last_used_at < given.used_at"
    );
    const TOKEN: &'static str = statement(ReadKind::Token).0;
    const HOLDERS: &'static str =
        "SELECT id FROM users WHERE id = ? UNION SELECT id FROM users WHERE email = ?";
    const LOCK_DOCUMENT: &'static str =
        concat!("SELECT ", document_columns!(), " FROM documents WHERE id = ? FOR UPDATE");

    fn row_writes() -> &'static RowWrites {
        &ROW_WRITES
    }
}
