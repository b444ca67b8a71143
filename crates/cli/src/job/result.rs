//! `punctual job result`: the result of a run, however large it is.

use crate::job::which;
use anyhow::Context;
use punctual_client::{Client, ExecutionStatus, ResultDownload};
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_core::ids::{ExecutionId, JobId};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct ResultArgs {
    /// The job's id or name, for its latest run that succeeded, or the id of a single execution
    #[arg(value_name = "JOB|EXECUTION")]
    of: String,
    /// Write the result to this file, which appears once it is complete; by default it goes to standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub async fn run(args: ResultArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let execution = match args.of.parse() {
        Ok(execution) => execution,
        Err(_) => latest(&client, which::find(&client, &args.of).await?).await?,
    };
    let mut result = client.result(execution).await?;
    match &args.output {
        Some(file) => save(&mut result, file).await?,
        None => print(&mut result).await?,
    }
    Ok(Exit::Done)
}

/// The latest execution of a job that has succeeded.
async fn latest(client: &Client, job: JobId) -> anyhow::Result<ExecutionId> {
    let mut cursor = None;
    loop {
        let page = client.executions(job, None, cursor.as_deref()).await?;
        let succeeded = page.items.iter().find(|execution| execution.status == ExecutionStatus::Succeeded);
        if let Some(execution) = succeeded {
            return Ok(execution.execution_id);
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Err(CliError::not_found(format!(
                "no run of job {job} has succeeded: there is no result"
            ))
            .into());
        }
    }
}

/// Under another name first, so that a part of a result is not taken for the whole.
async fn save(result: &mut ResultDownload, file: &Path) -> anyhow::Result<()> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let cannot = || format!("{} cannot be written", file.display());
    let mut partial = tempfile::NamedTempFile::new_in(directory).with_context(cannot)?;
    while let Some(part) = result.next().await? {
        partial.write_all(&part).with_context(cannot)?;
    }
    partial.as_file().sync_all().with_context(cannot)?;
    partial.persist(file).with_context(cannot)?;
    Ok(())
}

async fn print(result: &mut ResultDownload) -> anyhow::Result<()> {
    let mut last = None;
    while let Some(part) = result.next().await? {
        last = part.last().copied().or(last);
        if !write_out(&part)? {
            return Ok(());
        }
    }
    if last != Some(b'\n') {
        write_out(b"\n")?;
    }
    Ok(())
}

/// Returns whether anybody still reads.
fn write_out(part: &[u8]) -> io::Result<bool> {
    let mut output = io::stdout().lock();
    match output.write_all(part).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}
