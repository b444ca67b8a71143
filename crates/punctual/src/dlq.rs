//! `punctual dlq`: jobs that failed for good.

use crate::args;
use crate::connect::ConnectArgs;
use crate::exit::Exit;
use crate::output::{OutputArgs, shortened, table, time};
use clap::Subcommand;
use punctual_client::{DeadLetterBody, Page};

#[derive(Subcommand)]
pub enum DlqCommand {
    /// List dead letters, latest first
    List(ListArgs),
}

#[derive(clap::Args)]
pub struct ListArgs {
    /// How many to show
    #[arg(long, default_value_t = 100, value_parser = args::limit)]
    limit: usize,
    /// Go on where an earlier list ended
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(command: DlqCommand) -> anyhow::Result<Exit> {
    let DlqCommand::List(args) = command;
    let client = args.connect.client()?;
    let page = client.dead_letters(Some(args.limit), args.cursor.as_deref()).await?;
    args.output.print(&page, letters_table)?;
    Ok(Exit::Done)
}

fn letters_table(page: &Page<DeadLetterBody>) -> String {
    if page.items.is_empty() {
        return "no dead letters".to_owned();
    }
    let rows = page.items.iter().map(|letter| {
        vec![
            letter.occurrence_id.to_string(),
            shortened(&letter.name, 40),
            shortened(&letter.job_type, 30),
            shortened(&letter.queue, 30),
            letter.attempts.to_string(),
            time(letter.died_at),
            letter.error_message.as_ref().map_or_else(|| "-".to_owned(), |error| shortened(error, 60)),
        ]
    });
    let mut text = table(&["OCCURRENCE", "NAME", "TYPE", "QUEUE", "ATTEMPTS", "DIED", "ERROR"], rows);
    if let Some(cursor) = &page.next_cursor {
        text += &format!("\nmore with --cursor {cursor}");
    }
    text
}
