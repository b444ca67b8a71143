//! `punctual job`: submitting, inspecting and controlling jobs.

mod adjust;
pub mod bulk;
mod clone;
mod control;
mod duplicate;
mod explain;
pub mod fields;
pub mod job_file;
pub mod list;
pub mod live;
mod logs;
mod next;
mod outlook;
mod parents;
mod policies;
pub mod progress;
mod result;
mod rows;
mod show;
mod submit;
pub mod trigger;
mod update;
mod upsert;
mod wait;
pub mod which;

use clap::Subcommand;
use control::ControlCommand;
use punctual_config::exit::Exit;

#[derive(Subcommand)]
pub enum JobCommand {
    /// Submit a job, or all jobs of a file
    Submit(Box<submit::SubmitArgs>),
    /// Submit a copy of a job, with other values where they are given
    Clone(Box<clone::CloneArgs>),
    /// List jobs, latest first
    List(list::ListArgs),
    /// Show one job
    Show(show::ShowArgs),
    /// Show the executions of a job, latest occurrence first
    History(show::HistoryArgs),
    /// Show the log of a job's latest run, attempt by attempt
    Logs(logs::LogsArgs),
    /// Print or save the result of a run, also one that is stored as a blob
    Result(result::ResultArgs),
    /// Wait until a job is finished
    Wait(wait::WaitArgs),
    /// Explain the current state of a job
    Explain(explain::ExplainArgs),
    /// Change a job; fields that are not given keep their values
    Update(Box<update::UpdateArgs>),
    /// Pause jobs; running executions finish
    Pause(control::ControlArgs),
    /// Resume paused jobs; runs that fell due in the meantime are skipped, one-time jobs run late
    Resume(control::ControlArgs),
    /// Run a job now, in addition to its schedule
    Trigger(trigger::TriggerArgs),
    /// Skip the next run of a recurring job; the schedule does not change
    SkipNext(adjust::SkipNextArgs),
    /// Run the next occurrence of a recurring job at another time
    RunNextAt(adjust::RunNextAtArgs),
    /// Run past occurrences of a recurring job again; begin with --dry-run
    Backfill(adjust::BackfillArgs),
    /// Cancel jobs or single executions: nothing more starts, and running executions are asked to stop
    Cancel(control::CancelArgs),
    /// Run the latest dead letter of each job again
    Retry(control::RetryArgs),
    /// Cancel jobs and delete them with their history
    Delete(control::ControlArgs),
}

pub async fn run(command: JobCommand) -> anyhow::Result<Exit> {
    match command {
        JobCommand::Submit(args) => submit::run(*args).await,
        JobCommand::Clone(args) => clone::run(*args).await,
        JobCommand::List(args) => list::run(args).await,
        JobCommand::Show(args) => show::run(args).await,
        JobCommand::History(args) => show::history(args).await,
        JobCommand::Logs(args) => logs::run(args).await,
        JobCommand::Result(args) => result::run(args).await,
        JobCommand::Wait(args) => wait::run(args).await,
        JobCommand::Explain(args) => explain::run(args).await,
        JobCommand::Update(args) => update::run(*args).await,
        JobCommand::Pause(args) => control::run(ControlCommand::Pause, args).await,
        JobCommand::Resume(args) => control::run(ControlCommand::Resume, args).await,
        JobCommand::Trigger(args) => trigger::run(args).await,
        JobCommand::SkipNext(args) => adjust::skip_next(args).await,
        JobCommand::RunNextAt(args) => adjust::run_next_at(args).await,
        JobCommand::Backfill(args) => adjust::backfill(args).await,
        JobCommand::Cancel(args) => control::run(ControlCommand::Cancel, args.into()).await,
        JobCommand::Retry(args) => control::retry(args).await,
        JobCommand::Delete(args) => control::run(ControlCommand::Delete, args).await,
    }
}
