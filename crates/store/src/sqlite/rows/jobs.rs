//! The wide rows of jobs.

use super::{Code, decode, job_id, owner, owner_column, priority, text_or_none, time, time_or_none};
use crate::sqlite::fault::Fault;
use punctual_core::job::{Job, JobSpec, Settings};
use punctual_core::ports::Lane;
use punctual_core::schedule::Schedule;
use rusqlite::{Row, Statement, params};
use std::borrow::Cow;

/// `jobs.schedule_type`.
pub(crate) mod schedule_type {
    pub const IMMEDIATE: i64 = 0;
    pub const ONE_TIME: i64 = 1;
    pub const RECURRING: i64 = 2;
}

pub(crate) const INSERT_JOB: &str = "INSERT INTO jobs (id, lane, mark, version, priority, schedule_type, execute_at, created_at, updated_at, \
     owner, name, settings, payload, numbered, fired) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) ON CONFLICT (id) DO NOTHING";
/// Writes a job whose row is there, with the parameters of [`INSERT_JOB`].
pub(crate) const UPDATE_JOB: &str = "UPDATE jobs SET lane = ?2, mark = ?3, version = ?4, priority = ?5, schedule_type = ?6, execute_at = ?7, \
     created_at = ?8, updated_at = ?9, owner = ?10, name = ?11, settings = ?12, payload = ?13, numbered = ?14, fired = ?15 \
     WHERE id = ?1";

/// Writes a job by [`INSERT_JOB`], unless its id is there already, or by [`UPDATE_JOB`]; says whether it did.
pub(crate) fn write_job(write: &mut Statement<'_>, job: &Job, lane: i64) -> Result<bool, Fault> {
    let spec = &job.spec;
    let settings = SettingsColumns::of(&spec.settings)?;
    let written = write.execute(params![
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
        job.numbered,
        fired_column(job.fired),
    ])?;
    Ok(written == 1)
}

/// `jobs.fired`, which is nothing for nearly every job.
pub(crate) fn fired_column(fired: u32) -> Option<u32> {
    (fired > 0).then_some(fired)
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
            _ => (schedule_type::RECURRING, None, Cow::Borrowed(settings)),
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
    let mut settings: Settings = match text_or_none(row, first + 2)? {
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
         jobs.settings, jobs.created_at, jobs.updated_at, jobs.owner, jobs.name, jobs.payload, jobs.numbered, jobs.fired"
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
            numbered: row.get(13)?,
            fired: row.get::<_, Option<u32>>(14)?.unwrap_or(0),
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
