//! How limiters are used, and in which of their lines anybody waits.

use super::Reads;
use crate::codes::{lines_to_look_at, read_line};
use crate::fault::Fault;
use crate::sqlite::rows::{all, limit, one};
use crate::sqlite::tally::{self, WrittenLimiter};
use crate::tally::shown;
use punctual_core::limiter::{LimiterUse, Line};
use punctual_core::ports::StoreError;

const LINES: &str = "SELECT limiter, (SELECT lane FROM live WHERE live.line = limiter_tallies.limiter LIMIT 1) \
     FROM limiter_tallies WHERE waiting > 0 ORDER BY limiter LIMIT ?1";

/// What of a queue is queued or runs.
const STARTED: &str = "SELECT coalesce(sum(lane_tallies.queued + lane_tallies.running), 0) \
     FROM lanes JOIN lane_tallies ON lane_tallies.lane = lanes.id WHERE lanes.queue = ?1";

impl Reads<'_> {
    /// Up to `count` lines in which somebody waits, or whose queue has places taken again.
    pub fn waiting_lines(&mut self, count: usize) -> Result<Vec<Line>, StoreError> {
        Ok(lines_to_look_at(&self.queues()?, self.waited_in(count)?, count))
    }

    /// How these limiters are used, in their order.
    pub fn limiters(&mut self, lines: &[Line]) -> Result<Vec<LimiterUse>, StoreError> {
        Ok(lines.iter().map(|line| self.limiter(line)).collect::<Result<_, Fault>>()?)
    }

    fn waited_in(&mut self, count: usize) -> Result<Vec<Line>, Fault> {
        let found = all(&mut *self.conn.prepare_cached(LINES)?, [limit(count)], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?))
        })?;
        let found = found.into_iter().filter_map(|(number, lane)| Some((number, lane?)));
        found.map(|(number, lane)| read_line(number, &self.lanes.lane(self.conn, lane)?)).collect()
    }

    fn limiter(&mut self, line: &Line) -> Result<LimiterUse, Fault> {
        let WrittenLimiter { counts: [waiting, mut in_use], last_at } =
            tally::read_limiter(self.conn, line.id())?;
        if line.key.is_none() {
            // The lanes that this connection remembers may not be all of them by now.
            let mut select = self.conn.prepare_cached(STARTED)?;
            in_use = one(&mut select, [&line.queue], |row| Ok(row.get(0)?))?.unwrap_or(0);
        }
        Ok(LimiterUse { waiting: shown(waiting), in_use: shown(in_use), last_at })
    }
}
