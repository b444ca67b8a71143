//! The statements about names of lanes: see [`crate::server::names`].

use super::wire::Wire;
use crate::fault::Fault;
use crate::server::connection::{ServerCall, Statements, TransactionFrame};
use crate::server::names::{LaneName, LaneStatements, by_name, missing, name_list, read_lanes};
use crate::unit_of_work::LaneCache;
use async_trait::async_trait;
use punctual_core::ports::Lane;
use std::collections::BTreeSet;

pub(crate) const LANES_ABOVE: &str =
    "SELECT id, queue, job_type FROM lanes WHERE id > $1 ORDER BY id LIMIT $2";
pub(crate) const LANES_BY_NUMBER: &str = "SELECT id, queue, job_type FROM lanes WHERE id = ANY($1)";
pub(crate) const LANES_BY_NAME: &str = "SELECT lanes.id, lanes.queue, lanes.job_type \
     FROM unnest($1::text[], $2::text[]) AS wanted(queue, job_type) CROSS JOIN LATERAL \
     (SELECT * FROM lanes WHERE lanes.queue = wanted.queue AND lanes.job_type = wanted.job_type LIMIT 1) AS lanes";
/// Searches the claim index once for each lane with queued executions, no matter how many other lanes were
/// ever used.
pub(crate) const LANES_WITH_WORK: &str = "WITH RECURSIVE busy(lane) AS (\
       (SELECT lane FROM live WHERE state = 1 ORDER BY lane LIMIT 1) \
       UNION ALL SELECT (SELECT live.lane FROM live WHERE live.state = 1 AND live.lane > busy.lane \
         ORDER BY live.lane LIMIT 1) FROM busy WHERE busy.lane IS NOT NULL) \
     SELECT lanes.id, lanes.queue, lanes.job_type FROM busy \
     CROSS JOIN LATERAL (SELECT * FROM lanes WHERE lanes.id = busy.lane LIMIT 1) AS lanes";
/// Numbers are assigned under the lock, so that a lower one is never committed after a higher one.
const LOCK_LANES: &str = "LOCK TABLE lanes IN SHARE ROW EXCLUSIVE MODE";
const INSERT_LANES: &str = "INSERT INTO lanes (queue, job_type) \
     SELECT queue, job_type FROM unnest($1::text[], $2::text[]) AS new(queue, job_type) \
     ON CONFLICT (queue, job_type) DO NOTHING";

#[async_trait]
impl LaneStatements for Wire {
    const LANES_ABOVE: &'static str = LANES_ABOVE;
    const LANES_BY_NUMBER: &'static str = LANES_BY_NUMBER;
    const LANES_BY_NAME: &'static str = LANES_BY_NAME;

    async fn create_lanes(
        &mut self,
        wanted: &BTreeSet<LaneName>,
        mut found: Vec<(i64, Lane)>,
    ) -> Result<Vec<(i64, Lane)>, Fault> {
        let new = missing(wanted, &found);
        let insert = ServerCall::new(INSERT_LANES, [name_list(new.iter().copied())]);
        self.send(TransactionFrame::BeginAndCommit, vec![ServerCall::new(LOCK_LANES, []), insert]).await?;
        found.extend(by_name(self, new).await?);
        Ok(found)
    }

    async fn lanes_with_work(&mut self, _: &LaneCache) -> Result<Vec<(i64, Lane)>, Fault> {
        read_lanes(self, ServerCall::new(LANES_WITH_WORK, [])).await
    }
}
