//! The use of limiters, and which of their wait lists are not empty.

use super::Reads;
use crate::codes::{WaitedIn, lines_after, lines_to_look_at, read_line};
use crate::counters::{LimiterCounts, shown};
use crate::fault::Fault;
use crate::malformed::pass_over;
use crate::sqlite::counters::{self, WrittenLimiter};
use crate::sqlite::rows::{bound, one, up_to};
use punctual_core::limiter::{LimiterId, LimiterUse, WaitList};
use punctual_core::ports::{Page, StoreError};

const LINES: &str = "SELECT limiter, (SELECT lane FROM live WHERE live.line = limiter_tallies.limiter LIMIT 1) \
     FROM limiter_tallies WHERE waiting > 0 AND limiter > ?1 ORDER BY limiter LIMIT ?2";

/// Queued and running executions of a queue.
const STARTED: &str = "SELECT CAST(total(lane_tallies.queued) + total(lane_tallies.running) AS INTEGER) \
     FROM lanes JOIN lane_tallies ON lane_tallies.lane = lanes.id WHERE lanes.queue = ?1";

impl Reads<'_> {
    /// A page of wait lists that are not empty. The first page includes those of queues whose re-admission
    /// is in progress.
    pub fn waiting_lines(
        &mut self,
        after: Option<LimiterId>,
        count: usize,
    ) -> Result<Page<WaitList, LimiterId>, StoreError> {
        Ok(lines_to_look_at(after, &self.queues()?, self.waited_in(after, count)?))
    }

    /// The use of these limiters, in the same order.
    pub fn limiters(&mut self, lines: &[WaitList]) -> Result<Vec<LimiterUse>, StoreError> {
        Ok(lines.iter().map(|line| self.limiter(line)).collect::<Result<_, Fault>>()?)
    }

    fn waited_in(&mut self, after: Option<LimiterId>, count: usize) -> Result<WaitedIn, Fault> {
        let page = [lines_after(after), bound(count)];
        let found = up_to(count, &mut *self.conn.prepare_cached(LINES)?, page, |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?))
        })?;
        let last = found.last().filter(|_| found.len() == count).map(|(number, _)| *number);
        let found = found.into_iter().filter_map(|(number, lane)| Some((number, lane?)));
        let mut lines = Vec::new();
        for (number, lane) in found {
            let lane = self.lanes.lane(self.conn, lane);
            lines.extend(pass_over(lane.and_then(|lane| read_line(number, &lane)))?);
        }
        Ok(WaitedIn { lines, last })
    }

    fn limiter(&mut self, line: &WaitList) -> Result<LimiterUse, Fault> {
        let WrittenLimiter { counts: LimiterCounts { waiting, mut in_use }, last_at } =
            counters::read_limiter(self.conn, line.id())?;
        if line.key.is_none() {
            // The lanes that this connection remembers may be incomplete by now.
            let mut select = self.conn.prepare_cached(STARTED)?;
            in_use = one(&mut select, [&line.queue], |row| Ok(row.get(0)?))?.unwrap_or(0);
        }
        Ok(LimiterUse { waiting: shown(waiting), in_use: shown(in_use), last_at })
    }
}
