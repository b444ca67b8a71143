//! Deletes unused rows: see [`crate::server::unused`].

use super::wire::Wire;
use crate::cells::get;
use crate::fault::Fault;
use crate::layout::each_lane_count;
use crate::row_list::numbers;
use crate::server::connection::{Argument, ServerCall, Statements, TransactionFrame, value};
use crate::server::unused::UnusedStatements;
use async_trait::async_trait;
use punctual_core::ports::Horizon;
use tokio_postgres::Row;

const DELETE_WORKERS: &str = "DELETE FROM workers WHERE id = ANY($1) AND unused_since < $2 \
     AND id NOT IN (SELECT worker FROM sessions) RETURNING id";
const NOTE_UNUSED_WORKERS: &str = "UPDATE workers SET unused_since = $2 WHERE id = ANY($1) AND unused_since IS NULL \
     AND id NOT IN (SELECT worker FROM sessions)";
/// A worker's name is created before its session.
const NOTE_USED_WORKERS: &str = "UPDATE workers SET unused_since = NULL WHERE id = ANY($1) \
     AND unused_since IS NOT NULL AND id IN (SELECT worker FROM sessions)";

#[async_trait]
impl UnusedStatements for Wire {
    /// Each lane is looked up separately: a plan with joins would read all jobs.
    const LANES_LOOKED_AT: &'static str = "SELECT page.id, (SELECT count(*) FROM \
         (SELECT 1 FROM jobs WHERE jobs.lane = page.id LIMIT 1) AS one) = 0, 1::bigint \
         FROM (SELECT id FROM lanes WHERE id > $1 ORDER BY id LIMIT $2) AS page ORDER BY page.id";
    const LOCK_LANES: &'static str =
        "SELECT id FROM lanes WHERE id = ANY($1) ORDER BY id FOR UPDATE SKIP LOCKED";
    const UNUSED_LANES: &'static str = concat!(
        "DELETE FROM lanes WHERE id = ANY($1) \
         AND (SELECT count(*) FROM (SELECT 1 FROM jobs WHERE jobs.lane = lanes.id LIMIT 1) AS one) = 0 \
         AND (SELECT ",
        each_lane_count!(" AND ", "coalesce(sum(", "), 0) = 0"),
        " FROM lane_tallies WHERE lane_tallies.lane = lanes.id) RETURNING id"
    );
    const DELETE_LANES: &'static [&'static str] = &["DELETE FROM lane_tallies WHERE lane = ANY($1)"];
    const COUNTERS_LOOKED_AT: &'static str = concat!(
        "SELECT lane, ",
        each_lane_count!(" AND ", "sum(", ") = 0"),
        ", count(*) FROM (SELECT * FROM lane_tallies WHERE lane > $1 ORDER BY lane, shard LIMIT $2) AS page \
         GROUP BY lane ORDER BY lane"
    );
    const LOCK_COUNTERS: &'static str = concat!(
        "SELECT lane, shard, ",
        each_lane_count!(", ", "", ""),
        " FROM lane_tallies WHERE lane = ANY($1) ORDER BY lane, shard FOR UPDATE SKIP LOCKED"
    );
    const DELETE_COUNTERS: &'static str = "DELETE FROM lane_tallies USING unnest($1::bigint[], $2::smallint[]) AS old(lane, shard) \
         WHERE lane_tallies.lane = old.lane AND lane_tallies.shard = old.shard";
    const WORKERS_LOOKED_AT: &'static str =
        "SELECT id, true, 1::bigint FROM workers WHERE id > $1 ORDER BY id LIMIT $2";

    fn can_delete_lanes(&self) -> bool {
        true
    }

    async fn delete_workers(&mut self, page: Vec<Row>, horizon: Horizon) -> Result<u64, Fault> {
        let workers = page.iter().map(|row| get(row, 0)).collect::<Result<Vec<i64>, _>>()?;
        let workers = || Argument::Rows(numbers(workers.iter().copied()));
        let deletion = ServerCall::new(DELETE_WORKERS, [workers(), value(horizon.workers())]);
        let gone = self.send_one(TransactionFrame::None, deletion).await?.count;
        let unused = ServerCall::new(NOTE_UNUSED_WORKERS, [workers(), value(horizon.now())]);
        self.send_one(TransactionFrame::None, unused).await?;
        self.send_one(TransactionFrame::None, ServerCall::new(NOTE_USED_WORKERS, [workers()])).await?;
        Ok(gone)
    }
}
