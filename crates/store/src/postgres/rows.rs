//! Conversion between rows and core's types, for reads and writes. It knows columns, not rules.
//!
//! Occurrence numbers, times, lanes and sessions are `bigint`; versions, attempts and epochs are `integer`;
//! enums and bits are `smallint`. Values that no correct caller reaches saturate when they are written.

use crate::codes::{
    Code, ScheduleColumns, SettingsColumns, StateColumns, read_limiter, read_live_ties, read_owner,
};
use crate::fault::Fault;
use crate::rows::{JobFacts, JobRow, LiveRow, ScheduleRow};
use punctual_core::ids::{Epoch, ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::job::{Job, JobSpec, Priority, Settings};
use punctual_core::occurrence::{Finished, Live};
use punctual_core::ports::{DeadLetter, Lane};
use punctual_core::schedule::ScheduleState;
use punctual_core::time::Timestamp;
use std::borrow::Cow;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

/// A column of the type in the schema.
pub(crate) fn get<'row, T: FromSql<'row>>(row: &'row Row, column: usize) -> Result<T, Fault> {
    row.try_get(column).map_err(|error| {
        let name = row.columns().get(column).map_or("a column", |column| column.name());
        Fault::damaged(name.to_owned(), format!("a value ({error})"))
    })
}

/// A `smallint`.
pub(crate) fn small(row: &Row, column: usize) -> Result<i64, Fault> {
    Ok(i64::from(get::<i16>(row, column)?))
}

/// A `smallint` of bits.
pub(crate) fn bits(row: &Row, column: usize, what: &'static str) -> Result<u8, Fault> {
    let value: i16 = get(row, column)?;
    u8::try_from(value).map_err(|_| Fault::damaged(what, value))
}

/// A `bigint` counter.
pub(crate) fn count(row: &Row, column: usize, what: &'static str) -> Result<u64, Fault> {
    let value: i64 = get(row, column)?;
    u64::try_from(value).map_err(|_| Fault::damaged(what, value))
}

/// A `bigint` that holds an occurrence number or similar.
pub(crate) fn number(row: &Row, column: usize, what: &'static str) -> Result<u32, Fault> {
    let value: i64 = get(row, column)?;
    u32::try_from(value).map_err(|_| Fault::damaged(what, value))
}

pub(crate) fn number_or_none(row: &Row, column: usize, what: &'static str) -> Result<Option<u32>, Fault> {
    let value: Option<i64> = get(row, column)?;
    value.map(|value| u32::try_from(value).map_err(|_| Fault::damaged(what, value))).transpose()
}

/// An `integer` that holds a version, an attempt or an epoch.
pub(crate) fn version(row: &Row, column: usize, what: &'static str) -> Result<u32, Fault> {
    let value: i32 = get(row, column)?;
    u32::try_from(value).map_err(|_| Fault::damaged(what, value))
}

pub(crate) fn time(row: &Row, column: usize) -> Result<Timestamp, Fault> {
    Ok(Timestamp::from_micros(get(row, column)?))
}

pub(crate) fn time_or_none(row: &Row, column: usize) -> Result<Option<Timestamp>, Fault> {
    Ok(get::<Option<i64>>(row, column)?.map(Timestamp::from_micros))
}

pub(crate) fn job_id(row: &Row, column: usize) -> Result<JobId, Fault> {
    Ok(JobId::from_bytes(get::<Uuid>(row, column)?.into_bytes()))
}

/// The job and number of an occurrence, in consecutive columns.
pub(crate) fn occurrence_id(row: &Row, first: usize) -> Result<OccurrenceId, Fault> {
    Ok(job_id(row, first)?.occurrence(number(row, first + 1, "occurrence")?))
}

/// Job, number and attempt of an execution, in consecutive columns.
pub(crate) fn execution_id(row: &Row, first: usize) -> Result<ExecutionId, Fault> {
    Ok(occurrence_id(row, first)?.attempt(version(row, first + 2, "attempt")?))
}

pub(crate) fn decode<T: Code>(row: &Row, column: usize, what: &'static str) -> Result<T, Fault> {
    T::read(small(row, column)?, what)
}

pub(crate) fn decode_or_none<T: Code>(
    row: &Row,
    column: usize,
    what: &'static str,
) -> Result<Option<T>, Fault> {
    let code: Option<i16> = get(row, column)?;
    code.map(|code| T::read(i64::from(code), what)).transpose()
}

fn priority(row: &Row, column: usize) -> Result<Priority, Fault> {
    let bits = bits(row, column, "priority")?;
    Priority::new(bits).ok_or_else(|| Fault::damaged("priority", bits))
}

/// A job's id as a parameter.
pub(crate) fn uuid(job: JobId) -> Uuid {
    Uuid::from_bytes(*job.as_bytes())
}

/// A counter as a `bigint`.
pub(crate) fn counter(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A limit as an SQL parameter.
pub(crate) fn limit(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A version, an attempt or an epoch as an `integer`.
pub(crate) fn integer(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// A text that PostgreSQL accepts: it cannot store NUL, which handlers may write.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{FFFD}")) } else { Cow::Borrowed(text) }
}

/// An enum as a `smallint`.
pub(crate) fn code(value: impl Code) -> i16 {
    i16::try_from(value.code()).unwrap_or(i16::MAX)
}

/// The consecutive columns that [`read_settings`] expects.
macro_rules! settings_columns {
    () => {
        "jobs.schedule_type, jobs.execute_at, jobs.settings"
    };
}
pub(crate) use settings_columns;

pub(crate) fn read_settings(row: &Row, first: usize) -> Result<Settings, Fault> {
    SettingsColumns::read(small(row, first)?, get(row, first + 1)?, get(row, first + 2)?)
}

/// The columns of `jobs` in the order in which [`read_job`] expects them, without the payload, which is the
/// last.
macro_rules! job_columns_but_payload {
    () => {
        "jobs.id, jobs.lane, jobs.mark, jobs.version, jobs.priority, jobs.schedule_type, jobs.execute_at, \
         jobs.settings, jobs.created_at, jobs.updated_at, jobs.owner, jobs.name, jobs.numbered, jobs.fired"
    };
}
pub(crate) use job_columns_but_payload;

/// The columns of `jobs` in the order in which [`read_job`] expects them.
macro_rules! job_columns {
    () => {
        concat!($crate::postgres::rows::job_columns_but_payload!(), ", jobs.payload")
    };
}
pub(crate) use job_columns;

/// The number of columns in [`job_columns`].
pub(crate) const JOB_COLUMNS: usize = 15;

/// A job whose lane name is not resolved yet.
#[derive(Debug)]
pub(crate) struct UnnamedJob {
    job: Job,
    name: Option<String>,
    pub lane: i64,
}

impl UnnamedJob {
    pub fn named(self, lane: &Lane) -> JobRow {
        let mut job = self.job;
        job.spec.name = self.name.unwrap_or_else(|| lane.job_type().to_owned());
        job.spec.queue = lane.queue().to_owned();
        job.spec.job_type = lane.job_type().to_owned();
        JobRow { job, lane: self.lane }
    }
}

pub(crate) fn read_job(row: &Row, first: usize) -> Result<UnnamedJob, Fault> {
    let created_at = time(row, first + 8)?;
    let spec = JobSpec {
        name: String::new(),
        job_type: String::new(),
        queue: String::new(),
        owner: read_owner(get(row, first + 10)?),
        priority: priority(row, first + 4)?,
        payload: get(row, first + 14)?,
        settings: read_settings(row, first + 5)?,
    };
    let job = Job {
        id: job_id(row, first)?,
        version: version(row, first + 3, "jobs.version")?,
        mark: decode(row, first + 2, "jobs.mark")?,
        numbered: number_or_none(row, first + 12, "jobs.numbered")?,
        fired: number_or_none(row, first + 13, "jobs.fired")?.unwrap_or(0),
        created_at,
        updated_at: time_or_none(row, first + 9)?.unwrap_or(created_at),
        spec,
    };
    Ok(UnnamedJob { job, name: get(row, first + 11)?, lane: get(row, first + 1)? })
}

/// The consecutive columns that [`read_facts`] expects.
macro_rules! fact_columns {
    () => {
        "jobs.name, jobs.payload, jobs.version, jobs.schedule_type, jobs.execute_at, jobs.settings"
    };
}
pub(crate) use fact_columns;

/// The job's data that an assignment contains; a job without a name has the name of its type.
pub(crate) fn read_facts(row: &Row, first: usize, lane: &Lane) -> Result<JobFacts, Fault> {
    Ok(JobFacts {
        name: get::<Option<String>>(row, first)?.unwrap_or_else(|| lane.job_type().to_owned()),
        payload: get(row, first + 1)?,
        version: version(row, first + 2, "jobs.version")?,
        settings: read_settings(row, first + 3)?,
    })
}

/// The columns of `live` in the order in which [`read_live`] expects them.
macro_rules! live_columns {
    () => {
        "live.job, live.occurrence, live.lane, live.state, live.gates, live.rank, live.priority, \
         live.available_at, live.scheduled_time, live.origin, live.job_version, live.attempt, live.charged, \
         live.epoch, live.session, live.claimed_at, live.cancel_requested, live.expires_at, live.ties, \
         live.limiter, live.line"
    };
}
pub(crate) use live_columns;

/// The number of columns in [`live_columns`].
pub(crate) const LIVE_COLUMNS: usize = 21;

pub(crate) fn read_live(row: &Row, first: usize) -> Result<LiveRow, Fault> {
    let (ties, is_sole) = read_live_ties(bits(row, first + 18, "live.ties")?)?;
    let state = StateColumns {
        state: small(row, first + 3)?,
        gates: bits(row, first + 4, "live.gates")?,
        session: get(row, first + 14)?,
        claimed_at: get(row, first + 15)?,
        cancel_requested: get(row, first + 16)?,
    };
    let live = Live {
        id: occurrence_id(row, first)?,
        state: state.read()?,
        rank: get(row, first + 5)?,
        priority: priority(row, first + 6)?,
        available_at: time(row, first + 7)?,
        scheduled_time: time(row, first + 8)?,
        origin: decode(row, first + 9, "live.origin")?,
        job_version: version(row, first + 10, "live.job_version")?,
        attempt: version(row, first + 11, "live.attempt")?,
        charged: version(row, first + 12, "live.charged")?,
        epoch: Epoch(version(row, first + 13, "live.epoch")?),
        expires_at: time_or_none(row, first + 17)?,
        ties,
        limiter: read_limiter(get(row, first + 19)?)?,
        line: read_limiter(get(row, first + 20)?)?,
    };
    Ok(LiveRow { live, lane: get(row, first + 2)?, is_sole })
}

/// The columns of `schedules` in the order in which [`read_schedule`] expects them.
macro_rules! schedule_columns {
    () => {
        "schedules.job, schedules.version, schedules.due_at, schedules.nominal, schedules.fired, \
         schedules.job_version, schedules.lane, schedules.priority, schedules.overlap, schedules.owner, \
         schedules.schedule, schedules.replay, schedules.numbered, schedules.overlap_limit, schedules.max_open, \
         schedules.expiry, schedules.ties"
    };
}
pub(crate) use schedule_columns;

/// A schedule whose lane name is not resolved yet.
#[derive(Debug)]
pub(crate) struct UnnamedSchedule {
    state: ScheduleState,
    pub lane: i64,
}

impl UnnamedSchedule {
    pub fn named(self, lane: &Lane) -> ScheduleRow {
        let (queue, job_type) = (lane.queue().to_owned(), lane.job_type().to_owned());
        ScheduleRow { state: ScheduleState { queue, job_type, ..self.state }, lane: self.lane }
    }
}

pub(crate) fn read_schedule(row: &Row, first: usize) -> Result<UnnamedSchedule, Fault> {
    let text = |column| -> Result<_, Fault> { Ok(get::<Option<&str>>(row, first + column)?.map(Into::into)) };
    let columns = ScheduleColumns {
        nominal: get(row, first + 3)?,
        schedule: text(10)?,
        replay: text(11)?,
        numbered: number_or_none(row, first + 12, "schedules.numbered")?,
        overlap_limit: number_or_none(row, first + 13, "schedules.overlap_limit")?,
        max_open: number_or_none(row, first + 14, "schedules.max_open")?,
        expiry: text(15)?,
        ties: bits(row, first + 16, "schedules.ties")?,
    };
    let due_at = time_or_none(row, first + 2)?;
    let fired = number(row, first + 4, "schedules.fired")?;
    let parts = columns.read(due_at, fired, decode(row, first + 8, "schedules.overlap")?)?;
    let state = ScheduleState {
        job: job_id(row, first)?,
        version: version(row, first + 1, "schedules.version")?,
        nominal: parts.nominal,
        due_at,
        replay: parts.replay,
        fired,
        numbered: parts.numbered,
        job_version: version(row, first + 5, "schedules.job_version")?,
        queue: String::new(),
        job_type: String::new(),
        owner: read_owner(get(row, first + 9)?),
        priority: priority(row, first + 7)?,
        overlap: parts.overlap,
        expiry: parts.expiry,
        depends: parts.depends,
        awaited: parts.awaited,
        schedule: parts.schedule,
    };
    Ok(UnnamedSchedule { state, lane: get(row, first + 6)? })
}

/// The columns of `history` and the worker's name, in the order in which [`read_finished`] expects them.
macro_rules! history_columns {
    () => {
        "history.job, history.occurrence, history.attempt, history.epoch, history.status, history.origin, \
         history.job_version, history.scheduled_time, history.available_at, history.started_at, \
         history.completed_at, history.session, workers.name, history.error, history.result, history.reason"
    };
}
pub(crate) use history_columns;

/// The number of columns in [`history_columns`].
pub(crate) const HISTORY_COLUMNS: usize = 16;

pub(crate) fn read_finished(row: &Row, first: usize) -> Result<Finished, Fault> {
    Ok(Finished {
        id: execution_id(row, first)?,
        epoch: Epoch(version(row, first + 3, "history.epoch")?),
        status: decode(row, first + 4, "history.status")?,
        origin: decode(row, first + 5, "history.origin")?,
        job_version: version(row, first + 6, "history.job_version")?,
        scheduled_time: time(row, first + 7)?,
        available_at: time(row, first + 8)?,
        started_at: time_or_none(row, first + 9)?,
        completed_at: time(row, first + 10)?,
        session: get::<Option<i64>>(row, first + 11)?.map(SessionId),
        worker: get(row, first + 12)?,
        error: get(row, first + 13)?,
        result: get(row, first + 14)?,
        reason: decode_or_none(row, first + 15, "history.reason")?,
    })
}

/// The columns of `dead_letters` and of its job, in the order in which [`read_dead_letter`] expects them.
macro_rules! dead_letter_columns {
    () => {
        "dead_letters.number, dead_letters.job, dead_letters.occurrence, dead_letters.attempts, \
         dead_letters.epoch, dead_letters.scheduled_time, dead_letters.origin, dead_letters.died_at, \
         dead_letters.error, dead_letters.noted, jobs.name, jobs.lane"
    };
}
pub(crate) use dead_letter_columns;

/// The number of columns in [`dead_letter_columns`]; the last is the number of the job's lane.
pub(crate) const DEAD_LETTER_COLUMNS: usize = 12;

pub(crate) fn read_dead_letter(row: &Row, first: usize, lane: &Lane) -> Result<DeadLetter, Fault> {
    Ok(DeadLetter {
        number: count(row, first, "dead_letters.number")?,
        occurrence: occurrence_id(row, first + 1)?,
        job_name: get::<Option<String>>(row, first + 10)?.unwrap_or_else(|| lane.job_type().to_owned()),
        job_type: lane.job_type().to_owned(),
        queue: lane.queue().to_owned(),
        attempts: version(row, first + 3, "dead_letters.attempts")?,
        epoch: Epoch(version(row, first + 4, "dead_letters.epoch")?),
        scheduled_time: time(row, first + 5)?,
        origin: decode(row, first + 6, "dead_letters.origin")?,
        died_at: time(row, first + 7)?,
        error: get(row, first + 8)?,
        noted: get(row, first + 9)?,
    })
}
