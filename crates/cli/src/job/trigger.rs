//! `punctual job trigger`: one more run now, in addition to the schedule.

use crate::job::live::{LiveJobView, SeenRun};
use crate::job::show::execution_details;
use crate::job::wait::{LOOK_PAUSE_MAX, LOOK_PAUSE_MIN, WaitBound};
use crate::job::which::WhichJob;
use crate::reconnect::Reconnect;
use punctual_client::{ClientError, ExecutionBody, ExecutionStatus, TriggerRequest};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::OutputArgs;

#[derive(clap::Args)]
pub struct TriggerArgs {
    #[command(flatten)]
    which: WhichJob,
    /// Run alongside open runs, regardless of the job's overlap policy
    #[arg(long = "override")]
    despite_overlap: bool,
    /// Idempotency key of this request: repeating the request within 24 hours triggers nothing twice
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
    let mut server = args.bound.patient(Reconnect::with(&args.connect, client));
    let last = until_ended(&mut server, begun, args.bound).await?;
    args.output.print(&last, execution_details)?;
    Ok(if last.status == ExecutionStatus::Succeeded { Exit::Done } else { Exit::Failed })
}

/// The last attempt of the run, once it is finished, unless the time runs out first.
pub async fn until_ended(
    server: &mut Reconnect<'_>,
    begun: ExecutionBody,
    bound: WaitBound,
) -> anyhow::Result<ExecutionBody> {
    let occurrence = begun.execution_id.occurrence;
    let Some(last) = bound.limit(ended(server, begun)).await else {
        let message = format!("the run {occurrence} did not finish within {bound}");
        return Err(CliError { exit: Exit::TimedOut, message }.into());
    };
    Ok(last?)
}

async fn ended(server: &mut Reconnect<'_>, begun: ExecutionBody) -> Result<ExecutionBody, ClientError> {
    let mut live = LiveJobView::start(server.client()).await;
    let mut execution = begun;
    let mut pause = LOOK_PAUSE_MIN;
    loop {
        if execution.status == ExecutionStatus::Succeeded {
            return Ok(execution);
        }
        if execution.status.is_finished() {
            // A retry exists from the moment at which the previous attempt has failed.
            let id = execution.execution_id;
            let next = id.occurrence.attempt(id.attempt + 1);
            match server.ask(&live, async |client| client.execution(next).await).await {
                Ok(retry) => execution = retry,
                Err(error) if error.is_not_found() => return Ok(execution),
                Err(error) => return Err(error),
            }
            continue;
        }
        if let Ok(job) = server.client().job(execution.job_id).await {
            live.show(SeenRun { job, execution: Some(execution.clone()) });
        }
        live.pause(pause).await;
        pause = (pause * 2).min(LOOK_PAUSE_MAX);
        let id = execution.execution_id;
        execution = server.ask(&live, async |client| client.execution(id).await).await?;
    }
}
