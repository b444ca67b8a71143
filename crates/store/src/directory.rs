//! Tokens, users and secrets as rows, the same for every database.

use crate::cells::{Cell, RowCells};
use crate::codes::document;
use crate::fault::Fault;
use crate::layout::{SECRETS, SecretColumns, TOKENS, TokenColumns, USERS, UserColumns};
use punctual_core::ports::{DirectoryOutcome, SealedValue, StoredSecret, Token, User};
use punctual_core::time::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A token, a user or a secret.
pub(crate) trait DirectoryRow: Sized {
    /// The index of the column that may be large.
    const ABOUT: usize;

    /// Reads all columns.
    fn read(row: &(impl RowCells + ?Sized)) -> Result<Self, Fault>;

    fn id(&self) -> &str;
}

impl DirectoryRow for Token {
    const ABOUT: usize = TOKENS.at("about");

    fn read(row: &(impl RowCells + ?Sized)) -> Result<Self, Fault> {
        let columns = TokenColumns::read(row, 0)?;
        Ok(Token {
            about: read_about(columns.about.as_deref(), "tokens.about", &columns.id)?,
            id: columns.id.into_owned(),
            secret_sha256: columns.secret_sha256,
            role: columns.role,
            created_at: columns.created_at,
            expires_at: columns.expires_at,
            last_used_at: columns.last_used_at,
        })
    }

    fn id(&self) -> &str {
        &self.id
    }
}

impl DirectoryRow for User {
    const ABOUT: usize = USERS.at("about");

    fn read(row: &(impl RowCells + ?Sized)) -> Result<Self, Fault> {
        let columns = UserColumns::read(row, 0)?;
        Ok(User {
            about: read_about(columns.about.as_deref(), "users.about", &columns.id)?,
            id: columns.id.into_owned(),
            email: columns.email.into_owned(),
            role: columns.role,
            created_at: columns.created_at,
        })
    }

    fn id(&self) -> &str {
        &self.id
    }
}

impl DirectoryRow for StoredSecret {
    const ABOUT: usize = SECRETS.at("sealed");

    fn read(row: &(impl RowCells + ?Sized)) -> Result<Self, Fault> {
        let columns = SecretColumns::read(row, 0)?;
        let what = format!("secrets.about of {}", columns.id);
        Ok(StoredSecret {
            about: document(serde_json::from_str(&columns.about), what)?,
            name: columns.id.into_owned(),
            version: columns.version,
            sealed: SealedValue { key_id: columns.key_id.into_owned(), text: columns.sealed.into_owned() },
        })
    }

    fn id(&self) -> &str {
        &self.name
    }
}

/// NULL if nothing differs from the defaults.
fn about_column<T: Serialize + Default + PartialEq>(about: &T) -> Result<Option<Cow<'static, str>>, Fault> {
    if *about == T::default() { Ok(None) } else { Ok(Some(serde_json::to_string(about)?.into())) }
}

fn read_about<T: DeserializeOwned + Default>(text: Option<&str>, what: &str, id: &str) -> Result<T, Fault> {
    let about = text.map(|text| document(serde_json::from_str(text), format!("{what} of {id}")));
    Ok(about.transpose()?.unwrap_or_default())
}

/// All columns.
pub(crate) fn token_cells(token: &Token) -> Result<[Cell<'_>; TOKENS.columns.len()], Fault> {
    let columns = TokenColumns {
        id: token.id.as_str().into(),
        secret_sha256: token.secret_sha256,
        role: token.role,
        created_at: token.created_at,
        expires_at: token.expires_at,
        last_used_at: token.last_used_at,
        about: about_column(&token.about)?,
    };
    Ok(columns.into_cells())
}

/// The columns of a token that replaces another one, its id, and what the other one must be like. The time of
/// the last use stays.
pub(crate) fn replaced_token<'a>(token: &'a Token, expected: &'a Token) -> Result<[Cell<'a>; 10], Fault> {
    let [id, secret, role, created_at, expires_at, _, about] = token_cells(token)?;
    let [_, old_secret, old_role, _, old_expires_at, _, old_about] = token_cells(expected)?;
    Ok([secret, role, created_at, expires_at, about, id, old_secret, old_role, old_expires_at, old_about])
}

/// The columns of a user and, at the end, its id.
pub(crate) fn user_cells(user: &User) -> Result<[Cell<'_>; USERS.columns.len()], Fault> {
    let columns = UserColumns {
        id: user.id.as_str().into(),
        email: user.email.as_str().into(),
        role: user.role,
        created_at: user.created_at,
        about: about_column(&user.about)?,
    };
    let [id, email, role, created_at, about] = columns.into_cells();
    Ok([email, role, created_at, about, id])
}

/// The columns of a user that replaces another one, its id, and what the other one must be like.
pub(crate) fn replaced_user<'a>(
    user: &'a User,
    expected: &'a User,
) -> Result<[Cell<'a>; USERS.columns.len() + 3], Fault> {
    let [email, role, created_at, about, id] = user_cells(user)?;
    let [old_email, old_role, _, old_about, _] = user_cells(expected)?;
    Ok([email, role, created_at, about, id, old_email, old_role, old_about])
}

/// The columns of a secret and, at the end, its name.
pub(crate) fn secret_cells(secret: &StoredSecret) -> Result<[Cell<'_>; SECRETS.columns.len()], Fault> {
    let columns = SecretColumns {
        id: secret.name.as_str().into(),
        version: secret.version,
        key_id: secret.sealed.key_id.as_str().into(),
        sealed: secret.sealed.text.as_str().into(),
        about: serde_json::to_string(&secret.about)?.into(),
    };
    let [id, version, key_id, sealed, about] = columns.into_cells();
    Ok([version, key_id, sealed, about, id])
}

/// The columns of a secret that replaces another one, its name, and what the other one must be like.
pub(crate) fn replaced_secret<'a>(
    secret: &'a StoredSecret,
    expected: &'a StoredSecret,
) -> Result<[Cell<'a>; SECRETS.columns.len() + 2], Fault> {
    let [version, key_id, sealed, about, id] = secret_cells(secret)?;
    let [_, old_version, old_sealed] = removed_secret(expected)?;
    Ok([version, key_id, sealed, about, id, old_version, old_sealed])
}

/// The name of a secret to remove, and what it must be like.
pub(crate) fn removed_secret(expected: &StoredSecret) -> Result<[Cell<'_>; 3], Fault> {
    let [version, _, sealed, _, id] = secret_cells(expected)?;
    Ok([id, version, sealed])
}

/// How a user is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserStoring {
    Add,
    Replace,
}

impl UserStoring {
    /// Why a user cannot be stored, given the ids of those with its id or email address.
    pub(crate) fn refusal(self, user: &User, holders: &[String]) -> Option<DirectoryOutcome> {
        let is_there = holders.contains(&user.id);
        match self {
            UserStoring::Add => (!holders.is_empty()).then_some(DirectoryOutcome::Taken),
            UserStoring::Replace if !is_there => Some(DirectoryOutcome::NotThere),
            UserStoring::Replace => (holders.len() > 1).then_some(DirectoryOutcome::Taken),
        }
    }
}

/// The last use of each token, by id.
pub(crate) fn last_uses(used: &[(String, Timestamp)]) -> BTreeMap<&str, Timestamp> {
    let mut last = BTreeMap::new();
    for (id, at) in used {
        let kept = last.entry(id.as_str()).or_insert(*at);
        *kept = (*at).max(*kept);
    }
    last
}
