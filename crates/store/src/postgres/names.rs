//! Lanes by number, as all connections of a process know them. They are never renumbered, and appear in the order of
//! their numbers, so that whoever knows all up to one asks only for those above.

use super::rows::get;
use super::wire::{Call, Wire, column, value};
use crate::fault::Fault;
use punctual_core::ports::Lane;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio_postgres::Row;

pub(crate) const LANES_ABOVE: &str = "SELECT id, queue, job_type FROM lanes WHERE id > $1 ORDER BY id";
/// Numbers are given under the lock, so that a lower one is never committed after a higher one.
const LOCK_LANES: &str = "LOCK TABLE lanes IN SHARE ROW EXCLUSIVE MODE";
const INSERT_LANES: &str = "INSERT INTO lanes (queue, job_type) \
     SELECT queue, job_type FROM unnest($1::text[], $2::text[]) AS new(queue, job_type) \
     ON CONFLICT (queue, job_type) DO NOTHING";

#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<BTreeMap<i64, Lane>>);

impl Lanes {
    /// All that are known.
    pub fn all(&self) -> Vec<(i64, Lane)> {
        self.lock().iter().map(|(number, lane)| (*number, lane.clone())).collect()
    }

    pub fn lane(&self, number: i64) -> Result<Lane, Fault> {
        self.lock().get(&number).cloned().ok_or_else(|| Fault::Missing(format!("lane {number}")))
    }

    /// The highest number of those that are known.
    pub fn highest(&self) -> i64 {
        self.lock().last_key_value().map_or(0, |(number, _)| *number)
    }

    pub fn knows_all(&self, numbers: &BTreeSet<i64>) -> bool {
        let known = self.lock();
        numbers.iter().all(|number| known.contains_key(number))
    }

    /// Takes in rows of [`LANES_ABOVE`].
    pub fn learn(&self, rows: &[Row]) -> Result<(), Fault> {
        for row in rows {
            let lane = Lane::new(get::<String>(row, 1)?, get::<String>(row, 2)?);
            self.lock().insert(get(row, 0)?, lane);
        }
        Ok(())
    }

    /// Learns what others have made since.
    pub async fn refresh(&self, wire: &mut Wire) -> Result<(), Fault> {
        let rows = wire.run_one(Call::new(LANES_ABOVE, [value(self.highest())])).await?;
        self.learn(&rows)
    }

    /// Makes those that are new, in a transaction of their own.
    pub async fn intern(&self, wire: &mut Wire, wanted: &BTreeSet<(String, String)>) -> Result<(), Fault> {
        self.refresh(wire).await?;
        let known: BTreeSet<(String, String)> =
            self.lock().values().map(|lane| (lane.queue().to_owned(), lane.job_type().to_owned())).collect();
        let new: Vec<_> = wanted.difference(&known).collect();
        if new.is_empty() {
            return Ok(());
        }
        let queues = column(new.iter().map(|(queue, _)| queue.as_str()));
        let job_types = column(new.iter().map(|(_, job_type)| job_type.as_str()));
        let calls = vec![Call::new(LOCK_LANES, []), Call::new(INSERT_LANES, [queues, job_types])];
        wire.run(super::wire::Frame::BeginAndCommit, calls).await?;
        self.refresh(wire).await
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
