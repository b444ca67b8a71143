//! `punctual clock`: shows the time of a server's schedules, and moves it where that is allowed.

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use punctual_client::{Client, ClientError, ClockBody, ClockMode, ClockMoved, MoveClock, Span};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, time};
use punctual_core::time::Timestamp;
use std::time::Duration;

/// Pause between two reads of an advance's progress.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

#[derive(Subcommand)]
pub enum ClockCommand {
    /// Show the server's time and whether its clock is manual
    Show(ShowArgs),
    /// Advance the clock: everything due on the way fires at its own time
    Advance(MoveArgs),
    /// Jump the clock, as if the server had been down: runs in between are missed
    Jump(MoveArgs),
}

#[derive(clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct MoveArgs {
    #[command(flatten)]
    way: AdvanceArgs,
    /// How long to wait, at each due time, until started executions finish; by default 10s, and 0s to not wait
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    settle: Option<Span>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// One of these.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct AdvanceArgs {
    /// By how much, such as 90s, 1h or 3d
    #[arg(value_name = "DURATION", value_parser = args::span)]
    by: Option<Span>,
    /// Up to this time, such as 2026-03-29T03:00:00Z
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    to: Option<Timestamp>,
}

pub async fn run(command: ClockCommand) -> anyhow::Result<Exit> {
    match command {
        ClockCommand::Show(args) => {
            let clock = args.connect.client()?.clock().await?;
            args.output.print(&clock, shown)?;
        }
        ClockCommand::Advance(args) => {
            let moved = advance(&args.connect.client()?, &args).await?;
            args.output.print(&moved, told)?;
        }
        ClockCommand::Jump(args) => {
            let way = MoveClock { by: args.way.by, to: args.way.to, settle: args.settle };
            let moved = args.connect.client()?.jump_clock(&way).await?;
            args.output.print(&moved, told)?;
        }
    }
    Ok(Exit::Done)
}

/// Repeats the request until the clock has arrived: one request goes only so far.
async fn advance(client: &Client, args: &MoveArgs) -> Result<ClockMoved, ClientError> {
    let start = client.clock().await?.now;
    let to = args.way.to.unwrap_or_else(|| start.plus(args.way.by.unwrap_or_default().get()));
    let way = MoveClock { by: None, to: Some(to), settle: args.settle };
    let bar = ProgressBar::new(to.since(start).as_secs()).with_style(style());
    let (mut fired, mut skipped) = (0, 0);
    loop {
        let moved = watched(client, &way, |now| {
            bar.set_position(now.since(start).as_secs());
            bar.set_message(time(now));
        });
        let moved = moved.await?;
        fired += moved.fired;
        skipped += moved.skipped;
        if !moved.more {
            bar.finish_and_clear();
            return Ok(ClockMoved { fired, skipped, ..moved });
        }
    }
}

/// One request, with its progress shown.
async fn watched(
    client: &Client,
    way: &MoveClock,
    mut seen: impl FnMut(Timestamp),
) -> Result<ClockMoved, ClientError> {
    let mut moving = std::pin::pin!(client.advance_clock(way));
    loop {
        tokio::select! {
            biased;
            moved = &mut moving => return moved,
            () = tokio::time::sleep(LOOK_PAUSE) => seen(client.clock().await?.now),
        }
    }
}

/// A bar on stderr; invisible where stderr is not a terminal.
fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} [{bar:40}] {percent}%")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn shown(clock: &ClockBody) -> String {
    let mover = match clock.mode {
        ClockMode::System => "the machine's clock",
        ClockMode::Manual => "a manual clock",
    };
    format!("now {}, {mover}", clock.now)
}

fn told(moved: &ClockMoved) -> String {
    let mut text = format!("now {}, {} fired", moved.now, occurrences(moved.fired));
    if moved.skipped > 0 {
        text += &format!(", {} skipped", moved.skipped);
    }
    if !moved.settled {
        text += "; some executions are still due, queued or running";
    }
    text
}

fn occurrences(count: u64) -> String {
    if count == 1 { "1 occurrence".to_owned() } else { format!("{count} occurrences") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_told_in_a_sentence() {
        let now = "2026-03-29T03:00:00Z".parse().unwrap();
        let moved = ClockMoved { now, fired: 4, skipped: 0, settled: true, more: false };
        assert_eq!(told(&moved), "now 2026-03-29T03:00:00Z, 4 occurrences fired");
        let moved = ClockMoved { fired: 1, skipped: 7, settled: false, ..moved };
        assert_eq!(
            told(&moved),
            "now 2026-03-29T03:00:00Z, 1 occurrence fired, 7 skipped; some executions are still due, queued or running"
        );
    }
}
