//! Claiming from lanes in two steps: read without locks how the lowest ranks are distributed over the
//! lanes, then lock that many in each. A row that another transaction has locked is skipped and replaced by
//! the next in its lane. So claims never wait for each other, and no more is locked than requested.
//!
//! Lanes and limits are written into the text of these statements as numbers: a `UNION ALL` over a variable
//! number of lanes cannot be prepared ahead.

use super::read_set::Fetching;
use crate::cells::get;
use crate::codecs::{limit, occurrence_id};
use crate::fault::Fault;
use crate::layout::mysql_live_columns as live_columns;
use crate::malformed::skip_malformed;
use crate::server::asks::RowKind;
use crate::unit_of_work::RequestedClaims;
use punctual_core::ids::OccurrenceId;
use punctual_core::readmission::QueuePosition;
use std::collections::BTreeMap;

/// How often a claim doubles the number of requested rows because some are malformed.
const ROUNDS_PAST_MALFORMED_MAX: usize = 8;

/// Lanes that one statement reads.
const LANES_AT_ONCE: usize = 64;

/// From a single lane, which needs no first step.
pub(crate) const CLAIM: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live FORCE INDEX (live_claim) WHERE live.queued_lane = ? \
     ORDER BY live.claim_rank, live.job, live.occurrence LIMIT ? FOR UPDATE SKIP LOCKED"
);
/// All lanes with queued executions: the index is searched once for each.
pub(crate) const LANES_WITH_WORK: &str =
    "SELECT DISTINCT queued_lane FROM live FORCE INDEX (live_claim) WHERE queued_lane > 0";

/// The first positions of a lane.
pub(crate) fn head_of_lane(lane: i64, count: usize) -> String {
    format!(
        "(SELECT queued_lane, claim_rank, job, occurrence FROM live FORCE INDEX (live_claim) \
         WHERE queued_lane = {lane} ORDER BY claim_rank, job, occurrence LIMIT {})",
        limit(count)
    )
}

const SELECT_LIVE: &str = concat!("SELECT ", live_columns!(), " FROM live FORCE INDEX (live_claim)");

/// Locks the first rows of a lane that no other transaction has locked.
pub(crate) fn lock_in_lane(lane: i64, count: usize) -> String {
    format!(
        "({SELECT_LIVE} WHERE live.queued_lane = {lane} \
         ORDER BY live.claim_rank, live.job, live.occurrence LIMIT {} FOR UPDATE SKIP LOCKED)",
        limit(count)
    )
}

pub(crate) const LANES_OF_QUEUE: &str = "SELECT id FROM lanes FORCE INDEX (lanes_name) WHERE queue = ?";

/// The last positions of a lane before one.
pub(crate) fn end_of_lane(lane: i64, before: QueuePosition, count: usize) -> String {
    let QueuePosition { rank, occurrence: OccurrenceId { job, number } } = before;
    let key: String = job.as_bytes().iter().map(|byte| format!("{byte:02X}")).collect();
    format!(
        "(SELECT claim_rank, job, occurrence FROM live FORCE INDEX (live_claim) \
         WHERE queued_lane = {lane} AND claim_rank <= {rank} \
         AND (claim_rank < {rank} OR job < X'{key}' OR job = X'{key}' AND occurrence < {number}) \
         ORDER BY claim_rank DESC, job DESC, occurrence DESC LIMIT {})",
        limit(count)
    )
}

impl Fetching<'_> {
    /// The last queued executions by rank of a queue before a position, the last one first.
    pub(super) async fn last_queued(
        &mut self,
        queue: &str,
        before: QueuePosition,
        count: usize,
    ) -> Result<Vec<QueuePosition>, Fault> {
        let mut lanes: Vec<i64> = Vec::new();
        for row in self.connection.all(LANES_OF_QUEUE, vec![queue.into()]).await? {
            lanes.push(get(&row, 0)?);
        }
        let mut places = Vec::new();
        for some in self.with_work(&lanes).await?.chunks(LANES_AT_ONCE) {
            let branches: Vec<String> = some.iter().map(|lane| end_of_lane(*lane, before, count)).collect();
            for row in self.connection.all_of_text(&branches.join(" UNION ALL ")).await? {
                let Some(occurrence) = skip_malformed(occurrence_id(&row, 1))? else { continue };
                places.push(QueuePosition { rank: get(&row, 0)?, occurrence });
            }
            places.sort_unstable_by(|one, other| other.cmp(one));
            places.truncate(count);
        }
        Ok(places)
    }

    /// Reads further if the first rows of a lane are malformed.
    pub(super) async fn claim(&mut self, index: usize, wanted: &RequestedClaims) -> Result<(), Fault> {
        self.claim_lowest(index, wanted).await?;
        let mut wider = wanted.clone();
        for _ in 0..ROUNDS_PAST_MALFORMED_MAX {
            if self.gathering.found_claims(index) >= wanted.count {
                break;
            }
            let Some(more) = self.gathering.wider(index, &wider) else { break };
            wider = more;
            self.claim_lowest(index, &wider).await?;
        }
        Ok(())
    }

    async fn claim_lowest(&mut self, index: usize, wanted: &RequestedClaims) -> Result<(), Fault> {
        let part = RowKind::Claims(index);
        if let [lane] = wanted.lanes[..] {
            let bounds = vec![lane.into(), limit(wanted.count).into()];
            let rows = self.connection.all(CLAIM, bounds).await?;
            return self.take(part, &rows).await;
        }
        let shares: Vec<(i64, usize)> = self.shares(wanted).await?.into_iter().collect();
        let mut rows = Vec::new();
        for some in shares.chunks(LANES_AT_ONCE) {
            let branches: Vec<String> =
                some.iter().map(|(lane, count)| lock_in_lane(*lane, *count)).collect();
            rows.extend(self.connection.all_of_text(&branches.join(" UNION ALL ")).await?);
        }
        self.take(part, &rows).await
    }

    /// How the lowest ranks are distributed over the lanes.
    async fn shares(&mut self, wanted: &RequestedClaims) -> Result<BTreeMap<i64, usize>, Fault> {
        // By rank and raw key: a key that cannot be read counts, and is skipped later.
        let mut places: Vec<(i64, Vec<u8>, i64, i64)> = Vec::new();
        for some in self.with_work(&wanted.lanes).await?.chunks(LANES_AT_ONCE) {
            let branches: Vec<String> = some.iter().map(|lane| head_of_lane(*lane, wanted.count)).collect();
            for row in self.connection.all_of_text(&branches.join(" UNION ALL ")).await? {
                places.push((get(&row, 1)?, get(&row, 2)?, get(&row, 3)?, get(&row, 0)?));
            }
            places.sort_unstable();
            places.truncate(wanted.count);
        }
        let mut shares = BTreeMap::new();
        for (_, _, _, lane) in places {
            *shares.entry(lane).or_default() += 1;
        }
        Ok(shares)
    }

    /// Of many lanes, those with queued executions: empty lanes cost nothing, no matter how many were ever
    /// used.
    async fn with_work(&mut self, lanes: &[i64]) -> Result<Vec<i64>, Fault> {
        if lanes.len() <= LANES_AT_ONCE {
            return Ok(lanes.to_vec());
        }
        let mut found = Vec::new();
        for row in self.connection.all(LANES_WITH_WORK, vec![]).await? {
            let lane = get(&row, 0)?;
            if lanes.contains(&lane) {
                found.push(lane);
            }
        }
        Ok(found)
    }
}
