//! A connection for one read verb of `server/reads`. Statements are prepared once for each connection.

mod settled;
pub(crate) mod statements;

use super::rows::uuid;
use super::tables::read_set::columns;
use super::wire::{Parameter, value};
use crate::cells::{get, read};
use crate::codecs::{read_finished, read_live};
use crate::fault::Fault;
use crate::layout::LiveColumns;
use crate::lists::LOOKED_AT_MAX;
use crate::malformed::rows_passed_over;
use crate::server::reads::{FetchedRows, Query, ReadBatches, ReadConnection, attempt_of};
use async_trait::async_trait;
use deadpool_postgres::{ClientWrapper, StatementCache, Transaction};
use futures_util::future::try_join_all;
use punctual_core::ids::{ExecutionId, OccurrenceId};
use punctual_core::ports::{ExecutionView, HistorySpan, StoreFigures};
use statements::{EXECUTION, SIZES, statement};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

/// Statements omit what does not fit into a page, so that they may look at many rows.
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

/// The first column of the finished execution in [`EXECUTION`]: after two flags, the live one and its worker.
const FINISHED_FROM: usize = 2 + LiveColumns::COUNT + 1;

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

    async fn execution(&mut self, id: ExecutionId) -> Result<Option<ExecutionView>, Fault> {
        let OccurrenceId { job, number } = id.occurrence;
        let key = vec![value(uuid(job)), value(i64::from(number)), value(attempt_of(id))];
        let Some(row) = self.one(EXECUTION, key).await? else { return Ok(None) };
        let (is_live, is_finished): (bool, bool) = (get(&row, 0)?, get(&row, 1)?);
        Ok(if is_live {
            let worker = get(&row, 2 + LiveColumns::COUNT)?;
            Some(ExecutionView::Live { live: read_live(&row, 2)?.live, worker })
        } else if is_finished {
            Some(ExecutionView::Finished(read_finished(&row, FINISHED_FROM)?))
        } else {
            None
        })
    }

    async fn figures(&mut self) -> Result<StoreFigures, Fault> {
        let row = self.one(SIZES, vec![]).await?.ok_or_else(|| Fault::Missing("sizes".to_owned()))?;
        Ok(StoreFigures {
            database_bytes: read(&row, 0, "pg_database_size")?,
            log_bytes: read(&row, 1, "pg_total_relation_size")?,
            malformed_rows: rows_passed_over(),
            ..StoreFigures::default()
        })
    }
}
