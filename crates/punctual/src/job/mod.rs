//! `punctual job`: submitting, inspecting and controlling jobs.

mod control;
mod explain;
mod fields;
mod job_file;
pub mod list;
pub mod live;
mod logs;
mod next;
mod outlook;
mod parents;
mod policies;
pub mod progress;
mod show;
mod submit;
mod trigger;
mod update;
mod wait;
pub mod which;

use crate::exit::Exit;
use clap::Subcommand;
use control::Verb;

#[derive(Subcommand)]
pub enum JobCommand {
    /// Submit a job, or all jobs of a file
    Submit(Box<submit::SubmitArgs>),
    /// List jobs, latest first
    List(list::ListArgs),
    /// Show one job
    Show(show::ShowArgs),
    /// Show the executions of a job, open ones first, then latest first
    History(show::HistoryArgs),
    /// Show what a job has written: its latest run, attempt by attempt
    Logs(logs::LogsArgs),
    /// Wait until a job is finished
    Wait(wait::WaitArgs),
    /// Say why a job does what it does
    Explain(explain::ExplainArgs),
    /// Change a job: what is not named stays
    Update(Box<update::UpdateArgs>),
    /// Hold jobs; what runs finishes
    Pause(control::ControlArgs),
    /// Let paused jobs go on; what fell due meanwhile is skipped, one-time jobs run late
    Resume(control::ControlArgs),
    /// Run a job once more, now; its schedule does not move
    Trigger(trigger::TriggerArgs),
    /// End jobs or single executions: nothing more starts, what runs is asked to stop
    Cancel(control::CancelArgs),
    /// Run the latest dead letter of each job again
    Retry(control::RetryArgs),
    /// Cancel jobs and remove them with their history
    Delete(control::ControlArgs),
}

pub async fn run(command: JobCommand) -> anyhow::Result<Exit> {
    match command {
        JobCommand::Submit(args) => submit::run(*args).await,
        JobCommand::List(args) => list::run(args).await,
        JobCommand::Show(args) => show::run(args).await,
        JobCommand::History(args) => show::history(args).await,
        JobCommand::Logs(args) => logs::run(args).await,
        JobCommand::Wait(args) => wait::run(args).await,
        JobCommand::Explain(args) => explain::run(args).await,
        JobCommand::Update(args) => update::run(*args).await,
        JobCommand::Pause(args) => control::run(Verb::Pause, args).await,
        JobCommand::Resume(args) => control::run(Verb::Resume, args).await,
        JobCommand::Trigger(args) => trigger::run(args).await,
        JobCommand::Cancel(args) => control::run(Verb::Cancel, args.into()).await,
        JobCommand::Retry(args) => control::retry(args).await,
        JobCommand::Delete(args) => control::run(Verb::Delete, args).await,
    }
}
