//! Job keys: an idempotency key, or the name of a job that was put by it, identifies one stored job; a unique
//! key identifies one unfinished job.

use super::{AuditResult, AuditViolation, Auditor, JobModel, rule};
use punctual_core::control::Refusal;
use punctual_core::ids::JobId;
use punctual_core::job::{JobSpec, StoredStatus};
use punctual_core::ports::SubmitOutcome;
use std::collections::BTreeMap;

impl Auditor {
    /// Why a new job is rejected, if its keys are taken.
    pub(super) fn key_refusal(&mut self, spec: &JobSpec) -> Option<SubmitOutcome> {
        let settings = &spec.settings;
        if settings.idempotency_key.is_some() || settings.by_name {
            let is_same = |other: &JobSpec| {
                let other_settings = &other.settings;
                (settings.idempotency_key.is_some()
                    && other_settings.idempotency_key == settings.idempotency_key)
                    || (settings.by_name && other_settings.by_name && other.name == spec.name)
            };
            let there =
                self.kept_jobs().find(|(_, job)| job.spec().owner == spec.owner && is_same(job.spec()));
            if let Some((id, _)) = there {
                self.count("submits of a known idempotency key");
                return Some(SubmitOutcome::Existing(id));
            }
        }
        let holder = self.holder_of(spec, None)?;
        self.count("submits of a unique key that is taken");
        Some(SubmitOutcome::KeyTaken(holder))
    }

    /// Why a finished job cannot become unfinished again, if its unique key has been taken.
    pub(super) fn revival_refusal(&mut self, id: JobId) -> Result<Option<Refusal>, AuditViolation> {
        let job = self.job(id)?;
        if !job.is_finished() {
            return Ok(None);
        }
        let holder = self.holder_of(job.spec(), Some(id));
        if holder.is_some() {
            self.count("revivals of a job whose unique key is taken");
        }
        Ok(holder.map(Refusal::KeyTaken))
    }

    fn holder_of(&self, spec: &JobSpec, but: Option<JobId>) -> Option<JobId> {
        spec.settings.unique_key.as_ref()?;
        let is_same = |other: &JobSpec| {
            other.owner == spec.owner && other.settings.unique_key == spec.settings.unique_key
        };
        let mut holders = self.kept_jobs().filter(|(_, job)| !job.is_finished() && is_same(job.spec()));
        holders.find(|(id, _)| Some(*id) != but).map(|(id, _)| id)
    }

    /// The jobs that have not been deleted.
    fn kept_jobs(&self) -> impl Iterator<Item = (JobId, &JobModel)> {
        self.jobs.iter().filter(|(_, job)| job.mark != StoredStatus::Deleted).map(|(id, job)| (*id, job))
    }

    /// No two unfinished jobs share a unique key, and no two jobs share an idempotency key.
    pub fn keys_are_held_once(&mut self) -> AuditResult {
        let mut holders = BTreeMap::new();
        for (id, job) in self.kept_jobs() {
            let spec = job.spec();
            let idempotency = spec.settings.idempotency_key.as_ref().map(|key| ("idempotency", key));
            let unique = spec.settings.unique_key.as_ref().filter(|_| !job.is_finished());
            let name = spec.settings.by_name.then_some(("name", &spec.name));
            for (kind, key) in idempotency.into_iter().chain(name).chain(unique.map(|key| ("unique", key))) {
                let other = holders.insert((kind, &spec.owner, key), id);
                rule!(
                    other.is_none(),
                    "a key names one job",
                    "{kind} key {key} of {} is held by {id} and {other:?}",
                    spec.owner
                );
            }
        }
        Ok(())
    }
}
