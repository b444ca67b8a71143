//! The wide rows of jobs.

use super::{insert, set};
use crate::codecs::{self, UnnamedJob};
use crate::fault::Fault;
use crate::layout::{JOBS, JobColumns};
use punctual_core::job::Job;
use rusqlite::{Row, Statement, params_from_iter};
use std::sync::LazyLock;

pub(crate) static INSERT_JOB: LazyLock<String> =
    LazyLock::new(|| format!("{} ON CONFLICT (id) DO NOTHING", insert("INSERT", &JOBS)));
/// Writes an existing job, with the parameters of [`INSERT_JOB`].
pub(crate) static UPDATE_JOB: LazyLock<String> =
    LazyLock::new(|| format!("UPDATE jobs SET {} WHERE id = ?1", set(&JOBS)));

/// Writes a job with [`INSERT_JOB`], unless its id exists already, or with [`UPDATE_JOB`]. Returns whether
/// it did.
pub(crate) fn write_job(write: &mut Statement<'_>, job: &Job, lane: i64) -> Result<bool, Fault> {
    let cells = JobColumns::of_job(job, lane)?.into_cells();
    Ok(write.execute(params_from_iter(cells))? == 1)
}

pub(crate) fn read_job(row: &Row<'_>) -> Result<UnnamedJob, Fault> {
    codecs::read_job(row, 0)
}
