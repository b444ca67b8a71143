//! `punctual plan`: what `punctual apply` would change.

mod compute;
mod diff;
mod next_runs;
mod notifications;
mod words;

pub use compute::{ParentIds, PlanFailure, computed};
pub use notifications::PlannedNotification;
pub use words::told;

use crate::manifest::ManifestArgs;
use diff::FieldChange;
use next_runs::NextRuns;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::hints;
use punctual_config::output::{OutputArgs, tell};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use serde::Serialize;

#[derive(clap::Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub files: ManifestArgs,
    /// Include jobs to delete: those with the label managed_by of the files that are no longer in them
    #[arg(long)]
    pub prune: bool,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What is to be done with all that the files have.
#[derive(Serialize)]
pub struct Plan {
    /// Channels, rules and silences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notifications: Vec<PlannedNotification>,
    pub jobs: Vec<PlannedJob>,
    pub summary: Summary,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PlannedAction {
    Create,
    Update,
    Delete,
    None,
}

/// What is to be done with one job.
#[derive(Serialize)]
pub struct PlannedJob {
    pub owner_id: String,
    pub name: String,
    pub action: PlannedAction,
    pub job_id: Option<JobId>,
    /// The status of the job as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<JobStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
    /// Why a job without changed fields is updated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
    /// For a new or changed schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_runs: Option<NextRuns>,
}

/// How many jobs, channels, rules and silences there are of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub create: usize,
    pub update: usize,
    pub delete: usize,
    pub unchanged: usize,
}

impl Plan {
    pub fn new(notifications: Vec<PlannedNotification>, jobs: Vec<PlannedJob>) -> Self {
        let mut plan = Plan { notifications, jobs, summary: Summary::default() };
        let count = |action| plan.actions().filter(|one| *one == action).count();
        plan.summary = Summary {
            create: count(PlannedAction::Create),
            update: count(PlannedAction::Update),
            delete: count(PlannedAction::Delete),
            unchanged: count(PlannedAction::None),
        };
        plan
    }

    fn actions(&self) -> impl Iterator<Item = PlannedAction> {
        let notifications = self.notifications.iter().map(|one| one.action);
        notifications.chain(self.jobs.iter().map(|job| job.action))
    }

    pub fn has_changes(&self) -> bool {
        self.changes() > 0
    }

    pub fn changes(&self) -> usize {
        self.actions().filter(|action| *action != PlannedAction::None).count()
    }
}

pub async fn run(args: PlanArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let me = client.me().await?;
    let manifest = args.files.read(&me.owner_id)?;
    let plan = match computed(&client, &me, &manifest, args.prune).await? {
        Ok(plan) => plan,
        Err(failures) => return Ok(refused(&failures)),
    };
    args.output.print(&plan, told)?;
    Ok(if plan.has_changes() { Exit::Pending } else { Exit::Done })
}

/// Prints why jobs cannot be applied. The exit code is that of the first.
pub fn refused(failures: &[PlanFailure]) -> Exit {
    for PlanFailure { place, problem, .. } in failures {
        tell(&format!("error: {place}: {problem}{}", hints::lines(&problem.advice)));
    }
    tell("nothing was changed");
    failures.first().map_or(Exit::Refused, |failure| failure.exit)
}
