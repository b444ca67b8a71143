//! Small tables that are read completely: sessions, queues, depths of lanes, tokens; and the size of the
//! database.

use super::Reads;
use super::keys::key;
use crate::cells::{get, read};
use crate::codecs::limit;
use crate::codes::held_queues;
use crate::counters::shown;
use crate::fault::Fault;
use crate::lists::heads_looked_at;
use crate::malformed::{pass_over, readable, rows_passed_over};
use crate::server::loaded::read_queue;
use crate::server::rows::{read_job_counts, read_session, read_token, session_columns};
use punctual_core::ids::{OccurrenceId, SessionId};
use punctual_core::ports::{Depth, JobCounts, PausedQueue, QueueRow, SessionRow, StoreFigures, Token};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

const SESSIONS: &str = concat!(
    "SELECT ",
    session_columns!(),
    " FROM sessions JOIN workers ON workers.id = sessions.worker \
     LEFT JOIN session_conditions ON session_conditions.session = sessions.id WHERE sessions.lost = 0 ORDER BY sessions.id"
);
const QUEUES: &str = "SELECT queue, paused_at, max_depth, limits, unplaced FROM queues ORDER BY queue";
pub(crate) const TOKEN: &str = "SELECT id, secret_sha256, role, created_at FROM tokens WHERE id = ?";
/// Each writing connection counts in its own rows.
pub(crate) const LANE_COUNTERS: &str = "SELECT lane, CAST(SUM(waiting) AS SIGNED), CAST(SUM(queued) AS SIGNED), \
     CAST(SUM(running) AS SIGNED) FROM lane_tallies GROUP BY lane ORDER BY lane";
pub(crate) const JOB_COUNTERS: &str = "SELECT CAST(COALESCE(SUM(active), 0) AS SIGNED), \
     CAST(COALESCE(SUM(paused), 0) AS SIGNED), CAST(COALESCE(SUM(completed), 0) AS SIGNED), \
     CAST(COALESCE(SUM(failed), 0) AS SIGNED), CAST(COALESCE(SUM(cancelled), 0) AS SIGNED), \
     CAST(COALESCE(SUM(dead_letters), 0) AS SIGNED) FROM job_tally";
const HOLDINGS: &str = "SELECT session, COUNT(*) FROM live FORCE INDEX (live_session) WHERE session IS NOT NULL \
     GROUP BY session ORDER BY session";
const QUEUED_PLACE: &str =
    "SELECT queued_lane, claim_rank FROM live WHERE job = ? AND occurrence = ? AND queued_lane > 0";
/// The comparison of triples is spelled out: neither server uses an index for `(a, b, c) < (?, ?, ?)`.
pub(crate) const AHEAD: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM live FORCE INDEX (live_claim) \
     WHERE queued_lane = ? AND (claim_rank < ? OR (claim_rank = ? AND (job < ? OR (job = ? AND occurrence < ?)))) \
     LIMIT ?) AS ahead";
/// The tables of this database. The result is as old as the server's statistics, which is accurate enough.
const SIZES: &str = "SELECT CAST(COALESCE(SUM(data_length + index_length), 0) AS SIGNED), \
     CAST(COALESCE(SUM(data_free), 0) AS SIGNED), \
     CAST(COALESCE(SUM(IF(table_name = 'log_lines', data_length + index_length, 0)), 0) AS SIGNED) \
     FROM information_schema.tables WHERE table_schema = DATABASE()";

/// Lanes whose heads one statement reads.
const HEADS_AT_ONCE: usize = 50;

/// Each lane is a separate branch with its own limit. Lane numbers are written into the text: they are our
/// own.
pub(crate) fn heads(lanes: &[i64], looked_at: usize) -> String {
    let branch = |lane: &i64| {
        format!(
            "(SELECT {lane} AS lane, MIN(head.available_at) AS oldest FROM (SELECT available_at FROM live \
             FORCE INDEX (live_claim) WHERE queued_lane = {lane} \
             ORDER BY queued_lane, claim_rank, job, occurrence LIMIT {looked_at}) AS head)"
        )
    };
    lanes.iter().map(branch).collect::<Vec<_>>().join(" UNION ALL ")
}

impl Reads {
    pub async fn paused_queues(&mut self) -> Result<Vec<PausedQueue>, Fault> {
        Ok(held_queues(self.queues().await?))
    }

    /// The queues that are paused or have settings, by name.
    pub async fn queues(&mut self) -> Result<Vec<QueueRow>, Fault> {
        readable(self.all(QUEUES, ()).await?.iter().map(read_queue))
    }

    /// How many executions of the same lane come before this queued one, counted up to `most`; `None` if it
    /// is not queued.
    pub async fn ahead(&mut self, id: OccurrenceId, most: usize) -> Result<Option<usize>, Fault> {
        let Some(place) = self.one(QUEUED_PLACE, (key(id.job), id.number)).await? else { return Ok(None) };
        let (lane, rank): (i64, i64) = (get(&place, 0)?, get(&place, 1)?);
        let bounds = (lane, rank, rank, key(id.job), key(id.job), id.number, limit(most));
        let counted = self.one(AHEAD, bounds).await?;
        counted.map(|row| get(&row, 0)).transpose()
    }

    /// How many executions each session holds; sessions that hold none are left out.
    pub async fn holdings(&mut self) -> Result<Vec<(SessionId, u64)>, Fault> {
        let rows = self.all(HOLDINGS, ()).await?;
        rows.iter().map(|row| Ok((SessionId(get(row, 0)?), read(row, 1, "live.session")?))).collect()
    }

    /// All sessions that are neither lost nor closed.
    pub async fn sessions(&mut self) -> Result<Vec<SessionRow>, Fault> {
        readable(self.all(SESSIONS, ()).await?.iter().map(read_session))
    }

    /// Live executions by lane: the rows of counters and the head of the queue for each lane in use.
    pub async fn depths(&mut self) -> Result<Vec<Depth>, Fault> {
        // The heads of the queues must match the counters.
        self.begin_snapshot().await?;
        let lane_counters = self.lane_counters().await?;
        let queued: Vec<i64> = lane_counters
            .iter()
            .filter(|counters| counters.queued > 0)
            .map(|counters| counters.lane)
            .collect();
        let oldest = self.oldest_of_heads(&queued).await?;
        self.learn_lanes(lane_counters.iter().map(|counters| counters.lane)).await?;
        let mut depths = Vec::with_capacity(lane_counters.len());
        for LaneCounters { lane: number, waiting, queued, running } in lane_counters {
            let Some(lane) = pass_over(self.lane(number).await)? else { continue };
            let oldest_queued = oldest.get(&number).copied();
            depths.push(Depth { lane, waiting, queued, running, oldest_queued });
        }
        self.end_snapshot().await?;
        Ok(depths)
    }

    /// All lanes with live executions.
    async fn lane_counters(&mut self) -> Result<Vec<LaneCounters>, Fault> {
        let mut lane_counters = Vec::new();
        for row in &self.all(LANE_COUNTERS, ()).await? {
            let counters = LaneCounters {
                lane: get(row, 0)?,
                waiting: shown(get(row, 1)?),
                queued: shown(get(row, 2)?),
                running: shown(get(row, 3)?),
            };
            if counters.waiting + counters.queued + counters.running > 0 {
                lane_counters.push(counters);
            }
        }
        Ok(lane_counters)
    }

    async fn oldest_of_heads(&mut self, lanes: &[i64]) -> Result<BTreeMap<i64, Timestamp>, Fault> {
        let (mut oldest, looked_at) = (BTreeMap::new(), heads_looked_at(lanes.len()));
        for some in lanes.chunks(HEADS_AT_ONCE) {
            for row in &self.every(&heads(some, looked_at)).await? {
                if let Some(available_at) = get(row, 1)? {
                    oldest.insert(get(row, 0)?, available_at);
                }
            }
        }
        Ok(oldest)
    }

    /// Jobs by status.
    pub async fn job_counts(&mut self) -> Result<JobCounts, Fault> {
        let row = self.one(JOB_COUNTERS, ()).await?.ok_or_else(|| Fault::Missing("job_tally".to_owned()))?;
        read_job_counts(&row)
    }

    /// The size of the database; statistics that are counted elsewhere are zero.
    pub async fn figures(&mut self) -> Result<StoreFigures, Fault> {
        let row = self.one(SIZES, ()).await?.ok_or_else(|| Fault::Missing("tables".to_owned()))?;
        let log_bytes = shown(get(&row, 2)?);
        Ok(StoreFigures {
            database_bytes: shown(get(&row, 0)?).saturating_sub(log_bytes),
            free_bytes: shown(get(&row, 1)?),
            log_bytes,
            malformed_rows: rows_passed_over(),
            ..StoreFigures::default()
        })
    }

    pub async fn token(&mut self, id: &str) -> Result<Option<Token>, Fault> {
        self.one(TOKEN, (id,)).await?.as_ref().map(read_token).transpose()
    }
}

/// The counters of one lane.
struct LaneCounters {
    lane: i64,
    waiting: u64,
    queued: u64,
    running: u64,
}
