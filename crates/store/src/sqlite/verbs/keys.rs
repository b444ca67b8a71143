//! The keys that users give to jobs. A key that is not unique any more, because its job has finished, is found out
//! when it is wanted again: finishing a job costs nothing for having one.

use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{job_id, key_kind, one};
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::JobId;
use punctual_core::job::Job;
use rusqlite::{Connection, params};

const HOLDER: &str = "SELECT job FROM job_keys WHERE owner = ?1 AND kind = ?2 AND key = ?3";
pub(crate) const IS_UNFINISHED: &str =
    "SELECT 1 FROM schedules WHERE job = ?1 UNION ALL SELECT 1 FROM live WHERE job = ?1 LIMIT 1";

/// Whether a new job may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It has no keys.
    Plain,
    /// It may have its keys.
    Keyed,
    AlreadyThere,
    Existing(JobId),
    KeyTaken(JobId),
}

pub(super) fn admit(conn: &Connection, job: &Job) -> Result<Admission, Fault> {
    let settings = &job.spec.settings;
    let is_keyed = settings.idempotency_key.is_some() || settings.unique_key.is_some();
    if !is_keyed && settings.depends_on.is_empty() {
        return Ok(Admission::Plain);
    }
    // A repeated submit of this very job must not be taken for another one with its key, nor be refused because a
    // job that it depends on has gone since.
    if conn.prepare_cached("SELECT 1 FROM jobs WHERE id = ?1")?.exists([job.id.as_bytes()])? {
        return Ok(Admission::AlreadyThere);
    }
    if let Some(key) = &settings.idempotency_key
        && let Some(holder) = holder(conn, &job.spec.owner, key_kind::IDEMPOTENCY, key)?
    {
        return Ok(Admission::Existing(holder));
    }
    Ok(match rival(conn, job)? {
        Some(rival) => Admission::KeyTaken(rival),
        None => Admission::Keyed,
    })
}

/// Another unfinished job of the owner that has this one's unique key.
pub(super) fn rival(conn: &Connection, job: &Job) -> Result<Option<JobId>, Fault> {
    let Some(key) = &job.spec.settings.unique_key else { return Ok(None) };
    let holder = holder(conn, &job.spec.owner, key_kind::UNIQUE, key)?.filter(|holder| *holder != job.id);
    match holder {
        Some(holder) if is_unfinished(conn, holder)? && !planted(Defect::AdmitSecondHolder) => {
            Ok(Some(holder))
        }
        _ => Ok(None),
    }
}

/// Notes the job's keys; a finished job's unique key is taken over.
pub(super) fn hold(conn: &Connection, job: &Job) -> Result<(), Fault> {
    let settings = &job.spec.settings;
    let mut put =
        conn.prepare_cached("REPLACE INTO job_keys (owner, kind, key, job) VALUES (?1, ?2, ?3, ?4)")?;
    for (kind, key) in
        [(key_kind::IDEMPOTENCY, &settings.idempotency_key), (key_kind::UNIQUE, &settings.unique_key)]
    {
        if let Some(key) = key {
            put.execute(params![job.spec.owner, kind, key, job.id.as_bytes()])?;
        }
    }
    Ok(())
}

/// Frees all keys that the job still has.
pub(super) fn free(conn: &Connection, job: JobId) -> Result<(), Fault> {
    conn.prepare_cached("DELETE FROM job_keys WHERE job = ?1")?.execute([job.as_bytes()])?;
    Ok(())
}

/// Whether something of the job is open or still to come.
pub(super) fn is_unfinished(conn: &Connection, job: JobId) -> Result<bool, Fault> {
    Ok(conn.prepare_cached(IS_UNFINISHED)?.exists([job.as_bytes()])?)
}

fn holder(conn: &Connection, owner: &str, kind: i64, key: &str) -> Result<Option<JobId>, Fault> {
    one(&mut *conn.prepare_cached(HOLDER)?, params![owner, kind, key], |row| job_id(row, 0))
}
