//! Small tables read whole: sessions, depths of lanes, tokens.

use super::Reads;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{all, count, decode, limit, one, state, time};
use punctual_core::ids::{OccurrenceId, SessionId};
use punctual_core::ports::{Depth, PausedQueue, SessionRow, StoreError, Token};
use punctual_core::session::Pulse;
use punctual_core::time::Timestamp;
use rusqlite::{Row, params};
use std::collections::BTreeMap;
use std::time::Duration;

const SESSIONS: &str = "SELECT sessions.id, sessions.beat, sessions.lease_us, workers.name, \
     sessions.embedded, sessions.job_types, sessions.slots, sessions.opened_at, sessions.beaten_at \
     FROM sessions JOIN workers ON workers.id = sessions.worker WHERE sessions.lost = 0 ORDER BY sessions.id";
/// Counted here instead of grouped there: SQLite would sort all rows first.
const LIVE_STATES: &str = "SELECT lane, state, available_at FROM live";

pub(crate) const AHEAD: &str = "SELECT count(*) FROM (SELECT 1 FROM live WHERE lane = ?1 AND state = 1 \
     AND (rank, job, occurrence) < (?2, ?3, ?4) LIMIT ?5)";

impl Reads<'_> {
    pub fn paused_queues(&mut self) -> Result<Vec<PausedQueue>, StoreError> {
        let mut select = self
            .conn
            .prepare_cached("SELECT queue, paused_at FROM paused_queues ORDER BY queue")
            .map_err(Fault::from)?;
        Ok(all(&mut select, [], |row| Ok(PausedQueue { queue: row.get(0)?, paused_at: time(row, 1)? }))?)
    }

    /// How many executions of the same lane go before this queued one, counted up to `count`; `None` if it is
    /// not queued.
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

    /// All sessions that are neither lost nor closed.
    pub fn sessions(&mut self) -> Result<Vec<SessionRow>, StoreError> {
        let mut select = self.conn.prepare_cached(SESSIONS).map_err(Fault::from)?;
        Ok(all(&mut select, [], read_session)?)
    }

    /// How much is live, by lane. Reads all of it: for a glance now and then, never for a decision.
    pub fn depths(&mut self) -> Result<Vec<Depth>, StoreError> {
        Ok(self.all_depths()?)
    }

    pub fn token(&mut self, id: &str) -> Result<Option<Token>, StoreError> {
        Ok(self.find_token(id)?)
    }

    fn all_depths(&mut self) -> Result<Vec<Depth>, Fault> {
        let mut tallies: BTreeMap<i64, Tally> = BTreeMap::new();
        let mut select = self.conn.prepare_cached(LIVE_STATES)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            tallies.entry(row.get(0)?).or_default().count(row.get(1)?, time(row, 2)?);
        }
        let mut depths = Vec::with_capacity(tallies.len());
        for (lane, Tally { waiting, queued, running, oldest_queued }) in tallies {
            let lane = self.lanes.lane(self.conn, lane)?;
            depths.push(Depth { lane, waiting, queued, running, oldest_queued });
        }
        Ok(depths)
    }

    fn find_token(&mut self, id: &str) -> Result<Option<Token>, Fault> {
        let mut select = self
            .conn
            .prepare_cached("SELECT id, secret_sha256, role, created_at FROM tokens WHERE id = ?1")?;
        one(&mut select, [id], |row| {
            Ok(Token {
                id: row.get(0)?,
                secret_sha256: row.get(1)?,
                role: decode(row, 2, "tokens.role")?,
                created_at: time(row, 3)?,
            })
        })
    }
}

/// A [`Depth`] whose lane has not been named yet.
#[derive(Default)]
struct Tally {
    waiting: u64,
    queued: u64,
    running: u64,
    oldest_queued: Option<Timestamp>,
}

impl Tally {
    fn count(&mut self, live_state: i64, available_at: Timestamp) {
        match live_state {
            state::WAITING => self.waiting += 1,
            state::QUEUED => {
                self.queued += 1;
                let oldest = self.oldest_queued.map_or(available_at, |oldest| oldest.min(available_at));
                self.oldest_queued = Some(oldest);
            }
            _ => self.running += 1,
        }
    }
}

fn read_session(row: &Row<'_>) -> Result<SessionRow, Fault> {
    let lease = Duration::from_micros(count(row, 2, "sessions.lease_us")?);
    Ok(SessionRow {
        pulse: Pulse { session: SessionId(row.get(0)?), beat: count(row, 1, "sessions.beat")?, lease },
        worker: row.get(3)?,
        embedded: row.get(4)?,
        job_types: serde_json::from_str(row.get_ref(5)?.as_str().map_err(rusqlite::Error::from)?)?,
        slots: row.get(6)?,
        opened_at: time(row, 7)?,
        beaten_at: time(row, 8)?,
    })
}
