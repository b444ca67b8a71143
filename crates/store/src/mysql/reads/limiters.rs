//! The use of limiters, and which of their wait lists are not empty.

use super::Reads;
use crate::cells::get;
use crate::codecs::limit;
use crate::codes::{WaitedIn, lines_after, lines_to_look_at, read_line};
use crate::counters::shown;
use crate::fault::Fault;
use crate::malformed::pass_over;
use crate::mysql::lists::{documents, numbers};
use crate::mysql::tables::{LIMITERS, STARTED};
use crate::server::list::{List, row};
use crate::server::loaded::read_limiter_row;
use punctual_core::limiter::{LimiterId, LimiterUse, Line};
use punctual_core::ports::Page;
use std::collections::{BTreeMap, BTreeSet};

const LINES: &str = "SELECT limiter, (SELECT lane FROM live FORCE INDEX (live_claim) \
     WHERE live.queued_lane = limiter_tallies.limiter LIMIT 1) \
     FROM limiter_tallies WHERE waiting > 0 AND limiter > ? ORDER BY limiter LIMIT ?";

impl Reads {
    /// A page of wait lists that are not empty. The first page includes those of queues whose re-admission
    /// is in progress.
    pub async fn waiting_lines(
        &mut self,
        after: Option<LimiterId>,
        count: usize,
    ) -> Result<Page<Line, LimiterId>, Fault> {
        let rows = self.all(LINES, (lines_after(after), limit(count))).await?;
        let last = rows.last().filter(|_| rows.len() == count).map(|row| get(row, 0)).transpose()?;
        let mut lines = Vec::with_capacity(rows.len());
        for row in &rows {
            if let Some(lane) = get::<Option<i64>>(row, 1)? {
                let (number, lane) = (get(row, 0)?, self.lane(lane).await);
                lines.extend(pass_over(lane.and_then(|lane| read_line(number, &lane)))?);
            }
        }
        Ok(lines_to_look_at(after, &self.queues().await?, WaitedIn { lines, last }))
    }

    /// The use of these limiters, in the same order.
    pub async fn limiters(&mut self, lines: &[Line]) -> Result<Vec<LimiterUse>, Fault> {
        let queues: BTreeSet<&str> = lines.iter().map(|line| line.queue.as_str()).collect();
        let queues = documents(&List::of(queues.iter().map(|queue| row![*queue])));
        let mut started: BTreeMap<String, i64> = BTreeMap::new();
        for list in queues {
            for row in self.all(STARTED, (list,)).await? {
                started.insert(get(&row, 0)?, get(&row, 1)?);
            }
        }
        let mut limiters = BTreeMap::new();
        for list in numbers(lines.iter().map(|line| line.id().number())) {
            for row in self.all(LIMITERS, (list,)).await? {
                limiters.extend(read_limiter_row(&row)?.map(|found| (found.id, found)));
            }
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
