//! Counter mismatches: see [`crate::counter_mismatch`].

use super::core::CoreMemory;
use super::rows::all;
use crate::counter_mismatch::{CounterMismatch, CounterTable, LANE_NAMES, MismatchRow, NamesByLane};
use crate::counters::CounterChanges;
use crate::fault::Fault;
use punctual_core::limiter::LimiterId;
use rusqlite::Connection;

/// Each counter is one number here, so that no sum is too large.
const SUM: &str = "CAST(COALESCE(SUM({}), 0) AS INTEGER)";

/// Repairs the counters within the open transaction, in which all counters are written. Returns the
/// changes. The cached counters may be as wrong as the stored ones.
pub(super) fn repair(conn: &Connection, memory: &mut CoreMemory) -> Result<Vec<CounterMismatch>, Fault> {
    memory.written.forget();
    memory.active.forget();
    let names =
        all(&mut *conn.prepare_cached(LANE_NAMES)?, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let names = NamesByLane::new(names);
    let mut repaired = Vec::new();
    for kind in CounterTable::ALL {
        let found = all(&mut conn.prepare(&kind.sql(SUM))?, [], |row| {
            MismatchRow::read(kind, |column| Ok(row.get(column)?))
        })?;
        for mismatch in &found {
            memory.add_counts(conn, missing(kind, mismatch)?)?;
        }
        repaired.extend(names.name(kind, &found));
    }
    Ok(repaired)
}

fn missing(kind: CounterTable, mismatch: &MismatchRow) -> Result<CounterChanges, Fault> {
    let mut counts = CounterChanges::default();
    match kind {
        CounterTable::Lanes => {
            counts.lanes.insert(mismatch.key, mismatch.missing());
        }
        CounterTable::Limiters => {
            let limiter = LimiterId::from_number(mismatch.key)
                .ok_or_else(|| Fault::damaged("limiter_tallies.limiter", mismatch.key))?;
            counts.limiters.insert(limiter, mismatch.missing());
        }
        CounterTable::Jobs => counts.jobs = mismatch.missing(),
    }
    Ok(counts)
}
