//! `punctual schedule`: when a recurring schedule fires, before any job has it.

use crate::connect::ConnectArgs;
use crate::exit::Exit;
use crate::output::{OutputArgs, table, time};
use clap::Subcommand;
use punctual_client::{PreviewBody, PreviewRequest};
use punctual_core::recurrence::DstEffect;
use punctual_core::time::Timestamp;

#[derive(Subcommand)]
pub enum ScheduleCommand {
    /// Show what a schedule means and when it fires next
    Preview(PreviewArgs),
}

#[derive(clap::Args)]
pub struct PreviewArgs {
    /// A cron expression, such as "30 2 * * MON-FRI"
    #[arg(long, value_name = "EXPRESSION", required_unless_present = "every", conflicts_with = "every")]
    cron: Option<String>,
    /// An interval, such as 90s, 1h or daily
    #[arg(long, value_name = "INTERVAL")]
    every: Option<String>,
    /// The zone whose clocks count, such as Europe/Berlin; UTC if left out
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// Count an interval from this time, and show nothing before it
    #[arg(long, value_name = "TIME")]
    start_at: Option<Timestamp>,
    /// Show what comes after this time; now if left out
    #[arg(long, value_name = "TIME")]
    after: Option<Timestamp>,
    /// How many to show
    #[arg(long, default_value_t = 10)]
    count: usize,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(command: ScheduleCommand) -> anyhow::Result<Exit> {
    let ScheduleCommand::Preview(args) = command;
    let request = PreviewRequest {
        cron_expression: args.cron,
        interval: args.every,
        timezone: args.timezone,
        start_at: args.start_at,
        after: args.after,
        count: Some(args.count),
        ..PreviewRequest::default()
    };
    let preview = args.connect.client()?.preview(&request).await?;
    args.output.print(&preview, preview_table)?;
    Ok(Exit::Done)
}

fn preview_table(preview: &PreviewBody) -> String {
    let rows = preview.occurrences.iter().map(|occurrence| {
        let effect = match occurrence.dst {
            None => "",
            Some(DstEffect::RunAfterGap) => "clocks skip its time: runs right after",
            Some(DstEffect::OverlapFirst) => "clocks repeat this time: the first",
            Some(DstEffect::OverlapSecond) => "clocks repeat this time: the second",
        };
        vec![time(occurrence.scheduled_time), occurrence.local_time.clone(), effect.to_owned()]
    });
    let table = table(&["UTC", "LOCAL", "CLOCK CHANGE"], rows);
    format!("{}\n\n{table}", preview.description)
}
