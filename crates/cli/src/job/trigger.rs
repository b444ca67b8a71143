//! `punctual job trigger`: one more run now, in addition to the schedule.

use crate::job::bulk::{BulkArgs, BulkFilterArgs};
use crate::job::live::{LiveJobView, SeenRun};
use crate::job::show::execution_details;
use crate::job::wait::{LOOK_PAUSE_MAX, LOOK_PAUSE_MIN, WaitBound};
use crate::job::which::OneJobOrAll;
use crate::reconnect::Reconnect;
use punctual_client::{Client, ClientError, ExecutionBody, ExecutionStatus, TriggerRequest};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::OutputArgs;
use punctual_core::operation::BulkAction;
use serde_json::value::RawValue;

#[derive(clap::Args)]
pub struct TriggerArgs {
    #[command(flatten)]
    which: OneJobOrAll,
    #[command(flatten)]
    bulk: BulkArgs,
    #[command(flatten)]
    filters: BulkFilterArgs,
    #[command(flatten)]
    how: RunArgs,
}

/// How to run, for `job trigger` and `executions rerun`.
#[derive(clap::Args)]
pub struct RunArgs {
    /// JSON for the handler in place of the job's payload, for this run only, or @FILE
    #[arg(long, value_parser = args::payload, allow_hyphen_values = true, value_name = "JSON")]
    payload: Option<Box<RawValue>>,
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
    let TriggerArgs { which, bulk, filters, how } = args;
    if bulk.is_meant() {
        how.refuse_in_bulk()?;
        return bulk.run_of(BulkAction::Trigger, filters.fields()).run(&how.connect, how.output).await;
    }
    how.run(async |client, request| {
        let job = which.id(client).await?;
        Ok(client.trigger(job, request).await?)
    })
    .await
}

impl RunArgs {
    /// Refuses what applies to a single run only.
    fn refuse_in_bulk(&self) -> anyhow::Result<()> {
        if self.payload.is_none() && !self.despite_overlap && self.request_key.is_none() && !self.wait {
            return Ok(());
        }
        let message = "--payload, --override, --request-key and --wait cannot be used with --all".to_owned();
        Err(CliError { exit: Exit::Misunderstood, message }.into())
    }

    /// Starts a run, and waits for its end if the user asks for that.
    pub async fn run(
        self,
        start: impl AsyncFnOnce(&Client, TriggerRequest) -> anyhow::Result<ExecutionBody>,
    ) -> anyhow::Result<Exit> {
        let mut client = self.connect.client()?;
        if let Some(key) = &self.request_key {
            client = client.with_request_key(key.clone());
        }
        let how = TriggerRequest { despite_overlap: self.despite_overlap, payload: self.payload.clone() };
        let begun = start(&client, how).await?;
        self.followed(client, begun).await
    }

    async fn followed(self, client: Client, begun: ExecutionBody) -> anyhow::Result<Exit> {
        let args = self;
        if !args.wait {
            args.output
                .print(&begun, |execution| format!("triggered execution {}", execution.execution_id))?;
            return Ok(Exit::Done);
        }
        eprintln!("triggered execution {}", begun.execution_id);
        let mut server = args.bound.patient(Reconnect::with(&args.connect, client));
        let last = until_ended(&mut server, begun, args.bound).await?;
        args.output.print(&last, execution_details)?;
        Ok(if last.status == ExecutionStatus::Succeeded { Exit::Done } else { Exit::Failed })
    }
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
