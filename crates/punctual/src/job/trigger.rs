//! `punctual job trigger`: one more run, now, beside the schedule.

use crate::args;
use crate::connect::ConnectArgs;
use crate::exit::{CliError, Exit};
use crate::job::show::execution_details;
use crate::job::wait::WaitBound;
use crate::job::which::WhichJob;
use crate::output::OutputArgs;
use punctual_client::{Client, ClientError, ExecutionBody, ExecutionStatus, TriggerRequest};
use std::time::Duration;

/// The first and the longest pause between two looks at a run that is waited for.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(20);
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct TriggerArgs {
    #[command(flatten)]
    which: WhichJob,
    /// Run beside what is open, whatever the job's overlap policy
    #[arg(long = "override")]
    despite_overlap: bool,
    /// Names this request: repeating it within 24 hours triggers nothing twice
    #[arg(long, value_name = "KEY", value_parser = args::request_key)]
    request_key: Option<String>,
    /// Wait until the run and its retries are finished; exit code 1 if it did not succeed
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    bound: WaitBound,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: TriggerArgs) -> anyhow::Result<Exit> {
    let mut client = args.connect.client()?;
    if let Some(key) = args.request_key {
        client = client.with_request_key(key);
    }
    let job = args.which.id(&client).await?;
    let how = TriggerRequest { despite_overlap: args.despite_overlap };
    let begun = client.trigger(job, how).await?;
    if !args.wait {
        args.output.print(&begun, |execution| format!("triggered execution {}", execution.execution_id))?;
        return Ok(Exit::Done);
    }
    eprintln!("triggered execution {}", begun.execution_id);
    let occurrence = begun.execution_id.occurrence;
    let Some(last) = args.bound.limit(ended(&client, begun)).await else {
        let message = format!("the run {occurrence} was not finished within {}", args.bound);
        return Err(CliError { exit: Exit::TimedOut, message }.into());
    };
    let last = last?;
    args.output.print(&last, execution_details)?;
    Ok(if last.status == ExecutionStatus::Succeeded { Exit::Done } else { Exit::Failed })
}

/// The last attempt of the run, once it is finished.
async fn ended(client: &Client, begun: ExecutionBody) -> Result<ExecutionBody, ClientError> {
    let mut execution = begun;
    let mut pause = LOOK_PAUSE_MIN;
    loop {
        if execution.status == ExecutionStatus::Succeeded {
            return Ok(execution);
        }
        if execution.status.is_finished() {
            // A retry is there from the moment in which the attempt before it has failed.
            let id = execution.execution_id;
            match client.execution(id.occurrence.attempt(id.attempt + 1)).await {
                Ok(retry) => execution = retry,
                Err(error) if error.is_not_found() => return Ok(execution),
                Err(error) => return Err(error),
            }
            continue;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK_PAUSE_MAX);
        execution = client.execution(execution.execution_id).await?;
    }
}
