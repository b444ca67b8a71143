//! The chaos suite: real processes of the `punctual` binary on a real database, subjected to faults while
//! clients use them. A checker compares what the API and an external record say with what must have happened.
//! `cargo xtask chaos` starts it.
//!
//! It knows only the HTTP API.

mod chance;
mod checker;
mod cluster;
mod database;
mod failover;
mod history;
mod lateness;
mod load;
mod member;
mod nemesis;
mod observed;
mod plan;
mod receiver;
mod recorder;
mod report;
mod run;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use cluster::ClusterOptions;
use plan::{FaultPlan, ProcessTopology};
use punctual_client::Span;
use run::RunOptions;
use serde::Serialize;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Environment variable with the library that changes the clocks of processes; `cargo xtask chaos` sets it.
const FAKETIME: &str = "PUNCTUAL_CHAOS_FAKETIME";
const LEASE: Duration = Duration::from_secs(6);
/// The lease in the short form, so that a pause longer than it is short, too.
const SHORT_LEASE: Duration = Duration::from_secs(2);

/// Runs chaos tests on a cluster and checks that every job ran on time, once
///
/// Exits with 0 if all checks passed, 1 if a check failed, 2 if the run could not be completed.
#[derive(Parser)]
#[command(name = "cargo xtask chaos", disable_help_subcommand = true)]
struct ChaosArgs {
    #[command(subcommand)]
    what: Option<ChaosCommand>,
    /// The databases to run on, one after the other; by default both
    #[arg(long, value_enum, global = true)]
    store: Vec<ChaosStore>,
    /// Selects faults and load; the same seed gives the same plan. By default taken from the clock
    #[arg(long)]
    seed: Option<u64>,
    /// How long to inject faults into each cluster
    #[arg(long = "for", value_name = "DURATION", default_value = "5m")]
    lasts: Span,
    /// Inject every kind of fault once, in a fixed order, with few processes and few jobs: for every change
    #[arg(long)]
    short: bool,
    /// Recurring jobs
    #[arg(long, default_value_t = 100)]
    recurring: usize,
    /// One-time jobs, spread over the run
    #[arg(long, default_value_t = 5_000)]
    one_time: usize,
    /// The binary to test; by default the one that was built with this program
    #[arg(long, global = true)]
    binary: Option<PathBuf>,
    /// Directory for logs and the record; removed when all checks passed
    #[arg(long, default_value = "target/chaos", global = true)]
    folder: PathBuf,
    /// Keep logs and the record in any case
    #[arg(long, global = true)]
    keep: bool,
    /// `json` prints the reports for programs, a line each
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text, global = true)]
    output: OutputFormat,
}

#[derive(Subcommand)]
enum ChaosCommand {
    /// Measure the effect of losing or restarting one process, without other faults
    Failover {
        /// Start with this older binary, and replace it process by process under load before the other measurements
        #[arg(long, value_name = "BINARY")]
        upgrade_from: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ChaosStore {
    Postgres,
    Mariadb,
}

impl ChaosStore {
    const fn service(self) -> &'static str {
        match self {
            ChaosStore::Postgres => "postgres",
            ChaosStore::Mariadb => "mariadb",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    Text,
    Json,
}

/// The exit code of a run without a result.
const NO_RESULT: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = ChaosArgs::parse();
    match run_all(&arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(NO_RESULT)
        }
    }
}

/// Whether every run on every database passed.
async fn run_all(arguments: &ChaosArgs) -> Result<bool> {
    let both = vec![ChaosStore::Postgres, ChaosStore::Mariadb];
    let stores = if arguments.store.is_empty() { &both } else { &arguments.store };
    let seed = arguments.seed.unwrap_or_else(|| member::now().as_micros().unsigned_abs() % 1_000_000);
    let mut all_passed = true;
    for store in stores {
        all_passed &= match &arguments.what {
            None => run_one(arguments, *store, seed).await?,
            Some(ChaosCommand::Failover { upgrade_from }) => {
                measure_failover(arguments, *store, upgrade_from.as_deref()).await?
            }
        };
    }
    Ok(all_passed)
}

async fn measure_failover(
    arguments: &ChaosArgs,
    store: ChaosStore,
    upgrade_from: Option<&Path>,
) -> Result<bool> {
    let topology = ProcessTopology { schedulers: 3, apis: 2, workers: 4 };
    let folder = fresh_folder(arguments, &format!("{}-failover", store.service()))?;
    let mut cluster = cluster_options(arguments, store, topology, &folder, LEASE)?;
    let upgrade_to = upgrade_from.map(|old| std::mem::replace(&mut cluster.binary, old.to_owned()));
    let measured = failover::measure(&cluster, upgrade_to.as_deref()).await;
    let report = measured.with_context(|| format!("logs: {}", folder.display()))?;
    print(arguments, &report)?;
    if !arguments.keep {
        std::fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    Ok(true)
}

async fn run_one(arguments: &ChaosArgs, store: ChaosStore, seed: u64) -> Result<bool> {
    let options = options(arguments, store, seed)?;
    eprintln!("chaos on {}: --seed {seed}, {} faults", store.service(), options.plan.faults.len());
    for fault in &options.plan.faults {
        eprintln!("  {fault}");
    }
    let folder = options.cluster.folder.clone();
    let outcome = run::run(&options).await;
    let has_passed = outcome.as_ref().is_ok_and(|report| report.has_passed);
    if has_passed && !arguments.keep {
        std::fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    } else {
        eprintln!("logs and record: {}", folder.display());
    }
    print(arguments, &outcome?)?;
    Ok(has_passed)
}

fn print(arguments: &ChaosArgs, report: &(impl Display + Serialize)) -> Result<()> {
    match arguments.output {
        OutputFormat::Text => println!("{report}"),
        OutputFormat::Json => println!("{}", serde_json::to_string(report)?),
    }
    Ok(())
}

fn options(arguments: &ChaosArgs, store: ChaosStore, seed: u64) -> Result<RunOptions> {
    let short = arguments.short;
    let (topology, lease) = if short {
        (ProcessTopology { schedulers: 2, apis: 2, workers: 2 }, SHORT_LEASE)
    } else {
        (ProcessTopology { schedulers: 3, apis: 2, workers: 4 }, LEASE)
    };
    let request = plan::PlanRequest { topology, lasts: arguments.lasts.get(), lease };
    let plan = if short { FaultPlan::ordered(&request) } else { FaultPlan::random(seed, &request) };
    let (recurring, one_time) = if short { (20, 200) } else { (arguments.recurring, arguments.one_time) };
    let folder = fresh_folder(arguments, &format!("{}-{seed}", store.service()))?;
    let cluster = cluster_options(arguments, store, topology, &folder, lease)?;
    Ok(RunOptions { cluster, seed, plan, recurring, one_time, wants_every_kind: short })
}

fn cluster_options(
    arguments: &ChaosArgs,
    store: ChaosStore,
    topology: ProcessTopology,
    folder: &Path,
    lease: Duration,
) -> Result<ClusterOptions> {
    Ok(ClusterOptions {
        binary: arguments.binary.clone().map_or_else(cluster::beside_us, Ok)?,
        service: store.service().to_owned(),
        topology,
        lease,
        folder: folder.to_owned(),
        faketime: std::env::var_os(FAKETIME).map(PathBuf::from),
    })
}

/// Removes the results of an earlier run of the same name, which could be mistaken for this one's.
fn fresh_folder(arguments: &ChaosArgs, name: &str) -> Result<PathBuf> {
    let folder = arguments.folder.join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder)?;
    Ok(folder.canonicalize()?)
}
