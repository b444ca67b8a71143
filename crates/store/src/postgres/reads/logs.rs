//! Log lines.

use super::events::looked_at;
use super::{PAGE_BYTES, Params, Reads};
use crate::cells::{get, read};
use crate::codecs::{counter, execution_id, limit, time};
use crate::fault::Fault;
use crate::lists::Room;
use crate::malformed::pass_over;
use crate::postgres::rows::{integer, uuid};
use deadpool_postgres::GenericClient;
use punctual_core::ids::ExecutionId;
use punctual_core::limits;
use punctual_core::ports::{LogLine, Page, StoreError};
use tokio_postgres::Row;

/// Lines in an order, without those after the one that fills the page. Each row contains the total number
/// of lines.
macro_rules! lines_in_order {
    ($which:literal, $order:literal, $limit:literal, $bytes:literal) => {
        concat!(
            "SELECT job, occurrence, attempt, number, timestamp, stream, message, looked_at FROM \
             (SELECT *, sum(octet_length(message)) OVER (ORDER BY number ",
            $order,
            " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before, count(*) OVER () AS looked_at \
             FROM (SELECT * FROM lines WHERE job = $1 AND occurrence = $2 AND attempt = $3 ",
            $which,
            " ORDER BY number ",
            $order,
            " LIMIT ",
            $limit,
            ") AS lines) AS lines WHERE coalesce(bytes_before, 0) <= ",
            $bytes,
            " ORDER BY number ",
            $order
        )
    };
}
pub(crate) const LINES_OF_EXECUTION: &str = lines_in_order!("AND number > $4", "ASC", "$5", "$6");
pub(crate) const LAST_LINES: &str = lines_in_order!("", "DESC", "$4", "$5");
/// Columns before the number of lines.
const LINE_COLUMNS: usize = 7;

impl<C: GenericClient> Reads<'_, C> {
    /// The lines of one execution, ordered by number.
    pub async fn logs(
        &self,
        execution: ExecutionId,
        after: Option<u64>,
        wanted: usize,
    ) -> Result<Page<LogLine, u64>, StoreError> {
        Ok(self.page_of_lines(execution, after, wanted.clamp(1, limits::PAGE_ITEMS_MAX)).await?)
    }

    /// The last lines of one execution, in order: as many as fit into a page.
    pub async fn last_logs(&self, execution: ExecutionId, wanted: usize) -> Result<Vec<LogLine>, StoreError> {
        Ok(self.last_lines(execution, wanted.min(limits::PAGE_ITEMS_MAX)).await?)
    }

    async fn page_of_lines(
        &self,
        execution: ExecutionId,
        after: Option<u64>,
        wanted: usize,
    ) -> Result<Page<LogLine, u64>, Fault> {
        let occurrence = execution.occurrence;
        let bounds: Params<'_> = &[
            &uuid(occurrence.job),
            &i64::from(occurrence.number),
            &integer(execution.attempt),
            &after.map_or(0, counter),
            // One more than there is room for shows whether there is a next page.
            &limit(wanted + 1),
            &PAGE_BYTES,
        ];
        let rows = self.all(LINES_OF_EXECUTION, bounds).await?;
        let Fitting { items, passed_over } = lines_that_fit(&rows, wanted)?;
        let is_cut_off = items.len() + passed_over < looked_at(rows.first(), LINE_COLUMNS)?;
        let next = items.last().filter(|_| is_cut_off).map(|line| line.number);
        Ok(Page { items, next })
    }

    async fn last_lines(&self, execution: ExecutionId, wanted: usize) -> Result<Vec<LogLine>, Fault> {
        let occurrence = execution.occurrence;
        let bounds: Params<'_> = &[
            &uuid(occurrence.job),
            &i64::from(occurrence.number),
            &integer(execution.attempt),
            &limit(wanted),
            &PAGE_BYTES,
        ];
        let mut lines = lines_that_fit(&self.all(LAST_LINES, bounds).await?, wanted)?.items;
        lines.reverse();
        Ok(lines)
    }
}

/// Lines that fit into a page, and the number of malformed ones between them.
struct Fitting {
    items: Vec<LogLine>,
    passed_over: usize,
}

fn lines_that_fit(rows: &[Row], wanted: usize) -> Result<Fitting, Fault> {
    let (mut fitting, mut room) = (Fitting { items: vec![], passed_over: 0 }, Room::of(wanted));
    for row in rows {
        match pass_over(read_line(row))? {
            Some(line) if !room.take(line.message.len()) => break,
            Some(line) => fitting.items.push(line),
            None => fitting.passed_over += 1,
        }
    }
    Ok(fitting)
}

fn read_line(row: &Row) -> Result<LogLine, Fault> {
    Ok(LogLine {
        number: read(row, 3, "lines.number")?,
        execution: execution_id(row, 0)?,
        timestamp: time(row, 4)?,
        stream: read(row, 5, "lines.stream")?,
        message: get(row, 6)?,
    })
}
