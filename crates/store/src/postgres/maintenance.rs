//! The statements of maintenance: see [`crate::server::maintenance`].

use super::tables::SharedDatabase;
use super::wire::{StatementCall, Wire};
use crate::cells::get;
use crate::fault::Fault;
use crate::server::maintenance::{Deletion, Maintenance, MaintenanceStatements};
use crate::server::partitions::PartitionedTables;
use async_trait::async_trait;
use punctual_core::ids::JobId;
use punctual_core::time::Timestamp;

/// The database's time, which all nodes use.
pub(crate) const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Runs the maintenance.
pub(crate) type PostgresMaintenance = Maintenance<Wire>;

impl PostgresMaintenance {
    /// Must be called before anything is written. Creates today's partitions. Makes positions in history
    /// continue after the existing ones, in case the database comes from another server.
    pub async fn open(&self) -> Result<(), Fault> {
        let mut used = self.own.take().await?;
        keep_places_growing(&used.connection).await?;
        used.connection.make_ahead(&self.shared).await?;
        used.keep();
        Ok(())
    }
}

/// A statement that deletes rows and returns them.
const fn at_once(sql: &'static str) -> Deletion {
    Deletion { find: sql, delete: None }
}

#[async_trait]
impl MaintenanceStatements for Wire {
    const TRIES: u32 = 1;
    const RETAIN_SKIPPED: Deletion = at_once(
        "DELETE FROM skipped WHERE number IN \
         (SELECT number FROM skipped WHERE last < $1 ORDER BY last LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING 1",
    );
    const RETAIN_REQUESTS: &'static str = "DELETE FROM requests USING \
         (SELECT token, key FROM requests WHERE begun_at < $1 ORDER BY begun_at LIMIT $2 FOR UPDATE SKIP LOCKED) AS old \
         WHERE requests.token = old.token AND requests.key = old.key RETURNING 1";
    const RETAIN_PACES: Deletion = at_once(
        "DELETE FROM limiter_paces WHERE limiter = ANY(ARRAY(\
           SELECT limiter FROM limiter_paces WHERE limiter = ANY(ARRAY(\
               (SELECT limiter FROM limiter_paces WHERE limiter >= $1 ORDER BY limiter LIMIT $2) \
               UNION ALL (SELECT limiter FROM limiter_paces WHERE limiter < $3 ORDER BY limiter LIMIT $4))) \
           AND last_at < $5 FOR UPDATE SKIP LOCKED))",
    );
    const JOBS_AFTER: &'static str = "SELECT id, coalesce(updated_at, created_at), mark FROM jobs \
         WHERE id > $1 ORDER BY id LIMIT $2";
    const LOCK_JOBS: &'static str = "SELECT id FROM jobs WHERE id = ANY($1) AND mark <> 4 \
         AND coalesce(updated_at, created_at) < $2 ORDER BY id FOR UPDATE SKIP LOCKED";
    /// Each is looked up separately: a plan with joins would read whole tables for a handful of jobs.
    const OVER: &'static str = "SELECT id, mark FROM jobs WHERE id = ANY($1) \
         AND (SELECT count(*) FROM (SELECT 1 FROM schedules WHERE schedules.job = jobs.id LIMIT 1) AS one) = 0 \
         AND (SELECT count(*) FROM (SELECT 1 FROM live WHERE live.job = jobs.id LIMIT 1) AS one) = 0 \
         AND (SELECT count(*) FROM (SELECT 1 FROM dead_letters WHERE dead_letters.job = jobs.id LIMIT 1) AS one) = 0 \
         AND (SELECT count(*) FROM (SELECT 1 FROM job_keys WHERE job_keys.job = jobs.id AND job_keys.kind = 2 LIMIT 1) AS one) = 0 \
         AND (SELECT count(*) FROM (SELECT 1 FROM history WHERE history.job = jobs.id \
           AND history.completed_at >= $2 LIMIT 1) AS one) = 0 ORDER BY id";
    const RETIRE: &'static str = "UPDATE jobs SET mark = 4, updated_at = $2 WHERE id = ANY($1)";
    const PURGEABLE: &'static str = "SELECT id FROM jobs WHERE mark = 4 AND mark <> 0 AND coalesce(updated_at, created_at) < $1 \
         AND (SELECT count(*) FROM (SELECT 1 FROM live WHERE live.job = jobs.id LIMIT 1) AS one) = 0 \
         AND (SELECT count(*) FROM (SELECT 1 FROM history WHERE history.job = jobs.id \
           AND history.completed_at >= $2 LIMIT 1) AS one) = 0 \
         ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED";
    const PURGE: [Deletion; 3] = [
        at_once(
            "DELETE FROM history USING \
             (SELECT job, occurrence, attempt, completed_at FROM history WHERE job = ANY($1) LIMIT $2) AS old \
             WHERE history.job = old.job AND history.occurrence = old.occurrence AND history.attempt = old.attempt \
             AND history.completed_at = old.completed_at RETURNING history.place",
        ),
        at_once(
            "DELETE FROM lines USING \
             (SELECT job, occurrence, attempt, number FROM lines WHERE job = ANY($1) LIMIT $2) AS old \
             WHERE lines.job = old.job AND lines.occurrence = old.occurrence AND lines.attempt = old.attempt \
             AND lines.number = old.number RETURNING 1",
        ),
        at_once(
            "DELETE FROM skipped WHERE number IN \
             (SELECT number FROM skipped WHERE job = ANY($1) LIMIT $2) RETURNING 1",
        ),
    ];
    const KEEP_GIVEN: &'static str =
        "UPDATE history_bounds SET given = greatest(given, $1) WHERE id = 1 AND given < $1";
    /// Heartbeats are not blocked.
    const KEEP_CONDITION: &'static str = "INSERT INTO session_conditions (session, document) \
         SELECT id, $1::text FROM sessions WHERE id = $2 AND NOT lost FOR KEY SHARE \
         ON CONFLICT (session) DO UPDATE SET document = excluded.document";
    const WRITE_NUMBER: &'static str =
        "INSERT INTO probe (id, at) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET at = excluded.at";

    fn purge_jobs() -> Vec<&'static str> {
        vec!["DELETE FROM job_tags WHERE job = ANY($1)", "DELETE FROM jobs WHERE id = ANY($1) RETURNING lane"]
    }

    /// All rows are in partitions.
    async fn retain_rest(&mut self, _: Timestamp, _: usize) -> Result<[u64; 2], Fault> {
        Ok([0; 2])
    }

    async fn note_locked(&mut self, _: &[JobId]) -> Result<(), Fault> {
        Ok(())
    }

    fn forget_lanes(shared: &SharedDatabase, lanes: &[i64]) {
        shared.lanes.forget(lanes);
    }

    fn shard(&self, _: &SharedDatabase) -> i64 {
        self.shard.into()
    }
}

pub(crate) async fn clock(wire: &mut Wire) -> Result<Timestamp, Fault> {
    let rows = wire.run_one(StatementCall::new(CLOCK, [])).await?;
    rows.first().map_or_else(|| Err(Fault::Missing("the time".to_owned())), |row| get(row, 0))
}

/// The server numbers transactions. A database that was restored on another server finds lower numbers
/// there. The offset that is added to them is raised so far that new positions come after all that were
/// ever assigned.
async fn keep_places_growing(wire: &Wire) -> Result<(), Fault> {
    let sql = "UPDATE punctual SET place_base = given.last + 1 - pg_current_xact_id()::text::bigint \
         FROM (SELECT greatest((SELECT max(place) FROM history), max(given), max(retained)) >> 20 AS last \
               FROM history_bounds) AS given \
         WHERE id = 1 AND given.last >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint + place_base";
    if wire.client().execute(sql, &[]).await? > 0 {
        tracing::warn!(
            "the database was moved to another server: history positions continue above the previous ones"
        );
    }
    Ok(())
}
