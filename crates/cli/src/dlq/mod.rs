//! `punctual dlq`: runs that failed permanently.

pub(crate) mod filter;
mod list;
mod select;

use clap::Subcommand;
use punctual_config::exit::Exit;

#[derive(Subcommand)]
pub enum DlqCommand {
    /// List dead letters, latest first
    List(list::ListArgs),
    /// Run dead letters again: each continues as the same run with further attempts
    Redrive(select::RedriveArgs),
    /// Delete dead letters; their history is kept
    Discard(select::DiscardArgs),
}

pub async fn run(command: DlqCommand) -> anyhow::Result<Exit> {
    match command {
        DlqCommand::List(args) => list::run(args).await,
        DlqCommand::Redrive(args) => select::redrive(args).await,
        DlqCommand::Discard(args) => select::discard(args).await,
    }
}
