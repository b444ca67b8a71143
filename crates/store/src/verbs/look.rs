//! Executions whose time has come: their time gates open, or they expire.

use super::begin::{SlotReservations, effects_with, facts_of};
use super::missing_rows::each;
use super::settle::record;
use super::wait_lists;
use crate::fault::Fault;
use crate::rows::{JobTerms, Rows};
use punctual_core::occurrence::Looked;
use punctual_core::ports::{LookOutcome, LookRequest};
use punctual_core::time::Timestamp;

pub(super) fn look<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    looks: &[LookRequest],
) -> Result<Vec<LookOutcome>, Fault> {
    let mut reservations = SlotReservations::default();
    each(rows, looks, |rows, look| look_at_one(rows, &mut reservations, now, look))
}

fn look_at_one<R: Rows>(
    rows: &mut R,
    reservations: &mut SlotReservations,
    now: Timestamp,
    look: &LookRequest,
) -> Result<LookOutcome, Fault> {
    let found = rows.live(look.occurrence)?.filter(|row| row.live.attempt == look.attempt);
    let Some(row) = found else { return Ok(LookOutcome::Conflict) };
    let terms = if row.live.is_expired(now) { rows.terms_of(row.live.id.job)? } else { None };
    match row.live.looked_at(terms.as_ref().map(JobTerms::terms), now) {
        Err(_) => Ok(LookOutcome::Conflict),
        Ok(Looked::TooEarly) => Ok(LookOutcome::NotDue),
        Ok(Looked::Expired(settled)) => Ok(LookOutcome::Expired(record(rows, &row, settled, now)?.effects)),
        Ok(Looked::Opened(opened)) => {
            let lane = rows.lane(row.lane)?;
            let opened = wait_lists::pass_by_job(rows, opened, &lane, now)?;
            let reservation = look
                .reservation
                .as_ref()
                .filter(|(_, serves)| *serves == lane)
                .map(|(reservation, _)| *reservation);
            let version = match reservation {
                Some(_) => facts_of(rows, opened.id.job, &lane)?.version,
                None => opened.job_version,
            };
            let live = reservations.place(rows, opened, &lane, reservation, version, now)?;
            rows.update_live(&row, &live)?;
            let facts = |rows: &mut R| facts_of(rows, live.id.job, &lane);
            Ok(LookOutcome::Opened(effects_with(rows, &live, &lane, reservation, facts)?))
        }
    }
}
