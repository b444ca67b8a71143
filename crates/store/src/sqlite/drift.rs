//! Counter mismatches: see [`crate::drift`].

use super::core::Memory;
use super::rows::all;
use crate::counters::Counts;
use crate::drift::{Drift, FoundDrift, Kind, LANE_NAMES, LaneNames};
use crate::fault::Fault;
use punctual_core::limiter::LimiterId;
use rusqlite::Connection;

/// Repairs the counters within the open transaction, in which all counters are written. Returns the
/// changes. The cached counters may be as wrong as the stored ones.
pub(super) fn mend(conn: &Connection, memory: &mut Memory) -> Result<Vec<Drift>, Fault> {
    memory.written.forget();
    memory.active.forget();
    let names =
        all(&mut *conn.prepare_cached(LANE_NAMES)?, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let names = LaneNames::new(names);
    let mut mended = Vec::new();
    for kind in Kind::ALL {
        let found = all(&mut conn.prepare(&kind.sql("INTEGER"))?, [], |row| {
            FoundDrift::read(kind, |column| Ok(row.get(column)?))
        })?;
        for drift in &found {
            memory.add_counts(conn, missing(kind, drift)?)?;
        }
        mended.extend(names.name(kind, &found));
    }
    Ok(mended)
}

fn missing(kind: Kind, drift: &FoundDrift) -> Result<Counts, Fault> {
    let mut counts = Counts::default();
    match (kind, drift.missing().as_slice()) {
        (Kind::Lanes, &[waiting, queued, running]) => {
            counts.lanes.insert(drift.key, [waiting, queued, running]);
        }
        (Kind::Limiters, &[waiting, in_use]) => {
            let limiter = LimiterId::from_number(drift.key)
                .ok_or_else(|| Fault::damaged("limiter_tallies.limiter", drift.key))?;
            counts.limiters.insert(limiter, [waiting, in_use]);
        }
        (_, &[active, paused, completed, failed, cancelled, dead_letters]) => {
            counts.jobs = [active, paused, completed, failed, cancelled];
            counts.dead_letters = dead_letters;
        }
        (kind, missing) => unreachable!("{} counts of {kind:?}", missing.len()),
    }
    Ok(counts)
}
