//! `punctual dlq list`.

use crate::dlq::filter::FilterArgs;
use crate::pages;
use punctual_client::{Client, DeadLetterBody, DeadLetterFilter, Page};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, shortened, table, time};
use punctual_core::limits;

#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// How many to show
    #[arg(long, default_value_t = 100, value_parser = args::limit)]
    limit: usize,
    /// Continue where an earlier list ended
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: ListArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let filter = args.filter.filter(&client).await?;
    let page = collect(&client, &filter, args.limit, args.cursor).await?;
    args.output.print(&page, letters_table)?;
    pages::tell_more(args.output, page.next_cursor.as_deref());
    Ok(Exit::Done)
}

/// As many as requested, over as many pages as necessary.
async fn collect(
    client: &Client,
    filter: &DeadLetterFilter,
    limit: usize,
    cursor: Option<String>,
) -> anyhow::Result<Page<DeadLetterBody>> {
    let mut all = Page { items: vec![], next_cursor: cursor };
    loop {
        let wanted = (limit - all.items.len()).clamp(1, limits::PAGE_ITEMS_MAX);
        let page = client.dead_letters(filter, Some(wanted), all.next_cursor.as_deref()).await?;
        all.items.extend(page.items);
        all.next_cursor = page.next_cursor;
        if all.next_cursor.is_none() || all.items.len() >= limit {
            return Ok(all);
        }
    }
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
    table(&["OCCURRENCE", "NAME", "TYPE", "QUEUE", "ATTEMPTS", "DIED", "ERROR"], rows)
}
