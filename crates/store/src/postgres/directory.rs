//! The statements of the directory: see [`crate::directory`].

use super::reads::statements::statement;
use super::wire::Wire;
use crate::directory::DirectoryStatements;
use crate::reads::ReadKind;

macro_rules! insert_token {
    ($on_conflict:literal) => {
        concat!(
            "INSERT INTO tokens (id, secret_sha256, role, created_at, expires_at, last_used_at, about) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO ",
            $on_conflict
        )
    };
}

impl DirectoryStatements for Wire {
    const PUT_TOKEN: &'static str = insert_token!(
        "UPDATE SET secret_sha256 = excluded.secret_sha256, role = excluded.role, created_at = excluded.created_at, \
         expires_at = excluded.expires_at, last_used_at = excluded.last_used_at, about = excluded.about"
    );
    const ADD_TOKEN: &'static str = insert_token!("NOTHING");
    const REPLACE_TOKEN: &'static str = "UPDATE tokens SET secret_sha256 = $1, role = $2, created_at = $3, expires_at = $4, \
         about = $5 WHERE id = $6 AND secret_sha256 = $7 AND role = $8 AND expires_at IS NOT DISTINCT FROM $9 \
         AND about IS NOT DISTINCT FROM $10 RETURNING 1";
    const REMOVE_TOKEN: &'static str = "DELETE FROM tokens WHERE id = $1 RETURNING 1";
    const TOUCH_TOKENS: &'static str = "UPDATE tokens SET last_used_at = used.at \
         FROM unnest($1::text[], $2::bigint[]) AS used(id, at) \
         WHERE tokens.id = used.id AND (tokens.last_used_at IS NULL OR tokens.last_used_at < used.at)";
    const TOKEN: &'static str = statement(ReadKind::Token);
    const HOLDERS: &'static str =
        "SELECT id FROM users WHERE id = $1 UNION SELECT id FROM users WHERE email = $2";
    const ADD_USER: &'static str =
        "INSERT INTO users (email, role, created_at, about, id) VALUES ($1, $2, $3, $4, $5) RETURNING 1";
    const REPLACE_USER: &'static str = "UPDATE users SET email = $1, role = $2, created_at = $3, about = $4 \
         WHERE id = $5 AND email = $6 AND role = $7 AND about IS NOT DISTINCT FROM $8 RETURNING 1";
    const REMOVE_USER: &'static str = "DELETE FROM users WHERE id = $1 RETURNING 1";
    const ADD_SECRET: &'static str = "INSERT INTO secrets (version, key_id, sealed, about, id) \
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING RETURNING 1";
    const REPLACE_SECRET: &'static str = "UPDATE secrets SET version = $1, key_id = $2, sealed = $3, about = $4 \
         WHERE id = $5 AND version = $6 AND sealed = $7 RETURNING 1";
    const REMOVE_SECRET: &'static str =
        "DELETE FROM secrets WHERE id = $1 AND version = $2 AND sealed = $3 RETURNING 1";
    const LOCK_DOCUMENT: &'static str = "SELECT id, version, body FROM documents WHERE id = $1 FOR UPDATE";
    const ADD_DOCUMENT: &'static str =
        "INSERT INTO documents (version, body, id) VALUES ($1, $2, $3) RETURNING 1";
    const REPLACE_DOCUMENT: &'static str =
        "UPDATE documents SET version = $1, body = $2 WHERE id = $3 RETURNING 1";
    const REMOVE_DOCUMENT: &'static str = "DELETE FROM documents WHERE id = $1 RETURNING 1";
}
