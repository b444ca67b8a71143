//! The caller of a use case, and what it may do.

use punctual_core::ports::{Role, Token};

/// An authenticated caller. The authentication layer of a protocol creates it; use cases judge by nothing
/// else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The public part of the token.
    pub token_id: String,
    pub role: Role,
    /// Whose jobs it may see and change.
    pub owners: OwnerScope,
}

/// The owners whose jobs a caller may see and change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerScope {
    All,
}

/// What a use case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// See jobs, executions, logs and the state of the server.
    Read,
    /// Submit, change and control jobs.
    Change,
    /// Act on what belongs to all owners: queues, workers, all dead letters that match a filter.
    Operate,
    /// Open sessions and run jobs. A worker reads the payloads of all jobs and reports how they ended.
    Work,
}

/// The caller lacks a permission; the text says which role has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Forbidden(pub &'static str);

impl From<&Token> for Caller {
    fn from(token: &Token) -> Self {
        Caller { token_id: token.id.clone(), role: token.role, owners: OwnerScope::All }
    }
}

impl Caller {
    pub fn check(&self, permission: Permission) -> Result<(), Forbidden> {
        let (needed, refusal) = match permission {
            Permission::Read => (Role::Viewer, "its role does not allow reading"),
            Permission::Change => (Role::Submitter, "its role only allows reading"),
            Permission::Operate => {
                (Role::Operator, "it affects jobs of all owners and needs the role operator")
            }
            // Until there is a role for workers.
            Permission::Work => {
                (Role::Operator, "a worker handles jobs of all owners and needs the role operator")
            }
        };
        if self.role >= needed { Ok(()) } else { Err(Forbidden(refusal)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_may_do_what_the_one_below_it_may() {
        let roles = [Role::Viewer, Role::Submitter, Role::Operator, Role::Admin];
        let allowed = |permission| {
            roles.map(|role| {
                let caller = Caller { token_id: "t".to_owned(), role, owners: OwnerScope::All };
                caller.check(permission).is_ok()
            })
        };
        assert_eq!(allowed(Permission::Read), [true; 4]);
        assert_eq!(allowed(Permission::Change), [false, true, true, true]);
        assert_eq!(allowed(Permission::Operate), [false, false, true, true]);
        assert_eq!(allowed(Permission::Work), [false, false, true, true]);
    }
}
