//! Reasons for which a database answers but rejects access, so that a retry does not help: an operator has to
//! fix the access first.

use std::fmt;

/// What is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// It requires a password, and none was given.
    NoPassword,
    /// It rejects this user, this password, or this machine.
    Login,
    /// It has no database with this name.
    NoDatabase,
    /// The user is logged in but lacks a privilege.
    Right,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Denial::NoPassword => "a password is required, and none was given",
            Denial::Login => "the login was rejected",
            Denial::NoDatabase => "there is no such database",
            Denial::Right => "a privilege is missing",
        })
    }
}

impl Denial {
    /// The denial that all hosts of a database have in common, if any.
    pub fn shared(mut hosts: impl Iterator<Item = Option<Denial>>) -> Option<Denial> {
        let first = hosts.next()??;
        hosts.all(|denial| denial == Some(first)).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_differ_share_nothing() {
        let shared = |hosts: &[Option<Denial>]| Denial::shared(hosts.iter().copied());
        let (login, right) = (Some(Denial::Login), Some(Denial::Right));
        assert_eq!(shared(&[login, login]), login);
        for hosts in [&[login, right][..], &[login, None], &[None, login], &[]] {
            assert_eq!(shared(hosts), None, "{hosts:?}");
        }
    }
}
