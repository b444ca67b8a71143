//! What is still to come of jobs.

use super::{Code, decode, job_id, owner, owner_column, priority, text_or_none, time, time_or_none};
use crate::sqlite::fault::Fault;
use punctual_core::ports::Lane;
use punctual_core::schedule::{Replay, Schedule, ScheduleState};
use punctual_core::time::Timestamp;
use rusqlite::{Row, Statement, params};

/// A schedule row whose lane has not been named yet.
pub(crate) struct ScheduleRow {
    state: ScheduleState,
    pub lane: i64,
}

macro_rules! schedule_columns {
    () => {
        "job, version, due_at, nominal, fired, job_version, lane, priority, overlap, owner, schedule, \
         replay"
    };
}
pub(crate) use schedule_columns;

impl ScheduleRow {
    pub fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let due_at = time(row, 2)?;
        let replay: Option<Replay> = text_or_none(row, 11)?.map(serde_json::from_str).transpose()?;
        let nominal = time_or_none(row, 3)?.or(replay.is_none().then_some(due_at));
        let schedule = match text_or_none(row, 10)? {
            None => Schedule::OneTime { at: nominal.unwrap_or(due_at) },
            Some(text) => serde_json::from_str(text)?,
        };
        let state = ScheduleState {
            job: job_id(row, 0)?,
            version: row.get(1)?,
            nominal,
            due_at,
            replay,
            fired: row.get(4)?,
            job_version: row.get(5)?,
            queue: String::new(),
            job_type: String::new(),
            owner: owner(row, 9)?,
            priority: priority(row, 7)?,
            overlap: decode(row, 8, "schedules.overlap")?,
            schedule,
        };
        Ok(ScheduleRow { state, lane: row.get(6)? })
    }

    pub fn named(self, lane: &Lane) -> ScheduleState {
        let (queue, job_type) = (lane.queue().to_owned(), lane.job_type().to_owned());
        ScheduleState { queue, job_type, ..self.state }
    }
}

pub(crate) const INSERT_SCHEDULE: &str = "INSERT INTO schedules (job, segment, version, due_at, nominal, fired, job_version, lane, priority, \
     overlap, owner, schedule, replay) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

pub(crate) fn insert_schedule(
    insert: &mut Statement<'_>,
    state: &ScheduleState,
    lane: i64,
) -> Result<(), Fault> {
    let schedule = match state.schedule {
        Schedule::OneTime { at } if state.nominal == Some(at) => None,
        _ => Some(serde_json::to_string(&state.schedule)?),
    };
    insert.execute(params![
        state.job.as_bytes(),
        state.job.segment().index(),
        state.version,
        state.due_at.as_micros(),
        nominal_column(state),
        state.fired,
        state.job_version,
        lane,
        state.priority.get(),
        state.overlap.code(),
        owner_column(&state.owner),
        schedule,
        replay_column(state)?,
    ])?;
    Ok(())
}

/// Moves a schedule on; what a fire does not change stays.
pub(crate) const ADVANCE_SCHEDULE: &str =
    "UPDATE schedules SET version = ?2, due_at = ?3, nominal = ?4, fired = ?5, replay = ?6 WHERE job = ?1";

pub(crate) fn advance_schedule(update: &mut Statement<'_>, next: &ScheduleState) -> Result<(), Fault> {
    update.execute(params![
        next.job.as_bytes(),
        next.version,
        next.due_at.as_micros(),
        nominal_column(next),
        next.fired,
        replay_column(next)?,
    ])?;
    Ok(())
}

fn nominal_column(state: &ScheduleState) -> Option<i64> {
    let is_implied = state.replay.is_none() && state.nominal == Some(state.due_at);
    state.nominal.filter(|_| !is_implied).map(Timestamp::as_micros)
}

fn replay_column(state: &ScheduleState) -> Result<Option<String>, Fault> {
    Ok(state.replay.as_ref().map(serde_json::to_string).transpose()?)
}
