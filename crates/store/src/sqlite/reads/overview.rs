//! Small tables that are read completely: sessions, depths of lanes.

use super::Reads;
use crate::codes::held_queues;
use crate::fault::Fault;
use crate::lists::heads_looked_at;
use crate::malformed::pass_over;
use crate::server::rows::{read_session, session_columns};
use crate::sqlite::counters;
use crate::sqlite::names::read_queues;
use crate::sqlite::rows::{all, count, limit, one, one_readable, time, time_or_none};
use crate::stored_numbers::StoredNumber;
use punctual_core::ids::{OccurrenceId, SessionId};
use punctual_core::ports::{Depth, JobCounts, PausedQueue, QueueRow, SessionRow, StoreError};
use punctual_core::time::Timestamp;
use rusqlite::params;

const SESSIONS: &str = concat!(
    "SELECT ",
    session_columns!(),
    " FROM sessions JOIN workers ON workers.id = sessions.worker \
     LEFT JOIN session_conditions ON session_conditions.session = sessions.id WHERE sessions.lost = 0 ORDER BY sessions.id"
);
pub(crate) const OLDEST_OF_HEAD: &str = "SELECT min(available_at) FROM (SELECT available_at FROM live \
     WHERE lane = ?1 AND state = 1 ORDER BY rank, job, occurrence LIMIT ?2)";

pub(crate) const TOKEN_OF_SESSION: &str = "SELECT token FROM sessions WHERE id = ?1";

const HOLDINGS: &str = "SELECT session, count(*) FROM live WHERE state = 2 GROUP BY session ORDER BY session";

pub(crate) const AHEAD: &str = "SELECT count(*) FROM (SELECT 1 FROM live WHERE lane = ?1 AND state = 1 \
     AND (rank, job, occurrence) < (?2, ?3, ?4) LIMIT ?5)";

const MARK: &str = "SELECT at FROM probe WHERE id = ?1";

impl Reads<'_> {
    /// The time at which retention last found the clock steady.
    pub fn steady_clock(&mut self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.stored_number(StoredNumber::SteadyClock)?)
    }

    fn stored_number(&mut self, mark: StoredNumber) -> Result<Option<Timestamp>, Fault> {
        one_readable(&mut *self.conn.prepare_cached(MARK)?, [mark.id()], |row| time(row, 0))
    }

    pub fn paused_queues(&mut self) -> Result<Vec<PausedQueue>, StoreError> {
        Ok(held_queues(self.queues()?))
    }

    /// The queues that are paused or have settings, by name.
    pub fn queues(&mut self) -> Result<Vec<QueueRow>, StoreError> {
        Ok(read_queues(self.conn)?)
    }

    /// How many executions of the same lane come before this queued one, counted up to `count`; `None` if
    /// it is not queued.
    pub fn ahead(&mut self, id: OccurrenceId, count: usize) -> Result<Option<usize>, StoreError> {
        Ok(self.count_ahead(id, count)?)
    }

    fn count_ahead(&mut self, id: OccurrenceId, count: usize) -> Result<Option<usize>, Fault> {
        let mut select = self
            .conn
            .prepare_cached("SELECT lane, rank FROM live WHERE job = ?1 AND occurrence = ?2 AND state = 1")?;
        let key = params![id.job.as_bytes(), id.number];
        let place = one(&mut select, key, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        let Some((lane, rank)) = place else { return Ok(None) };
        let bounds = params![lane, rank, id.job.as_bytes(), id.number, limit(count)];
        one(&mut *self.conn.prepare_cached(AHEAD)?, bounds, |row| Ok(row.get::<_, u32>(0)? as usize))
    }

    /// How many executions each session holds; sessions that hold none are left out.
    pub fn holdings(&mut self) -> Result<Vec<(SessionId, u64)>, StoreError> {
        let mut select = self.conn.prepare_cached(HOLDINGS).map_err(Fault::from)?;
        Ok(all(&mut select, [], |row| Ok((SessionId(row.get(0)?), count(row, 1, "live.session")?)))?)
    }

    /// All sessions that are neither lost nor closed.
    pub fn sessions(&mut self) -> Result<Vec<SessionRow>, StoreError> {
        let mut select = self.conn.prepare_cached(SESSIONS).map_err(Fault::from)?;
        Ok(all(&mut select, [], |row| read_session(row))?)
    }

    /// The token with which a session was opened, unless that is closed.
    pub fn token_of_session(&mut self, session: SessionId) -> Result<Option<String>, StoreError> {
        let mut select = self.conn.prepare_cached(TOKEN_OF_SESSION).map_err(Fault::from)?;
        Ok(one(&mut select, [session.0], |row| Ok(row.get::<_, Option<String>>(0)?))?.flatten())
    }

    /// Live executions by lane: one row of counters and the head of the queue for each lane in use.
    pub fn depths(&mut self) -> Result<Vec<Depth>, StoreError> {
        Ok(self.all_depths()?)
    }

    /// Jobs by status.
    pub fn job_counts(&mut self) -> Result<JobCounts, StoreError> {
        Ok(counters::jobs(self.conn)?)
    }

    fn all_depths(&mut self) -> Result<Vec<Depth>, Fault> {
        // The heads of the queues must match the counters.
        let snapshot = self.conn.unchecked_transaction()?;
        let lane_counters = counters::lanes(self.conn)?;
        let looked_at = heads_looked_at(lane_counters.iter().filter(|(_, counts)| counts.queued > 0).count());
        let mut depths = Vec::with_capacity(lane_counters.len());
        for (id, counts) in lane_counters {
            let oldest_queued = if counts.queued > 0 { self.oldest_of_head(id, looked_at)? } else { None };
            let Some(lane) = pass_over(self.lanes.lane(self.conn, id))? else { continue };
            depths.push(counts.depth(lane, oldest_queued));
        }
        drop(snapshot);
        Ok(depths)
    }

    fn oldest_of_head(&mut self, lane: i64, looked_at: usize) -> Result<Option<Timestamp>, Fault> {
        let mut select = self.conn.prepare_cached(OLDEST_OF_HEAD)?;
        let oldest = one_readable(&mut select, params![lane, limit(looked_at)], |row| time_or_none(row, 0))?;
        Ok(oldest.flatten())
    }
}
