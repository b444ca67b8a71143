//! Tokens, users and secrets.

use super::audit::put_audit;
use super::reads::{PageItem, Reads, page};
use super::rows::{all, bound, one};
use super::store::{SqliteStore, kept};
use super::tx::Tx;
use super::write::{SqliteCall, SqliteReply, Upkeep, UpkeepReply};
use crate::cells::{Cell, RowCells};
use crate::directory::{
    DirectoryRow, UserStoring, last_uses, removed_secret, replaced_secret, replaced_token, replaced_user,
    secret_cells, token_cells, user_cells,
};
use crate::fault::Fault;
use crate::layout::{
    sqlite_secret_columns as secret_columns, sqlite_token_columns as token_columns,
    sqlite_user_columns as user_columns,
};
use crate::lists::PageRoom;
use async_trait::async_trait;
use punctual_core::ports::{
    AuditEntry, Directory, DirectoryChange, DirectoryOutcome, Page, StoreError, StoredSecret, Token, User,
};
use punctual_core::time::Timestamp;
use rusqlite::{Connection, params, params_from_iter};

const PUT_TOKEN: &str = "INSERT OR REPLACE INTO tokens \
     (id, secret_sha256, role, created_at, expires_at, last_used_at, about) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const ADD_TOKEN: &str = "INSERT INTO tokens (id, secret_sha256, role, created_at, expires_at, last_used_at, about) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO NOTHING";
const REPLACE_TOKEN: &str = "UPDATE tokens SET secret_sha256 = ?1, role = ?2, created_at = ?3, expires_at = ?4, about = ?5 \
     WHERE id = ?6 AND secret_sha256 = ?7 AND role = ?8 AND expires_at IS ?9 AND about IS ?10";
const REMOVE_TOKEN: &str = "DELETE FROM tokens WHERE id = ?1";
const TOUCH_TOKEN: &str = "UPDATE tokens SET last_used_at = ?2 \
     WHERE id = ?1 AND (last_used_at IS NULL OR last_used_at < ?2)";
const HOLDERS: &str = "SELECT id FROM users WHERE id = ?1 UNION SELECT id FROM users WHERE email = ?2";
const ADD_USER: &str = "INSERT INTO users (email, role, created_at, about, id) VALUES (?1, ?2, ?3, ?4, ?5)";
const REPLACE_USER: &str = "UPDATE users SET email = ?1, role = ?2, created_at = ?3, about = ?4 \
     WHERE id = ?5 AND email = ?6 AND role = ?7 AND about IS ?8";
const REMOVE_USER: &str = "DELETE FROM users WHERE id = ?1";
const ADD_SECRET: &str = "INSERT INTO secrets (version, key_id, sealed, about, id) \
     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (id) DO NOTHING";
const REPLACE_SECRET: &str = "UPDATE secrets SET version = ?1, key_id = ?2, sealed = ?3, about = ?4 \
     WHERE id = ?5 AND version = ?6 AND sealed = ?7";
const REMOVE_SECRET: &str = "DELETE FROM secrets WHERE id = ?1 AND version = ?2 AND sealed = ?3";
pub(crate) const SECRET: &str = concat!("SELECT ", secret_columns!(), " FROM secrets WHERE id = ?1");
pub(crate) const SECRETS: &str =
    concat!("SELECT ", secret_columns!(), " FROM secrets WHERE id > ?1 ORDER BY id LIMIT ?2");
pub(crate) const TOKEN: &str = concat!("SELECT ", token_columns!(), " FROM tokens WHERE id = ?1");
pub(crate) const TOKENS: &str =
    concat!("SELECT ", token_columns!(), " FROM tokens WHERE id > ?1 ORDER BY id LIMIT ?2");
pub(crate) const USER: &str = concat!("SELECT ", user_columns!(), " FROM users WHERE id = ?1");
pub(crate) const USER_BY_EMAIL: &str = concat!("SELECT ", user_columns!(), " FROM users WHERE email = ?1");
pub(crate) const USERS: &str =
    concat!("SELECT ", user_columns!(), " FROM users WHERE id > ?1 ORDER BY id LIMIT ?2");

/// What the writer does with the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "the writer gets it in a box")]
pub enum DirectoryCall {
    /// With the entry to store if it takes effect.
    Change(DirectoryChange, Option<AuditEntry>),
    TouchTokens(Vec<(String, Timestamp)>),
}

/// The reply to a [`DirectoryCall`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryReply {
    Changed(DirectoryOutcome),
    Touched,
}

impl DirectoryCall {
    /// The rows that it writes.
    pub(super) fn weight(&self) -> usize {
        if let DirectoryCall::TouchTokens(used) = self { used.len() } else { 1 }
    }
}

pub(super) fn perform(tx: &mut Tx<'_>, call: &DirectoryCall) -> Result<DirectoryReply, Fault> {
    match call {
        DirectoryCall::Change(change, entry) => {
            let outcome = apply(tx.conn, change)?;
            if let (DirectoryOutcome::Done, Some(entry)) = (&outcome, entry) {
                put_audit(tx, entry)?;
            }
            Ok(DirectoryReply::Changed(outcome))
        }
        DirectoryCall::TouchTokens(used) => {
            let mut touch = tx.conn.prepare_cached(TOUCH_TOKEN)?;
            for (id, at) in last_uses(used) {
                touch.execute(params![id, at.as_micros()])?;
            }
            Ok(DirectoryReply::Touched)
        }
    }
}

fn apply(conn: &Connection, change: &DirectoryChange) -> Result<DirectoryOutcome, Fault> {
    use DirectoryOutcome::{Changed, Done, Exists, NotThere, Taken};
    Ok(match change {
        DirectoryChange::PutToken(token) => {
            execute(conn, PUT_TOKEN, token_cells(token)?)?;
            Done
        }
        DirectoryChange::AddToken(token) => {
            execute(conn, ADD_TOKEN, token_cells(token)?)?;
            match find(conn, TOKEN, &token.id)?.filter(|kept| kept != token) {
                Some(kept) => Exists(Box::new(kept)),
                None => Done,
            }
        }
        DirectoryChange::ReplaceToken { token, expected } => {
            if execute(conn, REPLACE_TOKEN, replaced_token(token, expected)?)? > 0 { Done } else { Changed }
        }
        DirectoryChange::RemoveToken(id) => {
            if remove(conn, REMOVE_TOKEN, id)? {
                Done
            } else {
                NotThere
            }
        }
        DirectoryChange::AddUser(user) => match user_refusal(conn, user, UserStoring::Add)? {
            Some(refusal) => refusal,
            None => {
                execute(conn, ADD_USER, user_cells(user)?)?;
                Done
            }
        },
        DirectoryChange::ReplaceUser { user, expected } => {
            match user_refusal(conn, user, UserStoring::Replace)? {
                Some(refusal) => refusal,
                None if execute(conn, REPLACE_USER, replaced_user(user, expected)?)? > 0 => Done,
                None => Changed,
            }
        }
        DirectoryChange::RemoveUser { id, tokens } => {
            if remove(conn, REMOVE_USER, id)? {
                for token in tokens {
                    remove(conn, REMOVE_TOKEN, token)?;
                }
                Done
            } else {
                NotThere
            }
        }
        DirectoryChange::AddSecret(secret) => {
            if execute(conn, ADD_SECRET, secret_cells(secret)?)? > 0 {
                Done
            } else {
                Taken
            }
        }
        DirectoryChange::ReplaceSecret { secret, expected } => {
            let values = replaced_secret(secret, expected)?;
            if execute(conn, REPLACE_SECRET, values)? > 0 { Done } else { Changed }
        }
        DirectoryChange::RemoveSecret(expected) => {
            if execute(conn, REMOVE_SECRET, removed_secret(expected)?)? > 0 { Done } else { Changed }
        }
    })
}

fn user_refusal(
    conn: &Connection,
    user: &User,
    storing: UserStoring,
) -> Result<Option<DirectoryOutcome>, Fault> {
    let mut holders = conn.prepare_cached(HOLDERS)?;
    let holders: Vec<String> = all(&mut holders, params![user.id, user.email], |row| Ok(row.get(0)?))?;
    Ok(storing.refusal(user, &holders))
}

fn execute<const N: usize>(conn: &Connection, sql: &str, cells: [Cell<'_>; N]) -> Result<usize, Fault> {
    Ok(conn.prepare_cached(sql)?.execute(params_from_iter(cells))?)
}

fn remove(conn: &Connection, sql: &str, id: &str) -> Result<bool, Fault> {
    Ok(conn.prepare_cached(sql)?.execute([id])? > 0)
}

fn find<T: DirectoryRow>(conn: &Connection, sql: &str, key: &str) -> Result<Option<T>, Fault> {
    one(&mut *conn.prepare_cached(sql)?, [key], |row| T::read(row))
}

impl Reads<'_> {
    fn found<T: DirectoryRow>(&mut self, sql: &str, key: &str) -> Result<Option<T>, StoreError> {
        Ok(find(self.conn(), sql, key)?)
    }

    fn listed_by_id<T: DirectoryRow>(
        &mut self,
        sql: &str,
        after: &str,
        count: usize,
    ) -> Result<Page<T, String>, StoreError> {
        let mut select = self.conn().prepare_cached(sql).map_err(Fault::from)?;
        let bounds = params![after, bound(count.saturating_add(1))];
        Ok(page(&mut select, bounds, PageRoom::of(count), |row| {
            let (bytes, value) = (row.text(T::ABOUT)?.map_or(0, str::len), T::read(row)?);
            Ok(PageItem { bytes, cursor: value.id().to_owned(), value })
        })?)
    }
}

/// Sends a call and unwraps the reply.
macro_rules! changed {
    ($store:expr, $call:expr, $reply:pat => $value:expr) => {
        kept!($store, Upkeep::Directory(Box::new($call)), UpkeepReply::Directory($reply) => $value)
    };
}

#[async_trait]
impl Directory for SqliteStore {
    async fn change_directory(
        &self,
        change: DirectoryChange,
        entry: Option<AuditEntry>,
    ) -> Result<DirectoryOutcome, StoreError> {
        let call = DirectoryCall::Change(change, entry);
        changed!(self, call, DirectoryReply::Changed(outcome) => outcome)
    }

    async fn token(&self, id: &str) -> Result<Option<Token>, StoreError> {
        let id = id.to_owned();
        self.read(move |reads| reads.found(TOKEN, &id)).await
    }

    async fn tokens(&self, after: Option<&str>, limit: usize) -> Result<Page<Token, String>, StoreError> {
        let after = after.unwrap_or_default().to_owned();
        self.read(move |reads| reads.listed_by_id(TOKENS, &after, limit)).await
    }

    async fn touch_tokens(&self, used: Vec<(String, Timestamp)>) -> Result<(), StoreError> {
        changed!(self, DirectoryCall::TouchTokens(used), DirectoryReply::Touched => ())
    }

    async fn user(&self, id: &str) -> Result<Option<User>, StoreError> {
        let id = id.to_owned();
        self.read(move |reads| reads.found(USER, &id)).await
    }

    async fn user_by_email(&self, email: &str) -> Result<Option<User>, StoreError> {
        let email = email.to_owned();
        self.read(move |reads| reads.found(USER_BY_EMAIL, &email)).await
    }

    async fn users(&self, after: Option<&str>, limit: usize) -> Result<Page<User, String>, StoreError> {
        let after = after.unwrap_or_default().to_owned();
        self.read(move |reads| reads.listed_by_id(USERS, &after, limit)).await
    }

    async fn secret(&self, name: &str) -> Result<Option<StoredSecret>, StoreError> {
        let name = name.to_owned();
        self.read(move |reads| reads.found(SECRET, &name)).await
    }

    async fn secrets(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<StoredSecret, String>, StoreError> {
        let after = after.unwrap_or_default().to_owned();
        self.read(move |reads| reads.listed_by_id(SECRETS, &after, limit)).await
    }
}
