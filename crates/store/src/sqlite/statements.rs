//! Runs verbs that are the same in every database ([`Statements`]), in the transaction of the writer.

use super::rows::SqliteRow;
use crate::cells::Cell;
use crate::fault::Fault;
use crate::server::connection::{Argument, ServerAnswer, ServerCall, Statements, TransactionFrame};
use async_trait::async_trait;
use rusqlite::Connection;
use std::slice;

pub(crate) struct SqliteStatements<'a> {
    pub conn: &'a mut Connection,
}

#[async_trait]
impl Statements for SqliteStatements<'_> {
    type Row = SqliteRow;

    /// The writer begins and commits the transaction.
    async fn send(
        &mut self,
        _: TransactionFrame,
        calls: Vec<ServerCall<'_>>,
    ) -> Result<Vec<ServerAnswer<SqliteRow>>, Fault> {
        calls.into_iter().map(|call| answer(self.conn, call)).collect()
    }

    async fn settle(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

fn answer(conn: &Connection, call: ServerCall<'_>) -> Result<ServerAnswer<SqliteRow>, Fault> {
    let before = conn.total_changes();
    let rows = SqliteRow::all(conn, call.sql, parameters(call.arguments))?;
    Ok(ServerAnswer { rows, count: conn.total_changes() - before })
}

/// The parameters of each run of a statement: one for each row of its list.
fn parameters(arguments: Vec<Argument<'_>>) -> Vec<Vec<Cell<'_>>> {
    let mut runs = vec![vec![]];
    for argument in arguments {
        runs = match argument {
            Argument::Value(cell) => {
                runs.iter().map(|run| [&run[..], slice::from_ref(&cell)].concat()).collect()
            }
            Argument::Rows(list) => {
                list.rows().flat_map(|row| runs.iter().map(move |run| [run, row].concat())).collect()
            }
        };
    }
    runs
}
