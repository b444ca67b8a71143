//! Small tables that are read completely: sessions, depths of lanes, tokens.

use super::Reads;
use crate::cells::{get, read};
use crate::codecs::limit;
use crate::codes::held_queues;
use crate::counters::shown;
use crate::fault::Fault;
use crate::lists::OLDEST_LOOKED_AT_MAX;
use crate::malformed::readable;
use crate::postgres::rows::uuid;
use crate::server::loaded::read_queue;
use crate::server::rows::{read_job_counts, read_session, read_token, session_columns};
use deadpool_postgres::GenericClient;
use punctual_core::ids::{OccurrenceId, SessionId};
use punctual_core::limits;
use punctual_core::ports::{Depth, JobCounts, PausedQueue, QueueRow, SessionRow, StoreError, Token};
use tokio_postgres::Row;

pub(crate) const SESSIONS: &str = concat!(
    "SELECT ",
    session_columns!(),
    " FROM sessions LEFT JOIN session_conditions ON session_conditions.session = sessions.id \
     CROSS JOIN LATERAL (SELECT name FROM workers WHERE workers.id = sessions.worker LIMIT 1) AS workers \
     WHERE NOT sessions.lost ORDER BY sessions.id"
);
/// Names are ordered by their bytes, as everywhere, not by the database's collation.
const QUEUES: &str =
    "SELECT queue, paused_at, max_depth, limits, unplaced FROM queues ORDER BY queue COLLATE \"C\"";
/// Session by session, so that a backlog is not scanned for the few that run. Every lease belongs to an
/// existing session.
pub(crate) const HOLDINGS: &str = "SELECT sessions.id, held.count FROM sessions CROSS JOIN LATERAL \
     (SELECT count(*) AS count FROM live WHERE live.session = sessions.id AND live.state = 2) AS held \
     WHERE held.count > 0 ORDER BY sessions.id";
/// The counters of a lane are split into several rows, one for each writing connection. One statement,
/// because the heads of the queues must match the counters. [`crate::lists::heads_looked_at`] determines
/// how much of a head is read.
pub(crate) const DEPTHS: &str = "SELECT tallies.lane, tallies.waiting, tallies.queued, tallies.running, \
     CASE WHEN tallies.queued > 0 THEN (SELECT min(head.available_at) FROM (SELECT available_at FROM live \
     WHERE live.lane = tallies.lane AND state = 1 ORDER BY rank, job, occurrence LIMIT greatest(1, least($2::bigint, $1::bigint / greatest(tallies.busy, 1)))) AS head) END \
     FROM (SELECT lane, sum(waiting)::bigint AS waiting, sum(queued)::bigint AS queued, \
     sum(running)::bigint AS running, count(CASE WHEN sum(queued) > 0 THEN 1 END) OVER () AS busy \
     FROM lane_tallies GROUP BY lane) AS tallies \
     WHERE (tallies.waiting, tallies.queued, tallies.running) <> (0, 0, 0) ORDER BY tallies.lane";
const JOB_COUNTS: &str = "SELECT coalesce(sum(active), 0)::bigint, coalesce(sum(paused), 0)::bigint, \
     coalesce(sum(completed), 0)::bigint, coalesce(sum(failed), 0)::bigint, coalesce(sum(cancelled), 0)::bigint, \
     coalesce(sum(dead_letters), 0)::bigint FROM job_tally";
/// One statement, so that its position and the executions before it are from the same snapshot.
pub(crate) const AHEAD: &str = "SELECT (SELECT count(*) FROM (SELECT 1 FROM live AS earlier \
     WHERE earlier.lane = live.lane AND earlier.state = 1 \
     AND (earlier.rank, earlier.job, earlier.occurrence) < (live.rank, live.job, live.occurrence) LIMIT $3) AS ahead) \
     FROM live WHERE live.job = $1 AND live.occurrence = $2 AND live.state = 1";
pub(crate) const TOKEN: &str = "SELECT id, secret_sha256, role, created_at FROM tokens WHERE id = $1";

impl<C: GenericClient> Reads<'_, C> {
    pub async fn paused_queues(&self) -> Result<Vec<PausedQueue>, StoreError> {
        Ok(held_queues(self.queues().await?))
    }

    /// The queues that are paused or have settings, by name.
    pub async fn queues(&self) -> Result<Vec<QueueRow>, StoreError> {
        Ok(self.all_queues().await?)
    }

    /// How many executions of the same lane come before this queued one, counted up to `count`; `None` if
    /// it is not queued.
    pub async fn ahead(&self, id: OccurrenceId, count: usize) -> Result<Option<usize>, StoreError> {
        Ok(self.count_ahead(id, count).await?)
    }

    /// How many executions each session holds; sessions that hold none are left out.
    pub async fn holdings(&self) -> Result<Vec<(SessionId, u64)>, StoreError> {
        Ok(self.all_holdings().await?)
    }

    /// All sessions that are neither lost nor closed.
    pub async fn sessions(&self) -> Result<Vec<SessionRow>, StoreError> {
        Ok(self.all_sessions().await?)
    }

    /// Live executions by lane: rows of counters and the head of the queue for each lane in use.
    pub async fn depths(&self) -> Result<Vec<Depth>, StoreError> {
        Ok(self.all_depths().await?)
    }

    /// Jobs by status.
    pub async fn job_counts(&self) -> Result<JobCounts, StoreError> {
        Ok(self.count_jobs().await?)
    }

    pub async fn token(&self, id: &str) -> Result<Option<Token>, StoreError> {
        Ok(self.find_token(id).await?)
    }

    async fn all_queues(&self) -> Result<Vec<QueueRow>, Fault> {
        readable(self.all(QUEUES, &[]).await?.iter().map(read_queue))
    }

    async fn count_ahead(&self, id: OccurrenceId, most: usize) -> Result<Option<usize>, Fault> {
        let row = self.one(AHEAD, &[&uuid(id.job), &i64::from(id.number), &limit(most)]).await?;
        let ahead = row.map(|row| read(&row, 0, "ahead")).transpose()?;
        Ok(ahead)
    }

    async fn all_holdings(&self) -> Result<Vec<(SessionId, u64)>, Fault> {
        let read = |row: &Row| Ok((SessionId(get(row, 0)?), read(row, 1, "live.session")?));
        self.all(HOLDINGS, &[]).await?.iter().map(read).collect()
    }

    async fn all_sessions(&self) -> Result<Vec<SessionRow>, Fault> {
        readable(self.all(SESSIONS, &[]).await?.iter().map(read_session))
    }

    async fn all_depths(&self) -> Result<Vec<Depth>, Fault> {
        let bounds = [limit(limits::OLDEST_ROWS_MAX), limit(OLDEST_LOOKED_AT_MAX)];
        let rows = self.all(DEPTHS, &[&bounds[0], &bounds[1]]).await?;
        let numbers = rows.iter().map(|row| get(row, 0)).collect::<Result<Vec<i64>, _>>()?;
        let lanes = self.named_lanes(numbers.iter().copied()).await?;
        let read = |(row, lane): (&Row, &i64)| {
            Ok(Depth {
                lane: lanes.lane(*lane)?.clone(),
                waiting: shown(get(row, 1)?),
                queued: shown(get(row, 2)?),
                running: shown(get(row, 3)?),
                oldest_queued: get(row, 4)?,
            })
        };
        readable(rows.iter().zip(&numbers).map(read))
    }

    async fn count_jobs(&self) -> Result<JobCounts, Fault> {
        let row = self.one(JOB_COUNTS, &[]).await?.ok_or_else(|| Fault::Missing("job_tally".to_owned()))?;
        read_job_counts(&row)
    }

    async fn find_token(&self, id: &str) -> Result<Option<Token>, Fault> {
        self.one(TOKEN, &[&id]).await?.as_ref().map(read_token).transpose()
    }
}
