//! Errors about a database server, with its URL and what to do. Never with its password.

use super::ServerPlace;
use punctual_config::exit::CliError;
use punctual_config::store_url::ServerUrl;
use punctual_core::causes::innermost;
use punctual_core::ports::{Denial, StoreError};
use std::error::Error;

/// Where the password of the store can be set.
const STORE_PASSWORD: &str = "PUNCTUAL_STORE_PASSWORD or the file that store.password_file names";
/// The guide about databases and permissions.
const GUIDE: &str = "docs/guides/going-to-production.md";

/// The database is reachable, but not in the required state.
pub fn unusable(place: &ServerPlace, error: &dyn Error) -> CliError {
    CliError::cannot_start(format!("store.url {} cannot be used: {}", place.url, innermost(error)))
}

/// The database cannot be reached, or fails.
pub fn unreachable(place: &ServerPlace, error: &StoreError) -> CliError {
    if let StoreError::Denied(denial, said) = error {
        return denied_place(place, *denial, said);
    }
    let reason = error.to_string();
    if reason.contains(READ_ONLY) {
        return CliError::cannot_start(format!("store.url {} cannot be written to: {reason}", place.url));
    }
    CliError::cannot_start(format!(
        "store.url {} cannot be reached: {reason}; is the database running, and are user and password correct?",
        place.url,
    ))
}

/// The database was reached and denied access.
pub fn denied_place(place: &ServerPlace, denial: Denial, said: &str) -> CliError {
    let refusal = denied(&place.url, denial, said, STORE_PASSWORD);
    CliError::cannot_start(format!("store.url {} {refusal}", place.url))
}

/// What a database denied and what to do about it, to follow its URL. `password` is where its password is
/// set.
pub fn denied(url: &ServerUrl, denial: Denial, said: &str, password: &str) -> String {
    match denial {
        Denial::NoPassword => {
            format!("was reached and requires a password, but none was given: set it in {password}")
        }
        Denial::Login => format!(
            "was reached, but rejected the login: {said}; check the user in the URL and the password in \
             {password}, and that the server accepts logins from this machine"
        ),
        Denial::NoDatabase => format!(
            "was reached, but has no such database: {said}; fix the URL, or create it (\"A database, step by step\" in \
             {GUIDE})"
        ),
        Denial::Right => format!(
            "was reached, but its user lacks a privilege: {said}; ask an administrator to grant it: {}; see \"Rights in the \
             database\" in {GUIDE}",
            url.grant()
        ),
    }
}

/// The end of the stores' errors about a standby. In that case the user is not the problem.
const READ_ONLY: &str = "give the address of the primary";
