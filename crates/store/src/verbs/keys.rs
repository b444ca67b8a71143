//! The keys that users give to jobs. A key whose job has finished is no longer unique. That is only
//! detected when the key is used again, so finishing a job costs nothing extra.

use crate::fault::Fault;
use crate::rows::{JobKey, KeyKind, Rows};
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::JobId;
use punctual_core::job::Job;

/// Whether a new job may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyAdmission {
    /// The job has no keys.
    Plain,
    /// The job may have its keys.
    Keyed,
    AlreadyThere,
    Existing(JobId),
    KeyTaken(JobId),
}

pub(super) fn admit<R: Rows>(rows: &mut R, job: &Job) -> Result<KeyAdmission, Fault> {
    let settings = &job.spec.settings;
    let is_keyed = settings.idempotency_key.is_some() || settings.unique_key.is_some();
    if !is_keyed && settings.depends_on.is_empty() {
        return Ok(KeyAdmission::Plain);
    }
    // A repeated submit of the same job must not be taken for another job with the same key. It must not be
    // rejected because a job that it depends on was deleted since.
    if rows.is_job_there(job.id)? {
        return Ok(KeyAdmission::AlreadyThere);
    }
    if let Some(key) = key_of(job, KeyKind::Idempotency)
        && let Some(holder) = rows.key_holder(&key)?
    {
        return Ok(KeyAdmission::Existing(holder));
    }
    Ok(match rival(rows, job)? {
        Some(rival) => KeyAdmission::KeyTaken(rival),
        None => KeyAdmission::Keyed,
    })
}

/// Another unfinished job of the owner with the same unique key.
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

/// Stores the job's keys. It takes over the unique key of a finished job.
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
