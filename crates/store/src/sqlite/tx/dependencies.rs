//! Dependencies between jobs, and finished jobs whose children are not all resolved.

use super::Tx;
use crate::fault::Fault;
use crate::sqlite::rows::{bound, job_id, up_to};
use punctual_core::ids::JobId;
use rusqlite::params;

pub(crate) const CHILDREN: &str = "SELECT child FROM dependencies WHERE parent = ?1 LIMIT ?2";
pub(crate) const HAS_PARENT: &str = "SELECT 1 FROM dependencies WHERE child = ?1";
pub(crate) const FORGET_PARENTS: &str = "DELETE FROM dependencies WHERE child = ?1";

pub(super) fn insert_dependency(tx: &mut Tx<'_>, parent: JobId, child: JobId) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("INSERT INTO dependencies (parent, child) VALUES (?1, ?2)")?
        .execute(params![parent.as_bytes(), child.as_bytes()])?;
    Ok(())
}

pub(super) fn delete_dependency(tx: &mut Tx<'_>, parent: JobId, child: JobId) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("DELETE FROM dependencies WHERE parent = ?1 AND child = ?2")?
        .execute(params![parent.as_bytes(), child.as_bytes()])?;
    Ok(())
}

pub(super) fn has_parent(tx: &mut Tx<'_>, child: JobId) -> Result<bool, Fault> {
    Ok(tx.conn.prepare_cached(HAS_PARENT)?.exists([child.as_bytes()])?)
}

pub(super) fn forget_parents(tx: &mut Tx<'_>, child: JobId) -> Result<(), Fault> {
    tx.conn.prepare_cached(FORGET_PARENTS)?.execute([child.as_bytes()])?;
    Ok(())
}

pub(super) fn children(tx: &mut Tx<'_>, parent: JobId, count: usize) -> Result<Vec<JobId>, Fault> {
    let mut select = tx.conn.prepare_cached(CHILDREN)?;
    up_to(count, &mut select, params![parent.as_bytes(), bound(count)], |row| job_id(row, 0))
}

pub(super) fn next_resolution(tx: &mut Tx<'_>) -> Result<Option<(JobId, bool)>, Fault> {
    let mut select = tx.conn.prepare_cached("SELECT parent, succeeded FROM resolutions LIMIT ?1")?;
    Ok(up_to(1, &mut select, [bound(1)], |row| Ok((job_id(row, 0)?, row.get(1)?)))?.pop())
}

pub(super) fn insert_resolution(tx: &mut Tx<'_>, parent: JobId, succeeded: bool) -> Result<(), Fault> {
    tx.conn
        .prepare_cached(
            "INSERT INTO resolutions (parent, succeeded) VALUES (?1, ?2) ON CONFLICT (parent) DO NOTHING",
        )?
        .execute(params![parent.as_bytes(), succeeded])?;
    Ok(())
}

pub(super) fn delete_resolution(tx: &mut Tx<'_>, parent: JobId) -> Result<(), Fault> {
    tx.conn.prepare_cached("DELETE FROM resolutions WHERE parent = ?1")?.execute([parent.as_bytes()])?;
    Ok(())
}
