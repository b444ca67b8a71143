//! One connection and its prepared statements. Statements that do not depend on each other's rows are sent
//! together and awaited once.

use super::connection::connect;
use super::errors::is_aftermath;
use super::options::Target;
use super::tables::read_set::columns;
use super::tables::write_set;
use crate::cells::Cell;
use crate::fault::Fault;
use crate::server::changes::Changed;
pub(crate) use crate::server::connection::TransactionFrame;
use crate::server::connection::{
    Argument, OwnConnection, ServerAnswer, ServerCall, ServerConnection, Statements,
};
use async_trait::async_trait;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

/// The value of one of a statement's `$n`.
pub(crate) type Parameter<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// A statement and its parameters.
pub(crate) struct StatementCall<'a> {
    pub sql: &'static str,
    pub parameters: Vec<Parameter<'a>>,
}

impl<'a> StatementCall<'a> {
    pub fn new(sql: &'static str, parameters: impl IntoIterator<Item = Parameter<'a>>) -> Self {
        StatementCall { sql, parameters: parameters.into_iter().collect() }
    }
}

/// One value.
pub(crate) fn value<'a>(value: impl ToSql + Sync + Send + 'a) -> Parameter<'a> {
    Box::new(value)
}

/// One column of many rows, as an array.
pub(crate) fn column<'a, T: ToSql + Sync + Send + 'a>(values: impl IntoIterator<Item = T>) -> Parameter<'a> {
    Box::new(values.into_iter().collect::<Vec<T>>())
}

/// A connection, for one caller at a time.
pub(crate) struct Wire {
    client: Client,
    prepared: BTreeMap<Cow<'static, str>, Statement>,
    /// The number of the server process.
    pub process: i32,
    /// The shard of each counter to which this connection adds.
    pub shard: i16,
}

/// Shards of each counter.
const SHARDS: i32 = 64;

impl Wire {
    pub async fn connect(target: &Target) -> Result<Self, Fault> {
        let client = connect(target).await?;
        let process: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.try_get(0)?;
        let shard = i16::try_from(process.rem_euclid(SHARDS)).unwrap_or(0);
        Ok(Wire { client, prepared: BTreeMap::new(), process, shard })
    }

    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// For statements that are not prepared.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Rolls back an open transaction.
    pub async fn roll_back(&self) -> Result<(), Fault> {
        Ok(self.client.batch_execute("ROLLBACK").await?)
    }

    pub async fn run_one(&mut self, call: StatementCall<'_>) -> Result<Vec<Row>, Fault> {
        Ok(self.run(TransactionFrame::None, vec![call]).await?.pop().unwrap_or_default())
    }

    /// Runs statements in order and returns the rows of each.
    ///
    /// Every result is checked: a `COMMIT` after a failed statement reports success. Of several errors the
    /// first is returned, because the others follow from it.
    pub async fn run(
        &mut self,
        frame: TransactionFrame,
        calls: Vec<StatementCall<'_>>,
    ) -> Result<Vec<Vec<Row>>, Fault> {
        self.prepare(&calls).await?;
        let (client, prepared) = (&self.client, &self.prepared);
        let plain = |sql: &'static str| -> PendingRows<'_> {
            Box::pin(async move { client.batch_execute(sql).await.map(|()| vec![]) })
        };
        let begins = matches!(frame, TransactionFrame::Begin | TransactionFrame::BeginAndCommit);
        let commits = matches!(frame, TransactionFrame::Commit | TransactionFrame::BeginAndCommit);
        let mut answers: Vec<PendingRows<'_>> = Vec::with_capacity(calls.len() + 2);
        if begins {
            answers.push(plain("BEGIN ISOLATION LEVEL READ COMMITTED"));
        }
        for call in &calls {
            answers.push(Box::pin(query(client, &prepared[call.sql], &call.parameters)));
        }
        if commits {
            answers.push(plain("COMMIT"));
        }
        let mut results = all_in_order(answers).await;
        if let Some(error) = first_error(&mut results) {
            return Err(error.into());
        }
        let rows = results.into_iter().skip(usize::from(begins)).take(calls.len());
        Ok(rows.map(Result::unwrap_or_default).collect())
    }

    /// Runs a statement whose text is built at run time.
    pub async fn query_text(
        &mut self,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Fault> {
        if !self.prepared.contains_key(sql) {
            let statement = self.client.prepare(sql).await?;
            self.prepared.insert(Cow::Owned(sql.to_owned()), statement);
        }
        Ok(self.client.query(&self.prepared[sql], parameters).await?)
    }

    /// Prepares statements on first use.
    async fn prepare(&mut self, calls: &[StatementCall<'_>]) -> Result<(), Fault> {
        let mut missing: Vec<&'static str> =
            calls.iter().map(|call| call.sql).filter(|sql| !self.prepared.contains_key(*sql)).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        let answers = missing.iter().map(|sql| Box::pin(self.client.prepare(sql))).collect();
        for (sql, statement) in missing.iter().zip(all_in_order(answers).await) {
            self.prepared.insert(Cow::Borrowed(*sql), statement?);
        }
        Ok(())
    }
}

type PendingRows<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

async fn query(
    client: &Client,
    statement: &Statement,
    parameters: &[Parameter<'_>],
) -> Result<Vec<Row>, Error> {
    let parameters: Vec<&(dyn ToSql + Sync)> =
        parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect();
    client.query(statement, &parameters).await
}

fn first_error(results: &mut Vec<Result<Vec<Row>, Error>>) -> Option<Error> {
    let is_cause = |result: &Result<Vec<Row>, Error>| matches!(result, Err(error) if !is_aftermath(error));
    let first = results.iter().position(is_cause).or_else(|| results.iter().position(Result::is_err))?;
    results.swap_remove(first).err()
}

/// Awaits all futures. A statement is sent when its future is first polled, so they are polled in order;
/// `join_all` does not promise any.
async fn all_in_order<F: Future + ?Sized>(futures: Vec<Pin<Box<F>>>) -> Vec<F::Output> {
    let mut results: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    let mut futures = futures;
    poll_fn(move |context| {
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(output) = future.as_mut().poll(context)
            {
                *result = Some(output);
            }
        }
        if results.iter().any(Option::is_none) {
            return Poll::Pending;
        }
        Poll::Ready(std::mem::take(&mut results).into_iter().flatten().collect())
    })
    .await
}

/// A connection reserved for one kind of work.
pub(crate) type OwnWire = OwnConnection<Wire>;

#[async_trait]
impl Statements for Wire {
    type Row = Row;

    async fn send(
        &mut self,
        frame: TransactionFrame,
        calls: Vec<ServerCall<'_>>,
    ) -> Result<Vec<ServerAnswer<Row>>, Fault> {
        let are_sent: Vec<bool> = calls.iter().map(|call| !call.is_empty()).collect();
        let calls = calls.into_iter().filter(|call| !call.is_empty()).map(StatementCall::from).collect();
        let mut answers = self.run(frame, calls).await?.into_iter();
        let answer = |is_sent| {
            let rows = if is_sent { answers.next().unwrap_or_default() } else { vec![] };
            ServerAnswer { count: rows.len() as u64, rows }
        };
        Ok(are_sent.into_iter().map(answer).collect())
    }

    /// Each statement was its own transaction.
    async fn settle(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

#[async_trait]
impl ServerConnection for Wire {
    type Target = Target;
    const CLOSES_UNNOTICED: bool = false;

    async fn connect(target: &Target) -> Result<Self, Fault> {
        Wire::connect(target).await
    }

    fn is_usable(&self) -> bool {
        !self.is_closed()
    }

    async fn commit_changes(
        &mut self,
        calls: Vec<ServerCall<'_>>,
        changes: Vec<Changed<'_>>,
    ) -> Result<(), Fault> {
        let first = calls.into_iter().filter(|call| !call.is_empty()).map(StatementCall::from);
        self.run(TransactionFrame::Commit, first.chain(write_set::calls(changes)).collect()).await.map(drop)
    }

    async fn query(&mut self, sql: &str, values: Vec<Cell<'_>>) -> Result<ServerAnswer<Row>, Fault> {
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|cell| cell as _).collect();
        let rows = self.query_text(sql, &values).await?;
        Ok(ServerAnswer { count: rows.len() as u64, rows })
    }

    async fn roll_back(&mut self) -> Result<(), Fault> {
        Wire::roll_back(self).await
    }
}

impl<'a> From<ServerCall<'a>> for StatementCall<'a> {
    fn from(call: ServerCall<'a>) -> Self {
        let parameters = call.arguments.into_iter().flat_map(|argument| match argument {
            Argument::Value(cell) => vec![value(cell)],
            Argument::Rows(list) => columns(list),
        });
        StatementCall { sql: call.sql, parameters: parameters.collect() }
    }
}
