//! Small tables read whole: sessions, depths of lanes, tokens.

use super::Reads;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{all, count, decode, one, state, time};
use punctual_core::ids::SessionId;
use punctual_core::ports::{Depth, SessionRow, StoreError, Token};
use punctual_core::session::Pulse;
use punctual_core::time::Timestamp;
use rusqlite::Row;
use std::collections::BTreeMap;
use std::time::Duration;

const SESSIONS: &str = "SELECT sessions.id, sessions.beat, sessions.lease_us, workers.name, \
     sessions.embedded, sessions.job_types, sessions.slots, sessions.opened_at, sessions.beaten_at \
     FROM sessions JOIN workers ON workers.id = sessions.worker WHERE sessions.lost = 0 ORDER BY sessions.id";
const DEPTHS: &str = "SELECT lane, state, count(*), min(available_at) FROM live GROUP BY lane, state";

impl Reads<'_> {
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
        let mut depths: BTreeMap<i64, Depth> = BTreeMap::new();
        let mut select = self.conn.prepare_cached(DEPTHS)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let (lane_id, live_state): (i64, i64) = (row.get(0)?, row.get(1)?);
            let lane = self.lanes.lane(self.conn, lane_id)?;
            let depth = depths.entry(lane_id).or_insert(Depth {
                lane,
                waiting: 0,
                queued: 0,
                running: 0,
                oldest_queued: None,
            });
            let found = count(row, 2, "count of live")?;
            match live_state {
                state::WAITING => depth.waiting = found,
                state::QUEUED => {
                    depth.queued = found;
                    depth.oldest_queued = Some(Timestamp::from_micros(row.get(3)?));
                }
                _ => depth.running = found,
            }
        }
        Ok(depths.into_values().collect())
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
