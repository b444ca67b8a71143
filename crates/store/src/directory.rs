//! Tokens, users and secrets, the same for every database: their rows, and changes over the statements of a dialect.
//! [`crate::reads`] finds them.

use crate::cells::{Cell, CellValue, RowCells};
use crate::codes::document;
use crate::fault::Fault;
use crate::layout::{SECRETS, SecretColumns, TOKENS, TokenColumns, USERS, UserColumns};
use crate::row_list::{List, row};
use crate::server::connection::{Argument, ServerAnswer, ServerCall, StatementVerb, Statements, value};
use async_trait::async_trait;
use punctual_core::ports::{SealedValue, StoredSecret, Token, User, UserOutcome};
use punctual_core::time::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A change of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryCall {
    PutToken(Token),
    AddToken(Token),
    ReplaceToken { token: Token, expected_secret: [u8; 32] },
    RemoveToken(String),
    TouchTokens(Vec<(String, Timestamp)>),
    AddUser(User),
    ReplaceUser { user: User, expected: User },
    RemoveUser(String),
    AddSecret(StoredSecret),
    ReplaceSecret { secret: StoredSecret, expected_version: u64 },
    RemoveSecret(String),
}

/// The reply to a [`DirectoryCall`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryReply {
    Done,
    /// Whether there was anything to change.
    Changed(bool),
    /// The stored token: the new one, or an existing one with the same id.
    Token(Box<Token>),
    User(UserOutcome),
}

impl DirectoryCall {
    /// The rows that it writes.
    pub(crate) fn weight(&self) -> usize {
        if let DirectoryCall::TouchTokens(used) = self { used.len().max(1) } else { 1 }
    }
}

/// The statements of a dialect. The values of tokens and users are in the order of the functions below.
pub(crate) trait DirectoryStatements: Statements {
    const PUT_TOKEN: &'static str;
    const ADD_TOKEN: &'static str;
    const REPLACE_TOKEN: &'static str;
    const REMOVE_TOKEN: &'static str;
    /// Given ids and times.
    const TOUCH_TOKENS: &'static str;
    const TOKEN: &'static str;
    /// The ids of users with this id or this email address.
    const HOLDERS: &'static str;
    const ADD_USER: &'static str;
    const REPLACE_USER: &'static str;
    const REMOVE_USER: &'static str;
    const ADD_SECRET: &'static str;
    const REPLACE_SECRET: &'static str;
    const REMOVE_SECRET: &'static str;
}

#[async_trait]
impl<C: DirectoryStatements> StatementVerb<C> for DirectoryCall {
    type Reply = DirectoryReply;

    async fn perform(&self, connection: &mut C) -> Result<DirectoryReply, Fault> {
        Ok(match self {
            DirectoryCall::PutToken(token) => {
                run(connection, C::PUT_TOKEN, token_cells(token)?).await?;
                DirectoryReply::Done
            }
            DirectoryCall::AddToken(token) => {
                run(connection, C::ADD_TOKEN, token_cells(token)?).await?;
                // The state after the commit is the same for all nodes.
                let stored = run(connection, C::TOKEN, row![token.id.as_str()]).await?;
                let missing = || Fault::Missing(format!("the token {}", token.id));
                DirectoryReply::Token(Box::new(Token::read(stored.rows.first().ok_or_else(missing)?)?))
            }
            DirectoryCall::ReplaceToken { token, expected_secret } => {
                let values = replaced_token(token, *expected_secret)?;
                DirectoryReply::Changed(run(connection, C::REPLACE_TOKEN, values).await?.count > 0)
            }
            DirectoryCall::RemoveToken(id) => {
                DirectoryReply::Changed(run(connection, C::REMOVE_TOKEN, row![id.as_str()]).await?.count > 0)
            }
            DirectoryCall::TouchTokens(used) => {
                let used = List::of(last_uses(used).into_iter().map(|(id, at)| row![id, at]));
                connection.send_alone(ServerCall::new(C::TOUCH_TOKENS, [Argument::Rows(used)])).await?;
                DirectoryReply::Done
            }
            // If another node stores a user with the same email address at the same time, the statement
            // fails with a conflict, and the second run finds that user.
            DirectoryCall::AddUser(user) => {
                DirectoryReply::User(match refusal(connection, user, UserStoring::Add).await? {
                    Some(refusal) => refusal,
                    None => {
                        run(connection, C::ADD_USER, user_cells(user)?).await?;
                        UserOutcome::Stored
                    }
                })
            }
            DirectoryCall::ReplaceUser { user, expected } => {
                let values = replaced_user(user, expected)?;
                DirectoryReply::User(match refusal(connection, user, UserStoring::Replace).await? {
                    Some(refusal) => refusal,
                    None if run(connection, C::REPLACE_USER, values).await?.count > 0 => UserOutcome::Stored,
                    None => UserOutcome::Changed,
                })
            }
            DirectoryCall::RemoveUser(id) => {
                DirectoryReply::Changed(run(connection, C::REMOVE_USER, row![id.as_str()]).await?.count > 0)
            }
            DirectoryCall::AddSecret(secret) => {
                let added = run(connection, C::ADD_SECRET, secret_cells(secret)?).await?;
                DirectoryReply::Changed(added.count > 0)
            }
            DirectoryCall::ReplaceSecret { secret, expected_version } => {
                let values = replaced_secret(secret, *expected_version)?;
                DirectoryReply::Changed(run(connection, C::REPLACE_SECRET, values).await?.count > 0)
            }
            DirectoryCall::RemoveSecret(name) => {
                let removed = run(connection, C::REMOVE_SECRET, row![name.as_str()]).await?;
                DirectoryReply::Changed(removed.count > 0)
            }
        })
    }
}

/// Runs a statement as a transaction.
async fn run<C: Statements, const N: usize>(
    connection: &mut C,
    sql: &'static str,
    values: [Cell<'_>; N],
) -> Result<ServerAnswer<C::Row>, Fault> {
    connection.send_alone(ServerCall::new(sql, values.map(Argument::Value))).await
}

async fn refusal<C: DirectoryStatements>(
    connection: &mut C,
    user: &User,
    storing: UserStoring,
) -> Result<Option<UserOutcome>, Fault> {
    let key = [value(user.id.as_str()), value(user.email.as_str())];
    let holders = connection.send_alone(ServerCall::new(C::HOLDERS, key)).await?.column::<String>()?;
    Ok(storing.refusal(user, &holders))
}

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
fn token_cells(token: &Token) -> Result<[Cell<'_>; TOKENS.columns.len()], Fault> {
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

/// The columns of a token that replaces another one, its id, and the secret of the other one. The time of
/// the last use stays.
fn replaced_token(token: &Token, expected_secret: [u8; 32]) -> Result<[Cell<'_>; 7], Fault> {
    let [id, secret, role, created_at, expires_at, _, about] = token_cells(token)?;
    Ok([secret, role, created_at, expires_at, about, id, expected_secret.into_cell()])
}

/// The columns of a user and, at the end, its id.
fn user_cells(user: &User) -> Result<[Cell<'_>; USERS.columns.len()], Fault> {
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
fn replaced_user<'a>(
    user: &'a User,
    expected: &'a User,
) -> Result<[Cell<'a>; USERS.columns.len() + 3], Fault> {
    let [email, role, created_at, about, id] = user_cells(user)?;
    let [old_email, old_role, _, old_about, _] = user_cells(expected)?;
    Ok([email, role, created_at, about, id, old_email, old_role, old_about])
}

/// The columns of a secret and, at the end, its name.
fn secret_cells(secret: &StoredSecret) -> Result<[Cell<'_>; SECRETS.columns.len()], Fault> {
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

/// The columns of a secret that replaces another one, its name, and the version of the other one.
fn replaced_secret(
    secret: &StoredSecret,
    expected_version: u64,
) -> Result<[Cell<'_>; SECRETS.columns.len() + 1], Fault> {
    let [version, key_id, sealed, about, id] = secret_cells(secret)?;
    Ok([version, key_id, sealed, about, id, expected_version.into_cell()])
}

/// How a user is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UserStoring {
    Add,
    Replace,
}

impl UserStoring {
    /// Why a user cannot be stored, given the ids of those with its id or email address.
    fn refusal(self, user: &User, holders: &[String]) -> Option<UserOutcome> {
        let is_there = holders.contains(&user.id);
        match self {
            UserStoring::Add => (!holders.is_empty()).then_some(UserOutcome::Taken),
            UserStoring::Replace if !is_there => Some(UserOutcome::NotThere),
            UserStoring::Replace => (holders.len() > 1).then_some(UserOutcome::Taken),
        }
    }
}

/// The last use of each token, by id.
fn last_uses(used: &[(String, Timestamp)]) -> BTreeMap<&str, Timestamp> {
    let mut last = BTreeMap::new();
    for (id, at) in used {
        let kept = last.entry(id.as_str()).or_insert(*at);
        *kept = (*at).max(*kept);
    }
    last
}

/// Implements the port for a store with `directory_call`, which sends a [`DirectoryCall`], and reads.
macro_rules! serve_directory {
    ($store:ty) => {
        const _: () = {
            use crate::directory::{DirectoryCall, DirectoryReply};
            use crate::reads::ReadKind;
            use async_trait::async_trait;
            use punctual_core::ports::{Directory, Page, StoreError, StoredSecret, Token, User, UserOutcome};
            use punctual_core::time::Timestamp;

            macro_rules! changed {
                ($self:ident, $call:expr, $reply:pat => $value:expr) => {
                    match $self.directory_call($call).await? {
                        $reply => Ok($value),
                        other => Err(StoreError::Broken(format!("the directory answered with {other:?}"))),
                    }
                };
            }

            #[async_trait]
            impl Directory for $store {
                async fn put_token(&self, token: Token) -> Result<(), StoreError> {
                    changed!(self, DirectoryCall::PutToken(token), DirectoryReply::Done => ())
                }

                async fn add_token(&self, token: Token) -> Result<Token, StoreError> {
                    changed!(self, DirectoryCall::AddToken(token), DirectoryReply::Token(token) => *token)
                }

                async fn replace_token(
                    &self,
                    token: Token,
                    expected_secret: [u8; 32],
                ) -> Result<bool, StoreError> {
                    let call = DirectoryCall::ReplaceToken { token, expected_secret };
                    changed!(self, call, DirectoryReply::Changed(changed) => changed)
                }

                async fn remove_token(&self, id: &str) -> Result<bool, StoreError> {
                    let call = DirectoryCall::RemoveToken(id.to_owned());
                    changed!(self, call, DirectoryReply::Changed(changed) => changed)
                }

                async fn token(&self, id: &str) -> Result<Option<Token>, StoreError> {
                    let id = id.to_owned();
                    read!(self.readers, reads => reads.found(ReadKind::Token, &id))
                }

                async fn tokens(
                    &self,
                    after: Option<&str>,
                    limit: usize,
                ) -> Result<Page<Token, String>, StoreError> {
                    let after = after.map(str::to_owned);
                    read!(self.readers, reads => reads.listed_by_id(ReadKind::Tokens, after.as_deref(), limit))
                }

                async fn touch_tokens(&self, used: Vec<(String, Timestamp)>) -> Result<(), StoreError> {
                    changed!(self, DirectoryCall::TouchTokens(used), DirectoryReply::Done => ())
                }

                async fn add_user(&self, user: User) -> Result<UserOutcome, StoreError> {
                    changed!(self, DirectoryCall::AddUser(user), DirectoryReply::User(outcome) => outcome)
                }

                async fn replace_user(&self, user: User, expected: User) -> Result<UserOutcome, StoreError> {
                    let call = DirectoryCall::ReplaceUser { user, expected };
                    changed!(self, call, DirectoryReply::User(outcome) => outcome)
                }

                async fn remove_user(&self, id: &str) -> Result<bool, StoreError> {
                    let call = DirectoryCall::RemoveUser(id.to_owned());
                    changed!(self, call, DirectoryReply::Changed(changed) => changed)
                }

                async fn user(&self, id: &str) -> Result<Option<User>, StoreError> {
                    let id = id.to_owned();
                    read!(self.readers, reads => reads.found(ReadKind::User, &id))
                }

                async fn user_by_email(&self, email: &str) -> Result<Option<User>, StoreError> {
                    let email = email.to_owned();
                    read!(self.readers, reads => reads.found(ReadKind::UserByEmail, &email))
                }

                async fn users(
                    &self,
                    after: Option<&str>,
                    limit: usize,
                ) -> Result<Page<User, String>, StoreError> {
                    let after = after.map(str::to_owned);
                    read!(self.readers, reads => reads.listed_by_id(ReadKind::Users, after.as_deref(), limit))
                }

                async fn add_secret(&self, secret: StoredSecret) -> Result<bool, StoreError> {
                    let call = DirectoryCall::AddSecret(secret);
                    changed!(self, call, DirectoryReply::Changed(changed) => changed)
                }

                async fn replace_secret(
                    &self,
                    secret: StoredSecret,
                    expected_version: u64,
                ) -> Result<bool, StoreError> {
                    let call = DirectoryCall::ReplaceSecret { secret, expected_version };
                    changed!(self, call, DirectoryReply::Changed(changed) => changed)
                }

                async fn remove_secret(&self, name: &str) -> Result<bool, StoreError> {
                    let call = DirectoryCall::RemoveSecret(name.to_owned());
                    changed!(self, call, DirectoryReply::Changed(changed) => changed)
                }

                async fn secret(&self, name: &str) -> Result<Option<StoredSecret>, StoreError> {
                    let name = name.to_owned();
                    read!(self.readers, reads => reads.found(ReadKind::Secret, &name))
                }

                async fn secrets(
                    &self,
                    after: Option<&str>,
                    limit: usize,
                ) -> Result<Page<StoredSecret, String>, StoreError> {
                    let after = after.map(str::to_owned);
                    read!(self.readers, reads => reads.listed_by_id(ReadKind::Secrets, after.as_deref(), limit))
                }
            }
        };
    };
}
pub(crate) use serve_directory;
