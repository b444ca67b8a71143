//! Who may do what. A [`Role`] is a set of [`Permission`]s; a [`Scope`] says which jobs they apply to. The two
//! are independent: an operator of one team has the permissions of an operator and the scope of the team.

use crate::job::{DEFAULT_OWNER, InvalidField};
use crate::limits;
use crate::names::{name_problem, owner_name_problem};
use serde::{Deserialize, Serialize};

/// An enum whose variants have words that users write: in requests, configuration and stored documents.
macro_rules! words {
    ($(#[$about:meta])* $enum:ident ($what:literal) { $($(#[$doc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $enum {
            $($(#[$doc])* #[serde(rename = $word)] $variant),*
        }

        impl $enum {
            pub const ALL: &'static [$enum] = &[$($enum::$variant),*];

            pub fn word(self) -> &'static str {
                match self { $($enum::$variant => $word),* }
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl std::str::FromStr for $enum {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                match word {
                    $($word => Ok($enum::$variant),)*
                    _ => Err(format!(concat!("must be a ", $what, ": {}"), [$($word),*].join(", "))),
                }
            }
        }
    };
}
pub(crate) use words;

words! {
    /// What a use case needs.
    Permission ("permission") {
        /// See jobs, executions, events and dead letters, without the data of jobs.
        JobsRead = "jobs:read",
        /// See the data of jobs: payloads, results, checkpoints and logs. Includes `jobs:read`.
        PayloadRead = "payload:read",
        /// Submit, change and control jobs. Includes `jobs:read`: changes are answered with the job.
        JobsWrite = "jobs:write",
        /// See queues, workers, nodes, statistics and metrics.
        ServerRead = "server:read",
        /// Pause queues and set their limits.
        QueuesWrite = "queues:write",
        /// Pause and drain workers.
        WorkersWrite = "workers:write",
        /// Drive the clock of a server that was started with a manual clock.
        ClockWrite = "clock:write",
        /// See tokens and users.
        AccessRead = "access:read",
        /// Create, change and remove tokens and users.
        AccessWrite = "access:write",
        /// Read the audit log.
        AuditRead = "audit:read",
        /// See the names and rules of secrets, never their values.
        SecretsRead = "secrets:read",
        /// Set, remove and re-encrypt secrets.
        SecretsWrite = "secrets:write",
        /// See channels, rules, silences, alerts and deliveries, without their secrets.
        NotificationsRead = "notifications:read",
        /// Set channels, rules and silences, acknowledge alerts, and send messages again.
        NotificationsWrite = "notifications:write",
        /// Open worker sessions and run jobs.
        Work = "work:run",
    }
}

words! {
    /// A named set of permissions.
    Role ("role") {
        Viewer = "viewer",
        Submitter = "submitter",
        Operator = "operator",
        Admin = "admin",
        Worker = "worker",
    }
}

impl Role {
    pub fn permissions(self) -> PermissionSet {
        use Permission::{
            AuditRead, ClockWrite, JobsRead, JobsWrite, NotificationsRead, NotificationsWrite, PayloadRead,
            QueuesWrite, SecretsRead, SecretsWrite, ServerRead, Work, WorkersWrite,
        };
        let own: &[Permission] = match self {
            Role::Viewer => &[JobsRead, ServerRead, NotificationsRead],
            Role::Submitter => {
                &[JobsRead, ServerRead, PayloadRead, JobsWrite, SecretsRead, NotificationsRead]
            }
            Role::Operator => &[
                JobsRead,
                ServerRead,
                PayloadRead,
                JobsWrite,
                QueuesWrite,
                WorkersWrite,
                ClockWrite,
                AuditRead,
                SecretsRead,
                SecretsWrite,
                NotificationsRead,
                NotificationsWrite,
            ],
            Role::Admin => Permission::ALL,
            Role::Worker => &[Work],
        };
        own.iter().copied().collect()
    }

    /// The roles that have a permission, for people who lack it.
    pub fn with(permission: Permission) -> impl Iterator<Item = Role> {
        Role::ALL.iter().copied().filter(move |role| role.permissions().has(permission))
    }

    /// Whether a principal with this role and no owner of its own reaches the jobs of all owners. A submitter
    /// sees and changes only its own.
    pub fn reaches_all_owners(self) -> bool {
        match self {
            Role::Viewer | Role::Operator | Role::Admin | Role::Worker => true,
            Role::Submitter => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PermissionSet(u32);

impl PermissionSet {
    pub fn has(self, permission: Permission) -> bool {
        self.0 & bit(permission) != 0
    }

    #[must_use]
    pub fn and(self, others: &[Permission]) -> Self {
        PermissionSet(self.0 | others.iter().copied().collect::<PermissionSet>().0)
    }

    #[must_use]
    pub fn without(self, permission: Permission) -> Self {
        PermissionSet(self.0 & !bit(permission))
    }

    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.iter().copied().filter(move |permission| self.has(*permission))
    }
}

impl FromIterator<Permission> for PermissionSet {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Self {
        let with_included = |permission| match permission {
            Permission::PayloadRead | Permission::JobsWrite => bit(permission) | bit(Permission::JobsRead),
            _ => bit(permission),
        };
        PermissionSet(permissions.into_iter().fold(0, |bits, permission| bits | with_included(permission)))
    }
}

fn bit(permission: Permission) -> u32 {
    1 << permission as u32
}

/// Which jobs the permissions of a principal apply to. The default is everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// The only owner whose jobs are in scope; `None` for all owners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The queues in scope; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<NamePattern>,
    /// The job types in scope; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_types: Vec<NamePattern>,
}

impl Scope {
    pub fn is_everything(&self) -> bool {
        *self == Scope::default()
    }

    pub fn has_owner(&self, owner: &str) -> bool {
        self.owner.as_deref().is_none_or(|own| own == owner)
    }

    pub fn has_queue(&self, queue: &str) -> bool {
        is_any(&self.queues, queue)
    }

    pub fn has_job_type(&self, job_type: &str) -> bool {
        is_any(&self.job_types, job_type)
    }

    pub fn has_job(&self, owner: &str, queue: &str, job_type: &str) -> bool {
        self.has_owner(owner) && self.has_queue(queue) && self.has_job_type(job_type)
    }

    fn problems(&self) -> impl Iterator<Item = InvalidField> {
        let patterns = [("queues", &self.queues), ("job_types", &self.job_types)].into_iter();
        patterns.filter_map(|(field, patterns)| Some(InvalidField::new(field, problem_of(patterns)?)))
    }
}

/// Patterns in a sentence.
pub fn pattern_list(patterns: &[NamePattern]) -> String {
    patterns.iter().map(NamePattern::as_str).collect::<Vec<_>>().join(", ")
}

pub(crate) fn is_any(patterns: &[NamePattern], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(name))
}

/// Whether some name may match a pattern of each list. An empty list has all names.
pub(crate) fn may_overlap(patterns: &[NamePattern], others: &[NamePattern]) -> bool {
    let is_any_like = |other: &NamePattern| patterns.iter().any(|pattern| pattern.may_overlap(other));
    patterns.is_empty() || others.is_empty() || others.iter().any(is_any_like)
}

pub(crate) fn problem_of(patterns: &[NamePattern]) -> Option<String> {
    if patterns.len() > limits::SCOPE_PATTERNS_MAX {
        return Some(format!("must have at most {} patterns", limits::SCOPE_PATTERNS_MAX));
    }
    patterns.iter().find_map(|pattern| name_problem(pattern.as_str()))
}

/// A name in which `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NamePattern(String);

impl NamePattern {
    pub fn new(pattern: impl Into<String>) -> Self {
        NamePattern(pattern.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether some name may match both. It is not worked out for two patterns with a `*`.
    fn may_overlap(&self, other: &NamePattern) -> bool {
        match (self.0.contains('*'), other.0.contains('*')) {
            (true, true) => true,
            (_, false) => self.matches(&other.0),
            (false, true) => other.matches(&self.0),
        }
    }

    pub fn matches(&self, name: &str) -> bool {
        let Some((start, rest)) = self.0.split_once('*') else { return self.0 == name };
        let Some(mut name) = name.strip_prefix(start) else { return false };
        let mut parts = rest.split('*');
        // The last part must be at the end; the others are found from left to right.
        let end = parts.next_back().unwrap_or_default();
        for part in parts {
            let Some(found) = name.find(part) else { return false };
            name = &name[found + part.len()..];
        }
        name.ends_with(end)
    }
}

/// The permissions of a principal and the jobs that they apply to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub role: Role,
    pub permissions: PermissionSet,
    /// The owner of the jobs that it submits without naming one.
    pub owner: String,
    pub scope: Scope,
}

impl Grant {
    /// Whether it allows everything, everywhere.
    pub fn is_everything(&self) -> bool {
        self.permissions == Role::Admin.permissions() && self.scope.is_everything()
    }
}

/// What a token or user is allowed, apart from its role.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GrantTerms {
    /// The owner of the jobs that it submits without naming one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(default)]
    pub scope: Scope,
    /// Permissions beyond those of the role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<Permission>,
}

impl GrantTerms {
    /// A worker gets the jobs of all owners in its queues, so a principal that is limited to an owner cannot be
    /// one.
    pub fn grant(&self, role: Role) -> Grant {
        let granted = role.permissions().and(&self.permissions);
        let is_limited = self.scope.owner.is_some();
        Grant {
            role,
            permissions: if is_limited { granted.without(Permission::Work) } else { granted },
            owner: self
                .owner
                .as_ref()
                .or(self.scope.owner.as_ref())
                .map_or(DEFAULT_OWNER, String::as_str)
                .to_owned(),
            scope: self.scope.clone(),
        }
    }

    pub fn problems(&self) -> Vec<InvalidField> {
        let owner = self.owner.as_deref().and_then(owner_name_problem);
        let owner = owner.map(|fix| InvalidField::new("owner_id", fix));
        let works_for_one = self.scope.owner.is_some() && self.permissions.contains(&Permission::Work);
        let work = works_for_one.then(|| {
            let fix =
                "must not contain work:run for one owner: a worker gets the jobs of all owners in its queues";
            InvalidField::new("permissions", fix)
        });
        owner.into_iter().chain(work).chain(self.scope.problems()).collect()
    }
}

/// The access that is asked for, for a new token or user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRequest {
    pub role: Role,
    /// Permissions beyond those of the role.
    pub permissions: Vec<Permission>,
    /// The owner of the jobs that it submits and, unless `all_owners` says otherwise, the only one whose jobs
    /// it sees.
    pub owner: Option<String>,
    /// By default, only principals without an owner of their own reach the jobs of all owners.
    pub all_owners: Option<bool>,
    pub queues: Vec<NamePattern>,
    pub job_types: Vec<NamePattern>,
}

impl GrantRequest {
    /// The terms with all defaults. The owner of a submitter that names none is `own_name`.
    pub fn terms(self, own_name: &str) -> GrantTerms {
        let all_owners = if self.role == Role::Worker { Some(true) } else { self.all_owners };
        let needs_owner = !self.role.reaches_all_owners() || all_owners == Some(false);
        let owner = self.owner.or_else(|| needs_owner.then(|| own_name.to_owned()));
        let is_limited = !all_owners.unwrap_or(owner.is_none());
        let scope = Scope {
            owner: owner.clone().filter(|_| is_limited),
            queues: self.queues,
            job_types: self.job_types,
        };
        GrantTerms { owner, scope, permissions: self.permissions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_exactly_its_permissions() {
        let words =
            |role: Role| role.permissions().iter().map(Permission::word).collect::<Vec<_>>().join(" ");
        assert_eq!(words(Role::Viewer), "jobs:read server:read notifications:read");
        assert_eq!(
            words(Role::Submitter),
            "jobs:read payload:read jobs:write server:read secrets:read notifications:read"
        );
        assert_eq!(
            words(Role::Operator),
            "jobs:read payload:read jobs:write server:read queues:write workers:write clock:write audit:read \
             secrets:read secrets:write notifications:read notifications:write"
        );
        assert_eq!(words(Role::Worker), "work:run");
        assert_eq!(Role::Admin.permissions().iter().count(), Permission::ALL.len());
    }

    #[test]
    fn words_are_read_back_and_others_are_explained() {
        for permission in Permission::ALL {
            assert_eq!(permission.word().parse(), Ok(*permission));
        }
        assert_eq!(
            "root".parse::<Role>(),
            Err("must be a role: viewer, submitter, operator, admin, worker".to_owned())
        );
    }

    #[test]
    fn a_pattern_matches_whole_names() {
        let matches = |pattern: &str, name: &str| NamePattern::new(pattern).matches(name);
        for (pattern, name) in [
            ("mail", "mail"),
            ("*", ""),
            ("mail-*", "mail-eu"),
            ("*-eu", "mail-eu"),
            ("a*b*c", "a-b-b-c"),
            ("a*a", "aa"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("mail", "mail-eu"),
            ("mail", "Mail"),
            ("mail-*", "mail"),
            ("a*a", "a"),
            ("a*b*c", "a-c"),
            ("*b", "ab "),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_scope_limits_owner_queue_and_type_together() {
        let everything = Scope::default();
        assert!(everything.is_everything() && everything.has_job("ann", "mail", "send"));
        let scope = Scope {
            owner: Some("ann".to_owned()),
            queues: vec![NamePattern::new("mail-*")],
            job_types: vec![NamePattern::new("send"), NamePattern::new("bounce")],
        };
        assert!(scope.has_job("ann", "mail-eu", "bounce"));
        assert!(!scope.has_job("bob", "mail-eu", "bounce"));
        assert!(!scope.has_job("ann", "mail", "bounce"));
        assert!(!scope.has_job("ann", "mail-eu", "other"));
    }

    fn terms(owner: Option<&str>, scope: Scope) -> GrantTerms {
        GrantTerms { owner: owner.map(str::to_owned), scope, permissions: vec![] }
    }

    fn only(owner: &str) -> Scope {
        Scope { owner: Some(owner.to_owned()), ..Scope::default() }
    }

    #[test]
    fn permissions_about_jobs_include_seeing_them() {
        for permission in [Permission::PayloadRead, Permission::JobsWrite] {
            assert!(PermissionSet::default().and(&[permission]).has(Permission::JobsRead));
        }
        assert!(!PermissionSet::default().and(&[Permission::ServerRead]).has(Permission::JobsRead));
    }

    #[test]
    fn a_principal_that_is_limited_to_an_owner_cannot_work() {
        for role in Role::ALL {
            assert!(!terms(None, only("ann")).grant(*role).permissions.has(Permission::Work), "{role}");
        }
        let worker = terms(Some("ann"), Scope::default()).grant(Role::Worker);
        assert!(worker.permissions.has(Permission::Work) && worker.owner == "ann");
        let asked = GrantTerms { permissions: vec![Permission::Work], ..terms(None, only("ann")) };
        assert_eq!(asked.problems()[0].field, "permissions");
    }

    #[test]
    fn only_an_unlimited_admin_may_do_everything() {
        assert!(terms(Some("ann"), Scope::default()).grant(Role::Admin).is_everything());
        assert!(!terms(None, only("ann")).grant(Role::Admin).is_everything());
        assert!(!terms(None, Scope::default()).grant(Role::Operator).is_everything());
    }

    #[test]
    fn an_owner_limits_the_scope_unless_all_owners_are_asked_for() {
        let asked = |role, owner: Option<&str>, all_owners| {
            let owner = owner.map(str::to_owned);
            let request = GrantRequest {
                role,
                permissions: vec![],
                owner,
                all_owners,
                queues: vec![],
                job_types: vec![],
            };
            request.terms("deploy")
        };
        let everything = Scope::default;
        assert_eq!(asked(Role::Viewer, None, None), terms(None, everything()));
        assert_eq!(asked(Role::Admin, None, None), terms(None, everything()));
        assert_eq!(asked(Role::Submitter, None, None), terms(Some("deploy"), only("deploy")));
        for role in [Role::Viewer, Role::Submitter, Role::Operator] {
            assert_eq!(asked(role, Some("ann"), None), terms(Some("ann"), only("ann")));
            assert_eq!(asked(role, Some("ann"), Some(true)), terms(Some("ann"), everything()));
        }
        assert_eq!(asked(Role::Worker, Some("ann"), Some(false)), terms(Some("ann"), everything()));
        assert_eq!(asked(Role::Operator, None, Some(false)), terms(Some("deploy"), only("deploy")));
        assert_eq!(asked(Role::Submitter, None, Some(true)), terms(Some("deploy"), everything()));
    }

    #[test]
    fn bad_names_are_reported_by_field() {
        let scope = Scope {
            owner: None,
            queues: vec![NamePattern::new("")],
            job_types: vec![NamePattern::new("x"); limits::SCOPE_PATTERNS_MAX + 1],
        };
        let problems = terms(Some(" ann"), scope).problems().into_iter();
        assert_eq!(
            problems.map(|problem| problem.field).collect::<Vec<_>>(),
            ["owner_id", "queues", "job_types"]
        );
        assert_eq!(GrantTerms::default().problems(), []);
    }
}
