//! Tokens and users: who may use the server. Only callers without a limited scope may manage them, and no
//! caller can grant a permission that it lacks itself.

use super::audit::{SESSION_CLOSE, described_token, described_user};
use super::cursor_key::CURSOR_KEY;
use super::table::UseCase;
use super::{Forbidden, UseCaseError, UseCases};
use punctual_core::access::{Grant, GrantRequest, GrantTerms, Role};
use punctual_core::job::InvalidField;
use punctual_core::limits;
use punctual_core::names::{line_problem, name_problem, path_name_problem};
use punctual_core::ports::{
    AuditEntry, DirectoryChange, DirectoryOutcome, Page, ReplacedSecret, StoreError, Token, TokenAbout, User,
    UserAbout,
};
use punctual_core::time::Timestamp;
use serde_json::json;
use std::fmt;
use std::time::Duration;

/// How often a change is computed again because the token or user was changed concurrently.
const CHANGE_TRIES_MAX: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    pub name: String,
    /// `None` for a token of a user, which has the grant of the user.
    pub grant: Option<GrantRequest>,
    pub user: Option<String>,
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUser {
    pub email: String,
    pub display_name: Option<String>,
    pub notification_channel: Option<String>,
    pub grant: GrantRequest,
}

/// A token's id and the hash of its secret. The secret is known only to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub token_id: String,
    pub secret_sha256: [u8; 32],
}

impl UseCases {
    pub async fn tokens(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Token, String>, UseCaseError> {
        self.permit(UseCase::ReadTokens)?;
        let mut page = self.store().tokens(after, limit).await?;
        page.items.retain(|token| token.id != CURSOR_KEY);
        Ok(page)
    }

    pub async fn token(&self, id: &str) -> Result<Token, UseCaseError> {
        self.permit_on(UseCase::ReadTokens, format_args!("token {id}"))?;
        self.stored_token(id).await
    }

    /// Stores a token with these credentials.
    pub async fn create_token(&self, new: NewToken, credentials: Credentials) -> Result<Token, UseCaseError> {
        self.permit_on(UseCase::CreateToken, format_args!("token named {}", new.name))?;
        let now = self.now();
        let object = format!("token named {}", new.name);
        let (role, terms) = self.checked_token(UseCase::CreateToken, &object, &new, None).await?;
        let count = self.all_tokens().await?.iter().filter(|token| !token.about.is_browser).count();
        check_room(count, limits::TOKENS_MAX, "tokens")?;
        let token = Token {
            expires_at: new.expires_at,
            about: TokenAbout { name: new.name, terms, user: new.user, ..TokenAbout::default() },
            ..Token::new(credentials.token_id, credentials.secret_sha256, role, now)
        };
        let after = json!({ "after": described_token(&token) });
        let entry = self.audited_with(UseCase::CreateToken, format_args!("token {}", token.id), &after);
        match self.change(DirectoryChange::AddToken(token.clone()), entry).await? {
            DirectoryOutcome::Done => Ok(token),
            // Ids are random: another one will be free.
            _ => Err(UseCaseError::Busy),
        }
    }

    /// Applies a change with its entry.
    async fn change(
        &self,
        change: DirectoryChange,
        entry: Option<AuditEntry>,
    ) -> Result<DirectoryOutcome, StoreError> {
        self.store().change_directory(change, entry).await
    }

    /// The role and terms of a token, if the caller may grant them and nothing is wrong with it. An expiry that it
    /// has already may be over.
    async fn checked_token(
        &self,
        case: UseCase,
        object: &str,
        new: &NewToken,
        expires_at: Option<Timestamp>,
    ) -> Result<(Role, GrantTerms), UseCaseError> {
        let mut problems: Vec<InvalidField> =
            name_problem(&new.name).map(|fix| InvalidField::new("name", fix)).into_iter().collect();
        if new.expires_at != expires_at && new.expires_at.is_some_and(|at| at <= self.now()) {
            problems.push(InvalidField::new("expires_at", "must be in the future"));
        }
        let checked = match (new.grant.clone(), &new.user) {
            (Some(grant), None) => (grant.role, self.checked(case, object, grant, &new.name, &mut problems)?),
            (None, Some(id)) => {
                let fix = "must be the id of a user: see `punctual user list`";
                let user = self.user_by_id(id).await?.ok_or_else(|| UseCaseError::invalid("user_id", fix))?;
                self.check_grantable(case, object, &user.grant())?;
                (user.role, GrantTerms::default())
            }
            _ => {
                let fix = "must be given for a token of its own, and not for a token of a user";
                return Err(UseCaseError::invalid("role", fix));
            }
        };
        if problems.is_empty() { Ok(checked) } else { Err(UseCaseError::Invalid(problems)) }
    }

    /// Replaces the description of a token by what `make` computes from the stored one. If the token has changed
    /// meanwhile, it computes it again. The sessions of workers that it no longer allows end.
    pub async fn update_token<E: From<UseCaseError>>(
        &self,
        id: &str,
        make: impl Fn(&Token) -> Result<NewToken, E>,
    ) -> Result<Token, E> {
        let object = format!("token {id}");
        self.permit_on(UseCase::UpdateToken, &object).map_err(UseCaseError::from)?;
        let _one_at_a_time = self.directory_changes.lock().await;
        for _ in 0..CHANGE_TRIES_MAX {
            let stored = self.stored_token(id).await?;
            if stored.about.is_browser {
                return Err(UseCaseError::NoSuchToken(id.to_owned()).into());
            }
            if let Some(grant) = self.grant_of(&stored).await.map_err(UseCaseError::from)? {
                let refused = self.check_grantable(UseCase::UpdateToken, &object, &grant);
                refused.map_err(UseCaseError::from)?;
            }
            let new = make(&stored)?;
            let (role, terms) =
                self.checked_token(UseCase::UpdateToken, &object, &new, stored.expires_at).await?;
            let about = TokenAbout { name: new.name, terms, ..stored.about.clone() };
            let token = Token { role, expires_at: new.expires_at, about, ..stored.clone() };
            if token.expires_at.is_some() || !token.grant().is_everything() {
                self.check_not_last(UseCase::UpdateToken, &object, |other| other.id == token.id).await?;
            }
            let details = json!({ "before": described_token(&stored), "after": described_token(&token) });
            let entry = self.audited_with(UseCase::UpdateToken, &object, &details);
            let change = DirectoryChange::ReplaceToken { token: token.clone(), expected: stored };
            let outcome = self.change(change, entry).await.map_err(UseCaseError::from)?;
            if outcome == DirectoryOutcome::Done {
                if token.about.user.is_none() {
                    let owners = self.session_owners_of_token(id).await?;
                    self.lose_sessions(&owners, Some(&token.grant())).await?;
                }
                return Ok(token);
            }
        }
        Err(UseCaseError::Busy.into())
    }

    /// Gives a token another secret. The old one works until `overlap` has passed; without an overlap, the sessions of
    /// its workers end. With `expires_at`, it also gets another expiry.
    pub async fn rotate_token(
        &self,
        id: &str,
        secret_sha256: [u8; 32],
        overlap: Duration,
        expires_at: Option<Timestamp>,
    ) -> Result<Token, UseCaseError> {
        let object = format!("token {id}");
        self.permit_on(UseCase::RotateToken, &object)?;
        if overlap > limits::TOKEN_OVERLAP_MAX {
            let days = limits::TOKEN_OVERLAP_MAX.as_secs() / 86_400;
            return Err(UseCaseError::invalid("overlap", format!("must be at most {days} days")));
        }
        if expires_at.is_some_and(|at| at <= self.now()) {
            return Err(UseCaseError::invalid("expires_at", "must be in the future"));
        }
        let _one_at_a_time = self.directory_changes.lock().await;
        for _ in 0..CHANGE_TRIES_MAX {
            let stored = self.stored_token(id).await?;
            if stored.about.is_browser {
                return Err(UseCaseError::NoSuchToken(id.to_owned()));
            }
            if expires_at.is_some() {
                self.check_not_last(UseCase::RotateToken, &object, |other| other.id == stored.id).await?;
            }
            if let Some(grant) = self.grant_of(&stored).await? {
                self.check_grantable(UseCase::RotateToken, &object, &grant)?;
            }
            // A token has one old secret at most. A second rotation would end the first one before its time.
            if let Some(older) = stored.about.replaced.as_ref().filter(|older| older.until > self.now())
                && !overlap.is_zero()
            {
                let fix = format!(
                    "must be 0s, which ends all old secrets at once: the one before the last rotation works until {}",
                    older.until
                );
                return Err(UseCaseError::invalid("overlap", fix));
            }
            let until = self.now().plus(overlap);
            let old = ReplacedSecret { secret_sha256: stored.secret_sha256, until };
            let about = TokenAbout { replaced: (!overlap.is_zero()).then_some(old), ..stored.about.clone() };
            let expires_at = expires_at.or(stored.expires_at);
            let token = Token { secret_sha256, expires_at, about, ..stored.clone() };
            let details = json!({ "old_secret_until": until, "expires_at": expires_at });
            let entry = self.audited_with(UseCase::RotateToken, &object, &details);
            let change = DirectoryChange::ReplaceToken { token: token.clone(), expected: stored };
            if self.change(change, entry).await? == DirectoryOutcome::Done {
                if overlap.is_zero() {
                    self.lose_sessions(&self.session_owners_of_token(id).await?, None).await?;
                }
                return Ok(token);
            }
        }
        Err(UseCaseError::Busy)
    }

    /// Removes a token, and ends the sessions of workers that it has opened: what they run is lost and
    /// retried.
    pub async fn revoke_token(&self, id: &str) -> Result<(), UseCaseError> {
        let object = format!("token {id}");
        self.permit_on(UseCase::RevokeToken, &object)?;
        if !is_id(id) {
            return Err(UseCaseError::NoSuchToken(id.to_owned()));
        }
        let _one_at_a_time = self.directory_changes.lock().await;
        let stored = self.store().token(id).await?;
        if let Some(token) = &stored
            && let Some(grant) = self.grant_of(token).await?
        {
            if token.id != self.caller.token_id {
                self.check_grantable(UseCase::RevokeToken, &object, &grant)?;
            }
            if !token.about.is_browser {
                self.check_not_last(UseCase::RevokeToken, &object, |other| other.id == token.id).await?;
            }
        }
        self.remove_token(id, self.audited(UseCase::RevokeToken, object)).await?;
        Ok(self.forget_views_of_token(id).await?)
    }

    /// Refuses a change that takes away the last token with which everything can be granted. `is_gone` selects
    /// the tokens that the change takes away or limits.
    async fn check_not_last(
        &self,
        case: UseCase,
        object: &str,
        is_gone: impl Fn(&Token) -> bool,
    ) -> Result<(), UseCaseError> {
        let (mut are_gone, mut remain) = (false, false);
        for token in self.all_tokens().await? {
            if self.may_always_do_everything(&token).await? {
                *(if is_gone(&token) { &mut are_gone } else { &mut remain }) = true;
            }
        }
        if !are_gone || remain {
            return Ok(());
        }
        let error = UseCaseError::LastAdmin(object.to_owned());
        self.note_refusal(case, object.to_owned(), &error.to_string());
        Err(error)
    }

    /// Tokens that end by themselves do not count.
    async fn may_always_do_everything(&self, token: &Token) -> Result<bool, StoreError> {
        if token.about.is_browser || token.expires_at.is_some() {
            return Ok(false);
        }
        let (grant, is_disabled) = match &token.about.user {
            None => (token.grant(), false),
            Some(id) => match self.store().user(id).await? {
                Some(user) => (user.grant(), user.about.is_disabled),
                None => return Ok(false),
            },
        };
        Ok(grant.is_everything() && !is_disabled)
    }

    /// All tokens. The table is small.
    pub(super) async fn all_tokens(&self) -> Result<Vec<Token>, StoreError> {
        let (mut tokens, mut after) = (Vec::new(), None);
        loop {
            let page = self.store().tokens(after.as_deref(), limits::PAGE_ITEMS_MAX).await?;
            tokens.extend(page.items.into_iter().filter(|token| token.id != CURSOR_KEY));
            after = page.next;
            if after.is_none() {
                return Ok(tokens);
            }
        }
    }

    /// What a token may do, or could do if its user were not disabled; `None` if its user is gone.
    async fn grant_of(&self, token: &Token) -> Result<Option<Grant>, StoreError> {
        let Some(id) = &token.about.user else { return Ok(Some(token.grant())) };
        Ok(self.store().user(id).await?.map(|user| user.grant()))
    }

    /// Removes the caller's own token: how a browser logs out.
    pub async fn log_out(&self) -> Result<(), UseCaseError> {
        let id = &self.caller.token_id;
        self.remove_token(id, Some(self.session_entry(SESSION_CLOSE, id, None))).await
    }

    async fn remove_token(&self, id: &str, entry: Option<AuditEntry>) -> Result<(), UseCaseError> {
        let owners = self.session_owners_of_token(id).await?;
        let removed = self.change(DirectoryChange::RemoveToken(id.to_owned()), entry).await?;
        let existed = removed == DirectoryOutcome::Done;
        // Also if it was removed before: an earlier call may have been interrupted.
        self.lose_sessions(&owners, None).await?;
        if existed { Ok(()) } else { Err(UseCaseError::NoSuchToken(id.to_owned())) }
    }

    async fn stored_token(&self, id: &str) -> Result<Token, UseCaseError> {
        let token = if is_id(id) { self.store().token(id).await? } else { None };
        token.ok_or_else(|| UseCaseError::NoSuchToken(id.to_owned()))
    }

    pub async fn users(&self, after: Option<&str>, limit: usize) -> Result<Page<User, String>, UseCaseError> {
        self.permit(UseCase::ReadUsers)?;
        Ok(self.store().users(after, limit).await?)
    }

    /// A user by id or email address.
    pub async fn user(&self, id: &str) -> Result<User, UseCaseError> {
        self.permit_on(UseCase::ReadUsers, format_args!("user {id}"))?;
        self.stored_user(id).await
    }

    pub async fn add_user(&self, id: String, new: NewUser) -> Result<User, UseCaseError> {
        self.permit_on(UseCase::AddUser, format_args!("user {}", new.email))?;
        check_room(self.count_users().await?, limits::USERS_MAX, "users")?;
        let user = self.checked_user(UseCase::AddUser, id, self.now(), new, false)?;
        let after = json!({ "after": described_user(&user) });
        let entry = self.audited_with(UseCase::AddUser, format_args!("user {}", user.id), &after);
        match self.change(DirectoryChange::AddUser(user.clone()), entry).await? {
            DirectoryOutcome::Done => Ok(user),
            _ => Err(UseCaseError::EmailTaken(user.email)),
        }
    }

    /// Replaces the description of a user by what `make` computes from the stored one. If the user has changed
    /// meanwhile, it computes it again. The sessions of workers that the user no longer allows end.
    pub async fn update_user<E: From<UseCaseError>>(
        &self,
        id: &str,
        make: impl Fn(&User) -> Result<(NewUser, bool), E>,
    ) -> Result<User, E> {
        self.permit_on(UseCase::UpdateUser, format_args!("user {id}")).map_err(UseCaseError::from)?;
        let _one_at_a_time = self.directory_changes.lock().await;
        for _ in 0..CHANGE_TRIES_MAX {
            let stored = self.stored_user(id).await?;
            let object = format!("user {}", stored.id);
            let refused = self.check_grantable(UseCase::UpdateUser, &object, &stored.grant());
            refused.map_err(UseCaseError::from)?;
            let (new, is_disabled) = make(&stored)?;
            let user = self.checked_user(
                UseCase::UpdateUser,
                stored.id.clone(),
                stored.created_at,
                new,
                is_disabled,
            )?;
            if is_disabled || !user.grant().is_everything() {
                self.check_user_not_last(UseCase::UpdateUser, &stored).await?;
            }
            let details = json!({ "before": described_user(&stored), "after": described_user(&user) });
            let entry = self.audited_with(UseCase::UpdateUser, object, &details);
            let change = DirectoryChange::ReplaceUser { user: user.clone(), expected: stored };
            match self.change(change, entry).await.map_err(UseCaseError::from)? {
                DirectoryOutcome::Done => {
                    let grant = user.grant();
                    let owners = self.session_owners_of_user(&user.id).await?;
                    self.lose_sessions(&owners, (!is_disabled).then_some(&grant)).await?;
                    return Ok(user);
                }
                DirectoryOutcome::Taken => return Err(UseCaseError::EmailTaken(user.email).into()),
                DirectoryOutcome::NotThere => return Err(UseCaseError::NoSuchUser(id.to_owned()).into()),
                DirectoryOutcome::Changed | DirectoryOutcome::Exists(_) => {}
            }
        }
        Err(UseCaseError::Busy.into())
    }

    async fn check_user_not_last(&self, case: UseCase, user: &User) -> Result<(), UseCaseError> {
        let object = format!("user {}", user.id);
        self.check_not_last(case, &object, |token| token.about.user.as_ref() == Some(&user.id)).await
    }

    /// Removes a user and the tokens that belong to it, and ends the sessions of workers that they have opened.
    pub async fn remove_user(&self, id: &str) -> Result<(), UseCaseError> {
        self.permit_on(UseCase::RemoveUser, format_args!("user {id}"))?;
        let _one_at_a_time = self.directory_changes.lock().await;
        let user = self.stored_user(id).await?;
        let object = format!("user {}", user.id);
        self.check_grantable(UseCase::RemoveUser, &object, &user.grant())?;
        self.check_user_not_last(UseCase::RemoveUser, &user).await?;
        let tokens = self.tokens_of_user(&user.id).await?;
        let details = json!({ "before": described_user(&user), "tokens": tokens.len() });
        let entry = self.audited_with(UseCase::RemoveUser, object, &details);
        let owners = self.session_owners_of_user(&user.id).await?;
        let change = DirectoryChange::RemoveUser { id: user.id.clone(), tokens };
        let removed = self.change(change, entry).await?;
        self.lose_sessions(&owners, None).await?;
        self.forget_views_of_user(&user.id).await?;
        if removed == DirectoryOutcome::Done { Ok(()) } else { Err(UseCaseError::NoSuchUser(id.to_owned())) }
    }

    async fn stored_user(&self, id: &str) -> Result<User, UseCaseError> {
        let user = match id.contains('@') {
            true if name_problem(id).is_some() => None,
            true => self.store().user_by_email(&id.to_ascii_lowercase()).await?,
            false => self.user_by_id(id).await?,
        };
        user.ok_or_else(|| UseCaseError::NoSuchUser(id.to_owned()))
    }

    async fn user_by_id(&self, id: &str) -> Result<Option<User>, StoreError> {
        if is_id(id) { self.store().user(id).await } else { Ok(None) }
    }

    fn checked_user(
        &self,
        case: UseCase,
        id: String,
        created_at: Timestamp,
        new: NewUser,
        is_disabled: bool,
    ) -> Result<User, UseCaseError> {
        let email = new.email.to_ascii_lowercase();
        let texts =
            [("display_name", &new.display_name), ("notification_channel", &new.notification_channel)];
        let texts =
            texts.into_iter().filter_map(|(field, text)| Some((field, line_problem(text.as_deref()?)?)));
        let mut problems: Vec<InvalidField> = path_name_problem(&id)
            .map(|fix| ("user_id", fix))
            .into_iter()
            .chain(email_problem(&email).map(|fix| ("email", fix)))
            .chain(texts)
            .map(|(field, fix)| InvalidField::new(field, fix))
            .collect();
        let role = new.grant.role;
        let terms = self.checked(case, format_args!("user {email}"), new.grant, &email, &mut problems)?;
        if !problems.is_empty() {
            return Err(UseCaseError::Invalid(problems));
        }
        let about = UserAbout {
            display_name: new.display_name,
            terms,
            notification_channel: new.notification_channel,
            is_disabled,
        };
        Ok(User { id, email, role, created_at, about })
    }

    /// The terms of a new principal, if the caller may grant what it asks for.
    fn checked(
        &self,
        case: UseCase,
        object: impl fmt::Display,
        request: GrantRequest,
        own_name: &str,
        problems: &mut Vec<InvalidField>,
    ) -> Result<GrantTerms, Forbidden> {
        let role = request.role;
        let terms = request.terms(own_name);
        self.check_grantable(case, object, &terms.grant(role))?;
        problems.extend(terms.problems());
        Ok(terms)
    }

    /// A caller may give, renew and take away only what it may do itself.
    fn check_grantable(
        &self,
        case: UseCase,
        object: impl fmt::Display,
        grant: &Grant,
    ) -> Result<(), Forbidden> {
        let lacking = grant.permissions.iter().find(|permission| !self.caller.has(*permission));
        let checked = lacking.map_or(Ok(()), |lacking| {
            Err(Forbidden(format!("the token or user has the permission {lacking}, and the caller does not")))
        });
        self.noted(case, object, checked)
    }

    async fn count_users(&self) -> Result<usize, StoreError> {
        let (mut count, mut after) = (0, None);
        loop {
            let page = self.store().users(after.as_deref(), limits::PAGE_ITEMS_MAX).await?;
            count += page.items.len();
            after = page.next;
            if after.is_none() {
                return Ok(count);
            }
        }
    }
}

/// Refuses another token or user when the table is full.
fn check_room(count: usize, max: usize, what: &'static str) -> Result<(), UseCaseError> {
    if count < max { Ok(()) } else { Err(UseCaseError::DirectoryFull { what, max }) }
}

/// Whether a token or user can have this id. Databases refuse some other texts instead of finding nothing.
fn is_id(text: &str) -> bool {
    !text.is_empty()
        && text != CURSOR_KEY
        && text.len() <= limits::NAME_BYTES_MAX
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn email_problem(email: &str) -> Option<String> {
    if let Some(problem) = name_problem(email) {
        return Some(problem);
    }
    let is_address = email.split_once('@').is_some_and(|(person, host)| {
        !person.is_empty() && !host.is_empty() && !host.contains('@') && !email.contains(char::is_whitespace)
    });
    (!is_address).then(|| "must be an email address, as in ann@example.org".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn email_addresses_are_checked() {
        for good in ["ann@example.org", "a.b+c@localhost"] {
            assert_eq!(email_problem(good), None, "{good}");
        }
        for bad in ["", "ann", "@x", "ann@", "a@b@c", "a b@c"] {
            assert!(email_problem(bad).is_some(), "{bad}");
        }
    }
}
