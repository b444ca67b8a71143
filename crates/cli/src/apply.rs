//! `punctual apply`: creates, updates and deletes jobs so that they are as files describe them, and creates and
//! updates channels, rules and silences.

use crate::job::job_file;
use crate::manifest::{Manifest, ManifestJob, ManifestNotification, NotificationBody, NotificationType};
use crate::plan::{self, ParentIds, Plan, PlanArgs, PlannedAction, PlannedJob, PlannedNotification};
use indicatif::{ProgressBar, ProgressStyle};
use punctual_client::{Client, MeBody, Problem};
use punctual_config::exit::Exit;
use punctual_config::hints;
use punctual_config::output::{OutputArgs, one_line, print_text, tell};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use serde::Serialize;
use std::collections::BTreeMap;

/// From how many changes on there is a progress bar.
const BAR_CHANGES_MIN: usize = 20;

#[derive(clap::Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    plan: PlanArgs,
}

/// What was done.
#[derive(Serialize)]
struct ApplyReport {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notifications: Vec<AppliedNotification>,
    jobs: Vec<AppliedJob>,
    summary: ApplySummary,
}

/// What was done with a channel, rule or silence, or why it was not.
#[derive(Serialize)]
struct AppliedNotification {
    kind: NotificationType,
    name: String,
    action: PlannedAction,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Problem>,
}

/// What was done with one job, or why it was not.
#[derive(Serialize)]
struct AppliedJob {
    owner_id: String,
    name: String,
    action: PlannedAction,
    job_id: Option<JobId>,
    /// The status of a job that stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<JobStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Problem>,
}

#[derive(Default, Serialize)]
struct ApplySummary {
    created: usize,
    updated: usize,
    deleted: usize,
    unchanged: usize,
    failed: usize,
}

pub async fn run(ApplyArgs { plan: args }: ApplyArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let me = client.me().await?;
    let manifest = args.files.read(&me.owner_id)?;
    carry_out(&client, &me, &manifest, args.prune, args.output).await
}

/// Makes the server agree with the jobs of files.
pub async fn carry_out(
    client: &Client,
    me: &MeBody,
    manifest: &Manifest,
    prune: bool,
    output: OutputArgs,
) -> anyhow::Result<Exit> {
    let plan = match plan::computed(client, me, manifest, prune).await? {
        Ok(plan) => plan,
        Err(failures) => return Ok(plan::refused(&failures)),
    };
    if output.is_table() {
        print_text(&plan::told(&plan))?;
    }
    let mut application = Application {
        client,
        jobs: manifest.jobs.iter().map(|job| ((job.owner.as_str(), job.name.as_str()), job)).collect(),
        parents: ParentIds::of(manifest)?,
        output,
        bar: progress(&plan),
        exit: Exit::Done,
    };
    let report = application.all(&plan, &manifest.notifications).await?;
    application.bar.finish_and_clear();
    if plan.has_changes() || !output.is_table() {
        output.print(&report, |report| report.summary.told())?;
    }
    Ok(application.exit)
}

/// A plan that is being carried out. A failure for one job does not affect the others, except those that
/// depend on it.
struct Application<'a> {
    client: &'a Client,
    jobs: BTreeMap<(&'a str, &'a str), &'a ManifestJob>,
    parents: ParentIds,
    output: OutputArgs,
    bar: ProgressBar,
    exit: Exit,
}

impl Application<'_> {
    async fn all(&mut self, plan: &Plan, listed: &[ManifestNotification]) -> anyhow::Result<ApplyReport> {
        let mut report = ApplyReport {
            notifications: vec![],
            jobs: Vec::with_capacity(plan.jobs.len()),
            summary: Default::default(),
        };
        // Jobs name channels, so these come first.
        for (planned, one) in plan.notifications.iter().zip(listed) {
            let applied = self.notification(planned, one).await?;
            report.summary.count(applied.error.is_some(), applied.action);
            report.notifications.push(applied);
        }
        for planned in &plan.jobs {
            // A job that was renamed would be lost if its new name was refused.
            let applied = match planned.action {
                PlannedAction::Delete if self.exit != Exit::Done => {
                    let why = "it was not deleted, because other jobs could not be applied";
                    Ok(self.failed(planned, Problem::new(409, why), Exit::Refused))
                }
                _ => self.one(planned).await,
            };
            let applied = match applied {
                Ok(applied) => applied,
                Err(error) => {
                    let (problem, exit) = job_file::refusal(error).inspect_err(|_| {
                        self.bar.finish_and_clear();
                        tell(&format!("{}, then:", report.summary.told()));
                    })?;
                    self.failed(planned, problem, exit)
                }
            };
            report.summary.count(applied.error.is_some(), applied.action);
            report.jobs.push(applied);
            if planned.action != PlannedAction::None {
                self.bar.inc(1);
            }
        }
        Ok(report)
    }

    async fn notification(
        &mut self,
        planned: &PlannedNotification,
        one: &ManifestNotification,
    ) -> anyhow::Result<AppliedNotification> {
        let name = format!("{} {}", planned.kind.word(), planned.name);
        let mut error = None;
        if planned.action != PlannedAction::None {
            self.bar.inc(1);
            let set = match &one.body {
                NotificationBody::Channel(channel) => {
                    self.client.set_channel(&one.name, channel).await.map(drop)
                }
                NotificationBody::Rule(rule) => {
                    self.client.set_notification_rule(&one.name, rule).await.map(drop)
                }
                NotificationBody::Silence(silence) => self.client.add_silence(silence).await.map(drop),
            };
            match set {
                Ok(()) => self.tell_done(planned.action, &name, None)?,
                Err(refused) => {
                    let (problem, exit) = job_file::refusal(refused.into())?;
                    self.tell_failed(&name, &problem, exit);
                    error = Some(problem);
                }
            }
        }
        let PlannedNotification { kind, name, action, .. } = planned;
        Ok(AppliedNotification { kind: *kind, name: name.clone(), action: *action, error })
    }

    async fn one(&mut self, planned: &PlannedJob) -> anyhow::Result<AppliedJob> {
        let key = (planned.owner_id.as_str(), planned.name.as_str());
        let (mut action, mut job_id) = (planned.action, planned.job_id);
        match (action, self.jobs.get(&key).copied()) {
            (PlannedAction::Create | PlannedAction::Update, Some(job)) => {
                if let Some(parent) = self.parents.missing(job) {
                    let why = format!("depends_on names {parent}, which could not be created");
                    return Ok(self.failed(planned, Problem::new(409, why), Exit::Refused));
                }
                let body = job.body(&self.parents.ids(self.client, job).await?)?;
                let put = self.client.put_by_name(&job.name, &body).await?;
                // Another request may have created it meanwhile.
                action = match action {
                    _ if put.created => PlannedAction::Create,
                    PlannedAction::Create if put.job.version == 1 => PlannedAction::None,
                    _ => PlannedAction::Update,
                };
                job_id = Some(put.job.job_id);
                self.parents.known(job, put.job.job_id);
            }
            (PlannedAction::Delete, _) => {
                if let Some(id) = job_id {
                    match self.client.delete(id).await {
                        Err(error) if !error.is_not_found() => return Err(error.into()),
                        _ => {}
                    }
                }
            }
            (_, job) => {
                if let (Some(job), Some(id)) = (job, job_id) {
                    self.parents.known(job, id);
                }
            }
        }
        self.tell_done(action, &planned.name, job_id)?;
        let PlannedJob { owner_id, name, .. } = planned;
        let status = planned.status.filter(|_| action == PlannedAction::None);
        Ok(AppliedJob { owner_id: owner_id.clone(), name: name.clone(), action, job_id, status, error: None })
    }

    /// A line about something that has changed.
    fn tell_done(&self, action: PlannedAction, name: &str, id: Option<JobId>) -> anyhow::Result<()> {
        let done = match action {
            PlannedAction::Create => "created",
            PlannedAction::Update => "updated",
            PlannedAction::Delete => "deleted",
            PlannedAction::None => return Ok(()),
        };
        if !self.output.is_table() {
            return Ok(());
        }
        let id = id.map_or_else(String::new, |id| format!(" ({id})"));
        self.bar.suspend(|| print_text(&format!("{done} {}{id}", one_line(name))))
    }

    fn failed(&mut self, planned: &PlannedJob, problem: Problem, exit: Exit) -> AppliedJob {
        self.tell_failed(&planned.name, &problem, exit);
        AppliedJob {
            owner_id: planned.owner_id.clone(),
            name: planned.name.clone(),
            action: planned.action,
            job_id: planned.job_id,
            status: None,
            error: Some(problem),
        }
    }

    fn tell_failed(&mut self, name: &str, problem: &Problem, exit: Exit) {
        self.bar.suspend(|| {
            let name = one_line(name);
            tell(&format!("error: {name}: {problem}{}", hints::lines(&problem.advice)));
        });
        if self.exit == Exit::Done {
            self.exit = exit;
        }
    }
}

impl ApplySummary {
    fn count(&mut self, is_failed: bool, action: PlannedAction) {
        let counter = match (is_failed, action) {
            (true, _) => &mut self.failed,
            (false, PlannedAction::Create) => &mut self.created,
            (false, PlannedAction::Update) => &mut self.updated,
            (false, PlannedAction::Delete) => &mut self.deleted,
            (false, PlannedAction::None) => &mut self.unchanged,
        };
        *counter += 1;
    }

    fn told(&self) -> String {
        let ApplySummary { created, updated, deleted, unchanged, failed } = self;
        let failed = if *failed > 0 { format!(", {failed} failed") } else { String::new() };
        format!("{created} created, {updated} updated, {deleted} deleted, {unchanged} unchanged{failed}")
    }
}

/// A bar on stderr for many changes; invisible where stderr is not a terminal.
fn progress(plan: &Plan) -> ProgressBar {
    let changes = plan.changes();
    if changes < BAR_CHANGES_MIN {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len}");
    ProgressBar::new(changes as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
