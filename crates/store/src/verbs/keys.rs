//! The keys that users give to jobs. A key that is not unique any more, because its job has finished, is found out
//! when it is wanted again: finishing a job costs nothing for having one.

use crate::fault::Fault;
use crate::rows::{JobKey, KeyKind, Rows};
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::JobId;
use punctual_core::job::Job;

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

pub(super) fn admit<R: Rows>(rows: &mut R, job: &Job) -> Result<Admission, Fault> {
    let settings = &job.spec.settings;
    let is_keyed = settings.idempotency_key.is_some() || settings.unique_key.is_some();
    if !is_keyed && settings.depends_on.is_empty() {
        return Ok(Admission::Plain);
    }
    // A repeated submit of this very job must not be taken for another one with its key, nor be refused because a
    // job that it depends on has gone since.
    if rows.is_job_there(job.id)? {
        return Ok(Admission::AlreadyThere);
    }
    if let Some(key) = key_of(job, KeyKind::Idempotency)
        && let Some(holder) = rows.key_holder(&key)?
    {
        return Ok(Admission::Existing(holder));
    }
    Ok(match rival(rows, job)? {
        Some(rival) => Admission::KeyTaken(rival),
        None => Admission::Keyed,
    })
}

/// Another unfinished job of the owner that has this one's unique key.
pub(super) fn rival<R: Rows>(rows: &mut R, job: &Job) -> Result<Option<JobId>, Fault> {
    let Some(key) = key_of(job, KeyKind::Unique) else { return Ok(None) };
    let holder = rows.key_holder(&key)?.filter(|holder| *holder != job.id);
    match holder {
        Some(holder) if rows.is_unfinished(holder)? && !planted(Defect::AdmitSecondHolder) => {
            Ok(Some(holder))
        }
        _ => Ok(None),
    }
}

/// Notes the job's keys; a finished job's unique key is taken over.
pub(super) fn hold<R: Rows>(rows: &mut R, job: &Job) -> Result<(), Fault> {
    for kind in [KeyKind::Idempotency, KeyKind::Unique] {
        if let Some(key) = key_of(job, kind) {
            rows.hold_key(&key, job.id)?;
        }
    }
    Ok(())
}

fn key_of(job: &Job, kind: KeyKind) -> Option<JobKey> {
    let key = match kind {
        KeyKind::Idempotency => &job.spec.settings.idempotency_key,
        KeyKind::Unique => &job.spec.settings.unique_key,
    };
    key.as_ref().map(|key| JobKey { owner: job.spec.owner.clone(), kind, key: key.clone() })
}
