//! Rows to write and to read back.

use super::dialect::TestTables;
use crate::rows::{JobRow, LiveRow};
use crate::unit_of_work::{LoadedRows, ReadSet, Tables, WriteSet};
use punctual_core::ids::JobId;
use punctual_core::job::{Job, JobSpec, Priority, StoredStatus};
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{Finished, Live, Origin, RunInput};
use punctual_core::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_763_195_400_000_000 + seconds * 1_000_000)
}

pub(super) fn id(number: u32) -> JobId {
    JobId::new(at(0).plus(Duration::from_millis(number.into())), number.into())
}

pub(super) fn job(number: u32, lane: i64) -> JobRow {
    let spec = JobSpec::named("report");
    let job = Job {
        id: id(number),
        version: 1,
        mark: StoredStatus::Active,
        numbered: None,
        fired: 0,
        created_at: at(0),
        updated_at: at(0),
        spec,
    };
    JobRow { job, lane }
}

/// Queued, with its number as rank.
pub(super) fn queued(number: u32, lane: i64) -> LiveRow {
    let occurrence = id(number).occurrence(1);
    let live = Live::fired(occurrence, at(1), Origin::Schedule, 1, Priority::DEFAULT, at(1), Duration::ZERO);
    LiveRow { live: Live { rank: i64::from(number), ..live }, lane, is_sole: false }
}

pub(super) fn finished(number: u32, completed_at: Timestamp) -> Finished {
    let live = queued(number, 1).live;
    Finished {
        id: live.execution(),
        epoch: live.epoch,
        status: Status::Failed,
        scheduled_time: live.scheduled_time,
        origin: live.origin,
        job_version: 1,
        available_at: live.available_at,
        started_at: Some(at(2)),
        completed_at,
        session: None,
        worker: None,
        reason: None,
        error: Some("it broke\0here".to_owned()),
        result: None,
        input: Some(Arc::new(RunInput {
            payload: Some("{\"a\":1}".to_owned()),
            repeats: Some(7),
            ..RunInput::default()
        })),
    }
}

/// The number of a lane for the jobs of [`job`].
pub(super) async fn lane(tables: &mut TestTables, queue: &str) -> i64 {
    let name = (queue.to_owned(), "report".to_owned());
    let read_set = ReadSet { lanes: [name].into(), ..ReadSet::default() };
    let found = tables.intern(&read_set).await.unwrap();
    found.lanes.into_iter().find(|(_, lane)| lane.queue() == queue).unwrap().0
}

/// Writes in a separate transaction.
pub(super) async fn write(tables: &mut TestTables, write_set: &WriteSet) {
    tables.begin().await.unwrap();
    tables.commit(write_set).await.unwrap();
}

/// Loads in a transaction that changes nothing.
pub(super) async fn fetch(tables: &mut TestTables, read_set: &ReadSet) -> LoadedRows {
    tables.begin().await.unwrap();
    let found = tables.fetch(read_set).await.unwrap();
    tables.commit(&WriteSet::default()).await.unwrap();
    found
}
