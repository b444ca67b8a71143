//! How limiters are used, and in which of their lines anybody waits.

use super::Reads;
use crate::codes::{lines_to_look_at, read_line};
use crate::fault::Fault;
use crate::postgres::rows::{get, limit};
use crate::postgres::tables::found::read_limiter_row;
use crate::postgres::tables::wanted::{LIMITERS, STARTED};
use crate::tally::shown;
use deadpool_postgres::GenericClient;
use punctual_core::limiter::{LimiterUse, Line};
use punctual_core::ports::StoreError;
use std::collections::BTreeMap;

pub(crate) const LINES: &str = "SELECT limiter, (SELECT lane FROM live WHERE live.line = limiter_tallies.limiter LIMIT 1) \
     FROM limiter_tallies WHERE waiting > 0 ORDER BY limiter LIMIT $1";

impl<C: GenericClient> Reads<'_, C> {
    /// Up to `count` lines in which somebody waits, or whose queue has places taken again.
    pub async fn waiting_lines(&self, count: usize) -> Result<Vec<Line>, StoreError> {
        Ok(lines_to_look_at(&self.queues().await?, self.waited_in(count).await?, count))
    }

    /// How these limiters are used, in their order.
    pub async fn limiters(&self, lines: &[Line]) -> Result<Vec<LimiterUse>, StoreError> {
        Ok(self.uses_of(lines).await?)
    }

    async fn waited_in(&self, count: usize) -> Result<Vec<Line>, Fault> {
        let rows = self.all(LINES, &[&limit(count)]).await?;
        let mut found: Vec<(i64, i64)> = Vec::with_capacity(rows.len());
        for row in &rows {
            let number = get(row, 0)?;
            found.extend(get::<Option<i64>>(row, 1)?.map(|lane| (number, lane)));
        }
        let lanes = self.named_lanes(found.iter().map(|(_, lane)| *lane)).await?;
        found.into_iter().map(|(number, lane)| read_line(number, lanes.lane(lane)?)).collect()
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
