//! The log lines of executions.

use super::Reads;
use super::keys::key;
use super::page::{Filling, rows_at_once};
use crate::cells::{get, read};
use crate::codecs::{counter, limit, time};
use crate::fault::Fault;
use crate::malformed::pass_over;
use mysql_async::Row;
use punctual_core::ids::ExecutionId;
use punctual_core::limits;
use punctual_core::ports::{LogLine, Page};

pub(crate) const LINES_OF_EXECUTION: &str = "SELECT log_lines.number, log_lines.timestamp, log_lines.stream, log_lines.message \
     FROM log_lines FORCE INDEX (PRIMARY) WHERE log_lines.job = ? AND log_lines.occurrence = ? AND log_lines.attempt = ? \
     AND log_lines.number > ? ORDER BY log_lines.number LIMIT ?";
pub(crate) const LAST_LINES: &str = "SELECT log_lines.number, log_lines.timestamp, log_lines.stream, log_lines.message \
     FROM log_lines FORCE INDEX (PRIMARY) WHERE log_lines.job = ? AND log_lines.occurrence = ? AND log_lines.attempt = ? \
     AND log_lines.number < ? ORDER BY log_lines.number DESC LIMIT ?";

impl Reads {
    /// The lines of one execution, ordered by number.
    pub async fn logs(
        &mut self,
        execution: ExecutionId,
        after: Option<u64>,
        wanted: usize,
    ) -> Result<Page<LogLine, u64>, Fault> {
        let from = after.map_or(i64::MIN, counter);
        self.lines(LINES_OF_EXECUTION, execution, from, wanted).await
    }

    /// The last lines of one execution, in order: as many as fit into a page.
    pub async fn last_logs(&mut self, execution: ExecutionId, wanted: usize) -> Result<Vec<LogLine>, Fault> {
        if wanted == 0 {
            return Ok(vec![]);
        }
        let wanted = wanted.min(limits::PAGE_ITEMS_MAX);
        let mut lines = self.lines(LAST_LINES, execution, i64::MAX, wanted).await?.items;
        lines.reverse();
        Ok(lines)
    }

    /// A page of lines from a number on, in the direction of the statement.
    async fn lines(
        &mut self,
        sql: &str,
        execution: ExecutionId,
        mut from: i64,
        wanted: usize,
    ) -> Result<Page<LogLine, u64>, Fault> {
        let (mut page, at_once) = (Filling::of(wanted), rows_at_once(wanted));
        let occurrence = execution.occurrence;
        loop {
            let bounds = (key(occurrence.job), occurrence.number, execution.attempt, from, limit(at_once));
            let rows = self.all(sql, bounds).await?;
            let mut is_past_any = false;
            for row in &rows {
                let Some(line) = pass_over(read_line(row, execution))? else { continue };
                is_past_any = true;
                let (number, bytes) = (line.number, line.message.len());
                if !page.add(line, bytes, number) {
                    return Ok(page.cut_off());
                }
                from = counter(number);
            }
            // If no row can be read, there is no cursor to continue from.
            if rows.len() < at_once || !is_past_any {
                return Ok(page.ended());
            }
        }
    }
}

fn read_line(row: &Row, execution: ExecutionId) -> Result<LogLine, Fault> {
    Ok(LogLine {
        number: read(row, 0, "log_lines.number")?,
        execution,
        timestamp: time(row, 1)?,
        stream: read(row, 2, "log_lines.stream")?,
        message: get(row, 3)?,
    })
}
