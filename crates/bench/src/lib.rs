//! `punctual bench`: measures this machine, next to a baseline of its disk and the bare database.
//!
//! Every benchmark starts its own server in a separate process (`node`), on a temporary directory, and talks to it
//! over HTTP like any other client. It never touches a server that already runs.

mod accuracy;
mod baseline;
mod bench_server;
mod claims;
mod durable;
mod failures;
mod fill;
mod hold;
mod latency;
mod ledger;
mod limited;
mod load;
mod machine;
mod node;
mod noops;
mod overhead;
mod pace;
mod percentiles;
mod pipe;
mod plot;
mod process;
mod process_group;
mod recorder;
mod round_trip;
mod samples;
mod scheduler_group;
mod schedulers;
mod scratch;
mod signals;
mod slope;
mod soak;
mod soak_report;
mod space;
mod steady;
mod submit;
mod sync;
mod throughput;
mod units;
mod unused;
mod usage;
mod workers;

use crate::signals::BenchSignals;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use punctual_config::exit::{CliError, Exit};
use punctual_config::{BrokerSettings, Flags, Surroundings};
use punctual_node::store::{ServerPlace, StoreArgs, StorePlace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub enum BenchCommand {
    /// Measure throughput with no-op jobs: submitted beforehand, and submitted during the run
    Throughput(throughput::ThroughputArgs),
    /// Submit over HTTP: in batches, and one by one over many connections
    Submit(submit::SubmitArgs),
    /// Submit one no-op at a time and measure until its handler starts
    Latency(latency::LatencyArgs),
    /// Run scheduled jobs: count their fires and measure how late their handlers start
    #[command(alias = "lateness")]
    Accuracy(accuracy::AccuracyArgs),
    /// Store many future jobs, and measure latency and accuracy without and with them
    Hold(hold::HoldArgs),
    /// Compare draining jobs from a full database and from an empty one
    Claims(claims::ClaimsArgs),
    /// Use many queues, owners, tags and keys once, and compare a server with them to an empty one
    Unused(unused::UnusedArgs),
    /// Compare draining jobs without and with roll-ups, failures and notification rules
    Overhead(overhead::OverheadArgs),
    /// Measure fires per second when many jobs fall due at once on a database shared by 1, 2 and 4 schedulers
    Schedulers(schedulers::SchedulersArgs),
    /// Measure how fast 1, 2, 4, 8 and 16 worker processes on one database execute no-op jobs
    Workers(workers::WorkersArgs),
    /// Put a steady load on a server for hours and report whether memory, files, rate and lateness stay flat
    Soak(soak::SoakArgs),
    /// Write finished jobs and their history into a new data directory, to try a server or the dashboard with it
    Fill(fill::FillArgs),
    /// The server that is measured
    #[command(name = node::SUBCOMMAND, hide = true)]
    Node(node::NodeArgs),
}

/// Where a benchmark stores its database.
#[derive(Debug, Clone, clap::Args)]
struct PlaceArgs {
    /// A directory on the disk to measure; the benchmark uses a temporary directory below it and removes it afterwards
    #[arg(long, alias = "data-dir", default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Measures a database server instead, in a database that the benchmark creates and drops
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    broker: Flags<BrokerSettings>,
}

impl PlaceArgs {
    /// The settings of the broker for the measured processes. As for the database, only flags count.
    fn broker(&self) -> Result<BrokerSettings, CliError> {
        let nothing = Surroundings { variables: BTreeMap::new(), file: None };
        let broker = nothing.read(&self.broker)?;
        if broker.url.options().is_some() && self.database_server()?.is_none() {
            return Err(bad_option(
                "--broker: pass a PostgreSQL or MySQL server with --store; the embedded store is used by a single process",
            ));
        }
        Ok(broker)
    }

    /// The database server to measure, or `None` for the embedded store. Only flags count: environment variables and
    /// the configuration file describe a production server, which a benchmark must not touch.
    fn database_server(&self) -> Result<Option<ServerPlace>, CliError> {
        // Pass no variables: the user must name the server on which the benchmark creates databases.
        let nothing = Surroundings { variables: BTreeMap::new(), file: None };
        match self.store.place(&nothing, Path::new(""))? {
            StorePlace::Server(server) => Ok(Some(*server)),
            StorePlace::Sqlite(directory) if directory.as_os_str().is_empty() => {
                if std::env::var_os("PUNCTUAL_STORE").is_some() {
                    eprintln!(
                        "PUNCTUAL_STORE is not used by benchmarks: pass the database to measure with --store"
                    );
                }
                Ok(None)
            }
            StorePlace::Sqlite(_) => {
                Err(bad_option("--store: choose the directory of a SQLite benchmark with --dir"))
            }
        }
    }
}

/// Maximum jobs of any benchmark: more than a disk can hold.
pub const JOBS_MAX: u64 = 1_000_000_000;
/// Maximum due times of one round and latencies of one run. All of them are held in memory.
pub const DUE_TIMES_MAX: u64 = 10_000_000;

pub async fn run(command: BenchCommand) -> anyhow::Result<Exit> {
    if let BenchCommand::Node(args) = command {
        return node::run(args).await;
    }
    let mut signals = BenchSignals::listen()?;
    match command {
        // An interrupted soak still prints its report, because it may have measured for hours.
        BenchCommand::Soak(args) => soak::run(args, &mut signals).await,
        other => signals.unless(measure(other)).await,
    }
}

async fn measure(command: BenchCommand) -> anyhow::Result<Exit> {
    match command {
        BenchCommand::Throughput(args) => throughput::run(args).await,
        BenchCommand::Submit(args) => submit::run(args).await,
        BenchCommand::Latency(args) => latency::run(args).await,
        BenchCommand::Accuracy(args) => accuracy::run(args).await,
        BenchCommand::Hold(args) => hold::run(args).await,
        BenchCommand::Claims(args) => claims::run(args).await,
        BenchCommand::Unused(args) => unused::run(args).await,
        BenchCommand::Overhead(args) => overhead::run(args).await,
        BenchCommand::Schedulers(args) => schedulers::run(args).await,
        BenchCommand::Workers(args) => workers::run(args).await,
        BenchCommand::Fill(args) => fill::run(args).await,
        BenchCommand::Soak(_) | BenchCommand::Node(_) => unreachable!("handled above"),
    }
}

/// A bar on stderr; invisible where stderr is no terminal.
fn progress(what: &'static str, total: u64) -> ProgressBar {
    let template = "{msg:12} [{bar:40}] {human_pos}/{human_len} {per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style).with_message(what)
}

/// An option that was understood but cannot be followed.
fn bad_option(message: impl Into<String>) -> CliError {
    CliError { exit: Exit::Misunderstood, message: message.into() }
}
