//! Jobs by their tags. Jobs without any have no rows here, and cost none.

use crate::sqlite::fault::Fault;
use punctual_core::ids::JobId;
use rusqlite::{Connection, params};

/// Notes the tags of a new job.
pub(super) fn put(conn: &Connection, job: JobId, tags: &[String]) -> Result<(), Fault> {
    if tags.is_empty() {
        return Ok(());
    }
    let mut insert = conn.prepare_cached("INSERT OR IGNORE INTO job_tags (tag, job) VALUES (?1, ?2)")?;
    for tag in tags {
        insert.execute(params![tag, job.as_bytes()])?;
    }
    Ok(())
}

/// Notes the tags of a job that has changed.
pub(super) fn replace(conn: &Connection, job: JobId, tags: &[String]) -> Result<(), Fault> {
    forget(conn, job)?;
    put(conn, job, tags)
}

/// A job is gone.
pub(super) fn forget(conn: &Connection, job: JobId) -> Result<(), Fault> {
    conn.prepare_cached(FORGET_TAGS)?.execute([job.as_bytes()])?;
    Ok(())
}

pub(crate) const FORGET_TAGS: &str = "DELETE FROM job_tags WHERE job = ?1";
