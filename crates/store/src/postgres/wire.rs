//! One connection and its prepared statements. Statements that do not depend on each other's rows are sent
//! together and awaited once.

use super::connection::connect;
use super::errors::is_aftermath;
use super::options::Target;
use crate::fault::Fault;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

/// The value of one of a statement's `$n`.
pub(crate) type Parameter<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// A statement and its parameters.
pub(crate) struct Call<'a> {
    pub sql: &'static str,
    pub parameters: Vec<Parameter<'a>>,
}

impl<'a> Call<'a> {
    pub fn new(sql: &'static str, parameters: impl IntoIterator<Item = Parameter<'a>>) -> Self {
        Call { sql, parameters: parameters.into_iter().collect() }
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

/// What is sent around the statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Nothing: each statement is its own transaction, or one is open.
    None,
    /// A transaction begins before them.
    Begin,
    /// It is committed after them.
    Commit,
    BeginAndCommit,
}

/// A connection, for one caller at a time.
pub(crate) struct Wire {
    client: Client,
    prepared: BTreeMap<&'static str, Statement>,
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

    pub async fn run_one(&mut self, call: Call<'_>) -> Result<Vec<Row>, Fault> {
        Ok(self.run(Frame::None, vec![call]).await?.pop().unwrap_or_default())
    }

    /// Runs statements in order and returns the rows of each.
    ///
    /// Every result is checked: a `COMMIT` after a failed statement reports success. Of several errors the
    /// first is returned, because the others follow from it.
    pub async fn run(&mut self, frame: Frame, calls: Vec<Call<'_>>) -> Result<Vec<Vec<Row>>, Fault> {
        self.prepare(&calls).await?;
        let (client, prepared) = (&self.client, &self.prepared);
        let plain = |sql: &'static str| -> Answer<'_> {
            Box::pin(async move { client.batch_execute(sql).await.map(|()| vec![]) })
        };
        let begins = matches!(frame, Frame::Begin | Frame::BeginAndCommit);
        let commits = matches!(frame, Frame::Commit | Frame::BeginAndCommit);
        let mut answers: Vec<Answer<'_>> = Vec::with_capacity(calls.len() + 2);
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

    /// Prepares statements on first use.
    async fn prepare(&mut self, calls: &[Call<'_>]) -> Result<(), Fault> {
        let mut missing: Vec<&'static str> =
            calls.iter().map(|call| call.sql).filter(|sql| !self.prepared.contains_key(sql)).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        let answers = missing.iter().map(|sql| Box::pin(self.client.prepare(sql))).collect();
        for (sql, statement) in missing.iter().zip(all_in_order(answers).await) {
            self.prepared.insert(sql, statement?);
        }
        Ok(())
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

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

/// A connection reserved for one kind of work, opened on demand and again after it broke.
pub(crate) struct OwnWire {
    target: Target,
    wire: tokio::sync::Mutex<Option<Wire>>,
}

/// The connection while it is in use. Unless it is kept, it is closed, and an open transaction is rolled
/// back.
pub(crate) struct Used<'a> {
    place: tokio::sync::MutexGuard<'a, Option<Wire>>,
    pub wire: Wire,
}

impl OwnWire {
    pub fn new(target: Target) -> Self {
        OwnWire { target, wire: tokio::sync::Mutex::new(None) }
    }

    /// Waits until it is free.
    pub async fn take(&self) -> Result<Used<'_>, Fault> {
        let mut place = self.wire.lock().await;
        let wire = match place.take() {
            Some(wire) if !wire.is_closed() => wire,
            _ => Wire::connect(&self.target).await?,
        };
        Ok(Used { place, wire })
    }
}

impl Used<'_> {
    /// Keeps the connection for the next user, after everything has succeeded.
    pub fn keep(self) {
        let Used { mut place, wire } = self;
        *place = Some(wire);
    }
}
