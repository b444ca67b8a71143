//! Accepting outcomes.

use super::missing_rows::each;
use super::settle::{Recorded, settle};
use crate::fault::Fault;
use crate::rows::Rows;
use punctual_core::ids::SessionId;
use punctual_core::lifecycle::Status;
use punctual_core::ports::{CommitEffects, LeaseRef, Report, ReportAnswer, ReportOutcome};
use punctual_core::time::Timestamp;

pub(super) fn report<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    reports: &[Report],
) -> Result<Vec<ReportOutcome>, Fault> {
    each(rows, reports, |rows, report| report_one(rows, now, report))
}

fn report_one<R: Rows>(rows: &mut R, now: Timestamp, report: &Report) -> Result<ReportOutcome, Fault> {
    let Report { session, lease, end } = report;
    let row = rows.live(lease.execution.occurrence)?;
    let held = row.and_then(|row| {
        let held = row.live.held_by(*session, lease.execution, lease.epoch)?;
        Some((row, held))
    });
    let Some((row, held)) = held else {
        let was_accepted = was_accepted(rows, *session, *lease)?;
        let answer = if was_accepted { ReportAnswer::AlreadyAccepted } else { ReportAnswer::Stale };
        return Ok(ReportOutcome {
            answer,
            recorded: None,
            is_retried: false,
            effects: CommitEffects::default(),
        });
    };
    let Recorded { status, is_retried, effects } = settle(rows, &row, held, end.clone(), now)?;
    Ok(ReportOutcome { answer: ReportAnswer::Accepted, recorded: Some(status), is_retried, effects })
}

/// Whether this very report was accepted before. History that recovery wrote under the same lease is not
/// the worker's report: a late outcome of a lost attempt is ignored.
fn was_accepted<R: Rows>(rows: &mut R, session: SessionId, lease: LeaseRef) -> Result<bool, Fault> {
    let ended = rows.ended(lease.execution)?;
    Ok(ended.is_some_and(|ended| {
        ended.epoch == lease.epoch && ended.session == Some(session) && ended.status != Status::Lost
    }))
}
