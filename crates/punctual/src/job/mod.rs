//! `punctual job`: submitting jobs and looking at them.

mod job_file;
mod list;
mod show;
mod submit;
mod wait;
mod which;

use crate::exit::Exit;
use clap::Subcommand;

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
    /// Wait until a job is finished
    Wait(wait::WaitArgs),
}

pub async fn run(command: JobCommand) -> anyhow::Result<Exit> {
    match command {
        JobCommand::Submit(args) => submit::run(*args).await,
        JobCommand::List(args) => list::run(args).await,
        JobCommand::Show(args) => show::run(args).await,
        JobCommand::History(args) => show::history(args).await,
        JobCommand::Wait(args) => wait::run(args).await,
    }
}
