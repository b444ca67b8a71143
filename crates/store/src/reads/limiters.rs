//! The use of limiters, and which of their wait lists are not empty.

use super::{Query, ReadKind, Reads};
use crate::cells::get;
use crate::codecs::limit;
use crate::codes::{WaitedIn, lines_after, lines_to_look_at, read_line};
use crate::counters::{LimiterCounts, shown};
use crate::fault::Fault;
use crate::malformed::readable;
use crate::row_list::{self, List, row};
use crate::server::loaded::read_limiter_row;
use punctual_core::limiter::{LimiterId, LimiterUse, WaitList};
use punctual_core::ports::Page;
use std::collections::{BTreeMap, BTreeSet};

impl Reads<'_> {
    /// A page of wait lists that are not empty. The first page includes those of queues whose re-admission
    /// is in progress.
    pub async fn waiting_lines(
        &mut self,
        after: Option<LimiterId>,
        count: usize,
    ) -> Result<Page<WaitList, LimiterId>, Fault> {
        let rows =
            self.rows(Query::of(ReadKind::WaitingLines, row![lines_after(after), limit(count)])).await?;
        let last = rows.iter().last().filter(|_| rows.len() == count).map(|row| get(row, 0)).transpose()?;
        let mut found: Vec<(i64, i64)> = Vec::with_capacity(rows.len());
        for row in rows.iter() {
            let number = get(row, 0)?;
            found.extend(get::<Option<i64>>(row, 1)?.map(|lane| (number, lane)));
        }
        let lanes = self.lanes(found.iter().map(|(_, lane)| *lane)).await?;
        let lines = readable(found.into_iter().map(|(number, lane)| read_line(number, lanes.lane(lane)?)))?;
        Ok(lines_to_look_at(after, &self.queues().await?, WaitedIn { lines, last }))
    }

    /// The use of these limiters, in the same order.
    pub async fn limiters(&mut self, lines: &[WaitList]) -> Result<Vec<LimiterUse>, Fault> {
        let queues: BTreeSet<&str> = lines.iter().map(|line| line.queue.as_str()).collect();
        let queues = List::of(queues.into_iter().map(|queue| row![queue]));
        let numbers = row_list::numbers(lines.iter().map(|line| line.id().number()));
        let queries = [Query::listed(ReadKind::Started, queues), Query::listed(ReadKind::Limiters, numbers)];
        let [started_rows, limiter_rows] = self.fetch(queries).await?;
        let mut started: BTreeMap<String, i64> = BTreeMap::new();
        for row in started_rows.iter() {
            started.insert(get(row, 0)?, get(row, 1)?);
        }
        let mut limiters = BTreeMap::new();
        for row in limiter_rows.iter() {
            limiters.extend(read_limiter_row(row)?.map(|found| (found.id, found)));
        }
        let used = |line: &WaitList| {
            let found = limiters.get(&line.id());
            let LimiterCounts { waiting, in_use } = found.map(|found| found.counts).unwrap_or_default();
            let in_use = match line.key {
                Some(_) => in_use,
                None => started.get(&line.queue).copied().unwrap_or(0),
            };
            let last_at = found.and_then(|found| found.last_at);
            LimiterUse { waiting: shown(waiting), in_use: shown(in_use), last_at }
        };
        Ok(lines.iter().map(used).collect())
    }
}
