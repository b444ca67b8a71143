//! Classifies the errors of MariaDB and MySQL by what can be done about them.

use crate::fault::Fault;
use mysql_async::{DriverError, Error, ServerError};
use punctual_core::ports::Denial;

/// The server rolled back the transaction or the statement in favour of another one. If it is run again, it may see
/// the other's rows. Galera reports a failed certification as a deadlock.
const CONFLICTS: &[u16] = &[
    DEADLOCK,
    LOCK_WAIT_TIMEOUT,
    DUPLICATE,
    // A row has changed since it was read; a table was redefined since the transaction began.
    1020,
    1412,
    // A partition that another process has just created or dropped.
    PARTITION_THERE,
    PARTITION_GONE,
    PARTITION_TO_DROP_GONE,
];
/// A named object does not exist: a function, or the savepoint at the start of a transaction.
pub(crate) const NOT_THERE: u16 = 1305;
pub(crate) const DEADLOCK: u16 = 1213;
/// Only the statement is rolled back: the transaction must be rolled back separately.
pub(crate) const LOCK_WAIT_TIMEOUT: u16 = 1205;
pub(crate) const PARTITION_THERE: u16 = 1517;
pub(crate) const PARTITION_GONE: u16 = 1735;
/// The same, as some servers report it for `DROP`.
pub(crate) const PARTITION_TO_DROP_GONE: u16 = 1507;
pub(crate) const DUPLICATE: u16 = 1062;
pub(crate) const DUPLICATE_COLUMN: u16 = 1060;
pub(crate) const DUPLICATE_INDEX: u16 = 1061;

/// The server is unreachable or cannot write now.
const OUTAGES: &[u16] = &[
    // Disks, memory and space.
    1021, 1028, 1030, 1037, 1038, 1041, 1114, 1206, 1637, // Connections: too many, refused, ended.
    1040, 1042, 1043, 1129, 1152, 1153, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1184, 1203, 1226,
    1927, 4031, // A server that is being shut down, or a node of a cluster that is not part of it.
    1047, 1053, 1077, 1079,
    // A statement that took too long or was killed; a commit with an unknown outcome.
    1180, 1317, 1969, 3024, // Nothing may be written.
    READ_ONLY, 1792, 1836,
];
/// The server has found its own files damaged: a key file, a table that crashed, an index or a page of InnoDB.
const CORRUPTIONS: &[u16] = &[1034, 1194, 1195, 1712, 1877];
const READ_ONLY: u16 = 1290;
const NODE_NOT_READY: u16 = 1047;
const BINARY_LOG_BY_STATEMENT: u16 = 1665;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Server(error) => of_server(&error),
            Error::Io(error) => Fault::Away(with_advice(error.to_string())),
            Error::Driver(DriverError::NoClientSslFlagFromServer) => Fault::Away(
                "the server offers no TLS: set it up there, or add ssl-mode=disabled to the URL if the network \
                 in between can be trusted"
                    .to_owned(),
            ),
            Error::Driver(error @ (DriverError::ConnectionClosed | DriverError::PoolDisconnected)) => {
                Fault::Away(error.to_string())
            }
            Error::Driver(error) => Fault::MySql(error.to_string()),
            Error::Other(error) => Fault::MySql(error.to_string()),
            Error::Url(error) => Fault::MySql(error.to_string()),
        }
    }
}

fn of_server(error: &ServerError) -> Fault {
    let said = described(error);
    if let Some(denial) = denial(error) {
        Fault::Denied(denial, said)
    } else if CONFLICTS.contains(&error.code) {
        Fault::Conflict(said)
    } else if OUTAGES.contains(&error.code) {
        Fault::Away(said)
    } else if CORRUPTIONS.contains(&error.code) {
        Fault::Corrupt(said)
    } else {
        Fault::MySql(said)
    }
}

/// The end of the server's error for a user who gave no password.
const WITHOUT_PASSWORD: &str = "(using password: NO)";

/// The denied access, if a retry would not help.
fn denial(error: &ServerError) -> Option<Denial> {
    match error.code {
        1045 if error.message.ends_with(WITHOUT_PASSWORD) => Some(Denial::NoPassword),
        // A wrong password, a host that may not connect, a user without a password.
        1045 | 1130 | 1698 => Some(Denial::Login),
        1049 => Some(Denial::NoDatabase),
        // To a database, to a table.
        1044 | 1142 => Some(Denial::Right),
        _ => None,
    }
}

/// The error code, if the error comes from the server.
pub(crate) fn server_code(error: &Error) -> Option<u16> {
    match error {
        Error::Server(error) => Some(error.code),
        _ => None,
    }
}

/// Adds advice to the error about a certificate that failed verification.
fn with_advice(problem: String) -> String {
    let advice = if problem.contains("not valid for name") {
        "the URL must name the host as the certificate does"
    } else if problem.contains("invalid peer certificate") {
        "add ssl-ca=FILE to the URL, where FILE holds the certificate of the authority that has signed the server's"
    } else {
        return problem;
    };
    format!("{problem}: {advice}")
}

/// The error for users.
fn described(error: &ServerError) -> String {
    let ServerError { code, message, .. } = error;
    match *code {
        // The server's message quotes the key, which is user data.
        DUPLICATE => format!("a row with the same key already exists ({code})"),
        READ_ONLY | 1792 | 1836 => format!(
            "the server says: {message} ({code}); it is a replica or set to read only: give the address of the primary"
        ),
        NODE_NOT_READY => {
            format!("the server says: {message} ({code}); this node is not part of its cluster now")
        }
        BINARY_LOG_BY_STATEMENT => {
            format!("the server says: {message} ({code}); set binlog_format to ROW or MIXED there")
        }
        _ => format!("the server says: {message} ({code})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: u16) -> Fault {
        let (message, state) = ("Duplicate entry 'secret' for key".to_owned(), "HY000".to_owned());
        Error::Server(ServerError { code, message, state }).into()
    }

    #[test]
    fn conflicts_and_outages_are_classified() {
        for code in [1213, 1205, 1062] {
            assert!(fault(code).is_conflict() && !fault(code).is_outage(), "{code}");
        }
        for code in [1047, 1290, 1836, 1053, 1969, 3024, 1317] {
            assert!(fault(code).is_outage() && !fault(code).is_conflict(), "{code}");
        }
        assert!(!fault(1064).is_conflict() && !fault(1064).is_outage(), "a bug in Punctual");
    }

    #[test]
    fn denied_access_is_distinguished_from_an_outage() {
        for (code, message, expected) in [
            (1044, "Access denied for user 'me'@'%' to database 'd'", Denial::Right),
            (1142, "CREATE command denied to user 'me'@'%' for table 'd'.'jobs'", Denial::Right),
            (1045, "Access denied for user 'me'@'h' (using password: YES)", Denial::Login),
            (1045, "Access denied for user 'me'@'h' (using password: NO)", Denial::NoPassword),
            (1049, "Unknown database 'd'", Denial::NoDatabase),
        ] {
            let error = ServerError { code, message: message.to_owned(), state: "HY000".to_owned() };
            let fault = Fault::from(Error::Server(error));
            assert!(fault.is_outage(), "{fault}");
            assert!(matches!(&fault, Fault::Denied(denial, _) if *denial == expected), "{fault}");
        }
        assert!(matches!(fault(1053), Fault::Away(_)));
    }

    #[test]
    fn messages_give_advice_and_quote_no_keys() {
        assert!(fault(1290).to_string().contains("address of the primary"));
        assert!(fault(1665).to_string().contains("binlog_format"));
        assert!(!fault(1062).to_string().contains("secret"));
    }
}
