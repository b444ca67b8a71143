//! The use of limiters, and which of their wait lists are not empty.

use super::Reads;
use crate::cells::get;
use crate::codecs::limit;
use crate::codes::{WaitedIn, lines_after, lines_to_look_at, read_line};
use crate::counters::shown;
use crate::fault::Fault;
use crate::malformed::readable;
use crate::postgres::tables::read_set::{LIMITERS, STARTED};
use crate::server::loaded::read_limiter_row;
use deadpool_postgres::GenericClient;
use punctual_core::limiter::{LimiterId, LimiterUse, Line};
use punctual_core::ports::{Page, StoreError};
use std::collections::BTreeMap;

pub(crate) const LINES: &str = "SELECT limiter, (SELECT lane FROM live WHERE live.line = limiter_tallies.limiter LIMIT 1) \
     FROM limiter_tallies WHERE waiting > 0 AND limiter > $1 ORDER BY limiter LIMIT $2";

impl<C: GenericClient> Reads<'_, C> {
    /// A page of wait lists that are not empty. The first page includes those of queues whose re-admission
    /// is in progress.
    pub async fn waiting_lines(
        &self,
        after: Option<LimiterId>,
        count: usize,
    ) -> Result<Page<Line, LimiterId>, StoreError> {
        Ok(lines_to_look_at(after, &self.queues().await?, self.waited_in(after, count).await?))
    }

    /// The use of these limiters, in the same order.
    pub async fn limiters(&self, lines: &[Line]) -> Result<Vec<LimiterUse>, StoreError> {
        Ok(self.uses_of(lines).await?)
    }

    async fn waited_in(&self, after: Option<LimiterId>, count: usize) -> Result<WaitedIn, Fault> {
        let rows = self.all(LINES, &[&lines_after(after), &limit(count)]).await?;
        let last = rows.last().filter(|_| rows.len() == count).map(|row| get(row, 0)).transpose()?;
        let mut found: Vec<(i64, i64)> = Vec::with_capacity(rows.len());
        for row in &rows {
            let number = get(row, 0)?;
            found.extend(get::<Option<i64>>(row, 1)?.map(|lane| (number, lane)));
        }
        let lanes = self.named_lanes(found.iter().map(|(_, lane)| *lane)).await?;
        let lines = found.into_iter().map(|(number, lane)| read_line(number, lanes.lane(lane)?));
        Ok(WaitedIn { lines: readable(lines)?, last })
    }

    async fn uses_of(&self, lines: &[Line]) -> Result<Vec<LimiterUse>, Fault> {
        let queues: Vec<&str> = lines.iter().map(|line| line.queue.as_str()).collect();
        let mut started: BTreeMap<String, i64> = BTreeMap::new();
        for row in self.all(STARTED, &[&queues]).await? {
            started.insert(get(&row, 0)?, get(&row, 1)?);
        }
        let numbers: Vec<i64> = lines.iter().map(|line| line.id().number()).collect();
        let mut limiters = BTreeMap::new();
        for row in self.all(LIMITERS, &[&numbers]).await? {
            limiters.extend(read_limiter_row(&row)?.map(|found| (found.id, found)));
        }
        let used = |line: &Line| {
            let found = limiters.get(&line.id());
            let [waiting, in_use] = found.map_or([0; 2], |found| found.counts);
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
