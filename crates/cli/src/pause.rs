//! `punctual pause` and `punctual unpause`: the whole cluster.

use crate::dlq::filter::FilterTime;
use punctual_client::{Client, PauseBody, SetPause, Span};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, time};
use punctual_core::time::Timestamp;

#[derive(clap::Args)]
pub struct PauseArgs {
    /// Why; `explain`, `stats` and `doctor` show it
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// End by itself at this time: 2026-11-15T08:30:00Z, or 2h for two hours from now
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<FilterTime>,
    /// Skip recurring runs that fall due meanwhile, instead of letting them wait
    #[arg(long)]
    skip: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct UnpauseArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A time, or a duration from now on.
fn moment(text: &str) -> Result<FilterTime, String> {
    if let Ok(span) = text.parse::<Span>() {
        return Ok(FilterTime::Ago(span));
    }
    args::time(text).map(FilterTime::At).map_err(|fix| format!("{fix}, or a duration such as 2h"))
}

pub async fn run(args: PauseArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let until = resolved(&client, args.until).await?;
    let pause = SetPause { reason: args.reason, until, skip: args.skip };
    let paused = client.pause_cluster(&pause).await?;
    args.output.print(&paused, told)?;
    Ok(Exit::Done)
}

pub async fn unpause(args: UnpauseArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let before = client.cluster_pause().await?;
    let now = client.resume_cluster().await?;
    let said = if before.paused { "resumed the cluster" } else { "the cluster was not paused" };
    args.output.print(&now, |_| said.to_owned())?;
    Ok(Exit::Done)
}

async fn resolved(client: &Client, until: Option<FilterTime>) -> anyhow::Result<Option<Timestamp>> {
    Ok(match until {
        None => None,
        Some(FilterTime::At(at)) => Some(at),
        Some(FilterTime::Ago(span)) => Some(client.clock().await?.now.plus(span.get())),
    })
}

/// One sentence about a paused cluster.
pub fn told(pause: &PauseBody) -> String {
    let since = pause.paused_at.map_or_else(String::new, |at| format!(" since {}", time(at)));
    let until = pause.until.map_or_else(String::new, |at| format!(" until {}", time(at)));
    let reason = pause.reason.as_deref().unwrap_or("no reason given");
    let by = pause.paused_by.as_deref().map_or_else(String::new, |by| format!(" (by {by})"));
    let skip = if pause.skip { "; recurring runs are skipped" } else { "" };
    format!("the cluster is paused{since}{until}: {reason}{by}{skip}")
}
