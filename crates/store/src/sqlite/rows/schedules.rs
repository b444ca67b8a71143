//! What is still to come of jobs.

use super::{Code, decode, job_id, owner, owner_column, priority, text_or_none, time_or_none};
use crate::sqlite::fault::Fault;
use punctual_core::ports::Lane;
use punctual_core::schedule::{Overlap, Replay, Schedule, ScheduleState};
use punctual_core::time::Timestamp;
use rusqlite::{Row, Statement, params};

/// Bits of `schedules.ties`.
const TIE_DEPENDS: u8 = 1;
pub(crate) const TIE_AWAITED: u8 = 2;

/// A schedule row whose lane has not been named yet.
pub(crate) struct ScheduleRow {
    state: ScheduleState,
    pub lane: i64,
}

macro_rules! schedule_columns {
    () => {
        "job, version, due_at, nominal, fired, job_version, lane, priority, overlap, owner, schedule, \
         replay, numbered, overlap_limit, max_open, expiry, ties"
    };
}
pub(crate) use schedule_columns;

impl ScheduleRow {
    pub fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let due_at = time_or_none(row, 2)?;
        let replay: Option<Replay> = text_or_none(row, 11)?.map(serde_json::from_str).transpose()?;
        let nominal = time_or_none(row, 3)?.or(due_at.filter(|_| replay.is_none()));
        let schedule = match (text_or_none(row, 10)?, nominal) {
            (Some(text), _) => serde_json::from_str(text)?,
            (None, Some(at)) => Schedule::OneTime { at },
            (None, None) => return Err(Fault::damaged("schedules.nominal", "NULL")),
        };
        let fired = row.get(4)?;
        let defaults = Overlap::default();
        let ties: u8 = row.get(16)?;
        let state = ScheduleState {
            job: job_id(row, 0)?,
            version: row.get(1)?,
            nominal,
            due_at,
            replay,
            fired,
            numbered: row.get::<_, Option<u32>>(12)?.unwrap_or(fired),
            job_version: row.get(5)?,
            queue: String::new(),
            job_type: String::new(),
            owner: owner(row, 9)?,
            priority: priority(row, 7)?,
            overlap: Overlap {
                policy: decode(row, 8, "schedules.overlap")?,
                limit: row.get::<_, Option<u32>>(13)?.unwrap_or(defaults.limit),
                max_open: row.get::<_, Option<u32>>(14)?.unwrap_or(defaults.max_open),
            },
            expiry: text_or_none(row, 15)?.map(serde_json::from_str).transpose()?,
            depends: ties & TIE_DEPENDS != 0,
            awaited: ties & TIE_AWAITED != 0,
            schedule,
        };
        Ok(ScheduleRow { state, lane: row.get(6)? })
    }

    pub fn named(self, lane: &Lane) -> ScheduleState {
        let (queue, job_type) = (lane.queue().to_owned(), lane.job_type().to_owned());
        ScheduleState { queue, job_type, ..self.state }
    }
}

/// Writes a schedule, whether or not its job has one.
pub(crate) const PUT_SCHEDULE: &str = "REPLACE INTO schedules (job, segment, version, due_at, nominal, fired, job_version, lane, priority, \
     overlap, owner, schedule, replay, numbered, overlap_limit, max_open, expiry, ties) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";

pub(crate) fn put_schedule(put: &mut Statement<'_>, state: &ScheduleState, lane: i64) -> Result<(), Fault> {
    let schedule = match state.schedule {
        Schedule::OneTime { at } if state.nominal == Some(at) => None,
        _ => Some(serde_json::to_string(&state.schedule)?),
    };
    let defaults = Overlap::default();
    let ties = (u8::from(state.depends) * TIE_DEPENDS) | (u8::from(state.awaited) * TIE_AWAITED);
    put.execute(params![
        state.job.as_bytes(),
        state.job.segment().index(),
        state.version,
        state.due_at.map(Timestamp::as_micros),
        nominal_column(state),
        state.fired,
        state.job_version,
        lane,
        state.priority.get(),
        state.overlap.policy.code(),
        owner_column(&state.owner),
        schedule,
        replay_column(state)?,
        numbered_column(state),
        (state.overlap.limit != defaults.limit).then_some(state.overlap.limit),
        (state.overlap.max_open != defaults.max_open).then_some(state.overlap.max_open),
        state.expiry.as_ref().map(serde_json::to_string).transpose()?,
        ties,
    ])?;
    Ok(())
}

/// Moves a schedule on; what a fire does not change stays.
pub(crate) const ADVANCE_SCHEDULE: &str = "UPDATE schedules SET version = ?2, due_at = ?3, nominal = ?4, \
     fired = ?5, replay = ?6, numbered = ?7 WHERE job = ?1";

pub(crate) fn advance_schedule(update: &mut Statement<'_>, next: &ScheduleState) -> Result<(), Fault> {
    update.execute(params![
        next.job.as_bytes(),
        next.version,
        next.due_at.map(Timestamp::as_micros),
        nominal_column(next),
        next.fired,
        replay_column(next)?,
        numbered_column(next),
    ])?;
    Ok(())
}

fn nominal_column(state: &ScheduleState) -> Option<i64> {
    let is_implied = state.replay.is_none() && state.nominal == state.due_at;
    state.nominal.filter(|_| !is_implied).map(Timestamp::as_micros)
}

fn replay_column(state: &ScheduleState) -> Result<Option<String>, Fault> {
    Ok(state.replay.as_ref().map(serde_json::to_string).transpose()?)
}

fn numbered_column(state: &ScheduleState) -> Option<u32> {
    (state.numbered != state.fired).then_some(state.numbered)
}
