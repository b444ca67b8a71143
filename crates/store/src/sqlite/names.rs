//! Names that rows refer to by number (lanes, and the workers of sessions), and the settings of queues.
//! Only the writer changes these tables, so cached committed rows stay valid until the writer deletes them.
//! Entries cached in a transaction that did not commit must be discarded.

use super::rows::{all, one};
use crate::fault::Fault;
use crate::server::loaded::read_queue;
use punctual_core::ids::SessionId;
use punctual_core::ports::{Lane, QueueRow};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

/// Lanes whose names are remembered at once. There may be as many lanes as combinations of queue and job
/// type were ever used. Beyond this limit, all are discarded and looked up again. The writer separately
/// knows the lanes in use, see `active_lanes.rs`.
const LANES_REMEMBERED_MAX: usize = 10_000;

pub(crate) const LANE_BY_NAME: &str = "SELECT id FROM lanes WHERE queue = ?1 AND job_type = ?2";
pub(crate) const LANE_BY_NUMBER: &str = "SELECT queue, job_type FROM lanes WHERE id = ?1";

/// A cache of lane names by number and numbers by name. Numbers are never reused, so a reader that
/// remembers a lane that the writer has deleted is still correct.
#[derive(Debug, Default)]
pub(crate) struct LaneNumbers {
    by_id: BTreeMap<i64, Lane>,
    by_name: BTreeMap<String, BTreeMap<String, i64>>,
}

impl LaneNumbers {
    /// The number and shared name of a lane, which is created if it is new.
    pub fn intern(&mut self, conn: &Connection, queue: &str, job_type: &str) -> Result<(i64, Lane), Fault> {
        if let Some(known) = self.find(queue, job_type) {
            return Ok(known);
        }
        let found = one(&mut *conn.prepare_cached(LANE_BY_NAME)?, [queue, job_type], |row| Ok(row.get(0)?))?;
        let id = match found {
            Some(id) => id,
            None => {
                conn.prepare_cached("INSERT INTO lanes (queue, job_type) VALUES (?1, ?2)")?
                    .execute(params![queue, job_type])?;
                conn.last_insert_rowid()
            }
        };
        let lane = Lane::new(queue, job_type);
        self.remember(id, lane.clone());
        Ok((id, lane))
    }

    /// The lane with this number.
    pub fn lane(&mut self, conn: &Connection, id: i64) -> Result<Lane, Fault> {
        if let Some(lane) = self.by_id.get(&id) {
            return Ok(lane.clone());
        }
        let lane = one(&mut *conn.prepare_cached(LANE_BY_NUMBER)?, [id], |row| {
            Ok(Lane::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })?;
        let lane = lane.ok_or_else(|| Fault::Missing(format!("lane {id}")))?;
        self.remember(id, lane.clone());
        Ok(lane)
    }

    /// Removes a lane whose row is deleted.
    pub fn remove(&mut self, id: i64) {
        let Some(lane) = self.by_id.remove(&id) else { return };
        if let Some(types) = self.by_name.get_mut(lane.queue()) {
            types.remove(lane.job_type());
            if types.is_empty() {
                self.by_name.remove(lane.queue());
            }
        }
    }

    /// Discards everything; the next lookup reads the table again.
    pub fn forget(&mut self) {
        *self = LaneNumbers::default();
    }

    /// How many are remembered.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    fn find(&self, queue: &str, job_type: &str) -> Option<(i64, Lane)> {
        let id = *self.by_name.get(queue)?.get(job_type)?;
        Some((id, self.by_id.get(&id)?.clone()))
    }

    fn remember(&mut self, id: i64, lane: Lane) {
        if self.by_id.len() >= LANES_REMEMBERED_MAX {
            self.forget();
        }
        let types = self.by_name.entry(lane.queue().to_owned()).or_default();
        types.insert(lane.job_type().to_owned(), id);
        self.by_id.insert(id, lane);
    }
}

/// The settings of queues.
#[derive(Debug, Default)]
pub(crate) struct QueueTable(Option<BTreeMap<String, QueueRow>>);

impl QueueTable {
    pub fn find(&mut self, conn: &Connection, queue: &str) -> Result<Option<&QueueRow>, Fault> {
        Ok(self.rows(conn)?.get(queue))
    }

    /// Discards everything; the next lookup reads the table again.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    fn rows(&mut self, conn: &Connection) -> Result<&BTreeMap<String, QueueRow>, Fault> {
        if self.0.is_none() {
            self.0 = Some(read_queues(conn)?.into_iter().map(|row| (row.queue.clone(), row)).collect());
        }
        Ok(self.0.get_or_insert_default())
    }
}

/// All queues that have settings, by name. A row whose settings cannot be read carries the reason.
pub(crate) fn read_queues(conn: &Connection) -> Result<Vec<QueueRow>, Fault> {
    let mut select = conn
        .prepare_cached("SELECT queue, paused_at, max_depth, limits, unplaced FROM queues ORDER BY queue")?;
    all(&mut select, [], |row| read_queue(row))
}

/// The numbers of history: each is assigned once, although the latest rows may be deleted.
#[derive(Debug, Default)]
pub(crate) struct HistoryNumbers(Option<i64>);

impl HistoryNumbers {
    /// The number of the next row.
    pub fn next(&mut self, conn: &Connection) -> Result<i64, Fault> {
        let next = self.given(conn)? + 1;
        self.0 = Some(next);
        Ok(next)
    }

    /// The last number that was assigned.
    pub fn given(&mut self, conn: &Connection) -> Result<i64, Fault> {
        if let Some(given) = self.0 {
            return Ok(given);
        }
        let given = last_history_number(conn)?;
        self.0 = Some(given);
        Ok(given)
    }

    /// Discards it; the next lookup reads the tables again.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

/// The last number of history that was assigned.
pub(crate) fn last_history_number(conn: &Connection) -> Result<i64, Fault> {
    // An impossibly high number is damage; the next number does not continue from it.
    let mut select = conn.prepare_cached(
        "SELECT max(CASE WHEN given < 1 << 62 THEN given ELSE 0 END, \
         coalesce((SELECT max(seq) FROM history WHERE seq < 1 << 62), 0)) FROM history_bounds WHERE id = 1",
    )?;
    one(&mut select, [], |row| Ok(row.get(0)?))?.ok_or_else(|| Fault::Missing("history_bounds".to_owned()))
}

/// The worker of each session.
#[derive(Debug, Default)]
pub(crate) struct SessionWorkers(BTreeMap<SessionId, i64>);

impl SessionWorkers {
    /// The number of the session's worker; `None` if the session no longer exists.
    pub fn worker(&mut self, conn: &Connection, session: SessionId) -> Result<Option<i64>, Fault> {
        if let Some(worker) = self.0.get(&session) {
            return Ok(Some(*worker));
        }
        let mut select = conn.prepare_cached("SELECT worker FROM sessions WHERE id = ?1")?;
        let worker = one(&mut select, [session.0], |row| Ok(row.get(0)?))?;
        if let Some(worker) = worker {
            self.0.insert(session, worker);
        }
        Ok(worker)
    }

    /// Removes a session whose row is deleted.
    pub fn remove(&mut self, session: SessionId) {
        self.0.remove(&session);
    }

    /// Discards everything.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

/// The number of a worker's name, which is created if it is new. From here on it counts as used.
pub(crate) fn intern_worker(conn: &Connection, name: &str) -> Result<i64, Fault> {
    let mut select = conn.prepare_cached("SELECT id, unused_since IS NULL FROM workers WHERE name = ?1")?;
    if let Some((id, is_used)) = one(&mut select, [name], |row| Ok((row.get(0)?, row.get::<_, bool>(1)?)))? {
        if !is_used {
            conn.prepare_cached("UPDATE workers SET unused_since = NULL WHERE id = ?1")?.execute([id])?;
        }
        return Ok(id);
    }
    conn.prepare_cached("INSERT INTO workers (name) VALUES (?1)")?.execute([name])?;
    Ok(conn.last_insert_rowid())
}
