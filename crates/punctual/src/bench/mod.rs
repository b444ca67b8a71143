//! `punctual bench`: what this machine gives, measured beside the floor that its disk and the bare store set.

mod door;
mod floor;
mod latency;
mod lateness;
mod machine;
mod percentiles;
mod recorder;
mod stage;
mod throughput;

use crate::exit::Exit;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum BenchCommand {
    /// Submit many no-ops, then execute them all to their recorded outcome
    Throughput(throughput::ThroughputArgs),
    /// Submit one no-op at a time and measure until its handler starts
    Latency(latency::LatencyArgs),
    /// Let scheduled jobs fall due and measure how late their handlers start
    Lateness(lateness::LatenessArgs),
}

/// Where a benchmark keeps its database.
#[derive(clap::Args)]
struct PlaceArgs {
    /// A directory on the disk to measure; the benchmark leaves nothing behind
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
}

pub async fn run(command: BenchCommand) -> anyhow::Result<Exit> {
    match command {
        BenchCommand::Throughput(args) => throughput::run(args).await,
        BenchCommand::Latency(args) => latency::run(args).await,
        BenchCommand::Lateness(args) => lateness::run(args).await,
    }
}

/// A bar on stderr; invisible where stderr is no terminal.
fn progress(what: &'static str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:12} [{bar:40}] {human_pos}/{human_len} {per_sec}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style).with_message(what)
}

fn per_second(count: u64, time: std::time::Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

/// A whole number in groups of three digits.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0.0, 999.4, 1_000.0, 1_234_567.0].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
