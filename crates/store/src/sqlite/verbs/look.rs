//! Looking at executions for which time has come: their time gates open, or they expire.

use super::begin::{JobFacts, Offers, begun_with};
use super::lease::find_live;
use super::report::{JobTerms, Settling, terms_of};
use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{UPDATE_LIVE, update_live};
use punctual_core::occurrence::Looked;
use punctual_core::ports::{Look, LookOutcome};
use punctual_core::time::Timestamp;

pub(super) fn look(tx: &mut Tx<'_>, now: Timestamp, looks: Vec<Look>) -> Result<Vec<LookOutcome>, Fault> {
    let mut offers = Offers::default();
    looks.into_iter().map(|look| look_at_one(tx, &mut offers, now, look)).collect()
}

fn look_at_one(
    tx: &mut Tx<'_>,
    offers: &mut Offers,
    now: Timestamp,
    look: Look,
) -> Result<LookOutcome, Fault> {
    let found = find_live(tx.conn, look.occurrence)?.filter(|row| row.live.attempt == look.attempt);
    let Some(row) = found else { return Ok(LookOutcome::Conflict) };
    let terms = if row.live.is_expired(now) { terms_of(tx.conn, row.live.id.job)? } else { None };
    match row.live.looked_at(terms.as_ref().map(JobTerms::terms), now) {
        Err(_) => Ok(LookOutcome::Conflict),
        Ok(Looked::TooEarly) => Ok(LookOutcome::NotDue),
        Ok(Looked::Expired(settled)) => {
            let recorded = Settling::prepare(tx.conn)?.record(tx.memory, &row, settled, now)?;
            Ok(LookOutcome::Expired(recorded.begun))
        }
        Ok(Looked::Opened(opened)) => {
            let lane = tx.memory.lanes.lane(tx.conn, row.lane)?;
            let offer = look.offer.filter(|(_, serves)| *serves == lane).map(|(offer, _)| offer);
            let version = match offer {
                Some(_) => JobFacts::find(tx.conn, opened.id.job, &lane)?.version,
                None => opened.job_version,
            };
            let live = offers.place(tx, opened, &lane, offer, version, now)?;
            update_live(&mut *tx.conn.prepare_cached(UPDATE_LIVE)?, &mut tx.memory.tally, &row, &live)?;
            let facts = || JobFacts::find(tx.conn, live.id.job, &lane);
            let begun = begun_with(tx.conn, &live, &lane, offer, facts)?;
            Ok(LookOutcome::Opened(begun))
        }
    }
}
