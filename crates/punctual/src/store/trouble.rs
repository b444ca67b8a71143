//! What went wrong with a database on a server, with its URL and what to do. Never with its password.

use super::ServerPlace;
use crate::exit::CliError;
use std::error::Error;

/// The database is there, but not as it has to be.
pub fn unusable(place: &ServerPlace, error: &dyn Error) -> CliError {
    CliError::cannot_start(format!("store.url {} cannot be used: {}", place.url, innermost(error)))
}

/// The database cannot be spoken to, or does not do what it is asked.
pub fn unreachable(place: &ServerPlace, error: &dyn Error) -> CliError {
    let reason = innermost(error);
    if reason.contains(READ_ONLY) {
        return CliError::cannot_start(format!("store.url {} cannot be written to: {reason}", place.url));
    }
    CliError::cannot_start(format!(
        "store.url {} cannot be reached: {reason}; is the database there, and do user and password fit?",
        place.url,
    ))
}

/// How the stores end what they say of a standby. There is no doubt about its user then.
const READ_ONLY: &str = "give the address of the primary";

/// The reason behind all others: those around it only repeat which database is meant.
fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
