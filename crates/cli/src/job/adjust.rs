//! `punctual job skip-next|run-next-at|backfill`: single occurrences of recurring jobs.

use crate::job::which::WhichJob;
use crate::schedule::occurrence_rows;
use punctual_client::{BackfillBody, BackfillRequest, ReplayRate};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, table, time};
use punctual_core::time::Timestamp;

#[derive(clap::Args)]
pub struct SkipNextArgs {
    #[command(flatten)]
    which: WhichJob,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RunNextAtArgs {
    #[command(flatten)]
    which: WhichJob,
    /// When it runs, such as 2026-11-15T12:00:00Z; before the run after it
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    at: Timestamp,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct BackfillArgs {
    #[command(flatten)]
    which: WhichJob,
    /// The earliest scheduled time
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    from: Timestamp,
    /// The latest scheduled time
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    to: Timestamp,
    /// How many runs at most, the earliest ones; 1000 if not given
    #[arg(long, value_name = "COUNT")]
    limit: Option<u32>,
    /// How fast, such as 10/m or 2/s; by default as fast as the overlap policy allows
    #[arg(long, value_name = "RATE")]
    rate: Option<ReplayRate>,
    /// Only show what would run
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn skip_next(args: SkipNextArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let id = args.which.id(&client).await?;
    let job = client.skip_next(id).await?;
    args.output.print(&job, |job| match job.next_run_time {
        Some(next) => format!("skipped the next run of {}; it runs again at {}", job.name, time(next)),
        None => format!("skipped the next run of {}; no run is scheduled", job.name),
    })?;
    Ok(Exit::Done)
}

pub async fn run_next_at(args: RunNextAtArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let id = args.which.id(&client).await?;
    let execution = client.run_next_at(id, args.at).await?;
    args.output.print(&execution, |execution| {
        let (scheduled, at) = (time(execution.scheduled_time), time(execution.available_at));
        format!("the run of {scheduled} starts at {at}: execution {}", execution.execution_id)
    })?;
    Ok(Exit::Done)
}

pub async fn backfill(args: BackfillArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let id = args.which.id(&client).await?;
    let BackfillArgs { from, to, limit, rate, dry_run, .. } = args;
    let plan = client.backfill(id, &BackfillRequest { from, to, limit, rate, dry_run }).await?;
    args.output.print(&plan, told)?;
    Ok(Exit::Done)
}

fn told(plan: &BackfillBody) -> String {
    let range = format!("from {} to {}", time(plan.first), time(plan.last));
    let excluded = match plan.excluded {
        0 => String::new(),
        excluded => format!("; calendars exclude {excluded} more"),
    };
    if !plan.dry_run {
        return format!("backfill of {} occurrences {range} started{excluded}", plan.count);
    }
    let table = table(&["UTC", "LOCAL", "CLOCK CHANGE"], occurrence_rows(&plan.occurrences));
    let more = plan.count.saturating_add(plan.excluded).saturating_sub(plan.occurrences.len() as u64);
    let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
    format!("{} occurrences {range} would run{excluded}\n\n{table}{more}", plan.count)
}
