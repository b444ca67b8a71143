//! `punctual dlq redrive` and `punctual dlq discard`: by ids, by a filter, or all.
//!
//! One request acts on a bounded number of them, so a filter takes several steps.

use crate::dlq::filter::FilterArgs;
use clap::ArgGroup;
use indicatif::{ProgressBar, ProgressStyle};
use punctual_client::{
    Client, ClientError, DeadLetterSelection, DiscardAnswer, RedriveAnswer, RefusedLetter,
};
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, table};
use punctual_core::ids::OccurrenceId;
use punctual_core::limits;

/// Every argument that selects dead letters, including those of [`FilterArgs`].
const SELECTION: [&str; 9] =
    ["occurrences", "all", "job", "name", "job_type", "queue", "since", "until", "error"];

/// Which ones: exactly one way of saying so.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("Selection").args(SELECTION).required(true).multiple(true))]
struct SelectArgs {
    /// The dead letters' ids, as `dlq list` shows them
    #[arg(value_name = "OCCURRENCE", conflicts_with_all = ["all", "FilterArgs"])]
    occurrences: Vec<OccurrenceId>,
    #[command(flatten)]
    filter: FilterArgs,
    /// All dead letters
    #[arg(long, conflicts_with = "FilterArgs")]
    all: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RedriveArgs {
    #[command(flatten)]
    which: SelectArgs,
}

#[derive(clap::Args)]
pub struct DiscardArgs {
    #[command(flatten)]
    which: SelectArgs,
    /// Confirm discarding all dead letters, or all that match a filter
    #[arg(long)]
    yes: bool,
}

pub async fn redrive(args: RedriveArgs) -> anyhow::Result<Exit> {
    let output = args.which.output;
    let Done { count, refused } = act(args.which, "redriven", async |client, step| {
        let RedriveAnswer { redriven, refused, next_cursor } = client.redrive(step).await?;
        Ok((Done { count: redriven, refused }, next_cursor))
    })
    .await?;
    let exit = exit_of(&refused);
    let answer = RedriveAnswer { redriven: count, refused, next_cursor: None };
    output.print(&answer, |answer| told("redriven", count, &answer.refused))?;
    Ok(exit)
}

pub async fn discard(args: DiscardArgs) -> anyhow::Result<Exit> {
    if args.which.occurrences.is_empty() && !args.yes {
        let message = "this permanently discards every dead letter that matches: review them with \
                       `punctual dlq list` and the same filter, then add --yes";
        return Err(CliError { exit: Exit::Misunderstood, message: message.to_owned() }.into());
    }
    let output = args.which.output;
    let Done { count, refused } = act(args.which, "discarded", async |client, step| {
        let DiscardAnswer { discarded, refused, next_cursor } = client.discard(step).await?;
        Ok((Done { count: discarded, refused }, next_cursor))
    })
    .await?;
    let exit = exit_of(&refused);
    let answer = DiscardAnswer { discarded: count, refused, next_cursor: None };
    output.print(&answer, |answer| told("discarded", count, &answer.refused))?;
    Ok(exit)
}

/// What was done, and what was refused.
struct Done {
    count: u64,
    refused: Vec<RefusedLetter>,
}

/// Repeats steps until all are done.
async fn act(
    which: SelectArgs,
    what: &'static str,
    step: impl AsyncFn(&Client, &DeadLetterSelection) -> Result<(Done, Option<String>), ClientError>,
) -> anyhow::Result<Done> {
    let client = which.connect.client()?;
    let mut total = Done { count: 0, refused: vec![] };
    let bar = progress(what);
    for mut selection in selections(&client, which.occurrences, which.filter).await? {
        loop {
            let (done, cursor) = match step(&client, &selection).await {
                Ok(answer) => answer,
                Err(error) => {
                    bar.finish_and_clear();
                    if total.count > 0 {
                        let count = total.count;
                        eprintln!(
                            "{count} {what} before this error; run the same command again to continue with the rest"
                        );
                    }
                    return Err(error.into());
                }
            };
            total.count += done.count;
            total.refused.extend(done.refused);
            bar.set_position(total.count);
            let Some(cursor) = cursor else { break };
            selection = selection.going_on(cursor);
        }
    }
    bar.finish_and_clear();
    Ok(total)
}

/// The first request of each part: ids are split into parts that the server accepts, a filter continues by
/// its cursor.
async fn selections(
    client: &Client,
    occurrences: Vec<OccurrenceId>,
    filter: FilterArgs,
) -> anyhow::Result<Vec<DeadLetterSelection>> {
    if occurrences.is_empty() {
        return Ok(vec![DeadLetterSelection::matching(filter.filter(client).await?)]);
    }
    let parts = occurrences.chunks(limits::PAGE_ITEMS_MAX);
    Ok(parts.map(|part| DeadLetterSelection::ids(part.to_vec())).collect())
}

/// Counts up on stderr; invisible where stderr is not a terminal. The total is unknown.
fn progress(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {pos} {msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_message(what).with_style(style)
}

fn told(what: &str, count: u64, refused: &[RefusedLetter]) -> String {
    if refused.is_empty() {
        return format!("{count} {what}");
    }
    let rows = refused.iter().map(|letter| vec![letter.occurrence_id.to_string(), letter.reason.clone()]);
    format!("{count} {what}, {} refused:\n{}", refused.len(), table(&["OCCURRENCE", "REASON"], rows))
}

const fn exit_of(refused: &[RefusedLetter]) -> Exit {
    if refused.is_empty() { Exit::Done } else { Exit::Refused }
}
