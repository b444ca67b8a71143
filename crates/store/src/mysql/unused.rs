//! Deletes unused rows: see [`crate::server::unused`].

use super::connection::{Connection, for_update_of};
use super::lists::list;
use crate::cells::get;
use crate::fault::Fault;
use crate::layout::each_lane_count;
use crate::row_list::{List, row};
use crate::server::connection::{Argument, ServerCall, Statements, TransactionFrame};
use crate::server::unused::UnusedStatements;
use async_trait::async_trait;
use mysql_async::Row;
use punctual_core::ports::Horizon;
use std::collections::BTreeSet;

const WORKERS_OF_SESSIONS: &str = "SELECT DISTINCT worker FROM sessions";
const DELETE_WORKERS: &str = concat!(
    "DELETE workers FROM ",
    list!(0 number int, 1 bound int),
    " STRAIGHT_JOIN workers FORCE INDEX (PRIMARY) ON workers.id = given.number \
     WHERE workers.unused_since < given.bound AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.worker = workers.id)"
);
const NOTE_WORKERS: &str = concat!(
    "UPDATE ",
    list!(0 number int, 1 moment int),
    " STRAIGHT_JOIN workers FORCE INDEX (PRIMARY) ON workers.id = given.number SET workers.unused_since = given.moment"
);

#[async_trait]
impl UnusedStatements for Connection {
    const LANES_LOOKED_AT: &'static str = "SELECT page.id, \
         EXISTS (SELECT 1 FROM jobs FORCE INDEX (jobs_lane) WHERE jobs.lane = page.id) = 0, 1 \
         FROM (SELECT id FROM lanes FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT ?) AS page ORDER BY page.id";
    const LOCK_LANES: &'static str = concat!(
        "SELECT lanes.id FROM ",
        list!(0 number int),
        " STRAIGHT_JOIN lanes FORCE INDEX (PRIMARY) ON lanes.id = given.number",
        for_update_of!("lanes"),
        " SKIP LOCKED"
    );
    const UNUSED_LANES: &'static str = concat!(
        "SELECT given.number FROM ",
        list!(0 number int),
        " WHERE NOT EXISTS (SELECT 1 FROM jobs FORCE INDEX (jobs_lane) WHERE jobs.lane = given.number) \
         AND (SELECT ",
        each_lane_count!(" AND ", "COALESCE(SUM(", "), 0) = 0"),
        " FROM lane_tallies FORCE INDEX (PRIMARY) WHERE lane_tallies.lane = given.number)"
    );
    const DELETE_LANES: &'static [&'static str] = &[
        concat!(
            "DELETE lane_tallies FROM ",
            list!(0 number int),
            " STRAIGHT_JOIN lane_tallies FORCE INDEX (PRIMARY) ON lane_tallies.lane = given.number"
        ),
        concat!(
            "DELETE lanes FROM ",
            list!(0 number int),
            " STRAIGHT_JOIN lanes FORCE INDEX (PRIMARY) ON lanes.id = given.number"
        ),
    ];
    const COUNTERS_LOOKED_AT: &'static str = concat!(
        "SELECT lane, ",
        each_lane_count!(" AND ", "SUM(", ") = 0"),
        ", COUNT(*) FROM (SELECT * FROM lane_tallies FORCE INDEX (PRIMARY) WHERE lane > ? ORDER BY lane, shard LIMIT ?) \
         AS page GROUP BY lane ORDER BY lane"
    );
    const LOCK_COUNTERS: &'static str = concat!(
        "SELECT lane_tallies.lane, lane_tallies.shard, ",
        each_lane_count!(", ", "lane_tallies.", ""),
        " FROM ",
        list!(0 number int),
        " STRAIGHT_JOIN lane_tallies FORCE INDEX (PRIMARY) ON lane_tallies.lane = given.number",
        for_update_of!("lane_tallies"),
        " SKIP LOCKED"
    );
    const DELETE_COUNTERS: &'static str = concat!(
        "DELETE lane_tallies FROM ",
        list!(0 lane int, 1 shard int),
        " STRAIGHT_JOIN lane_tallies FORCE INDEX (PRIMARY) ON lane_tallies.lane = given.lane \
         AND lane_tallies.shard = given.shard"
    );
    const WORKERS_LOOKED_AT: &'static str = "SELECT id, unused_since IS NULL, 1 FROM workers FORCE INDEX (PRIMARY) \
         WHERE id > ? ORDER BY id LIMIT ?";

    /// Locks do not extend to other nodes of a cluster.
    fn can_delete_lanes(&self) -> bool {
        self.node().is_none()
    }

    async fn delete_workers(&mut self, page: Vec<Row>, horizon: Horizon) -> Result<u64, Fault> {
        let in_use = self.send_one(TransactionFrame::None, ServerCall::new(WORKERS_OF_SESSIONS, [])).await?;
        let in_use: BTreeSet<i64> = in_use.column()?.into_iter().collect();
        let (mut unused, mut to_note) = (Vec::new(), Vec::new());
        for row in &page {
            let (worker, is_noted): (i64, bool) = (get(row, 0)?, !get::<bool>(row, 1)?);
            match (in_use.contains(&worker), is_noted) {
                // A worker's name is created before its session.
                (true, true) => to_note.push(row![worker, None::<i64>]),
                (false, false) => to_note.push(row![worker, horizon.now()]),
                (false, true) => unused.push(row![worker, horizon.workers()]),
                (true, false) => {}
            }
        }
        let deletion = ServerCall::new(DELETE_WORKERS, [Argument::Rows(List::of(unused))]);
        let notes = ServerCall::new(NOTE_WORKERS, [Argument::Rows(List::of(to_note))]);
        let answers = self.send(TransactionFrame::Commit, vec![deletion, notes]).await?;
        Ok(answers.first().map_or(0, |deleted| deleted.count))
    }
}
