//! The binary: the command line of all crates, and the commands about databases and this machine.

mod alert_demo;
mod backup;
mod check;
mod completions;
mod doctor;
mod man;
mod migrate;
mod migrate_data;
mod mistakes;
mod reference;

use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use punctual_bench::{self as bench, BenchCommand};
use punctual_cli::flag_names::CommandFlags;
use punctual_cli::{
    apply, audit, calendar, clock, context, demo, dlq, executions, export, import, job, job_schema, job_type,
    login, logs, nodes, notifications, operations, pause, plan, queue, schedule, secret, stats, token, top,
    user, workers,
};
use punctual_config::exit::{self, Exit};
use punctual_config::{ConfigCommand, handover, output};
use punctual_node::serve;
use punctual_shim as shim;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// A job scheduler: every job on time, run once, never lost.
#[derive(Parser)]
#[command(name = "punctual", version, after_help = exit::help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server: API, scheduler and a worker in one process
    Serve(serve::ServeArgs),
    /// Run one of several API servers on a shared database
    Api(serve::ApiArgs),
    /// Run one of several schedulers on a shared database
    Scheduler(serve::SchedulerArgs),
    /// Run a worker: on a shared database, or connected to a remote server
    Worker(serve::WorkerArgs),
    /// Submit, show and control jobs
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Show what `punctual apply` would change; exit code 10 if there is anything
    Plan(plan::PlanArgs),
    /// Create, update and delete jobs so that they are as files describe them
    Apply(apply::ApplyArgs),
    /// Write jobs as a file for `punctual apply`
    Export(export::ExportArgs),
    /// Turn schedules of cron, systemd, Kubernetes, Sidekiq, Celery or Quartz into a file for apply
    Import(import::ImportArgs),
    /// Print the JSON Schema of files for `punctual apply`, for editors
    Schema,
    /// List the executions of all jobs, and run finished ones again
    #[command(subcommand, visible_alias = "execution")]
    Executions(executions::ExecutionsCommand),
    /// Set, import and show calendars: times at which jobs do not run
    #[command(subcommand)]
    Calendar(calendar::CalendarCommand),
    /// List, show or cancel operations: actions on many jobs
    #[command(subcommand)]
    Operations(operations::OperationsCommand),
    /// Pause the whole cluster: nothing starts; running executions finish
    Pause(pause::PauseArgs),
    /// End the pause of the cluster: everything that waited runs, late
    #[command(visible_alias = "resume")]
    Unpause(pause::UnpauseArgs),
    /// Preview recurring schedules
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// Show, redrive or discard dead letters: runs that failed permanently
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
    /// Show, configure, pause and resume queues
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Show, pause, resume and drain workers
    #[command(subcommand)]
    Workers(workers::WorkersCommand),
    /// Show the processes of the cluster: role, version, segments and clock
    Nodes(nodes::NodesArgs),
    /// Show statistics of jobs, executions, queues and workers
    Stats(stats::StatsArgs),
    /// Monitor the server live: rates, queues, workers, running and failed executions
    Top(top::TopArgs),
    /// Submit example jobs to the server, watch them run, and explain them
    Demo(demo::DemoArgs),
    /// The server of the demo of alerts
    #[command(name = alert_demo::SUBCOMMAND, hide = true)]
    DemoServer(serve::ServeArgs),
    /// Show the server's clock, and advance it if it is manual
    #[command(subcommand)]
    Clock(clock::ClockCommand),
    /// Create, show, rotate and revoke tokens
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Add, show, change and remove users
    #[command(subcommand)]
    User(user::UserCommand),
    /// Search the logs of all jobs
    Logs(logs::LogsArgs),
    /// Set and show schemas that payloads of job types must match
    #[command(subcommand)]
    Type(job_type::TypeCommand),
    /// Set, show, remove and re-encrypt secrets, which payloads refer to
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Set, show and remove channels: where notifications go
    #[command(subcommand)]
    Channel(notifications::ChannelCommand),
    /// Test channels, show and acknowledge alerts, show and repeat messages, and set rules
    #[command(subcommand)]
    Notify(notifications::NotifyCommand),
    /// Suppress notifications for a time
    #[command(subcommand)]
    Silence(notifications::SilenceCommand),
    /// Store a token for a server, so that commands use both
    Login(login::LoginArgs),
    /// Remove the stored token of a server
    Logout(login::LogoutArgs),
    /// Show the server, and what the token may do there
    Whoami(login::WhoamiArgs),
    /// Work with several servers: name them, and choose one
    #[command(subcommand)]
    Context(context::ContextCommand),
    /// Show who has changed what, or verify that the record is unchanged
    Audit(audit::AuditArgs),
    /// Back up the embedded database, even while its server runs
    Backup(backup::BackupArgs),
    /// Verify the database: an embedded one while its server is stopped, or a shared one at any time
    Check(check::CheckArgs),
    /// Show the schema of a shared database, or migrate it to this version
    #[command(subcommand)]
    Migrate(migrate::MigrateCommand),
    /// Copy all data from one store to another, such as from the embedded one to PostgreSQL
    MigrateData(migrate_data::MigrateDataArgs),
    /// Show the configuration and its sources, check it, or print a template
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check the server, its data and this machine for problems, and suggest fixes
    Doctor(doctor::DoctorArgs),
    /// Run benchmarks on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Print a shell completion script
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write the pages of all commands to a directory
    Man(man::ManArgs),
    /// Print the reference page of the command line
    #[command(hide = true)]
    Reference,
}

impl Command {
    /// Whether it is a long-running process with a log.
    const fn has_log(&self) -> bool {
        matches!(
            self,
            Command::Serve(_)
                | Command::Api(_)
                | Command::Scheduler(_)
                | Command::Worker(_)
                | Command::DemoServer(_)
        )
    }
}

/// How long the store may take to close its files. A crash would lose nothing either, so this is short.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    // The stages of running a command are internal, and start often.
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(first) if first == shim::SUBCOMMAND => return shim::run(),
        Some(first) if first == shim::EXEC_SUBCOMMAND => return shim::exec(args),
        Some(first) if first == shim::INIT_SUBCOMMAND => return shim::run_init(args),
        _ => {}
    }
    keep_memory_private();
    completions::answer_script(command_line);
    let arguments = match handover::arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!(
                "error: cannot remove the secrets from the environment and the command line: {error}; write them to files, \
                 such as store.password_file"
            );
            return Exit::CannotStart.into();
        }
    };
    let command_line = command_line();
    let (cli, matches) =
        parsed(command_line.clone(), &arguments).unwrap_or_else(|error| misunderstood(&error, &arguments));
    let unknown = punctual_config::unknown_variables(&command_line);
    // A server logs them.
    if !cli.command.has_log() {
        for unknown in &unknown {
            output::tell(&format!("warning: {unknown}"));
        }
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return Exit::CannotStart.into();
        }
    };
    let outcome = runtime.block_on(run(cli.command, &unknown));
    // Drops everything that still runs, and with it the last reference to the store, which then closes its
    // files.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    match outcome {
        Ok(exit) => {
            // Only a server has a log, and it has not stopped before its files are closed.
            tracing::info!("stopped");
            exit.into()
        }
        Err(error) => exit::report(&CommandFlags::of(&command_line, &matches).name_in(error)).into(),
    }
}

/// Keeps the memory of this process, with its keys and tokens, from other processes of the same user: they can neither
/// make it write a core file nor use its files in `/proc`. Programs that it executes start without the second
/// protection, which the stages of a command need for their namespaces.
fn keep_memory_private() {
    // Both always work: they only give up rights.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// The definition of the command line. A negative number or duration is always a value: only the flag's own
/// error says what is expected.
fn command_line() -> clap::Command {
    handover::with_variables(with_negative_values(Cli::command()))
}

fn with_negative_values(command: clap::Command) -> clap::Command {
    let is_duration = |arg: &Arg| {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().any(|name| name.contains("DURATION") || name == "INTERVAL")
    };
    let with_values = |arg: Arg| match arg.get_action().takes_values() {
        true if is_duration(&arg) => arg.allow_hyphen_values(true),
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(with_values).mut_subcommands(with_negative_values)
}

fn parsed(
    mut command_line: clap::Command,
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<(Cli, ArgMatches), clap::Error> {
    let matches = command_line.try_get_matches_from_mut(arguments)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command_line))?;
    Ok((cli, matches))
}

/// Prints why the command line is invalid, or the requested help, and exits.
fn misunderstood(error: &clap::Error, arguments: &[OsString]) -> ! {
    let arguments: Vec<String> =
        arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    // The error repeats the arguments, and a terminal must not interpret them: so they are escaped first.
    let shown: Vec<String> =
        arguments.iter().map(|argument| output::one_line(argument).into_owned()).collect();
    let told = (shown != arguments).then(|| parsed(command_line(), &shown).err()).flatten();
    let _ = told.as_ref().unwrap_or(error).print();
    if let Some(hint) = mistakes::hint(error, &arguments) {
        eprintln!("\n{hint}");
    }
    std::process::exit(error.exit_code())
}

async fn run(command: Command, unknown: &[String]) -> anyhow::Result<Exit> {
    match command {
        Command::Serve(args) => serve::run(args, unknown).await,
        Command::Api(args) => serve::run_api(args, unknown).await,
        Command::Scheduler(args) => serve::run_scheduler(args, unknown).await,
        Command::Worker(args) => serve::run_worker(args, unknown).await,
        Command::Job(command) => job::run(command).await,
        Command::Plan(args) => plan::run(args).await,
        Command::Apply(args) => apply::run(args).await,
        Command::Export(args) => export::run(args).await,
        Command::Import(args) => import::run(args).await,
        Command::Schema => job_schema::run(),
        Command::Calendar(command) => calendar::run(command).await,
        Command::Executions(command) => executions::run(command).await,
        Command::Operations(command) => operations::run(command).await,
        Command::Pause(args) => pause::run(args).await,
        Command::Unpause(args) => pause::unpause(args).await,
        Command::Schedule(command) => schedule::run(command).await,
        Command::Dlq(command) => dlq::run(command).await,
        Command::Queue(command) => queue::run(command).await,
        Command::Workers(command) => workers::run(command).await,
        Command::Nodes(args) => nodes::run(args).await,
        Command::Stats(args) => stats::run(args).await,
        Command::Top(args) => top::run(args).await,
        Command::Demo(args) => match args.alerts() {
            Some(alerts) => alert_demo::run(alerts).await,
            None => demo::run(args).await,
        },
        Command::DemoServer(args) => alert_demo::run_server(args, unknown).await,
        Command::Clock(command) => clock::run(command).await,
        Command::Token(command) => token::run(command).await,
        Command::User(command) => user::run(command).await,
        Command::Logs(args) => logs::run(args).await,
        Command::Type(command) => job_type::run(command).await,
        Command::Secret(command) => secret::run(command).await,
        Command::Channel(command) => notifications::run_channel(command).await,
        Command::Notify(command) => notifications::run_notify(command).await,
        Command::Silence(command) => notifications::run_silence(command).await,
        Command::Login(args) => login::login(args).await,
        Command::Logout(args) => login::logout(args),
        Command::Whoami(args) => login::whoami(args).await,
        Command::Context(command) => context::run(command),
        Command::Audit(args) => audit::run(args).await,
        Command::Backup(args) => backup::run(args).await,
        Command::Check(args) => check::run(args).await,
        Command::Migrate(command) => migrate::run(command).await,
        Command::MigrateData(args) => migrate_data::run(args).await,
        Command::Config(command) => punctual_config::run(command, punctual_node::serve::check_files),
        Command::Doctor(args) => doctor::run(args).await,
        Command::Bench(command) => bench::run(command).await,
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args, Cli::command()),
        Command::Reference => reference::run(Cli::command()),
    }
}
