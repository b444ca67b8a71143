//! Rows and what they mean: the integers that stand for enums, and the ways from a row to core's types and
//! back. It knows columns, not rules.

use super::fault::Fault;
use punctual_core::gates::Gates;
use punctual_core::ids::{Epoch, JobId, SessionId};
use punctual_core::job::{DEFAULT_OWNER, Job, JobMark, JobSpec, Priority, Settings};
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{Finished, Lease, Live, LiveState, Origin};
use punctual_core::ports::{Lane, LogStream, Role};
use punctual_core::schedule::{OverlapPolicy, Schedule, ScheduleState, SkipReason};
use punctual_core::time::Timestamp;
use rusqlite::{Params, Row, Statement, params};
use std::borrow::Cow;

/// An enum that a column holds as a small integer. The numbers are part of the file format.
pub(crate) trait Code: Sized {
    fn code(self) -> i64;
    fn from_code(code: i64) -> Option<Self>;
}

macro_rules! codes {
    ($($enum:ty { $($variant:ident = $code:literal),* })*) => {$(
        impl Code for $enum {
            fn code(self) -> i64 {
                match self { $(Self::$variant => $code),* }
            }

            fn from_code(code: i64) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }
    )*};
}

codes! {
    JobMark { Active = 0, Paused = 1, Failed = 2, Cancelled = 3 }
    Status { Succeeded = 0, Failed = 1, TimedOut = 2, Cancelled = 3, Lost = 4, Skipped = 5, Expired = 6 }
    Origin { Schedule = 0, Trigger = 1, Backfill = 2 }
    OverlapPolicy { Skip = 0, Allow = 1 }
    SkipReason { Overlap = 0, Misfire = 1, Paused = 2, Calendar = 3, Dependency = 4, Backlog = 5 }
    LogStream { Stdout = 0, Stderr = 1, Log = 2 }
    Role { Viewer = 0, Submitter = 1, Operator = 2, Admin = 3 }
}

/// `live.state`; the partial indexes name these numbers.
pub(crate) mod state {
    pub const WAITING: i64 = 0;
    pub const QUEUED: i64 = 1;
    pub const RUNNING: i64 = 2;
}

/// `jobs.schedule_type`.
mod schedule_type {
    pub const IMMEDIATE: i64 = 0;
    pub const ONE_TIME: i64 = 1;
    pub const RECURRING: i64 = 2;
}

/// The first row of a query, if it has one.
pub(crate) fn one<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    let mut rows = statement.query(params)?;
    rows.next()?.map(read).transpose()
}

/// All rows of a query that is bounded by its own limit.
pub(crate) fn all<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    mut read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut rows = statement.query(params)?;
    let mut items = Vec::new();
    while let Some(row) = rows.next()? {
        items.push(read(row)?);
    }
    Ok(items)
}

/// A counter as a column holds it; one that no honest caller reaches saturates.
pub(crate) fn counter(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A limit as SQL takes it.
pub(crate) fn limit(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn count(row: &Row<'_>, column: usize, what: &'static str) -> Result<u64, Fault> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| Fault::damaged(what, value))
}

pub(crate) fn time(row: &Row<'_>, column: usize) -> Result<Timestamp, Fault> {
    Ok(Timestamp::from_micros(row.get(column)?))
}

pub(crate) fn time_or_none(row: &Row<'_>, column: usize) -> Result<Option<Timestamp>, Fault> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_micros))
}

pub(crate) fn job_id(row: &Row<'_>, column: usize) -> Result<JobId, Fault> {
    Ok(JobId::from_bytes(row.get(column)?))
}

pub(crate) fn decode<T: Code>(row: &Row<'_>, column: usize, what: &'static str) -> Result<T, Fault> {
    let code: i64 = row.get(column)?;
    T::from_code(code).ok_or_else(|| Fault::damaged(what, code))
}

fn priority(row: &Row<'_>, column: usize) -> Result<Priority, Fault> {
    let number: u8 = row.get(column)?;
    Priority::new(number).ok_or_else(|| Fault::damaged("priority", number))
}

/// A live row beside the number of its lane.
#[derive(Debug, Clone)]
pub(crate) struct LiveRow {
    pub live: Live,
    pub lane: i64,
}

/// The columns of `live` in the order in which [`LiveRow::read`] expects them first in a row.
macro_rules! live_columns {
    () => {
        "live.job, live.occurrence, live.lane, live.state, live.gates, live.rank, live.priority, \
         live.available_at, live.scheduled_time, live.origin, live.job_version, live.attempt, live.charged, \
         live.epoch, live.session, live.claimed_at, live.cancel_requested"
    };
}
pub(crate) use live_columns;

/// How many columns [`live_columns`] names: the index of the next one.
pub(crate) const LIVE_COLUMNS: usize = 17;

impl LiveRow {
    pub fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let live = Live {
            id: job_id(row, 0)?.occurrence(row.get(1)?),
            state: read_state(row)?,
            rank: row.get(5)?,
            priority: priority(row, 6)?,
            available_at: time(row, 7)?,
            scheduled_time: time(row, 8)?,
            origin: decode(row, 9, "live.origin")?,
            job_version: row.get(10)?,
            attempt: row.get(11)?,
            charged: row.get(12)?,
            epoch: Epoch(row.get(13)?),
        };
        Ok(LiveRow { live, lane: row.get(2)? })
    }
}

fn read_state(row: &Row<'_>) -> Result<LiveState, Fault> {
    match row.get(3)? {
        state::WAITING => {
            let bits: u8 = row.get(4)?;
            let gates = Gates::from_bits(bits).filter(|gates| !gates.is_empty());
            gates.map(LiveState::Waiting).ok_or_else(|| Fault::damaged("live.gates", bits))
        }
        state::QUEUED => Ok(LiveState::Queued),
        state::RUNNING => Ok(LiveState::Running(Lease {
            session: SessionId(row.get(14)?),
            claimed_at: time(row, 15)?,
            cancel_requested: row.get(16)?,
        })),
        other => Err(Fault::damaged("live.state", other)),
    }
}

/// A live state spread over its columns.
struct StateColumns {
    state: i64,
    gates: u8,
    session: Option<i64>,
    claimed_at: Option<i64>,
    cancel_requested: bool,
}

impl StateColumns {
    fn of(live: &Live) -> Self {
        let open = StateColumns {
            state: state::QUEUED,
            gates: 0,
            session: None,
            claimed_at: None,
            cancel_requested: false,
        };
        match live.state {
            LiveState::Waiting(gates) => StateColumns { state: state::WAITING, gates: gates.bits(), ..open },
            LiveState::Queued => open,
            LiveState::Running(lease) => StateColumns {
                state: state::RUNNING,
                session: Some(lease.session.0),
                claimed_at: Some(lease.claimed_at.as_micros()),
                cancel_requested: lease.cancel_requested,
                ..open
            },
        }
    }
}

pub(crate) const INSERT_LIVE: &str = "INSERT INTO live (job, occurrence, segment, lane, state, gates, rank, priority, available_at, \
     scheduled_time, origin, job_version, attempt, charged, epoch, session, claimed_at, cancel_requested) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";

pub(crate) fn insert_live(insert: &mut Statement<'_>, live: &Live, lane: i64) -> Result<(), Fault> {
    let columns = StateColumns::of(live);
    insert.execute(params![
        live.id.job.as_bytes(),
        live.id.number,
        live.id.job.segment().index(),
        lane,
        columns.state,
        columns.gates,
        live.rank,
        live.priority.get(),
        live.available_at.as_micros(),
        live.scheduled_time.as_micros(),
        live.origin.code(),
        live.job_version,
        live.attempt,
        live.charged,
        live.epoch.0,
        columns.session,
        columns.claimed_at,
        columns.cancel_requested,
    ])?;
    Ok(())
}

/// Writes all of a live row that can change while its occurrence is open.
pub(crate) const UPDATE_LIVE: &str = "UPDATE live SET state = ?3, gates = ?4, rank = ?5, available_at = ?6, \
     attempt = ?7, charged = ?8, epoch = ?9, session = ?10, claimed_at = ?11, cancel_requested = ?12 \
     WHERE job = ?1 AND occurrence = ?2";

pub(crate) fn update_live(update: &mut Statement<'_>, live: &Live) -> Result<(), Fault> {
    let columns = StateColumns::of(live);
    update.execute(params![
        live.id.job.as_bytes(),
        live.id.number,
        columns.state,
        columns.gates,
        live.rank,
        live.available_at.as_micros(),
        live.attempt,
        live.charged,
        live.epoch.0,
        columns.session,
        columns.claimed_at,
        columns.cancel_requested,
    ])?;
    Ok(())
}

/// A schedule row whose lane has not been named yet.
pub(crate) struct ScheduleRow {
    state: ScheduleState,
    pub lane: i64,
}

macro_rules! schedule_columns {
    () => {
        "job, version, due_at, nominal, fired, job_version, lane, priority, overlap, owner, schedule"
    };
}
pub(crate) use schedule_columns;

impl ScheduleRow {
    pub fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let due_at = time(row, 2)?;
        let nominal = time_or_none(row, 3)?.unwrap_or(due_at);
        let schedule = match row.get_ref(10)?.as_str_or_null().map_err(rusqlite::Error::from)? {
            None => Schedule::OneTime { at: nominal },
            Some(text) => serde_json::from_str(text)?,
        };
        let state = ScheduleState {
            job: job_id(row, 0)?,
            version: row.get(1)?,
            nominal,
            due_at,
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
     overlap, owner, schedule) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

pub(crate) fn insert_schedule(
    insert: &mut Statement<'_>,
    state: &ScheduleState,
    lane: i64,
) -> Result<(), Fault> {
    let schedule = match state.schedule {
        Schedule::OneTime { at } if at == state.nominal => None,
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
    ])?;
    Ok(())
}

/// Moves a schedule on; what a fire does not change stays.
pub(crate) const ADVANCE_SCHEDULE: &str =
    "UPDATE schedules SET version = ?2, due_at = ?3, nominal = ?4, fired = ?5 WHERE job = ?1";

pub(crate) fn advance_schedule(update: &mut Statement<'_>, next: &ScheduleState) -> Result<(), Fault> {
    update.execute(params![
        next.job.as_bytes(),
        next.version,
        next.due_at.as_micros(),
        nominal_column(next),
        next.fired
    ])?;
    Ok(())
}

fn nominal_column(state: &ScheduleState) -> Option<i64> {
    (state.nominal != state.due_at).then_some(state.nominal.as_micros())
}

fn owner_column(owner: &str) -> Option<&str> {
    (owner != DEFAULT_OWNER).then_some(owner)
}

fn owner(row: &Row<'_>, column: usize) -> Result<String, Fault> {
    Ok(row.get::<_, Option<String>>(column)?.unwrap_or_else(|| DEFAULT_OWNER.to_owned()))
}

pub(crate) const INSERT_JOB: &str = "INSERT INTO jobs (id, lane, mark, version, priority, schedule_type, execute_at, created_at, updated_at, \
     owner, name, settings, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
     ON CONFLICT (id) DO NOTHING";

/// Inserts a job unless its id is there already; says whether it did.
pub(crate) fn insert_job(insert: &mut Statement<'_>, job: &Job, lane: i64) -> Result<bool, Fault> {
    let spec = &job.spec;
    let settings = SettingsColumns::of(&spec.settings)?;
    let inserted = insert.execute(params![
        job.id.as_bytes(),
        lane,
        job.mark.code(),
        job.version,
        spec.priority.get(),
        settings.schedule_type,
        settings.execute_at,
        job.created_at.as_micros(),
        (job.updated_at != job.created_at).then_some(job.updated_at.as_micros()),
        owner_column(&spec.owner),
        (spec.name != spec.job_type).then_some(&spec.name),
        settings.document,
        spec.payload,
    ])?;
    Ok(inserted == 1)
}

/// A job's settings spread over their columns. The time of a one-time job has its own, so that the most common
/// jobs need no document at all.
struct SettingsColumns {
    schedule_type: i64,
    execute_at: Option<i64>,
    document: Option<String>,
}

impl SettingsColumns {
    fn of(settings: &Settings) -> Result<Self, Fault> {
        let (schedule_type, execute_at, rest) = match settings.schedule {
            Schedule::Immediate => (schedule_type::IMMEDIATE, None, Cow::Borrowed(settings)),
            Schedule::OneTime { at } => {
                let rest = Settings { schedule: Schedule::Immediate, ..settings.clone() };
                (schedule_type::ONE_TIME, Some(at.as_micros()), Cow::Owned(rest))
            }
            Schedule::Interval { .. } => (schedule_type::RECURRING, None, Cow::Borrowed(settings)),
        };
        let is_default = *rest == Settings::default();
        let document = (!is_default).then(|| serde_json::to_string(&*rest)).transpose()?;
        Ok(SettingsColumns { schedule_type, execute_at, document })
    }
}

/// The columns that [`read_settings`] expects one after the other.
macro_rules! settings_columns {
    () => {
        "jobs.schedule_type, jobs.execute_at, jobs.settings"
    };
}
pub(crate) use settings_columns;

pub(crate) fn read_settings(row: &Row<'_>, first: usize) -> Result<Settings, Fault> {
    let mut settings: Settings =
        match row.get_ref(first + 2)?.as_str_or_null().map_err(rusqlite::Error::from)? {
            None => Settings::default(),
            Some(document) => serde_json::from_str(document)?,
        };
    if row.get::<_, i64>(first)? == schedule_type::ONE_TIME {
        settings.schedule = Schedule::OneTime { at: time(row, first + 1)? };
    }
    Ok(settings)
}

/// The columns of `jobs` in the order in which [`JobRow::read`] expects them.
macro_rules! job_columns {
    () => {
        "jobs.id, jobs.lane, jobs.mark, jobs.version, jobs.priority, jobs.schedule_type, jobs.execute_at, \
         jobs.settings, jobs.created_at, jobs.updated_at, jobs.owner, jobs.name, jobs.payload"
    };
}
pub(crate) use job_columns;

/// A job row whose lane has not been named yet.
pub(crate) struct JobRow {
    job: Job,
    name: Option<String>,
    pub lane: i64,
}

impl JobRow {
    pub fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let created_at = time(row, 8)?;
        let spec = JobSpec {
            name: String::new(),
            job_type: String::new(),
            queue: String::new(),
            owner: owner(row, 10)?,
            priority: priority(row, 4)?,
            payload: row.get(12)?,
            settings: read_settings(row, 5)?,
        };
        let job = Job {
            id: job_id(row, 0)?,
            version: row.get(3)?,
            mark: decode(row, 2, "jobs.mark")?,
            created_at,
            updated_at: time_or_none(row, 9)?.unwrap_or(created_at),
            spec,
        };
        Ok(JobRow { job, name: row.get(11)?, lane: row.get(1)? })
    }

    pub fn named(self, lane: &Lane) -> Job {
        let mut job = self.job;
        job.spec.name = self.name.unwrap_or_else(|| lane.job_type().to_owned());
        job.spec.queue = lane.queue().to_owned();
        job.spec.job_type = lane.job_type().to_owned();
        job
    }
}

pub(crate) const INSERT_HISTORY: &str = "INSERT INTO history (job, occurrence, attempt, epoch, status, origin, job_version, scheduled_time, \
     available_at, started_at, completed_at, session, worker, error, result) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";

pub(crate) fn insert_history(
    insert: &mut Statement<'_>,
    finished: &Finished,
    worker: Option<i64>,
) -> Result<(), Fault> {
    insert.execute(params![
        finished.id.occurrence.job.as_bytes(),
        finished.id.occurrence.number,
        finished.id.attempt,
        finished.epoch.0,
        finished.status.code(),
        finished.origin.code(),
        finished.job_version,
        finished.scheduled_time.as_micros(),
        finished.available_at.as_micros(),
        finished.started_at.map(Timestamp::as_micros),
        finished.completed_at.as_micros(),
        finished.session.map(|session| session.0),
        worker,
        finished.error,
        finished.result,
    ])?;
    Ok(())
}

/// The columns of `history` and the worker's name, in the order in which [`read_finished`] expects them.
macro_rules! history_columns {
    () => {
        "history.job, history.occurrence, history.attempt, history.epoch, history.status, history.origin, \
         history.job_version, history.scheduled_time, history.available_at, history.started_at, \
         history.completed_at, history.session, workers.name, history.error, history.result"
    };
}
pub(crate) use history_columns;

pub(crate) fn read_finished(row: &Row<'_>) -> Result<Finished, Fault> {
    Ok(Finished {
        id: job_id(row, 0)?.occurrence(row.get(1)?).attempt(row.get(2)?),
        epoch: Epoch(row.get(3)?),
        status: decode(row, 4, "history.status")?,
        origin: decode(row, 5, "history.origin")?,
        job_version: row.get(6)?,
        scheduled_time: time(row, 7)?,
        available_at: time(row, 8)?,
        started_at: time_or_none(row, 9)?,
        completed_at: time(row, 10)?,
        session: row.get::<_, Option<i64>>(11)?.map(SessionId),
        worker: row.get(12)?,
        error: row.get(13)?,
        result: row.get(14)?,
    })
}
