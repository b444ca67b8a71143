//! Tokens, users, secrets and documents, the same for every database: their rows, and changes over the statements of
//! a dialect. [`crate::reads`] reads them.

mod row_writes;

pub(crate) use row_writes::{RowDialect, RowWrite, RowWrites};

use crate::audit::AuditStatements;
use crate::cells::{Cell, RowCells};
use crate::codes::document;
use crate::fault::Fault;
use crate::layout::{
    DOCUMENTS, DocumentColumns, SECRETS, SecretColumns, TOKENS, TokenColumns, USERS, UserColumns,
};
use crate::row_list::{List, row};
use crate::server::connection::{
    Argument, ServerAnswer, ServerCall, StatementVerb, Statements, TransactionFrame,
};
use async_trait::async_trait;
use punctual_core::ports::{
    AuditEntry, DirectoryChange, DirectoryOutcome, DocumentChange, DocumentKind, DocumentStep, Page,
    SealedValue, StoredDocument, StoredSecret, Token, User,
};
use punctual_core::time::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::slice;

/// A change of the directory, as a verb in an open transaction, which it commits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "changes are rare, and each exists only while it is applied")]
pub enum DirectoryCall {
    /// With the audit entry to store if the change takes effect.
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
    pub(crate) fn weight(&self) -> usize {
        match self {
            DirectoryCall::TouchTokens(used) => used.len().max(1),
            DirectoryCall::Change(DirectoryChange::Documents(changes), _) => changes.len().max(1),
            DirectoryCall::Change(..) => 1,
        }
    }
}

/// The statements of a dialect.
pub(crate) trait DirectoryStatements: AuditStatements {
    /// Given ids and times.
    const TOUCH_TOKENS: &'static str;
    const TOKEN: &'static str;
    /// The ids of users with this id or this email address.
    const HOLDERS: &'static str;
    /// All columns of a document, which cannot change until the transaction ends.
    const LOCK_DOCUMENT: &'static str;

    fn row_writes() -> &'static RowWrites;
}

#[async_trait]
impl<C: DirectoryStatements> StatementVerb<C> for DirectoryCall {
    type Reply = DirectoryReply;

    async fn perform(&self, connection: &mut C) -> Result<DirectoryReply, Fault> {
        match self {
            DirectoryCall::Change(change, entry) => {
                let outcome = apply(connection, change).await?;
                let entry = entry.as_ref().filter(|_| outcome == DirectoryOutcome::Done);
                connection.commit_entries(entry.map_or(&[], slice::from_ref)).await?;
                Ok(DirectoryReply::Changed(outcome))
            }
            DirectoryCall::TouchTokens(used) => {
                let used = List::of(last_uses(used).into_iter().map(|(id, at)| row![id, at]));
                let touch = ServerCall::new(C::TOUCH_TOKENS, [Argument::Rows(used)]);
                connection.send_one(TransactionFrame::Commit, touch).await?;
                Ok(DirectoryReply::Touched)
            }
        }
    }
}

/// Applies a change in an open transaction.
async fn apply<C: DirectoryStatements>(
    connection: &mut C,
    change: &DirectoryChange,
) -> Result<DirectoryOutcome, Fault> {
    use DirectoryOutcome::{Changed, Done, Exists, NotThere, Taken};
    use RowWrite::{Add, AddIfNew, Put, Remove, RemoveExpected, Replace};
    let writes = C::row_writes();
    Ok(match change {
        DirectoryChange::PutToken(token) => {
            write(connection, writes.call(&TOKENS, Put, &token_cells(token)?, &[])).await?;
            Done
        }
        DirectoryChange::AddToken(token) => {
            write(connection, writes.call(&TOKENS, AddIfNew, &token_cells(token)?, &[])).await?;
            let stored = send(connection, C::TOKEN, row![token.id.as_str()]).await?;
            match stored.rows.first().map(Token::read).transpose()?.filter(|stored| stored != token) {
                Some(stored) => Exists(Box::new(stored)),
                None => Done,
            }
        }
        DirectoryChange::ReplaceToken { token, expected } => {
            let replace = writes.call(&TOKENS, Replace, &token_cells(token)?, &token_cells(expected)?);
            change_row(connection, replace, Changed).await?
        }
        DirectoryChange::RemoveToken(id) => {
            change_row(connection, writes.call(&TOKENS, Remove, &row![id.as_str()], &[]), NotThere).await?
        }
        // If another node stores a user with the same email address at the same time, the statement fails with a
        // conflict, and the second run finds that user.
        DirectoryChange::AddUser(user) => {
            if !holders(connection, user).await?.is_empty() {
                return Ok(Taken);
            }
            write(connection, writes.call(&USERS, Add, &user_cells(user)?, &[])).await?;
            Done
        }
        DirectoryChange::ReplaceUser { user, expected } => {
            let holders = holders(connection, user).await?;
            if !holders.contains(&user.id) {
                return Ok(NotThere);
            }
            if holders.len() > 1 {
                return Ok(Taken);
            }
            let replace = writes.call(&USERS, Replace, &user_cells(user)?, &user_cells(expected)?);
            change_row(connection, replace, Changed).await?
        }
        DirectoryChange::RemoveUser { id, tokens } => {
            let removed =
                change_row(connection, writes.call(&USERS, Remove, &row![id.as_str()], &[]), NotThere)
                    .await?;
            if removed == Done {
                let ids = tokens.iter().map(|token| row![token.as_str()]);
                let removals = ids.map(|id| writes.call(&TOKENS, Remove, &id, &[])).collect();
                connection.send(TransactionFrame::None, removals).await?;
            }
            removed
        }
        DirectoryChange::AddSecret(secret) => {
            change_row(connection, writes.call(&SECRETS, AddIfNew, &secret_cells(secret)?, &[]), Taken)
                .await?
        }
        DirectoryChange::ReplaceSecret { secret, expected } => {
            let replace = writes.call(&SECRETS, Replace, &secret_cells(secret)?, &secret_cells(expected)?);
            change_row(connection, replace, Changed).await?
        }
        DirectoryChange::RemoveSecret(expected) => {
            let cells = secret_cells(expected)?;
            change_row(connection, writes.call(&SECRETS, RemoveExpected, &cells, &cells), Changed).await?
        }
        DirectoryChange::Documents(changes) => change_documents(connection, changes).await?,
    })
}

/// Locks the documents in the order of their ids, and changes all of them or none. If another node adds one of them at
/// the same time, the statement fails with a conflict, and the second run finds that document.
async fn change_documents<C: DirectoryStatements>(
    connection: &mut C,
    changes: &[DocumentChange],
) -> Result<DirectoryOutcome, Fault> {
    let changes: BTreeMap<String, &DocumentChange> = changes
        .iter()
        .map(|change| {
            let (kind, name) = change.key();
            (document_id(kind, name), change)
        })
        .collect();
    let mut steps = Vec::with_capacity(changes.len());
    for (id, change) in &changes {
        let stored = send(connection, C::LOCK_DOCUMENT, row![id.as_str()]).await?;
        let stored = stored.rows.first().map(DocumentRow::read).transpose()?;
        steps.push(change.step(stored.and_then(|row| row.document(change.key().0)).as_ref()));
    }
    if let Some(outcome) = DocumentStep::outcome(&steps) {
        return Ok(outcome);
    }
    let writes = changes.iter().map(|(id, change)| {
        let (write, row) = match change {
            DocumentChange::Add(document) => (RowWrite::Add, document_cells(document, id).to_vec()),
            DocumentChange::Replace(document) => (RowWrite::Replace, document_cells(document, id).to_vec()),
            DocumentChange::Remove { .. } => (RowWrite::Remove, row![id.as_str()].to_vec()),
        };
        C::row_writes().call(&DOCUMENTS, write, &row, &[])
    });
    connection.send(TransactionFrame::None, writes.collect()).await?;
    Ok(DirectoryOutcome::Done)
}

/// The key under which a document is stored. Kinds contain no slash.
pub(crate) fn document_id(kind: DocumentKind, name: &str) -> String {
    format!("{}/{name}", kind.word())
}

/// The ids of the users with the id or the email address of this one.
async fn holders<C: DirectoryStatements>(connection: &mut C, user: &User) -> Result<Vec<String>, Fault> {
    send(connection, C::HOLDERS, row![user.id.as_str(), user.email.as_str()]).await?.column()
}

/// Runs a statement that writes one row, or none: then the outcome is `otherwise`.
async fn change_row<C: Statements>(
    connection: &mut C,
    call: ServerCall<'_>,
    otherwise: DirectoryOutcome,
) -> Result<DirectoryOutcome, Fault> {
    Ok(if write(connection, call).await? > 0 { DirectoryOutcome::Done } else { otherwise })
}

/// Returns how many rows were written.
async fn write<C: Statements>(connection: &mut C, call: ServerCall<'_>) -> Result<u64, Fault> {
    Ok(connection.send_one(TransactionFrame::None, call).await?.count)
}

async fn send<C: Statements, const N: usize>(
    connection: &mut C,
    sql: &'static str,
    values: [Cell<'_>; N],
) -> Result<ServerAnswer<C::Row>, Fault> {
    connection.send_one(TransactionFrame::None, ServerCall::new(sql, values.map(Argument::Value))).await
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

/// A stored document, of any kind.
#[derive(Debug)]
pub(crate) struct DocumentRow {
    id: String,
    version: u64,
    body: String,
}

impl DirectoryRow for DocumentRow {
    const ABOUT: usize = DOCUMENTS.at("body");

    fn read(row: &(impl RowCells + ?Sized)) -> Result<Self, Fault> {
        let columns = DocumentColumns::read(row, 0)?;
        Ok(DocumentRow {
            id: columns.id.into_owned(),
            version: columns.version,
            body: columns.body.into_owned(),
        })
    }

    fn id(&self) -> &str {
        &self.id
    }
}

impl DocumentRow {
    /// The document, if it is of this kind.
    pub fn document(self, kind: DocumentKind) -> Option<StoredDocument> {
        let name = self.id.strip_prefix(kind.word())?.strip_prefix('/')?.to_owned();
        Some(StoredDocument { kind, name, version: self.version, body: self.body })
    }

    /// The documents of a kind at the beginning of a page: those of other kinds follow them.
    pub fn page(kind: DocumentKind, page: Page<DocumentRow, String>) -> Page<StoredDocument, String> {
        let rows = page.items.len();
        let items: Vec<_> = page.items.into_iter().map_while(|row| row.document(kind)).collect();
        let is_cut = items.len() < rows || page.next.is_none();
        let next = items.last().filter(|_| !is_cut).map(|document| document.name.clone());
        Page { items, next }
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

// All columns, in the order of the layout.

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

fn user_cells(user: &User) -> Result<[Cell<'_>; USERS.columns.len()], Fault> {
    let columns = UserColumns {
        id: user.id.as_str().into(),
        email: user.email.as_str().into(),
        role: user.role,
        created_at: user.created_at,
        about: about_column(&user.about)?,
    };
    Ok(columns.into_cells())
}

fn secret_cells(secret: &StoredSecret) -> Result<[Cell<'_>; SECRETS.columns.len()], Fault> {
    let columns = SecretColumns {
        id: secret.name.as_str().into(),
        version: secret.version,
        key_id: secret.sealed.key_id.as_str().into(),
        sealed: secret.sealed.text.as_str().into(),
        about: serde_json::to_string(&secret.about)?.into(),
    };
    Ok(columns.into_cells())
}

fn document_cells<'a>(document: &'a StoredDocument, id: &'a str) -> [Cell<'a>; DOCUMENTS.columns.len()] {
    let columns =
        DocumentColumns { id: id.into(), version: document.version, body: document.body.as_str().into() };
    columns.into_cells()
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
            use crate::directory::{DirectoryCall, DirectoryReply, DocumentRow, document_id};
            use crate::reads::ReadKind;
            use async_trait::async_trait;
            use punctual_core::ports::{
                AuditEntry, Directory, DirectoryChange, DirectoryOutcome, DocumentKind, Page, StoreError,
                StoredDocument, StoredSecret, Token, User,
            };
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
                    changed!(self, DirectoryCall::TouchTokens(used), DirectoryReply::Touched => ())
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

                async fn document(
                    &self,
                    kind: DocumentKind,
                    name: &str,
                ) -> Result<Option<StoredDocument>, StoreError> {
                    let id = document_id(kind, name);
                    let row: Option<DocumentRow> =
                        read!(self.readers, reads => reads.found(ReadKind::Document, &id))?;
                    Ok(row.and_then(|row| row.document(kind)))
                }

                async fn documents(
                    &self,
                    kind: DocumentKind,
                    after: Option<&str>,
                    limit: usize,
                ) -> Result<Page<StoredDocument, String>, StoreError> {
                    let after = document_id(kind, after.unwrap_or_default());
                    let page: Page<DocumentRow, String> =
                        read!(self.readers, reads => reads.listed_by_id(ReadKind::Documents, Some(&after), limit))?;
                    Ok(DocumentRow::page(kind, page))
                }
            }
        };
    };
}
pub(crate) use serve_directory;
