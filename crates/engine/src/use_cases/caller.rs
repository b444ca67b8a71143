//! The caller of a use case, and what it may do.

use super::table::UseCase;
use punctual_core::access::{Grant, Permission, Role};
use punctual_core::ports::{Token, User};

/// An authenticated caller. The authentication layer of a protocol creates it; use cases judge by nothing
/// else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The public part of its token, or the issuer and subject of its JWT.
    pub token_id: String,
    /// The name of its token or user.
    pub name: String,
    /// Its user, if it is a person.
    pub user: Option<String>,
    /// The token with which it has logged in, if it is the session of a browser.
    pub session_of: Option<String>,
    /// Whether its token is in the store. Other callers have a token of an identity provider.
    pub is_stored: bool,
    pub grant: Grant,
    /// The address that it connects from, if it is known.
    pub source: Option<String>,
}

/// The owner of the sessions that a user opens with tokens of an identity provider. No token has such an id.
pub(super) fn session_owner_of_user(user: &str) -> String {
    format!("user:{user}")
}

/// The caller may not do this; the text says why, and what is needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Forbidden(pub String);

impl Caller {
    pub fn of_token(token: &Token) -> Self {
        Caller {
            token_id: token.id.clone(),
            name: token.about.name.clone(),
            user: token.about.user.clone(),
            session_of: token.about.session_of.as_ref().map(|parent| parent.id.clone()),
            is_stored: true,
            grant: token.grant(),
            source: None,
        }
    }

    /// The caller behind a token of a user, which may do what the user may.
    pub fn of_user(token: &Token, user: &User) -> Self {
        Caller { grant: user.grant(), ..Caller::of_token(token) }
    }

    /// To whom the sessions of workers belong that it opens: its token. The token of an identity provider is not
    /// stored, so that they belong to its user, if it has one.
    pub(super) fn session_owner(&self) -> String {
        match &self.user {
            Some(user) if !self.is_stored => session_owner_of_user(user),
            _ => self.token_id.clone(),
        }
    }

    pub(crate) fn check(&self, case: UseCase) -> Result<(), Forbidden> {
        self.check_on(case, "")
    }

    /// The same for a request about an object, which the reason names.
    pub(crate) fn check_on(&self, case: UseCase, object: &str) -> Result<(), Forbidden> {
        self.check_permission(case.permission())?;
        if case.is_server_wide() {
            self.check_whole_server(case, object)?;
        }
        Ok(())
    }

    pub fn has(&self, permission: Permission) -> bool {
        self.grant.permissions.has(permission)
    }

    pub(super) fn check_permission(&self, permission: Permission) -> Result<(), Forbidden> {
        if self.has(permission) {
            return Ok(());
        }
        let scope = &self.grant.scope;
        if let (Permission::Work, Some(owner)) = (permission, &scope.owner) {
            return Err(Forbidden(format!(
                "it needs the permission {permission}, and the token is limited to the owner {owner}: a worker gets the jobs \
                 of all owners in its queues, so limit it by queue and job type instead"
            )));
        }
        let roles: Vec<&str> = Role::with(permission).map(Role::word).collect();
        Err(Forbidden(format!(
            "it needs the permission {permission}, which the role {} does not have; roles with it: {}",
            self.grant.role,
            roles.join(", ")
        )))
    }

    /// Refuses a caller whose scope is limited: what it asks for covers the jobs of all owners, queues and
    /// types.
    fn check_whole_server(&self, case: UseCase, object: &str) -> Result<(), Forbidden> {
        if self.grant.scope.is_everything() {
            return Ok(());
        }
        let whole = match object {
            "" => "it covers all owners, queues and job types".to_owned(),
            object => format!("{object} belongs to the whole server"),
        };
        Err(Forbidden(format!(
            "{whole}: {} needs {} and a token that is not limited to owners, queues or job types",
            case.name(),
            case.permission()
        )))
    }

    /// Refuses a caller that may see only some of the jobs in its queues.
    pub(super) fn check_all_jobs_of_queues(&self) -> Result<(), Forbidden> {
        let scope = &self.grant.scope;
        if scope.owner.is_none() && scope.job_types.is_empty() {
            return Ok(());
        }
        Err(Forbidden(
            "a queue holds the jobs of all owners and types, and the token is limited to some".to_owned(),
        ))
    }

    pub(super) fn check_queue(&self, queue: &str) -> Result<(), Forbidden> {
        self.check_all_jobs_of_queues()?;
        self.check_queue_name(queue)
    }

    pub(super) fn check_queue_name(&self, queue: &str) -> Result<(), Forbidden> {
        if self.grant.scope.has_queue(queue) {
            return Ok(());
        }
        Err(Forbidden(format!("the token is limited to other queues than {queue}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::access::{NamePattern, Scope};
    use punctual_core::time::Timestamp;

    #[test]
    fn a_limited_caller_learns_what_belongs_to_the_whole_server() {
        let token = Token::new("k3v8", [0; 32], Role::Admin, Timestamp::EPOCH);
        let mut caller = Caller::of_token(&token);
        assert_eq!(caller.check_on(UseCase::SetChannel, "channel ops"), Ok(()));
        caller.grant.scope = Scope { queues: vec![NamePattern::new("mail")], ..Scope::default() };
        let needs =
            "needs notifications:write and a token that is not limited to owners, queues or job types";
        let Forbidden(told) = caller.check_on(UseCase::SetChannel, "channel ops").unwrap_err();
        assert_eq!(told, format!("channel ops belongs to the whole server: channel.set {needs}"));
        let Forbidden(told) = caller.check(UseCase::AddSilence).unwrap_err();
        assert_eq!(told, format!("it covers all owners, queues and job types: silence.add {needs}"));
        assert_eq!(caller.check_on(UseCase::PauseJob, "job 1"), Ok(()));
    }

    #[test]
    fn sessions_of_workers_belong_to_the_token_or_to_the_user_of_a_provider() {
        let token = Token::new("k3v8", [0; 32], Role::Worker, Timestamp::EPOCH);
        let stored = Caller { user: Some("u1".to_owned()), ..Caller::of_token(&token) };
        assert_eq!(stored.session_owner(), "k3v8");
        let jwt = Caller { token_id: "https://id#ann".to_owned(), is_stored: false, ..stored };
        assert_eq!(jwt.session_owner(), session_owner_of_user("u1"));
        let stranger = Caller { user: None, ..jwt };
        assert_eq!(stranger.session_owner(), "https://id#ann");
    }
}
