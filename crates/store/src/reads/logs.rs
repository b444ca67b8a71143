//! The log lines of executions.

use super::page::PageItem;
use super::{AnyRow, PAGE_BYTES, Query, ReadKind, Reads, attempt_of};
use crate::cells::{get, read};
use crate::codecs::{counter, limit};
use crate::fault::Fault;
use crate::row_list::row;
use punctual_core::ids::{ExecutionId, OccurrenceId};
use punctual_core::limits;
use punctual_core::ports::{LogLine, Page};

impl Reads<'_> {
    /// The lines of one execution, ordered by number.
    pub async fn logs(
        &mut self,
        execution: ExecutionId,
        after: Option<u64>,
        wanted: usize,
    ) -> Result<Page<LogLine, u64>, Fault> {
        let query = |after: Option<u64>, count| {
            query(ReadKind::LinesOfExecution, execution, after.map_or(i64::MIN, counter), count)
        };
        self.page(wanted, after, query, |row| read_line(row, execution)).await
    }

    /// The last lines of one execution, or those before one of them, in order: as many as fit into a page.
    pub async fn last_logs(
        &mut self,
        execution: ExecutionId,
        before: Option<u64>,
        wanted: usize,
    ) -> Result<Vec<LogLine>, Fault> {
        if wanted == 0 {
            return Ok(vec![]);
        }
        let query = |before: Option<u64>, count| {
            query(ReadKind::LastLines, execution, before.map_or(i64::MAX, counter), count)
        };
        let wanted = wanted.min(limits::PAGE_ITEMS_MAX);
        let mut lines = self.page(wanted, before, query, |row| read_line(row, execution)).await?.items;
        lines.reverse();
        Ok(lines)
    }
}

fn query<'q>(read: ReadKind, execution: ExecutionId, from: i64, count: usize) -> Query<'q> {
    let OccurrenceId { job, number } = execution.occurrence;
    Query::of(read, row![job, number, attempt_of(execution), from, limit(count), PAGE_BYTES])
}

fn read_line(row: &AnyRow, execution: ExecutionId) -> Result<PageItem<LogLine, u64>, Fault> {
    let line = LogLine {
        number: read(row, 0, "lines.number")?,
        execution,
        timestamp: read(row, 1, "lines.timestamp")?,
        stream: read(row, 2, "lines.stream")?,
        message: get(row, 3)?,
    };
    Ok(PageItem { bytes: line.message.len(), cursor: line.number, item: line })
}
