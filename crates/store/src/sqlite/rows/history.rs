//! Finished executions.

use super::insert;
use crate::fault::Fault;
use crate::layout::{HISTORY, HistoryColumns};
use punctual_core::occurrence::Finished;
use rusqlite::{Statement, params_from_iter};
use std::sync::LazyLock;

pub(crate) static INSERT_HISTORY: LazyLock<String> = LazyLock::new(|| insert("INSERT", &HISTORY));

pub(crate) fn insert_history(
    insert: &mut Statement<'_>,
    finished: &Finished,
    worker: Option<i64>,
    seq: i64,
) -> Result<(), Fault> {
    let columns = HistoryColumns { place: seq.cast_unsigned(), ..HistoryColumns::of(finished, worker) };
    insert.execute(params_from_iter(columns.into_cells()))?;
    Ok(())
}
