//! The statements of the directory: see [`crate::directory`].

use super::connection::Connection;
use super::lists::list;
use super::reads::statements::statement;
use crate::directory::DirectoryStatements;
use crate::reads::ReadKind;

macro_rules! insert_token {
    ($on_duplicate:literal) => {
        concat!(
            "INSERT INTO tokens (id, secret_sha256, role, created_at, expires_at, last_used_at, about) \
             VALUES (?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE ",
            $on_duplicate
        )
    };
}

impl DirectoryStatements for Connection {
    const PUT_TOKEN: &'static str = insert_token!(
        "secret_sha256 = VALUES(secret_sha256), role = VALUES(role), created_at = VALUES(created_at), \
         expires_at = VALUES(expires_at), last_used_at = VALUES(last_used_at), about = VALUES(about)"
    );
    const ADD_TOKEN: &'static str = insert_token!("id = VALUES(id)");
    const REPLACE_TOKEN: &'static str = "UPDATE tokens SET secret_sha256 = ?, role = ?, created_at = ?, expires_at = ?, \
         about = ? WHERE id = ? AND secret_sha256 = ? AND role = ? AND expires_at <=> ? AND about <=> ?";
    const REMOVE_TOKEN: &'static str = "DELETE FROM tokens WHERE id = ?";
    const TOUCH_TOKENS: &'static str = concat!(
        "UPDATE ",
        list!(0 id name, 1 used_at int),
        " STRAIGHT_JOIN tokens FORCE INDEX (PRIMARY) ON tokens.id = given.id SET tokens.last_used_at = given.used_at \
         WHERE tokens.last_used_at IS NULL OR tokens.last_used_at < given.used_at"
    );
    const TOKEN: &'static str = statement(ReadKind::Token).0;
    const HOLDERS: &'static str =
        "SELECT id FROM users WHERE id = ? UNION SELECT id FROM users WHERE email = ?";
    const ADD_USER: &'static str =
        "INSERT INTO users (email, role, created_at, about, id) VALUES (?, ?, ?, ?, ?)";
    const REPLACE_USER: &'static str = "UPDATE users SET email = ?, role = ?, created_at = ?, about = ? \
         WHERE id = ? AND email = ? AND role = ? AND about <=> ?";
    const REMOVE_USER: &'static str = "DELETE FROM users WHERE id = ?";
    // Every warning about the row would be ignored, but the row follows from the layout.
    const ADD_SECRET: &'static str =
        "INSERT IGNORE INTO secrets (version, key_id, sealed, about, id) VALUES (?, ?, ?, ?, ?)";
    const REPLACE_SECRET: &'static str = "UPDATE secrets SET version = ?, key_id = ?, sealed = ?, about = ? \
         WHERE id = ? AND version = ? AND sealed = ?";
    const REMOVE_SECRET: &'static str = "DELETE FROM secrets WHERE id = ? AND version = ? AND sealed = ?";
    const LOCK_DOCUMENT: &'static str = "SELECT id, version, body FROM documents WHERE id = ? FOR UPDATE";
    const ADD_DOCUMENT: &'static str = "INSERT INTO documents (version, body, id) VALUES (?, ?, ?)";
    const REPLACE_DOCUMENT: &'static str = "UPDATE documents SET version = ?, body = ? WHERE id = ?";
    const REMOVE_DOCUMENT: &'static str = "DELETE FROM documents WHERE id = ?";
}
