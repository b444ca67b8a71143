//! Tokens, users and secrets on a database server.

use super::changes::{TableChange, audit};
use super::connection::{
    Argument, ServerAnswer, ServerCall, ServerConnection, TransactionFrame, retry_conflicts, value,
};
use super::list::{List, row};
use super::maintenance::{Maintenance, MaintenanceStatements};
use crate::cells::Cell;
use crate::directory::{
    DirectoryRow, UserStoring, last_uses, removed_secret, replaced_secret, replaced_token, replaced_user,
    secret_cells, token_cells, user_cells,
};
use crate::fault::Fault;
use punctual_core::ports::{AuditEntry, DirectoryChange, DirectoryOutcome, Token, User};
use punctual_core::time::Timestamp;

/// The statements of a dialect. The values of tokens and users are in the order of [`crate::directory`].
pub(crate) trait DirectoryStatements: ServerConnection {
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

/// How often a change is run because of conflicts.
const TRIES: u32 = 12;

impl<C: MaintenanceStatements + DirectoryStatements> Maintenance<C> {
    /// If another node stores a user with the same email address at the same time, the second run finds it.
    pub async fn change_directory(
        &self,
        change: &DirectoryChange,
        entry: Option<&AuditEntry>,
    ) -> Result<DirectoryOutcome, Fault> {
        retry_conflicts!(TRIES, self.try_change_directory(change, entry))
    }

    async fn try_change_directory(
        &self,
        change: &DirectoryChange,
        entry: Option<&AuditEntry>,
    ) -> Result<DirectoryOutcome, Fault> {
        let mut used = self.probe.begin().await?;
        let outcome = apply(&mut used.connection, change).await?;
        let entries =
            entry.filter(|_| outcome == DirectoryOutcome::Done).map_or(&[][..], std::slice::from_ref);
        used.connection.commit_changes(vec![], vec![(TableChange::InsertAudit, audit(entries))]).await?;
        used.keep();
        Ok(outcome)
    }

    pub async fn touch_tokens(&self, used: &[(String, Timestamp)]) -> Result<(), Fault> {
        let used = List::of(last_uses(used).into_iter().map(|(id, at)| row![id, at]));
        let call = ServerCall::new(C::TOUCH_TOKENS, [Argument::Rows(used)]);
        retry_conflicts!(TRIES, self.probe.send(call.clone())).map(drop)
    }
}

/// Applies a change in an open transaction.
async fn apply<C: DirectoryStatements>(
    connection: &mut C,
    change: &DirectoryChange,
) -> Result<DirectoryOutcome, Fault> {
    use DirectoryOutcome::{Changed, Done, Exists, NotThere, Taken};
    Ok(match change {
        DirectoryChange::PutToken(token) => {
            send(connection, C::PUT_TOKEN, token_cells(token)?).await?;
            Done
        }
        DirectoryChange::AddToken(token) => {
            send(connection, C::ADD_TOKEN, token_cells(token)?).await?;
            let stored = send(connection, C::TOKEN, row![token.id.as_str()]).await?;
            match stored.rows.first().map(Token::read).transpose()?.filter(|stored| stored != token) {
                Some(stored) => Exists(Box::new(stored)),
                None => Done,
            }
        }
        DirectoryChange::ReplaceToken { token, expected } => {
            let replaced = send(connection, C::REPLACE_TOKEN, replaced_token(token, expected)?).await?;
            if replaced.count > 0 { Done } else { Changed }
        }
        DirectoryChange::RemoveToken(id) => {
            let removed = send(connection, C::REMOVE_TOKEN, row![id.as_str()]).await?;
            if removed.count > 0 { Done } else { NotThere }
        }
        DirectoryChange::AddUser(user) => match user_refusal(connection, user, UserStoring::Add).await? {
            Some(refusal) => refusal,
            None => {
                send(connection, C::ADD_USER, user_cells(user)?).await?;
                Done
            }
        },
        DirectoryChange::ReplaceUser { user, expected } => {
            if let Some(refusal) = user_refusal(connection, user, UserStoring::Replace).await? {
                return Ok(refusal);
            }
            let replaced = send(connection, C::REPLACE_USER, replaced_user(user, expected)?).await?;
            if replaced.count > 0 { Done } else { Changed }
        }
        DirectoryChange::RemoveUser { id, tokens } => {
            let removed = send(connection, C::REMOVE_USER, row![id.as_str()]).await?;
            if removed.count == 0 {
                return Ok(NotThere);
            }
            let removals =
                tokens.iter().map(|token| ServerCall::new(C::REMOVE_TOKEN, [value(token.as_str())]));
            connection.send(TransactionFrame::None, removals.collect()).await?;
            Done
        }
        DirectoryChange::AddSecret(secret) => {
            let added = send(connection, C::ADD_SECRET, secret_cells(secret)?).await?;
            if added.count > 0 { Done } else { Taken }
        }
        DirectoryChange::ReplaceSecret { secret, expected } => {
            let values = replaced_secret(secret, expected)?;
            if send(connection, C::REPLACE_SECRET, values).await?.count > 0 { Done } else { Changed }
        }
        DirectoryChange::RemoveSecret(expected) => {
            let removed = send(connection, C::REMOVE_SECRET, removed_secret(expected)?).await?;
            if removed.count > 0 { Done } else { Changed }
        }
    })
}

async fn user_refusal<C: DirectoryStatements>(
    connection: &mut C,
    user: &User,
    storing: UserStoring,
) -> Result<Option<DirectoryOutcome>, Fault> {
    let holders = send(connection, C::HOLDERS, row![user.id.as_str(), user.email.as_str()]).await?;
    Ok(storing.refusal(user, &holders.column::<String>()?))
}

async fn send<C: DirectoryStatements, const N: usize>(
    connection: &mut C,
    sql: &'static str,
    values: [Cell<'_>; N],
) -> Result<ServerAnswer<C::Row>, Fault> {
    connection.send_one(TransactionFrame::None, ServerCall::new(sql, values.map(Argument::Value))).await
}

/// The `Directory` port of a server store.
macro_rules! serve_directory {
    ($store:ty) => {
        const _: () = {
            use crate::server::reads::ServerQuery;
            use async_trait::async_trait;
            use punctual_core::ports::{
                AuditEntry, Directory, DirectoryChange, DirectoryOutcome, Page, StoreError, StoredSecret,
                Token, User,
            };
            use punctual_core::time::Timestamp;

            #[async_trait]
            impl Directory for $store {
                async fn change_directory(
                    &self,
                    change: DirectoryChange,
                    entry: Option<AuditEntry>,
                ) -> Result<DirectoryOutcome, StoreError> {
                    Ok(self.maintenance.change_directory(&change, entry.as_ref()).await?)
                }

                async fn token(&self, id: &str) -> Result<Option<Token>, StoreError> {
                    read!(self.readers, reads => reads.found(ServerQuery::Token, id))
                }

                async fn tokens(
                    &self,
                    after: Option<&str>,
                    limit: usize,
                ) -> Result<Page<Token, String>, StoreError> {
                    read!(self.readers, reads => reads.listed_by_id(ServerQuery::Tokens, after, limit))
                }

                async fn touch_tokens(&self, used: Vec<(String, Timestamp)>) -> Result<(), StoreError> {
                    Ok(self.maintenance.touch_tokens(&used).await?)
                }

                async fn user(&self, id: &str) -> Result<Option<User>, StoreError> {
                    read!(self.readers, reads => reads.found(ServerQuery::User, id))
                }

                async fn user_by_email(&self, email: &str) -> Result<Option<User>, StoreError> {
                    read!(self.readers, reads => reads.found(ServerQuery::UserByEmail, email))
                }

                async fn users(
                    &self,
                    after: Option<&str>,
                    limit: usize,
                ) -> Result<Page<User, String>, StoreError> {
                    read!(self.readers, reads => reads.listed_by_id(ServerQuery::Users, after, limit))
                }

                async fn secret(&self, name: &str) -> Result<Option<StoredSecret>, StoreError> {
                    read!(self.readers, reads => reads.found(ServerQuery::Secret, name))
                }

                async fn secrets(
                    &self,
                    after: Option<&str>,
                    limit: usize,
                ) -> Result<Page<StoredSecret, String>, StoreError> {
                    read!(self.readers, reads => reads.listed_by_id(ServerQuery::Secrets, after, limit))
                }
            }
        };
    };
}
pub(crate) use serve_directory;
