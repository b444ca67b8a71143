//! A connection for one read verb of [`crate::reads`]. Statements are prepared once for each connection.

mod settled;
pub(crate) mod statements;

use super::tables::read_set::columns;
use super::wire::{Parameter, value};
use crate::cells::read;
use crate::fault::Fault;
use crate::lists::LOOKED_AT_MAX;
use crate::reads::{FetchedRows, Query, ReadBatches, ReadConnection};
use async_trait::async_trait;
use deadpool_postgres::{ClientWrapper, StatementCache, Transaction};
use futures_util::future::try_join_all;
use punctual_core::ports::HistorySpan;
use statements::statement;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

/// Statements omit rows that do not fit into a page, so that they may read many rows.
const BATCHES: ReadBatches = ReadBatches {
    rows: usize::MAX,
    dead_letters: LOOKED_AT_MAX,
    candidates: LOOKED_AT_MAX,
    // Few payloads are read needlessly when a page is full.
    views: 32,
    details: usize::MAX,
    is_pipelined: true,
    has_standing: true,
    has_errors_apart: true,
};

/// The column of a statement that omits rows after the one that fills the page: how many it has read.
const LOOKED_AT: &str = "looked_at";

/// A connection, or one transaction if several statements must see the same state.
pub(crate) struct PostgresReading<'a> {
    client: &'a Client,
    statements: &'a StatementCache,
}

impl<'a> PostgresReading<'a> {
    pub fn new(client: &'a ClientWrapper) -> Self {
        PostgresReading { client, statements: &client.statement_cache }
    }

    pub fn at_once(transaction: &'a Transaction<'_>) -> Self {
        PostgresReading { client: transaction.client(), statements: &transaction.statement_cache }
    }

    async fn all(&self, sql: &str, parameters: Vec<Parameter<'_>>) -> Result<Vec<Row>, Fault> {
        let statement = self.statements.prepare(self.client, sql).await?;
        let parameters: Vec<&(dyn ToSql + Sync)> =
            parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect();
        Ok(self.client.query(&statement, &parameters).await?)
    }

    /// The row of a statement that returns at most one.
    async fn one(&self, sql: &str, parameters: Vec<Parameter<'_>>) -> Result<Option<Row>, Fault> {
        Ok(self.all(sql, parameters).await?.into_iter().next())
    }

    async fn rows(&self, query: Query<'_>) -> Result<FetchedRows, Fault> {
        if query.is_needless() {
            return Ok(FetchedRows::new::<Row>(vec![]));
        }
        let mut parameters = query.list.map(columns).unwrap_or_default();
        parameters.extend(query.values.into_iter().map(value));
        let rows = self.all(statement(query.read), parameters).await?;
        let looked_at = rows.first().and_then(|row| Some((row, row.columns().last()?)));
        match looked_at.filter(|(_, last)| last.name() == LOOKED_AT) {
            Some((row, _)) => {
                let looked_at = read(row, row.len() - 1, LOOKED_AT)?;
                Ok(FetchedRows::of_looked_at(rows, looked_at))
            }
            None => Ok(FetchedRows::new(rows)),
        }
    }
}

#[async_trait]
impl ReadConnection for PostgresReading<'_> {
    fn batches(&self) -> &'static ReadBatches {
        &BATCHES
    }

    async fn fetch(&mut self, queries: Vec<Query<'_>>) -> Result<Vec<FetchedRows>, Fault> {
        try_join_all(queries.into_iter().map(|query| self.rows(query))).await
    }

    async fn settled_below(&mut self) -> Result<Option<i64>, Fault> {
        self.first_open().await.map(Some)
    }

    async fn history_span(&mut self) -> Result<HistorySpan, Fault> {
        self.span().await
    }
}
