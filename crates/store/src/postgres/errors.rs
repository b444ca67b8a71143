//! The errors of PostgreSQL, sorted by what can be done about them.

use crate::fault::Fault;
use std::error::Error as _;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let said = described(&error);
        if is_conflict(&error) {
            Fault::Conflict(said)
        } else if is_outage(&error) {
            Fault::Away(said)
        } else {
            Fault::Postgres(said)
        }
    }
}

/// The database has undone the transaction in favour of another one: run again, it may see the other's rows.
fn is_conflict(error: &Error) -> bool {
    // A check is violated where a row finds no partition: it was dropped since this connection last looked.
    let conflicts = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::UNIQUE_VIOLATION,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::CHECK_VIOLATION,
    ];
    error.code().is_some_and(|code| conflicts.contains(code))
}

/// The database cannot be reached or cannot write now.
fn is_outage(error: &Error) -> bool {
    match error.code() {
        Some(code) => is_outage_state(code),
        // What is not the server's word is the network's, unless a value was of the wrong type.
        None => {
            let source = error.source();
            error.is_closed() || source.is_none_or(|source| source.is::<std::io::Error>())
        }
    }
}

fn is_outage_state(code: &SqlState) -> bool {
    // Connections, rights and databases that are not there, resources, operators' doings, disks.
    let classes = ["08", "28", "3D", "53", "57", "58"];
    let single = [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN,
    ];
    classes.iter().any(|class| code.code().starts_with(class)) || single.contains(code)
}

/// Whether this is only what follows from an error before it in the same transaction.
pub(crate) fn is_aftermath(error: &Error) -> bool {
    error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
}

/// What the driver says of a server that cannot be written to, where one is wanted that can.
const READ_ONLY: &str = "database does not allow writes";
const READ_ONLY_ADVICE: &str = "it is a standby or set to read only: give the address of the primary";

/// What happened, for people to read: the server's own words without the values that it quotes.
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
