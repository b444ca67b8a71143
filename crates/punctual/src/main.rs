//! The binary: configuration, wiring and the command line. The only place that names concrete adapters.

mod args;
mod backup;
mod bench;
mod check;
mod clock;
mod connect;
mod data_dir;
mod dlq;
mod exit;
mod hints;
mod job;
mod nodes;
mod output;
mod queue;
mod schedule;
mod serve;
mod shim;
mod stats;
mod workers;

use clap::{Parser, Subcommand};
use exit::Exit;
use std::process::ExitCode;
use std::time::Duration;

/// A job scheduler: every job on time, run once, never lost.
#[derive(Parser)]
#[command(name = "punctual", version, after_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server: API, scheduler and a worker in one process
    Serve(serve::ServeArgs),
    /// Submit jobs, look at them and act on them
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Look at recurring schedules before using them
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// Look at runs that failed for good, and run or discard them
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
    /// Look at queues, and hold them
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Look at workers, and hold or drain them
    #[command(subcommand)]
    Workers(workers::WorkersCommand),
    /// Show the servers
    Nodes(nodes::NodesArgs),
    /// Show how much there is to do and how much was done
    Stats(stats::StatsArgs),
    /// Show the server's clock, and drive it where it is manual
    #[command(subcommand)]
    Clock(clock::ClockCommand),
    /// Copy the embedded database, also while its server runs
    Backup(backup::BackupArgs),
    /// Verify the embedded database of a stopped server
    Check(check::CheckArgs),
    /// Measure this machine
    #[command(subcommand)]
    Bench(bench::BenchCommand),
}

/// How long the store may take to close its files. A crash would not lose anything either, so this is short.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    // The stages of running a command are for Punctual's own use, and start often.
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(first) if first == shim::SUBCOMMAND => return shim::run(),
        Some(first) if first == shim::EXEC_SUBCOMMAND => return shim::exec(args),
        _ => {}
    }
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return Exit::CannotStart.into();
        }
    };
    let outcome = runtime.block_on(run(cli.command));
    // Drops whatever still runs, and with its last holder the store, which then closes its files.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    match outcome {
        Ok(exit) => {
            // Only a server has a log, and it is not done before its files are closed.
            tracing::info!("stopped");
            exit.into()
        }
        Err(error) => exit::report(&error).into(),
    }
}

async fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Serve(args) => serve::run(args).await,
        Command::Job(command) => job::run(command).await,
        Command::Schedule(command) => schedule::run(command).await,
        Command::Dlq(command) => dlq::run(command).await,
        Command::Queue(command) => queue::run(command).await,
        Command::Workers(command) => workers::run(command).await,
        Command::Nodes(args) => nodes::run(args).await,
        Command::Stats(args) => stats::run(args).await,
        Command::Clock(command) => clock::run(command).await,
        Command::Backup(args) => backup::run(args).await,
        Command::Check(args) => check::run(args).await,
        Command::Bench(command) => bench::run(command).await,
    }
}
