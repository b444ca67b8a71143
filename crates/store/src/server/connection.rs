//! A connection to a database server for work outside the unit of work: statements with lists of rows, in
//! transactions. Maintenance, membership and checks are written once over this trait; a dialect has the
//! texts of the statements.

use super::changes::Changed;
use crate::cells::{Cell, CellValue, RowCells, get};
use crate::fault::Fault;
use crate::row_list::List;
use async_trait::async_trait;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// A parameter of a statement.
#[derive(Debug, Clone)]
pub(crate) enum Argument<'a> {
    Value(Cell<'a>),
    /// An array for each column, or a document. A statement whose list has no rows is not sent.
    Rows(List<'a>),
}

pub(crate) fn value<'a>(value: impl CellValue<'a>) -> Argument<'a> {
    Argument::Value(value.into_cell())
}

/// A statement and its parameters. At most one of them is a list.
#[derive(Debug, Clone)]
pub(crate) struct ServerCall<'a> {
    pub sql: &'static str,
    pub arguments: Vec<Argument<'a>>,
}

impl<'a> ServerCall<'a> {
    pub fn new(sql: &'static str, arguments: impl IntoIterator<Item = Argument<'a>>) -> Self {
        ServerCall { sql, arguments: arguments.into_iter().collect() }
    }

    /// Whether its list has no rows.
    pub fn is_empty(&self) -> bool {
        self.arguments.iter().any(|argument| matches!(argument, Argument::Rows(list) if list.is_empty()))
    }
}

/// The transaction statements to send around other statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionFrame {
    /// Nothing: each statement is its own transaction, or one is open. On servers where a statement opens a
    /// transaction, [`ServerConnection::settle`] must follow.
    None,
    /// A transaction begins before them.
    Begin,
    /// It is committed after them.
    Commit,
    BeginAndCommit,
}

/// The answer to one statement.
#[derive(Debug)]
pub(crate) struct ServerAnswer<R> {
    pub rows: Vec<R>,
    /// The rows of a statement that changes or deletes some.
    pub count: u64,
}

impl<R> Default for ServerAnswer<R> {
    fn default() -> Self {
        ServerAnswer { rows: Vec::new(), count: 0 }
    }
}

impl<R: RowCells> ServerAnswer<R> {
    /// The first column of all rows.
    pub fn column<T: for<'r> CellValue<'r>>(&self) -> Result<Vec<T>, Fault> {
        self.rows.iter().map(|row| get(row, 0)).collect()
    }

    /// The first column of the only row; `what` names it in errors.
    pub fn single<T: for<'r> CellValue<'r>>(&self, what: &str) -> Result<T, Fault> {
        self.rows.first().map_or_else(|| Err(Fault::Missing(what.to_owned())), |row| get(row, 0))
    }
}

/// Runs statements: over a connection to a server, or in the transaction of SQLite's writer.
#[async_trait]
pub(crate) trait Statements: Send {
    type Row: RowCells + Send + Sync;

    /// Runs statements in order. Sends them together if the database can do that.
    async fn send(
        &mut self,
        frame: TransactionFrame,
        calls: Vec<ServerCall<'_>>,
    ) -> Result<Vec<ServerAnswer<Self::Row>>, Fault>;

    /// Ends the transaction that plain statements have opened, in databases where they open one.
    async fn settle(&mut self) -> Result<(), Fault>;

    async fn send_one(
        &mut self,
        frame: TransactionFrame,
        call: ServerCall<'_>,
    ) -> Result<ServerAnswer<Self::Row>, Fault> {
        Ok(self.send(frame, vec![call]).await?.pop().unwrap_or_default())
    }

    /// Runs a statement as a transaction.
    async fn send_alone(&mut self, call: ServerCall<'_>) -> Result<ServerAnswer<Self::Row>, Fault> {
        let answer = self.send_one(TransactionFrame::None, call).await?;
        self.settle().await?;
        Ok(answer)
    }
}

/// A verb as a value. It runs on the statements of a dialect, and can be run again after a conflict.
#[async_trait]
pub(crate) trait StatementVerb<C>: Sync {
    type Reply: Send;

    async fn perform(&self, connection: &mut C) -> Result<Self::Reply, Fault>;
}

/// A connection of a dialect, for one caller at a time.
#[async_trait]
pub(crate) trait ServerConnection: Statements + Sized {
    type Target: Clone + Send + Sync;
    /// Whether only the next statement notices that the server has closed a kept connection.
    const CLOSES_UNNOTICED: bool;

    async fn connect(target: &Self::Target) -> Result<Self, Fault>;

    fn is_usable(&self) -> bool;

    /// Runs statements and changes, and commits.
    async fn commit_changes(
        &mut self,
        calls: Vec<ServerCall<'_>>,
        changes: Vec<Changed<'_>>,
    ) -> Result<(), Fault>;

    /// Runs a statement whose text is built at run time; each text is prepared once.
    async fn query(&mut self, sql: &str, values: Vec<Cell<'_>>) -> Result<ServerAnswer<Self::Row>, Fault>;

    /// Rolls back after an error, so that the connection can be used again.
    async fn roll_back(&mut self) -> Result<(), Fault>;
}

/// The pause before the second run of a verb; it grows with each.
pub(crate) const CONFLICT_PAUSE: Duration = Duration::from_millis(5);

/// Runs a verb up to this many times while it is rolled back in favour of other transactions.
macro_rules! retry_conflicts {
    ($tries_max:expr, $verb:expr) => {{
        let mut tries = 1;
        loop {
            match $verb.await {
                Err(fault) if fault.is_conflict() && tries < $tries_max => {
                    tokio::time::sleep($crate::server::connection::CONFLICT_PAUSE * tries).await;
                    tries += 1;
                }
                done => break done,
            }
        }
    }};
}
pub(crate) use retry_conflicts;

/// How often [`OwnConnection`] runs a verb because of conflicts.
const TRIES: u32 = 12;

/// A connection reserved for one kind of work, opened on demand and again after it broke.
pub(crate) struct OwnConnection<C: ServerConnection> {
    target: C::Target,
    kept: Mutex<Option<C>>,
}

/// The connection while it is in use. Unless it is kept, it is closed, and an open transaction is rolled
/// back.
pub(crate) struct UsedConnection<'a, C: ServerConnection> {
    pub connection: C,
    /// Whether the server may have closed it since it was used last.
    pub may_be_closed: bool,
    target: &'a C::Target,
    place: MutexGuard<'a, Option<C>>,
}

impl<C: ServerConnection> OwnConnection<C> {
    pub fn new(target: C::Target) -> Self {
        OwnConnection { target, kept: Mutex::default() }
    }

    /// Waits until it is free.
    pub async fn take(&self) -> Result<UsedConnection<'_, C>, Fault> {
        let mut place = self.kept.lock().await;
        let kept = place.take().filter(C::is_usable);
        let may_be_closed = C::CLOSES_UNNOTICED && kept.is_some();
        let connection = match kept {
            Some(connection) => connection,
            None => C::connect(&self.target).await?,
        };
        Ok(UsedConnection { connection, may_be_closed, target: &self.target, place })
    }

    /// The connection with a transaction that has begun, on a new connection if the kept one is closed.
    async fn begin(&self) -> Result<UsedConnection<'_, C>, Fault> {
        let mut used = self.take().await?;
        let mut begun = used.connection.send(TransactionFrame::Begin, vec![]).await;
        if used.may_be_closed && begun.as_ref().is_err_and(Fault::is_outage) {
            used.renew().await?;
            begun = used.connection.send(TransactionFrame::Begin, vec![]).await;
        }
        begun?;
        Ok(used)
    }

    /// Runs an idempotent statement as a transaction, on a new connection if the kept one is closed.
    pub async fn send(&self, call: ServerCall<'_>) -> Result<ServerAnswer<C::Row>, Fault> {
        let mut used = self.take().await?;
        let mut answer = used.connection.send_alone(call.clone()).await;
        if used.may_be_closed && answer.as_ref().is_err_and(Fault::is_outage) {
            used.renew().await?;
            answer = used.connection.send_alone(call).await;
        }
        let answer = answer?;
        used.keep();
        Ok(answer)
    }

    /// Runs a verb, again after conflicts, and on a new connection if the kept one is closed.
    pub async fn run<V: StatementVerb<C>>(&self, verb: &V) -> Result<V::Reply, Fault> {
        retry_conflicts!(TRIES, self.run_once(verb))
    }

    async fn run_once<V: StatementVerb<C>>(&self, verb: &V) -> Result<V::Reply, Fault> {
        let mut used = self.take().await?;
        let mut done = verb.perform(&mut used.connection).await;
        if used.may_be_closed && done.as_ref().is_err_and(Fault::is_outage) {
            used.renew().await?;
            done = verb.perform(&mut used.connection).await;
        }
        used.keep_after(done).await
    }

    /// Runs a verb in a transaction that has begun, again after conflicts. If the connection breaks while the verb
    /// runs, the outcome is unknown, and the caller gets the error.
    pub async fn transact<V: StatementVerb<C>>(&self, verb: &V) -> Result<V::Reply, Fault> {
        retry_conflicts!(TRIES, self.transact_once(verb))
    }

    async fn transact_once<V: StatementVerb<C>>(&self, verb: &V) -> Result<V::Reply, Fault> {
        let mut used = self.begin().await?;
        let done = verb.perform(&mut used.connection).await;
        used.keep_after(done).await
    }

    /// The kept connection, if there is one.
    pub fn into_kept(self) -> Option<C> {
        self.kept.into_inner()
    }
}

impl<C: ServerConnection> UsedConnection<'_, C> {
    /// Replaces this connection with a new one.
    pub async fn renew(&mut self) -> Result<(), Fault> {
        self.connection = C::connect(self.target).await?;
        self.may_be_closed = false;
        Ok(())
    }

    /// Keeps it after success or a conflict.
    async fn keep_after<T>(mut self, done: Result<T, Fault>) -> Result<T, Fault> {
        let is_conflict = done.as_ref().is_err_and(Fault::is_conflict);
        if is_conflict {
            self.connection.roll_back().await?;
        }
        if done.is_ok() || is_conflict {
            self.keep();
        }
        done
    }

    /// Keeps it for the next caller; nothing may be uncommitted.
    pub fn keep(mut self) {
        *self.place = Some(self.connection);
    }
}
