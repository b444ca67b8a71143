//! One connection, for writers; readers have their own pool.
//!
//! An unread reply would be taken for the reply to the next statement. So a connection counts as broken
//! from the moment a statement is sent until its reply has arrived: if the caller gives up in between, the
//! connection is closed.

use super::errors::{
    DEADLOCK, DUPLICATE_COLUMN, DUPLICATE_INDEX, LOCK_WAIT_TIMEOUT, NOT_THERE, PARTITION_GONE,
    PARTITION_THERE, PARTITION_TO_DROP_GONE, server_code,
};
use super::lists::{Statement, documents};
use super::options::{SEE_ALL_NODES, Target};
use super::tables::statements;
use crate::cells::{Cell, get};
use crate::fault::Fault;
use crate::server::changes::Changed;
use crate::server::connection::{
    Argument, ServerAnswer, ServerCall, ServerConnection, Statements, TransactionFrame,
};
use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Params, Row, Value};
use punctual_core::ports::Denial;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// How much longer than the server's own limit to wait for its reply.
const GRACE: Duration = Duration::from_secs(5);
/// Longer than any caller waits.
const FOR_EVER: Duration = Duration::from_secs(24 * 3_600);
/// The first versions that support `JSON_TABLE` and `SKIP LOCKED`.
const MARIADB_MIN: (u32, u32, u32) = (10, 6, 0);
const MYSQL_MIN: (u32, u32, u32) = (8, 0, 19);

/// The type of a name column in a list, so that it is compared like the names in the tables. Without it
/// MariaDB would use the database's own character set, lose some of our characters and scan whole tables.
macro_rules! text_type {
    ($length:literal) => {
        concat!(
            "VARCHAR(",
            $length,
            ") CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */"
        )
    };
}
pub(crate) use text_type;

/// Locks the rows of one table in a join. MySQL refuses to lock a list; MariaDB has no syntax for it.
macro_rules! for_update_of {
    ($table:literal) => {
        concat!(" FOR UPDATE /*!80000 OF ", $table, " */")
    };
}
pub(crate) use for_update_of;

/// Prevents others from writing rows of one table in a join. MySQL refuses to lock a list; MariaDB has no
/// syntax for it, and a different one for the rest.
macro_rules! for_share_of {
    ($table:literal) => {
        concat!(" /*!80000 FOR SHARE OF ", $table, " */ /*M! LOCK IN SHARE MODE */")
    };
}
pub(crate) use for_share_of;

#[derive(Debug)]
pub(crate) struct Connection {
    conn: Conn,
    /// How long to wait for a reply.
    time_limit: Duration,
    is_broken: bool,
    /// The number of this Galera node, from 1, if the server is one. Locks do not extend to other nodes.
    node: Option<i64>,
    /// Whether the open transaction began with a savepoint that must still exist at its end.
    is_marked: bool,
}

/// A node may roll back a transaction at any moment because of a write on another node. Nearly always the
/// next statement reports it. If it does not, it opens a new transaction, and the rest would be committed
/// alone. The savepoint ends with the transaction, so that a commit never covers only a part of it.
const BEGIN_MARKED: &str = "START TRANSACTION; SAVEPOINT whole";
const COMMIT_MARKED: &str = "RELEASE SAVEPOINT whole; COMMIT";

/// The properties of a server to check.
const SERVER: &str =
    "SHOW SESSION VARIABLES WHERE Variable_name IN ('version', 'wsrep_on', 'auto_increment_offset')";
/// Does nothing, but fails on a node that is not part of its cluster or must not be used. Reading variables would
/// succeed there.
const NOTHING: &str = "DO 0";

impl Connection {
    /// For transactions.
    pub async fn writing(target: &Target) -> Result<Self, Fault> {
        Self::open(target, Target::writing).await
    }

    /// For DDL statements.
    pub async fn defining(target: &Target) -> Result<Self, Fault> {
        Self::open(target, Target::defining).await
    }

    /// Connects to the host that answered last, or to the next one that does.
    async fn open(target: &Target, setup: fn(&Target, &Opts) -> Opts) -> Result<Self, Fault> {
        let mut refusals = Vec::new();
        for _ in target.hosts.all() {
            let (place, host) = target.hosts.current();
            match Self::open_host(target, setup(target, host)).await {
                Err(fault @ (Fault::Away(_) | Fault::Denied(..))) => {
                    refusals.push((format!("{}:{}", host.ip_or_hostname(), host.tcp_port()), fault));
                    target.hosts.pass_on(place);
                }
                opened => return opened,
            }
        }
        Err(refused(refusals))
    }

    async fn open_host(target: &Target, opts: Opts) -> Result<Self, Fault> {
        let (name, wait) = (opts.ip_or_hostname().to_owned(), target.patience_with_host());
        let late = || Fault::Away(format!("{name} has not answered within {} s", wait.as_secs_f64()));
        let conn = timeout(wait, Conn::new(opts)).await.map_err(|_| late())??;
        let time_limit = target.statement_timeout.saturating_add(GRACE);
        let mut connection = Connection { conn, time_limit, is_broken: false, node: None, is_marked: false };
        timeout(wait, connection.look_at_server()).await.map_err(|_| late())??;
        Ok(connection)
    }

    /// Rejects a server that is too old, or a node that is not part of its cluster.
    async fn look_at_server(&mut self) -> Result<(), Fault> {
        let rows = self.all_of_text(SERVER).await?;
        let known: BTreeMap<String, String> =
            rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect::<Result<_, Fault>>()?;
        let said = |name: &str| known.get(name).map(String::as_str).unwrap_or_default();
        check_version(said("version"))?;
        if said("wsrep_on") != "ON" {
            return Ok(());
        }
        self.run_text(NOTHING).await?;
        self.run_text(SEE_ALL_NODES).await?;
        // Each node has a different number here, unless an administrator has switched that off.
        self.node = Some(said("auto_increment_offset").parse().unwrap_or(1));
        Ok(())
    }

    /// The number of this Galera node, from 1, if the server is one.
    pub fn node(&self) -> Option<i64> {
        self.node
    }

    /// For a statement that may have to wait for others without limit.
    pub fn wait_for_ever(&mut self) {
        self.time_limit = FOR_EVER;
    }

    /// Whether a statement was sent and its reply has not arrived, or the server has closed the connection.
    pub fn is_broken(&self) -> bool {
        self.is_broken || self.conn.is_disconnected()
    }

    /// All rows of a query that has its own limit. It is prepared once.
    pub async fn all(&mut self, sql: &str, values: Vec<Value>) -> Result<Vec<Row>, Fault> {
        let time_limit = self.time_limit;
        self.is_broken = true;
        let answer = timeout(time_limit, self.conn.exec(sql, positional(values))).await;
        self.answered(answer)
    }

    /// The first row of a query, if there is one.
    pub async fn one(&mut self, sql: &str, values: Vec<Value>) -> Result<Option<Row>, Fault> {
        Ok(self.all(sql, values).await?.into_iter().next())
    }

    /// Runs a statement that is prepared once. Returns the number of rows it found.
    pub async fn run(&mut self, sql: &str, values: Vec<Value>) -> Result<u64, Fault> {
        let time_limit = self.time_limit;
        self.is_broken = true;
        let answer = timeout(time_limit, self.conn.exec_drop(sql, positional(values))).await;
        self.answered(answer)?;
        Ok(self.conn.affected_rows())
    }

    /// All rows of a query whose text is used only once; it contains only our own keywords and numbers.
    pub async fn all_of_text(&mut self, sql: &str) -> Result<Vec<Row>, Fault> {
        let time_limit = self.time_limit;
        self.is_broken = true;
        let answer = timeout(time_limit, self.conn.query(sql)).await;
        self.answered(answer)
    }

    /// Runs a statement that cannot or need not be prepared.
    pub async fn run_text(&mut self, sql: &str) -> Result<(), Fault> {
        let time_limit = self.time_limit;
        self.is_broken = true;
        let answer = timeout(time_limit, self.conn.query_drop(sql)).await;
        self.answered(answer)
    }

    /// Runs a DDL statement. Returns `false` if users of the table, or other DDL statements on it, blocked
    /// it.
    pub async fn define(&mut self, sql: &str) -> Result<bool, Fault> {
        self.is_broken = true;
        // It may copy a table, and must not be interrupted by a timeout of its reply.
        let answer = self.conn.query_drop(sql).await;
        self.is_broken = self.conn.is_disconnected();
        match answer {
            Ok(()) => Ok(true),
            // An incomplete run of the same step has added the column.
            Err(error) if matches!(server_code(&error), Some(DUPLICATE_COLUMN | DUPLICATE_INDEX)) => Ok(true),
            // On a cluster, DDL statements conflict like transactions, and the check before may not have
            // seen what another node had just defined.
            Err(error) if matches!(server_code(&error), Some(LOCK_WAIT_TIMEOUT | DEADLOCK)) => Ok(false),
            Err(error)
                if matches!(
                    server_code(&error),
                    Some(PARTITION_THERE | PARTITION_GONE | PARTITION_TO_DROP_GONE)
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a transaction that relies on its locks. On other servers the first statement does that.
    pub async fn begin(&mut self) -> Result<(), Fault> {
        if self.node.is_some() {
            self.run_text(BEGIN_MARKED).await?;
            self.is_marked = true;
        }
        Ok(())
    }

    pub async fn commit(&mut self) -> Result<(), Fault> {
        if !std::mem::take(&mut self.is_marked) {
            return self.run_text("COMMIT").await;
        }
        self.is_broken = true;
        let answer = timeout(self.time_limit, self.conn.query_drop(COMMIT_MARKED)).await;
        match answer {
            Ok(Err(error)) if server_code(&error) == Some(NOT_THERE) => {
                self.is_broken = self.conn.is_disconnected();
                Err(Fault::Conflict("the transaction was undone before its commit".to_owned()))
            }
            answer => self.answered(answer),
        }
    }

    /// Rolls back. A connection on which that fails is broken.
    pub async fn roll_back(&mut self) {
        self.is_marked = false;
        if self.is_broken() {
            return;
        }
        if let Err(error) = self.run_text("ROLLBACK").await {
            tracing::warn!(%error, "a transaction could not be rolled back; its connection is closed");
            self.is_broken = true;
        }
    }

    /// Disconnects properly, so that the server does not count an aborted connection.
    pub async fn close(self) {
        if !self.is_broken {
            // Whether the server has received it no longer matters.
            let _ = timeout(self.time_limit, self.conn.disconnect()).await;
        }
    }

    fn answered<T>(
        &mut self,
        answer: Result<mysql_async::Result<T>, tokio::time::error::Elapsed>,
    ) -> Result<T, Fault> {
        match answer {
            Ok(answer) => {
                self.is_broken = self.conn.is_disconnected();
                Ok(answer?)
            }
            Err(_) => {
                let seconds = self.time_limit.as_secs_f64();
                Err(Fault::Away(format!("a statement was not answered within {seconds} s")))
            }
        }
    }
}

#[async_trait]
impl Statements for Connection {
    type Row = Row;

    /// One statement for each document of a list.
    async fn send(
        &mut self,
        frame: TransactionFrame,
        calls: Vec<ServerCall<'_>>,
    ) -> Result<Vec<ServerAnswer<Row>>, Fault> {
        if matches!(frame, TransactionFrame::Begin | TransactionFrame::BeginAndCommit) {
            self.begin().await?;
        }
        let mut answers = Vec::with_capacity(calls.len());
        for ServerCall { sql, arguments } in calls {
            let mut answer = ServerAnswer::default();
            for values in statements_of(arguments) {
                answer.rows.append(&mut self.all(sql, values).await?);
                answer.count += self.conn.affected_rows();
            }
            answers.push(answer);
        }
        if matches!(frame, TransactionFrame::Commit | TransactionFrame::BeginAndCommit) {
            self.commit().await?;
        }
        Ok(answers)
    }

    async fn settle(&mut self) -> Result<(), Fault> {
        self.commit().await
    }

    /// Marked on a Galera node, which may undo a single statement, too, before its commit.
    async fn send_alone(&mut self, call: ServerCall<'_>) -> Result<ServerAnswer<Row>, Fault> {
        self.send_one(TransactionFrame::BeginAndCommit, call).await
    }
}

#[async_trait]
impl ServerConnection for Connection {
    type Target = Target;
    const CLOSES_UNNOTICED: bool = true;

    async fn connect(target: &Target) -> Result<Self, Fault> {
        Connection::writing(target).await
    }

    fn is_usable(&self) -> bool {
        !self.is_broken()
    }

    async fn commit_changes(
        &mut self,
        calls: Vec<ServerCall<'_>>,
        changes: Vec<Changed<'_>>,
    ) -> Result<(), Fault> {
        self.send(TransactionFrame::None, calls).await?;
        for Statement { sql, values } in statements(changes) {
            self.run(&sql, values).await?;
        }
        self.commit().await
    }

    async fn query(&mut self, sql: &str, values: Vec<Cell<'_>>) -> Result<ServerAnswer<Row>, Fault> {
        let rows = self.all(sql, values.into_iter().map(Value::from).collect()).await?;
        Ok(ServerAnswer { rows, count: self.conn.affected_rows() })
    }

    async fn roll_back(&mut self) -> Result<(), Fault> {
        Connection::roll_back(self).await;
        Ok(())
    }
}

/// The values of each statement that these arguments need: one for each document of their list.
fn statements_of(arguments: Vec<Argument<'_>>) -> Vec<Vec<Value>> {
    let mut statements = vec![vec![]];
    for argument in arguments {
        statements = match argument {
            Argument::Value(cell) => {
                let value = Value::from(cell);
                statements.iter_mut().for_each(|values: &mut Vec<Value>| values.push(value.clone()));
                statements
            }
            Argument::Rows(list) => {
                let with = |document| statements.iter().flatten().cloned().chain([document]).collect();
                documents(&list).into_iter().map(with).collect()
            }
        };
    }
    statements
}

fn positional(values: Vec<Value>) -> Params {
    if values.is_empty() { Params::Empty } else { Params::Positional(values) }
}

/// The error if no host is usable; with several hosts it contains the reason for each.
fn refused(mut refusals: Vec<(String, Fault)>) -> Fault {
    if refusals.len() == 1
        && let Some((_, fault)) = refusals.pop()
    {
        return fault;
    }
    let reasons = refusals.iter().map(|(host, fault)| match fault {
        Fault::Away(said) | Fault::Denied(_, said) => format!("{host}: {said}"),
        other => format!("{host}: {other}"),
    });
    let said = reasons.collect::<Vec<_>>().join("; ");
    let denials = refusals.iter().map(|(_, fault)| match fault {
        Fault::Denied(denial, _) => Some(*denial),
        _ => None,
    });
    match Denial::shared(denials) {
        Some(denial) => Fault::Denied(denial, said),
        None => Fault::Away(said),
    }
}

fn check_version(version: &str) -> Result<(), Fault> {
    let is_mariadb = version.to_ascii_lowercase().contains("mariadb");
    let numbers = version.trim_start_matches("5.5.5-").split(['.', '-']);
    let mut numbers = numbers.map(|number| number.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let found = (next(), next(), next());
    let (name, least) = if is_mariadb { ("MariaDB", MARIADB_MIN) } else { ("MySQL", MYSQL_MIN) };
    if found < least {
        let (major, minor, patch) = least;
        return Err(Fault::MySql(format!(
            "the server is {name} {version}: {name} {major}.{minor}.{patch} or later is needed"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_rejected_by_name() {
        for good in
            ["10.11.19-MariaDB-0+deb12u1", "11.4.2-MariaDB", "5.5.5-10.6.1-MariaDB", "8.0.36", "9.7.4-2"]
        {
            assert!(check_version(good).is_ok(), "{good}");
        }
        for (bad, words) in
            [("10.5.9-MariaDB", "MariaDB 10.6.0"), ("8.0.11", "MySQL 8.0.19"), ("5.7.44-log", "MySQL")]
        {
            let error = check_version(bad).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("or later is needed"), "{error}");
        }
    }
}
