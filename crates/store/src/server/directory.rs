//! Tokens, users and secrets on a database server.

use super::connection::{Argument, ServerAnswer, ServerCall, ServerConnection, retry_conflicts, value};
use super::list::{List, row};
use super::maintenance::{Maintenance, MaintenanceStatements};
use crate::cells::Cell;
use crate::directory::{
    DirectoryRow, UserStoring, last_uses, replaced_secret, replaced_token, replaced_user, secret_cells,
    token_cells, user_cells,
};
use crate::fault::Fault;
use punctual_core::ports::{StoredSecret, Token, User, UserOutcome};
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
    pub async fn put_token(&self, token: &Token) -> Result<(), Fault> {
        self.change(C::PUT_TOKEN, token_cells(token)?).await.map(drop)
    }

    /// Stores a token unless one with its id exists. Returns the stored one.
    pub async fn add_token(&self, token: &Token) -> Result<Token, Fault> {
        self.change(C::ADD_TOKEN, token_cells(token)?).await?;
        // The state after the commit is the same for all nodes.
        let stored = self.change(C::TOKEN, row![token.id.as_str()]).await?;
        let missing = || Fault::Missing(format!("the token {}", token.id));
        Token::read(stored.rows.first().ok_or_else(missing)?)
    }

    pub async fn replace_token(&self, token: &Token, expected_secret: [u8; 32]) -> Result<bool, Fault> {
        Ok(self.change(C::REPLACE_TOKEN, replaced_token(token, expected_secret)?).await?.count > 0)
    }

    pub async fn remove_token(&self, id: &str) -> Result<bool, Fault> {
        Ok(self.change(C::REMOVE_TOKEN, row![id]).await?.count > 0)
    }

    pub async fn touch_tokens(&self, used: &[(String, Timestamp)]) -> Result<(), Fault> {
        let used = List::of(last_uses(used).into_iter().map(|(id, at)| row![id, at]));
        let call = ServerCall::new(C::TOUCH_TOKENS, [Argument::Rows(used)]);
        retry_conflicts!(TRIES, self.probe.send(call.clone())).map(drop)
    }

    /// If another node stores a user with the same email address at the same time, the second run finds it.
    pub async fn add_user(&self, user: &User) -> Result<UserOutcome, Fault> {
        retry_conflicts!(TRIES, self.try_add_user(user))
    }

    async fn try_add_user(&self, user: &User) -> Result<UserOutcome, Fault> {
        if let Some(refusal) = self.user_refusal(user, UserStoring::Add).await? {
            return Ok(refusal);
        }
        self.probe.send(ServerCall::new(C::ADD_USER, user_cells(user)?.map(Argument::Value))).await?;
        Ok(UserOutcome::Stored)
    }

    pub async fn replace_user(&self, user: &User, expected: &User) -> Result<UserOutcome, Fault> {
        retry_conflicts!(TRIES, self.try_replace_user(user, expected))
    }

    async fn try_replace_user(&self, user: &User, expected: &User) -> Result<UserOutcome, Fault> {
        if let Some(refusal) = self.user_refusal(user, UserStoring::Replace).await? {
            return Ok(refusal);
        }
        let values = replaced_user(user, expected)?.map(Argument::Value);
        let stored = self.probe.send(ServerCall::new(C::REPLACE_USER, values)).await?;
        Ok(if stored.count > 0 { UserOutcome::Stored } else { UserOutcome::Changed })
    }

    async fn user_refusal(&self, user: &User, storing: UserStoring) -> Result<Option<UserOutcome>, Fault> {
        let key = [value(user.id.as_str()), value(user.email.as_str())];
        let holders = self.probe.send(ServerCall::new(C::HOLDERS, key)).await?.column::<String>()?;
        Ok(storing.refusal(user, &holders))
    }

    pub async fn remove_user(&self, id: &str) -> Result<bool, Fault> {
        Ok(self.change(C::REMOVE_USER, row![id]).await?.count > 0)
    }

    pub async fn add_secret(&self, secret: &StoredSecret) -> Result<bool, Fault> {
        Ok(self.change(C::ADD_SECRET, secret_cells(secret)?).await?.count > 0)
    }

    pub async fn replace_secret(&self, secret: &StoredSecret, expected: u64) -> Result<bool, Fault> {
        Ok(self.change(C::REPLACE_SECRET, replaced_secret(secret, expected)?).await?.count > 0)
    }

    pub async fn remove_secret(&self, name: &str) -> Result<bool, Fault> {
        Ok(self.change(C::REMOVE_SECRET, row![name]).await?.count > 0)
    }

    async fn change<const N: usize>(
        &self,
        sql: &'static str,
        values: [Cell<'_>; N],
    ) -> Result<ServerAnswer<C::Row>, Fault> {
        let call = ServerCall::new(sql, values.map(Argument::Value));
        retry_conflicts!(TRIES, self.probe.send(call.clone()))
    }
}

/// The `Directory` port of a server store.
macro_rules! serve_directory {
    ($store:ty) => {
        const _: () = {
            use crate::server::reads::ServerQuery;
            use async_trait::async_trait;
            use punctual_core::ports::{Directory, Page, StoreError, StoredSecret, Token, User, UserOutcome};
            use punctual_core::time::Timestamp;

            #[async_trait]
            impl Directory for $store {
                async fn put_token(&self, token: Token) -> Result<(), StoreError> {
                    Ok(self.maintenance.put_token(&token).await?)
                }

                async fn add_token(&self, token: Token) -> Result<Token, StoreError> {
                    Ok(self.maintenance.add_token(&token).await?)
                }

                async fn replace_token(&self, token: Token, expected: [u8; 32]) -> Result<bool, StoreError> {
                    Ok(self.maintenance.replace_token(&token, expected).await?)
                }

                async fn remove_token(&self, id: &str) -> Result<bool, StoreError> {
                    Ok(self.maintenance.remove_token(id).await?)
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

                async fn add_user(&self, user: User) -> Result<UserOutcome, StoreError> {
                    Ok(self.maintenance.add_user(&user).await?)
                }

                async fn replace_user(&self, user: User, expected: User) -> Result<UserOutcome, StoreError> {
                    Ok(self.maintenance.replace_user(&user, &expected).await?)
                }

                async fn remove_user(&self, id: &str) -> Result<bool, StoreError> {
                    Ok(self.maintenance.remove_user(id).await?)
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

                async fn add_secret(&self, secret: StoredSecret) -> Result<bool, StoreError> {
                    Ok(self.maintenance.add_secret(&secret).await?)
                }

                async fn replace_secret(
                    &self,
                    secret: StoredSecret,
                    expected_version: u64,
                ) -> Result<bool, StoreError> {
                    Ok(self.maintenance.replace_secret(&secret, expected_version).await?)
                }

                async fn remove_secret(&self, name: &str) -> Result<bool, StoreError> {
                    Ok(self.maintenance.remove_secret(name).await?)
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
