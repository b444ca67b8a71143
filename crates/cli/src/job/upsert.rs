//! `punctual job submit --upsert`: jobs that their names identify.

use crate::job::job_file::{self, name_of};
use crate::job::next;
use punctual_client::{Client, JobBody, Problem, PutAction};
use punctual_config::exit::Exit;
use punctual_config::hints;
use punctual_config::output::{OutputArgs, one_line, optional_time, table, tell};
use serde::Serialize;
use serde_json::value::RawValue;

/// What was done with a job.
#[derive(Serialize)]
pub struct UpsertedJob {
    pub action: PutAction,
    pub job: JobBody,
}

#[derive(Serialize)]
struct UpsertReport {
    items: Vec<UpsertItem>,
}

#[derive(Serialize)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "printed at once")]
enum UpsertItem {
    Done(UpsertedJob),
    Refused { name: String, error: Problem },
}

/// Creates the job with this name, or changes it if it differs.
pub async fn put(
    client: &Client,
    name: &str,
    job: &(impl Serialize + ?Sized),
) -> anyhow::Result<UpsertedJob> {
    let planned = client.plan_by_name(name, job).await?;
    if let (PutAction::None, Some(id)) = (planned.action, planned.job_id) {
        return Ok(UpsertedJob { action: PutAction::None, job: client.job(id).await? });
    }
    let put = client.put_by_name(name, job).await?;
    let action = if put.created { PutAction::Create } else { PutAction::Update };
    Ok(UpsertedJob { action, job: put.job })
}

/// Prints what was done with a single job.
pub async fn print(client: &Client, upserted: &UpsertedJob, output: OutputArgs) -> anyhow::Result<()> {
    let next = match output.is_table() && !upserted.job.is_finished() {
        true => next::told(client, &upserted.job).await.map(|next| format!(", {next}")),
        false => None,
    };
    output.print(upserted, |upserted| {
        format!("{} job {}{}", word(upserted.action), upserted.job.job_id, next.unwrap_or_default())
    })
}

/// Puts the jobs of a file in its order. A refused job does not affect the others.
pub async fn put_all(client: &Client, jobs: &[Box<RawValue>], output: OutputArgs) -> anyhow::Result<Exit> {
    let mut report = UpsertReport { items: Vec::with_capacity(jobs.len()) };
    let mut worst = Exit::Done;
    for job in jobs {
        let name = name_of(job);
        let item = match put_named(client, &name, job).await {
            Ok(done) => UpsertItem::Done(done),
            Err(error) => {
                let (error, exit) = job_file::refusal(error)?;
                tell(&format!("error: {}: {error}{}", one_line(&name), hints::lines(&error.advice)));
                if worst == Exit::Done {
                    worst = exit;
                }
                UpsertItem::Refused { name, error }
            }
        };
        report.items.push(item);
    }
    output.print(&report, report_table)?;
    Ok(worst)
}

async fn put_named(client: &Client, name: &str, job: &RawValue) -> anyhow::Result<UpsertedJob> {
    let job = job_file::with_parents(client, job.to_owned()).await?;
    put(client, name, &job).await
}

fn report_table(report: &UpsertReport) -> String {
    let rows = report.items.iter().map(|item| match item {
        UpsertItem::Done(UpsertedJob { action, job }) => vec![
            job.name.clone(),
            job.job_id.to_string(),
            word(*action).to_owned(),
            optional_time(job.next_run_time),
        ],
        UpsertItem::Refused { name, .. } => {
            vec![name.clone(), "-".to_owned(), "refused".to_owned(), "-".to_owned()]
        }
    });
    table(&["NAME", "JOB", "OUTCOME", "NEXT RUN"], rows)
}

const fn word(action: PutAction) -> &'static str {
    match action {
        PutAction::Create => "created",
        PutAction::Update => "updated",
        PutAction::None => "unchanged",
    }
}
