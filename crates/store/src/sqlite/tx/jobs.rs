//! Jobs with their tags and keys. Jobs without tags or keys have no rows for them, and no cost.

use super::{Tx, hot_statement};
use crate::codecs::{fact_columns, read_facts, read_settings, settings_columns};
use crate::codes::{Code, fired_column};
use crate::fault::Fault;
use crate::layout::JOB_KEYS;
use crate::new_rows::key_cells;
use crate::reads::ReadKind;
use crate::row_list::row;
use crate::rows::{AssignedJob, JobKey, JobRow, JobTerms, Spent};
use crate::server::changes::TableChange;
use crate::sqlite::counters;
use crate::sqlite::reads::statements::statement;
use crate::sqlite::rows::{
    INSERT_JOB, UPDATE_JOB, decode, insert, insertion, job_id, one, one_readable, read_job, write_job,
    write_row,
};
use punctual_core::ids::JobId;
use punctual_core::job::{Job, JobStatus, StoredStatus};
use punctual_core::ports::Lane;
use rusqlite::params;
use std::sync::LazyLock;

const JOB: &str = statement(ReadKind::Jobs);
const TERMS_OF_JOB: &str = concat!("SELECT jobs.mark, ", settings_columns!(), " FROM jobs WHERE id = ?1");
const FACTS_OF_JOB: &str = concat!("SELECT ", fact_columns!(), " FROM jobs WHERE id = ?1");
pub(crate) const IS_UNFINISHED: &str =
    "SELECT 1 FROM schedules WHERE job = ?1 UNION ALL SELECT 1 FROM live WHERE job = ?1 LIMIT 1";
pub(crate) const FORGET_TAGS: &str = "DELETE FROM job_tags WHERE job = ?1";
static INSERT_TAG: LazyLock<String> = LazyLock::new(|| insertion(TableChange::InsertTags));
static HOLD_KEY: LazyLock<String> = LazyLock::new(|| insert("REPLACE", &JOB_KEYS));
const KEY_HOLDER: &str = "SELECT job FROM job_keys WHERE owner = ?1 AND kind = ?2 AND key = ?3";

pub(super) fn is_job_there(tx: &mut Tx<'_>, job: JobId) -> Result<bool, Fault> {
    Ok(tx.conn.prepare_cached("SELECT 1 FROM jobs WHERE id = ?1")?.exists([job.as_bytes()])?)
}

pub(super) fn job(tx: &mut Tx<'_>, job: JobId) -> Result<Option<JobRow>, Fault> {
    let found = one(&mut *tx.conn.prepare_cached(JOB)?, [job.as_bytes()], read_job)?;
    let Some(row) = found else { return Ok(None) };
    let lane = tx.memory.lane(tx.conn, row.lane)?;
    Ok(Some(row.named(&lane)))
}

pub(super) fn terms_of(tx: &mut Tx<'_>, job: JobId) -> Result<Option<JobTerms>, Fault> {
    one_readable(&mut *tx.conn.prepare_cached(TERMS_OF_JOB)?, [job.as_bytes()], |row| {
        Ok(JobTerms { mark: decode(row, 0, "jobs.mark")?, settings: read_settings(row, 1)? })
    })
}

pub(super) fn mark_of(tx: &mut Tx<'_>, job: JobId) -> Result<Option<StoredStatus>, Fault> {
    let mut select = tx.conn.prepare_cached("SELECT mark FROM jobs WHERE id = ?1")?;
    one_readable(&mut select, [job.as_bytes()], |row| decode(row, 0, "jobs.mark"))
}

pub(super) fn status_of(tx: &mut Tx<'_>, job: JobId) -> Result<Option<JobStatus>, Fault> {
    counters::status_of(tx.conn, job)
}

pub(super) fn facts_of(tx: &mut Tx<'_>, job: JobId, lane: &Lane) -> Result<Option<AssignedJob>, Fault> {
    one(&mut *tx.conn.prepare_cached(FACTS_OF_JOB)?, [job.as_bytes()], |row| read_facts(row, 0, lane))
}

pub(super) fn insert_job(tx: &mut Tx<'_>, job: &Job, lane: i64) -> Result<bool, Fault> {
    write_job(hot_statement(tx.conn, &mut tx.hot.insert_job, &INSERT_JOB)?, job, lane)
}

pub(super) fn update_job(tx: &mut Tx<'_>, job: &Job, lane: i64) -> Result<(), Fault> {
    write_job(&mut *tx.conn.prepare_cached(&UPDATE_JOB)?, job, lane).map(drop)
}

pub(super) fn set_mark(tx: &mut Tx<'_>, job: JobId, mark: StoredStatus) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("UPDATE jobs SET mark = ?2 WHERE id = ?1")?
        .execute(params![job.as_bytes(), mark.code()])?;
    Ok(())
}

pub(super) fn set_numbered(tx: &mut Tx<'_>, job: JobId, numbered: u32) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("UPDATE jobs SET numbered = ?2 WHERE id = ?1")?
        .execute(params![job.as_bytes(), numbered])?;
    Ok(())
}

pub(super) fn keep_spent(tx: &mut Tx<'_>, job: JobId, spent: Spent) -> Result<(), Fault> {
    let sql = "UPDATE jobs SET numbered = ?2, fired = ?3, updated_at = max(coalesce(updated_at, created_at), ?4) \
        WHERE id = ?1";
    tx.conn.prepare_cached(sql)?.execute(params![
        job.as_bytes(),
        spent.numbered,
        fired_column(spent.fired),
        spent.at.as_micros()
    ])?;
    Ok(())
}

pub(super) fn is_unfinished(tx: &mut Tx<'_>, job: JobId) -> Result<bool, Fault> {
    Ok(tx.conn.prepare_cached(IS_UNFINISHED)?.exists([job.as_bytes()])?)
}

pub(super) fn put_tags(tx: &mut Tx<'_>, job: JobId, tags: &[String]) -> Result<(), Fault> {
    tags.iter().try_for_each(|tag| write_row(tx.conn, &INSERT_TAG, &row![tag.as_str(), job]))
}

pub(super) fn forget_tags(tx: &mut Tx<'_>, job: JobId) -> Result<(), Fault> {
    tx.conn.prepare_cached(FORGET_TAGS)?.execute([job.as_bytes()])?;
    Ok(())
}

pub(super) fn key_holder(tx: &mut Tx<'_>, key: &JobKey) -> Result<Option<JobId>, Fault> {
    let mut select = tx.conn.prepare_cached(KEY_HOLDER)?;
    one(&mut select, params![key.owner, key.kind.code(), key.key], |row| job_id(row, 0))
}

pub(super) fn hold_key(tx: &mut Tx<'_>, key: &JobKey, job: JobId) -> Result<(), Fault> {
    write_row(tx.conn, &HOLD_KEY, &key_cells(key, job))
}

pub(super) fn free_keys(tx: &mut Tx<'_>, job: JobId) -> Result<(), Fault> {
    tx.conn.prepare_cached("DELETE FROM job_keys WHERE job = ?1")?.execute([job.as_bytes()])?;
    Ok(())
}
