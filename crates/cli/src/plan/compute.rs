//! Compares the jobs of files with those of the server.

use super::diff::{self, FieldChange};
use super::next_runs::NextRuns;
use super::{Plan, PlannedAction, PlannedJob, notifications};
use crate::job::{job_file, list, which};
use crate::manifest::{LABEL, Manifest, ManifestJob};
use punctual_client::{Client, JobFilter, MeBody, PlannedPut, Problem, PutAction};
use punctual_config::exit::{CliError, Exit};
use punctual_core::access::Permission;
use punctual_core::ids::JobId;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Why a job of a file cannot be applied.
pub struct PlanFailure {
    pub place: String,
    pub problem: Problem,
    pub exit: Exit,
}

/// What is to be done with each job, parents before the jobs that depend on them; or everything that is wrong
/// with them. With `prune`, also the jobs to delete.
pub async fn computed(
    client: &Client,
    me: &MeBody,
    manifest: &Manifest,
    prune: bool,
) -> anyhow::Result<Result<Plan, Vec<PlanFailure>>> {
    let labels = if prune { manifest.labels()? } else { BTreeSet::new() };
    let notifications = notifications::planned(client, manifest).await?;
    let reader = PlanReader {
        client,
        new_channels: notifications::new_channels(&notifications),
        sees_payloads: me.permissions.iter().any(|permission| permission == Permission::PayloadRead.word()),
    };
    let mut parents = ParentIds::of(manifest)?;
    let (mut planned, mut failures) = (Vec::new(), Vec::new());
    for place in parents.order.clone() {
        let job = &manifest.jobs[place];
        match reader.planned(job, &mut parents).await {
            Ok(job) => planned.push(job),
            Err(error) => {
                let (problem, exit) = job_file::refusal(error)?;
                failures.push(PlanFailure { place: job.place.clone(), problem, exit });
            }
        }
    }
    if !failures.is_empty() {
        return Ok(Err(failures));
    }
    for label in labels {
        planned.extend(unlisted(client, me, manifest, label).await?);
    }
    Ok(Ok(Plan::new(notifications, planned)))
}

struct PlanReader<'a> {
    client: &'a Client,
    /// Channels that the files create before the jobs.
    new_channels: BTreeSet<&'a str>,
    sees_payloads: bool,
}

impl PlanReader<'_> {
    async fn planned(&self, job: &ManifestJob, parents: &mut ParentIds) -> anyhow::Result<PlannedJob> {
        let ids = parents.ids(self.client, job).await?;
        let mut body = job.body(&ids)?;
        let new_channels = ManifestJob::without_channels(&mut body, &self.new_channels)?;
        let mut planned = self.client.plan_by_name(&job.name, &body).await?;
        let mut changes = changes(&planned, job);
        if planned.action == PutAction::Update
            && changes.is_empty()
            && let Some(payload) = planned.before.as_ref().and_then(|before| before.payload.clone())
        {
            // The same payload may be written in another way.
            body.set("payload", payload);
            planned = self.client.plan_by_name(&job.name, &body).await?;
        }
        if !self.sees_payloads {
            changes.retain(|change| change.field != "payload" && !change.field.starts_with("payload."));
        }
        changes.extend(new_parents(job, &ids));
        changes.extend(notifications::new_notify(&new_channels));
        let PlannedPut { action, job_id, status, before, after } = planned;
        let action = match action {
            PutAction::Create => PlannedAction::Create,
            PutAction::Update => PlannedAction::Update,
            PutAction::None if changes.is_empty() => PlannedAction::None,
            PutAction::None => PlannedAction::Update,
        };
        let note =
            (action == PlannedAction::Update && changes.is_empty()).then_some(match self.sees_payloads {
                true => "it was submitted without `apply`: from now on its name identifies it",
                false => "its payload may change, which you may not read",
            });
        if let Some(id) = job_id {
            parents.known(job, id);
        }
        let next_runs = match action {
            PlannedAction::Create | PlannedAction::Update => {
                NextRuns::of(self.client, before.as_ref(), &after).await?
            }
            PlannedAction::Delete | PlannedAction::None => None,
        };
        let (owner_id, name) = (job.owner.clone(), job.name.clone());
        Ok(PlannedJob { owner_id, name, action, job_id, status, changes, note, next_runs })
    }
}

fn changes(planned: &PlannedPut, job: &ManifestJob) -> Vec<FieldChange> {
    planned.before.as_ref().map_or_else(Vec::new, |before| diff::changes(before, &planned.after, job))
}

/// Parents that are to be created, so that they have no id yet.
fn new_parents(job: &ManifestJob, ids: &BTreeMap<String, JobId>) -> Option<FieldChange> {
    let new: Vec<String> = job.parents().into_iter().filter(|parent| !ids.contains_key(parent)).collect();
    let after = format!("{} (to be created)", new.join(", "));
    let change = FieldChange { field: "depends_on".to_owned(), before: Value::Null, after: after.into() };
    (!new.is_empty()).then_some(change)
}

/// The jobs with this label that no file contains. Other owners may use the same label, so only jobs of owners
/// that the files name are among them, and those of the caller.
async fn unlisted(
    client: &Client,
    me: &MeBody,
    manifest: &Manifest,
    label: &str,
) -> anyhow::Result<Vec<PlannedJob>> {
    let tag = format!("{LABEL}{label}");
    let listed: BTreeSet<(&str, &str)> =
        manifest.jobs.iter().map(|job| (job.owner.as_str(), job.name.as_str())).collect();
    let owners: BTreeSet<&str> =
        manifest.jobs.iter().map(|job| job.owner.as_str()).chain([me.owner_id.as_str()]).collect();
    let filter = JobFilter { tags: vec![tag.clone()], ..JobFilter::default() };
    let jobs = list::collect(client, filter, usize::MAX).await?.items;
    let unlisted = jobs.into_iter().filter(|job| {
        job.tags.contains(&tag)
            && owners.contains(job.owner_id.as_str())
            && !listed.contains(&(job.owner_id.as_str(), job.name.as_str()))
    });
    Ok(unlisted
        .map(|job| PlannedJob {
            owner_id: job.owner_id,
            name: job.name,
            action: PlannedAction::Delete,
            job_id: Some(job.job_id),
            status: Some(job.status),
            changes: vec![],
            note: None,
            next_runs: None,
        })
        .collect())
}

/// The ids of jobs that others depend on by name. Within the files a name means a job of the same owner.
pub struct ParentIds {
    /// The indexes of all jobs, parents first.
    pub order: Vec<usize>,
    listed: BTreeSet<(String, String)>,
    ids: BTreeMap<(String, String), JobId>,
}

impl ParentIds {
    pub fn of(manifest: &Manifest) -> Result<Self, CliError> {
        let listed = manifest.jobs.iter().map(key).collect();
        Ok(ParentIds { order: order(&manifest.jobs)?, listed, ids: BTreeMap::new() })
    }

    pub fn known(&mut self, job: &ManifestJob, id: JobId) {
        self.ids.insert(key(job), id);
    }

    /// A parent in the files that does not exist.
    pub fn missing(&self, job: &ManifestJob) -> Option<String> {
        job.parents().into_iter().find(|parent| {
            let key = (job.owner.clone(), parent.clone());
            self.listed.contains(&key) && !self.ids.contains_key(&key)
        })
    }

    /// The ids of the job's parents, as far as they exist. One that is in no file must.
    pub async fn ids(&self, client: &Client, job: &ManifestJob) -> anyhow::Result<BTreeMap<String, JobId>> {
        let mut ids = BTreeMap::new();
        for parent in job.parents() {
            let key = (job.owner.clone(), parent.clone());
            match self.ids.get(&key) {
                Some(id) => drop(ids.insert(parent, *id)),
                None if self.listed.contains(&key) => {}
                None => {
                    let found = which::find(client, &parent).await.map_err(of_parent)?;
                    ids.insert(parent, found);
                }
            }
        }
        Ok(ids)
    }
}

/// The error, with the field that named the job.
fn of_parent(error: anyhow::Error) -> anyhow::Error {
    match error.downcast() {
        Ok(CliError { exit, message }) => CliError { exit, message: format!("depends_on: {message}") }.into(),
        Err(error) => error,
    }
}

fn key(job: &ManifestJob) -> (String, String) {
    (job.owner.clone(), job.name.clone())
}

/// The indexes of the jobs, parents before the jobs that depend on them, otherwise in the order of the files.
fn order(jobs: &[ManifestJob]) -> Result<Vec<usize>, CliError> {
    let places: BTreeMap<(String, String), usize> =
        jobs.iter().enumerate().map(|(place, job)| (key(job), place)).collect();
    let parents = |job: &ManifestJob| -> Vec<usize> {
        let parents = job.parents().into_iter();
        parents.filter_map(|parent| places.get(&(job.owner.clone(), parent)).copied()).collect()
    };
    let mut waiting: Vec<(usize, Vec<usize>)> =
        jobs.iter().enumerate().map(|(place, job)| (place, parents(job))).collect();
    let mut order: Vec<usize> = Vec::with_capacity(jobs.len());
    let mut is_ordered = vec![false; jobs.len()];
    while !waiting.is_empty() {
        let before = order.len();
        waiting.retain(|(place, parents)| {
            let is_ready = parents.iter().all(|parent| is_ordered[*parent]);
            if is_ready {
                order.push(*place);
                is_ordered[*place] = true;
            }
            !is_ready
        });
        if order.len() == before {
            let names: Vec<&str> = waiting.iter().map(|(place, _)| jobs[*place].place.as_str()).collect();
            return Err(CliError::refused(format!("depends_on forms a cycle: {}", names.join(", "))));
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_first_and_a_cycle_is_an_error() {
        let jobs = |texts: &[&str]| texts.iter().map(|text| ManifestJob::for_test(text)).collect::<Vec<_>>();
        let good = jobs(&[
            r#"{"name":"c","depends_on":["b","elsewhere"]}"#,
            r#"{"name":"a"}"#,
            r#"{"name":"b","depends_on":["a"]}"#,
            r#"{"name":"d","owner_id":"you","depends_on":["c"]}"#,
        ]);
        assert_eq!(order(&good).unwrap(), [1, 2, 3, 0]);
        let bad = jobs(&[r#"{"name":"a","depends_on":["b"]}"#, r#"{"name":"b","depends_on":["a"]}"#]);
        assert!(order(&bad).unwrap_err().to_string().contains("depends_on forms a cycle"));
    }
}
