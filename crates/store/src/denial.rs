//! What a database that answers refuses, so that trying again does not help: somebody has to give it something first.

use punctual_core::ports::StoreError;
use std::fmt;

/// What is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// It wants a password, and none was given.
    NoPassword,
    /// It does not let this user in, or not with this password, or not from this machine.
    Login,
    /// It has no database of this name.
    NoDatabase,
    /// The user is in, and may not do what has to be done.
    Right,
}

/// How what is said of each begins. A `StoreError` has only words, so these keep the kind in it; they are written and read
/// in this file alone.
const BEGINNINGS: [(Denial, &str); 4] = [
    (Denial::NoPassword, "a password is wanted, and none was given"),
    (Denial::Login, "the user is not let in"),
    (Denial::NoDatabase, "there is no such database"),
    (Denial::Right, "a right is missing"),
];

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut beginnings = BEGINNINGS.iter().filter(|(denial, _)| denial == self);
        f.write_str(beginnings.next().map_or("", |(_, words)| words))
    }
}

impl Denial {
    /// What all hosts of a database are alike in, if they are.
    pub(crate) fn shared(mut hosts: impl Iterator<Item = Option<Denial>>) -> Option<Denial> {
        let first = hosts.next()??;
        hosts.all(|denial| denial == Some(first)).then_some(first)
    }
}

/// A denial, and the database's own words for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied<'a> {
    pub denial: Denial,
    pub said: &'a str,
}

impl<'a> Denied<'a> {
    /// What was denied, if that is what went wrong.
    pub fn of(error: &'a StoreError) -> Option<Self> {
        let (StoreError::Unavailable(reason) | StoreError::Broken(reason)) = error;
        BEGINNINGS.iter().find_map(|(denial, words)| {
            let said = reason.strip_prefix(words)?.strip_prefix(": ")?;
            Some(Denied { denial: *denial, said })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;

    #[test]
    fn a_denial_is_recognised_in_the_error_of_the_store() {
        for (denial, _) in BEGINNINGS {
            let error = StoreError::from(Fault::Denied(denial, "the server says: no (1)".to_owned()));
            assert!(error.is_retryable(), "it may be granted while others wait: {error}");
            assert_eq!(Denied::of(&error), Some(Denied { denial, said: "the server says: no (1)" }));
        }
        let away = StoreError::from(Fault::Away("a right is missing: not".to_owned()));
        assert_eq!(Denied::of(&away), None);
    }

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
