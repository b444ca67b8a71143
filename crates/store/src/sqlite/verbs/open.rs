//! Opening the time gates of attempts whose wait is over.

use super::begin::{JobFacts, Offers, begun_with};
use super::lease::find_live;
use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{UPDATE_LIVE, update_live};
use punctual_core::gates::Gate;
use punctual_core::ports::{OpenOutcome, TimeGate};
use punctual_core::time::Timestamp;

pub(super) fn open_time_gates(
    tx: &mut Tx<'_>,
    now: Timestamp,
    gates: Vec<TimeGate>,
) -> Result<Vec<OpenOutcome>, Fault> {
    let mut offers = Offers::default();
    gates.into_iter().map(|gate| open_one(tx, &mut offers, now, gate)).collect()
}

fn open_one(
    tx: &mut Tx<'_>,
    offers: &mut Offers,
    now: Timestamp,
    gate: TimeGate,
) -> Result<OpenOutcome, Fault> {
    let found = find_live(tx.conn, gate.occurrence)?.filter(|row| row.live.attempt == gate.attempt);
    let Some(row) = found else { return Ok(OpenOutcome::Conflict) };
    let Ok(opened) = row.live.gate_opened(Gate::Time, now) else { return Ok(OpenOutcome::Conflict) };
    if row.live.available_at > now {
        return Ok(OpenOutcome::NotDue);
    }
    let live = offers.place(tx.conn, opened, gate.offer, now)?;
    update_live(&mut *tx.conn.prepare_cached(UPDATE_LIVE)?, &live)?;
    let lane = tx.memory.lanes.lane(tx.conn, row.lane)?;
    let begun = begun_with(&live, &lane, gate.offer, || JobFacts::find(tx.conn, live.id.job, &lane))?;
    Ok(OpenOutcome::Opened(begun))
}
