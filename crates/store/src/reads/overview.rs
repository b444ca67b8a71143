//! Small tables that are read completely: sessions, queues, depths of lanes.

use super::{Query, ReadKind, Reads};
use crate::cells::{get, read};
use crate::codecs::limit;
use crate::codes::held_queues;
use crate::counters::{LaneCounts, StoredCounts};
use crate::fault::Fault;
use crate::lists::OLDEST_LOOKED_AT_MAX;
use crate::malformed::{readable, skip_malformed};
use crate::reads::rows::{read_job_counts, read_session};
use crate::row_list::row;
use crate::server::loaded::read_queue;
use punctual_core::cluster_pause::is_reserved;
use punctual_core::ids::{OccurrenceId, SessionId};
use punctual_core::limits;
use punctual_core::ports::{Depth, JobCounts, PausedQueue, QueueRow, SessionRow};

impl Reads<'_> {
    /// The queues that are paused, with the reserved ones that stand for the whole cluster.
    pub async fn paused_queues(&mut self) -> Result<Vec<PausedQueue>, Fault> {
        Ok(held_queues(self.all_queues().await?))
    }

    /// The queues of users that are paused or have settings, by name.
    pub async fn queues(&mut self) -> Result<Vec<QueueRow>, Fault> {
        let mut rows = self.all_queues().await?;
        rows.retain(|row| !is_reserved(&row.queue));
        Ok(rows)
    }

    async fn all_queues(&mut self) -> Result<Vec<QueueRow>, Fault> {
        readable(self.rows(Query::of(ReadKind::Queues, [])).await?.iter().map(read_queue))
    }

    /// How many executions of the same lane come before this queued one, counted up to `most`; `None` if it
    /// is not queued.
    pub async fn ahead(&mut self, id: OccurrenceId, most: usize) -> Result<Option<usize>, Fault> {
        let fetched = self.rows(Query::of(ReadKind::Ahead, row![id.job, id.number, limit(most)])).await?;
        fetched.first().map(|row| read(row, 0, "ahead")).transpose()
    }

    /// How many executions each session holds; sessions that hold none are left out.
    pub async fn holdings(&mut self) -> Result<Vec<(SessionId, u64)>, Fault> {
        let fetched = self.rows(Query::of(ReadKind::Holdings, [])).await?;
        fetched.iter().map(|row| Ok((get(row, 0)?, read(row, 1, "live.session")?))).collect()
    }

    /// All sessions that are neither lost nor closed.
    pub async fn sessions(&mut self) -> Result<Vec<SessionRow>, Fault> {
        readable(self.rows(Query::of(ReadKind::Sessions, [])).await?.iter().map(read_session))
    }

    /// The token with which a session was opened, unless that is closed.
    pub async fn token_of_session(&mut self, session: SessionId) -> Result<Option<String>, Fault> {
        let fetched = self.rows(Query::of(ReadKind::TokenOfSession, row![session])).await?;
        Ok(fetched.first().map(|row| get::<Option<String>>(row, 0)).transpose()?.flatten())
    }

    /// Live executions by lane: rows of counters and the head of the queue for each lane in use.
    pub async fn depths(&mut self) -> Result<Vec<Depth>, Fault> {
        // The heads of the queues must match the counters.
        self.connection.begin_snapshot().await?;
        let bounds = row![limit(limits::OLDEST_ROWS_MAX), limit(OLDEST_LOOKED_AT_MAX)];
        let fetched = self.rows(Query::of(ReadKind::Depths, bounds)).await?;
        let lanes = self.lanes_in(&fetched, 0).await?;
        self.connection.end_snapshot().await?;
        readable(fetched.iter().map(|row| {
            let counts = LaneCounts::read(1, |column| get(row, column))?;
            let oldest = read(row, 1 + LaneCounts::COLUMNS.len(), "live.available_at");
            Ok(counts.depth(lanes.lane(get(row, 0)?)?.clone(), skip_malformed(oldest)?.flatten()))
        }))
    }

    /// Jobs by status.
    pub async fn job_counts(&mut self) -> Result<JobCounts, Fault> {
        let fetched = self.rows(Query::of(ReadKind::JobCounts, [])).await?;
        Ok(skip_malformed(fetched.only("job_tally").and_then(read_job_counts))?.unwrap_or_default())
    }
}
