//! Claiming: the lowest ranks across all lanes that a worker serves.

use super::begin::assignment;
use super::missing_rows::{Gaps, each};
use super::notes::checkpoint_of;
use super::queues;
use super::settle::record;
use crate::fault::Fault;
use crate::malformed::note;
use crate::rows::{JobTerms, LiveRow, Rows};
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::OccurrenceId;
use punctual_core::limits;
use punctual_core::occurrence::{Live, Settled};
use punctual_core::ports::{Assignment, Claim, ClaimOutcome, CommitEffects};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

/// How often a claim searches again because executions that it found had expired or could not be read.
const ROUNDS_MAX: usize = 8;

pub(super) fn claim<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    claims: &[Claim],
) -> Result<Vec<ClaimOutcome>, Fault> {
    each(rows, claims, |rows, claim| claim_one(rows, now, claim))
}

fn claim_one<R: Rows>(rows: &mut R, now: Timestamp, claim: &Claim) -> Result<ClaimOutcome, Fault> {
    let Some(place) = rows.session(claim.session)? else { return Ok(ClaimOutcome::SessionLost) };
    if claim.turn <= place.turn && !planted(Defect::DropTurn) {
        return Ok(ClaimOutcome::StaleTurn);
    }
    if !place.mode.gets_work() && !planted(Defect::ClaimWhilePaused) {
        return Ok(ClaimOutcome::Claimed { assignments: vec![], effects: CommitEffects::default() });
    }
    let lanes = rows.lanes_matching(&claim.queues, &claim.job_types)?;
    let lanes = without_paused(rows, lanes)?;
    let mut taken =
        ClaimResult { limit: claim.limit.min(limits::POLL_CAPACITY_MAX), ..ClaimResult::default() };
    // Expired and malformed executions do not use up the claim's limit.
    let mut expired = 0;
    for _ in 0..ROUNDS_MAX {
        let skipped_rows = taken.malformed.len();
        // Asks for two extra rows per skipped row, so that a few rounds get past any number of malformed
        // rows.
        let keys = rows.lowest(&lanes, taken.left() + 2 * skipped_rows)?;
        expired = lease(rows, now, claim, &keys, &mut taken)?;
        if expired == 0 && taken.malformed.len() == skipped_rows {
            break;
        }
    }
    if expired > 0 {
        // More work may follow the expired executions: the caller must poll again.
        for lane in &lanes {
            taken.effects.queued.push(rows.lane(*lane)?);
        }
    }
    if !taken.assignments.is_empty() {
        rows.set_turn(claim.session, claim.turn)?;
    }
    Ok(ClaimOutcome::Claimed { assignments: taken.assignments, effects: taken.effects })
}

/// The result of a claim so far.
#[derive(Default)]
struct ClaimResult {
    limit: usize,
    assignments: Vec<Assignment>,
    effects: CommitEffects,
    /// Malformed executions, which are skipped.
    malformed: BTreeSet<OccurrenceId>,
}

impl ClaimResult {
    fn left(&self) -> usize {
        self.limit - self.assignments.len()
    }
}

fn without_paused<R: Rows>(rows: &mut R, lanes: Vec<i64>) -> Result<Vec<i64>, Fault> {
    let mut open = Vec::with_capacity(lanes.len());
    for id in lanes {
        let lane = rows.lane(id)?;
        if !queues::is_paused(rows, lane.queue())? {
            open.push(id);
        }
    }
    Ok(open)
}

/// Leases these executions. Those that have expired end here; their number is returned.
fn lease<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    claim: &Claim,
    keys: &[OccurrenceId],
    taken: &mut ClaimResult,
) -> Result<usize, Fault> {
    let mut gaps = Gaps::default();
    let mut expired = 0;
    let mut left = taken.left();
    taken.assignments.reserve(left);
    for key in keys {
        if left == 0 {
            break;
        }
        if taken.malformed.contains(key) {
            continue;
        }
        left -= 1;
        let found = match find(rows, now, claim, *key) {
            // Nothing was written for it.
            Err(fault) if fault.is_malformed() && !gaps.is_any() => {
                note(&fault);
                taken.malformed.insert(*key);
                left += 1;
                continue;
            }
            found => found,
        };
        let Some(found) = gaps.pass(found)? else { continue };
        match found {
            ClaimDecision::Claimed { row, claimed, assignment } => {
                rows.update_live(&row, &claimed)?;
                taken.assignments.push(assignment);
            }
            ClaimDecision::Expired { row, settled } => {
                if let Some(recorded) = gaps.pass(record(rows, &row, settled, now))? {
                    taken.effects.add(recorded.effects);
                }
                expired += 1;
            }
        }
    }
    gaps.close(expired)
}

/// What to do with an execution that was found for a claim.
enum ClaimDecision {
    Claimed { row: LiveRow, claimed: Live, assignment: Assignment },
    Expired { row: LiveRow, settled: Settled },
}

/// Reads everything that a lease needs, and writes nothing: an execution that cannot be read is skipped.
fn find<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    claim: &Claim,
    key: OccurrenceId,
) -> Result<ClaimDecision, Fault> {
    let found = rows.claimable(key)?;
    let (row, facts) = found.ok_or_else(|| Fault::Missing(format!("job of {key}")))?;
    if row.live.is_expired(now) && !planted(Defect::ClaimExpired) {
        let terms = rows.terms_of(key.job)?;
        let settled = row.live.expired(terms.as_ref().map(JobTerms::terms), now)?;
        return Ok(ClaimDecision::Expired { row, settled });
    }
    let claimed = row.live.claimed(claim.session, facts.version, now)?;
    let checkpoint = checkpoint_of(rows, &claimed)?;
    let lane = rows.lane(row.lane)?;
    let assignment = assignment(&claimed, &lane, facts, checkpoint);
    Ok(ClaimDecision::Claimed { row, claimed, assignment })
}
