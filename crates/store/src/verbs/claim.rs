//! Claiming: the lowest ranks across all lanes that a worker serves.

use super::begin::assignment;
use super::each::{Gaps, each};
use super::notes::checkpoint_of;
use super::queues;
use super::settle::record;
use crate::fault::Fault;
use crate::rows::{JobTerms, Rows};
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::OccurrenceId;
use punctual_core::limits;
use punctual_core::ports::{Assignment, Begun, Claim, ClaimOutcome};
use punctual_core::time::Timestamp;

/// Times that a claim looks again because something it found had expired.
const EXPIRED_ROUNDS_MAX: usize = 8;

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
        return Ok(ClaimOutcome::Claimed { assignments: vec![], begun: Begun::default() });
    }
    let lanes = rows.lanes_matching(&claim.queues, &claim.job_types)?;
    let lanes = without_paused(rows, lanes)?;
    let limit = claim.limit.min(limits::POLL_CAPACITY_MAX);
    let mut taken = Taken::default();
    // What has expired makes room for what comes after it.
    let mut expired = 0;
    for _ in 0..EXPIRED_ROUNDS_MAX {
        let wanted = limit - taken.assignments.len();
        let keys = rows.lowest(&lanes, wanted)?;
        expired = lease(rows, now, claim, &keys, &mut taken)?;
        if expired == 0 {
            break;
        }
    }
    if expired > 0 {
        // There may be more behind what has expired: whoever asked is to ask again.
        for lane in &lanes {
            taken.begun.queued.push(rows.lane(*lane)?);
        }
    }
    if !taken.assignments.is_empty() {
        rows.set_turn(claim.session, claim.turn)?;
    }
    Ok(ClaimOutcome::Claimed { assignments: taken.assignments, begun: taken.begun })
}

/// What a claim has brought so far.
#[derive(Default)]
struct Taken {
    assignments: Vec<Assignment>,
    begun: Begun,
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

/// Leases these executions, but for those that have expired: they end here, and how many they were is returned.
fn lease<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    claim: &Claim,
    keys: &[OccurrenceId],
    taken: &mut Taken,
) -> Result<usize, Fault> {
    let mut gaps = Gaps::default();
    let mut expired = 0;
    taken.assignments.reserve(keys.len());
    for key in keys {
        match gaps.pass(lease_one(rows, now, claim, *key))? {
            Some(Found::Leased(assignment)) => taken.assignments.push(assignment),
            Some(Found::Expired(begun)) => {
                taken.begun.add(begun);
                expired += 1;
            }
            None => {}
        }
    }
    gaps.close(expired)
}

/// What became of an execution that was to be claimed.
enum Found {
    Leased(Assignment),
    Expired(Begun),
}

fn lease_one<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    claim: &Claim,
    key: OccurrenceId,
) -> Result<Found, Fault> {
    let found = rows.claimable(key)?;
    let (row, facts) = found.ok_or_else(|| Fault::Missing(format!("job of {key}")))?;
    if row.live.is_expired(now) && !planted(Defect::ClaimExpired) {
        let terms = rows.terms_of(key.job)?;
        let settled = row.live.expired(terms.as_ref().map(JobTerms::terms), now)?;
        return Ok(Found::Expired(record(rows, &row, settled, now)?.begun));
    }
    let claimed = row.live.claimed(claim.session, facts.version, now)?;
    rows.update_live(&row, &claimed)?;
    let checkpoint = checkpoint_of(rows, &claimed)?;
    let lane = rows.lane(row.lane)?;
    Ok(Found::Leased(assignment(&claimed, &lane, facts, checkpoint)))
}
