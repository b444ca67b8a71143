//! Shell completions: the scripts, and the candidates that they ask for.
//!
//! A script runs this program for each completion. So candidates can come from the server: names of jobs, queues, job
//! types, owners and workers. If the server does not answer at once, there are none.

use anyhow::Context;
use clap::{Arg, Command, CommandFactory, Parser};
use clap_complete::env::Shells;
use clap_complete::{ArgValueCandidates, CompleteEnv, CompletionCandidate, Shell};
use punctual_client::{Client, ClientError, ExecutionStatus, JobBody, JobFilter};
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::print_raw;
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// The variable by which a script asks for candidates.
const VARIABLE: &str = "_PUNCTUAL_COMPLETE";
/// How long someone who presses the tab key may have to wait for the server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct CompletionsArgs {
    /// The shell to generate the script for
    #[arg(value_enum)]
    shell: Shell,
}

const HELP: &str = "\
Where the scripts go:
  bash        punctual completions bash > ~/.local/share/bash-completion/completions/punctual
  zsh         punctual completions zsh > \"${fpath[1]}/_punctual\"
  fish        punctual completions fish > ~/.config/fish/completions/punctual.fish
  elvish      punctual completions elvish > ~/.config/elvish/lib/punctual.elv, then: use punctual
  powershell  punctual completions powershell >> $PROFILE

The scripts run punctual, which asks the server for the names of jobs, queues, job types, owners and workers.";

pub fn run(args: CompletionsArgs) -> anyhow::Result<Exit> {
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell.to_string()).context("no script for this shell")?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "punctual", "punctual", &program(), &mut script)?;
    print_raw(std::str::from_utf8(&script).context("the script is not text")?)?;
    Ok(Exit::Done)
}

/// The program as a script finds it: by its name if the shell has found it so.
fn program() -> String {
    let called = PathBuf::from(std::env::args_os().next().unwrap_or_else(|| "punctual".into()));
    let called = match called.components().count() {
        1 => called,
        _ => std::path::absolute(&called).unwrap_or(called),
    };
    called.to_string_lossy().into_owned()
}

/// Answers a script and exits, if one has started this process.
pub fn answer_script(command_line: fn() -> Command) {
    CompleteEnv::with_factory(|| with_candidates(command_line(), "")).var(VARIABLE).complete();
}

/// The command with candidates for the values that it does not list itself.
fn with_candidates(command: Command, group: &str) -> Command {
    let name = command.get_name().to_owned();
    command
        .mut_args(|arg| match candidates(group, &arg) {
            Some(candidates) => arg.add(candidates),
            None => arg,
        })
        .mut_subcommands(|subcommand| with_candidates(subcommand, &name))
}

/// The candidates for an argument of a command of this group, such as `job`.
fn candidates(group: &str, arg: &Arg) -> Option<ArgValueCandidates> {
    let value = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    Some(match (arg.get_long(), value) {
        (Some("status"), _) if group == "executions" => {
            let open = [ExecutionStatus::Waiting, ExecutionStatus::Queued, ExecutionStatus::Running];
            let all = open.into_iter().chain(Status::ALL.map(ExecutionStatus::from));
            words(all.map(|status| status.to_string()))
        }
        (Some("status"), _) => fixed(&["ACTIVE", "PAUSED", "COMPLETED", "FAILED", "CANCELLED"]),
        (Some("schedule-type"), _) => fixed(&["IMMEDIATE", "ONE_TIME", "RECURRING"]),
        (Some("misfire-policy"), _) => fixed(&["SKIP_MISSED", "RUN_ONCE", "RUN_ALL"]),
        (Some("overlap-policy"), _) => fixed(&["SKIP", "ALLOW", "QUEUE", "REPLACE"]),
        // Commands with other formats than these list them themselves.
        (Some("output"), _) if arg.get_possible_values().is_empty() => {
            fixed(&["table", "wide", "name", "json", "yaml"])
        }
        (Some("priority"), _) => fixed(&["low", "medium", "high"]),
        (Some("queue"), _) | (None, "QUEUE") => asked(queues),
        (Some("calendar"), _) | (None, "CALENDAR") => asked(calendars),
        (Some("notify"), _) => asked(notified),
        (None, "OPERATION") => asked(operations),
        (Some("name"), _) if group == "job" => asked(job_names),
        (_, "JOB" | "JOB|EXECUTION") => asked(job_names),
        (_, "JOB_TYPE") => asked(job_types),
        (Some("owner"), _) if matches!(group, "job" | "executions" | "dlq") => asked(owners),
        (Some("worker"), _) | (None, "WORKER") => asked(workers),
        _ => return None,
    })
}

fn fixed(values: &'static [&'static str]) -> ArgValueCandidates {
    words(values.iter().map(|value| (*value).to_owned()))
}

/// People type words of the API in lower case.
fn words(values: impl Iterator<Item = String>) -> ArgValueCandidates {
    let values: Vec<String> = values.map(|value| value.to_ascii_lowercase()).collect();
    ArgValueCandidates::new(move || values.iter().map(CompletionCandidate::new).collect::<Vec<_>>())
}

async fn job_names(client: Client) -> Result<Vec<String>, ClientError> {
    of_jobs(client, |job| job.name).await
}

async fn owners(client: Client) -> Result<Vec<String>, ClientError> {
    of_jobs(client, |job| job.owner_id).await
}

/// A field of the latest jobs.
async fn of_jobs(client: Client, field: fn(JobBody) -> String) -> Result<Vec<String>, ClientError> {
    let latest = JobFilter { limit: Some(limits::PAGE_ITEMS_MAX), ..JobFilter::default() };
    Ok(client.jobs(&latest).await?.items.into_iter().map(field).collect())
}

async fn job_types(client: Client) -> Result<Vec<String>, ClientError> {
    let workers = client.workers().await.map(|page| page.items).unwrap_or_default();
    let handled = workers.into_iter().flat_map(|worker| worker.job_types);
    Ok(handled.chain(of_jobs(client, |job| job.job_type).await?).collect())
}

async fn queues(client: Client) -> Result<Vec<String>, ClientError> {
    Ok(client.queues().await?.items.into_iter().map(|queue| queue.queue).collect())
}

async fn calendars(client: Client) -> Result<Vec<String>, ClientError> {
    Ok(client.calendars().await?.items.into_iter().map(|calendar| calendar.name).collect())
}

/// The events that `--notify` names.
const EVENTS: [&str; 5] = ["failure", "missed", "late", "recovery", "success"];

/// Each event with each channel, as in `--notify failure=ops`.
async fn notified(client: Client) -> Result<Vec<String>, ClientError> {
    let channels = client.channels().await?.items;
    let of_channel = |name: &str| EVENTS.map(|event| format!("{event}={name}"));
    Ok(channels.iter().flat_map(|channel| of_channel(&channel.name)).collect())
}

async fn operations(client: Client) -> Result<Vec<String>, ClientError> {
    let page = client.operations(Some(limits::PAGE_ITEMS_MAX), None).await?;
    Ok(page.items.iter().map(|operation| operation.operation_id.to_string()).collect())
}

async fn workers(client: Client) -> Result<Vec<String>, ClientError> {
    Ok(client.workers().await?.items.into_iter().map(|worker| worker.worker_id).collect())
}

/// Candidates from the server.
fn asked<F, A>(ask: F) -> ArgValueCandidates
where
    F: Fn(Client) -> A + Copy + Send + Sync + 'static,
    A: Future<Output = Result<Vec<String>, ClientError>>,
{
    ArgValueCandidates::new(move || answered(ask).unwrap_or_default())
}

fn answered<A>(ask: impl Fn(Client) -> A) -> Option<Vec<CompletionCandidate>>
where
    A: Future<Output = Result<Vec<String>, ClientError>>,
{
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let connect = connect_args(words)?;
    let connection = connect.connection_within(&connect.surroundings().ok()?).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let names = runtime.block_on(async {
        let client = connection.open(connection.token.clone()?).ok()?.without_retries();
        tokio::time::timeout(SERVER_TIMEOUT, ask(client)).await.ok()?.ok()
    })?;
    let names: BTreeSet<String> = names.into_iter().filter(|name| is_plain(name)).collect();
    Some(names.into_iter().map(CompletionCandidate::new).collect())
}

/// Whether a shell takes a name as one word, without quotes.
fn is_plain(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_.:/@+%=".contains(letter);
    !name.starts_with('-') && name.chars().all(is_plain)
}

#[derive(Parser)]
struct CompletedCommand {
    #[command(flatten)]
    connect: ConnectArgs,
}

/// How the command that is being completed would find its server. Its words come after `--`.
fn connect_args(words: impl Iterator<Item = String>) -> Option<ConnectArgs> {
    let known = CompletedCommand::command();
    let is_known = |name: &str| known.get_arguments().any(|arg| arg.get_long() == Some(name));
    let mut given = vec!["punctual".to_owned()];
    let mut words = words.skip_while(|word| word != "--").skip(1);
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--") else { continue };
        let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
        if is_known(name) {
            let value = value.map(str::to_owned).or_else(|| words.next())?;
            given.extend([format!("--{name}"), value]);
        }
    }
    Some(CompletedCommand::try_parse_from(given).ok()?.connect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_shell_would_split_are_left_out() {
        assert!(["nightly", "a.b-c_d:e", "größe"].iter().all(|name| is_plain(name)));
        assert!(["a b", "$(x)", "a;b", "-rf", "a'b", "a\"b", "~x"].iter().all(|name| !is_plain(name)));
    }

    #[test]
    fn the_server_is_that_of_the_completed_command() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>().into_iter();
        let named = connect_args(words("punctual -- punctual job show -o json --server=a:1 night")).unwrap();
        assert!(named.names_server());
        let unnamed = connect_args(words("punctual --server a:1 -- punctual job show night")).unwrap();
        assert!(!unnamed.names_server(), "only the words after -- belong to it");
    }
}
