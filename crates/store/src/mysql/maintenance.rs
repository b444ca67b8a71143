//! The statements of maintenance: see [`crate::server::maintenance`].

use super::connection::{Connection, for_update_of};
use super::galera::{FORGET_TURNS, touch_jobs};
use super::lists::list;
use super::options::{MySqlOptions, OptionsError, Target};
use super::tables::{shard_of, statement};
use crate::cells::{ColumnKind, get};
use crate::codecs::limit;
use crate::fault::Fault;
use crate::row_list::{List, row};
use crate::server::changes::TableChange;
use crate::server::connection::{Argument, ServerCall, Statements, TransactionFrame, value};
use crate::server::maintenance::{Deletion, Maintenance, MaintenanceStatements};
use crate::server::partitions::PartitionedTables;
use async_trait::async_trait;
use punctual_core::ids::JobId;
use punctual_core::time::Timestamp;
use std::time::Duration;

/// Runs the maintenance.
pub(crate) type MySqlMaintenance = Maintenance<Connection>;

/// Shared by the connections for maintenance and log lines.
#[derive(Debug, Clone)]
pub(crate) struct SharedMaintenance {
    pub target: Target,
    pub partition_width: Duration,
    /// Determines the shard of the counters.
    writer: usize,
}

impl SharedMaintenance {
    pub fn new(options: &MySqlOptions) -> Result<Self, OptionsError> {
        // Differs from the numbers of the writers, unless there are too many of them.
        let writer = (options.seed as usize).wrapping_sub(1);
        Ok(SharedMaintenance { target: options.target()?, partition_width: options.partition_width, writer })
    }
}

/// The oldest rows outside the daily partitions. Reads as many rows as it may delete.
pub(crate) const OLD_HISTORY: &str =
    "SELECT place, completed_at FROM history PARTITION (p_first, p_rest) ORDER BY place LIMIT ?";
/// Without quotes, the name is a keyword of MariaDB here.
const DELETE_HISTORY: &str = concat!(
    "DELETE `history` FROM ",
    list!(0 place int, 1 completed_at int),
    " STRAIGHT_JOIN history FORCE INDEX (PRIMARY) ON history.place = given.place \
     AND history.completed_at = given.completed_at"
);
/// With regular maintenance these partitions are empty.
const RETAIN_LINES: &str = "DELETE FROM log_lines PARTITION (p_first, p_rest) WHERE number < ? LIMIT ?";
const DELETE_SKIPPED: &str = concat!(
    "DELETE skipped FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN skipped FORCE INDEX (PRIMARY) ON skipped.number = given.number"
);
const DELETE_LINES: &str = concat!(
    "DELETE log_lines FROM ",
    list!(0 job id, 1 occurrence int, 2 attempt int, 3 number int),
    " STRAIGHT_JOIN log_lines FORCE INDEX (PRIMARY) ON log_lines.job = UNHEX(given.job) \
     AND log_lines.occurrence = given.occurrence AND log_lines.attempt = given.attempt \
     AND log_lines.number = given.number"
);
const LANES_OF_JOBS: &str = concat!(
    "SELECT DISTINCT jobs.lane FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job)"
);
const DELETE_JOBS: &str = concat!(
    "DELETE jobs FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job)"
);

#[async_trait]
impl MaintenanceStatements for Connection {
    const TRIES: u32 = 12;
    const RETAIN_SKIPPED: Deletion = Deletion {
        find: "SELECT number FROM skipped FORCE INDEX (skipped_last) WHERE last < ? \
               ORDER BY last LIMIT ? FOR UPDATE SKIP LOCKED",
        delete: Some((DELETE_SKIPPED, &[ColumnKind::Big])),
    };
    const RETAIN_REQUESTS: &'static str = "DELETE FROM requests WHERE begun_at < ? ORDER BY begun_at LIMIT ?";
    const RETAIN_PACES: Deletion = Deletion {
        find: "SELECT limiter FROM \
               ((SELECT limiter, last_at FROM limiter_paces FORCE INDEX (PRIMARY) WHERE limiter >= ? ORDER BY limiter LIMIT ?) \
                UNION ALL (SELECT limiter, last_at FROM limiter_paces FORCE INDEX (PRIMARY) WHERE limiter < ? ORDER BY limiter LIMIT ?)) \
               AS looked_at WHERE last_at < ?",
        delete: Some((
            concat!(
                "DELETE limiter_paces FROM ",
                list!(0 limiter int),
                " STRAIGHT_JOIN limiter_paces FORCE INDEX (PRIMARY) ON limiter_paces.limiter = given.limiter \
                 WHERE limiter_paces.last_at < ?"
            ),
            &[ColumnKind::Big],
        )),
    };
    const JOBS_AFTER: &'static str = "SELECT id, COALESCE(updated_at, created_at), mark FROM jobs \
         FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT ?";
    const LOCK_JOBS: &'static str = concat!(
        "SELECT jobs.id FROM ",
        list!(0 job id),
        " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job) \
         WHERE jobs.mark <> 4 AND COALESCE(jobs.updated_at, jobs.created_at) < ?",
        for_update_of!("jobs"),
        " SKIP LOCKED"
    );
    const OVER: &'static str = concat!(
        "SELECT jobs.id, jobs.mark FROM ",
        list!(0 job id),
        " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job) \
         WHERE NOT EXISTS (SELECT 1 FROM schedules WHERE schedules.job = jobs.id) \
         AND NOT EXISTS (SELECT 1 FROM live WHERE live.job = jobs.id) \
         AND NOT EXISTS (SELECT 1 FROM dead_letters WHERE dead_letters.job = jobs.id) \
         AND NOT EXISTS (SELECT 1 FROM job_keys WHERE job_keys.job = jobs.id AND job_keys.kind = 2) \
         AND NOT EXISTS (SELECT 1 FROM history FORCE INDEX (history_job) WHERE history.job = jobs.id \
           AND history.completed_at >= ?)"
    );
    const RETIRE: &'static str = concat!(
        "UPDATE ",
        list!(0 job id),
        " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job) \
         SET jobs.mark = 4, jobs.updated_at = ?"
    );
    const PURGEABLE: &'static str = "SELECT jobs.id FROM jobs FORCE INDEX (jobs_marked) WHERE jobs.mark = 4 \
         AND COALESCE(jobs.updated_at, jobs.created_at) < ? \
         AND NOT EXISTS (SELECT 1 FROM live WHERE live.job = jobs.id) \
         AND NOT EXISTS (SELECT 1 FROM history FORCE INDEX (history_job) WHERE history.job = jobs.id \
           AND history.completed_at >= ?) \
         ORDER BY jobs.id LIMIT ? FOR UPDATE SKIP LOCKED";
    const PURGE: [Deletion; 3] = [
        Deletion {
            find: concat!(
                "SELECT history.place, history.completed_at FROM ",
                list!(0 job id),
                " STRAIGHT_JOIN history FORCE INDEX (history_job) ON history.job = UNHEX(given.job) LIMIT ?"
            ),
            delete: Some((DELETE_HISTORY, &[ColumnKind::Big, ColumnKind::Big])),
        },
        Deletion {
            find: concat!(
                "SELECT log_lines.job, log_lines.occurrence, log_lines.attempt, log_lines.number FROM ",
                list!(0 job id),
                " STRAIGHT_JOIN log_lines FORCE INDEX (PRIMARY) ON log_lines.job = UNHEX(given.job) LIMIT ?"
            ),
            delete: Some((
                DELETE_LINES,
                &[ColumnKind::Id, ColumnKind::Big, ColumnKind::Int, ColumnKind::Big],
            )),
        },
        Deletion {
            find: concat!(
                "SELECT skipped.number FROM ",
                list!(0 job id),
                " STRAIGHT_JOIN skipped FORCE INDEX (skipped_job) ON skipped.job = UNHEX(given.job) LIMIT ?"
            ),
            delete: Some((DELETE_SKIPPED, &[ColumnKind::Big])),
        },
    ];
    const KEEP_GIVEN: &'static str = "UPDATE history_bounds SET given = GREATEST(given, ?) WHERE id = 1";
    /// The session is locked briefly.
    const KEEP_CONDITION: &'static str = "INSERT INTO session_conditions (session, document) \
         SELECT id, ? FROM sessions WHERE id = ? AND lost = 0 LOCK IN SHARE MODE \
         ON DUPLICATE KEY UPDATE document = VALUES(document)";
    const WRITE_NUMBER: &'static str =
        "INSERT INTO probe (id, at) VALUES (?, ?) ON DUPLICATE KEY UPDATE at = VALUES(at)";

    fn purge_jobs() -> Vec<&'static str> {
        vec![LANES_OF_JOBS, statement(TableChange::DeleteTags), FORGET_TURNS, DELETE_JOBS]
    }

    async fn retain_rest(&mut self, before: Timestamp, count: usize) -> Result<[u64; 2], Fault> {
        let oldest = ServerCall::new(OLD_HISTORY, [value(limit(count))]);
        let mut old = Vec::new();
        for row in self.send_one(TransactionFrame::None, oldest).await?.rows {
            let (place, completed_at): (i64, i64) = (get(&row, 0)?, get(&row, 1)?);
            if completed_at < before.as_micros() {
                old.push((place, completed_at));
            }
        }
        let rows = List::of(old.iter().map(|(place, completed_at)| row![*place, *completed_at]));
        let mut calls = vec![ServerCall::new(DELETE_HISTORY, [Argument::Rows(rows)])];
        if let Some((highest, _)) = old.last() {
            calls.push(ServerCall::new(Self::KEEP_RETAINED, [value(*highest)]));
        }
        self.send(TransactionFrame::Commit, calls).await?;
        let lines = ServerCall::new(RETAIN_LINES, [value(before), value(limit(count))]);
        Ok([old.len() as u64, self.send_alone(lines).await?.count])
    }

    async fn note_locked(&mut self, jobs: &[JobId]) -> Result<(), Fault> {
        if self.node().is_some() { touch_jobs(self, jobs).await } else { Ok(()) }
    }

    /// Nothing caches them here.
    fn forget_lanes(_: &SharedMaintenance, _: &[i64]) {}

    fn shard(&self, shared: &SharedMaintenance) -> i64 {
        shard_of(shared.writer, self.node())
    }
}
