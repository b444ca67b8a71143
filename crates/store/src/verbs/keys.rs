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
    if keys_of(job).next().is_none() && job.spec.settings.depends_on.is_empty() {
        return Ok(KeyAdmission::Plain);
    }
    // A repeated submit of the same job must not be taken for another job with the same key. It must not be
    // rejected because a job that it depends on was deleted since.
    if rows.is_job_there(job.id)? {
        return Ok(KeyAdmission::AlreadyThere);
    }
    for key in keys_of(job).filter(|key| key.kind != KeyKind::Unique) {
        if let Some(holder) = rows.key_holder(&key)? {
            return Ok(KeyAdmission::Existing(holder));
        }
    }
    Ok(match rival(rows, job)? {
        Some(rival) => KeyAdmission::KeyTaken(rival),
        None => KeyAdmission::Keyed,
    })
}

/// Another unfinished job of the owner with the same unique key.
pub(super) fn rival<R: Rows>(rows: &mut R, job: &Job) -> Result<Option<JobId>, Fault> {
    let Some(key) = keys_of(job).find(|key| key.kind == KeyKind::Unique) else { return Ok(None) };
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
    keys_of(job).try_for_each(|key| rows.hold_key(&key, job.id))
}

/// Another job of the owner that the name of this one identifies.
pub(super) fn namesake<R: Rows>(rows: &mut R, job: &Job) -> Result<Option<JobId>, Fault> {
    let Some(key) = keys_of(job).find(|key| key.kind == KeyKind::Name) else { return Ok(None) };
    Ok(rows.key_holder(&key)?.filter(|holder| *holder != job.id))
}

/// The keys of a job.
pub(crate) fn keys_of(job: &Job) -> impl Iterator<Item = JobKey> {
    let settings = &job.spec.settings;
    let keys = [
        (KeyKind::Idempotency, settings.idempotency_key.as_ref()),
        (KeyKind::Unique, settings.unique_key.as_ref()),
        (KeyKind::Name, settings.by_name.then_some(&job.spec.name)),
    ];
    keys.into_iter()
        .filter_map(|(kind, key)| Some(JobKey { owner: job.spec.owner.clone(), kind, key: key?.clone() }))
}
