//! Classifies the errors of PostgreSQL by what can be done about them.

use crate::fault::Fault;
use punctual_core::ports::Denial;
use std::error::Error as _;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let said = described(&error);
        if let Some(denial) = denial(&error) {
            Fault::Denied(denial, said)
        } else if is_conflict(&error) {
            Fault::Conflict(said)
        } else if is_outage(&error) {
            Fault::Away(said)
        } else if error.code().is_some_and(is_corruption) {
            Fault::Corrupt(said)
        } else {
            Fault::Postgres(said)
        }
    }
}

/// The driver's message if the server requires a password and the URL has none.
const NO_PASSWORD: &str = "password missing";

/// The denied access, if a retry would not help.
pub(crate) fn denial(error: &Error) -> Option<Denial> {
    match error.code() {
        Some(code) => denial_of_state(code),
        None => {
            let is_wanted = error.source().is_some_and(|source| source.to_string() == NO_PASSWORD);
            is_wanted.then_some(Denial::NoPassword)
        }
    }
}

fn denial_of_state(code: &SqlState) -> Option<Denial> {
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        Some(Denial::Right)
    } else if *code == SqlState::INVALID_CATALOG_NAME {
        Some(Denial::NoDatabase)
    } else {
        // All errors of a login.
        code.code().starts_with("28").then_some(Denial::Login)
    }
}

/// The database rolled back the transaction in favour of another one. If it is run again, it may see the
/// other's rows.
fn is_conflict(error: &Error) -> bool {
    // A check violation occurs if a row finds no partition: it was dropped since this connection last
    // checked.
    let conflicts = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::UNIQUE_VIOLATION,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::CHECK_VIOLATION,
    ];
    error.code().is_some_and(|code| conflicts.contains(code))
}

/// The database is unreachable or cannot write now.
fn is_outage(error: &Error) -> bool {
    match error.code() {
        Some(code) => is_outage_state(code),
        // An error that is not from the server is from the network, unless a value had the wrong type.
        None => {
            let source = error.source();
            error.is_closed() || source.is_none_or(|source| source.is::<std::io::Error>())
        }
    }
}

fn is_outage_state(code: &SqlState) -> bool {
    // Connections, resources, operator intervention, disks.
    let classes = ["08", "53", "57", "58"];
    let single = [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN,
    ];
    classes.iter().any(|class| code.code().starts_with(class)) || single.contains(code)
}

/// The server has found its own files damaged.
fn is_corruption(code: &SqlState) -> bool {
    [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code)
}

/// Whether this only follows from an earlier error in the same transaction.
pub(crate) fn is_aftermath(error: &Error) -> bool {
    error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
}

/// The driver's message if a server is read-only and a writable one is required.
const READ_ONLY: &str = "database does not allow writes";
const READ_ONLY_ADVICE: &str = "it is a standby or set to read only: give the address of the primary";

/// The error for users: the server's message without the values that it quotes.
pub(crate) fn described(error: &Error) -> String {
    let Some(said) = error.as_db_error() else {
        return match error.source() {
            Some(source) if source.to_string() == READ_ONLY => READ_ONLY_ADVICE.to_owned(),
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
    };
    let words = format!("PostgreSQL says: {} ({})", said.message(), said.code().code());
    if *said.code() == SqlState::READ_ONLY_SQL_TRANSACTION {
        format!("{words}; {READ_ONLY_ADVICE}")
    } else {
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_access_is_distinguished_from_an_outage() {
        for (code, denial) in [
            ("42501", Some(Denial::Right)),
            ("28P01", Some(Denial::Login)),
            ("28000", Some(Denial::Login)),
            ("3D000", Some(Denial::NoDatabase)),
            ("57P01", None),
            ("08006", None),
        ] {
            assert_eq!(denial_of_state(&SqlState::from_code(code)), denial, "{code}");
        }
        assert!(is_outage_state(&SqlState::from_code("57P01")));
    }
}
