//! Names of lanes in the database, and which of them claims query: see [`LaneCache`].

use super::wire::{Call, Frame, Parameter, Wire, column, value};
use crate::cells::get;
use crate::codecs::limit;
use crate::fault::Fault;
use crate::unit_of_work::{LANES_ASKED_MAX, LaneCache, LanesToAsk, LanesToRead};
use punctual_core::ports::Lane;
use std::collections::BTreeSet;
use std::time::Instant;
use tokio_postgres::Row;

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

/// Looks up unknown lanes. Lanes that do not exist are left out.
pub(crate) async fn look_up(
    known: &LaneCache,
    wire: &mut Wire,
    numbers: Vec<i64>,
) -> Result<Vec<(i64, Lane)>, Fault> {
    let lanes = read(&wire.run_one(Call::new(LANES_BY_NUMBER, [value(numbers)])).await?)?;
    known.learn(&lanes);
    Ok(lanes)
}

/// The numbers of these lanes; new ones are created in a separate transaction.
pub(crate) async fn intern(
    known: &LaneCache,
    wire: &mut Wire,
    wanted: &BTreeSet<(String, String)>,
) -> Result<Vec<(i64, Lane)>, Fault> {
    let mut lanes = read(&wire.run_one(Call::new(LANES_BY_NAME, names(wanted))).await?)?;
    if lanes.len() < wanted.len() {
        let found: BTreeSet<(&str, &str)> =
            lanes.iter().map(|(_, lane)| (lane.queue(), lane.job_type())).collect();
        let is_new =
            |(queue, job_type): &&(String, String)| !found.contains(&(queue.as_str(), job_type.as_str()));
        let new: Vec<&(String, String)> = wanted.iter().filter(is_new).collect();
        let calls = vec![Call::new(LOCK_LANES, []), Call::new(INSERT_LANES, names(new.iter().copied()))];
        wire.run(Frame::BeginAndCommit, calls).await?;
        let made = read(&wire.run_one(Call::new(LANES_BY_NAME, names(new.iter().copied()))).await?)?;
        lanes.extend(made);
    }
    known.learn(&lanes);
    Ok(lanes)
}

/// The lanes that claims query; `None` if it is too early to read them again.
pub(crate) async fn to_ask(known: &LaneCache, wire: &mut Wire) -> Result<Option<LanesToAsk>, Fault> {
    let began = Instant::now();
    let mut reading = known.to_read(began);
    if let LanesToRead::Above(number) = reading {
        let bounds = [value(number), value(limit(LANES_ASKED_MAX + 1))];
        let lanes = read(&wire.run_one(Call::new(LANES_ABOVE, bounds)).await?)?;
        if let Some(to_ask) = known.read_above(number, lanes, began) {
            return Ok(Some(to_ask));
        }
        reading = known.to_read(began);
    }
    if reading != LanesToRead::WithWork {
        return Ok(None);
    }
    let began = Instant::now();
    let lanes = read(&wire.run_one(Call::new(LANES_WITH_WORK, [])).await?)?;
    Ok(Some(known.read_with_work(lanes, began, Instant::now())))
}

fn read(rows: &[Row]) -> Result<Vec<(i64, Lane)>, Fault> {
    let read = |row: &Row| Ok((get(row, 0)?, Lane::new(get::<String>(row, 1)?, get::<String>(row, 2)?)));
    rows.iter().map(read).collect()
}

/// Queues and job types.
fn names<'a>(lanes: impl IntoIterator<Item = &'a (String, String)> + Clone) -> [Parameter<'a>; 2] {
    let queues = column(lanes.clone().into_iter().map(|(queue, _)| queue.as_str()));
    [queues, column(lanes.into_iter().map(|(_, job_type)| job_type.as_str()))]
}
