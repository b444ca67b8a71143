//! The wide rows of jobs.

use super::{decode, job_id, priority, text_or_none, time, time_or_none};
use crate::codes::{Code, SettingsColumns, fired_column, owner_column, read_owner};
use crate::fault::Fault;
use crate::rows::JobFacts;
use punctual_core::job::{Job, JobSpec, Settings};
use punctual_core::ports::Lane;
use rusqlite::{Row, Statement, params};

pub(crate) const INSERT_JOB: &str = "INSERT INTO jobs (id, lane, mark, version, priority, schedule_type, execute_at, created_at, updated_at, \
     owner, name, settings, payload, numbered, fired) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) ON CONFLICT (id) DO NOTHING";
/// Writes an existing job, with the parameters of [`INSERT_JOB`].
pub(crate) const UPDATE_JOB: &str = "UPDATE jobs SET lane = ?2, mark = ?3, version = ?4, priority = ?5, schedule_type = ?6, execute_at = ?7, \
     created_at = ?8, updated_at = ?9, owner = ?10, name = ?11, settings = ?12, payload = ?13, numbered = ?14, fired = ?15 \
     WHERE id = ?1";

/// Writes a job with [`INSERT_JOB`], unless its id exists already, or with [`UPDATE_JOB`]. Returns whether
/// it did.
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

/// The consecutive columns that [`read_settings`] expects.
macro_rules! settings_columns {
    () => {
        "jobs.schedule_type, jobs.execute_at, jobs.settings"
    };
}
pub(crate) use settings_columns;

pub(crate) fn read_settings(row: &Row<'_>, first: usize) -> Result<Settings, Fault> {
    SettingsColumns::read(row.get(first)?, row.get(first + 1)?, text_or_none(row, first + 2)?)
}

/// The consecutive columns that [`read_facts`] expects.
macro_rules! job_facts_columns {
    () => {
        concat!("jobs.name, jobs.payload, jobs.version, ", settings_columns!())
    };
}
pub(crate) use job_facts_columns;

pub(crate) fn read_facts(row: &Row<'_>, first: usize, lane: &Lane) -> Result<JobFacts, Fault> {
    let name: Option<String> = row.get(first)?;
    Ok(JobFacts {
        name: name.unwrap_or_else(|| lane.job_type().to_owned()),
        payload: row.get(first + 1)?,
        version: row.get(first + 2)?,
        settings: read_settings(row, first + 3)?,
    })
}

/// The columns of `jobs` in the order in which [`StoredJob::read`] expects them.
macro_rules! job_columns {
    () => {
        "jobs.id, jobs.lane, jobs.mark, jobs.version, jobs.priority, jobs.schedule_type, jobs.execute_at, \
         jobs.settings, jobs.created_at, jobs.updated_at, jobs.owner, jobs.name, jobs.payload, jobs.numbered, jobs.fired"
    };
}
pub(crate) use job_columns;

/// A job row whose lane name is not resolved yet.
pub(crate) struct StoredJob {
    job: Job,
    name: Option<String>,
    pub lane: i64,
}

impl StoredJob {
    pub fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let created_at = time(row, 8)?;
        let spec = JobSpec {
            name: String::new(),
            job_type: String::new(),
            queue: String::new(),
            owner: read_owner(row.get(10)?),
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
        Ok(StoredJob { job, name: row.get(11)?, lane: row.get(1)? })
    }

    pub fn named(self, lane: &Lane) -> Job {
        let mut job = self.job;
        job.spec.name = self.name.unwrap_or_else(|| lane.job_type().to_owned());
        job.spec.queue = lane.queue().to_owned();
        job.spec.job_type = lane.job_type().to_owned();
        job
    }
}
